//! The inner sandbox: what the process takes from itself before it reads a tenant's byte.
//!
//! It is the second wall. The first is the unit (or container) around the process; this one holds
//! without it. The order matters and is held by types:
//!
//! 1. the process has one thread and has opened its scratch directory;
//! 2. [`enclose`]: no capability, no new privileges, no core dump and no debugger, resource limits,
//!    Landlock. It binds the calling thread and the threads started later, never one that exists;
//! 3. every other thread is started, so that each inherits Landlock;
//! 4. [`Enclosed::seal`]: the system call filter over all threads at once. No thread, process or
//!    socket comes into being after it.
//!
//! What is in force is then read back from the kernel, not concluded from calls that returned.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::Path;

use carlos_protocol::frames::Rlimits;
use rustix::process::DumpableBehavior;
use rustix::process::Resource;
use rustix::process::Rlimit;
use rustix::thread::CapabilitySet;
use rustix::thread::CapabilitySets;
use thiserror::Error;

pub use self::report::Level;
pub use self::report::Report;
use self::report::Status;
use self::report::View;

mod filter;
mod report;
mod walls;

/// Where the kernel tells a process about itself.
const STATUS: &str = "/proc/self/status";

/// Longest status text read: the kernel's is about 1.5 KiB.
const STATUS_LEN: usize = 8 * 1024;

/// Memory a worker may hold in writable private pages. Below the unit's `MemoryMax=512M`, so that
/// a runaway gets an error that SQLite turns into an answer, not the kernel's kill.
pub const DATA_LIMIT: u64 = 480 << 20;

/// Open files: standard ones, the connection, the lock, the database and SQLite's own are ten.
pub const OPEN_FILES_LIMIT: u64 = 64;

/// Why the sandbox does not stand. The worker then serves nothing.
#[derive(Debug, Error)]
pub enum SandboxError {
    /// A thread that exists before Landlock would stay outside it.
    #[error("the process has {0} threads before its sandbox; it must have one")]
    AlreadyThreaded(u64),
    /// A wall that every supported kernel has does not show as standing.
    #[error("{0} is not in force")]
    NotInForce(&'static str),
    /// The kernel refused one step.
    #[error("{step}: {cause}")]
    Step {
        /// Which step.
        step: &'static str,
        /// What the kernel said.
        cause: io::Error,
    },
    /// The system call filter could not be built or installed.
    #[error("system call filter: {0}")]
    Filter(String),
}

/// A process that Landlock and its limits bind, and whose system calls are still free.
#[derive(Debug)]
#[must_use = "the sandbox is not complete before it is sealed"]
pub struct Enclosed {
    status: File,
    view: View,
    landlock: walls::Landlocked,
    dumpable: bool,
    limits: Rlimits,
}

/// Takes from the calling thread, which must be the only one, what can be taken before other
/// threads exist. Of all paths `database` is left, a file that exists, to be read and written up to
/// `file_limit` bytes: so this is also the limit of all that the process can put on the disk.
///
/// # Errors
/// [`SandboxError`] when there are other threads or the kernel refuses a step. A kernel without
/// Landlock, or with less of it, is no error: the report says so and its reader decides.
pub fn enclose(database: &Path, file_limit: u64) -> Result<Enclosed, SandboxError> {
    // Opened now, read later: nothing under /proc opens once Landlock is in force.
    let status = File::open(STATUS).map_err(|cause| step("open /proc/self/status", cause))?;
    let threads = read_status(&status).threads;
    if threads != 1 {
        return Err(SandboxError::AlreadyThreaded(threads));
    }
    let view = View::take();
    drop_capabilities()?;
    rustix::thread::set_no_new_privs(true).map_err(|e| step("no_new_privs", e.into()))?;
    rustix::process::set_dumpable_behavior(DumpableBehavior::NotDumpable)
        .map_err(|e| step("dumpable", e.into()))?;
    let behavior = rustix::process::dumpable_behavior().map_err(|e| step("dumpable", e.into()))?;
    let dumpable = behavior != DumpableBehavior::NotDumpable;
    set_limits(file_limit)?;
    let landlock = walls::restrict_to(database);
    Ok(Enclosed { status, view, landlock, dumpable, limits: limits_in_force() })
}

impl Enclosed {
    /// Puts the system call filter over every thread of the process, for good.
    ///
    /// # Errors
    /// [`SandboxError::Filter`] when the kernel refuses it, [`SandboxError::NotInForce`] when the
    /// kernel shows less than it was asked for.
    pub fn seal(self) -> Result<Report, SandboxError> {
        filter::apply_to_all_threads().map_err(SandboxError::Filter)?;
        let status = read_status(&self.status);
        let report = Report::new(&status, self.view, self.landlock, self.dumpable, self.limits);
        match report.missing() {
            None => Ok(report),
            Some(wall) => Err(SandboxError::NotInForce(wall)),
        }
    }
}

/// What a worker started by root would keep of root's powers. Any other has none to drop.
fn drop_capabilities() -> Result<(), SandboxError> {
    let none = CapabilitySet::empty();
    let sets = CapabilitySets { effective: none, permitted: none, inheritable: none };
    rustix::thread::set_capabilities(None, sets).map_err(|e| step("capabilities", e.into()))
}

/// Hard limits, so that the process cannot raise them again.
fn set_limits(file_limit: u64) -> Result<(), SandboxError> {
    let limits = [
        (Resource::Core, 0),
        (Resource::Data, DATA_LIMIT),
        (Resource::Fsize, file_limit),
        (Resource::Memlock, 0),
        (Resource::Nofile, OPEN_FILES_LIMIT),
    ];
    for (resource, limit) in limits {
        // Never above what the unit already allows.
        let held = rustix::process::getrlimit(resource).maximum;
        let limit = Some(held.map_or(limit, |held| held.min(limit)));
        rustix::process::setrlimit(resource, Rlimit { current: limit, maximum: limit })
            .map_err(|e| step("resource limits", e.into()))?;
    }
    Ok(())
}

/// Read back. No limit reads as the largest number.
fn limits_in_force() -> Rlimits {
    let hard = |resource| rustix::process::getrlimit(resource).maximum.unwrap_or(u64::MAX);
    Rlimits {
        core: hard(Resource::Core),
        data: hard(Resource::Data),
        file: hard(Resource::Fsize),
        open: hard(Resource::Nofile),
    }
}

fn read_status(file: &File) -> Status {
    let mut text = vec![0; STATUS_LEN];
    let len = file.read_at(&mut text, 0).unwrap_or(0);
    Status::parse(&String::from_utf8_lossy(&text[..len]))
}

fn step(step: &'static str, cause: io::Error) -> SandboxError {
    SandboxError::Step { step, cause }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The act itself is tested in a process of its own: it is for good.
    #[test]
    fn a_process_with_a_second_thread_is_not_enclosed() {
        let (end, ended) = std::sync::mpsc::channel::<()>();
        let second = std::thread::spawn(move || ended.recv());
        let dir = tempfile::tempdir().unwrap();
        let refusal = enclose(dir.path(), 1 << 20).unwrap_err();
        assert!(matches!(refusal, SandboxError::AlreadyThreaded(2..)), "{refusal}");
        drop(end);
        second.join().unwrap().unwrap_err();
    }
}
