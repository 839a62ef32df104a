//! A file that a command writes its rows to: whole and under its name, or not at all.

use std::fs;
use std::io::{self, BufWriter, Write};
use std::path::{Path, PathBuf};

use tempfile::{Builder, NamedTempFile};

use crate::failure::Failure;

/// Where rows go, once there are any.
#[derive(Debug)]
pub struct OutputFile {
    path: PathBuf,
    replace: bool,
}

impl OutputFile {
    /// A file at `path`, which is looked at before anything is asked for: nobody should wait for
    /// rows that then have no place.
    ///
    /// # Errors
    /// When there is a file already and `replace` is not set, and when there is something else, a
    /// device or a directory or a link, which renaming would put out of the way.
    pub fn at(path: &Path, replace: bool) -> Result<Self, Failure> {
        let name = path.display();
        match fs::symlink_metadata(path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(error) => return Err(unwritten(path, &error)),
            Ok(found) if !found.is_file() => {
                return Err(Failure::usage(format!(
                    "{name} is not a file that could be replaced."
                )));
            }
            Ok(_) if !replace => {
                let sentence = format!("{name} exists already. --force replaces it.");
                return Err(Failure::usage(sentence));
            }
            Ok(_) => {}
        }
        Ok(Self { path: path.to_owned(), replace })
    }

    /// Writes beside the file and gives it its name at the end. A failure leaves what was there.
    ///
    /// # Errors
    /// Whatever the disk says, and a file that came into being meanwhile.
    pub fn write(
        &self,
        write: impl FnOnce(&mut dyn Write) -> io::Result<()>,
    ) -> Result<(), Failure> {
        self.try_write(write).map_err(|error| unwritten(&self.path, &error))
    }

    fn try_write(&self, write: impl FnOnce(&mut dyn Write) -> io::Result<()>) -> io::Result<()> {
        let mut file = self.beside()?;
        let mut buffer = BufWriter::with_capacity(BUFFER, file.as_file_mut());
        write(&mut buffer)?;
        buffer.flush()?;
        drop(buffer);
        file.as_file().sync_all()?;
        let named = match self.replace {
            true => file.persist(&self.path),
            false => file.persist_noclobber(&self.path),
        };
        named.map(drop).map_err(|error| error.error)
    }

    fn beside(&self) -> io::Result<NamedTempFile> {
        let parent = self.path.parent().filter(|parent| !parent.as_os_str().is_empty());
        let mut builder = Builder::new();
        builder.prefix(".carlos-");
        #[cfg(unix)]
        {
            use std::os::unix::fs::PermissionsExt as _;
            // Before the umask: what any program's new file may be.
            builder.permissions(fs::Permissions::from_mode(0o666));
        }
        builder.tempfile_in(parent.unwrap_or_else(|| Path::new(".")))
    }
}

/// As for stdout: rows come in small writes.
const BUFFER: usize = 64 * 1024;

fn unwritten(path: &Path, error: &io::Error) -> Failure {
    Failure::unexpected(format!("could not write {}.", path.display())).because(error)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::exit::Exit;

    fn names(dir: &Path) -> Vec<String> {
        let entries = fs::read_dir(dir).unwrap();
        let mut names: Vec<String> =
            entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
        names.sort();
        names
    }

    #[test]
    fn a_file_is_replaced_only_when_asked() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("rows.csv");
        OutputFile::at(&path, false).unwrap().write(|file| file.write_all(b"one")).unwrap();
        let refused = OutputFile::at(&path, false).unwrap_err();
        assert_eq!(refused.exit, Exit::Usage);
        OutputFile::at(&path, true).unwrap().write(|file| file.write_all(b"two")).unwrap();
        assert_eq!(fs::read(&path).unwrap(), b"two");
        assert_eq!(names(dir.path()), ["rows.csv"]);
    }

    #[test]
    fn what_fails_half_way_leaves_what_was_there() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("rows.csv");
        fs::write(&path, "old").unwrap();
        let full = |file: &mut dyn Write| {
            file.write_all(&[0; 100_000])?;
            Err(io::ErrorKind::StorageFull.into())
        };
        let failure = OutputFile::at(&path, true).unwrap().write(full).unwrap_err();
        assert_eq!(failure.exit, Exit::Unexpected);
        assert_eq!(fs::read(&path).unwrap(), b"old");
        assert_eq!(names(dir.path()), ["rows.csv"]);
    }

    #[test]
    fn a_file_that_came_meanwhile_is_not_replaced() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("rows.csv");
        let output = OutputFile::at(&path, false).unwrap();
        let race = |file: &mut dyn Write| {
            fs::write(&path, "theirs")?;
            file.write_all(b"ours")
        };
        assert!(output.write(race).is_err());
        assert_eq!(fs::read(&path).unwrap(), b"theirs");
        assert!(OutputFile::at(dir.path(), true).is_err(), "a directory");
    }

    #[cfg(unix)]
    #[test]
    fn links_stay_and_the_mode_is_any_new_files() {
        use std::os::unix::fs::PermissionsExt as _;
        let dir = tempfile::tempdir().unwrap();
        let (path, plain, link) =
            (dir.path().join("rows"), dir.path().join("plain"), dir.path().join("link"));
        OutputFile::at(&path, false).unwrap().write(|_| Ok(())).unwrap();
        fs::write(&plain, "").unwrap();
        let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode();
        assert_eq!(mode(&path), mode(&plain));
        std::os::unix::fs::symlink(&path, &link).unwrap();
        assert!(OutputFile::at(&link, true).is_err());
    }
}
