//! From a queue entry to a request this box may act on (db-forward §5.5, §5.9).

use carlos_bucket::{Bucket, Purpose};
use carlos_protocol::envelope::{self, RootKeys, VerifyError};
use carlos_protocol::ids::Region;
use carlos_protocol::keys::{Key, QueueEntry};
use carlos_protocol::request::{ReadRequest, RequestRefusal};
use thiserror::Error;

/// Why an entry does not become a read of this box.
#[derive(Clone, Copy, Debug, Error, PartialEq, Eq)]
pub(crate) enum Refusal {
    #[error(transparent)]
    Envelope(#[from] VerifyError),
    #[error(transparent)]
    Request(#[from] RequestRefusal),
}

impl Refusal {
    /// A later version's request: another box may know it, so nothing is wrong with it.
    pub(crate) fn is_silent(self) -> bool {
        matches!(
            self,
            Self::Envelope(VerifyError::UnknownVersion)
                | Self::Request(RequestRefusal::UnknownOp | RequestRefusal::Expired)
        )
    }
}

/// What became of an entry.
#[derive(Debug)]
pub(crate) enum Examined {
    /// Signed, for this box, in its window.
    Genuine(Box<ReadRequest>),
    /// Never to be looked at again.
    Refused(Refusal),
    /// The request could not be read, or is not there yet: look again while the window is open.
    Later,
}

/// Reads the request an entry names and verifies all of it.
pub(crate) async fn examine(
    bucket: &Bucket,
    roots: &RootKeys,
    region: &Region,
    entry: &QueueEntry,
) -> Examined {
    let key = Key::Request(entry.id).to_path();
    let body = match bucket.get(&key, Purpose::Claim).await {
        Ok(Some(body)) => body,
        Ok(None) => return Examined::Later,
        Err(error) => {
            tracing::debug!(id = %entry.id, %error, "a request could not be read");
            return Examined::Later;
        }
    };
    match verify(roots, region, entry, &body, bucket.context().now_unix()) {
        Ok(request) => Examined::Genuine(Box::new(request)),
        Err(refusal) => Examined::Refused(refusal),
    }
}

fn verify(
    roots: &RootKeys,
    region: &Region,
    entry: &QueueEntry,
    body: &[u8],
    now_unix: u64,
) -> Result<ReadRequest, Refusal> {
    let request: ReadRequest = envelope::verify(roots, body)?;
    request.check(&entry.id, region, now_unix, entry)?;
    Ok(request)
}
