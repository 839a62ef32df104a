//! Runs the handlers of one owner: one task, no task for a message.
//!
//! Each handler's future is polled once where it is made; most end there. What waits joins a set
//! of at most `concurrency`. Messages start in the order in which they came.

use std::collections::VecDeque;
use std::future::Future;
use std::panic::AssertUnwindSafe;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::{Context as Cx, Poll};
use std::time::Duration;

use bytes::Bytes;
use carlos_bucket::Context;
use carlos_protocol::mesh::{Metadata, Outcome, ReplyHead, Rid};
use futures::FutureExt;
use futures::future::CatchUnwind;
use futures::stream::{FuturesUnordered, StreamExt};
use tokio_util::sync::CancellationToken;

use super::mailbox::Mailbox;
use crate::handler::{Answer, Failure, Handler, HandlerError, Handlers, MessageContext, Run};
use crate::link::{Link, Requests, failure};

/// Messages started before other tasks get their turn.
const TURN: usize = 256;

/// The longest text of a failure that travels.
const TEXT_BYTES: usize = 255;

/// Where a reply goes.
#[derive(Debug)]
pub(crate) enum ReplyTo {
    /// One-way: nowhere.
    Nobody,
    /// Back over the link the request came by.
    Link(Arc<Link>, u64),
    /// To a caller of this node.
    Local(Arc<Requests>, u64),
}

/// One message on its way to its handler.
#[derive(Debug)]
pub(crate) struct Job {
    pub(crate) handler: Arc<Handler>,
    pub(crate) source: Arc<Rid>,
    pub(crate) metadata: Metadata,
    pub(crate) payload: Bytes,
    pub(crate) reply: ReplyTo,
    /// When the asker stops waiting, on the monotonic clock; `None` for a one-way message.
    pub(crate) expires: Option<Duration>,
    /// What is reserved for it in the mailbox.
    pub(crate) charge: u64,
}

/// What became of an owner's messages.
#[derive(Debug, Default)]
pub(crate) struct Stats {
    pub(crate) handled: AtomicU64,
    pub(crate) failed: AtomicU64,
    pub(crate) expired: AtomicU64,
    pub(crate) no_handler: AtomicU64,
    pub(crate) dropped: AtomicU64,
}

/// A channel that this node serves, or node direct.
#[derive(Debug)]
pub(crate) struct Owner {
    pub(crate) name: String,
    pub(crate) handlers: Handlers,
    pub(crate) mailbox: Mailbox,
    pub(crate) concurrency: usize,
    pub(crate) stats: Stats,
}

impl Owner {
    /// Runs handlers until `stop`; what runs then is dropped.
    pub(crate) async fn run(self: Arc<Self>, ctx: Context, stop: CancellationToken) {
        let mut executor = Executor {
            owner: self,
            ctx,
            waiting: VecDeque::new(),
            running: FuturesUnordered::new(),
            done: (0, 0),
        };
        let work = std::future::poll_fn(|cx| executor.poll(cx));
        tokio::select! {
            biased;
            () = stop.cancelled() => {}
            () = work => {}
        }
    }
}

struct Executor {
    owner: Arc<Owner>,
    ctx: Context,
    waiting: VecDeque<Job>,
    running: FuturesUnordered<Running>,
    /// Messages and bytes whose reservation ends at the next chance.
    done: (u64, u64),
}

impl Executor {
    /// Never ready: the owner's task ends from outside.
    fn poll(&mut self, cx: &mut Cx<'_>) -> Poll<()> {
        self.owner.mailbox.register(cx.waker());
        let now = self.ctx.monotonic();
        for _ in 0..TURN {
            while let Poll::Ready(Some(finished)) = self.running.poll_next_unpin(cx) {
                self.finish(finished);
            }
            if self.running.len() >= self.owner.concurrency {
                self.release();
                return Poll::Pending;
            }
            let Some(job) = self.next_job() else {
                self.release();
                // A release may have let somebody in while nobody was registered.
                return Poll::Pending;
            };
            self.start(job, now, cx);
        }
        self.release();
        cx.waker().wake_by_ref();
        Poll::Pending
    }

    fn next_job(&mut self) -> Option<Job> {
        if self.waiting.is_empty() {
            self.release();
            self.owner.mailbox.take(&mut self.waiting);
        }
        self.waiting.pop_front()
    }

    fn start(&mut self, job: Job, now: Duration, cx: &mut Cx<'_>) {
        if job.expires.is_some_and(|expires| expires <= now) {
            self.owner.stats.expired.fetch_add(1, Ordering::Relaxed);
            answer_failure(&job.reply, Outcome::DeadlineExceeded, "expired before it ran");
            return self.count_done(job.charge);
        }
        let correlation = match &job.reply {
            ReplyTo::Nobody => None,
            ReplyTo::Link(_, id) | ReplyTo::Local(_, id) => Some(*id),
        };
        let context = MessageContext {
            scope: Arc::clone(&job.handler.scope),
            source: job.source,
            metadata: job.metadata,
            correlation,
        };
        let (handler, payload) = (job.handler, job.payload);
        // Reading the body runs foreign code too.
        let made = std::panic::catch_unwind(AssertUnwindSafe(|| handler.run(context, payload)));
        let reply = job.reply;
        let Ok(run) = made else {
            let ended = Ended::Panicked;
            return self.finish(Finished { reply, charge: job.charge, ended });
        };
        let run = AssertUnwindSafe(run).catch_unwind();
        let mut running = Running { run, reply: Some(reply), charge: job.charge };
        match running.poll_unpin(cx) {
            Poll::Ready(finished) => self.finish(finished),
            Poll::Pending => self.running.push(running),
        }
    }

    fn finish(&mut self, finished: Finished) {
        let stats = &self.owner.stats;
        match finished.ended {
            Ended::Answered(answer) => {
                stats.handled.fetch_add(1, Ordering::Relaxed);
                send_answer(&finished.reply, answer);
            }
            Ended::Failed(failure) => {
                stats.failed.fetch_add(1, Ordering::Relaxed);
                let (outcome, text) = describe(&failure);
                tracing::debug!(owner = %self.owner.name, %text, "a handler did not answer");
                answer_failure(&finished.reply, outcome, text);
            }
            Ended::Panicked => {
                stats.failed.fetch_add(1, Ordering::Relaxed);
                tracing::error!(owner = %self.owner.name, "a handler panicked");
                answer_failure(&finished.reply, Outcome::Failed, "the handler panicked");
            }
        }
        self.count_done(finished.charge);
    }

    fn count_done(&mut self, charge: u64) {
        self.done.0 += 1;
        self.done.1 += charge;
    }

    fn release(&mut self) {
        if self.done.0 > 0 {
            let (messages, bytes) = std::mem::take(&mut self.done);
            self.owner.mailbox.release(messages, bytes);
        }
    }
}

/// A handler that runs, with what its end needs.
struct Running {
    run: CatchUnwind<AssertUnwindSafe<Run>>,
    reply: Option<ReplyTo>,
    charge: u64,
}

struct Finished {
    reply: ReplyTo,
    charge: u64,
    ended: Ended,
}

enum Ended {
    Answered(Answer),
    Failed(Failure),
    Panicked,
}

impl Future for Running {
    type Output = Finished;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Cx<'_>) -> Poll<Finished> {
        let ended = match self.run.poll_unpin(cx) {
            Poll::Pending => return Poll::Pending,
            Poll::Ready(Ok(Ok(answer))) => Ended::Answered(answer),
            Poll::Ready(Ok(Err(failure))) => Ended::Failed(failure),
            Poll::Ready(Err(_)) => Ended::Panicked,
        };
        let reply = self.reply.take().unwrap_or(ReplyTo::Nobody);
        Poll::Ready(Finished { reply, charge: self.charge, ended })
    }
}

fn describe(failure: &Failure) -> (Outcome, &str) {
    match failure {
        Failure::Body(error) => (Outcome::ProtocolError, &error.0),
        Failure::Handler(HandlerError::Rejected(text)) => (Outcome::Rejected, text),
        Failure::Handler(HandlerError::Failed(text)) => (Outcome::Failed, text),
    }
}

fn send_answer(reply: &ReplyTo, answer: Answer) {
    match reply {
        ReplyTo::Nobody => {}
        ReplyTo::Link(link, correlation) => {
            let (correlation, content) = (*correlation, answer.content);
            let head = ReplyHead { correlation, outcome: Outcome::Done, content, total: None };
            link.lane.reply(&head, &answer.bytes);
        }
        ReplyTo::Local(requests, correlation) => {
            requests.end(*correlation, Ok((answer.content.into(), answer.bytes)));
        }
    }
}

/// Ends a request without a reply; a one-way message ends silently.
pub(crate) fn answer_failure(reply: &ReplyTo, outcome: Outcome, text: &str) {
    let text = shortened(text);
    match reply {
        ReplyTo::Nobody => {}
        ReplyTo::Link(link, correlation) => link.refuse(*correlation, outcome, text),
        ReplyTo::Local(requests, correlation) => {
            requests.end(*correlation, Err(failure(outcome, text.as_bytes())));
        }
    }
}

/// At most as much of a text as travels, cut at a character.
fn shortened(text: &str) -> &str {
    let mut end = text.len().min(TEXT_BYTES);
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    &text[..end]
}
