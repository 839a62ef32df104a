//! The restore engine: the planned files' bytes in, a database file out.
//!
//! Bytes may come in pieces of any size and are applied as they come, so a restore overlaps its
//! download and needs no second copy of the files. Memory stays flat: one write buffer, one
//! page's stored bytes, one bit per page. The file has a temporary name until every byte of
//! every file was checked, because some damage shows only in a file's very last checksum.

mod output;
pub(crate) mod pages;
mod sheet;

use std::fs::File;
use std::path::Path;

use carlos_ltx::{Decoder, HEADER_LEN, LtxError, Txid, TxidRange};

use crate::PlannedFile;
use output::Output;
use sheet::{Sheet, SheetError};

/// What a restore may use, and how it ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RestoreOptions {
    /// The most bytes the database may have, at any point of the history that is applied.
    pub max_bytes: u64,
    /// Whether the file shall survive a power cut once the restore has returned. A throw-away
    /// copy needs no flush, and flushing is most of a restore's wall time.
    pub durable: bool,
}

/// A finished database file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Restored {
    /// The transaction it holds.
    pub txid: Txid,
    /// Its size in pages.
    pub pages: u32,
    /// Bytes per page.
    pub page_size: u32,
    /// Its size in bytes.
    pub bytes: u64,
    /// When its last transaction was synced, by the source's clock: milliseconds since the Unix
    /// epoch.
    pub time_ms: i64,
}

/// Why there is no database file.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum RestoreError {
    #[error("{file}: {cause}")]
    Damaged { file: PlannedFile, cause: LtxError },
    #[error("{file}: the header says transactions {header}")]
    NameDiffers { file: PlannedFile, header: TxidRange },
    #[error("{file} does not follow transaction {reached}")]
    NotInSequence { file: PlannedFile, reached: Txid },
    #[error("{file} has pages of {page_size} bytes, files before it {before}")]
    PageSizeDiffers { file: PlannedFile, page_size: u32, before: u32 },
    #[error("{file} says the database was deleted")]
    ZeroCommit { file: PlannedFile },
    #[error("{file} makes the database {bytes} bytes, more than the limit of {limit}")]
    TooLarge { file: PlannedFile, bytes: u64, limit: u64 },
    #[error("{file} counts {pages} pages, more than all planned files can hold")]
    PageCount { file: PlannedFile, pages: u32 },
    #[error("{file}: the database checksum before it is not the one after the file before")]
    ChecksumChain { file: PlannedFile },
    #[error("database checksum mismatch: computed {computed:#018x}, stored {stored:#018x}")]
    DatabaseChecksum { computed: u64, stored: u64 },
    #[error("page {page} is in no file since the database last grew to hold it")]
    Hole { page: u32 },
    #[error("page 1 is not that of a SQLite database of this size: {0}")]
    PageOne(&'static str),
    #[error("{file} has {} bytes, less than a header", .file.size)]
    FileTooShort { file: PlannedFile },
    #[error("{file} got {missing} bytes too few")]
    Unfinished { file: PlannedFile, missing: u64 },
    #[error("more bytes came than the planned files have")]
    TooManyBytes,
    #[error("no file is planned")]
    NothingPlanned,
    #[error("the restore already failed")]
    AlreadyFailed,
    #[error("{path} already exists")]
    OutputExists { path: String },
    #[error("writing the database failed: {0}")]
    Io(#[from] std::io::Error),
}

/// Applies planned files to a new database file.
///
/// Dropped before [`Restore::finish`] has returned, it leaves no file behind.
///
/// ```no_run
/// # fn main() -> Result<(), carlos_replica::RestoreError> {
/// # let (planned, downloads) = (Vec::new(), Vec::<Vec<u8>>::new());
/// use carlos_replica::{Restore, RestoreOptions};
///
/// let options = RestoreOptions { max_bytes: 2 << 30, durable: false };
/// let mut restore = Restore::create("shop.db".as_ref(), planned, options)?;
/// for piece in downloads {
///     restore.feed(&piece)?;
/// }
/// let restored = restore.finish()?;
/// # drop(restored); Ok(()) }
/// ```
pub struct Restore {
    files: std::vec::IntoIter<PlannedFile>,
    current: Option<Applying>,
    sheet: Sheet,
    failed: bool,
}

/// The file whose bytes are arriving.
struct Applying {
    file: PlannedFile,
    decoder: Decoder,
    /// Bytes it still has to bring.
    missing: u64,
}

impl Restore {
    /// Begins a restore to `out` from `files`, in plan order.
    ///
    /// # Errors
    /// When `out` exists or cannot be made, or the list cannot be a plan.
    pub fn create(
        out: &Path,
        files: Vec<PlannedFile>,
        options: RestoreOptions,
    ) -> Result<Self, RestoreError> {
        Self::begin(|| Output::create(out), files, options)
    }

    /// Begins a restore into `file`, open for reading and writing, whose content goes. It keeps
    /// the name it has; dropped before [`Restore::finish`] has returned, it is left empty. For a
    /// process that may make no file.
    ///
    /// # Errors
    /// When `file` cannot be written, or the list cannot be a plan.
    pub fn into_file(
        file: File,
        files: Vec<PlannedFile>,
        options: RestoreOptions,
    ) -> Result<Self, RestoreError> {
        Self::begin(|| Output::open(file), files, options)
    }

    fn begin(
        output: impl FnOnce() -> Result<Output, RestoreError>,
        files: Vec<PlannedFile>,
        options: RestoreOptions,
    ) -> Result<Self, RestoreError> {
        if let Some(file) = files.iter().find(|file| file.size < HEADER_LEN as u64) {
            return Err(RestoreError::FileTooShort { file: *file });
        }
        let first = *files.first().ok_or(RestoreError::NothingPlanned)?;
        let planned = files.iter().fold(0, |sum: u64, file| sum.saturating_add(file.size));
        let sheet = Sheet::new(output()?, first, planned, options);
        let mut restore = Self { files: files.into_iter(), current: None, sheet, failed: false };
        restore.next_file();
        Ok(restore)
    }

    /// Takes the next bytes of the planned files: all of the first, then all of the second, and
    /// so on. Pieces may cross from one file to the next.
    ///
    /// # Errors
    /// The first rule a file breaks, or a failure to write. The restore is over then.
    pub fn feed(&mut self, mut bytes: &[u8]) -> Result<(), RestoreError> {
        if self.failed {
            return Err(RestoreError::AlreadyFailed);
        }
        while !bytes.is_empty() {
            let fed = self.feed_current(bytes);
            self.failed = fed.is_err();
            bytes = &bytes[fed?..];
        }
        Ok(())
    }

    /// Ends the restore: checks the database as a whole and gives it its name.
    ///
    /// # Errors
    /// What is missing or does not fit; nothing is left behind then.
    pub fn finish(self) -> Result<Restored, RestoreError> {
        if self.failed {
            return Err(RestoreError::AlreadyFailed);
        }
        if let Some(Applying { file, missing, .. }) = self.current {
            return Err(RestoreError::Unfinished { file, missing });
        }
        self.sheet.finish()
    }

    /// Bytes that [`Restore::feed`] still waits for in the current file. Zero when all is there.
    #[must_use]
    pub fn missing_in_file(&self) -> u64 {
        self.current.as_ref().map_or(0, |current| current.missing)
    }

    fn feed_current(&mut self, bytes: &[u8]) -> Result<usize, RestoreError> {
        let current = self.current.as_mut().ok_or(RestoreError::TooManyBytes)?;
        let file = current.file;
        let len = usize::try_from(current.missing).unwrap_or(usize::MAX).min(bytes.len());
        let fed = current.decoder.feed(&bytes[..len], &mut self.sheet);
        fed.map_err(|refusal| refusal.about(file))?;
        current.missing -= len as u64;
        if current.missing == 0 {
            self.end_file()?;
        }
        Ok(len)
    }

    fn end_file(&mut self) -> Result<(), RestoreError> {
        let Some(Applying { file, decoder, .. }) = self.current.take() else {
            return Ok(());
        };
        let verified = decoder.finish().map_err(|cause| RestoreError::Damaged { file, cause })?;
        self.sheet.end(&verified);
        self.next_file();
        Ok(())
    }

    fn next_file(&mut self) {
        let Some(file) = self.files.next() else {
            return;
        };
        self.sheet.expect(file);
        self.current = Some(Applying { file, decoder: Decoder::new(), missing: file.size });
    }
}

impl SheetError {
    fn about(self, file: PlannedFile) -> RestoreError {
        match self {
            Self::Ltx(cause) => RestoreError::Damaged { file, cause },
            Self::Restore(refusal) => refusal,
        }
    }
}
