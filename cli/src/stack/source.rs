//! A person's own SQLite file as the source of a replica: opened read-only, copied inside one
//! read transaction, never checkpointed.

use std::fs::{self, File};
use std::io::{self, Read as _, Seek as _, SeekFrom};
use std::path::{Path, PathBuf};
use std::time::Duration;

use carlos_replica::writer::PageSource;
use rusqlite::backup::{Backup, StepResult};
use rusqlite::{Connection, ErrorCode, OpenFlags};

/// How long a copy waits for a writer that holds the file; after that the next look tries again.
const BUSY_WAIT: Duration = Duration::from_secs(2);
/// Every page in one step, so that the copy is one state of the database.
const ALL_PAGES: i32 = -1;

/// Why the source could not be read this time.
#[derive(Debug, thiserror::Error)]
pub enum SourceError {
    #[error("{path} cannot be read as a SQLite database: {cause}")]
    Sqlite { path: String, cause: rusqlite::Error },
    #[error("{path} is locked by another program")]
    Busy { path: String },
    #[error(
        "{path} cannot be read without writing: a transaction in it was cut off, or it is in WAL \
         mode in a folder that cannot be written. open it once with its own program, or name a copy"
    )]
    NeedsWriting { path: String },
    #[error("{path} is gone; queries still answer from its last state")]
    Gone { path: String },
    #[error("the copy of {path} cannot be read: {cause}")]
    Io { path: String, cause: std::io::Error },
}

/// A database file that somebody else owns and writes.
pub(crate) struct Source {
    path: PathBuf,
    db: Connection,
    seen: Option<i64>,
    identity: Identity,
}

/// Which file a path names. Another one may be moved into its place while this one is open.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Identity(u64, u64);

impl Identity {
    fn of(path: &Path) -> Result<Self, SourceError> {
        use std::os::unix::fs::MetadataExt as _;
        let path_text = || path.display().to_string();
        match fs::metadata(path) {
            Ok(found) => Ok(Self(found.dev(), found.ino())),
            Err(cause) if cause.kind() == io::ErrorKind::NotFound => {
                Err(SourceError::Gone { path: path_text() })
            }
            Err(cause) => Err(SourceError::Io { path: path_text(), cause }),
        }
    }
}

impl Source {
    /// Opens `path` read-only. Nothing is written to it. Beside a database in WAL mode SQLite makes
    /// the `-shm` and the empty `-wal` that every reader needs, when they are not there.
    pub(crate) fn open(path: &Path) -> Result<Self, SourceError> {
        let flags = OpenFlags::SQLITE_OPEN_READ_ONLY | OpenFlags::SQLITE_OPEN_NO_MUTEX;
        let failed = |cause| refused(path, cause);
        let identity = Identity::of(path)?;
        let db = Connection::open_with_flags(path, flags).map_err(failed)?;
        db.busy_timeout(BUSY_WAIT).map_err(failed)?;
        // A file that is no database must be refused now, not at the first copy.
        db.query_row("SELECT count(*) FROM sqlite_schema", [], |row| row.get::<_, i64>(0))
            .map_err(failed)?;
        Ok(Self { path: path.to_path_buf(), db, seen: None, identity })
    }

    /// Whether there is something that the last copy does not hold: a commit of another
    /// connection, or another file in this one's place.
    pub(crate) fn changed(&mut self) -> Result<bool, SourceError> {
        if Identity::of(&self.path)? != self.identity {
            *self = Self::open(&self.path.clone())?;
        }
        Ok(self.seen != Some(self.data_version()?))
    }

    /// Copies the current state to `copy` and opens it as a sequence of pages.
    ///
    /// The version is read before the copy: a commit between the two makes the next look see a
    /// change that the copy already holds, never the other way round.
    pub(crate) fn copy_to(&mut self, copy: &Path) -> Result<Pages, SourceError> {
        let version = self.data_version()?;
        self.backup(copy)?;
        self.seen = Some(version);
        Pages::open(copy)
    }

    /// Makes the next look see a change.
    pub(crate) fn forget(&mut self) {
        self.seen = None;
    }

    fn backup(&self, copy: &Path) -> Result<(), SourceError> {
        discard(copy).map_err(|cause| unreadable(copy, cause))?;
        let mut target = Connection::open(copy).map_err(|e| self.failed(e))?;
        let backup = Backup::new(&self.db, &mut target).map_err(|e| self.failed(e))?;
        match backup.step(ALL_PAGES).map_err(|e| self.failed(e))? {
            StepResult::Done => Ok(()),
            _ => Err(SourceError::Busy { path: self.path.display().to_string() }),
        }
    }

    fn data_version(&self) -> Result<i64, SourceError> {
        self.db
            .query_row("PRAGMA data_version", [], |row| row.get(0))
            .map_err(|cause| self.failed(cause))
    }

    fn failed(&self, cause: rusqlite::Error) -> SourceError {
        refused(&self.path, cause)
    }
}

fn refused(path: &Path, cause: rusqlite::Error) -> SourceError {
    let path = path.display().to_string();
    match cause.sqlite_error_code() {
        Some(ErrorCode::ReadOnly) => SourceError::NeedsWriting { path },
        _ => SourceError::Sqlite { path, cause },
    }
}

fn unreadable(copy: &Path, cause: io::Error) -> SourceError {
    SourceError::Io { path: copy.display().to_string(), cause }
}

/// Removes the last copy with its side files. SQLite would keep its journal mode, and a database in
/// WAL mode takes no copy of another page size.
fn discard(copy: &Path) -> io::Result<()> {
    for suffix in ["", "-journal", "-shm", "-wal"] {
        let mut name = copy.as_os_str().to_owned();
        name.push(suffix);
        match fs::remove_file(&name) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            _ => {}
        }
    }
    Ok(())
}

/// The pages of a private copy, which nobody writes while they are read.
pub(crate) struct Pages {
    file: File,
    page_size: u32,
    commit: u32,
}

/// Where SQLite's header keeps the page size; 1 stands for 65,536.
const PAGE_SIZE_OFFSET: u64 = 16;

impl Pages {
    /// Removes a copy, if there is one.
    pub(crate) fn discard(copy: &Path) -> Result<(), SourceError> {
        discard(copy).map_err(|cause| unreadable(copy, cause))
    }

    /// Opens a copy.
    pub(crate) fn open(copy: &Path) -> Result<Self, SourceError> {
        Self::read(copy).map_err(|cause| unreadable(copy, cause))
    }

    fn read(copy: &Path) -> io::Result<Self> {
        let mut file = File::open(copy)?;
        let bytes = file.metadata()?.len();
        let mut stored = [0; 2];
        file.seek(SeekFrom::Start(PAGE_SIZE_OFFSET))?;
        file.read_exact(&mut stored)?;
        let page_size = match u16::from_be_bytes(stored) {
            1 => 65_536,
            size => u32::from(size),
        };
        let commit = u32::try_from(bytes / u64::from(page_size.max(1)))
            .map_err(|_| io::Error::from(io::ErrorKind::FileTooLarge))?;
        Ok(Self { file, page_size, commit })
    }
}

impl PageSource for Pages {
    fn page_size(&self) -> u32 {
        self.page_size
    }

    fn commit(&self) -> u32 {
        self.commit
    }

    fn read_page(&mut self, number: u32, page: &mut [u8]) -> io::Result<()> {
        let before = u64::from(number - 1) * u64::from(self.page_size);
        self.file.seek(SeekFrom::Start(before))?;
        self.file.read_exact(page)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn writer(path: &Path) -> Connection {
        let db = Connection::open(path).unwrap();
        db.pragma_update(None, "journal_mode", "wal").unwrap();
        db.execute_batch("CREATE TABLE t (n INTEGER)").unwrap();
        db
    }

    #[test]
    fn a_commit_is_noticed_and_copied() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("a.db");
        let db = writer(&path);
        let mut source = Source::open(&path).unwrap();
        assert!(source.changed().unwrap());
        let copy = dir.path().join("copy.db");
        source.copy_to(&copy).unwrap();
        assert!(!source.changed().unwrap());
        db.execute("INSERT INTO t VALUES (7)", []).unwrap();
        assert!(source.changed().unwrap());
        let mut pages = source.copy_to(&copy).unwrap();
        let mut page = vec![0; pages.page_size() as usize];
        pages.read_page(1, &mut page).unwrap();
        assert!(page.starts_with(b"SQLite format 3\0"));
        let held: i64 = Connection::open(&copy)
            .unwrap()
            .query_row("SELECT n FROM t", [], |row| row.get(0))
            .unwrap();
        assert_eq!(held, 7);
    }

    #[test]
    fn another_file_in_its_place_is_noticed() {
        let dir = tempfile::tempdir().unwrap();
        let (path, other) = (dir.path().join("a.db"), dir.path().join("b.db"));
        drop(writer(&path));
        drop(writer(&other));
        let mut source = Source::open(&path).unwrap();
        source.copy_to(&dir.path().join("copy.db")).unwrap();
        fs::rename(&other, &path).unwrap();
        assert!(source.changed().unwrap());
        source.copy_to(&dir.path().join("copy.db")).unwrap();
        assert!(!source.changed().unwrap());
        fs::remove_file(&path).unwrap();
        assert!(matches!(source.changed(), Err(SourceError::Gone { .. })));
    }

    #[test]
    fn the_source_keeps_its_wal() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("a.db");
        let db = writer(&path);
        let wal = dir.path().join("a.db-wal");
        let before = std::fs::read(&wal).unwrap();
        let mut source = Source::open(&path).unwrap();
        source.copy_to(&dir.path().join("copy.db")).unwrap();
        drop(source);
        assert_eq!(std::fs::read(&wal).unwrap(), before);
        drop(db);
    }

    #[test]
    fn a_copy_may_follow_one_of_another_page_size() {
        let dir = tempfile::tempdir().unwrap();
        let (wal, plain) = (dir.path().join("wal.db"), dir.path().join("plain.db"));
        let _writer = writer(&wal);
        let large = "PRAGMA page_size = 8192; CREATE TABLE t (n INTEGER)";
        Connection::open(&plain).unwrap().execute_batch(large).unwrap();
        let copy = dir.path().join("copy.db");
        for (path, size) in [(&wal, 4096), (&wal, 4096), (&plain, 8192), (&wal, 4096)] {
            let pages = Source::open(path).unwrap().copy_to(&copy).unwrap();
            assert_eq!(pages.page_size(), size);
        }
    }

    #[test]
    fn a_cut_off_transaction_is_left_to_its_owner() {
        let dir = tempfile::tempdir().unwrap();
        let (path, journal) = (dir.path().join("a.db"), dir.path().join("a.db-journal"));
        let db = Connection::open(&path).unwrap();
        db.execute_batch("CREATE TABLE t (x); PRAGMA cache_size = 1; BEGIN").unwrap();
        db.execute("INSERT INTO t VALUES (zeroblob(1000000))", []).unwrap();
        let cut = dir.path().join("cut.db");
        fs::copy(&path, &cut).unwrap();
        fs::copy(&journal, dir.path().join("cut.db-journal")).unwrap();
        let before = fs::read(&cut).unwrap();
        assert!(matches!(Source::open(&cut), Err(SourceError::NeedsWriting { .. })));
        assert_eq!(fs::read(&cut).unwrap(), before);
    }

    #[test]
    fn what_is_no_database_is_refused_at_once() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("a.db");
        std::fs::write(&path, b"not a database, but long enough to look like a header of one....")
            .unwrap();
        assert!(matches!(Source::open(&path), Err(SourceError::Sqlite { .. })));
        assert!(Source::open(&dir.path().join("absent.db")).is_err());
    }
}
