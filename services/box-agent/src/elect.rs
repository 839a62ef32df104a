//! The election: the first create of `picked` owns the read (db-forward §5.3, J3).

use std::time::Duration;

use bytes::Bytes;
use carlos_bucket::{Bucket, Outcome, Purpose};
use carlos_protocol::ids::ReadId;
use carlos_protocol::keys::Key;
use carlos_protocol::picked::Picked;

/// How long an unclear create is asked about again. The console waits two minutes for `picked`
/// from `issued_at`, and a box picks within the first (db-forward §5.7); a box that still does
/// not know half a minute later would only begin a read that nobody waits for.
const UNDECIDED_FOR: Duration = Duration::from_secs(30);

/// Pause between two tries whose store answered at once, for example with "denied".
const AGAIN_AFTER: Duration = Duration::from_millis(500);

/// Creates `picked` and says whether this very attempt owns the read. What stays unclear to the
/// end is not owned: two boxes must never run one read, and a read nobody runs only ends DBF-12.
pub(crate) async fn own(bucket: &Bucket, id: ReadId, picked: &Picked) -> bool {
    let ctx = bucket.context();
    let key = Key::Picked(id).to_path();
    let body = Bytes::from(picked.to_bytes());
    let until = ctx.monotonic() + UNDECIDED_FOR;
    loop {
        // Same key, same bytes: the create either wins or finds itself, whatever became of the
        // tries before it. It reads back after every answer that is not a plain success.
        match bucket.create(&key, body.clone(), Purpose::Claim).await {
            Outcome::Created | Outcome::AlreadyMine => return true,
            Outcome::TakenBy(other) => return carries_nonce_of(picked, &other),
            Outcome::Unknown(cause) => {
                tracing::debug!(%id, %cause, "who owns the read is not known yet");
            }
        }
        if ctx.monotonic() + AGAIN_AFTER >= until {
            tracing::warn!(%id, "who owns the read never became known; it is left alone");
            return false;
        }
        ctx.sleep(AGAIN_AFTER).await;
    }
}

// The nonce decides and not the box's name: an agent that restarted within the window is another
// attempt, and its predecessor's read died with it.
fn carries_nonce_of(mine: &Picked, found: &[u8]) -> bool {
    Picked::from_bytes(found).is_ok_and(|found| found.nonce == mine.nonce)
}
