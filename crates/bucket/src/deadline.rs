//! How long a request may take, by what it is for.

use std::time::Duration;

use crate::Context;
use crate::counters::Kind;

/// The first pause after a failed attempt; later ones double up to [`LONGEST_PAUSE`].
const FIRST_PAUSE: Duration = Duration::from_millis(50);

/// Pauses stop growing here, so that a result's 30 s hold more than a handful of attempts.
const LONGEST_PAUSE: Duration = Duration::from_secs(2);

/// No attempt is cut before this, whatever the purpose: a small put crosses an ocean in less.
const SHORTEST_ATTEMPT: Duration = Duration::from_secs(1);

/// What a request is for, which says how long it may be retried.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Purpose {
    /// Looking for news: 1 s, since the next look comes soon.
    Poll,
    /// Taking or checking a claim, and ordinary reads: 5 s, within the 20 s that the console has
    /// before its headers (db-forward §5.5).
    Claim,
    /// Reading whole listings: 10 s, enough for several pages from another continent.
    Sweep,
    /// Output that a whole read's work stands behind: 30 s.
    Result,
    /// Whatever the caller has left.
    Within(Duration),
}

impl Purpose {
    /// The time allowed, retries included.
    pub const fn allowed(self) -> Duration {
        match self {
            Self::Poll => Duration::from_secs(1),
            Self::Claim => Duration::from_secs(5),
            Self::Sweep => Duration::from_secs(10),
            Self::Result => Duration::from_secs(30),
            Self::Within(left) => left,
        }
    }
}

/// The end of one operation's time, measured on the monotonic clock.
#[derive(Debug)]
pub(crate) struct Deadline<'a> {
    ctx: &'a Context,
    end: Duration,
    attempt: Duration,
    next_pause: Duration,
}

impl<'a> Deadline<'a> {
    pub(crate) fn new(ctx: &'a Context, purpose: Purpose) -> Self {
        let allowed = purpose.allowed();
        // A third each: one attempt that stalls, one read-back, one more attempt.
        let attempt = (allowed / 3).max(SHORTEST_ATTEMPT);
        Self { ctx, end: ctx.monotonic() + allowed, attempt, next_pause: FIRST_PAUSE }
    }

    /// Time left; zero when it is over.
    pub(crate) fn left(&self) -> Duration {
        self.end.saturating_sub(self.ctx.monotonic())
    }

    /// How long the next single request may take. A create leaves a quarter of the rest for its
    /// own read-back: without one, the last attempt before the deadline always ends as unknown.
    pub(crate) fn attempt(&self, kind: Kind) -> Duration {
        match kind {
            Kind::Create => self.attempt.min(self.left() * 3 / 4),
            Kind::Get | Kind::List | Kind::Replace => self.attempt.min(self.left()),
        }
    }

    /// Waits before another attempt (doubling, with full jitter so that two losers part). False
    /// when the time is over.
    pub(crate) async fn pause(&mut self) -> bool {
        let wait = FIRST_PAUSE / 2 + self.ctx.jitter(self.next_pause);
        self.next_pause = (self.next_pause * 2).min(LONGEST_PAUSE);
        if wait >= self.left() {
            return false;
        }
        self.ctx.sleep(wait).await;
        true
    }
}
