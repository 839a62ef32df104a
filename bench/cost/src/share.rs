//! Waits and their percentiles.

use std::time::Duration;

use serde::{Serialize, Serializer};

/// Some waits of one kind.
#[derive(Clone, Debug, Default)]
pub struct Waits(Vec<Duration>);

impl Waits {
    /// Adds one.
    pub fn add(&mut self, wait: Duration) {
        self.0.push(wait);
    }

    /// Adds those of another hour.
    pub fn merge(&mut self, other: &Self) {
        self.0.extend(&other.0);
    }

    /// How many there are.
    pub fn count(&self) -> usize {
        self.0.len()
    }

    /// The least wait that `percent` of all waits do not exceed; zero when there is none.
    pub fn percentile(&self, percent: usize) -> Duration {
        let mut sorted = self.0.clone();
        sorted.sort_unstable();
        let rank = (sorted.len() * percent).div_ceil(100).max(1);
        sorted.get(rank - 1).copied().unwrap_or_default()
    }
}

impl Serialize for Waits {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        #[derive(Serialize)]
        struct Seconds {
            count: usize,
            p50_s: f64,
            p99_s: f64,
        }
        let seconds =
            |percent| (self.percentile(percent).as_secs_f64() * 1_000.0).round() / 1_000.0;
        Seconds { count: self.count(), p50_s: seconds(50), p99_s: seconds(99) }
            .serialize(serializer)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percentiles_are_waits_that_happened() {
        let mut waits = Waits::default();
        assert_eq!(waits.percentile(50), Duration::ZERO);
        (1..=200).rev().for_each(|ms| waits.add(Duration::from_millis(ms)));
        assert_eq!(waits.percentile(50), Duration::from_millis(100));
        assert_eq!(waits.percentile(99), Duration::from_millis(198));
        assert_eq!(waits.percentile(100), Duration::from_millis(200));
    }
}
