//! What an S3 server said, without what must not be repeated: some answers echo the caller's key
//! id, the text that was signed, or a whole session token.

use std::fmt;

use object_store::Error;

use crate::verdict::HttpStatus;

/// The longest reason of a failed connection that is repeated; system messages are far shorter.
const MAX_REASON: usize = 200;

/// The longest error code any S3 server is known to send has 40 letters.
const MAX_CODE: usize = 64;

/// What is left of one failure: its status and code, or the reason why there is neither.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Failure {
    status: Option<HttpStatus>,
    code: Option<String>,
    reason: Option<String>,
}

impl Failure {
    fn of(error: &Error) -> Self {
        let text = error.to_string();
        let (status, code) = (status(&text), code(&text));
        let reason = (status.is_none() && code.is_none()).then(|| innermost(error));
        Self { status, code, reason }
    }

    fn hint(&self) -> Option<&'static str> {
        match self.code.as_deref()? {
            "AuthorizationHeaderMalformed" | "PermanentRedirect" | "IllegalLocationConstraint" => {
                Some("is the bucket in another region?")
            }
            "ExpiredToken" | "TokenRefreshRequired" => Some("the session has expired"),
            "InvalidAccessKeyId" => Some("the store does not know this key"),
            "NoSuchBucket" => Some("there is no such bucket"),
            "RequestTimeTooSkewed" => Some("this machine's clock is wrong"),
            "SignatureDoesNotMatch" => Some("the secret is not this key's"),
            _ => None,
        }
    }

    fn has(&self, code: &str) -> bool {
        self.code.as_deref() == Some(code)
    }

    fn is(&self, status: u16) -> bool {
        self.status == Some(HttpStatus(status))
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let status = self.status.map(|HttpStatus(status)| status.to_string());
        let parts = [status, self.code.clone(), self.reason.clone()];
        f.write_str(&parts.into_iter().flatten().collect::<Vec<_>>().join(" "))?;
        self.hint().map_or(Ok(()), |hint| write!(f, " ({hint})"))
    }
}

impl std::error::Error for Failure {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        self.status.as_ref().map(|status| status as _)
    }
}

/// The same failure in the library's terms, in words that may be logged. Listings are sorted out
/// here too: the library calls every failed one "generic", a refusal included.
pub(super) fn plain(at: &str, error: Error) -> Error {
    let failure = Failure::of(&error);
    let path = at.to_owned();
    match error {
        // A name in a bucket that is not there is no absence of the name, and asking again until
        // the deadline will not make the bucket.
        Error::NotFound { .. } | Error::Generic { .. } if failure.has("NoSuchBucket") => {
            Error::NotSupported { source: failure.into() }
        }
        Error::NotFound { .. } => Error::NotFound { path, source: failure.into() },
        Error::AlreadyExists { .. } => Error::AlreadyExists { path, source: failure.into() },
        Error::Precondition { .. } => Error::Precondition { path, source: failure.into() },
        Error::NotModified { .. } => Error::NotModified { path, source: failure.into() },
        Error::Unauthenticated { .. } => Error::Unauthenticated { path, source: failure.into() },
        Error::PermissionDenied { .. } => Error::PermissionDenied { path, source: failure.into() },
        Error::Generic { .. } if failure.is(403) => {
            Error::PermissionDenied { path, source: failure.into() }
        }
        Error::Generic { .. } if failure.is(401) => {
            Error::Unauthenticated { path, source: failure.into() }
        }
        Error::Generic { .. } => Error::Generic { store: "S3", source: failure.into() },
        // These speak of the request's form and hold nothing from the wire.
        other => other,
    }
}

/// The library writes "status code: 403 Forbidden" before any text of the server.
fn status(text: &str) -> Option<HttpStatus> {
    let (_, rest) = text.split_once("status code: ")?;
    rest.get(..3)?.parse().ok().map(HttpStatus)
}

pub(super) fn code(text: &str) -> Option<String> {
    let (_, rest) = text.split_once("<Code>")?;
    let (code, _) = rest.split_once("</Code>")?;
    let plain = code.len() <= MAX_CODE && code.bytes().all(|byte| byte.is_ascii_alphanumeric());
    plain.then(|| code.to_owned())
}

/// The cause at the bottom: what the system or the connection says, never what the server does.
pub(super) fn innermost(error: &(dyn std::error::Error + 'static)) -> String {
    let mut last = error;
    while let Some(source) = last.source() {
        last = source;
    }
    last.to_string().chars().take(MAX_REASON).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The shape of the library's own texts.
    fn answered(status: &str, body: &str) -> Error {
        let text = format!(
            "Error performing PUT http://127.0.0.1:9000/b/k in 3ms - Server returned non-2xx \
             status code: {status}: {body}"
        );
        Error::Generic { store: "S3", source: text.into() }
    }

    const TOKEN: &str = "FwoGZXIvYXdzEBYaDkq";

    #[test]
    fn no_answer_is_repeated_beyond_its_code() {
        let body = format!(
            "<Error><Code>ExpiredToken</Code><Message>m</Message><Token-0>{TOKEN}</Token-0>\
             <AWSAccessKeyId>AKIA1</AWSAccessKeyId></Error>"
        );
        let error = plain("a/b", answered("400 Bad Request", &body));
        let all = format!("{error} {error:?}");
        assert!(!all.contains(TOKEN) && !all.contains("AKIA1"), "{all}");
        assert!(error.to_string().ends_with("400 ExpiredToken (the session has expired)"));
    }

    #[test]
    fn a_code_that_is_no_code_is_left_out() {
        let error = plain("a", answered("500 Internal Server Error", "<Code>a secret</Code>"));
        assert!(error.to_string().ends_with(": 500"), "{error}");
    }

    #[test]
    fn a_refused_listing_is_a_refusal() {
        let body = "<Error><Code>AccessDenied</Code></Error>";
        let refused = plain("hosts/", answered("403 Forbidden", body));
        assert!(matches!(refused, Error::PermissionDenied { .. }), "{refused:?}");
        let unknown = plain("hosts/", answered("401 Unauthorized", ""));
        assert!(matches!(unknown, Error::Unauthenticated { .. }), "{unknown:?}");
    }

    #[test]
    fn a_missing_bucket_is_not_an_absent_object() {
        let not_found = |body: &str| {
            let source = format!("status code: 404 Not Found: {body}").into();
            Error::NotFound { path: "b/k".into(), source }
        };
        let bucket = plain("k", not_found("<Code>NoSuchBucket</Code>"));
        assert!(matches!(bucket, Error::NotSupported { .. }), "{bucket:?}");
        let verdict = crate::verdict::Verdict::of(&bucket);
        assert!(!verdict.is_passing(), "{verdict:?}");
        let key = plain("k", not_found("<Code>NoSuchKey</Code>"));
        assert!(matches!(key, Error::NotFound { .. }), "{key:?}");
    }

    #[test]
    fn the_status_stays_readable_for_machines() {
        let slow = plain("k", answered("503 Service Unavailable", "<Code>SlowDown</Code>"));
        let verdict = crate::verdict::Verdict::of(&slow);
        assert_eq!(verdict, crate::verdict::Verdict::Throttled);
        let hidden = "Server returned error response: <Error><Code>SlowDown</Code></Error>";
        let hidden = Error::Generic { store: "S3", source: hidden.into() };
        let verdict = crate::verdict::Verdict::of(&plain("k", hidden));
        assert_eq!(verdict, crate::verdict::Verdict::Throttled);
    }

    #[test]
    fn without_an_answer_the_system_says_why() {
        let refused = std::io::Error::from(std::io::ErrorKind::ConnectionRefused);
        let error = plain("k", Error::Generic { store: "S3", source: Box::new(refused) });
        assert!(error.to_string().contains("connection refused"), "{error}");
    }
}
