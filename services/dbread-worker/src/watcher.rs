//! The watcher: the thread that ends the worker when its peer goes or its time is up.
//!
//! It polls the connection for the peer's end and reads nothing from it. What it notices it first
//! says politely, by cancelling the work. Not every step looks up at once: SQLite checks between
//! two instructions, and one instruction can compare gigabytes. So after [`GRACE`] it ends the
//! process wherever that is (db-forward §8.3).

use std::io;
use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::sync::mpsc;
use std::thread;
use std::time::Duration;

use carlos_protocol::frames::Outcome;
use carlos_protocol::limits;
use rustix::event::PollFd;
use rustix::event::PollFlags;
use rustix::event::Timespec;
use rustix::io::Errno;

use crate::exit;
use crate::life::Life;
use crate::life::Reason;

/// How long cancelled work may take to stop by itself. The agent counts the worker's scratch as
/// taken until the process is gone, so a restarted agent waits this long at most (db-forward §8.3).
pub const GRACE: Duration = limits::WORKER_EXIT;

/// How often a passed time limit is looked for. A lost peer wakes the watcher at once; a limit of
/// minutes may be noticed this much late, and the query itself keeps its own more closely.
const TICK: Duration = Duration::from_millis(500);

/// What the watcher does to the process, apart from cancelling its work.
pub trait Ending: Send + 'static {
    /// Tells the peer, if that needs no waiting, before a time limit ends the process.
    fn last_word(&mut self, outcome: Outcome);

    /// Ends the process with `code`.
    fn end(&mut self, code: u8) -> !;
}

/// Starts the watcher over `connection`. It runs until the process ends.
///
/// Returns once the thread runs: a thread that is still being born makes system calls of its own,
/// and the filter that follows would end the process over them.
///
/// # Errors
/// When the connection cannot be duplicated or no thread can be started.
pub fn start(connection: &UnixStream, life: Arc<Life>, ending: impl Ending) -> io::Result<()> {
    let connection = connection.try_clone()?;
    let (born, running) = mpsc::sync_channel(1);
    let watch = move || {
        // The receiver waits below for exactly this.
        let _ = born.send(());
        watch(&connection, &life, ending);
    };
    thread::Builder::new().name("watcher".to_owned()).spawn(watch)?;
    running.recv().map_err(io::Error::other)
}

fn watch(connection: &UnixStream, life: &Life, mut ending: impl Ending) {
    loop {
        if peer_left(connection, TICK) {
            life.cancel(Reason::PeerLost);
            pause(life, GRACE);
            ending.end(exit::PEER_LOST_FORCED);
        }
        life.run_errand();
        let Some(limit) = life.time_limit() else { continue };
        match overtime(limit.at, life.now()) {
            Overtime::Not => {}
            Overtime::Passed => life.cancel(Reason::TimeUp),
            Overtime::GraceToo => {
                ending.last_word(limit.outcome);
                ending.end(exit::OVERTIME_FORCED);
            }
        }
    }
}

/// Waits up to `patience` for the peer to close its end, or its sending half. An error counts as
/// the peer's end: without a connection there is nobody to work for.
fn peer_left(connection: &UnixStream, patience: Duration) -> bool {
    let timeout = timespec(patience);
    let mut fds = [PollFd::from_borrowed_fd(connection.as_fd(), PollFlags::RDHUP)];
    match rustix::event::poll(&mut fds, Some(&timeout)) {
        Ok(0) | Err(Errno::INTR) => false,
        Ok(_) | Err(_) => true,
    }
}

/// Waits without a file: the main thread ends the process when it is done, and this thread with it.
fn pause(life: &Life, span: Duration) {
    let until = life.now().saturating_add(span);
    loop {
        let left = until.saturating_sub(life.now());
        if left.is_zero() {
            return;
        }
        // Interrupted early: the loop looks again.
        let _ = rustix::event::poll(&mut [], Some(&timespec(left)));
    }
}

#[derive(Debug, PartialEq, Eq)]
enum Overtime {
    Not,
    Passed,
    GraceToo,
}

fn overtime(deadline: Duration, now: Duration) -> Overtime {
    match now.checked_sub(deadline) {
        None => Overtime::Not,
        Some(late) if late < GRACE => Overtime::Passed,
        Some(_) => Overtime::GraceToo,
    }
}

fn timespec(span: Duration) -> Timespec {
    let tv_sec = i64::try_from(span.as_secs()).expect("spans here are minutes at most");
    Timespec { tv_sec, tv_nsec: span.subsec_nanos().into() }
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use super::*;

    const SHORT: Duration = Duration::from_millis(20);

    #[test]
    fn a_silent_peer_and_a_talking_peer_are_both_there() {
        let (ours, mut theirs) = UnixStream::pair().unwrap();
        assert!(!peer_left(&ours, SHORT));
        theirs.write_all(b"unread").unwrap();
        assert!(!peer_left(&ours, SHORT));
    }

    #[test]
    fn a_peer_that_closed_has_left_even_when_bytes_wait() {
        let (ours, mut theirs) = UnixStream::pair().unwrap();
        theirs.write_all(b"unread").unwrap();
        drop(theirs);
        assert!(peer_left(&ours, SHORT));
    }

    #[test]
    fn a_deadline_first_passes_and_then_its_grace() {
        let at = Duration::from_secs(100);
        assert_eq!(overtime(at, at - SHORT), Overtime::Not);
        assert_eq!(overtime(at, at), Overtime::Passed);
        assert_eq!(overtime(at, at + GRACE), Overtime::GraceToo);
    }
}
