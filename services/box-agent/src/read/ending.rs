//! How a read ends, and what is known of it by then.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard};

use carlos_protocol::result::{Code, State};
use carlos_protocol::summary::Summary;

use crate::stop::Stop;

/// State and code of a result that is still to be written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Ending {
    pub(crate) state: State,
    pub(crate) code: Code,
}

impl Ending {
    pub(crate) fn done() -> Self {
        Self { state: State::Done, code: Code::None }
    }

    /// The record said no (db-forward §8.2).
    pub(crate) fn refused(code: Code) -> Self {
        Self { state: State::Refused, code }
    }

    pub(crate) fn failed(code: Code) -> Self {
        Self { state: State::Failed, code }
    }

    /// The box could not finish: nothing about the member's data or statement is wrong.
    pub(crate) fn interrupted() -> Self {
        Self::failed(Code::Interrupted)
    }
}

impl From<Stop> for Ending {
    fn from(stop: Stop) -> Self {
        match stop {
            Stop::Cancelled => Self { state: State::Cancelled, code: Code::None },
            // Not `timeout`: DBF-7 says that the query ran for five minutes.
            Stop::Deadline | Stop::Draining => Self::interrupted(),
        }
    }
}

/// What a read has come to, readable when its work was dropped half way.
#[derive(Default)]
pub(crate) struct Progress {
    confirmed: AtomicU64,
    summary: Mutex<Summary>,
}

impl Progress {
    /// Every chunk from 1 to `seq` exists.
    pub(crate) fn confirm(&self, seq: u64) {
        self.confirmed.store(seq, Ordering::Release);
    }

    /// The highest chunk confirmed without a gap; 0 for none.
    pub(crate) fn confirmed(&self) -> u64 {
        self.confirmed.load(Ordering::Acquire)
    }

    /// What the sealed summary will say.
    pub(crate) fn summary(&self) -> MutexGuard<'_, Summary> {
        self.summary.lock().expect("nothing panics while it holds the summary")
    }
}
