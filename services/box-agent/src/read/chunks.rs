//! Sealed chunks on their way into the bucket, each kept until it is confirmed (db-forward §5.4).

use std::time::Duration;

use bytes::Bytes;
use carlos_bucket::{Bucket, Outcome, Purpose};
use carlos_protocol::ids::ReadId;
use carlos_protocol::keys::Key;
use carlos_protocol::limits::MAX_CHUNKS;
use carlos_protocol::seal::{self, Place, ReplyPublic};
use futures::StreamExt;
use futures::future::BoxFuture;
use futures::stream::FuturesOrdered;

use crate::read::ending::{Ending, Progress};

/// Creates under way at once. One create crosses an ocean in about 0.2 s; four fill 5 MiB/s with
/// 256 KiB chunks, above what a worker restores, and hold at most 2 MiB.
const IN_FLIGHT: usize = 4;

/// Chunk numbers kept for chunks that are full: a slow query that could use up every number with
/// partial chunks waits for full ones instead. 64 MiB fill 256.
const KEPT_FOR_FULL: u64 = 512;

/// Pause after a create that ended unclear: its own deadline has spread the tries before.
const AGAIN_AFTER: Duration = Duration::from_secs(1);

/// Somebody else's bytes lie where a chunk of this read belongs.
struct Foreign {
    seq: u64,
}

/// Seals chunks, creates them, and counts how many are confirmed without a gap.
pub(crate) struct Chunks<'a> {
    bucket: &'a Bucket,
    id: ReadId,
    reader: &'a ReplyPublic,
    progress: &'a Progress,
    next_seq: u64,
    in_flight: FuturesOrdered<BoxFuture<'a, Result<u64, Foreign>>>,
}

impl<'a> Chunks<'a> {
    pub(crate) fn new(
        bucket: &'a Bucket,
        id: ReadId,
        reader: &'a ReplyPublic,
        progress: &'a Progress,
    ) -> Self {
        let in_flight = FuturesOrdered::new();
        Self { bucket, id, reader, progress, next_seq: 1, in_flight }
    }

    /// Whether more output may be taken from the worker.
    pub(crate) fn has_room(&self) -> bool {
        self.in_flight.len() < IN_FLIGHT
    }

    /// Whether a chunk may leave only because it is old.
    pub(crate) fn may_be_partial(&self) -> bool {
        self.next_seq + KEPT_FOR_FULL < MAX_CHUNKS
    }

    pub(crate) fn is_waiting(&self) -> bool {
        !self.in_flight.is_empty()
    }

    /// Seals one chunk and begins to create it.
    pub(crate) fn put(&mut self, rows: &[u8], last: bool) {
        let seq = self.next_seq;
        self.next_seq += 1;
        let place = Place::rows(self.id, seq, last);
        let mut entropy = self.bucket.context().entropy();
        let sealed = Bytes::from(seal::seal(&mut entropy, self.reader, &place, rows));
        let key = Key::Chunk(self.id, seq).to_path();
        self.in_flight.push_back(Box::pin(create(self.bucket, key, sealed, seq)));
    }

    /// Waits for the oldest chunk under way; its number is confirmed when this gives it, and
    /// `None` means that all are: only then may a result name them (J2, db-forward §5.4). Safe to
    /// drop and call again.
    pub(crate) async fn next_confirmed(&mut self) -> Result<Option<u64>, Ending> {
        match self.in_flight.next().await {
            None => Ok(None),
            Some(Ok(seq)) => {
                self.progress.confirm(seq);
                Ok(Some(seq))
            }
            Some(Err(Foreign { seq })) => {
                tracing::warn!(id = %self.id, seq, "a chunk's key holds somebody else's bytes");
                Err(Ending::interrupted())
            }
        }
    }
}

// Unclear creates are repeated with the same bytes; the owner's deadline drops this future.
async fn create(bucket: &Bucket, key: String, sealed: Bytes, seq: u64) -> Result<u64, Foreign> {
    loop {
        match bucket.create(&key, sealed.clone(), Purpose::Result).await {
            Outcome::Created | Outcome::AlreadyMine => return Ok(seq),
            Outcome::TakenBy(_) => return Err(Foreign { seq }),
            Outcome::Unknown(cause) => {
                tracing::debug!(key, %cause, "a chunk is not confirmed yet");
                bucket.context().sleep(AGAIN_AFTER).await;
            }
        }
    }
}
