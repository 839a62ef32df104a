//! What ends a read from outside while the owner works on it.

use std::time::Duration;

use carlos_bucket::{Bucket, Purpose};
use carlos_protocol::ids::ReadId;
use carlos_protocol::keys::Key;
use carlos_protocol::limits::CANCEL_POLL;
use tokio_util::sync::CancellationToken;

/// Why the owner stops before its own end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Stop {
    /// The console created `cancel`: nobody waits for the answer any more.
    Cancelled,
    /// The deadline stated in `picked` has passed.
    Deadline,
    /// The agent is stopping and its grace is over.
    Draining,
}

/// Resolves when the read must stop; looks for `cancel` every 5 s (db-forward §5.5 step 5).
pub(crate) async fn watch(
    bucket: &Bucket,
    id: ReadId,
    deadline: Duration,
    end_now: &CancellationToken,
) -> Stop {
    let ctx = bucket.context();
    let cancel = Key::Cancel(id).to_path();
    loop {
        let left = deadline.saturating_sub(ctx.monotonic());
        tokio::select! {
            biased;
            () = end_now.cancelled() => return Stop::Draining,
            () = ctx.sleep(left.min(CANCEL_POLL)) => {}
        }
        if ctx.monotonic() >= deadline {
            return Stop::Deadline;
        }
        // An unreadable marker is looked for again; the deadline bounds the read without it.
        if let Ok(Some(_)) = bucket.get(&cancel, Purpose::Poll).await {
            return Stop::Cancelled;
        }
    }
}
