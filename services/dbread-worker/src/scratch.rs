//! Scratch: the one directory a worker writes in, and how a dead worker's is swept.
//!
//! # The convention on disk
//!
//! Under a scratch root (default `/var/tmp`) each worker owns one directory:
//!
//! ```text
//! <root>/carlos-dbread-<pid>-<16 lower-case hex digits>/   mode 0700, owned by the worker's user
//!     lock                                                 empty, mode 0400; flock'ed exclusively
//!     database                                             the restored copy, empty at first
//! ```
//!
//! Both files are there before the worker's sandbox is, in which no file can be made: so what a
//! worker can fill is one file, and its size limit is the limit of all its scratch.
//!
//! The worker holds an exclusive `flock(2)` on `lock` from the moment the directory exists until
//! its process is gone; the kernel gives it back however the process ends. So whoever can take
//! the lock knows that the owner is dead, and may remove the directory:
//!
//! 1. list `<root>` for directories (not links) with the prefix, owned by the remover's user;
//! 2. open `lock` for reading (create it when it is missing, never follow a link);
//! 3. try to take the lock without waiting: held means alive, leave it;
//! 4. remove the whole directory while holding the lock.
//!
//! The parent does this when a worker has ended and once when it starts, which covers what a kill
//! of both leaves (db-forward §5.7). Under systemd the whole root is private to the unit and goes
//! with it. A worker that makes its directory while somebody sweeps can lose it between the two
//! steps of making it; it then makes another, so a directory that a worker uses is always locked.

use std::fs;
use std::fs::DirBuilder;
use std::fs::File;
use std::fs::OpenOptions;
use std::fs::TryLockError;
use std::io;
use std::os::unix::fs::DirBuilderExt;
use std::os::unix::fs::MetadataExt;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use std::path::PathBuf;

use rustix::fs::OFlags;
use rustix::rand::GetRandomFlags;

use crate::session::DATABASE;

/// Where scratch directories are made when nothing else is configured. On disk on Debian 13,
/// where `/tmp` is memory (db-forward §8.3).
pub const DEFAULT_ROOT: &str = "/var/tmp";

/// How every scratch directory's name begins.
pub const DIR_PREFIX: &str = "carlos-dbread-";

/// Name of the file in a scratch directory whose lock says that its owner lives.
pub const LOCK_FILE: &str = "lock";

/// A lock is a plain file: a link is not followed, and a pipe put there in its place does not make
/// the opener wait.
const SAFE_OPEN: OFlags = OFlags::NOFOLLOW.union(OFlags::NONBLOCK);

/// Tries at making a directory. A try fails only when a sweep runs at that very moment or a name
/// of 64 random bits is taken, so a second failure in a row already means something else.
const CREATE_TRIES: u32 = 8;

/// A scratch directory that this process holds.
#[derive(Debug)]
pub struct Scratch {
    path: PathBuf,
    _lock: File,
}

impl Scratch {
    /// Makes a directory of its own under `root` and takes its lock.
    ///
    /// # Errors
    /// What the file system says: no such root, no permission, no space.
    pub fn create(root: &Path) -> io::Result<Self> {
        let mut last = io::Error::other("no scratch directory was tried");
        for _ in 0..CREATE_TRIES {
            match Self::try_create(root) {
                Ok(scratch) => return Ok(scratch),
                Err(error) if lost_a_race(&error) => last = error,
                Err(error) => return Err(error),
            }
        }
        Err(last)
    }

    /// The directory.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    fn try_create(root: &Path) -> io::Result<Self> {
        let path = root.join(fresh_name()?);
        DirBuilder::new().mode(0o700).create(&path)?;
        make(&path.join(LOCK_FILE), 0o400)?;
        let lock = lock_options().open(path.join(LOCK_FILE))?;
        lock.try_lock().map_err(io::Error::from)?;
        make(&path.join(DATABASE), 0o600)?;
        // A sweep may have taken the directory before the lock was ours: then what is locked is
        // a file without a name.
        if fs::metadata(path.join(LOCK_FILE))?.ino() != lock.metadata()?.ino() {
            return Err(io::ErrorKind::NotFound.into());
        }
        Ok(Self { path, _lock: lock })
    }
}

/// What a sweep did.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Swept {
    /// Directories removed: their owners are gone.
    pub removed: usize,
    /// Directories left: their owners live.
    pub alive: usize,
    /// Directories that should have gone and could not be removed.
    pub stuck: usize,
}

/// Removes every scratch directory of this user under `root` whose owner is gone.
///
/// # Errors
/// When `root` cannot be listed. A directory that cannot be removed is counted, not an error.
pub fn sweep(root: &Path) -> io::Result<Swept> {
    sweep_beside(root, |_pid| false)
}

/// As [`sweep`], and leaves out of all counts what belongs to the processes that `known` names.
///
/// # Errors
/// As [`sweep`].
pub fn sweep_beside(root: &Path, known: impl Fn(u32) -> bool) -> io::Result<Swept> {
    let mut swept = Swept::default();
    for entry in fs::read_dir(root)? {
        let path = entry?.path();
        if !is_ours(&path) || owner(&path).is_some_and(&known) {
            continue;
        }
        match remove_if_dead(&path) {
            Ok(true) => swept.removed += 1,
            Ok(false) => swept.alive += 1,
            // Another sweep was faster.
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(_) => swept.stuck += 1,
        }
    }
    Ok(swept)
}

/// A directory by the convention that this user owns. In a root that everybody may write in,
/// somebody else's directory or a link by that name is none of our business.
fn is_ours(path: &Path) -> bool {
    let named = path
        .file_name()
        .and_then(|name| name.to_str())
        .is_some_and(|name| name.starts_with(DIR_PREFIX));
    named
        && fs::symlink_metadata(path)
            .is_ok_and(|meta| meta.is_dir() && meta.uid() == rustix::process::geteuid().as_raw())
}

/// The process that made a directory, by its name.
fn owner(path: &Path) -> Option<u32> {
    let name = path.file_name()?.to_str()?.strip_prefix(DIR_PREFIX)?;
    name.split('-').next()?.parse().ok()
}

fn remove_if_dead(path: &Path) -> io::Result<bool> {
    let lock = lock_options().open(path.join(LOCK_FILE)).or_else(|error| match error.kind() {
        io::ErrorKind::NotFound => make(&path.join(LOCK_FILE), 0o400),
        _ => Err(error),
    })?;
    match lock.try_lock() {
        Ok(()) => fs::remove_dir_all(path).map(|()| true),
        Err(TryLockError::WouldBlock) => Ok(false),
        Err(TryLockError::Error(error)) => Err(error),
    }
}

/// Makes an empty file; what is returned can write it, whatever `mode` says.
fn make(path: &Path, mode: u32) -> io::Result<File> {
    OpenOptions::new().write(true).create_new(true).mode(mode).open(path)
}

/// For reading only: a lock that its owner could write to would be a second file to fill.
fn lock_options() -> OpenOptions {
    let mut options = OpenOptions::new();
    options.read(true).custom_flags(SAFE_OPEN.bits() as i32);
    options
}

fn lost_a_race(error: &io::Error) -> bool {
    use io::ErrorKind;
    matches!(error.kind(), ErrorKind::AlreadyExists | ErrorKind::NotFound | ErrorKind::WouldBlock)
}

fn fresh_name() -> io::Result<String> {
    let mut salt = [0u8; 8];
    rustix::rand::getrandom(&mut salt, GetRandomFlags::empty())?;
    Ok(format!("{DIR_PREFIX}{}-{:016x}", std::process::id(), u64::from_ne_bytes(salt)))
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;

    #[test]
    fn a_scratch_directory_is_private_and_locked() {
        let root = tempfile::tempdir().unwrap();
        let scratch = Scratch::create(root.path()).unwrap();
        assert_eq!(fs::metadata(scratch.path()).unwrap().mode() & 0o777, 0o700);
        assert_eq!(sweep(root.path()).unwrap(), Swept { alive: 1, ..Swept::default() });
        assert!(scratch.path().exists());
    }

    #[test]
    fn a_dead_owners_directory_is_swept_with_what_is_in_it() {
        let root = tempfile::tempdir().unwrap();
        let scratch = Scratch::create(root.path()).unwrap();
        fs::write(scratch.path().join("db"), b"rows").unwrap();
        let path = scratch.path().to_owned();
        drop(scratch);
        assert_eq!(sweep(root.path()).unwrap(), Swept { removed: 1, ..Swept::default() });
        assert!(!path.exists());
    }

    #[test]
    fn a_directory_without_a_lock_is_swept() {
        let root = tempfile::tempdir().unwrap();
        fs::create_dir(root.path().join("carlos-dbread-1-0")).unwrap();
        assert_eq!(sweep(root.path()).unwrap().removed, 1);
    }

    #[test]
    fn links_and_other_names_are_left_alone() {
        let root = tempfile::tempdir().unwrap();
        let outside = tempfile::tempdir().unwrap();
        fs::write(outside.path().join("keep"), b"").unwrap();
        symlink(outside.path(), root.path().join("carlos-dbread-2-0")).unwrap();
        fs::create_dir(root.path().join("other")).unwrap();
        fs::write(root.path().join("carlos-dbread-file"), b"").unwrap();
        assert_eq!(sweep(root.path()).unwrap(), Swept::default());
        assert!(outside.path().join("keep").exists());
    }

    #[test]
    fn a_lock_that_is_a_link_is_not_followed() {
        let root = tempfile::tempdir().unwrap();
        let dir = root.path().join("carlos-dbread-3-0");
        fs::create_dir(&dir).unwrap();
        symlink(root.path().join("made"), dir.join(LOCK_FILE)).unwrap();
        assert_eq!(sweep(root.path()).unwrap().stuck, 1);
        assert!(!root.path().join("made").exists());
    }

    #[test]
    fn a_root_that_is_missing_is_an_error() {
        let root = tempfile::tempdir().unwrap();
        assert!(Scratch::create(&root.path().join("none")).is_err());
        assert!(sweep(&root.path().join("none")).is_err());
    }
}
