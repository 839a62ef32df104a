//! Workers behind a unix socket: each connection to it starts one, as `carlos-dbread.socket` does
//! with `Accept=yes` (db-forward §8.3).
//!
//! A connection that was made says nothing yet. The manager accepts and closes it at its limit of
//! connections, and a service that cannot start looks the same; what tells the two apart is the
//! count of workers ([`Census`]). That count also says when a worker has stopped, since its unit
//! outlives its connection by the time the manager takes to remove the unit's private scratch.

use std::collections::BTreeMap;
use std::io;
use std::os::fd::AsFd;
use std::path::PathBuf;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, Weak};
use std::task::{Context as Task, Poll, ready};
use std::time::Duration;

use async_trait::async_trait;
use carlos_bucket::Context;
use carlos_protocol::limits::WORKER_CONNECTIONS;
use rustix::event::{PollFd, PollFlags, Timespec};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::UnixStream;

use super::census::Census;
use super::{CountUnknown, StartError, WorkerHost, WorkerLife, WorkerLink};

/// A local connect is made at once or waits in a full backlog, which three connections never fill.
const CONNECT_WITHIN: Duration = Duration::from_secs(5);

/// How often a stopping worker is looked for: it usually takes a quarter of a second. The pause
/// doubles, so that a manager in trouble is not asked in a tight loop.
const RECOUNT_FIRST: Duration = Duration::from_millis(100);
const RECOUNT_LAST: Duration = Duration::from_secs(2);

/// Looks at the list before workers on it count as somebody else's: a failed one is gone within
/// a second.
const CROWD_LOOKS: u32 = 4;
const CROWD_PAUSE: Duration = Duration::from_millis(500);

/// Starts workers by connecting to a socket.
pub struct SocketWorkerHost {
    context: Context,
    socket: PathBuf,
    census: Arc<Census>,
    lines: Arc<Lines>,
}

impl SocketWorkerHost {
    /// `socket` is where the manager listens; `census` tells what it has running.
    pub fn new(context: Context, socket: PathBuf, census: Census) -> Self {
        Self { context, socket, census: Arc::new(census), lines: Arc::default() }
    }
}

#[async_trait]
impl WorkerHost for SocketWorkerHost {
    async fn start(&self) -> Result<WorkerLink, StartError> {
        let place = Place::take(&self.lines)?;
        let connected =
            self.context.timeout(CONNECT_WITHIN, UnixStream::connect(&self.socket)).await;
        let stream = connected
            .map_err(|_| StartError(format!("{} takes no connection", self.socket.display())))?
            .map_err(|error| StartError(format!("{}: {error}", self.socket.display())))?;
        let line = Arc::new(Line { stream, heard: AtomicBool::new(false) });
        place.connect(&line);
        let life =
            SocketLife { context: self.context.clone(), census: Arc::clone(&self.census), place };
        Ok(WorkerLink {
            reader: Box::new(Half(Arc::clone(&line))),
            writer: Box::new(Half(line)),
            life: Box::new(life),
        })
    }

    async fn running(&self) -> Result<usize, CountUnknown> {
        self.census.count(&self.context).await
    }

    /// At its limit the manager closes a connection as it does over a worker that cannot start
    /// (db-forward §7.1). A worker that has just failed is on the list for a moment, so the count
    /// gets time to settle.
    async fn is_crowded(&self) -> bool {
        for _ in 0..CROWD_LOOKS {
            let counted = self.running().await;
            let Ok(running) = counted else { return true };
            if running <= self.lines.open() {
                return false;
            }
            self.context.sleep(CROWD_PAUSE).await;
        }
        true
    }
}

struct SocketLife {
    context: Context,
    census: Arc<Census>,
    place: Place,
}

#[async_trait]
impl WorkerLife for SocketLife {
    /// The manager's list does not say which worker is whose. So this waits until it names no more
    /// than there are workers on other, living connections: then this one is not among them. No
    /// timeout ends the wait, as none ends that for an orphan; the unit's own does (§5.7).
    async fn stopped(&mut self) {
        let mut pause = RECOUNT_FIRST;
        loop {
            let others = self.place.lines.proven(self.place.number);
            match self.census.count(&self.context).await {
                Ok(running) if running <= self.place.lines.still_proven(&others) => return,
                Ok(_) => {}
                Err(error) => tracing::warn!(%error, "whether a worker has stopped is unknown"),
            }
            self.context.sleep(pause).await;
            pause = (pause * 2).min(RECOUNT_LAST);
        }
    }
}

/// One connection. Dropping its two halves closes it.
struct Line {
    stream: UnixStream,
    /// Something came from the other end, so there is a worker on it and not only a manager.
    heard: AtomicBool,
}

impl Line {
    /// Whether a worker holds the other end at this moment.
    fn has_worker(&self) -> bool {
        self.heard.load(Ordering::Acquire) && !self.is_hung_up()
    }

    fn is_hung_up(&self) -> bool {
        let mut fds = [PollFd::from_borrowed_fd(self.stream.as_fd(), PollFlags::empty())];
        let at_once = Timespec { tv_sec: 0, tv_nsec: 0 };
        // An end that cannot be looked at proves no worker.
        rustix::event::poll(&mut fds, Some(&at_once)) != Ok(0)
    }
}

/// The connections of one host, by number. A connection that closed stays until its life is over.
#[derive(Default)]
struct Lines(Mutex<Table>);

#[derive(Default)]
struct Table {
    next: u64,
    lines: BTreeMap<u64, Weak<Line>>,
}

impl Lines {
    /// Connections other than `number` that have a worker now.
    fn proven(&self, number: u64) -> Vec<u64> {
        let table = self.table();
        let others = table.lines.iter().filter(|(other, line)| **other != number && proves(line));
        others.map(|(number, _)| *number).collect()
    }

    /// How many of `numbers` still have theirs: those had it all the time in between.
    fn still_proven(&self, numbers: &[u64]) -> usize {
        let table = self.table();
        numbers.iter().filter(|number| table.lines.get(number).is_some_and(proves)).count()
    }

    /// Connections whose other end is held, be it by a worker that has not spoken yet.
    fn open(&self) -> usize {
        let open = |line: &Weak<Line>| line.upgrade().is_some_and(|line| !line.is_hung_up());
        self.table().lines.values().filter(|line| open(line)).count()
    }

    fn table(&self) -> MutexGuard<'_, Table> {
        self.0.lock().expect("nothing panics while it holds the list of connections")
    }
}

fn proves(line: &Weak<Line>) -> bool {
    line.upgrade().is_some_and(|line| line.has_worker())
}

/// A connection's entry among the host's, from before it is made until its worker has stopped.
struct Place {
    lines: Arc<Lines>,
    number: u64,
}

impl Place {
    /// Two reads and a probe are all there can be; a fourth connection would be closed unheard and
    /// mistaken for a broken worker (db-forward §7.1).
    fn take(lines: &Arc<Lines>) -> Result<Self, StartError> {
        let mut table = lines.table();
        if table.lines.len() >= WORKER_CONNECTIONS {
            return Err(StartError("every connection is in use".to_owned()));
        }
        let number = table.next;
        table.next += 1;
        table.lines.insert(number, Weak::new());
        drop(table);
        Ok(Self { lines: Arc::clone(lines), number })
    }

    fn connect(&self, line: &Arc<Line>) {
        self.lines.table().lines.insert(self.number, Arc::downgrade(line));
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        self.lines.table().lines.remove(&self.number);
    }
}

/// One direction of a connection.
struct Half(Arc<Line>);

impl AsyncRead for Half {
    fn poll_read(
        self: Pin<&mut Self>,
        task: &mut Task<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let Line { stream, heard } = &*self.0;
        loop {
            ready!(stream.poll_read_ready(task))?;
            match stream.try_read(buffer.initialize_unfilled()) {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                Err(error) => return Poll::Ready(Err(error)),
                Ok(count) => {
                    heard.fetch_or(count > 0, Ordering::Release);
                    buffer.advance(count);
                    return Poll::Ready(Ok(()));
                }
            }
        }
    }
}

impl AsyncWrite for Half {
    fn poll_write(
        self: Pin<&mut Self>,
        task: &mut Task<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        loop {
            ready!(self.0.stream.poll_write_ready(task))?;
            match self.0.stream.try_write(bytes) {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                written => return Poll::Ready(written),
            }
        }
    }

    fn poll_flush(self: Pin<&mut Self>, _task: &mut Task<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    /// Nothing is half closed: the connection ends when both halves are dropped.
    fn poll_shutdown(self: Pin<&mut Self>, _task: &mut Task<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }
}
