//! When to look for news. A quarter of a second while somebody waits, two seconds while nobody
//! does: cheaper in a month than a flat two seconds with one busy hour a day would suggest, and
//! eight times quicker when it matters.

use std::time::Duration;

use crate::Context;

/// The numbers of a poller.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Pace {
    /// Between looks while nothing happens: 1.3 million GETs a month, half a dollar.
    pub idle: Duration,
    /// Between looks after a sign of work: below what a person notices.
    pub active: Duration,
    /// How long a sign of work counts: a second read usually follows within it.
    pub linger: Duration,
    /// The longest stretch under throttling: no later than the sweep that finds lost bumps.
    pub longest: Duration,
}

impl Default for Pace {
    fn default() -> Self {
        Self {
            idle: Duration::from_secs(2),
            active: Duration::from_millis(250),
            linger: Duration::from_secs(60),
            longest: Duration::from_secs(30),
        }
    }
}

/// The beat of one polling loop. Safe to drop and wait again: a dropped wait keeps its end.
#[derive(Debug)]
pub struct Poller {
    ctx: Context,
    pace: Pace,
    due: Option<Duration>,
    started: bool,
    active_until: Duration,
    refusals: u32,
}

impl Poller {
    /// A poller that has not looked yet.
    pub fn new(ctx: Context, pace: Pace) -> Self {
        let (due, active_until) = (None, Duration::ZERO);
        Self { ctx, pace, due, started: false, active_until, refusals: 0 }
    }

    /// Waits until the next look. The first wait is random up to the idle pace, so that a fleet
    /// started together does not poll in step.
    pub async fn wait(&mut self) {
        let due = match self.due {
            Some(due) => due,
            None => self.ctx.monotonic() + self.next_wait(),
        };
        self.due = Some(due);
        self.ctx.sleep(due.saturating_sub(self.ctx.monotonic())).await;
        self.due = None;
        self.started = true;
    }

    /// There is a sign of work of one's own, and nothing else.
    pub fn saw_work(&mut self) {
        self.quicken(self.pace.linger);
    }

    /// Looks often for this long, or for as long as it was going to.
    pub fn quicken(&mut self, time: Duration) {
        self.active_until = self.active_until.max(self.ctx.monotonic() + time);
    }

    /// The look was answered.
    pub fn answered(&mut self) {
        self.refusals = 0;
    }

    /// The look was turned away or failed: the next ones come later and later.
    pub fn turned_away(&mut self) {
        self.refusals = self.refusals.saturating_add(1);
    }

    fn next_wait(&self) -> Duration {
        if !self.started {
            return self.ctx.jitter(self.pace.idle);
        }
        let base = match self.ctx.monotonic() < self.active_until {
            true => self.pace.active,
            false => self.pace.idle,
        };
        let stretch = 1 << self.refusals.min(16);
        (base * stretch).min(self.pace.longest.max(base))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    async fn next(poller: &mut Poller, ctx: &Context) -> Duration {
        let before = ctx.monotonic();
        poller.wait().await;
        ctx.monotonic() - before
    }

    #[tokio::test(start_paused = true)]
    async fn looks_are_quick_for_a_minute_after_work() {
        let ctx = Context::simulated(1, 0);
        let mut poller = Poller::new(ctx.clone(), Pace::default());
        poller.wait().await;
        assert_eq!(next(&mut poller, &ctx).await, 2 * SECOND);
        poller.saw_work();
        let mut quick = 0;
        while next(&mut poller, &ctx).await == SECOND / 4 {
            quick += 1;
        }
        assert_eq!(quick, 240);
    }

    #[tokio::test(start_paused = true)]
    async fn refusals_stretch_the_pace_and_an_answer_restores_it() {
        let ctx = Context::simulated(1, 0);
        let mut poller = Poller::new(ctx.clone(), Pace::default());
        poller.wait().await;
        for expected in [4, 8, 16, 30, 30] {
            poller.turned_away();
            assert_eq!(next(&mut poller, &ctx).await, expected * SECOND);
        }
        poller.answered();
        assert_eq!(next(&mut poller, &ctx).await, 2 * SECOND);
    }

    #[tokio::test(start_paused = true)]
    async fn a_fleet_does_not_start_in_step() {
        let ctx = Context::simulated(1, 0);
        let mut firsts: Vec<u128> = (0..50)
            .map(|i| Poller::new(ctx.node(&i.to_string()), Pace::default()).next_wait().as_millis())
            .collect();
        firsts.sort_unstable();
        assert!(firsts[0] < 300 && firsts[49] > 1_700 && firsts[49] < 2_000, "{firsts:?}");
        firsts.dedup();
        assert!(firsts.len() > 45);
    }

    #[tokio::test(start_paused = true)]
    async fn a_dropped_wait_keeps_its_end() {
        let ctx = Context::simulated(1, 0);
        let mut poller = Poller::new(ctx.clone(), Pace::default());
        poller.wait().await;
        let start = ctx.monotonic();
        while ctx.timeout(SECOND / 10, poller.wait()).await.is_err() {}
        assert_eq!(ctx.monotonic() - start, 2 * SECOND);
    }
}
