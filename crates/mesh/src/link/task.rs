//! Moves the bytes of one link, in both directions, in one task.

use std::collections::VecDeque;
use std::future::{Future, poll_fn};
use std::io::{self, IoSlice};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context as Cx, Poll};
use std::time::Duration;

use bytes::{Buf, Bytes, BytesMut};
use carlos_bucket::Context;
use carlos_protocol::mesh::{Descriptor, Record, RecordDecoder, RecordError};
use tokio::io::AsyncWrite;
use tokio_util::io::poll_read_buf;

use super::{Inbound, Link};
use crate::net::Stream;

/// The most bytes read at once: two of the longest records.
const READ_MOST: usize = 128 * 1024;

/// The least: what an idle peer costs.
const READ_LEAST: usize = 4 * 1024;

/// Rests after which a link that reads little gives its buffer back: a busy link rests thousands
/// of times a second, an idle one with each probe.
const RESTS: u32 = 16;

/// Pieces of one write: the system takes up to 1,024, and more than this gain nothing.
const SLICES: usize = 64;

/// Rounds of writing and reading before other tasks get their turn.
const ROUNDS: usize = 16;

/// How long a little credit may wait for more: far below any send timeout, far above the time
/// between two messages of a busy link.
const CREDIT_DELAY: Duration = Duration::from_millis(20);

/// What the node hears of a link.
#[derive(Debug)]
pub(crate) enum LinkEvent {
    /// The peer answered a probe.
    Ack(u64),
    /// The peer's descriptor has a later revision.
    Update(Box<Descriptor>),
    /// The link is closed, by either end or the network.
    Ended,
    /// The peer sent what is no record of this protocol.
    Protocol,
}

/// A link at work.
pub(crate) struct Driven {
    io: Box<dyn Stream>,
    read: BytesMut,
    /// Bytes to make room for, as the reads of late ask for.
    want: usize,
    /// The longest read since `rests` began to count.
    longest: usize,
    rests: u32,
    batch: VecDeque<Bytes>,
    unflushed: bool,
    link: Arc<Link>,
    inbound: Inbound,
    ctx: Context,
    events: VecDeque<LinkEvent>,
    credit_due: Option<Pin<Box<dyn Future<Output = ()> + Send>>>,
}

enum Moved {
    Some,
    Nothing,
    Ended,
}

impl Driven {
    /// A link over `io`, of which `read` was read already.
    pub(crate) fn new(
        io: Box<dyn Stream>,
        read: BytesMut,
        link: Arc<Link>,
        inbound: Inbound,
        ctx: Context,
    ) -> Self {
        Self {
            io,
            read,
            want: READ_LEAST,
            longest: 0,
            rests: 0,
            batch: VecDeque::new(),
            unflushed: false,
            link,
            inbound,
            ctx,
            events: VecDeque::new(),
            credit_due: None,
        }
    }

    /// Moves bytes until there is something to tell.
    pub(crate) async fn next(&mut self) -> LinkEvent {
        poll_fn(|cx| self.poll(cx)).await
    }

    fn poll(&mut self, cx: &mut Cx<'_>) -> Poll<LinkEvent> {
        self.link.lane.register(cx.waker());
        // What came with the handshake's last read has no read of its own.
        if let Err(error) = self.consume() {
            return Poll::Ready(self.broken(error));
        }
        for _ in 0..ROUNDS {
            if let Some(event) = self.events.pop_front() {
                return Poll::Ready(event);
            }
            let (wrote, read) = (self.write(cx), self.fill(cx));
            if let Err(error) = self.consume() {
                return Poll::Ready(self.broken(error));
            }
            self.inbound.unpark(cx.waker());
            self.inbound.flush(false);
            match (wrote, read) {
                (Moved::Ended, _) | (_, Moved::Ended) => return Poll::Ready(LinkEvent::Ended),
                (Moved::Nothing, Moved::Nothing) if self.events.is_empty() => {
                    return self.rest(cx);
                }
                _ => {}
            }
        }
        cx.waker().wake_by_ref();
        Poll::Pending
    }

    /// Nothing to do now; a little credit goes back after a while.
    fn rest(&mut self, cx: &mut Cx<'_>) -> Poll<LinkEvent> {
        self.shrink();
        if !self.inbound.owes() {
            self.credit_due = None;
            return Poll::Pending;
        }
        let ctx = &self.ctx;
        let timer = self.credit_due.get_or_insert_with(|| {
            let ctx = ctx.clone();
            Box::pin(async move { ctx.sleep(CREDIT_DELAY).await })
        });
        if timer.as_mut().poll(cx).is_ready() {
            self.credit_due = None;
            self.inbound.flush(true);
            cx.waker().wake_by_ref();
        }
        Poll::Pending
    }

    fn broken(&self, error: RecordError) -> LinkEvent {
        tracing::warn!(peer = %self.link.peer, %error, "the peer broke the protocol");
        LinkEvent::Protocol
    }

    fn write(&mut self, cx: &mut Cx<'_>) -> Moved {
        let mut moved = Moved::Nothing;
        loop {
            if self.batch.is_empty() {
                if !self.link.lane.take(&mut self.batch) {
                    return self.finish(cx);
                }
                if self.batch.is_empty() {
                    break;
                }
            }
            match self.write_once(cx) {
                Poll::Ready(Ok(0) | Err(_)) => return Moved::Ended,
                Poll::Ready(Ok(count)) => {
                    advance(&mut self.batch, count);
                    self.unflushed = true;
                    moved = Moved::Some;
                }
                Poll::Pending => break,
            }
        }
        match self.flush(cx) {
            Ok(()) => moved,
            Err(_) => Moved::Ended,
        }
    }

    /// The lane is closed and empty: what the stream holds goes out, then it ends.
    fn finish(&mut self, cx: &mut Cx<'_>) -> Moved {
        match Pin::new(&mut self.io).poll_shutdown(cx) {
            Poll::Pending => Moved::Nothing,
            Poll::Ready(_) => Moved::Ended,
        }
    }

    fn write_once(&mut self, cx: &mut Cx<'_>) -> Poll<io::Result<usize>> {
        let mut slices = [IoSlice::new(&[]); SLICES];
        let count = self.batch.len().min(SLICES);
        for (slice, chunk) in slices.iter_mut().zip(&self.batch) {
            *slice = IoSlice::new(chunk);
        }
        Pin::new(&mut self.io).poll_write_vectored(cx, &slices[..count])
    }

    fn flush(&mut self, cx: &mut Cx<'_>) -> io::Result<()> {
        if self.unflushed
            && let Poll::Ready(end) = Pin::new(&mut self.io).poll_flush(cx)
        {
            self.unflushed = false;
            return end;
        }
        Ok(())
    }

    fn fill(&mut self, cx: &mut Cx<'_>) -> Moved {
        if self.read.capacity() - self.read.len() < self.want / 4 {
            self.read.reserve(self.want);
        }
        let room = self.read.capacity() - self.read.len();
        match poll_read_buf(Pin::new(&mut self.io), cx, &mut self.read) {
            Poll::Ready(Ok(0) | Err(_)) => Moved::Ended,
            Poll::Ready(Ok(count)) => {
                self.longest = self.longest.max(count);
                if count == room {
                    self.want = (self.want * 4).min(READ_MOST);
                }
                Moved::Some
            }
            Poll::Pending => Moved::Nothing,
        }
    }

    /// A link that reads little keeps little: a mesh has hundreds of them.
    fn shrink(&mut self) {
        self.rests += 1;
        if self.rests < RESTS || !self.read.is_empty() {
            return;
        }
        if self.want > READ_LEAST && self.longest < self.want / 4 {
            self.want = (self.want / 4).max(READ_LEAST);
            self.read = BytesMut::new();
            self.link.lane.shrink();
        }
        self.rests = 0;
        self.longest = 0;
    }

    /// Handles every whole record that was read.
    fn consume(&mut self) -> Result<(), RecordError> {
        let end = RecordDecoder::whole(&self.read)?;
        if end == 0 {
            return Ok(());
        }
        let batch = self.read.split_to(end).freeze();
        self.inbound.begin_batch();
        let now = self.ctx.monotonic();
        let mut at = 0;
        while let Some((record, size)) = RecordDecoder::cut(&batch[at..])? {
            self.handle(&record, &batch, now)?;
            at += size;
        }
        Ok(())
    }

    fn handle(
        &mut self,
        record: &Record<'_>,
        batch: &Bytes,
        now: Duration,
    ) -> Result<(), RecordError> {
        match record {
            Record::Message(head, payload) => self.inbound.message(head, payload, batch, now),
            Record::Part(stream, part) => self.inbound.message_part(*stream, part),
            Record::Reply(head, payload) => self.inbound.reply(head, payload, batch),
            Record::ReplyPart(correlation, part) => self.inbound.reply_part(*correlation, part),
            Record::Credit(grants) => {
                self.link.lane.credit(grants);
                Ok(())
            }
            Record::Probe(id) => {
                self.link.lane.control(&Record::Ack(*id));
                Ok(())
            }
            Record::Ack(id) => {
                self.events.push_back(LinkEvent::Ack(*id));
                Ok(())
            }
            Record::Update(bytes) => {
                let descriptor = Descriptor::from_bytes(bytes).map_err(|_| RecordError::Body(4))?;
                self.events.push_back(LinkEvent::Update(Box::new(descriptor)));
                Ok(())
            }
            Record::Reject(_) => {
                self.events.push_back(LinkEvent::Ended);
                Ok(())
            }
            Record::Hello(_) | Record::Admit => Err(RecordError::Body(1)),
        }
    }
}

fn advance(batch: &mut VecDeque<Bytes>, mut count: usize) {
    while let Some(first) = batch.front_mut().filter(|_| count > 0) {
        let some = first.len().min(count);
        first.advance(some);
        count -= some;
        if first.is_empty() {
            batch.pop_front();
        }
    }
}
