//! Waits of people, in buckets.

use std::array;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use crate::page::{Kind, Page};

/// Upper bounds in seconds: fine around the quarter second of a watch that is awake and the two
/// seconds of one that is not, then the sweep's half minute and the two minutes of giving up.
const BOUNDS: [f64; 12] = [0.1, 0.25, 0.5, 0.75, 1.0, 1.5, 2.5, 5.0, 10.0, 30.0, 60.0, 120.0];

/// A histogram of waits.
#[derive(Debug)]
pub struct Histogram {
    /// The waits of each bucket alone; the last are those above every bound.
    buckets: [AtomicU64; BOUNDS.len() + 1],
    micros: AtomicU64,
}

impl Default for Histogram {
    fn default() -> Self {
        Self { buckets: array::from_fn(|_| AtomicU64::new(0)), micros: AtomicU64::new(0) }
    }
}

impl Histogram {
    /// Adds one wait.
    pub fn observe(&self, wait: Duration) {
        let bucket = BOUNDS.partition_point(|bound| *bound < wait.as_secs_f64());
        self.buckets[bucket].fetch_add(1, Ordering::Relaxed);
        let micros = u64::try_from(wait.as_micros()).unwrap_or(u64::MAX);
        self.micros.fetch_add(micros, Ordering::Relaxed);
    }

    /// Waits counted so far.
    pub fn count(&self) -> u64 {
        self.buckets.iter().map(|bucket| bucket.load(Ordering::Relaxed)).sum()
    }

    /// Writes the family. `name` ends in `_seconds`.
    pub fn write(&self, page: &mut Page, name: &'static str, help: &str) {
        page.family(name, Kind::Histogram, help);
        let mut below = 0;
        for (at, bucket) in self.buckets.iter().enumerate() {
            below += bucket.load(Ordering::Relaxed);
            let bound = BOUNDS.get(at).map_or_else(|| "+Inf".to_owned(), f64::to_string);
            page.sample(&format!("{name}_bucket"), &[("le", &bound)], below);
        }
        let seconds = Duration::from_micros(self.micros.load(Ordering::Relaxed)).as_secs_f64();
        page.sample(&format!("{name}_sum"), &[], seconds);
        page.sample(&format!("{name}_count"), &[], below);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn buckets_are_cumulative_and_bounds_belong_to_them() {
        let waits = Histogram::default();
        for ms in [100, 101, 2_500, 500_000] {
            waits.observe(Duration::from_millis(ms));
        }
        let mut page = Page::default();
        waits.write(&mut page, "wait_seconds", "Waits.");
        for line in [
            "wait_seconds_bucket{le=\"0.1\"} 1",
            "wait_seconds_bucket{le=\"0.25\"} 2",
            "wait_seconds_bucket{le=\"2.5\"} 3",
            "wait_seconds_bucket{le=\"120\"} 3",
            "wait_seconds_bucket{le=\"+Inf\"} 4",
            "wait_seconds_sum 502.701",
            "wait_seconds_count 4",
        ] {
            assert!(page.text().lines().any(|found| found == line), "{line}: {}", page.text());
        }
        assert_eq!(waits.count(), 4);
    }
}
