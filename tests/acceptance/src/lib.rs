//! A throw-away Debian host with a real systemd, and the product installed on it.
//!
//! [`host`] boots and ends the host, [`deployment`] is what stands outside of it (buckets on a
//! real S3 server, a console, a person), [`station`] is a box inside of it, and [`acts`] is what a
//! hostile worker would try there.
#![allow(clippy::disallowed_methods, clippy::disallowed_macros, clippy::unwrap_used, clippy::panic)]

pub mod acts;
pub mod deployment;
pub mod host;
pub mod station;
pub mod yard;

use std::time::{Duration, Instant};

/// Far longer than anything here takes on a busy machine.
pub const PATIENCE: Duration = Duration::from_secs(60);

/// A query that never ends by itself.
pub const ENDLESS: &str = "WITH RECURSIVE c(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM c) \
                           SELECT count(*) FROM c";

/// Between two looks at something that takes a moment.
const LOOK_AGAIN: Duration = Duration::from_millis(50);

/// What `look` gives once it gives something.
///
/// # Panics
/// After [`PATIENCE`], saying that `what` did not come.
pub fn eventually<T>(what: &str, look: impl FnMut() -> Option<T>) -> T {
    within(PATIENCE, what, look).0
}

/// The same within `patience`, with how long it took.
///
/// # Panics
/// After `patience`.
pub fn within<T>(
    patience: Duration,
    what: &str,
    mut look: impl FnMut() -> Option<T>,
) -> (T, Duration) {
    let begun = Instant::now();
    loop {
        if let Some(found) = look() {
            return (found, begun.elapsed());
        }
        assert!(begun.elapsed() < patience, "not within {patience:?}: {what}");
        std::thread::sleep(LOOK_AGAIN);
    }
}
