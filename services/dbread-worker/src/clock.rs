//! The worker's one clock.
//!
//! Only spans are measured here, never dates, and the process has no shared context to take a
//! clock from: it is one file that may ask the kernel.

use std::time::Duration;

use rustix::time::ClockId;

/// Time since some fixed point; never goes back.
#[must_use]
pub fn monotonic() -> Duration {
    let now = rustix::time::clock_gettime(ClockId::Monotonic);
    let seconds = u64::try_from(now.tv_sec).expect("the monotonic clock starts at zero");
    let nanos = u32::try_from(now.tv_nsec).expect("a second has less than 2^32 nanoseconds");
    Duration::new(seconds, nanos)
}
