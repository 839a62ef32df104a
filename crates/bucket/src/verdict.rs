//! What a store's answer means, which is less than it says.

use object_store::Error;

/// Why the fate of a create is not known. Never proof that nothing landed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Cause {
    /// The store refuses this principal.
    #[error("the store denied access: {0}")]
    Denied(String),
    /// The content is not one its object may hold.
    #[error("not a usable content: {0}")]
    BadBody(String),
    /// The key is not one a store can hold.
    #[error("not a usable key: {0}")]
    BadKey(String),
    /// The store answered with a failure until the deadline.
    #[error("the store failed: {0}")]
    Store(String),
    /// The store, or this process's brake after it, turned requests away until the deadline.
    #[error("the store asked for fewer requests")]
    Throttled,
    /// No answer before the deadline.
    #[error("no answer in time")]
    TimedOut,
    /// The body is over [`MAX_OBJECT`](crate::MAX_OBJECT).
    #[error("{0} bytes are more than an object may hold")]
    TooLarge(u64),
    /// Nothing was sent: the bucket's gate had closed.
    #[error("it was not wanted any more")]
    Withdrawn,
}

/// Why a read gave no answer. Absence is an answer and not an error.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ReadError {
    /// The store refuses this principal.
    #[error("the store denied access: {0}")]
    Denied(String),
    /// The key or prefix is not one a store can hold.
    #[error("not a usable key: {0}")]
    BadKey(String),
    /// The store answered with a failure until the deadline.
    #[error("the store failed: {0}")]
    Store(String),
    /// The store, or this process's brake after it, turned requests away until the deadline.
    #[error("the store asked for fewer requests")]
    Throttled,
    /// No answer before the deadline.
    #[error("no answer in time")]
    TimedOut,
    /// The object is over [`MAX_OBJECT`](crate::MAX_OBJECT) bytes.
    #[error("an object of {0} bytes is larger than any this product writes")]
    TooLarge(u64),
    /// The listing is over [`MAX_LISTED`](crate::MAX_LISTED) keys.
    #[error("more keys under one prefix than this product ever writes")]
    TooMany,
}

/// An HTTP status as the source of a store error, for stores of our own making. Real S3 errors
/// carry theirs as text.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("status {0}")]
pub struct HttpStatus(pub u16);

/// One answer, sorted by what a caller must do about it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Verdict {
    /// 404.
    Absent,
    /// 412, **or 409**, which `object_store` reports as the same thing: somebody may hold the key.
    Exists,
    /// 304.
    NotModified,
    /// Nothing was done and repeating will not help.
    Final(Cause),
    /// 503, 429 or their relatives.
    Throttled,
    /// Anything else: it may have landed.
    Unclear(String),
    /// Silence: it may have landed, or may still land.
    TimedOut,
    /// The object read is over the limit.
    TooLarge(u64),
    /// The listing is over the limit.
    TooMany,
}

impl Verdict {
    pub(crate) fn of(error: &Error) -> Self {
        match error {
            Error::NotFound { .. } => Self::Absent,
            Error::AlreadyExists { .. } | Error::Precondition { .. } => Self::Exists,
            Error::NotModified { .. } => Self::NotModified,
            Error::PermissionDenied { .. } | Error::Unauthenticated { .. } => {
                Self::Final(Cause::Denied(error.to_string()))
            }
            Error::InvalidPath { source } => Self::Final(Cause::BadKey(source.to_string())),
            Error::NotSupported { .. }
            | Error::NotImplemented { .. }
            | Error::UnknownConfigurationKey { .. } => Self::Final(Cause::Store(error.to_string())),
            _ if says_slow_down(error) => Self::Throttled,
            _ => Self::Unclear(error.to_string()),
        }
    }

    /// The verdict as the reason for an unknown create.
    pub(crate) fn cause(self) -> Cause {
        match self {
            Self::Final(cause) => cause,
            Self::Throttled => Cause::Throttled,
            Self::TimedOut => Cause::TimedOut,
            Self::Unclear(text) => Cause::Store(text),
            Self::Absent => Cause::Store("the key is refused and nothing is there".into()),
            Self::Exists => Cause::Store("the key is taken and cannot be read".into()),
            Self::NotModified => Cause::Store("an answer to another question".into()),
            Self::TooLarge(size) => Cause::TooLarge(size),
            Self::TooMany => Cause::Store("too many keys".into()),
        }
    }

    /// The verdict as the reason for a failed read.
    pub(crate) fn read_error(self) -> ReadError {
        match self {
            Self::Final(Cause::Denied(text)) => ReadError::Denied(text),
            Self::Final(Cause::BadKey(text)) => ReadError::BadKey(text),
            Self::Throttled => ReadError::Throttled,
            Self::TimedOut => ReadError::TimedOut,
            Self::TooLarge(size) => ReadError::TooLarge(size),
            Self::TooMany => ReadError::TooMany,
            other => ReadError::Store(other.cause().to_string()),
        }
    }

    /// Whether a read may be asked again.
    pub(crate) fn is_passing(&self) -> bool {
        matches!(self, Self::Throttled | Self::Unclear(_) | Self::TimedOut)
    }
}

/// Words by which stores ask for fewer requests, some of them under status 200 or 400
/// (quickwit#5448, doris#35396). Our keys are lower-case, so a path in the text never matches.
const SLOW_DOWN: [&str; 7] = [
    "503 Service Unavailable",
    "429 Too Many Requests",
    "SlowDown",
    "QpsLimitExceeded",
    "RequestLimitExceeded",
    "TooManyRequests",
    "Throttling",
];

fn says_slow_down(error: &Error) -> bool {
    let mut next: Option<&(dyn std::error::Error + 'static)> = Some(error);
    while let Some(error) = next {
        if let Some(HttpStatus(status)) = error.downcast_ref() {
            return matches!(status, 429 | 503);
        }
        next = error.source();
    }
    let text = error.to_string();
    SLOW_DOWN.iter().any(|word| text.contains(word))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn generic(source: impl Into<Box<dyn std::error::Error + Send + Sync>>) -> Error {
        Error::Generic { store: "test", source: source.into() }
    }

    #[test]
    fn every_way_to_ask_for_less_is_throttling() {
        for text in ["<Code>SlowDown</Code>", "status: 429 Too Many Requests", "QpsLimitExceeded"] {
            assert_eq!(Verdict::of(&generic(text)), Verdict::Throttled, "{text}");
        }
        assert_eq!(Verdict::of(&generic(HttpStatus(503))), Verdict::Throttled);
        assert_eq!(Verdict::of(&generic(HttpStatus(429))), Verdict::Throttled);
    }

    #[test]
    fn other_failures_stay_unclear() {
        assert!(matches!(Verdict::of(&generic(HttpStatus(500))), Verdict::Unclear(_)));
        assert!(matches!(Verdict::of(&generic("reset by peer")), Verdict::Unclear(_)));
    }
}
