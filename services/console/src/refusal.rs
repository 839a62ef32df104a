//! Every answer that is not a success: its status, its sentence, nothing else.

use std::{sync::Arc, time::Duration};

use axum::{
    http::{HeaderValue, StatusCode, header},
    response::{IntoResponse, Response},
};
use carlos_bucket::ReadError;
use carlos_protocol::{
    api::ErrorBody,
    copy::{self, Message},
    limits,
    records::{ClassRefusal, HostRecord},
    request::OP_QUERY,
    statement,
};

use crate::{reads::NotOpened, records::LookupError};

/// When to come back after DBF-9, in the sentence's own words: "wait a minute".
const BUSY_FOR: Duration = Duration::from_secs(60);

/// Why a request is not answered with what it asked for.
///
/// Whatever does not exist, is somebody else's or has a name that nothing can have is one variant,
/// so that the three cannot be told apart by a byte (db-forward §5.5 step 3).
#[derive(Debug)]
pub(crate) enum Refusal {
    BadRequest,
    BodyTooLarge,
    BodyTooSlow,
    /// The token's requests of this minute are spent, or those of all tokens that nobody has
    /// vouched for; there are more after this.
    Budget(Duration),
    Class(ClassRefusal, Arc<HostRecord>),
    /// A compressed body: nothing here inflates what strangers send (fault 24).
    Encoded,
    /// Not served here, and this is how it can be (db-forward §5.5 step 1).
    Forward(Arc<HostRecord>),
    Moving(Arc<HostRecord>),
    NoneBinds(Arc<HostRecord>),
    NoneCapable(Arc<HostRecord>),
    NoneLive(Arc<HostRecord>),
    NotFound,
    /// The audit row could not be written, so there is no read (db-forward §9.3).
    NotRecorded,
    Residency(Arc<HostRecord>),
    ServiceToken,
    Statement(statement::Refusal, Arc<HostRecord>),
    TooManyOpen,
    Unauthenticated,
    UnknownOp(String),
    /// The bucket gave no usable answer in time.
    Unreadable,
}

impl Refusal {
    fn status(&self) -> StatusCode {
        match self {
            Self::BadRequest | Self::Statement(..) | Self::UnknownOp(_) => StatusCode::BAD_REQUEST,
            Self::BodyTooLarge => StatusCode::PAYLOAD_TOO_LARGE,
            Self::BodyTooSlow => StatusCode::REQUEST_TIMEOUT,
            Self::Budget(_) | Self::TooManyOpen => StatusCode::TOO_MANY_REQUESTS,
            Self::Encoded => StatusCode::UNSUPPORTED_MEDIA_TYPE,
            Self::NotFound => StatusCode::NOT_FOUND,
            Self::NotRecorded | Self::Unreadable => StatusCode::SERVICE_UNAVAILABLE,
            Self::ServiceToken => StatusCode::FORBIDDEN,
            Self::Unauthenticated => StatusCode::UNAUTHORIZED,
            Self::Class(..)
            | Self::Forward(_)
            | Self::Moving(_)
            | Self::NoneBinds(_)
            | Self::NoneCapable(_)
            | Self::NoneLive(_)
            | Self::Residency(_) => StatusCode::CONFLICT,
        }
    }

    fn message(&self) -> Message {
        match self {
            Self::BadRequest | Self::Encoded => copy::bad_request(),
            Self::BodyTooLarge => copy::body_too_large(limits::READ_BODY_BYTES),
            Self::BodyTooSlow => copy::body_too_slow(),
            Self::Budget(_) => copy::over_budget(),
            Self::Class(ClassRefusal::Class, record) => copy::class_without_replica(&record.host),
            Self::Class(ClassRefusal::Fleet, record) => copy::on_fleet(&record.host),
            Self::Class(ClassRefusal::Pooled, record) => copy::in_pool(&record.host),
            Self::Forward(record) => copy::update_to_forward(&record.host, &record.region),
            Self::Moving(record) => copy::moving(&record.host),
            Self::NoneBinds(record) => copy::no_binding_box(&record.region),
            Self::NoneCapable(record) => copy::no_capable_box(&record.host, &record.region),
            Self::NoneLive(record) => copy::no_live_box(&record.host, &record.region),
            Self::NotFound => copy::not_found(),
            Self::NotRecorded => copy::no_audit(),
            Self::Residency(record) => copy::residency(&record.host, &record.region),
            Self::ServiceToken => copy::people_only(),
            Self::Statement(error, record) => of_statement(error, record),
            Self::TooManyOpen => copy::too_many_reads(),
            Self::Unauthenticated => copy::bad_token(),
            Self::UnknownOp(op) => copy::unknown_op(op),
            Self::Unreadable => copy::could_not_read_instance(),
        }
    }

    fn body(&self) -> ErrorBody {
        match self {
            // Without the code, as a console without forwarding has always answered (§9.2).
            Self::Residency(_) => ErrorBody::bare(&self.message()),
            Self::Forward(record) => {
                ErrorBody::forward(&self.message(), record.region.clone(), &[OP_QUERY])
            }
            _ => ErrorBody::coded(&self.message()),
        }
    }

    fn retry_after(&self) -> Option<Duration> {
        match self {
            Self::Budget(rest) => Some(*rest),
            Self::TooManyOpen => Some(BUSY_FOR),
            _ => None,
        }
    }
}

impl IntoResponse for Refusal {
    fn into_response(self) -> Response {
        let json = HeaderValue::from_static("application/json");
        let mut response = (self.status(), self.body().to_bytes()).into_response();
        response.headers_mut().insert(header::CONTENT_TYPE, json);
        if let Some(rest) = self.retry_after() {
            let seconds = rest.as_secs() + u64::from(rest.subsec_nanos() > 0);
            response.headers_mut().insert(header::RETRY_AFTER, seconds.max(1).into());
        }
        if matches!(self, Self::Unauthenticated) {
            let scheme = HeaderValue::from_static("Bearer");
            response.headers_mut().insert(header::WWW_AUTHENTICATE, scheme);
        }
        response
    }
}

impl From<ReadError> for Refusal {
    fn from(error: ReadError) -> Self {
        tracing::warn!(%error, "the bucket could not be read");
        Self::Unreadable
    }
}

impl From<LookupError> for Refusal {
    fn from(_: LookupError) -> Self {
        Self::Unreadable
    }
}

impl From<NotOpened> for Refusal {
    fn from(error: NotOpened) -> Self {
        match error {
            NotOpened::Unrecorded => Self::NotRecorded,
            NotOpened::Ended(_) | NotOpened::Unsigned | NotOpened::Unwritten(_) => Self::Unreadable,
        }
    }
}

fn of_statement(refusal: &statement::Refusal, record: &HostRecord) -> Message {
    match refusal {
        statement::Refusal::NotText => copy::not_sendable(&record.region),
        refusal => copy::of_statement(refusal),
    }
}
