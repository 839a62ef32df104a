//! A replica whose every answer has a deadline.
//!
//! A restore as a whole has ten minutes (db-forward §5.7). Without deadlines of their own, one
//! request that a store never answers would use them up, where another try takes seconds.

use std::time::Duration;

use async_trait::async_trait;
use carlos_bucket::Context;
use carlos_ltx::HEADER_LEN;
use carlos_replica::{ByteStream, Listing, ReadError, ReplicaFile, ReplicaReader, Resolution};
use futures::StreamExt;
use futures::stream;

/// A listing of all levels: tens of pages one after another where a replica has many files.
const LISTING_WITHIN: Duration = Duration::from_secs(60);

/// The beginning of an answer to a GET, and a header, which is 100 bytes. A store under load has
/// been seen to take seconds; the client's own wait for a connection is part of it.
const ANSWER_WITHIN: Duration = Duration::from_secs(20);

/// The next bytes of a file that has begun to arrive. They count from the moment they are asked
/// for, so a worker that is slower than its store costs nothing.
const BYTES_WITHIN: Duration = Duration::from_secs(30);

/// Passes everything on, within its time.
pub(crate) struct Timed {
    inner: Box<dyn ReplicaReader>,
    ctx: Context,
}

impl Timed {
    pub(crate) fn new(inner: Box<dyn ReplicaReader>, ctx: Context) -> Self {
        Self { inner, ctx }
    }

    async fn within<T>(
        &self,
        limit: Duration,
        what: &(dyn ToString + Sync),
        answer: impl Future<Output = Result<T, ReadError>> + Send,
    ) -> Result<T, ReadError> {
        self.ctx.timeout(limit, answer).await.unwrap_or_else(|_| Err(late(what, limit)))
    }
}

/// To be tried again, as any failure of a store is.
fn late(what: &(impl ToString + ?Sized), limit: Duration) -> ReadError {
    let source = format!("no answer within {} s", limit.as_secs()).into();
    ReadError::Store { what: what.to_string(), source }
}

#[async_trait]
impl ReplicaReader for Timed {
    fn resolution(&self) -> Resolution {
        self.inner.resolution()
    }

    async fn list(&self, level: u8) -> Result<Vec<ReplicaFile>, ReadError> {
        let what = format!("level {level}");
        self.within(LISTING_WITHIN, &what, self.inner.list(level)).await
    }

    async fn open(&self, file: &ReplicaFile, offset: u64) -> Result<ByteStream, ReadError> {
        let planned = file.planned();
        let stream = self.within(ANSWER_WITHIN, &planned, self.inner.open(file, offset)).await?;
        let ctx = self.ctx.clone();
        let timed = stream::unfold(Some(stream), move |stream| {
            let ctx = ctx.clone();
            async move {
                let mut stream = stream?;
                match ctx.timeout(BYTES_WITHIN, stream.next()).await {
                    Ok(piece) => piece.map(|piece| (piece, Some(stream))),
                    Err(_) => Some((Err(late(&planned, BYTES_WITHIN)), None)),
                }
            }
        });
        Ok(timed.boxed())
    }

    async fn header(&self, file: &ReplicaFile) -> Result<[u8; HEADER_LEN], ReadError> {
        self.within(ANSWER_WITHIN, &file.planned(), self.inner.header(file)).await
    }

    async fn listing(&self) -> Result<Listing, ReadError> {
        self.within(LISTING_WITHIN, &"the replica's levels", self.inner.listing()).await
    }
}

#[cfg(test)]
mod tests {
    use carlos_ltx::{Txid, TxidRange};
    use futures::future::pending;

    use super::*;

    /// Answers with one piece and then falls silent, or never answers at all.
    struct Silent {
        after_one_piece: bool,
    }

    #[async_trait]
    impl ReplicaReader for Silent {
        fn resolution(&self) -> Resolution {
            Resolution::Second
        }

        async fn list(&self, _level: u8) -> Result<Vec<ReplicaFile>, ReadError> {
            pending().await
        }

        async fn open(&self, _file: &ReplicaFile, _at: u64) -> Result<ByteStream, ReadError> {
            if !self.after_one_piece {
                return pending().await;
            }
            let first = stream::iter([Ok(bytes::Bytes::from_static(b"first"))]);
            Ok(first.chain(stream::pending()).boxed())
        }

        async fn header(&self, _file: &ReplicaFile) -> Result<[u8; HEADER_LEN], ReadError> {
            pending().await
        }
    }

    fn silent(after_one_piece: bool) -> Timed {
        Timed::new(Box::new(Silent { after_one_piece }), Context::simulated(1, 0))
    }

    fn file() -> ReplicaFile {
        let range = TxidRange::new(Txid(1), Txid(2)).unwrap();
        ReplicaFile { level: 0, range, size: 1_000, created_ms: 0, tag: None }
    }

    fn is_late<T>(answer: Result<T, ReadError>) -> bool {
        let Err(ReadError::Store { source, .. }) = answer else { return false };
        source.to_string().contains("within")
    }

    #[tokio::test(start_paused = true)]
    async fn a_store_that_never_answers_fails_within_each_request_s_time() {
        let replica = silent(false);
        let began = replica.ctx.monotonic();
        assert!(is_late(replica.header(&file()).await));
        assert_eq!((replica.ctx.monotonic() - began).as_secs(), ANSWER_WITHIN.as_secs());
        assert!(is_late(replica.open(&file(), 0).await));
        assert!(is_late(replica.list(0).await));
        assert!(is_late(replica.listing().await));
        let most = 2 * (ANSWER_WITHIN + LISTING_WITHIN) + Duration::from_secs(1);
        assert!(replica.ctx.monotonic() - began <= most);
    }

    #[tokio::test(start_paused = true)]
    async fn a_stream_that_falls_silent_fails_and_ends() {
        let replica = silent(true);
        let mut stream = replica.open(&file(), 0).await.unwrap();
        assert_eq!(stream.next().await.unwrap().unwrap(), "first");
        // Whatever time the caller takes in between is not the store's.
        replica.ctx.sleep(2 * BYTES_WITHIN).await;
        assert!(is_late(stream.next().await.unwrap()));
        assert!(stream.next().await.is_none());
    }
}
