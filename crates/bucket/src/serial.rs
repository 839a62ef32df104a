//! The only two objects that are ever replaced: serials, which hint at news, and pulses, which
//! carry a small body of their own. The truth is always in created objects; losing a bump costs
//! at most one sweep.

use bytes::Bytes;
use object_store::path::Path;

use crate::bucket::{Bucket, parse_key};
use crate::deadline::{Deadline, Purpose};
use crate::verdict::{Cause, ReadError, Verdict};

/// Prefixes under which an object may be replaced. Everything else is written once
/// (db-forward §5.3, J2).
const REPLACEABLE: [&str; 3] = ["control/serial/", "control/status/", "router/"];

/// What a look at a serial says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum News {
    /// The serial is another one than last time: list.
    Moved,
    /// Nothing new, or no serial yet.
    Same,
}

/// A small object holding a fresh ULID, replaced at each bump and polled with a conditional GET.
#[derive(Debug)]
pub struct Serial {
    bucket: Bucket,
    key: String,
    seen: Option<Seen>,
}

#[derive(Debug)]
struct Seen {
    tag: Option<String>,
    body: Bytes,
}

impl Serial {
    /// The serial at `key` (`control/serial/<region>`).
    pub fn new(bucket: Bucket, key: impl Into<String>) -> Self {
        Self { bucket, key: key.into(), seen: None }
    }

    /// Moves the serial. Do this after the object it announces exists, never before.
    ///
    /// # Errors
    /// The cause why the bump may be lost. It is a hint only: the readers' sweep finds the news.
    pub async fn bump(&self) -> Result<(), Cause> {
        let body = Bytes::from(self.bucket.ctx.ulid().to_string());
        self.bucket.replace(&self.key, body, Purpose::Claim).await
    }

    /// Looks once. The first look at an existing serial is news.
    ///
    /// # Errors
    /// The reason why the look says nothing; the caller looks again at its next poll.
    pub async fn poll(&mut self) -> Result<News, ReadError> {
        let path = parse_key(&self.key).map_err(|cause| Verdict::Final(cause).read_error())?;
        match self.look(&path).await {
            Ok((body, tag)) => Ok(self.note(body, tag)),
            Err(Verdict::NotModified | Verdict::Absent) => Ok(News::Same),
            Err(verdict) => Err(verdict.read_error()),
        }
    }

    async fn look(&self, path: &Path) -> Result<(Bytes, Option<String>), Verdict> {
        let deadline = Deadline::new(&self.bucket.ctx, Purpose::Poll);
        let tag = self.seen.as_ref().and_then(|seen| seen.tag.as_deref());
        self.bucket.get_once(path, tag, &deadline).await
    }

    /// Bodies are compared too, for a store that gives no tags or ignores them.
    fn note(&mut self, body: Bytes, tag: Option<String>) -> News {
        let same = self.seen.as_ref().is_some_and(|seen| seen.body == body);
        self.seen = Some(Seen { tag, body });
        match same {
            true => News::Same,
            false => News::Moved,
        }
    }
}

/// A small object that its one writer replaces at intervals (`control/status/<box>`).
#[derive(Clone, Debug)]
pub struct Pulse {
    bucket: Bucket,
    key: String,
}

impl Pulse {
    /// The pulse at `key`.
    pub fn new(bucket: Bucket, key: impl Into<String>) -> Self {
        Self { bucket, key: key.into() }
    }

    /// Replaces the body.
    ///
    /// # Errors
    /// The cause why the new body may not be there.
    pub async fn beat(&self, body: Bytes) -> Result<(), Cause> {
        self.bucket.replace(&self.key, body, Purpose::Claim).await
    }

    /// The current body, or `None` when the writer has never beaten.
    ///
    /// # Errors
    /// [`ReadError`] when there is no answer, which is incomplete evidence and not absence.
    pub async fn read(&self) -> Result<Option<Bytes>, ReadError> {
        self.bucket.get(&self.key, Purpose::Claim).await
    }
}

impl Bucket {
    /// Replaces a serial or pulse, again and again until it is answered or the time is over.
    async fn replace(&self, key: &str, body: Bytes, purpose: Purpose) -> Result<(), Cause> {
        if !REPLACEABLE.iter().any(|prefix| key.starts_with(prefix)) {
            return Err(Cause::BadKey(format!("{key} is written once")));
        }
        let path = parse_key(key)?;
        let mut deadline = Deadline::new(&self.ctx, purpose);
        loop {
            let verdict = match self.replace_once(&path, &body, &deadline).await {
                Ok(()) => return Ok(()),
                Err(verdict) => verdict,
            };
            if !verdict.is_passing() || !deadline.pause().await {
                return Err(verdict.cause());
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use object_store::memory::InMemory;

    use super::*;
    use crate::fault::{Fault, FaultStore, Rule};
    use crate::layer::Op;
    use crate::{Context, Kind};

    fn faulty() -> (Bucket, FaultStore) {
        let ctx = Context::simulated(7, 0);
        let (store, faults) = FaultStore::wrap(Arc::new(InMemory::new()), &ctx);
        (Bucket::new(store, ctx), faults)
    }

    #[tokio::test(start_paused = true)]
    async fn a_serial_is_news_once_for_each_bump() {
        let (bucket, _) = faulty();
        let writer = Serial::new(bucket.clone(), "control/serial/uk");
        let mut reader = Serial::new(bucket, "control/serial/uk");
        assert_eq!(reader.poll().await, Ok(News::Same));
        for _ in 0..2 {
            writer.bump().await.expect("a healthy store");
            assert_eq!(reader.poll().await, Ok(News::Moved));
            assert_eq!(reader.poll().await, Ok(News::Same));
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_bump_survives_a_passing_failure() {
        let (bucket, faults) = faulty();
        faults.add(Rule::new(Op::Replace, Fault::Refused(500)).times(2));
        Serial::new(bucket.clone(), "control/serial/uk").bump().await.expect("third time lucky");
        assert_eq!(bucket.counters().of(Kind::Replace).sent, 3);
    }

    #[tokio::test(start_paused = true)]
    async fn nothing_under_db_reads_can_be_replaced() {
        let (bucket, _) = faulty();
        let misuse = Pulse::new(bucket.clone(), "db-reads/dbr_x/picked");
        assert!(matches!(misuse.beat(Bytes::new()).await, Err(Cause::BadKey(_))));
        assert_eq!(bucket.counters().of(Kind::Replace).sent, 0);
    }
}
