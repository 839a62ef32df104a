//! How a running statement is ended from outside: by its clock, or by another thread.

use std::fmt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use rusqlite::{Connection, InterruptHandle};

use crate::QueryError;

/// Ends what runs under it, from any thread. Cheap to clone; all clones are one stop.
///
/// One stop belongs to one read: its integrity check, then its query. It can only ever reach the
/// connection that runs at that moment under this stop, so a late cancel cannot hit another
/// statement (db-forward §8.3). No thread is started here: the worker's sandbox forbids it.
#[derive(Clone)]
pub struct Stop {
    inner: Arc<Inner>,
}

struct Inner {
    cancelled: AtomicBool,
    running: Mutex<Option<InterruptHandle>>,
    now: Box<dyn Fn() -> Duration + Send + Sync>,
}

impl Stop {
    /// A stop that reads the monotonic clock `now` for deadlines.
    pub fn new(now: impl Fn() -> Duration + Send + Sync + 'static) -> Self {
        let inner = Inner {
            cancelled: AtomicBool::new(false),
            running: Mutex::new(None),
            now: Box::new(now),
        };
        Self { inner: Arc::new(inner) }
    }

    /// Ends the statement that runs under this stop, and every later one before it begins.
    pub fn cancel(&self) {
        self.inner.cancelled.store(true, Ordering::SeqCst);
        if let Some(running) = &*self.running() {
            running.interrupt();
        }
    }

    /// Whether [`Stop::cancel`] was called.
    pub fn is_cancelled(&self) -> bool {
        self.inner.cancelled.load(Ordering::SeqCst)
    }

    /// Puts `conn` under this stop until the watch is dropped, and under a clock of `time`.
    pub(crate) fn watch(&self, conn: &mut Connection, time: Duration) -> rusqlite::Result<Watch> {
        let due = Due { stop: self.clone(), deadline: self.now().saturating_add(time) };
        let handler = due.clone();
        // The interrupt of `cancel` is lost when it comes between two statements, and nobody calls
        // it for the deadline: the handler is what holds, the interrupt only makes it quicker.
        conn.progress_handler(OPS_BETWEEN_LOOKS, Some(move || handler.check().is_err()))?;
        *self.running() = Some(conn.get_interrupt_handle());
        Ok(Watch { due })
    }

    pub(crate) fn now(&self) -> Duration {
        (self.inner.now)()
    }

    fn running(&self) -> MutexGuard<'_, Option<InterruptHandle>> {
        self.inner.running.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Instructions of SQLite's machine between two looks at the clock: some tens of microseconds of
/// work, against which the look is free.
const OPS_BETWEEN_LOOKS: i32 = 1_000;

/// A connection under a stop. Dropping it takes the connection out of the stop's reach.
#[derive(Debug)]
pub(crate) struct Watch {
    due: Due,
}

impl Watch {
    /// Whether the statement may go on, and why not.
    pub(crate) fn check(&self) -> Result<(), QueryError> {
        self.due.check()
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        *self.due.stop.running() = None;
    }
}

#[derive(Clone, Debug)]
struct Due {
    stop: Stop,
    deadline: Duration,
}

impl Due {
    fn check(&self) -> Result<(), QueryError> {
        if self.stop.is_cancelled() {
            return Err(QueryError::Cancelled);
        }
        if self.stop.now() >= self.deadline {
            return Err(QueryError::Timeout);
        }
        Ok(())
    }
}

impl fmt::Debug for Stop {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Stop").field("cancelled", &self.is_cancelled()).finish_non_exhaustive()
    }
}
