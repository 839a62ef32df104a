//! Workers as child processes over a unix socket pair: `carlos dev`, `carlos demo` and the tests.
//!
//! A worker makes its own directory `carlos-dbread-<pid>-<salt>` below the scratch root and holds
//! a lock on its file `lock` for as long as it lives. Whoever can take that lock removes the
//! directory; so the parent cleans up after an end of any kind, and what a kill of both left is
//! found at the next start and counted as an orphan until its owner is gone (db-forward §5.7).

use std::collections::BTreeSet;
use std::ffi::OsString;
use std::fs::{self, File, OpenOptions, TryLockError};
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use async_trait::async_trait;
use carlos_bucket::Context;
use carlos_protocol::limits::WORKER_EXIT;
use rustix::fs::OFlags;
use tokio::io::{AsyncReadExt, BufReader};
use tokio::net::UnixStream;
use tokio::process::{Child, ChildStderr, Command};

use super::{CountUnknown, StartError, WorkerHost, WorkerLife, WorkerLink};

const DIR_PREFIX: &str = "carlos-dbread-";
const LOCK_FILE: &str = "lock";

/// The worker ends itself within `WORKER_EXIT` of losing its connection (db-forward §8.3); one
/// second more tells a slow machine from a worker that hangs.
const KILL_AFTER: Duration = WORKER_EXIT.saturating_add(Duration::from_secs(1));

/// Diagnostics kept of one worker. A hostile statement must not fill the log.
const STDERR_BYTES: u64 = 64 << 10;

/// Longest diagnostic line logged at once.
const STDERR_LINE: usize = 1 << 10;

/// The program a worker is, up to the arguments that name its peer and its scratch.
#[derive(Clone, Debug)]
pub struct WorkerCommand {
    pub program: PathBuf,
    pub args: Vec<OsString>,
}

impl WorkerCommand {
    /// The one `carlos` binary as its own worker.
    pub fn carlos(program: PathBuf) -> Self {
        Self { program, args: vec!["system".into(), "db-worker".into()] }
    }

    /// Tells workers the largest restored database this box reads, in bytes.
    #[must_use]
    pub fn max_restored(mut self, bytes: u64) -> Self {
        self.args.extend(["--max-bytes".into(), bytes.to_string().into()]);
        self
    }
}

/// Starts workers as children of this process.
pub struct ChildWorkerHost {
    context: Context,
    command: WorkerCommand,
    scratch: PathBuf,
    children: Arc<Mutex<BTreeSet<u32>>>,
}

impl ChildWorkerHost {
    /// `scratch` must exist and belong to this process's user.
    pub fn new(context: Context, command: WorkerCommand, scratch: PathBuf) -> Self {
        Self { context, command, scratch, children: Arc::default() }
    }

    fn spawn(&self) -> io::Result<(UnixStream, Child)> {
        let (ours, theirs) = std::os::unix::net::UnixStream::pair()?;
        ours.set_nonblocking(true)?;
        let stdin = OwnedFd::from(theirs);
        let stdout = stdin.try_clone()?;
        let child = Command::new(&self.command.program)
            .args(&self.command.args)
            .arg("--peer-user")
            .arg(rustix::process::getuid().as_raw().to_string())
            .arg("--scratch")
            .arg(&self.scratch)
            // No credential and no setting of this process reaches a tenant's statement; the
            // time zone is fixed so that both sides print the same times.
            .env_clear()
            .env("TZ", "UTC")
            .current_dir("/")
            .stdin(Stdio::from(stdin))
            .stdout(Stdio::from(stdout))
            .stderr(Stdio::piped())
            .kill_on_drop(true)
            .spawn()?;
        Ok((UnixStream::from_std(ours)?, child))
    }
}

#[async_trait]
impl WorkerHost for ChildWorkerHost {
    async fn start(&self) -> Result<WorkerLink, StartError> {
        let (connection, mut child) =
            self.spawn().map_err(|error| StartError(error.to_string()))?;
        let Some(pid) = child.id() else {
            return Err(StartError("the worker ended at once".to_owned()));
        };
        if let Some(stderr) = child.stderr.take() {
            drop(self.context.spawn(log_stderr(pid, stderr)));
        }
        lock(&self.children).insert(pid);
        let (reader, writer) = connection.into_split();
        let life = ChildLife {
            context: self.context.clone(),
            child,
            scratch: self.scratch.clone(),
            _listed: Listed { pid, children: self.children.clone() },
        };
        Ok(WorkerLink { reader: Box::new(reader), writer: Box::new(writer), life: Box::new(life) })
    }

    async fn running(&self) -> Result<usize, CountUnknown> {
        let own = lock(&self.children).clone();
        let scratch = self.scratch.clone();
        let found = self.context.spawn_blocking(move || sweep(&scratch)).await;
        let swept = found
            .map_err(|error| CountUnknown(error.to_string()))?
            .map_err(|error| CountUnknown(error.to_string()))?;
        let foreign = swept.alive.iter().filter(|pid| !own.contains(pid)).count();
        // Scratch that cannot be removed fills the disk like a worker's, so it blocks like one.
        Ok(own.len() + foreign + swept.stuck)
    }
}

struct Listed {
    pid: u32,
    children: Arc<Mutex<BTreeSet<u32>>>,
}

impl Drop for Listed {
    fn drop(&mut self) {
        lock(&self.children).remove(&self.pid);
    }
}

fn lock(children: &Mutex<BTreeSet<u32>>) -> MutexGuard<'_, BTreeSet<u32>> {
    children.lock().expect("nothing panics while it holds the list of children")
}

struct ChildLife {
    context: Context,
    child: Child,
    scratch: PathBuf,
    _listed: Listed,
}

#[async_trait]
impl WorkerLife for ChildLife {
    async fn stopped(&mut self) {
        let ended = self.context.timeout(KILL_AFTER, self.child.wait()).await;
        if ended.is_err() {
            tracing::warn!("a worker outlived its connection and is killed");
            if let Err(error) = self.child.kill().await {
                tracing::error!(%error, "a worker could not be killed");
            }
        }
        let scratch = self.scratch.clone();
        match self.context.spawn_blocking(move || sweep(&scratch)).await {
            Ok(Ok(_)) => {}
            Ok(Err(error)) => tracing::error!(%error, "a worker's scratch could not be swept"),
            Err(error) => tracing::error!(%error, "the sweep of scratch did not run"),
        }
    }
}

async fn log_stderr(pid: u32, stderr: ChildStderr) {
    let mut reader = BufReader::new(stderr);
    let mut left = STDERR_BYTES;
    let mut line = Vec::with_capacity(STDERR_LINE);
    // Reading goes on after the bound: a full pipe would stop the worker.
    while let Ok(byte) = reader.read_u8().await {
        left = left.saturating_sub(1);
        if byte != b'\n' && line.len() < STDERR_LINE {
            line.push(byte);
            continue;
        }
        if left > 0 {
            let text = String::from_utf8_lossy(&line);
            tracing::info!(worker = pid, "worker: {}", text.escape_debug());
        }
        line.clear();
    }
}

/// What is left below a scratch root after everything without an owner was removed.
#[derive(Debug, Default, PartialEq, Eq)]
struct Swept {
    /// Process ids of the living owners.
    alive: Vec<u32>,
    /// Directories that should have gone and could not be removed.
    stuck: usize,
}

fn sweep(root: &Path) -> io::Result<Swept> {
    let mut swept = Swept::default();
    for entry in fs::read_dir(root)? {
        let path = entry?.path();
        let Some(pid) = owner(&path) else { continue };
        match remove_if_dead(&path) {
            Ok(true) => {}
            Ok(false) => swept.alive.push(pid),
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(error) => {
                tracing::warn!(%error, "scratch could not be removed");
                swept.stuck += 1;
            }
        }
    }
    Ok(swept)
}

// Only a real folder of this user counts: in a root that everybody writes to, a link or somebody
// else's folder by that name must not be followed or removed.
fn owner(path: &Path) -> Option<u32> {
    let name = path.file_name()?.to_str()?.strip_prefix(DIR_PREFIX)?;
    let pid = name.split('-').next()?.parse().ok()?;
    let meta = fs::symlink_metadata(path).ok()?;
    let mine = meta.uid() == rustix::process::geteuid().as_raw();
    (meta.is_dir() && mine).then_some(pid)
}

fn remove_if_dead(path: &Path) -> io::Result<bool> {
    let lock = open_lock(&path.join(LOCK_FILE))?;
    match lock.try_lock() {
        Ok(()) => fs::remove_dir_all(path).map(|()| true),
        Err(TryLockError::WouldBlock) => Ok(false),
        Err(TryLockError::Error(error)) => Err(error),
    }
}

// A living owner's lock is for reading only; a directory whose owner died early has none.
fn open_lock(path: &Path) -> io::Result<File> {
    let no_follow = i32::try_from(OFlags::NOFOLLOW.bits()).expect("O_NOFOLLOW is a small flag");
    match OpenOptions::new().read(true).custom_flags(no_follow).open(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            OpenOptions::new().write(true).create_new(true).mode(0o400).open(path)
        }
        opened => opened,
    }
}
