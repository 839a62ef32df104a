//! From an admitted request to a read that boxes can see: four writes, in one order, each only
//! while the request is open (db-forward §5.5 step 3, §9.3).

use std::{sync::Arc, time::Duration};

use bytes::Bytes;
use carlos_bucket::{Bucket, Cause, Outcome, Purpose, Serial};
use carlos_protocol::{
    envelope::KeyFile,
    ids::ReadId,
    keys::{Key, QueueEntry},
    params::Params,
    picked::{CANCEL_BODY, QUEUE_BODY},
    records::HostRecord,
    request::{NewRequest, OP_QUERY, ReadRequest},
    seal::ReplyPublic,
    time::{At, Seconds},
};

use super::pace::{Ending, Pace};
use crate::audit;

/// What a person asked for, after every check.
pub(crate) struct Order {
    pub(crate) record: Arc<HostRecord>,
    pub(crate) sql: String,
    pub(crate) params: Params,
    pub(crate) at: At,
    pub(crate) reply_key: ReplyPublic,
    /// The member's address.
    pub(crate) by: String,
}

/// Why a read was not opened. None of these says that nothing is in the bucket.
#[derive(Debug, thiserror::Error)]
pub(crate) enum NotOpened {
    #[error("the request ended first")]
    Ended(Ending),
    #[error("the audit row could not be created")]
    Unrecorded,
    #[error("the request could not be signed")]
    Unsigned,
    #[error("{0} could not be created")]
    Unwritten(&'static str),
}

/// A read that boxes can see.
#[derive(Debug)]
pub(crate) struct Opened {
    /// When it was issued, on the monotonic clock.
    pub(crate) issued: Duration,
}

/// One opening. Its writes are creates of fresh names, so an outcome that is not plainly ours ends
/// it: `TakenBy` is a name somebody else holds, and with `Unknown` nobody could say what a box will
/// see. Both refuse; a person asks again and gets another id.
pub(crate) struct Opening {
    bucket: Bucket,
    key: Arc<KeyFile>,
    id: ReadId,
    order: Order,
    /// Whether a box may see `request.json`, so that a cancel is worth writing.
    request_may_exist: bool,
}

impl Opening {
    pub(crate) fn new(bucket: Bucket, key: Arc<KeyFile>, order: Order) -> Self {
        let id = ReadId::mint(&mut bucket.context().entropy());
        Self { bucket, key, id, order, request_may_exist: false }
    }

    pub(crate) fn id(&self) -> ReadId {
        self.id
    }

    /// Writes the audit row, the request, the queue entry and the serial, in this order: a read
    /// that a box can see has its row, an entry has its request, and news has its entry.
    pub(crate) async fn write(&mut self, pace: &Pace) -> Result<Opened, NotOpened> {
        let context = self.bucket.context().clone();
        let (issued, issued_at) = (context.monotonic(), Seconds::new(context.now_unix()));
        let envelope = self.signed(issued_at)?;
        // Asked once more when the brake lets a write go, which may be seconds after it was begun.
        let bucket = self.bucket.clone().gated(pace.gate());

        pace.check_open().map_err(NotOpened::Ended)?;
        let (key, row) = audit::row(&context, &self.order);
        self.create(&bucket, "the audit row", &key, row)
            .await
            .map_err(|_| NotOpened::Unrecorded)?;

        pace.check_open().map_err(NotOpened::Ended)?;
        self.request(&bucket, envelope).await?;

        pace.check_open().map_err(NotOpened::Ended)?;
        let region = self.order.record.region.clone();
        let entry = QueueEntry { region, issued_at, id: self.id };
        let body = Bytes::from_static(QUEUE_BODY);
        self.create(&bucket, "the queue entry", &Key::Queue(entry), body).await?;

        self.bump(bucket, pace).await?;
        Ok(Opened { issued })
    }

    /// Best effort, once, after the request ended without a result (db-forward §5.3, J1).
    pub(crate) async fn cancel(&self, allowed: Duration) {
        if !self.request_may_exist {
            return;
        }
        let key = Key::Cancel(self.id).to_path();
        let body = Bytes::from_static(CANCEL_BODY);
        let outcome = self.bucket.create(&key, body, Purpose::Within(allowed)).await;
        if !outcome.is_ours() {
            let outcome = kind(&outcome);
            tracing::warn!(id = %self.id, outcome, "the cancel could not be written");
        }
    }

    fn signed(&self, issued_at: Seconds) -> Result<Bytes, NotOpened> {
        let Order { record, sql, params, at, reply_key, by } = &self.order;
        let request = ReadRequest::from(NewRequest {
            id: self.id,
            account: record.account.clone(),
            app: record.app.clone(),
            host: record.host.clone(),
            incarnation: record.incarnation(),
            region: record.region.clone(),
            op: OP_QUERY.into(),
            sql: sql.clone(),
            params: params.clone(),
            at: *at,
            reply_key: *reply_key,
            by: by.clone(),
            issued_at,
        });
        let envelope = self.key.sign(&request).map_err(|_| NotOpened::Unsigned)?;
        Ok(envelope.to_bytes().into())
    }

    async fn request(&mut self, bucket: &Bucket, envelope: Bytes) -> Result<(), NotOpened> {
        let key = Key::Request(self.id).to_path();
        let outcome = bucket.create(&key, envelope, Purpose::Claim).await;
        // A name that somebody else holds is somebody else's read: no cancel may reach it.
        let absent = matches!(outcome, Outcome::TakenBy(_) | Outcome::Unknown(Cause::Withdrawn));
        self.request_may_exist = !absent;
        settled("the request", self.id, &outcome)
    }

    async fn create(
        &self,
        bucket: &Bucket,
        what: &'static str,
        key: &Key,
        body: Bytes,
    ) -> Result<(), NotOpened> {
        let outcome = bucket.create(&key.to_path(), body, Purpose::Claim).await;
        settled(what, self.id, &outcome)
    }

    /// The bump runs on the request's own time and may be lost: boxes sweep every 30 s, which is
    /// within the pickup window (db-forward §5.8).
    async fn bump(&self, bucket: Bucket, pace: &Pace) -> Result<(), NotOpened> {
        let key = Key::Serial(self.order.record.region.clone());
        let serial = Serial::new(bucket, key.to_path());
        let bumped = pace.while_open(serial.bump()).await.map_err(NotOpened::Ended)?;
        if let Err(error) = bumped {
            tracing::warn!(id = %self.id, %error, "the region's serial could not be moved");
        }
        pace.check_open().map_err(NotOpened::Ended)
    }
}

fn settled(what: &'static str, id: ReadId, outcome: &Outcome) -> Result<(), NotOpened> {
    if outcome.is_ours() {
        return Ok(());
    }
    let outcome = kind(outcome);
    tracing::warn!(%id, what, outcome, "a read was refused because a create is not ours");
    Err(NotOpened::Unwritten(what))
}

/// The outcome for a log, without what is in a foreign object: it may be a statement.
fn kind(outcome: &Outcome) -> String {
    match outcome {
        Outcome::TakenBy(_) => "taken".to_owned(),
        Outcome::Unknown(cause) => format!("unknown: {cause}"),
        Outcome::Created | Outcome::AlreadyMine => "ours".to_owned(),
    }
}
