//! One brake per process. Backoff of each request alone lets fresh requests hammer a store that
//! has asked for less (scylladb#30775), so all senders of a process share this.

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use crate::Context;

/// The smoothed share of refusals above which the brake acts: one refusal among many is ordinary
/// on a healthy store.
const TOO_MANY_REFUSALS: f64 = 0.2;

/// How much one outcome moves the smoothed share. Two refusals close together pass the bound, a
/// single one does not.
const WEIGHT: f64 = 0.11;

/// The first gap between requests once the brake acts.
const FIRST_GAP: Duration = Duration::from_millis(50);

/// The longest gap: shorter than a claim's deadline, so that work goes on, slowly.
const LONGEST_GAP: Duration = Duration::from_secs(4);

/// Gaps below this are no brake at all.
const SMALLEST_GAP: Duration = Duration::from_millis(5);

/// What a success leaves of the gap. Release takes some twenty successes, never one burst.
const EASING: f64 = 0.7;

/// Time alone halves the gap this often, for callers whose deadlines are shorter than the gap and
/// who would otherwise send too little to find out that the store has recovered.
const HALF_LIFE: Duration = Duration::from_secs(6);

/// A process-wide spacing of requests: none at first, doubled by refusals, eased by successes.
#[derive(Debug, Default)]
pub struct Brake {
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    share: f64,
    gap: Duration,
    /// Monotonic time before which no request may start.
    free_at: Duration,
    /// Monotonic time of the last tightening; refusals already on the way count once.
    tightened_at: Duration,
    /// Monotonic time up to which the gap has been halved by time.
    relaxed_at: Duration,
}

impl Brake {
    /// Waits for this request's turn. False, at once, when the turn would come after `within`.
    pub(crate) async fn admit(&self, ctx: &Context, within: Duration) -> bool {
        let Some(wait) = self.reserve(ctx, within) else {
            return false;
        };
        if !wait.is_zero() {
            ctx.sleep(wait).await;
        }
        true
    }

    /// Records an answered request.
    pub(crate) fn record(&self, ctx: &Context, refused: bool) {
        let mut state = self.state();
        let outcome = if refused { 1.0 } else { 0.0 };
        state.share += WEIGHT * (outcome - state.share);
        match refused {
            true => state.tighten(ctx.monotonic()),
            false => state.ease(),
        }
    }

    /// The gap now kept between two requests of this process; zero when the store is content.
    pub fn gap(&self) -> Duration {
        self.state().gap
    }

    /// Whether the brake acts.
    pub fn is_on(&self) -> bool {
        !self.gap().is_zero()
    }

    fn reserve(&self, ctx: &Context, within: Duration) -> Option<Duration> {
        let mut state = self.state();
        let now = ctx.monotonic();
        state.relax(now);
        if state.gap.is_zero() {
            return Some(Duration::ZERO);
        }
        let turn = state.free_at.max(now);
        let wait = turn - now;
        if wait > within {
            return None;
        }
        // Half the gap is random, so that braked processes do not fall into step.
        state.free_at = turn + state.gap / 2 + ctx.jitter(state.gap);
        Some(wait)
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    fn tighten(&mut self, now: Duration) {
        self.relax(now);
        let still_settling = now < self.tightened_at + self.gap;
        if self.share < TOO_MANY_REFUSALS || (still_settling && !self.gap.is_zero()) {
            return;
        }
        if self.gap.is_zero() {
            tracing::warn!(share = self.share, "the store asks for fewer requests; braking");
        }
        self.gap = (self.gap * 2).clamp(FIRST_GAP, LONGEST_GAP);
        self.free_at = self.free_at.max(now + self.gap);
        self.tightened_at = now;
    }

    fn ease(&mut self) {
        self.shrink(EASING);
    }

    fn relax(&mut self, now: Duration) {
        let halvings = now.saturating_sub(self.relaxed_at).div_duration_f64(HALF_LIFE);
        self.relaxed_at = now;
        self.shrink(0.5_f64.powf(halvings));
    }

    fn shrink(&mut self, left: f64) {
        self.gap = self.gap.mul_f64(left);
        if !self.gap.is_zero() && self.gap < SMALLEST_GAP {
            tracing::info!("the store answers again; the brake is off");
            self.gap = Duration::ZERO;
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use object_store::memory::InMemory;

    use super::*;
    use crate::fault::{Fault, FaultStore, Rule};
    use crate::layer::Op;
    use crate::{Bucket, Kind, Purpose};

    const SECOND: Duration = Duration::from_secs(1);

    /// Twenty senders without a pause between requests of 40 ms: 500 a second.
    fn load(ctx: &Context) -> (Bucket, FaultStore) {
        let (slow, latency) = FaultStore::wrap(Arc::new(InMemory::new()), ctx);
        let delay = Fault::Delayed(Duration::from_millis(40));
        latency.add(Rule::new(Op::Get, delay).always());
        let (store, faults) = FaultStore::wrap(slow, ctx);
        let bucket = Bucket::new(store, ctx.clone());
        for sender in 0..20 {
            ctx.spawn(send_for_ever(bucket.clone(), sender));
        }
        (bucket, faults)
    }

    async fn send_for_ever(bucket: Bucket, sender: usize) {
        loop {
            let _ = bucket.get(&format!("hosts/{sender}"), Purpose::Poll).await;
            // A turn refused by the brake costs no time; a real caller waits for its next poll.
            bucket.context().sleep(Duration::from_millis(1)).await;
        }
    }

    /// Requests sent in each of the next `seconds`.
    async fn rates(bucket: &Bucket, seconds: usize) -> Vec<u64> {
        let mut rates = Vec::new();
        for _ in 0..seconds {
            let before = bucket.counters().of(Kind::Get).sent;
            bucket.context().sleep(SECOND).await;
            rates.push(bucket.counters().of(Kind::Get).sent - before);
        }
        rates
    }

    #[tokio::test(start_paused = true)]
    async fn half_the_requests_refused_brings_the_rate_below_a_fifth() {
        let ctx = Context::simulated(5, 0);
        let (bucket, faults) = load(&ctx);
        let normal = *rates(&bucket, 3).await.last().expect("three rates");
        assert!(normal > 400, "{normal}");
        faults.add(Rule::new(Op::Get, Fault::Refused(503)).odds(0.5));
        let braked = rates(&bucket, 60).await;
        assert!(braked[5..].iter().all(|rate| *rate < normal / 5), "{normal}: {braked:?}");
        faults.clear();
        let free = rates(&bucket, 120).await;
        assert!(free.iter().all(|rate| *rate <= normal * 21 / 20), "a burst: {free:?}");
        assert!(free[60..].iter().all(|rate| *rate > normal * 9 / 10), "not free: {free:?}");
        assert!(!bucket.brake().is_on());
    }

    #[tokio::test(start_paused = true)]
    async fn one_refusal_among_many_is_no_reason() {
        let ctx = Context::simulated(6, 0);
        let (bucket, faults) = load(&ctx);
        for _ in 0..20 {
            faults.add(Rule::new(Op::Get, Fault::Refused(429)));
            ctx.sleep(SECOND).await;
            assert!(!bucket.brake().is_on());
        }
        assert_eq!(bucket.counters().of(Kind::Get).throttled, 20);
    }

    #[tokio::test(start_paused = true)]
    async fn a_turn_after_the_deadline_is_refused_at_once() {
        let ctx = Context::simulated(7, 0);
        let brake = Brake::default();
        for _ in 0..20 {
            ctx.sleep(SECOND / 20 + brake.gap()).await;
            brake.record(&ctx, true);
        }
        assert_eq!(brake.gap(), LONGEST_GAP);
        let begun = ctx.monotonic();
        assert!(!brake.admit(&ctx, SECOND).await);
        assert_eq!(ctx.monotonic(), begun);
        assert!(brake.admit(&ctx, 10 * SECOND).await);
    }
}
