//! A replica in an object store: a bucket with a prefix, or a directory.

use std::error::Error as _;
use std::io::{ErrorKind, Read, Seek, SeekFrom};
use std::sync::{Arc, OnceLock};

use async_trait::async_trait;
use bytes::Bytes;
use futures::future::try_join_all;
use futures::{StreamExt, TryStreamExt, stream};
use object_store::ObjectStoreExt;
use object_store::path::Path;
use object_store::{GetOptions, GetRange, GetResultPayload, ObjectMeta, ObjectStore};

use carlos_ltx::{HEADER_LEN, TxidRange};

use crate::layout::GENERATIONS;
use crate::{ByteStream, LEVELS, Layout, Listing, ReadError, ReplicaFile, ReplicaReader};
use crate::{PlannedFile, Resolution};

/// The most files of one level that are taken from a listing: at one a second, more than two
/// weeks without compaction. Beyond that a listing is not a replica's.
pub const MAX_LEVEL_FILES: usize = 1 << 21;
/// Bytes read at once from a local file.
const LOCAL_PIECE: usize = 256 << 10;

/// A replica under a prefix of an object store. Only ever lists and gets.
#[derive(Debug, Clone)]
pub struct StoreReplica {
    store: Arc<dyn ObjectStore>,
    prefix: Path,
    layout: Layout,
    resolution: Resolution,
    /// The layout that [`Layout::Auto`] was found to be.
    found: Arc<OnceLock<Layout>>,
}

/// A prefix that no key can begin with.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0:?} cannot be the prefix of a replica")]
pub struct BadPrefix(pub String);

impl StoreReplica {
    /// The replica under `prefix`. Slashes at either end and doubled ones do not matter, as they
    /// do not to Litestream; `shop` never takes in `shop2`.
    ///
    /// # Errors
    /// [`BadPrefix`] for control characters and `.` or `..` segments.
    pub fn new(
        store: Arc<dyn ObjectStore>,
        prefix: &str,
        layout: Layout,
        resolution: Resolution,
    ) -> Result<Self, BadPrefix> {
        let segments: Vec<_> = prefix.split('/').filter(|segment| !segment.is_empty()).collect();
        let prefix = Path::parse(segments.join("/")).map_err(|_| BadPrefix(prefix.to_owned()))?;
        Ok(Self { store, prefix, layout, resolution, found: Arc::default() })
    }

    /// Whether Litestream 0.3 left files here, which are not LTX.
    ///
    /// # Errors
    /// As every listing.
    pub async fn has_generations(&self) -> Result<bool, ReadError> {
        let prefix = self.prefix.clone().join(GENERATIONS);
        let first = self.store.list(Some(&prefix)).next().await;
        first.transpose().map(|file| file.is_some()).map_err(|e| failure(&prefix, e))
    }

    /// The prefix in the store's own spelling.
    #[must_use]
    pub const fn prefix(&self) -> &Path {
        &self.prefix
    }

    pub(crate) fn store(&self) -> &dyn ObjectStore {
        &*self.store
    }

    pub(crate) const fn wanted_layout(&self) -> Layout {
        self.layout
    }

    /// Remembers what [`Layout::Auto`] was found to be.
    pub(crate) fn found_layout(&self, layout: Layout) {
        self.found.get_or_init(|| layout);
    }

    fn layout(&self) -> Layout {
        self.found.get().copied().unwrap_or(self.layout)
    }

    async fn list_as(&self, layout: Layout) -> Result<Listing, ReadError> {
        let levels = (0..LEVELS).map(|level| self.list_level(layout, level));
        let levels = try_join_all(levels).await?;
        Ok(Listing::new(levels.into_iter().flatten()))
    }

    async fn list_level(&self, layout: Layout, level: u8) -> Result<Vec<ReplicaFile>, ReadError> {
        let prefix = layout.level(&self.prefix, level);
        let mut listed = self.store.list(Some(&prefix));
        let mut files = Vec::new();
        while let Some(object) = listed.try_next().await.map_err(|e| failure(&prefix, e))? {
            files.extend(replica_file(&prefix, level, object));
            if files.len() > MAX_LEVEL_FILES {
                return Err(ReadError::TooManyFiles { level, limit: MAX_LEVEL_FILES });
            }
        }
        Ok(files)
    }

    fn key(&self, file: &ReplicaFile) -> Path {
        self.layout().key(&self.prefix, file.level, file.range)
    }
}

#[async_trait]
impl ReplicaReader for StoreReplica {
    fn resolution(&self) -> Resolution {
        self.resolution
    }

    async fn list(&self, level: u8) -> Result<Vec<ReplicaFile>, ReadError> {
        self.list_level(self.layout(), level).await
    }

    async fn open(&self, file: &ReplicaFile, offset: u64) -> Result<ByteStream, ReadError> {
        let options = GetOptions {
            range: (offset > 0).then_some(GetRange::Offset(offset)),
            // Bytes of two contents under one name must not be joined.
            if_match: file.tag.clone().filter(|_| offset > 0),
            ..GetOptions::default()
        };
        let planned = file.planned();
        let got = self.store.get_opts(&self.key(file), options).await;
        let got = got.map_err(|e| file_failure(planned, e))?;
        if got.meta.size != file.size {
            return Err(ReadError::Changed { file: planned });
        }
        Ok(match got.payload {
            GetResultPayload::File(local, _) => local_stream(local, got.range.start, planned)?,
            GetResultPayload::Stream(stream) => {
                stream.map_err(move |e| file_failure(planned, e)).boxed()
            }
        })
    }

    async fn header(&self, file: &ReplicaFile) -> Result<[u8; HEADER_LEN], ReadError> {
        let planned = file.planned();
        let bytes = self.store.get_range(&self.key(file), 0..HEADER_LEN as u64).await;
        let bytes = bytes.map_err(|e| file_failure(planned, e))?;
        bytes.first_chunk().copied().ok_or(ReadError::Changed { file: planned })
    }

    async fn listing(&self) -> Result<Listing, ReadError> {
        let first = self.list_as(self.layout()).await?;
        if self.layout() != Layout::Auto {
            return self.old_if_empty(first).await;
        }
        if !first.is_empty() {
            self.found.get_or_init(|| Layout::S3);
            return Ok(first);
        }
        let second = self.list_as(Layout::File).await?;
        if !second.is_empty() {
            self.found.get_or_init(|| Layout::File);
        }
        self.old_if_empty(second).await
    }
}

impl StoreReplica {
    /// An empty listing beside generations is not an empty replica. Only then are they looked
    /// for, so that an ordinary read lists nothing but level directories (db-forward §8.2).
    async fn old_if_empty(&self, listing: Listing) -> Result<Listing, ReadError> {
        if listing.is_empty() && self.has_generations().await? {
            return Err(ReadError::OldReplica);
        }
        Ok(listing)
    }
}

fn replica_file(prefix: &Path, level: u8, object: ObjectMeta) -> Option<ReplicaFile> {
    let mut below = object.location.prefix_match(prefix)?;
    let range = TxidRange::from_name(below.next()?.as_ref())?;
    // Litestream never writes deeper.
    if below.next().is_some() {
        return None;
    }
    let created_ms = object.last_modified.timestamp_millis();
    Some(ReplicaFile { level, range, size: object.size, created_ms, tag: object.e_tag })
}

/// A local file's bytes in large pieces. The library's own stream crosses threads every 8 KiB;
/// a read of one piece from the page cache takes less time than a handful of those.
fn local_stream(
    mut file: std::fs::File,
    start: u64,
    planned: PlannedFile,
) -> Result<ByteStream, ReadError> {
    let failed = move |source: std::io::Error| ReadError::Store {
        what: planned.to_string(),
        source: source.into(),
    };
    file.seek(SeekFrom::Start(start)).map_err(failed)?;
    let pieces = stream::try_unfold(file, move |mut file| async move {
        let mut piece = vec![0; LOCAL_PIECE];
        let len = file.read(&mut piece).map_err(failed)?;
        piece.truncate(len);
        Ok((len > 0).then(|| (Bytes::from(piece), file)))
    });
    Ok(pieces.boxed())
}

fn file_failure(file: PlannedFile, error: object_store::Error) -> ReadError {
    use object_store::Error::{NotFound, Precondition};
    match error {
        NotFound { .. } | Precondition { .. } => ReadError::Changed { file },
        other => failure(&file, other),
    }
}

pub(crate) fn failure(what: &impl ToString, error: object_store::Error) -> ReadError {
    let what = what.to_string();
    let denied = is_denied(&error);
    let source = error.into();
    if denied { ReadError::Denied { what, source } } else { ReadError::Store { what, source } }
}

/// A directory's permission fault is an I/O error deep inside a generic one.
fn is_denied(error: &object_store::Error) -> bool {
    use object_store::Error::{PermissionDenied, Unauthenticated};
    if matches!(error, PermissionDenied { .. } | Unauthenticated { .. }) {
        return true;
    }
    let causes = std::iter::successors(error.source(), |cause| (*cause).source());
    causes
        .filter_map(|cause| cause.downcast_ref::<std::io::Error>())
        .any(|cause| cause.kind() == ErrorKind::PermissionDenied)
}

#[cfg(test)]
mod tests {
    use super::*;
    use object_store::memory::InMemory;

    async fn listed(keys: &[&str], prefix: &str, layout: Layout) -> Vec<String> {
        let store = Arc::new(InMemory::new());
        for key in keys {
            store.put(&Path::parse(key).unwrap(), "x".into()).await.unwrap();
        }
        let replica = StoreReplica::new(store, prefix, layout, Resolution::Second).unwrap();
        let listing = replica.listing().await.unwrap();
        listing.files().map(|file| replica.key(file).to_string()).collect()
    }

    const ONE: &str = "0000000000000001-0000000000000001.ltx";

    #[tokio::test]
    async fn a_prefix_is_a_directory_and_slashes_do_not_matter() {
        let own = format!("a/shop/0000/{ONE}");
        let other = format!("a/shop2/0009/{ONE}");
        for prefix in ["a/shop", "/a/shop/", "a//shop//"] {
            let found = listed(&[&own, &other], prefix, Layout::S3).await;
            assert_eq!(found, [own.as_str()], "{prefix}");
        }
        let at_root = format!("0009/{ONE}");
        assert_eq!(listed(&[&at_root], "", Layout::S3).await, [at_root.as_str()]);
    }

    #[tokio::test]
    async fn the_layout_is_found_and_s3_goes_first() {
        let (s3, file) = (format!("p/0001/{ONE}"), format!("p/ltx/1/{ONE}"));
        assert_eq!(listed(&[&s3, &file], "p", Layout::Auto).await, [s3.as_str()]);
        assert_eq!(listed(&[&file], "p", Layout::Auto).await, [file.as_str()]);
        assert!(listed(&[&file], "p", Layout::S3).await.is_empty());
    }

    #[tokio::test]
    async fn other_names_levels_and_depths_are_left_out() {
        let keys = [
            "p/0000/README".to_owned(),
            "p/lock.json".to_owned(),
            format!("p/0000/{ONE}.tmp"),
            format!("p/0000/deeper/{ONE}"),
            format!("p/000c/{ONE}"),
        ];
        let keys: Vec<_> = keys.iter().map(String::as_str).collect();
        assert!(listed(&keys, "p", Layout::S3).await.is_empty());
    }

    #[test]
    fn impossible_prefixes_are_refused() {
        let new = |prefix| {
            StoreReplica::new(Arc::new(InMemory::new()), prefix, Layout::S3, Resolution::Full)
        };
        assert!(new("a/../b").is_err());
        assert!(new("a\nb").is_err());
    }

    #[test]
    fn missing_permission_is_told_from_other_faults() {
        let io = |kind: ErrorKind| object_store::Error::Generic {
            store: "LocalFileSystem",
            source: Box::new(std::io::Error::from(kind)),
        };
        let forbidden =
            object_store::Error::PermissionDenied { path: "p".to_owned(), source: "403".into() };
        let denied = |error| matches!(failure(&"p", error), ReadError::Denied { .. });
        assert!(denied(forbidden));
        assert!(denied(io(ErrorKind::PermissionDenied)));
        assert!(!denied(io(ErrorKind::ConnectionReset)));
    }

    #[tokio::test]
    async fn a_file_of_another_size_than_listed_is_a_change() {
        let store = Arc::new(InMemory::new());
        let key = Path::parse(format!("p/0000/{ONE}")).unwrap();
        store.put(&key, vec![7; 150].into()).await.unwrap();
        let replica = StoreReplica::new(store.clone(), "p", Layout::S3, Resolution::Full).unwrap();
        let file = replica.list(0).await.unwrap().remove(0);
        assert_eq!(replica.header(&file).await.unwrap(), [7; HEADER_LEN]);
        store.put(&key, vec![7; 151].into()).await.unwrap();
        let changed = |read: Result<_, ReadError>| matches!(read, Err(ReadError::Changed { .. }));
        assert!(changed(replica.open(&file, 0).await.map(drop)));
        store.put(&key, vec![8; 150].into()).await.unwrap();
        assert!(changed(replica.open(&file, 10).await.map(drop)), "other content, same size");
        store.delete(&key).await.unwrap();
        assert!(changed(replica.open(&file, 0).await.map(drop)));
        assert!(changed(replica.header(&file).await.map(drop)));
    }
}
