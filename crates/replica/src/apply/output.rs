//! The database file while it is being written.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Read, Seek, SeekFrom};
use std::path::{Path, PathBuf};

use super::RestoreError;

/// How many left-over temporary files of killed restores are stepped over.
const MAX_LEFTOVERS: u32 = 64;

/// A file that is removed, or emptied, when dropped unfinished.
pub(super) struct Output {
    file: File,
    /// `None` for a file that somebody else made and named.
    name: Option<Name>,
    kept: bool,
}

/// A temporary name beside the final one.
struct Name {
    temporary: PathBuf,
    path: PathBuf,
}

impl Output {
    pub(super) fn create(path: &Path) -> Result<Self, RestoreError> {
        refuse_existing(path)?;
        let (file, temporary) = create_temporary(path)?;
        let name = Name { temporary, path: path.to_owned() };
        Ok(Self { file, name: Some(name), kept: false })
    }

    pub(super) fn open(file: File) -> Result<Self, RestoreError> {
        file.set_len(0)?;
        Ok(Self { file, name: None, kept: false })
    }

    pub(super) fn write_at(&self, offset: u64, bytes: &[u8]) -> io::Result<()> {
        write_all_at(&self.file, offset, bytes)
    }

    pub(super) fn read_at(&mut self, offset: u64, into: &mut [u8]) -> io::Result<()> {
        self.file.seek(SeekFrom::Start(offset))?;
        self.file.read_exact(into)
    }

    /// Cuts or extends the file; what is added reads as zeros.
    pub(super) fn set_len(&self, bytes: u64) -> io::Result<()> {
        self.file.set_len(bytes)
    }

    /// Gives the file its name, and with `durable` makes both last.
    pub(super) fn keep(mut self, durable: bool) -> Result<(), RestoreError> {
        if durable {
            self.file.sync_all()?;
        }
        if let Some(Name { temporary, path }) = &self.name {
            refuse_existing(path)?;
            fs::rename(temporary, path)?;
            if durable {
                sync_directory(path)?;
            }
        }
        self.kept = true;
        Ok(())
    }
}

impl Drop for Output {
    fn drop(&mut self) {
        if self.kept {
            return;
        }
        // Nothing can be done about a failure here, and the name says what it is.
        let _ = match &self.name {
            Some(name) => fs::remove_file(&name.temporary),
            None => self.file.set_len(0),
        };
    }
}

fn refuse_existing(path: &Path) -> Result<(), RestoreError> {
    if path.symlink_metadata().is_ok() {
        return Err(RestoreError::OutputExists { path: path.display().to_string() });
    }
    Ok(())
}

fn create_temporary(path: &Path) -> Result<(File, PathBuf), RestoreError> {
    let name = path.file_name().ok_or_else(|| io::Error::from(io::ErrorKind::InvalidInput))?;
    for number in 0..MAX_LEFTOVERS {
        let mut hidden = std::ffi::OsString::from(".");
        hidden.push(name);
        hidden.push(format!(".restoring-{number}"));
        let temporary = path.with_file_name(hidden);
        match private().open(&temporary) {
            Ok(file) => return Ok((file, temporary)),
            Err(taken) if taken.kind() == io::ErrorKind::AlreadyExists => {}
            Err(failure) => return Err(failure.into()),
        }
    }
    Err(io::Error::from(io::ErrorKind::AlreadyExists).into())
}

/// A restored database holds someone's rows: only its owner may read it.
fn private() -> OpenOptions {
    let mut options = OpenOptions::new();
    options.read(true).write(true).create_new(true);
    #[cfg(unix)]
    std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
    options
}

/// One call to the system: pages that replace older ones are scattered over the file.
#[cfg(unix)]
fn write_all_at(file: &File, offset: u64, bytes: &[u8]) -> io::Result<()> {
    std::os::unix::fs::FileExt::write_all_at(file, bytes, offset)
}

#[cfg(not(unix))]
fn write_all_at(mut file: &File, offset: u64, bytes: &[u8]) -> io::Result<()> {
    file.seek(SeekFrom::Start(offset))?;
    std::io::Write::write_all(&mut file, bytes)
}

#[cfg(unix)]
fn sync_directory(path: &Path) -> io::Result<()> {
    let parent = path.parent().filter(|parent| !parent.as_os_str().is_empty());
    File::open(parent.unwrap_or_else(|| Path::new(".")))?.sync_all()
}

#[cfg(not(unix))]
fn sync_directory(_path: &Path) -> io::Result<()> {
    Ok(())
}
