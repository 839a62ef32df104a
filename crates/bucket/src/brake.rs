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

/// What a success leaves of the gap. Release takes about 40 successes, never one burst.
const EASING: f64 = 0.85;

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
        let still_settling = now < self.tightened_at + self.gap;
        if self.share < TOO_MANY_REFUSALS || (still_settling && !self.gap.is_zero()) {
            return;
        }
        self.gap = (self.gap * 2).clamp(FIRST_GAP, LONGEST_GAP);
        self.free_at = self.free_at.max(now + self.gap);
        self.tightened_at = now;
    }

    fn ease(&mut self) {
        self.gap = self.gap.mul_f64(EASING);
        if self.gap < SMALLEST_GAP {
            self.gap = Duration::ZERO;
        }
    }
}
