//! What the working thread and the watcher share: whether to stop, why, and by when.

use std::fmt;
use std::sync::Mutex;
use std::sync::MutexGuard;
use std::sync::PoisonError;
use std::sync::atomic::AtomicU8;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering;
use std::time::Duration;

/// Stands for no deadline; in milliseconds it is far beyond any machine's uptime.
const NO_DEADLINE: u64 = u64::MAX;

/// Why work stops before its end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reason {
    /// Nobody waits for the answer.
    PeerLost,
    /// A time limit passed.
    TimeUp,
}

/// Makes work that runs inside SQLite stop at its next instruction.
pub type Interrupt = Box<dyn Fn() + Send>;

/// Something the watcher does once, between two looks at the connection.
pub type Errand = Box<dyn FnOnce() + Send>;

/// One worker's life. The first reason to stop wins and stays.
#[derive(Default)]
pub struct Life {
    reason: AtomicU8,
    deadline_ms: Deadline,
    interrupt: Mutex<Option<Interrupt>>,
    errand: Mutex<Option<Errand>>,
}

struct Deadline(AtomicU64);

impl Default for Deadline {
    fn default() -> Self {
        Self(AtomicU64::new(NO_DEADLINE))
    }
}

impl Life {
    /// Asks the work to stop. Work that SQLite does at the moment is interrupted.
    pub fn cancel(&self, reason: Reason) {
        let code = match reason {
            Reason::PeerLost => 1,
            Reason::TimeUp => 2,
        };
        // A failed exchange means that there is a reason already, which stays.
        let _ = self.reason.compare_exchange(0, code, Ordering::SeqCst, Ordering::SeqCst);
        if let Some(interrupt) = lock(&self.interrupt).as_ref() {
            interrupt();
        }
    }

    /// Why to stop, if at all.
    #[must_use]
    pub fn reason(&self) -> Option<Reason> {
        match self.reason.load(Ordering::SeqCst) {
            0 => None,
            1 => Some(Reason::PeerLost),
            _ => Some(Reason::TimeUp),
        }
    }

    /// Runs `work` so that a cancel during it calls `interrupt`; one that came before calls it
    /// at once.
    pub fn interruptible<T>(&self, interrupt: Interrupt, work: impl FnOnce() -> T) -> T {
        *lock(&self.interrupt) = Some(interrupt);
        if let (Some(_), Some(interrupt)) = (self.reason(), lock(&self.interrupt).as_ref()) {
            interrupt();
        }
        let done = work();
        *lock(&self.interrupt) = None;
        done
    }

    /// Sets or clears the point, on the clock of [`crate::clock`], at which time is up.
    pub fn set_deadline(&self, deadline: Option<Duration>) {
        let ms =
            deadline.map_or(NO_DEADLINE, |at| u64::try_from(at.as_millis()).unwrap_or(NO_DEADLINE));
        self.deadline_ms.0.store(ms, Ordering::SeqCst);
    }

    /// The point set last.
    #[must_use]
    pub fn deadline(&self) -> Option<Duration> {
        match self.deadline_ms.0.load(Ordering::SeqCst) {
            NO_DEADLINE => None,
            ms => Some(Duration::from_millis(ms)),
        }
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
            .field("deadline", &self.deadline())
            .finish_non_exhaustive()
    }
}

/// What is behind these locks is replaced whole, so a panic elsewhere leaves it usable.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::AtomicUsize;

    use super::*;

    fn counting(count: &Arc<AtomicUsize>) -> Interrupt {
        let count = Arc::clone(count);
        Box::new(move || {
            count.fetch_add(1, Ordering::SeqCst);
        })
    }

    #[test]
    fn the_first_reason_stays() {
        let life = Life::default();
        assert_eq!(life.reason(), None);
        life.cancel(Reason::TimeUp);
        life.cancel(Reason::PeerLost);
        assert_eq!(life.reason(), Some(Reason::TimeUp));
    }

    #[test]
    fn only_the_work_under_way_is_interrupted() {
        let (life, count) = (Life::default(), Arc::new(AtomicUsize::new(0)));
        life.interruptible(counting(&count), || ());
        life.cancel(Reason::PeerLost);
        assert_eq!(count.load(Ordering::SeqCst), 0, "work that is over");
        life.interruptible(counting(&count), || {
            assert_eq!(count.load(Ordering::SeqCst), 1, "work that starts too late");
            life.cancel(Reason::PeerLost);
        });
        assert_eq!(count.load(Ordering::SeqCst), 2);
    }

    #[test]
    fn a_deadline_can_be_moved_and_cleared() {
        let life = Life::default();
        assert_eq!(life.deadline(), None);
        life.set_deadline(Some(Duration::from_millis(1_500)));
        assert_eq!(life.deadline(), Some(Duration::from_millis(1_500)));
        life.set_deadline(None);
        assert_eq!(life.deadline(), None);
    }
}
