//! What leaves for one peer: control, completions, and application records with credit
//! (decisions 9, 14, 15).
//!
//! A sender may have `window` bytes under way that the peer has not put into mailboxes. For one
//! owner of the peer the bound is what the others leave free:
//! `outstanding(owner) + size <= window - outstanding(all)`. So a stuck owner holds at most half,
//! two a third each, and there is always room for one more.

use std::collections::VecDeque;
use std::sync::{Mutex, MutexGuard, PoisonError};

use bytes::{Bytes, BytesMut};
use carlos_protocol::mesh::put_record;
use carlos_protocol::mesh::{Credit, Head, OWNER_NODE, PART_BYTES, Parted, Record, ReplyHead};
use futures::task::AtomicWaker;
use tokio::sync::{Notify, Semaphore};

use super::out::Out;

/// Parts of large messages made ready ahead of the socket: enough for one write, little enough
/// that small messages need not wait long.
const PARTS_AHEAD: usize = 256 * 1024;

/// Bytes of one write.
const WRITE_BYTES: usize = 256 * 1024;

/// Sends that may wait for room in one link: each holds its payload.
const WAITERS: usize = 4_096;

/// Why a record does not go out.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Refused {
    /// No credit, or too much is queued.
    Full,
    /// Too many sends wait already.
    Crowded,
    /// The link is closed.
    Closed,
}

/// The outbound half of a link.
#[derive(Debug)]
pub(crate) struct Lane {
    state: Mutex<State>,
    /// The link's task.
    task: AtomicWaker,
    /// One for each owner of the peer; node direct is the last.
    doors: Vec<Door>,
}

/// Where sends to one owner wait, in the order they came.
#[derive(Debug)]
struct Door {
    turn: Semaphore,
    room: Notify,
}

#[derive(Debug)]
struct State {
    open: bool,
    /// The task was woken and has not looked yet.
    woken: bool,
    control: Out,
    completions: Out,
    application: Out,
    flows: Vec<Flow>,
    replies: VecDeque<LargeReply>,
    outstanding: u64,
    waiters: usize,
    window: u64,
    queue_limit: u64,
    next_stream: u32,
}

/// What is under way to one owner of the peer.
#[derive(Debug, Default)]
struct Flow {
    outstanding: u64,
    waiting: usize,
    large: Option<Large>,
}

#[derive(Debug)]
struct Large {
    stream: u32,
    rest: Bytes,
}

#[derive(Debug)]
struct LargeReply {
    correlation: u64,
    rest: Bytes,
}

impl Lane {
    /// A lane to a peer with so many channels. A bound of 0 is none.
    pub(crate) fn new(channels: usize, window: u64, queue_limit: u64) -> Self {
        let bound = |bytes: u64| if bytes == 0 { u64::MAX } else { bytes };
        let door = |_| Door { turn: Semaphore::new(1), room: Notify::new() };
        let state = State {
            open: true,
            woken: false,
            control: Out::default(),
            completions: Out::default(),
            application: Out::default(),
            flows: (0..=channels).map(|_| Flow::default()).collect(),
            replies: VecDeque::new(),
            outstanding: 0,
            waiters: 0,
            window: bound(window),
            queue_limit: bound(queue_limit),
            next_stream: 0,
        };
        let doors = (0..=channels).map(door).collect();
        Self { state: Mutex::new(state), task: AtomicWaker::new(), doors }
    }

    /// Sends a control record. It needs no credit and goes before everything else.
    pub(crate) fn control(&self, record: &Record<'_>) {
        let mut state = self.lock();
        if state.open {
            state.control.push(&Bytes::new(), |out| put_record(record, out));
            self.wake(state);
        }
    }

    /// Sends a message if there is room now.
    ///
    /// # Errors
    /// [`Refused`].
    pub(crate) fn try_send(&self, head: &Head<'_>, payload: &Bytes) -> Result<(), Refused> {
        self.submit(head, payload, false)
    }

    /// Sends a message as soon as there is room, after those that wait already. Dropped before it
    /// ends, it was never sent.
    ///
    /// # Errors
    /// [`Refused`], never [`Refused::Full`].
    pub(crate) async fn send(&self, head: &Head<'_>, payload: &Bytes) -> Result<(), Refused> {
        match self.submit(head, payload, false) {
            Err(Refused::Full) => {}
            end => return end,
        }
        let index = self.index(head.owner);
        let _seat = Seat::take(self, index)?;
        let Ok(_turn) = self.doors[index].turn.acquire().await else {
            return Err(Refused::Closed);
        };
        loop {
            match self.submit(head, payload, true) {
                Err(Refused::Full) => self.doors[index].room.notified().await,
                end => return end,
            }
        }
    }

    /// Sends a reply. The place in the asker's table is its credit.
    pub(crate) fn reply(&self, head: &ReplyHead<'_>, payload: &Bytes) {
        let mut state = self.lock();
        if !state.open {
            return;
        }
        if payload.len() <= PART_BYTES {
            state.completions.push(payload, |out| head.put(payload.len(), out));
            return self.wake(state);
        }
        let head = ReplyHead { total: Some(payload.len() as u64), ..*head };
        let first = payload.slice(..PART_BYTES);
        state.completions.push(&first, |out| head.put(first.len(), out));
        let rest = payload.slice(PART_BYTES..);
        state.replies.push_back(LargeReply { correlation: head.correlation, rest });
        state.pump_replies();
        self.wake(state);
    }

    /// Whether so many replies wait that no more requests should be taken from this peer.
    pub(crate) fn is_behind_with_replies(&self) -> bool {
        let state = self.lock();
        let rest: usize = state.replies.iter().map(|reply| reply.rest.len()).sum();
        (state.completions.len() + rest) as u64 > state.queue_limit
    }

    /// The peer gave credit back.
    pub(crate) fn credit(&self, grants: &[Credit]) {
        let mut state = self.lock();
        for grant in grants {
            let index = self.index(grant.owner);
            let bytes = u64::from(grant.bytes).min(state.flows[index].outstanding);
            state.flows[index].outstanding -= bytes;
            state.outstanding -= bytes;
        }
        state.pump();
        self.let_in(&state);
        self.wake(state);
    }

    /// Moves what may be written to `batch`; false when the lane is closed and empty.
    pub(crate) fn take(&self, batch: &mut VecDeque<Bytes>) -> bool {
        let mut state = self.lock();
        state.woken = false;
        state.control.take(usize::MAX, batch);
        state.completions.take(WRITE_BYTES, batch);
        state.pump_replies();
        state.application.take(WRITE_BYTES, batch);
        state.pump();
        self.let_in(&state);
        state.open || !batch.is_empty()
    }

    /// Gives back what the queues hold beyond their bytes.
    pub(crate) fn shrink(&self) {
        let mut state = self.lock();
        state.control.shrink();
        state.completions.shrink();
        state.application.shrink();
    }

    /// Closes the lane: what is queued still goes out, nothing is taken any more.
    pub(crate) fn close(&self) {
        let mut state = self.lock();
        state.open = false;
        self.doors.iter().for_each(|door| door.room.notify_one());
        state.woken = false;
        self.wake(state);
    }

    /// Wakes `waker` when there is something to write or the lane closes.
    pub(crate) fn register(&self, waker: &std::task::Waker) {
        self.task.register(waker);
    }

    fn submit(&self, head: &Head<'_>, payload: &Bytes, seated: bool) -> Result<(), Refused> {
        let index = self.index(head.owner);
        let mut state = self.lock();
        if !state.open {
            return Err(Refused::Closed);
        }
        if !seated && state.flows[index].waiting > 0 {
            return Err(Refused::Full);
        }
        state.put(index, head, payload)?;
        self.wake(state);
        Ok(())
    }

    /// Node direct is the last; an owner that the peer does not have is never asked for.
    fn index(&self, owner: u16) -> usize {
        match owner {
            OWNER_NODE => self.doors.len() - 1,
            _ => usize::from(owner).min(self.doors.len() - 1),
        }
    }

    /// There may be room again: the first in each line looks.
    fn let_in(&self, state: &State) {
        if state.waiters == 0 {
            return;
        }
        for (door, flow) in self.doors.iter().zip(&state.flows) {
            if flow.waiting > 0 {
                door.room.notify_one();
            }
        }
    }

    fn wake(&self, mut state: MutexGuard<'_, State>) {
        let first = !std::mem::replace(&mut state.woken, true);
        drop(state);
        if first {
            self.task.wake();
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    fn put(&mut self, index: usize, head: &Head<'_>, payload: &Bytes) -> Result<(), Refused> {
        let size = payload.len();
        let queued = self.application.len();
        let fits = queued == 0 || (queued + size) as u64 <= self.queue_limit;
        if !fits || self.flows[index].large.is_some() {
            return Err(Refused::Full);
        }
        if size <= PART_BYTES {
            return self.charge(index, head.record_bytes(size), |out| {
                out.push(payload, |tail| head.put(size, tail));
            });
        }
        let parted = Parted { stream: self.next_stream, total: size as u64 };
        let (first, rest) = (payload.slice(..PART_BYTES), payload.slice(PART_BYTES..));
        let head = Head { parted: Some(parted), ..*head };
        self.charge(index, head.record_bytes(PART_BYTES), |out| {
            out.push(&first, |tail| head.put(PART_BYTES, tail));
        })?;
        self.next_stream = self.next_stream.wrapping_add(1);
        self.flows[index].large = Some(Large { stream: parted.stream, rest });
        self.pump();
        Ok(())
    }

    /// Spends credit on a record of `bytes`, or does nothing.
    fn charge(
        &mut self,
        index: usize,
        bytes: usize,
        push: impl FnOnce(&mut Out),
    ) -> Result<(), Refused> {
        let bytes = bytes as u64;
        let free = self.window.saturating_sub(self.outstanding);
        // What is larger than the window passes alone.
        if self.outstanding > 0 && self.flows[index].outstanding + bytes > free {
            return Err(Refused::Full);
        }
        self.flows[index].outstanding += bytes;
        self.outstanding += bytes;
        push(&mut self.application);
        Ok(())
    }

    /// Makes parts of large messages ready, one of each owner in turn.
    fn pump(&mut self) {
        let mut progress = true;
        while progress && self.application.len() < PARTS_AHEAD {
            progress = false;
            for index in 0..self.flows.len() {
                progress |= self.pump_one(index);
            }
        }
    }

    fn pump_one(&mut self, index: usize) -> bool {
        let Some(large) = &mut self.flows[index].large else { return false };
        let (stream, size) = (large.stream, large.rest.len().min(PART_BYTES));
        let part = large.rest.slice(..size);
        let sent = self.charge(index, Head::part_bytes(size), |out| {
            out.push(&part, |tail| Head::put_part(stream, size, tail));
        });
        if sent.is_err() {
            return false;
        }
        let flow = &mut self.flows[index];
        let rest = flow.large.take().map(|large| large.rest.slice(size..));
        flow.large = rest.filter(|rest| !rest.is_empty()).map(|rest| Large { stream, rest });
        true
    }

    fn pump_replies(&mut self) {
        while self.completions.len() < PARTS_AHEAD {
            let Some(mut reply) = self.replies.pop_front() else { return };
            let part = reply.rest.split_to(reply.rest.len().min(PART_BYTES));
            let put = |out: &mut BytesMut| ReplyHead::put_part(reply.correlation, part.len(), out);
            self.completions.push(&part, put);
            if !reply.rest.is_empty() {
                self.replies.push_back(reply);
            }
        }
    }
}

/// A place in the line of one owner.
struct Seat<'a> {
    lane: &'a Lane,
    index: usize,
}

impl<'a> Seat<'a> {
    fn take(lane: &'a Lane, index: usize) -> Result<Self, Refused> {
        let mut state = lane.lock();
        if state.waiters >= WAITERS {
            return Err(Refused::Crowded);
        }
        state.waiters += 1;
        state.flows[index].waiting += 1;
        Ok(Self { lane, index })
    }
}

impl Drop for Seat<'_> {
    fn drop(&mut self) {
        let mut state = self.lane.lock();
        state.waiters -= 1;
        state.flows[self.index].waiting -= 1;
    }
}

#[cfg(test)]
mod tests {
    use carlos_protocol::mesh::{Content, RecordDecoder};

    use super::*;

    fn head(owner: u16) -> Head<'static> {
        Head { owner, asked: None, packet: "p", content: Content::Raw, metadata: &[], parted: None }
    }

    fn drain(lane: &Lane) -> Vec<u8> {
        let mut batch = VecDeque::new();
        lane.take(&mut batch);
        batch.iter().flat_map(|chunk| chunk.to_vec()).collect()
    }

    fn records(bytes: &[u8]) -> usize {
        let (mut rest, mut count) = (bytes, 0);
        while let Ok(Some((_, size))) = RecordDecoder::cut(rest) {
            rest = &rest[size..];
            count += 1;
        }
        assert!(rest.is_empty());
        count
    }

    #[test]
    fn a_stuck_owner_leaves_room_for_the_others() {
        let lane = Lane::new(2, 10_000, 0);
        let payload = Bytes::from(vec![0; 90]);
        let size = head(0).record_bytes(90);
        let fill = |owner| {
            std::iter::repeat(())
                .take_while(|()| lane.try_send(&head(owner), &payload).is_ok())
                .count()
        };
        let first = fill(0) * size;
        assert!((4_800..=5_000).contains(&first), "half: {first}");
        let second = fill(1) * size;
        assert!((2_300..=2_600).contains(&second), "half of the rest: {second}");
        assert!(fill(OWNER_NODE) > 0);
    }

    #[test]
    fn credit_makes_room() {
        let lane = Lane::new(1, 100, 0);
        let payload = Bytes::from(vec![0; 500]);
        assert_eq!(lane.try_send(&head(0), &payload), Ok(()), "alone it passes");
        assert_eq!(lane.try_send(&head(0), &payload), Err(Refused::Full));
        let bytes = head(0).record_bytes(500) as u32;
        lane.credit(&[Credit { owner: 0, bytes }]);
        assert_eq!(lane.try_send(&head(0), &payload), Ok(()));
    }

    #[test]
    fn a_large_message_goes_in_parts_and_holds_its_owner() {
        let lane = Lane::new(2, 0, 0);
        let large = Bytes::from(vec![1; 5 * PART_BYTES + 1]);
        assert_eq!(lane.try_send(&head(0), &large), Ok(()));
        assert_eq!(lane.try_send(&head(0), &Bytes::new()), Err(Refused::Full));
        assert_eq!(lane.try_send(&head(1), &Bytes::new()), Ok(()));
        let mut bytes = drain(&lane);
        bytes.extend(drain(&lane));
        assert_eq!(records(&bytes), 7);
        assert_eq!(lane.try_send(&head(0), &Bytes::new()), Ok(()));
    }

    #[tokio::test]
    async fn waiting_sends_go_in_their_order_and_a_dropped_one_never() {
        let lane = std::sync::Arc::new(Lane::new(1, 100, 0));
        let text = |text: &str| Bytes::from(text.repeat(50));
        lane.try_send(&head(0), &text("a")).expect("room");
        let (first, second) = (head(0), text("b"));
        let short = std::time::Duration::from_millis(10);
        let given_up = tokio::time::timeout(short, lane.send(&first, &second));
        assert!(given_up.await.is_err());
        let waiting = ["c", "d"].map(|name| {
            let lane = std::sync::Arc::clone(&lane);
            tokio::spawn(async move { lane.send(&head(0), &text(name)).await })
        });
        tokio::task::yield_now().await;
        assert_eq!(lane.try_send(&head(0), &Bytes::new()), Err(Refused::Full), "no overtaking");
        let bytes = head(0).record_bytes(50) as u32;
        for _ in 0..3 {
            lane.credit(&[Credit { owner: 0, bytes }]);
            tokio::task::yield_now().await;
            tokio::task::yield_now().await;
        }
        for end in waiting {
            assert_eq!(end.await.expect("no panic"), Ok(()));
        }
        let sent = String::from_utf8_lossy(&drain(&lane)).into_owned();
        let order: String = sent.chars().filter(|c| "abcd".contains(*c)).collect();
        assert_eq!(order, ["a", "c", "d"].map(|c| c.repeat(50)).concat());
    }

    #[tokio::test]
    async fn closing_ends_what_waits() {
        let lane = Lane::new(1, 100, 0);
        lane.try_send(&head(0), &Bytes::from(vec![0; 90])).expect("room");
        let payload = Bytes::from(vec![0; 90]);
        let head = head(0);
        let waits = lane.send(&head, &payload);
        let closes = async { lane.close() };
        let (end, ()) = futures::join!(waits, closes);
        assert_eq!(end, Err(Refused::Closed));
        assert!(!drain(&lane).is_empty(), "what was taken still goes out");
    }
}
