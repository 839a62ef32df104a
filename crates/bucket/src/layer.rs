//! Stores in front of stores: one implementation of the store trait for every wrapper here, so that
//! a wrapper states only what it changes.

use std::collections::BTreeSet;
use std::fmt;
use std::sync::Arc;

use async_trait::async_trait;
use futures::stream::BoxStream;
use futures::{StreamExt, TryFutureExt, TryStreamExt, stream};
use object_store::path::Path;
use object_store::{
    CopyOptions, Extensions, GetOptions, GetResult, ListResult, MultipartUpload, ObjectMeta,
    ObjectStore, ObjectStoreExt, PutMode, PutMultipartOptions, PutOptions, PutPayload, PutResult,
    Result,
};

/// The store a layer stands in front of.
pub type Inner = Arc<dyn ObjectStore>;

/// What is asked of a store, as far as wrappers tell requests apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Op {
    /// Put-if-absent.
    Create,
    /// Removal of one object.
    Delete,
    /// A read of one object, conditional ones included.
    Get,
    /// A listing; its key is the prefix, without the closing slash.
    List,
    /// Any put that may replace an object.
    Replace,
}

impl Op {
    /// Which kind of put these options ask for.
    pub fn of(options: &PutOptions) -> Self {
        match options.mode {
            PutMode::Create => Self::Create,
            _ => Self::Replace,
        }
    }
}

/// Chooses the keys that a rule or a hook concerns.
pub type KeyFilter = Arc<dyn Fn(&str) -> bool + Send + Sync>;

/// One change of behaviour. Every method passes the request on unless it is overridden.
#[async_trait]
pub trait Layer: fmt::Debug + Send + Sync + 'static {
    /// A put of any mode.
    async fn put(
        &self,
        inner: &Inner,
        key: &Path,
        body: PutPayload,
        options: PutOptions,
    ) -> Result<PutResult> {
        inner.put_opts(key, body, options).await
    }

    /// A put in parts, which always replaces.
    async fn multipart(
        &self,
        inner: &Inner,
        key: &Path,
        options: PutMultipartOptions,
    ) -> Result<Box<dyn MultipartUpload>> {
        inner.put_multipart_opts(key, options).await
    }

    /// A read of one object.
    async fn get(&self, inner: &Inner, key: &Path, options: GetOptions) -> Result<GetResult> {
        inner.get_opts(key, options).await
    }

    /// A whole listing.
    async fn list(
        &self,
        inner: &Inner,
        prefix: Option<&Path>,
        after: Option<&Path>,
    ) -> Result<Vec<ObjectMeta>> {
        list_inner(inner, prefix, after).await
    }

    /// The removal of one object.
    async fn delete(&self, inner: &Inner, key: &Path) -> Result<()> {
        inner.delete(key).await
    }

    /// A copy inside the store.
    async fn copy(
        &self,
        inner: &Inner,
        from: &Path,
        to: &Path,
        options: CopyOptions,
    ) -> Result<()> {
        inner.copy_opts(from, to, options).await
    }
}

/// A store with a layer in front.
#[derive(Debug)]
pub struct Layered<L> {
    inner: Inner,
    layer: Arc<L>,
}

impl<L: Layer> Layered<L> {
    /// Puts `layer` in front of `inner`. Keep a clone of the layer to steer it.
    pub fn new(inner: Inner, layer: Arc<L>) -> Arc<Self> {
        Arc::new(Self { inner, layer })
    }

    fn listing(&self, prefix: Option<&Path>, after: Option<&Path>) -> Listing {
        let (inner, layer) = (Arc::clone(&self.inner), Arc::clone(&self.layer));
        let (prefix, after) = (prefix.cloned(), after.cloned());
        let whole = async move { layer.list(&inner, prefix.as_ref(), after.as_ref()).await };
        let metas = whole.map_ok(|metas| stream::iter(metas.into_iter().map(Ok)));
        stream::once(metas).try_flatten().boxed()
    }
}

type Listing = BoxStream<'static, Result<ObjectMeta>>;

/// Everything that `inner` lists under `prefix`, behind `after` if that is given, in its order.
///
/// # Errors
/// Those of the store.
pub async fn list_inner(
    inner: &Inner,
    prefix: Option<&Path>,
    after: Option<&Path>,
) -> Result<Vec<ObjectMeta>> {
    let pages = match after {
        Some(after) => inner.list_with_offset(prefix, after),
        None => inner.list(prefix),
    };
    pages.try_collect().await
}

/// The folders and objects directly under `prefix`.
fn one_level(prefix: Option<&Path>, metas: Vec<ObjectMeta>) -> ListResult {
    let root = Path::default();
    let prefix = prefix.unwrap_or(&root);
    let (mut folders, mut objects) = (BTreeSet::new(), Vec::new());
    for meta in metas {
        let Some(mut parts) = meta.location.prefix_match(prefix) else { continue };
        let folder = match (parts.next(), parts.next()) {
            (Some(folder), Some(_)) => Some(prefix.clone().join(folder)),
            _ => None,
        };
        drop(parts);
        match folder {
            Some(folder) => drop(folders.insert(folder)),
            None => objects.push(meta),
        }
    }
    let common_prefixes = folders.into_iter().collect();
    ListResult { common_prefixes, objects, extensions: Extensions::default() }
}

impl<L: Layer> fmt::Display for Layered<L> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?} over {}", self.layer, self.inner)
    }
}

#[async_trait]
impl<L: Layer> ObjectStore for Layered<L> {
    async fn put_opts(
        &self,
        location: &Path,
        payload: PutPayload,
        opts: PutOptions,
    ) -> Result<PutResult> {
        self.layer.put(&self.inner, location, payload, opts).await
    }

    async fn put_multipart_opts(
        &self,
        location: &Path,
        opts: PutMultipartOptions,
    ) -> Result<Box<dyn MultipartUpload>> {
        self.layer.multipart(&self.inner, location, opts).await
    }

    async fn get_opts(&self, location: &Path, options: GetOptions) -> Result<GetResult> {
        self.layer.get(&self.inner, location, options).await
    }

    fn delete_stream(
        &self,
        locations: BoxStream<'static, Result<Path>>,
    ) -> BoxStream<'static, Result<Path>> {
        let (inner, layer) = (Arc::clone(&self.inner), Arc::clone(&self.layer));
        locations
            .and_then(move |location| {
                let (inner, layer) = (Arc::clone(&inner), Arc::clone(&layer));
                async move { layer.delete(&inner, &location).await.map(|()| location) }
            })
            .boxed()
    }

    fn list(&self, prefix: Option<&Path>) -> Listing {
        self.listing(prefix, None)
    }

    fn list_with_offset(&self, prefix: Option<&Path>, offset: &Path) -> Listing {
        self.listing(prefix, Some(offset))
    }

    /// Every layer sees the listing that it is: what holds or hides keys holds or hides folders.
    async fn list_with_delimiter(&self, prefix: Option<&Path>) -> Result<ListResult> {
        let metas = self.layer.list(&self.inner, prefix, None).await?;
        Ok(one_level(prefix, metas))
    }

    async fn copy_opts(&self, from: &Path, to: &Path, options: CopyOptions) -> Result<()> {
        self.layer.copy(&self.inner, from, to, options).await
    }
}
