//! The planned files on their way into the restored database.

use std::fmt;
use std::fs::File;
use std::fs::OpenOptions;
use std::io;
use std::io::ErrorKind;
use std::path::Path;

use carlos_protocol::frames::Header;
use carlos_protocol::frames::Outcome;
use carlos_protocol::frames::Ready;
use carlos_protocol::ids::Txid;
use carlos_protocol::time::Millis;
use carlos_replica::Restore;
use carlos_replica::RestoreError;
use carlos_replica::RestoreOptions;
use carlos_replica::Restored;

use super::Failure;
use super::bad_input;
use super::bounds::BadHeader;
use super::bounds::Bounds;
use super::bounds::files;

/// A restore that waits for bytes.
pub(super) struct Receiving {
    restore: Restore,
    /// Bytes the header declared that have not come.
    left: u64,
    target: Txid,
    bounds: Bounds,
}

impl Receiving {
    /// Begins a restore to `database` of the files that `header` declares.
    pub(super) fn begin(database: &Path, header: &Header, bounds: Bounds) -> Result<Self, Failure> {
        let files = files(header).map_err(|BadHeader(what)| bad_input(what.to_owned()))?;
        let left = files.iter().map(|file| file.size).sum();
        // Nobody reads the copy after this process, so nothing is flushed to the disk.
        let options = RestoreOptions { max_bytes: bounds.restored_bytes, durable: false };
        let file = open(database).map_err(|e| unrestored(&RestoreError::Io(e)))?;
        let restore = Restore::into_file(file, files, options).map_err(|e| unrestored(&e))?;
        Ok(Self { restore, left, target: header.target, bounds })
    }

    /// Applies what came. A byte more than declared ends the restore (db-forward §8.3).
    pub(super) fn feed(&mut self, bytes: &[u8]) -> Result<(), Failure> {
        self.restore.feed(bytes).map_err(|e| unrestored(&e))?;
        self.left = self.left.saturating_sub(bytes.len() as u64);
        Ok(())
    }

    /// Every declared byte has come.
    pub(super) fn is_complete(&self) -> bool {
        self.left == 0
    }

    pub(super) fn bounds(&self) -> Bounds {
        self.bounds.clone()
    }

    /// Ends the restore and says what it holds.
    pub(super) fn finish(self) -> Result<Ready, Failure> {
        let restored = self.restore.finish().map_err(|e| unrestored(&e))?;
        if restored.txid.0 != self.target.0 {
            let what = format!("it restores to {}, not to {}", restored.txid, self.target);
            return Err(Failure(Outcome::CheckFailed, what));
        }
        Ok(ready(&restored))
    }
}

impl fmt::Debug for Receiving {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Receiving").field("left", &self.left).finish_non_exhaustive()
    }
}

/// The file that was made before the sandbox, in which none can be made. Where there is no sandbox,
/// a session makes its own.
fn open(database: &Path) -> io::Result<File> {
    let mut options = OpenOptions::new();
    options.read(true).write(true);
    match options.open(database) {
        Err(error) if error.kind() == ErrorKind::NotFound => {
            options.create_new(true).open(database)
        }
        opened => opened,
    }
}

fn ready(restored: &Restored) -> Ready {
    Ready {
        txid: Txid(restored.txid.0),
        pages: restored.pages,
        page_size: restored.page_size,
        // A clock before 1970 has no other place on the wire.
        time: Millis::new(u64::try_from(restored.time_ms).unwrap_or(0)),
    }
}

/// The end of a restore in the peer's words. The text names files and transactions, never content.
fn unrestored(error: &RestoreError) -> Failure {
    let outcome = match error {
        RestoreError::TooLarge { .. } => Outcome::TooLarge,
        RestoreError::TooManyBytes
        | RestoreError::NothingPlanned
        | RestoreError::FileTooShort { .. } => Outcome::BadInput,
        RestoreError::Io(cause) => match cause.kind() {
            ErrorKind::StorageFull | ErrorKind::QuotaExceeded => Outcome::NoRoom,
            _ => Outcome::Internal,
        },
        RestoreError::AlreadyFailed | RestoreError::OutputExists { .. } => Outcome::Internal,
        _ => Outcome::CheckFailed,
    };
    Failure(outcome, error.to_string())
}
