//! How long a request takes, by where it comes from. Medians of S3 Standard with warm connections:
//! a small put 0.12 s, a small read 0.05 s, plus what the round trip and its share of retransmits
//! add from 80 and from 160 ms away.

use std::time::Duration;

use carlos_bucket::Context;
use carlos_bucket::layer::Op;
use serde::Serialize;

/// How far a process stands from its bucket.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Distance {
    /// In the bucket's own region.
    SameRegion,
    /// One round trip takes 80 ms: Ireland and Virginia.
    Ms80,
    /// One round trip takes 160 ms: Ireland and Tokyo.
    Ms160,
}

impl Distance {
    /// The name for tables.
    pub const fn name(self) -> &'static str {
        match self {
            Self::SameRegion => "same region",
            Self::Ms80 => "80 ms",
            Self::Ms160 => "160 ms",
        }
    }

    /// Half of the requests are quicker. A listing is taken to be as slow as a put.
    pub(crate) const fn median(self, op: Op) -> Duration {
        let (read, write) = match self {
            Self::SameRegion => (50, 120),
            Self::Ms80 => (130, 200),
            Self::Ms160 => (200, 280),
        };
        Duration::from_millis(match op {
            Op::Get => read,
            Op::Create | Op::Replace | Op::List | Op::Delete => write,
        })
    }

    /// One request's time: the median times two to a random power between -1.5 and 1.5, mostly
    /// near 0. One in a hundred takes 2.2 times the median.
    pub(crate) fn draw(self, op: Op, ctx: &Context) -> Duration {
        let unit = || ctx.jitter(Duration::from_secs(1)).as_secs_f64();
        let power = unit() + unit() + unit() - 1.5;
        self.median(op).mul_f64(power.exp2())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn half_the_draws_are_below_the_median_and_the_tail_is_twice_it() {
        let ctx = Context::simulated(1, 0);
        let mut draws: Vec<_> =
            (0..10_000).map(|_| Distance::SameRegion.draw(Op::Get, &ctx)).collect();
        draws.sort_unstable();
        let share = |part: usize| draws[part].as_secs_f64() / 0.05;
        assert!((0.97..1.03).contains(&share(5_000)), "{}", share(5_000));
        assert!((2.0..2.4).contains(&share(9_900)), "{}", share(9_900));
    }
}
