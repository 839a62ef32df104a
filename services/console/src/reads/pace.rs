//! The open response: its lines, its silence, and everything that can end it (db-forward §5.5).

use std::{
    pin::{Pin, pin},
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    task::{self, Poll},
    time::Duration,
};

use bytes::Bytes;
use carlos_bucket::Context;
use carlos_protocol::lines::{Line, Phase};
use futures::Stream;
use tokio::sync::mpsc;
use tokio_util::sync::{CancellationToken, DropGuard};

use crate::{admission::Admitted, timings::Timings};

/// Lines between the read's task and the connection. Small, so that a slow client is felt at once
/// and sixteen reads hold little; two, so that the next chunk is fetched while one is written.
const LINES_AHEAD: usize = 2;

/// How a read's response ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Ending {
    /// The result line is written: the only end that needs no cancel.
    Answered,
    /// The connection closed.
    Closed,
    /// What a box wrote is outside its grammar, so no answer can come of it.
    Malformed,
    /// The owner's deadline and the grace passed without a complete answer (DBF-12).
    Overdue,
    /// The process was told to stop.
    Shutdown,
    /// A line could not be written for the stall time.
    Stalled,
    /// Nobody owned the read in time (DBF-3).
    Unpicked,
}

/// The response was cut before its last line.
///
/// A reader that takes the end of the bytes for the end of the answer must not be told that all
/// is well, so the transfer breaks instead of ending.
#[derive(Clone, Copy, Debug, thiserror::Error)]
#[error("the read ended before its result")]
pub(crate) struct Cut;

/// Makes the two ends of one response: the task's and the connection's.
pub(crate) fn response(
    context: Context,
    timings: Timings,
    shutdown: CancellationToken,
    admitted: Admitted,
) -> (Pace, LineBody) {
    let (sender, lines) = mpsc::channel(LINES_AHEAD);
    let (closed, whole) = (CancellationToken::new(), Arc::new(AtomicBool::new(false)));
    let body = LineBody {
        lines: Some(lines),
        whole: Arc::clone(&whole),
        _closes: closed.clone().drop_guard(),
        _admitted: admitted,
    };
    let last_line = context.monotonic();
    let limit = Limit { at: Duration::MAX, ending: Ending::Overdue };
    let phase = Phase::Queued;
    (Pace { context, timings, shutdown, closed, whole, sender, last_line, limit, phase }, body)
}

/// The connection's end: a response body, one frame for each line.
///
/// Dropping it is how the task learns that the request has ended, at every point of the request's
/// life: it is made before the first write of the read and dropped with the handler or the body.
pub(crate) struct LineBody {
    lines: Option<mpsc::Receiver<Bytes>>,
    /// Set before the task ends, when the end of the lines is the end of the answer.
    whole: Arc<AtomicBool>,
    _closes: DropGuard,
    _admitted: Admitted,
}

impl Stream for LineBody {
    type Item = Result<Bytes, Cut>;

    fn poll_next(
        mut self: Pin<&mut Self>,
        cx: &mut task::Context<'_>,
    ) -> Poll<Option<Result<Bytes, Cut>>> {
        let Some(lines) = &mut self.lines else { return Poll::Ready(None) };
        let line = task::ready!(lines.poll_recv(cx));
        if line.is_some() {
            return Poll::Ready(line.map(Ok));
        }
        self.lines = None;
        match self.whole.load(Ordering::Acquire) {
            true => Poll::Ready(None),
            false => Poll::Ready(Some(Err(Cut))),
        }
    }
}

/// The task's end. Whatever the task awaits, it awaits through here, so that no store call and no
/// pause outlives the request or keeps it silent.
pub(crate) struct Pace {
    context: Context,
    pub(crate) timings: Timings,
    shutdown: CancellationToken,
    closed: CancellationToken,
    whole: Arc<AtomicBool>,
    sender: mpsc::Sender<Bytes>,
    last_line: Duration,
    limit: Limit,
    phase: Phase,
}

/// When the wait is over, on the monotonic clock, and what it then was.
#[derive(Clone, Copy)]
struct Limit {
    at: Duration,
    ending: Ending,
}

impl Pace {
    /// Whether the request is still open: checked immediately before each of the four writes.
    pub(crate) fn check_open(&self) -> Result<(), Ending> {
        match (self.closed.is_cancelled(), self.shutdown.is_cancelled()) {
            (true, _) => Err(Ending::Closed),
            (_, true) => Err(Ending::Shutdown),
            _ => Ok(()),
        }
    }

    /// The same question for a write that waits its turn.
    pub(crate) fn gate(&self) -> impl Fn() -> bool + Send + Sync + use<> {
        let (closed, shutdown) = (self.closed.clone(), self.shutdown.clone());
        move || !closed.is_cancelled() && !shutdown.is_cancelled()
    }

    /// Sets when waiting ends from now on, and what wait lines say meanwhile.
    pub(crate) fn enter(&mut self, phase: Phase, at: Duration, ending: Ending) {
        self.phase = phase;
        self.limit = Limit { at, ending };
    }

    /// Changes what wait lines say.
    pub(crate) fn enter_phase(&mut self, phase: Phase) {
        self.phase = phase;
    }

    /// Now, on the clock that [`Pace::enter`] takes.
    pub(crate) fn now(&self) -> Duration {
        self.context.monotonic()
    }

    /// Runs `work` while the request lasts, without keeping the response alive: there is none yet.
    pub(crate) async fn while_open<T>(&self, work: impl Future<Output = T>) -> Result<T, Ending> {
        self.check_open()?;
        tokio::select! {
            biased;
            ending = self.ended() => Err(ending),
            done = work => Ok(done),
        }
    }

    /// Runs `work` to its end, writing wait lines meanwhile.
    pub(crate) async fn attend<T>(&mut self, work: impl Future<Output = T>) -> Result<T, Ending> {
        let mut work = pin!(work);
        loop {
            let now = self.now();
            if now >= self.limit.at {
                return Err(self.limit.ending);
            }
            let silence_ends = self.last_line + self.timings.wait_line;
            let pause = silence_ends.min(self.limit.at).saturating_sub(now);
            tokio::select! {
                biased;
                ending = self.ended() => return Err(ending),
                done = work.as_mut() => return Ok(done),
                () = self.context.sleep(pause) => {}
            }
            if self.now() >= silence_ends {
                self.send(&Line::Wait(self.phase)).await?;
            }
        }
    }

    /// Waits for `pause`, writing wait lines meanwhile.
    pub(crate) async fn pause(&mut self, pause: Duration) -> Result<(), Ending> {
        let context = self.context.clone();
        self.attend(async move { context.sleep(pause).await }).await
    }

    /// Writes one line, or ends the request as a stalled client.
    pub(crate) async fn send(&mut self, line: &Line) -> Result<(), Ending> {
        let room = self.timings.write_stall.min(self.limit.at.saturating_sub(self.now()));
        let line = Bytes::from(line.to_bytes());
        let sent = tokio::select! {
            biased;
            ending = self.ended() => return Err(ending),
            sent = self.context.timeout(room, self.sender.send(line)) => sent,
        };
        match sent {
            Ok(Ok(())) => {
                self.last_line = self.now();
                Ok(())
            }
            Ok(Err(_)) => Err(Ending::Closed),
            Err(_) if self.now() >= self.limit.at => Err(self.limit.ending),
            Err(_) => Err(Ending::Stalled),
        }
    }

    /// Ends the response: after its result, or because nobody picked the read, as a whole one; in
    /// every other case as a broken transfer.
    pub(crate) fn finish(self, ending: Ending) {
        let whole = matches!(ending, Ending::Answered | Ending::Unpicked);
        self.whole.store(whole, Ordering::Release);
    }

    async fn ended(&self) -> Ending {
        tokio::select! {
            biased;
            () = self.closed.cancelled() => Ending::Closed,
            () = self.shutdown.cancelled() => Ending::Shutdown,
        }
    }
}
