//! Open requests of one link, each ended exactly once (decision 18 and the error model).

use std::future::Future;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};

use bytes::Bytes;
use carlos_protocol::mesh::{Content, Outcome};

use crate::error::CallError;

/// Requests that may be open on one link at once: each holds a slot and a caller.
const OPEN: usize = 65_536;

/// What kind of bytes a reply holds.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum ReplyContent {
    Raw,
    Json,
    Other,
}

impl From<Content<'_>> for ReplyContent {
    fn from(content: Content<'_>) -> Self {
        match content {
            Content::Raw => Self::Raw,
            Content::Json => Self::Json,
            Content::Named(_) => Self::Other,
        }
    }
}

/// How a request ended.
pub(crate) type Ended = Result<(ReplyContent, Bytes), CallError>;

/// The open requests of a link.
#[derive(Debug, Default)]
pub(crate) struct Requests {
    slots: Mutex<Slots>,
}

#[derive(Debug, Default)]
struct Slots {
    all: Vec<Slot>,
    free: Vec<u32>,
    closed: Option<CallError>,
}

#[derive(Debug)]
struct Slot {
    /// Grows with each use, so that a late reply to an earlier request matches nothing.
    turn: u32,
    state: State,
}

#[derive(Debug)]
enum State {
    Free,
    Open(Option<Waker>),
    Ended(Ended),
}

impl Requests {
    /// Opens a request.
    ///
    /// # Errors
    /// The link is closed, or too many are open.
    pub(crate) fn open(self: &Arc<Self>) -> Result<Ticket, CallError> {
        let mut slots = self.lock();
        if let Some(error) = &slots.closed {
            return Err(error.clone());
        }
        let index = match slots.free.pop() {
            Some(index) => index,
            None if slots.all.len() < OPEN => {
                slots.all.push(Slot { turn: 0, state: State::Free });
                (slots.all.len() - 1) as u32
            }
            None => return Err(CallError::CapacityExceeded("open requests of one link")),
        };
        let slot = &mut slots.all[index as usize];
        slot.turn = slot.turn.wrapping_add(1);
        slot.state = State::Open(None);
        let correlation = u64::from(slot.turn) << 32 | u64::from(index);
        drop(slots);
        Ok(Ticket { requests: Arc::clone(self), correlation })
    }

    /// Ends a request; nothing happens when it has ended already.
    pub(crate) fn end(&self, correlation: u64, ended: Ended) {
        let mut slots = self.lock();
        let Some(slot) = slots.open_slot(correlation) else { return };
        let State::Open(waker) = std::mem::replace(&mut slot.state, State::Ended(ended)) else {
            return;
        };
        drop(slots);
        if let Some(waker) = waker {
            waker.wake();
        }
    }

    /// Whether a request is still open: a large reply to it is worth keeping.
    pub(crate) fn is_open(&self, correlation: u64) -> bool {
        self.lock().open_slot(correlation).is_some()
    }

    /// Ends all requests, and all that are opened later.
    pub(crate) fn close(&self, error: &CallError) {
        let mut slots = self.lock();
        slots.closed.get_or_insert_with(|| error.clone());
        let mut wakers = Vec::new();
        for slot in &mut slots.all {
            if let State::Open(waker) = &mut slot.state {
                wakers.extend(waker.take());
                slot.state = State::Ended(Err(error.clone()));
            }
        }
        drop(slots);
        wakers.into_iter().for_each(Waker::wake);
    }

    fn lock(&self) -> MutexGuard<'_, Slots> {
        self.slots.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Slots {
    fn slot(&mut self, correlation: u64) -> Option<&mut Slot> {
        let slot = self.all.get_mut((correlation as u32) as usize)?;
        (u64::from(slot.turn) == correlation >> 32).then_some(slot)
    }

    fn open_slot(&mut self, correlation: u64) -> Option<&mut Slot> {
        self.slot(correlation).filter(|slot| matches!(slot.state, State::Open(_)))
    }
}

/// An open request: a future of its end. Dropped, it forgets the request, and a late reply finds
/// nobody.
#[derive(Debug)]
pub(crate) struct Ticket {
    requests: Arc<Requests>,
    correlation: u64,
}

impl Ticket {
    /// What the reply names.
    pub(crate) fn correlation(&self) -> u64 {
        self.correlation
    }
}

impl Future for Ticket {
    type Output = Ended;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Ended> {
        let mut slots = self.requests.lock();
        let slot = slots.slot(self.correlation).expect("a ticket owns its slot");
        match &mut slot.state {
            State::Open(waker) => {
                if !waker.as_ref().is_some_and(|waker| waker.will_wake(cx.waker())) {
                    *waker = Some(cx.waker().clone());
                }
                Poll::Pending
            }
            state => match std::mem::replace(state, State::Free) {
                State::Ended(ended) => Poll::Ready(ended),
                _ => Poll::Ready(Err(CallError::InvalidOperation("a request was read twice"))),
            },
        }
    }
}

impl Drop for Ticket {
    fn drop(&mut self) {
        let mut slots = self.requests.lock();
        if let Some(slot) = slots.slot(self.correlation) {
            slot.state = State::Free;
            slots.free.push(self.correlation as u32);
        }
    }
}

/// The error of an outcome that is no reply.
pub(crate) fn failure(outcome: Outcome, text: &[u8]) -> CallError {
    let text: String = String::from_utf8_lossy(text).chars().filter(|c| !c.is_control()).collect();
    match outcome {
        Outcome::NoHandler => CallError::NoHandler(text),
        Outcome::Rejected => CallError::Rejected(text),
        Outcome::Unavailable => CallError::Unavailable(text),
        Outcome::ShuttingDown => CallError::ShuttingDown,
        Outcome::DeadlineExceeded => CallError::DeadlineExceeded,
        Outcome::Failed => CallError::InternalFailure(text),
        Outcome::ProtocolError | Outcome::Done => CallError::ProtocolError(text),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn reply(text: &'static [u8]) -> Ended {
        Ok((ReplyContent::Raw, Bytes::from_static(text)))
    }

    #[tokio::test]
    async fn a_request_ends_once() {
        let requests = Arc::new(Requests::default());
        let ticket = requests.open().expect("room");
        let correlation = ticket.correlation();
        requests.end(correlation, reply(b"1"));
        requests.end(correlation, reply(b"2"));
        requests.close(&CallError::ShuttingDown);
        assert_eq!(ticket.await, reply(b"1"));
        assert_eq!(requests.open().map(|_| ()), Err(CallError::ShuttingDown));
    }

    #[tokio::test]
    async fn a_late_reply_reaches_nobody_else() {
        let requests = Arc::new(Requests::default());
        let gone = requests.open().expect("room").correlation();
        let ticket = requests.open().expect("room");
        assert_eq!(ticket.correlation() as u32, gone as u32, "the slot is used again");
        requests.end(gone, reply(b"late"));
        assert!(!requests.is_open(gone) && requests.is_open(ticket.correlation()));
        requests.end(ticket.correlation(), reply(b"mine"));
        assert_eq!(ticket.await, reply(b"mine"));
    }

    #[tokio::test]
    async fn closing_ends_all() {
        let requests = Arc::new(Requests::default());
        let tickets = [requests.open().expect("room"), requests.open().expect("room")];
        let error = CallError::Unavailable("the link was lost".into());
        let closing = async { requests.close(&error) };
        let (ends, ()) = futures::join!(futures::future::join_all(tickets), closing);
        assert_eq!(ends, [Err(error.clone()), Err(error.clone())]);
    }
}
