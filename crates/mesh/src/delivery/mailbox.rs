//! A queue with two budgets, messages and bytes, that count what waits and what runs.

use std::collections::VecDeque;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::task::Waker;

use futures::task::AtomicWaker;
use tokio::sync::{Notify, Semaphore};

use super::owner::Job;

/// What a message costs beside its payload and metadata: an empty one is not free.
const JOB_BYTES: u64 = 256;

/// Why a message does not get in.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Full {
    /// There will be room.
    Now,
    /// It is larger than the whole budget, and the mailbox is not empty (decision 16).
    TooLarge,
    /// The node takes no more work.
    Sealed,
}

/// The mailbox of one owner.
#[derive(Debug)]
pub(crate) struct Mailbox {
    state: Mutex<State>,
    messages: u64,
    bytes: u64,
    /// The owner's task.
    task: AtomicWaker,
    /// Local senders wait here in the order they came, and the first of them for room.
    turn: Semaphore,
    room: Notify,
}

#[derive(Debug, Default)]
struct State {
    jobs: VecDeque<Job>,
    messages: u64,
    bytes: u64,
    sealed: bool,
    /// Links with messages that did not get in.
    parked: Vec<Waker>,
    local_waiters: usize,
}

impl Mailbox {
    /// An empty mailbox with these budgets.
    pub(crate) fn new(messages: u64, bytes: u64) -> Self {
        let (task, turn, room) = (AtomicWaker::new(), Semaphore::new(1), Notify::new());
        Self { state: Mutex::default(), messages, bytes, task, turn, room }
    }

    /// What a message costs.
    pub(crate) fn charge(payload: u64, metadata: usize) -> u64 {
        payload.saturating_add(metadata as u64).saturating_add(JOB_BYTES)
    }

    /// Reserves both budgets in one step, or neither.
    ///
    /// # Errors
    /// [`Full`].
    pub(crate) fn reserve(&self, charge: u64) -> Result<(), Full> {
        self.lock().reserve(self.messages, self.bytes, charge)
    }

    /// Hands over a message whose charge is reserved.
    pub(crate) fn push(&self, job: Job) {
        let mut state = self.lock();
        state.jobs.push_back(job);
        let first = state.jobs.len() == 1;
        drop(state);
        if first {
            self.task.wake();
        }
    }

    /// Reserves and hands over, in one step.
    ///
    /// # Errors
    /// [`Full`], with the message.
    pub(crate) fn put(&self, job: Job) -> Result<(), (Full, Box<Job>)> {
        let mut state = self.lock();
        if let Err(full) = state.reserve(self.messages, self.bytes, job.charge) {
            return Err((full, Box::new(job)));
        }
        state.jobs.push_back(job);
        let first = state.jobs.len() == 1;
        drop(state);
        if first {
            self.task.wake();
        }
        Ok(())
    }

    /// Gives reservations back: handlers ended, or messages were given up.
    pub(crate) fn release(&self, messages: u64, bytes: u64) {
        let mut state = self.lock();
        state.messages -= messages;
        state.bytes -= bytes;
        let parked = std::mem::take(&mut state.parked);
        let local = state.local_waiters > 0;
        drop(state);
        parked.into_iter().for_each(Waker::wake);
        if local {
            self.room.notify_one();
        }
    }

    /// Takes all waiting messages.
    pub(crate) fn take(&self, into: &mut VecDeque<Job>) {
        let mut state = self.lock();
        match into.is_empty() {
            true => std::mem::swap(&mut state.jobs, into),
            false => into.append(&mut state.jobs),
        }
    }

    /// Wakes `waker` at the next release: a link has messages that did not get in.
    pub(crate) fn park(&self, waker: &Waker) {
        let mut state = self.lock();
        if !state.parked.iter().any(|parked| parked.will_wake(waker)) {
            state.parked.push(waker.clone());
        }
    }

    /// Hands a message of this process over as soon as there is room, after those that wait
    /// already. Dropped before it ends, the message was never there.
    ///
    /// # Errors
    /// [`Full`], never [`Full::Now`].
    pub(crate) async fn put_waiting(&self, mut job: Job) -> Result<(), Full> {
        let _waiter = LocalWaiter::new(self);
        let Ok(_turn) = self.turn.acquire().await else { return Err(Full::Sealed) };
        loop {
            job = match self.put(job) {
                Ok(()) => return Ok(()),
                Err((Full::Now, job)) => *job,
                Err((full, _)) => return Err(full),
            };
            self.room.notified().await;
        }
    }

    /// Whether a local sender waits.
    pub(crate) fn has_local_waiters(&self) -> bool {
        self.lock().local_waiters > 0
    }

    /// Takes no more messages.
    pub(crate) fn seal(&self) {
        let mut state = self.lock();
        state.sealed = true;
        let parked = std::mem::take(&mut state.parked);
        drop(state);
        parked.into_iter().for_each(Waker::wake);
        self.room.notify_one();
    }

    /// Nothing waits and nothing runs.
    pub(crate) fn is_idle(&self) -> bool {
        self.lock().messages == 0
    }

    /// Wakes `waker` when a message comes in.
    pub(crate) fn register(&self, waker: &Waker) {
        self.task.register(waker);
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    fn reserve(&mut self, messages: u64, bytes: u64, charge: u64) -> Result<(), Full> {
        if self.sealed {
            return Err(Full::Sealed);
        }
        if charge > bytes && self.messages > 0 {
            return Err(Full::TooLarge);
        }
        let fits = self.messages < messages && self.bytes.saturating_add(charge) <= bytes;
        if !fits && self.messages > 0 {
            return Err(Full::Now);
        }
        self.messages += 1;
        self.bytes += charge;
        Ok(())
    }
}

/// A local sender in line.
struct LocalWaiter<'a>(&'a Mailbox);

impl<'a> LocalWaiter<'a> {
    fn new(mailbox: &'a Mailbox) -> Self {
        mailbox.lock().local_waiters += 1;
        Self(mailbox)
    }
}

impl Drop for LocalWaiter<'_> {
    fn drop(&mut self) {
        self.0.lock().local_waiters -= 1;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn either_budget_is_a_bound() {
        let by_count = Mailbox::new(2, 10_000);
        assert_eq!(by_count.reserve(10), Ok(()));
        assert_eq!(by_count.reserve(10), Ok(()));
        assert_eq!(by_count.reserve(10), Err(Full::Now));
        by_count.release(1, 10);
        assert_eq!(by_count.reserve(10), Ok(()));
        let by_bytes = Mailbox::new(100, 1_000);
        assert_eq!(by_bytes.reserve(600), Ok(()));
        assert_eq!(by_bytes.reserve(500), Err(Full::Now));
        assert_eq!(by_bytes.reserve(400), Ok(()));
    }

    #[test]
    fn what_is_larger_than_the_budget_passes_alone() {
        let mailbox = Mailbox::new(10, 1_000);
        assert_eq!(mailbox.reserve(u64::MAX), Ok(()));
        assert_eq!(mailbox.reserve(1), Err(Full::Now));
        assert_eq!(mailbox.reserve(1_001), Err(Full::TooLarge));
        mailbox.release(1, u64::MAX);
        assert_eq!(mailbox.reserve(1_000), Ok(()));
        assert!(!mailbox.is_idle());
    }

    #[test]
    fn a_sealed_mailbox_takes_nothing() {
        let mailbox = Mailbox::new(10, 1_000);
        mailbox.seal();
        assert_eq!(mailbox.reserve(1), Err(Full::Sealed));
    }
}
