//! `--listen`: a worker for each connection to a socket, in a fresh process of its own.
//!
//! Where there is no service manager, in a container, this takes the place of
//! `carlos-dbread.socket`: at most three connections, and one more is closed unheard. It never
//! reads a byte of what they carry. A second socket, beside the first under its name and
//! [`COUNT_SUFFIX`], tells whoever connects to it how many workers hold scratch (db-forward §5.7).

use std::collections::BTreeMap;
use std::convert::Infallible;
use std::ffi::OsString;
use std::fs;
use std::io;
use std::io::ErrorKind;
use std::io::Write;
use std::os::fd::AsFd;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixListener;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::path::PathBuf;
use std::process::Child;
use std::process::Command;
use std::process::Stdio;
use std::time::Duration;

use carlos_protocol::frames::COUNT_SUFFIX;
use carlos_protocol::frames::Running;
use carlos_protocol::limits;
use rustix::event::PollFd;
use rustix::event::PollFlags;
use rustix::event::Timespec;
use rustix::fs::Mode;
use thiserror::Error;

use crate::clock;
use crate::gate;
use crate::gate::UnknownUser;
use crate::options::Options;
use crate::scratch;

/// How often ended workers are looked for while nobody connects. Whoever counts or connects has
/// them looked for first.
const TICK: Timespec = Timespec { tv_sec: 0, tv_nsec: 250_000_000 };

/// A worker ends itself within its owner's time and its grace; one that does not hangs. In the
/// place of the unit's `RuntimeMaxSec` (db-forward §8.3).
const LONGEST_LIFE: Duration = limits::OWNER_TIME.saturating_add(Duration::from_secs(30));

/// A count is one short line. Nobody is waited for who does not take it.
const ANSWER_WITHIN: Duration = Duration::from_secs(1);

/// Both sockets are for the listener's user and its group, where the agent is.
const CLOSED_TO_OTHERS: Mode = Mode::from_raw_mode(0o117);

/// Why nothing listens.
#[derive(Debug, Error)]
pub enum ListenError {
    /// A socket could not be made at its place.
    #[error("{}: {cause}", path.display())]
    Bind {
        /// The place.
        path: PathBuf,
        /// What the system said.
        cause: io::Error,
    },
    /// This program's own file is not found.
    #[error("this program cannot start itself again: {0}")]
    Program(io::Error),
    /// The scratch root cannot be listed.
    #[error("no scratch in {}: {cause}", root.display())]
    Scratch {
        /// The root.
        root: PathBuf,
        /// What the system said.
        cause: io::Error,
    },
    /// `--peer-user` names nobody.
    #[error(transparent)]
    User(#[from] UnknownUser),
    /// The sockets could not be waited for.
    #[error("waiting for connections: {0}")]
    Wait(io::Error),
}

/// Serves connections to `socket` until the process is ended. `leading` are the arguments by which
/// this program becomes a worker.
///
/// # Errors
/// [`ListenError`] when it cannot begin or go on.
pub fn listen(
    socket: &Path,
    options: &Options,
    leading: &[OsString],
) -> Result<Infallible, ListenError> {
    let peer = gate::resolve_user(&options.peer_user)?;
    let root = &options.scratch_root;
    scratch::sweep(root).map_err(|cause| ListenError::Scratch { root: root.clone(), cause })?;
    let program = std::env::current_exe().map_err(ListenError::Program)?;
    // First, because looking whether somebody listens there starts no worker.
    let counts = bind(count_socket(socket))?;
    let workers = bind(socket.to_owned())?;
    tracing::info!(socket = %socket.display(), "listening");
    let start = Start { program, leading, options, peer };
    Nursery { start, workers, counts, children: BTreeMap::new() }.serve()
}

/// The place of the count socket beside that of the workers.
fn count_socket(socket: &Path) -> PathBuf {
    let mut name = socket.as_os_str().to_owned();
    name.push(COUNT_SUFFIX);
    name.into()
}

/// Takes the place of a socket that nobody listens on any more, and of nothing else.
fn bind(path: PathBuf) -> Result<UnixListener, ListenError> {
    let bound = remove_stale(&path).and_then(|()| {
        let before = rustix::process::umask(CLOSED_TO_OTHERS);
        let listener = UnixListener::bind(&path);
        rustix::process::umask(before);
        listener
    });
    let listener = bound.and_then(|listener| {
        listener.set_nonblocking(true)?;
        Ok(listener)
    });
    listener.map_err(|cause| ListenError::Bind { path, cause })
}

fn remove_stale(path: &Path) -> io::Result<()> {
    match UnixStream::connect(path) {
        Ok(_) => Err(ErrorKind::AddrInUse.into()),
        // A socket without a listener. Any other kind of file is left, and binding says so.
        Err(error) if error.kind() == ErrorKind::ConnectionRefused => {
            use std::os::unix::fs::FileTypeExt;
            let kind = fs::symlink_metadata(path)?.file_type();
            if kind.is_socket() { fs::remove_file(path) } else { Ok(()) }
        }
        Err(_) => Ok(()),
    }
}

/// How a worker is started.
struct Start<'a> {
    program: PathBuf,
    leading: &'a [OsString],
    options: &'a Options,
    /// Whose connections are served.
    peer: u32,
}

impl Start<'_> {
    fn worker(&self, connection: UnixStream) -> io::Result<Child> {
        // Every worker blocks on its connection.
        connection.set_nonblocking(false)?;
        let stdin = OwnedFd::from(connection);
        let stdout = stdin.try_clone()?;
        Command::new(&self.program)
            .args(self.leading)
            .args(["--peer-user", &self.peer.to_string()])
            .arg("--scratch")
            .arg(&self.options.scratch_root)
            .args(["--max-bytes", &self.options.max_bytes.to_string()])
            .current_dir("/")
            .stdin(Stdio::from(stdin))
            .stdout(Stdio::from(stdout))
            .spawn()
    }
}

struct Worker {
    child: Child,
    overdue: Duration,
}

/// The sockets and the workers that run, by process id.
struct Nursery<'a> {
    start: Start<'a>,
    workers: UnixListener,
    counts: UnixListener,
    children: BTreeMap<u32, Worker>,
}

impl Nursery<'_> {
    fn serve(mut self) -> Result<Infallible, ListenError> {
        loop {
            self.wait()?;
            self.reap();
            while let Some(connection) = next(&self.counts) {
                self.answer(connection);
            }
            while let Some(connection) = next(&self.workers) {
                self.reap();
                self.take_in(connection);
            }
        }
    }

    fn wait(&self) -> Result<(), ListenError> {
        let mut fds = [&self.workers, &self.counts]
            .map(|listener| PollFd::from_borrowed_fd(listener.as_fd(), PollFlags::IN));
        match rustix::event::poll(&mut fds, Some(&TICK)) {
            Ok(_) | Err(rustix::io::Errno::INTR) => Ok(()),
            Err(errno) => Err(ListenError::Wait(errno.into())),
        }
    }

    fn take_in(&mut self, connection: UnixStream) {
        if self.children.len() >= limits::WORKER_CONNECTIONS {
            tracing::warn!("a connection more than workers may run is closed");
            return;
        }
        if let Err(refusal) = gate::admit(connection.as_fd(), self.start.peer) {
            tracing::warn!(%refusal, "a connection is closed");
            return;
        }
        match self.start.worker(connection) {
            Ok(child) => {
                let overdue = clock::monotonic() + LONGEST_LIFE;
                self.children.insert(child.id(), Worker { child, overdue });
            }
            Err(error) => tracing::error!(%error, "a worker could not be started"),
        }
    }

    /// Lets go of workers that have ended, and ends those that should have.
    fn reap(&mut self) {
        let now = clock::monotonic();
        let before = self.children.len();
        self.children.retain(|pid, worker| {
            if now > worker.overdue {
                tracing::error!(pid, "a worker has outlived its time and is killed");
                // Its end is seen at the next look.
                let _ = worker.child.kill();
            }
            !matches!(worker.child.try_wait(), Ok(Some(_)))
        });
        if self.children.len() < before {
            // At once, since the next count gives the place away.
            let _ = self.sweep();
        }
    }

    /// Says how many workers hold scratch. Whoever hears nothing knows nothing.
    fn answer(&self, mut connection: UnixStream) {
        let Some(foreign) = self.sweep() else { return };
        let running = u32::try_from(self.children.len() + foreign).unwrap_or(u32::MAX);
        let line = Running { running }.to_bytes();
        let told = connection
            .set_nonblocking(false)
            .and_then(|()| connection.set_write_timeout(Some(ANSWER_WITHIN)))
            .and_then(|()| connection.write_all(&line));
        if let Err(error) = told {
            tracing::debug!(%error, "a count was not taken");
        }
    }

    /// Removes what dead workers left. Gives the number of others that hold scratch: a listener's
    /// before this one, and scratch that cannot be removed, which fills the disk like a worker's.
    fn sweep(&self) -> Option<usize> {
        let own = |pid| self.children.contains_key(&pid);
        match scratch::sweep_beside(&self.start.options.scratch_root, own) {
            Ok(swept) => Some(swept.alive + swept.stuck),
            Err(error) => {
                tracing::error!(%error, "scratch cannot be looked through");
                None
            }
        }
    }
}

/// The next connection that waits, if one does.
fn next(listener: &UnixListener) -> Option<UnixStream> {
    match listener.accept() {
        Ok((connection, _)) => Some(connection),
        Err(error) if error.kind() == ErrorKind::WouldBlock => None,
        Err(error) => {
            tracing::warn!(%error, "a connection was not accepted");
            // Out of files, perhaps: the next try must not come at once.
            let _ = rustix::event::poll(&mut [], Some(&TICK));
            None
        }
    }
}
