//! A store whose requests are counted where no [`Bucket`](crate::Bucket) stands in front of it: a
//! region's data bucket, which is only read, and in streams.

use std::fmt;
use std::sync::Arc;

use async_trait::async_trait;
use futures::StreamExt;
use futures::stream::{self, BoxStream};
use object_store::path::Path;
use object_store::{
    CopyOptions, GetOptions, GetResult, ListResult, MultipartUpload, ObjectMeta, ObjectStore,
    PutMultipartOptions, PutOptions, PutPayload, PutResult, Result,
};

use crate::counters::{Answer, Counters, Kind};
use crate::layer::Op;
use crate::verdict::Verdict;

/// Keys in one page of a LIST.
const PAGE: usize = 1_000;

/// `inner`, counted. An answer counts when its status is known, not when its last byte is there. A
/// request that its caller gave up is not counted as answered.
#[derive(Clone, Debug)]
pub struct Counted {
    inner: Arc<dyn ObjectStore>,
    counters: Arc<Counters>,
}

impl Counted {
    /// Counts from here on.
    pub fn new(inner: Arc<dyn ObjectStore>) -> Self {
        Self { inner, counters: Arc::default() }
    }

    /// What was counted.
    pub fn counters(&self) -> &Counters {
        &self.counters
    }

    async fn count<T>(&self, kind: Kind, request: impl Future<Output = Result<T>>) -> Result<T> {
        self.counters.sent(kind);
        let answer = request.await;
        note(&self.counters, kind, &answer);
        answer
    }

    /// A page for the first key and for each thousandth after it, or for the end of an empty one.
    fn pages(&self, listing: BoxStream<'static, Result<ObjectMeta>>) -> Listing {
        let state = (listing, Arc::clone(&self.counters), 0_usize);
        stream::unfold(state, |(mut listing, counters, keys)| async move {
            let next = listing.next().await;
            match &next {
                Some(answer) if answer.is_err() || keys.is_multiple_of(PAGE) => {
                    counters.sent(Kind::List);
                    note(&counters, Kind::List, answer);
                }
                None if keys == 0 => {
                    counters.sent(Kind::List);
                    counters.note(Kind::List, Answer::Ok);
                }
                _ => {}
            }
            // An ended listing is not asked again, so its zero keys count once.
            next.map(|answer| (answer, (listing, counters, keys + 1)))
        })
        .boxed()
    }
}

type Listing = BoxStream<'static, Result<ObjectMeta>>;

fn note<T>(counters: &Counters, kind: Kind, answer: &Result<T>) {
    let verdict = answer.as_ref().map(drop).map_err(Verdict::of);
    counters.note(kind, Answer::of(&verdict));
}

impl fmt::Display for Counted {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.inner.fmt(f)
    }
}

#[async_trait]
impl ObjectStore for Counted {
    async fn put_opts(
        &self,
        location: &Path,
        payload: PutPayload,
        opts: PutOptions,
    ) -> Result<PutResult> {
        let kind = match Op::of(&opts) {
            Op::Create => Kind::Create,
            _ => Kind::Replace,
        };
        self.count(kind, self.inner.put_opts(location, payload, opts)).await
    }

    async fn put_multipart_opts(
        &self,
        location: &Path,
        opts: PutMultipartOptions,
    ) -> Result<Box<dyn MultipartUpload>> {
        self.count(Kind::Replace, self.inner.put_multipart_opts(location, opts)).await
    }

    async fn get_opts(&self, location: &Path, options: GetOptions) -> Result<GetResult> {
        self.count(Kind::Get, self.inner.get_opts(location, options)).await
    }

    fn delete_stream(
        &self,
        locations: BoxStream<'static, Result<Path>>,
    ) -> BoxStream<'static, Result<Path>> {
        self.inner.delete_stream(locations)
    }

    fn list(&self, prefix: Option<&Path>) -> Listing {
        self.pages(self.inner.list(prefix))
    }

    fn list_with_offset(&self, prefix: Option<&Path>, offset: &Path) -> Listing {
        self.pages(self.inner.list_with_offset(prefix, offset))
    }

    async fn list_with_delimiter(&self, prefix: Option<&Path>) -> Result<ListResult> {
        self.count(Kind::List, self.inner.list_with_delimiter(prefix)).await
    }

    async fn copy_opts(&self, from: &Path, to: &Path, options: CopyOptions) -> Result<()> {
        self.count(Kind::Replace, self.inner.copy_opts(from, to, options)).await
    }
}

#[cfg(test)]
mod tests {
    use futures::TryStreamExt;
    use object_store::ObjectStoreExt;
    use object_store::memory::InMemory;

    use super::*;

    #[tokio::test]
    async fn pages_objects_and_absences_are_counted() {
        let store = Counted::new(Arc::new(InMemory::new()));
        let path = |n: usize| Path::from(format!("replica/{n}"));
        let listed = async || store.list(None).try_collect::<Vec<_>>().await.expect("in memory");
        let pages = || store.counters().answered(Kind::List, Answer::Ok);
        assert_eq!((listed().await.len(), pages()), (0, 1));
        for n in 0..1_001 {
            store.put(&path(n), "x".into()).await.expect("a memory store");
        }
        assert_eq!((listed().await.len(), pages()), (1_001, 3));
        store.get(&path(1)).await.expect("it is there");
        store.get(&path(2_000)).await.expect_err("it is not");
        let gets = [Answer::Ok, Answer::Absent].map(|it| store.counters().answered(Kind::Get, it));
        assert_eq!(gets, [1, 1]);
        assert_eq!(store.counters().of(Kind::Replace).sent, 1_001);
    }
}
