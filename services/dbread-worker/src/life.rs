//! What the working thread and the watcher share: whether to stop, why, and by when.

use std::fmt;
use std::sync::Arc;
use std::sync::Mutex;
use std::sync::MutexGuard;
use std::sync::PoisonError;
use std::time::Duration;

use carlos_dbquery::Stop;
use carlos_protocol::frames::Outcome;

/// Why work stops before its end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reason {
    /// Nobody waits for the answer.
    PeerLost,
    /// A time limit passed.
    TimeUp,
}

/// A point at which the work that goes on must have ended, and what its end is called then.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TimeLimit {
    /// The point, on [`Life::now`]'s clock.
    pub at: Duration,
    /// What the peer is told.
    pub outcome: Outcome,
}

/// Something the watcher does once, between two looks at the connection.
pub type Errand = Box<dyn FnOnce() + Send>;

/// A monotonic clock.
type Clock = Arc<dyn Fn() -> Duration + Send + Sync>;

/// One worker's life. The first reason to stop wins and stays.
pub struct Life {
    now: Clock,
    stop: Stop,
    reason: Mutex<Option<Reason>>,
    limit: Mutex<Option<TimeLimit>>,
    errand: Mutex<Option<Errand>>,
}

impl Life {
    /// A life on the monotonic clock `now`.
    pub fn new(now: impl Fn() -> Duration + Send + Sync + 'static) -> Self {
        let now: Clock = Arc::new(now);
        let stop = Stop::new({
            let now = Arc::clone(&now);
            move || now()
        });
        Self {
            now,
            stop,
            reason: Mutex::default(),
            limit: Mutex::default(),
            errand: Mutex::default(),
        }
    }

    /// The clock.
    #[must_use]
    pub fn now(&self) -> Duration {
        (self.now)()
    }

    /// What SQLite's work runs under.
    #[must_use]
    pub fn stop(&self) -> &Stop {
        &self.stop
    }

    /// Asks the work to stop; what SQLite does at the moment is interrupted.
    pub fn cancel(&self, reason: Reason) {
        lock(&self.reason).get_or_insert(reason);
        self.stop.cancel();
    }

    /// Why to stop, if at all.
    #[must_use]
    pub fn reason(&self) -> Option<Reason> {
        *lock(&self.reason)
    }

    /// Sets the limit of what begins now; the one before it is over.
    pub fn limit(&self, span: Duration, outcome: Outcome) {
        *lock(&self.limit) = Some(TimeLimit { at: self.now().saturating_add(span), outcome });
    }

    /// The limit set last.
    #[must_use]
    pub fn time_limit(&self) -> Option<TimeLimit> {
        *lock(&self.limit)
    }

    /// Leaves something for the watcher's thread to do: how a test acts from that thread.
    pub fn leave_errand(&self, errand: Errand) {
        *lock(&self.errand) = Some(errand);
    }

    /// Does what was left, in the calling thread.
    pub fn run_errand(&self) {
        let errand = lock(&self.errand).take();
        if let Some(errand) = errand {
            errand();
        }
    }
}

impl fmt::Debug for Life {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Life")
            .field("reason", &self.reason())
            .field("limit", &self.time_limit())
            .finish_non_exhaustive()
    }
}

/// What is behind these locks is replaced whole, so a panic elsewhere leaves it usable.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: Duration = Duration::from_secs(100);

    #[test]
    fn the_first_reason_stays_and_stops_sqlite() {
        let life = Life::new(|| NOW);
        assert_eq!(life.reason(), None);
        assert!(!life.stop().is_cancelled());
        life.cancel(Reason::TimeUp);
        life.cancel(Reason::PeerLost);
        assert_eq!(life.reason(), Some(Reason::TimeUp));
        assert!(life.stop().is_cancelled());
    }

    #[test]
    fn the_last_limit_holds() {
        let life = Life::new(|| NOW);
        assert_eq!(life.time_limit(), None);
        life.limit(Duration::from_secs(1), Outcome::RestoreTimeout);
        life.limit(Duration::from_secs(2), Outcome::Timeout);
        let at = NOW + Duration::from_secs(2);
        assert_eq!(life.time_limit(), Some(TimeLimit { at, outcome: Outcome::Timeout }));
    }

    #[test]
    fn an_errand_runs_once() {
        let life = Life::new(|| NOW);
        let (done, ran) = std::sync::mpsc::channel();
        life.leave_errand(Box::new(move || done.send(()).unwrap()));
        life.run_errand();
        life.run_errand();
        assert_eq!(ran.iter().count(), 1);
    }
}
