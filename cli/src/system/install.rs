//! Files onto a box, and what the service manager is asked afterwards.

use std::fs;
use std::io::{self, Write as _};
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;

use super::units::{PROGRAM, Rendered, WORKER_SOCKET};
use crate::failure::Failure;
use crate::out;

/// Unit files are nobody's secret, and root's to write.
const MODE: u32 = 0o644;

/// A running machine, or the directory of one that is being built.
pub(super) struct Place<'a> {
    root: Option<&'a Path>,
}

impl<'a> Place<'a> {
    pub(super) fn new(root: Option<&'a Path>) -> Self {
        Self { root }
    }

    /// Where `path`, which is absolute, is in this place.
    pub(super) fn path(&self, path: &Path) -> PathBuf {
        match (self.root, path.strip_prefix("/")) {
            (Some(root), Ok(below)) => root.join(below),
            _ => path.to_owned(),
        }
    }

    /// Whether there is enough to begin with.
    pub(super) fn require(&self) -> Result<(), Failure> {
        if self.root.is_none() && !rustix::process::geteuid().is_root() {
            return Err(Failure::usage("only root can install units. --dry-run shows them."));
        }
        if !self.path(Path::new(PROGRAM)).is_file() {
            let sentence =
                format!("put this program at {PROGRAM} first: the units start it there.");
            return Err(Failure::usage(sentence));
        }
        Ok(())
    }

    /// Writes what is not there yet or differs, and says so; the files that were written.
    pub(super) fn write<'f>(&self, files: &'f [Rendered]) -> Result<Vec<&'f Rendered>, Failure> {
        let mut changed = Vec::new();
        for file in files {
            let path = self.path(Path::new(file.path));
            let same = fs::read_to_string(&path).is_ok_and(|found| found == file.text);
            if !same {
                replace(&path, &file.text).map_err(|error| {
                    Failure::unexpected(format!("could not write {}.", path.display()))
                        .because(error)
                })?;
                changed.push(file);
            }
            let did = if same { "unchanged" } else { "written" };
            out::lines([format!("{did} {}", path.display())])?;
        }
        Ok(changed)
    }

    /// Has the service manager take the files up and listen for the agent. Nothing is restarted
    /// but the socket, and that only when it changed: workers that run keep their connections.
    pub(super) fn apply(&self, changed: &[&Rendered]) -> Result<(), Failure> {
        if let Some(root) = self.root {
            let root = root.display().to_string();
            return ask("systemctl", &["--root", &root, "--quiet", "enable", WORKER_SOCKET]);
        }
        ask("systemd-sysusers", &["/etc/sysusers.d/carlos.conf"])?;
        ask("systemd-tmpfiles", &["--create", "/etc/tmpfiles.d/carlos.conf"])?;
        ask("systemctl", &["daemon-reload"])?;
        ask("systemctl", &["--quiet", "enable", WORKER_SOCKET])?;
        let socket_changed = changed.iter().any(|file| file.path.ends_with(WORKER_SOCKET));
        ask("systemctl", &[if socket_changed { "restart" } else { "start" }, WORKER_SOCKET])?;
        if !changed.is_empty() {
            out::say("an agent or console that runs takes its new unit when it is restarted.");
        }
        Ok(())
    }
}

/// A file is there whole or as it was, whatever happens meanwhile.
fn replace(path: &Path, text: &str) -> io::Result<()> {
    let folder = path.parent().expect("paths of units have a folder");
    fs::create_dir_all(folder)?;
    let mut file = tempfile::NamedTempFile::new_in(folder)?;
    file.write_all(text.as_bytes())?;
    file.as_file().set_permissions(fs::Permissions::from_mode(MODE))?;
    file.as_file().sync_all()?;
    file.persist(path)?;
    Ok(())
}

fn ask(program: &str, words: &[&str]) -> Result<(), Failure> {
    let failed = || Failure::unexpected(format!("{program} {} failed.", words.join(" ")));
    let output = Command::new(program).args(words).output();
    let output = output.map_err(|error| failed().because(error))?;
    if output.status.success() {
        return Ok(());
    }
    Err(failed().because(String::from_utf8_lossy(&output.stderr).trim()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn file(text: &str) -> [Rendered; 1] {
        [Rendered { path: "/etc/systemd/system/a.service", text: text.to_owned() }]
    }

    #[test]
    fn a_file_is_written_once_and_again_when_it_differs() {
        let dir = tempfile::tempdir().unwrap();
        let place = Place::new(Some(dir.path()));
        let path = dir.path().join("etc/systemd/system/a.service");
        assert_eq!(place.write(&file("one")).unwrap().len(), 1);
        assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, MODE);
        assert!(place.write(&file("one")).unwrap().is_empty());
        assert_eq!(place.write(&file("two")).unwrap().len(), 1);
        assert_eq!(fs::read_to_string(path).unwrap(), "two");
        let left = fs::read_dir(dir.path().join("etc/systemd/system")).unwrap();
        assert_eq!(left.count(), 1, "a temporary file was left");
    }

    #[test]
    fn units_without_their_program_are_not_installed() {
        let dir = tempfile::tempdir().unwrap();
        let place = Place::new(Some(dir.path()));
        assert!(place.require().unwrap_err().sentence.contains(PROGRAM));
        fs::create_dir_all(dir.path().join("opt/carlos")).unwrap();
        fs::write(dir.path().join("opt/carlos/carlos"), b"").unwrap();
        assert!(place.require().is_ok());
    }
}
