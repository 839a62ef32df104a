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

/// How often a `picked` that stayed unclear is looked for: its read ends that much sooner.
const LOOK_EVERY: Duration = Duration::from_secs(5);

/// Whose a read is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Owner {
    /// This very attempt.
    Own,
    Other,
    /// It never became known. Not owned: two boxes must never run one read (J3).
    Unknown,
}

/// Creates `picked` and says whose the read is.
pub(crate) async fn own(bucket: &Bucket, id: ReadId, picked: &Picked) -> Owner {
    let ctx = bucket.context();
    let key = Key::Picked(id).to_path();
    let body = Bytes::from(picked.to_bytes());
    let until = ctx.monotonic() + UNDECIDED_FOR;
    loop {
        // Same key, same bytes: the create either wins or finds itself, whatever became of the
        // tries before it. It reads back after every answer that is not a plain success.
        match bucket.create(&key, body.clone(), Purpose::Claim).await {
            Outcome::Created | Outcome::AlreadyMine => return Owner::Own,
            Outcome::TakenBy(other) => return owner(picked, &other),
            Outcome::Unknown(cause) => {
                tracing::debug!(%id, %cause, "who owns the read is not known yet");
            }
        }
        if ctx.monotonic() + AGAIN_AFTER >= until {
            tracing::warn!(%id, "who owns the read never became known; it is left alone");
            return Owner::Unknown;
        }
        ctx.sleep(AGAIN_AFTER).await;
    }
}

/// Looks for a `picked` whose create stayed unclear until `until`, on the monotonic clock. A create
/// can land long after its caller has given it up, and then makes this attempt the owner of a read
/// that it does not run.
pub(crate) async fn landed_late(
    bucket: &Bucket,
    id: ReadId,
    picked: &Picked,
    until: Duration,
) -> bool {
    let ctx = bucket.context();
    let key = Key::Picked(id).to_path();
    while ctx.monotonic() < until {
        ctx.sleep(LOOK_EVERY).await;
        match bucket.get(&key, Purpose::Claim).await {
            Ok(Some(found)) => return owner(picked, &found) == Owner::Own,
            Ok(None) => {}
            Err(error) => tracing::debug!(%id, %error, "picked is not readable"),
        }
    }
    false
}

// The nonce decides and not the box's name: an agent that restarted within the window is another
// attempt, and its predecessor's read died with it.
fn owner(mine: &Picked, found: &[u8]) -> Owner {
    match Picked::from_bytes(found) {
        Ok(found) if found.nonce == mine.nonce => Owner::Own,
        _ => Owner::Other,
    }
}
