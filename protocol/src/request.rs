//! The request of a forwarded read, and what a box checks of it before it acts (db-forward §5.5,
//! §5.9).

use std::fmt;

use serde::{Deserialize, Serialize};
use thiserror::Error;

use crate::envelope::Payload;
use crate::ids::{Account, App, Host, Incarnation, ReadId, Region};
use crate::keys::QueueEntry;
use crate::limits::{CLOCK_SKEW, EMAIL_BYTES, PICKUP_WINDOW, SQL_BYTES};
use crate::params::Params;
use crate::redacted::Redacted;
use crate::seal::ReplyPublic;
use crate::time::{At, Seconds};

/// The operation of phase 1.
pub const OP_QUERY: &str = "query";

/// A forwarded read, as the console signs it. It names no bucket, no prefix and no key: the box
/// derives those itself (db-forward §8.2).
#[derive(Clone, Deserialize, Eq, PartialEq, Serialize)]
#[serde(deny_unknown_fields)]
pub struct ReadRequest {
    purpose: String,
    v: u32,
    /// The read.
    pub id: ReadId,
    /// The account that owns the instance.
    pub account: Account,
    /// The account's app.
    pub app: App,
    /// The instance.
    pub host: Host,
    /// Which life of the host's name was admitted.
    pub incarnation: Incarnation,
    /// Where the data lives.
    pub region: Region,
    /// What to do; [`OP_QUERY`], or an operation of a later phase.
    pub op: String,
    /// The statement, at most [`SQL_BYTES`] bytes.
    pub sql: String,
    /// The values of its parameters; absent without any, so that such a request keeps the bytes it
    /// always had.
    #[serde(default, skip_serializing_if = "Params::is_empty")]
    pub params: Params,
    /// The copy wanted.
    pub at: At,
    /// Whom to seal the answer for.
    pub reply_key: ReplyPublic,
    /// The member who asked, as an e-mail address.
    pub by: String,
    /// When the console admitted the read.
    pub issued_at: Seconds,
}

impl fmt::Debug for ReadRequest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ReadRequest")
            .field("id", &self.id)
            .field("host", &self.host)
            .field("region", &self.region)
            .field("op", &self.op)
            .field("sql", &Redacted(&self.sql))
            .field("params", &self.params)
            .field("at", &self.at)
            .field("issued_at", &self.issued_at)
            .finish_non_exhaustive()
    }
}

impl Payload for ReadRequest {
    const PURPOSE: &'static str = "carlos-db-read-v1";
    const VERSION: u32 = 1;
}

/// What the console fills in; the purpose and the version are not anyone's choice.
#[derive(Clone)]
pub struct NewRequest {
    /// See [`ReadRequest::id`].
    pub id: ReadId,
    /// See [`ReadRequest::account`].
    pub account: Account,
    /// See [`ReadRequest::app`].
    pub app: App,
    /// See [`ReadRequest::host`].
    pub host: Host,
    /// See [`ReadRequest::incarnation`].
    pub incarnation: Incarnation,
    /// See [`ReadRequest::region`].
    pub region: Region,
    /// See [`ReadRequest::op`].
    pub op: String,
    /// See [`ReadRequest::sql`].
    pub sql: String,
    /// See [`ReadRequest::params`].
    pub params: Params,
    /// See [`ReadRequest::at`].
    pub at: At,
    /// See [`ReadRequest::reply_key`].
    pub reply_key: ReplyPublic,
    /// See [`ReadRequest::by`].
    pub by: String,
    /// See [`ReadRequest::issued_at`].
    pub issued_at: Seconds,
}

impl fmt::Debug for NewRequest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("NewRequest")
            .field("id", &self.id)
            .field("host", &self.host)
            .field("region", &self.region)
            .field("op", &self.op)
            .field("sql", &Redacted(&self.sql))
            .field("params", &self.params)
            .field("at", &self.at)
            .field("issued_at", &self.issued_at)
            .finish_non_exhaustive()
    }
}

impl From<NewRequest> for ReadRequest {
    fn from(new: NewRequest) -> Self {
        Self {
            purpose: Self::PURPOSE.to_owned(),
            v: Self::VERSION,
            id: new.id,
            account: new.account,
            app: new.app,
            host: new.host,
            incarnation: new.incarnation,
            region: new.region,
            op: new.op,
            sql: new.sql,
            params: new.params,
            at: new.at,
            reply_key: new.reply_key,
            by: new.by,
            issued_at: new.issued_at,
        }
    }
}

/// Why a box leaves a verified request alone.
#[derive(Clone, Copy, Debug, Eq, Error, PartialEq)]
pub enum RequestRefusal {
    /// The pickup window has closed.
    #[error("the request is too old")]
    Expired,
    /// The id is not the one of the object's key.
    #[error("the request lies under another read's key")]
    ForeignId,
    /// The region is not this box's.
    #[error("the request is for another region")]
    ForeignRegion,
    /// The entry that named it has another id, region or time.
    #[error("the queue entry does not fit the request")]
    ForeignQueueEntry,
    /// Issued further in the future than clocks may differ.
    #[error("the request is from the future")]
    FromTheFuture,
    /// A field is longer than the protocol allows.
    #[error("a field of the request is too long")]
    TooLong,
    /// An operation of a later phase: another box may know it.
    #[error("an operation this program does not know")]
    UnknownOp,
}

impl ReadRequest {
    /// Checks a verified request against where it was found, this box and the time.
    ///
    /// `read_from` is the id in the object's key, `queue` the entry that led here.
    ///
    /// # Errors
    /// [`RequestRefusal`], the first that applies.
    pub fn check(
        &self,
        read_from: &ReadId,
        own_region: &Region,
        now_unix: u64,
        queue: &QueueEntry,
    ) -> Result<(), RequestRefusal> {
        if self.id != *read_from {
            return Err(RequestRefusal::ForeignId);
        }
        if self.region != *own_region {
            return Err(RequestRefusal::ForeignRegion);
        }
        if *queue != self.queue_entry() {
            return Err(RequestRefusal::ForeignQueueEntry);
        }
        check_age(self.issued_at, now_unix)?;
        if self.sql.len() > SQL_BYTES || self.by.len() > EMAIL_BYTES {
            return Err(RequestRefusal::TooLong);
        }
        if self.op == OP_QUERY { Ok(()) } else { Err(RequestRefusal::UnknownOp) }
    }

    /// The queue entry that points at this request. Its key carries the hour, so equality of the
    /// entry is equality of region, hour, time and id.
    pub fn queue_entry(&self) -> QueueEntry {
        QueueEntry { region: self.region.clone(), issued_at: self.issued_at, id: self.id }
    }
}

/// Whether a read issued at this time may still be picked up: at most the window old, or the skew
/// in the future. A box asks this of a queue entry before it reads the request.
///
/// # Errors
/// [`RequestRefusal::Expired`] or [`RequestRefusal::FromTheFuture`].
pub fn check_age(issued_at: Seconds, now_unix: u64) -> Result<(), RequestRefusal> {
    let issued_at = issued_at.unix();
    if now_unix.saturating_sub(issued_at) > PICKUP_WINDOW.as_secs() {
        return Err(RequestRefusal::Expired);
    }
    if issued_at.saturating_sub(now_unix) > CLOCK_SKEW.as_secs() {
        return Err(RequestRefusal::FromTheFuture);
    }
    Ok(())
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use crate::Ulid;
    use crate::api::ReadBody;
    use crate::envelope::{KeyFile, RootKeys, verify};
    use crate::frames::{Frame, Run};
    use crate::ids::Digest;
    use crate::limits::ENVELOPE_BYTES;
    use crate::params::tests::longest_params;
    use crate::params::{Param, ParamValue};
    use crate::seal::ReplyKey;
    use crate::testing::Counter;

    pub(crate) fn request() -> ReadRequest {
        new_request().into()
    }

    fn new_request() -> NewRequest {
        let account = Account::parse("acme").expect("label");
        let app = App::parse("shop").expect("label");
        let host = Host::parse("shop.example.com").expect("host");
        let incarnation = Incarnation::of(&account, &app, &host, Ulid::nil());
        NewRequest {
            id: ReadId::from_bytes([7; 16]),
            account,
            app,
            host,
            incarnation,
            region: Region::parse("uk").expect("label"),
            op: OP_QUERY.into(),
            sql: "SELECT count(*) FROM orders".into(),
            params: Params::default(),
            at: At::Newest,
            reply_key: ReplyKey::generate(&mut Counter(5)).public(),
            by: "member@example.com".into(),
            issued_at: Seconds::new(1_792_659_600),
        }
    }

    fn check(request: &ReadRequest, now: u64) -> Result<(), RequestRefusal> {
        let region = Region::parse("uk").expect("label");
        let entry = QueueEntry {
            region: region.clone(),
            issued_at: Seconds::new(1_792_659_600),
            id: ReadId::from_bytes([7; 16]),
        };
        request.check(&ReadId::from_bytes([7; 16]), &region, now, &entry)
    }

    #[test]
    fn a_request_is_taken_within_its_window_only() {
        let issued = 1_792_659_600;
        assert_eq!(check(&request(), issued), Ok(()));
        assert_eq!(check(&request(), issued + 60), Ok(()));
        assert_eq!(check(&request(), issued + 61), Err(RequestRefusal::Expired));
        assert_eq!(check(&request(), issued - 60), Ok(()));
        assert_eq!(check(&request(), issued - 61), Err(RequestRefusal::FromTheFuture));
    }

    #[test]
    fn a_request_found_elsewhere_is_refused() {
        let other_id = ReadRequest { id: ReadId::from_bytes([8; 16]), ..request() };
        let other_region = ReadRequest { region: Region::parse("ie").expect("label"), ..request() };
        let other_time = ReadRequest { issued_at: Seconds::new(1_792_659_601), ..request() };
        let now = 1_792_659_600;
        assert_eq!(check(&other_id, now), Err(RequestRefusal::ForeignId));
        assert_eq!(check(&other_region, now), Err(RequestRefusal::ForeignRegion));
        assert_eq!(check(&other_time, now), Err(RequestRefusal::ForeignQueueEntry));
    }

    #[test]
    fn operations_of_later_phases_and_long_fields_are_left_alone() {
        let pull = ReadRequest { op: "pull".into(), ..request() };
        assert_eq!(check(&pull, 1_792_659_600), Err(RequestRefusal::UnknownOp));
        let long = ReadRequest { sql: "x".repeat(SQL_BYTES + 1), ..request() };
        assert_eq!(check(&long, 1_792_659_600), Err(RequestRefusal::TooLong));
    }

    #[test]
    fn the_longest_statement_fits_its_envelope() {
        let key = KeyFile::generate_root(&mut Counter(1));
        let roots: RootKeys = [key.public()].into_iter().collect();
        let sql = "\u{1}".repeat(SQL_BYTES);
        let by = "b".repeat(EMAIL_BYTES);
        let request = ReadRequest { sql, by, params: longest_params(), ..request() };
        let bytes = key.sign(&request).expect("within bounds").to_bytes();
        assert!(bytes.len() <= ENVELOPE_BYTES);
        assert_eq!(verify(&roots, &bytes), Ok(request));
    }

    #[test]
    fn debug_holds_no_statement_and_no_value() {
        let value = Param::positional(ParamValue::Text("Ann".into()));
        let params = Params::new(vec![value]).expect("small");
        let request = ReadRequest { params: params.clone(), ..request() };
        let ReadRequest { op, sql, at, reply_key, .. } = request.clone();
        let body = ReadBody { op, sql: sql.clone(), params: params.clone(), at, reply_key };
        let run = Run { sql: sql.clone(), params };
        for text in [
            format!("{request:?}"),
            format!("{:?}", new_request()),
            format!("{body:?}"),
            format!("{run:?} {:?}", Frame::Run(run.clone())),
        ] {
            assert!(text.contains(&Digest::of(sql.as_bytes()).prefix()), "{text}");
            for secret in ["SELECT", "orders", "Ann", "@"] {
                assert!(!text.contains(secret), "{text}");
            }
        }
    }
}
