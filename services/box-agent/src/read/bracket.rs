//! The identity bracket: two identical checks of the record around every byte that is read
//! (db-forward §8.2).

use std::time::Duration;

use carlos_bucket::{Bucket, Chain, ChainError, Purpose};
use carlos_protocol::ids::{BoxName, Host, Principal, Region};
use carlos_protocol::keys::host_chain;
use carlos_protocol::records::{self, HostRecord, class_refusal};
use carlos_protocol::request::ReadRequest;
use carlos_protocol::result::Code;

use super::ending::Ending;

/// How long a record that cannot be read is asked for: a store's short outage, not its long one.
const RECORD_WITHIN: Duration = Duration::from_secs(30);
const AGAIN_AFTER: Duration = Duration::from_secs(1);

/// What one check needs.
pub(crate) struct Bracket<'a> {
    pub(crate) bucket: &'a Bucket,
    pub(crate) box_name: &'a BoxName,
    pub(crate) region: &'a Region,
    pub(crate) request: &'a ReadRequest,
}

impl Bracket<'_> {
    /// Check A and check B. Reads the record fresh each time, and gives the record's own host:
    /// what is read is chosen by it, never by a field of the request.
    pub(crate) async fn check(&self) -> Result<Host, Ending> {
        let record = self.record().await?;
        verdict(record, self.request, self.region).map_err(Ending::refused)
    }

    async fn record(&self) -> Result<Option<HostRecord>, Ending> {
        let ctx = self.bucket.context();
        let until = ctx.monotonic() + RECORD_WITHIN;
        loop {
            // A chain of its own: one that remembers a head would not see a chain begun anew.
            let name = host_chain(&self.request.host);
            let chain = Chain::new(self.bucket.clone(), name, Principal::from(self.box_name));
            match chain.head(Purpose::Claim).await {
                Ok(head) => return Ok(head.and_then(|head| decode(&head.content))),
                Err(ChainError::Malformed(revision)) => {
                    tracing::error!(host = %self.request.host, %revision, "unreadable record");
                    return Ok(None);
                }
                Err(ChainError::Read(error)) if ctx.monotonic() >= until => {
                    tracing::warn!(host = %self.request.host, %error, "no answer for a record");
                    return Err(Ending::interrupted());
                }
                Err(ChainError::Read(_)) => ctx.sleep(AGAIN_AFTER).await,
            }
        }
    }
}

// What does not decode is no record of this protocol, and so not the one that was admitted.
fn decode(content: &[u8]) -> Option<HostRecord> {
    let record = records::decode(content);
    record.inspect_err(|error| tracing::error!(%error, "a record does not decode")).ok()
}

fn verdict(
    record: Option<HostRecord>,
    request: &ReadRequest,
    own_region: &Region,
) -> Result<Host, Code> {
    let Some(record) = record.filter(|record| !record.deleted) else {
        return Err(Code::RecordChanged);
    };
    if record.incarnation() != request.incarnation || class_refusal(&record).is_some() {
        return Err(Code::RecordChanged);
    }
    if record.region != *own_region || record.host != request.host {
        return Err(Code::RecordChanged);
    }
    if record.moving.is_some() { Err(Code::Moving) } else { Ok(record.host) }
}
