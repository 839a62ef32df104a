//! What a box writes becomes response lines (db-forward §5.5 steps 6 and 7).

use std::{ops::RangeInclusive, sync::Arc, time::Duration};

use bytes::Bytes;
use carlos_bucket::{Bucket, Listed, Purpose, ReadError};
use carlos_protocol::{
    ids::ReadId,
    keys::{self, Key},
    limits,
    lines::{Line, Phase},
    picked::Picked,
    result::ReadResult,
    seal::SEAL_OVERHEAD,
};

use futures::{StreamExt, stream};

use super::pace::{Ending, Pace};
use crate::metrics::Metrics;

/// Chunks fetched at once: 64 MiB then leave in seconds from a store that answers in tens of
/// milliseconds, and a read holds a megabyte more.
const CHUNKS_AHEAD: usize = 4;

/// Follows one admitted read to its end.
pub(crate) struct Relay {
    output: Output,
    pace: Pace,
    issued: Duration,
    next: u64,
    bytes: u64,
    metrics: Arc<Metrics>,
}

/// The read's objects, as the console sees them: all written by a box, none of them trusted.
struct Output {
    bucket: Bucket,
    id: ReadId,
}

impl Relay {
    /// A relay for the read `id`, whose request was issued at `issued` on the monotonic clock.
    pub(crate) fn new(bucket: Bucket, id: ReadId, mut pace: Pace, issued: Duration) -> Self {
        let unpicked_at = issued + pace.timings.pickup;
        pace.enter(Phase::Queued, unpicked_at, Ending::Unpicked);
        Self {
            output: Output { bucket, id },
            pace,
            issued,
            next: 1,
            bytes: 0,
            metrics: Arc::default(),
        }
    }

    /// Counts what becomes of the read there.
    pub(crate) fn counted(self, metrics: &Arc<Metrics>) -> Self {
        Self { metrics: Arc::clone(metrics), ..self }
    }

    /// Relays until the result line is written or the request ends, then ends the response.
    pub(crate) async fn run(mut self) -> Ending {
        let ending = match self.relay().await {
            Ok(()) => Ending::Answered,
            Err(ending) => ending,
        };
        self.pace.finish(ending);
        ending
    }

    async fn relay(&mut self) -> Result<(), Ending> {
        let picked = self.owner().await?;
        self.metrics.picked(self.pace.now() - self.issued);
        let at = self.owners_end(&picked);
        self.pace.enter(Phase::Reading, at, Ending::Overdue);
        self.pace.send(&Line::Picked(picked.box_name.clone())).await?;
        self.stream().await
    }

    async fn owner(&mut self) -> Result<Picked, Ending> {
        loop {
            let found = self.pace.attend(self.output.object(&Key::Picked(self.output.id))).await?;
            if let Some(bytes) = quiet(found) {
                return Picked::from_bytes(&bytes)
                    .map_err(|error| self.output.malformed("picked", &error));
            }
            self.pace.pause(self.pace.timings.picked_poll).await?;
        }
    }

    /// The owner's own deadline and the grace, but never more than a deadline can be: the time is
    /// a box's word, by a box's clock (db-forward §5.5 step 7).
    fn owners_end(&self, picked: &Picked) -> Duration {
        let now = self.output.bucket.context().now_unix();
        let deadline = picked.clamped_deadline(now).unix();
        let stated = Duration::from_secs(deadline.saturating_sub(now));
        let timings = &self.pace.timings;
        let end = self.pace.now() + stated.min(timings.owner) + timings.grace;
        end.min(self.issued + timings.request)
    }

    async fn stream(&mut self) -> Result<(), Ending> {
        let mut result = None;
        loop {
            // The result first, the listing second: the owner writes its last chunk before the
            // result, so a listing taken after the result misses no chunk of it (codex 20).
            if result.is_none() {
                result = self.result().await?;
            }
            self.chunks(result.as_ref().map(|result| result.last_seq)).await?;
            if let Some(result) = result.take_if(|result| self.next > result.last_seq) {
                self.pace.send(&Line::Result(result.clone())).await?;
                self.metrics.answered(&result);
                return Ok(());
            }
            self.pace.pause(self.pace.timings.output_poll).await?;
        }
    }

    async fn result(&mut self) -> Result<Option<ReadResult>, Ending> {
        let found = self.pace.attend(self.output.object(&Key::Result(self.output.id))).await?;
        let Some(bytes) = quiet(found) else { return Ok(None) };
        let result = ReadResult::from_bytes(&bytes);
        result.map(Some).map_err(|error| self.output.malformed("result.json", &error))
    }

    /// Writes every listed chunk that is next in order, up to `last` once the result names it.
    async fn chunks(&mut self, last: Option<u64>) -> Result<(), Ending> {
        let listed = self.pace.attend(self.output.list(self.next - 1)).await?;
        let ready = self.in_order(quiet(listed.map(Some)).unwrap_or_default(), last)?;
        let chunks = ready.map(|seq| self.output.chunk(seq));
        let mut chunks = stream::iter(chunks).buffered(CHUNKS_AHEAD);
        while let Some(found) = self.pace.attend(chunks.next()).await? {
            // Listed and not there is a store that lags; the next look finds it.
            let Some(data) = quiet(found) else { return Ok(()) };
            self.bytes += rows_in(data.len() as u64).ok_or(Ending::Malformed)?;
            self.pace.enter_phase(Phase::Streaming);
            self.pace.send(&Line::Chunk { seq: self.next, data: data.into() }).await?;
            if self.next == 1 {
                self.metrics.first_chunk(self.pace.now() - self.issued);
            }
            self.next += 1;
        }
        Ok(())
    }

    /// The listed chunks that come next without a gap. A chunk is at least its seal and at most a
    /// chunk, and all together are at most the output cap; anything else was not written by a box
    /// that keeps the protocol, and none of it is fetched.
    fn in_order(
        &self,
        listed: Vec<(u64, u64)>,
        last: Option<u64>,
    ) -> Result<RangeInclusive<u64>, Ending> {
        let (mut end, mut bytes) = (self.next - 1, self.bytes);
        for (seq, size) in listed {
            if seq != end + 1 || last.is_some_and(|last| seq > last) {
                break;
            }
            let rows = rows_in(size).filter(|rows| bytes + rows <= limits::OUTPUT_BYTES);
            let Some(rows) = rows else {
                let why = format_args!("chunk {seq}: {size} bytes");
                return Err(self.output.malformed("out", &why));
            };
            bytes += rows;
            end = seq;
        }
        Ok(self.next..=end)
    }
}

impl Output {
    async fn chunk(&self, seq: u64) -> Result<Option<Bytes>, ReadError> {
        self.object(&Key::Chunk(self.id, seq)).await
    }

    async fn object(&self, key: &Key) -> Result<Option<Bytes>, ReadError> {
        self.bucket.get(&key.to_string(), Purpose::Claim).await
    }

    /// Chunks after `after` as sequence and size, in order. What is no chunk's key is not ours.
    async fn list(&self, after: u64) -> Result<Vec<(u64, u64)>, ReadError> {
        let after = Key::Chunk(self.id, after).to_string();
        let prefix = keys::out_prefix(&self.id);
        let listed = self.bucket.list(&prefix, Some(&after), Purpose::Claim).await?;
        Ok(listed.iter().filter_map(numbered).collect())
    }

    fn malformed(&self, object: &str, why: &dyn std::fmt::Display) -> Ending {
        tracing::warn!(id = %self.id, object, %why, "a box wrote what no box writes");
        Ending::Malformed
    }
}

/// The rows in a sealed chunk of this size, or `None` for a size that no chunk has.
fn rows_in(sealed: u64) -> Option<u64> {
    sealed.checked_sub(SEAL_OVERHEAD as u64).filter(|rows| *rows <= limits::CHUNK_BYTES as u64)
}

fn numbered(listed: &Listed) -> Option<(u64, u64)> {
    match Key::parse(&listed.key) {
        Ok(Key::Chunk(_, seq)) => Some((seq, listed.size)),
        _ => None,
    }
}

/// A look that failed is a look that found nothing: the next one comes within a second, and the
/// request's own end bounds them all.
fn quiet<T>(look: Result<Option<T>, ReadError>) -> Option<T> {
    look.unwrap_or_else(|error| {
        tracing::debug!(%error, "a look into the bucket failed");
        None
    })
}
