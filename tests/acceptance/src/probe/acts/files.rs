//! What can be read, written and run.

use std::fs;
use std::io;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;

use carlos_tests_acceptance::acts::OPEN_FOLDERS;

use super::Attempt;

pub(super) fn read(path: &str) -> Attempt {
    let bytes = fs::read(path)?;
    if bytes.is_empty() {
        return Err("it is empty".into());
    }
    Ok(format!("{} bytes", bytes.len()))
}

/// Everybody else in /proc.
pub(super) fn see_processes() -> Attempt {
    let own = std::process::id().to_string();
    let entries = fs::read_dir("/proc")?;
    let names = entries.filter_map(|entry| entry.ok()?.file_name().into_string().ok());
    let numbers = names.filter(|name| name.chars().all(|digit| digit.is_ascii_digit()));
    let others: Vec<String> = numbers.filter(|name| *name != own).collect();
    if others.is_empty() { Err("nobody else is there".into()) } else { Ok(others.join(" ")) }
}

/// One folder is enough, and all are tried.
pub(super) fn write_anywhere() -> Attempt {
    let name = format!("made-by-{}", std::process::id());
    let made: Vec<&str> = OPEN_FOLDERS
        .into_iter()
        .filter(|folder| fs::write(Path::new(folder).join(&name), b"made").is_ok())
        .collect();
    if made.is_empty() { Err("every folder is closed".into()) } else { Ok(made.join(" ")) }
}

pub(super) fn run(program: &str) -> Attempt {
    ended(&mut Command::new(program))
}

fn ended(command: &mut Command) -> Attempt {
    let status = command.status()?;
    if status.success() { Ok(status.to_string()) } else { Err(status.to_string().into()) }
}

/// A program that came in with a tenant's bytes.
pub(super) fn run_from(scratch: &Path) -> Attempt {
    ended(&mut Command::new(brought(scratch)?))
}

/// The same, mapped by a program that may be run.
pub(super) fn run_by_loader(scratch: &Path) -> Attempt {
    let program = brought(scratch)?;
    let loader = LOADERS.into_iter().find(|loader| Path::new(loader).exists());
    ended(Command::new(loader.ok_or("no loader is here")?).arg(program))
}

const LOADERS: [&str; 2] = ["/lib64/ld-linux-x86-64.so.2", "/lib/ld-linux-aarch64.so.1"];

fn brought(scratch: &Path) -> io::Result<PathBuf> {
    let program = scratch.join("program");
    fs::copy("/bin/true", &program)?;
    fs::set_permissions(&program, fs::Permissions::from_mode(0o755))?;
    Ok(program)
}

/// A file that would run as its owner, whoever runs it.
pub(super) fn suid(scratch: &Path) -> Attempt {
    let file = scratch.join("suid");
    fs::write(&file, b"")?;
    fs::set_permissions(&file, fs::Permissions::from_mode(0o4755))?;
    Ok(format!("{:o}", fs::metadata(&file)?.permissions().mode()))
}
