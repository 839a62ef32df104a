//! One worker against another.

use std::fs::{self, File};
use std::os::unix::fs::FileExt as _;
use std::path::Path;

use super::Attempt;

const SECRET: &str = "another tenant's row";

/// Becomes the one with a secret, in a file and in memory; says where.
pub(super) fn hold(scratch: &Path) -> Attempt {
    let secret: &'static str = String::from(SECRET).leak();
    let file = scratch.join("secret");
    // The walls of its own leave it memory only.
    let _ = fs::write(&file, secret);
    let address = secret.as_ptr().addr();
    Ok(format!("{} {address} {}", std::process::id(), file.display()))
}

pub(super) fn seen(about: &str) -> Attempt {
    let (pid, ..) = parts(about)?;
    let line = fs::read(format!("/proc/{pid}/cmdline"))?;
    Ok(String::from_utf8_lossy(&line).into_owned())
}

/// The other's private scratch, through its view of the file system or by its own path.
pub(super) fn file(about: &str) -> Attempt {
    let (pid, _, path) = parts(about)?;
    let through = fs::read_to_string(format!("/proc/{pid}/root{path}"));
    let found = through.or_else(|_| fs::read_to_string(path))?;
    stolen(&found)
}

pub(super) fn memory(about: &str) -> Attempt {
    let (pid, address, _) = parts(about)?;
    let memory = File::open(format!("/proc/{pid}/mem"))?;
    let mut bytes = vec![0; SECRET.len()];
    memory.read_exact_at(&mut bytes, address.parse()?)?;
    stolen(&String::from_utf8_lossy(&bytes))
}

pub(super) fn signal(about: &str) -> Attempt {
    let (pid, ..) = parts(about)?;
    let pid = rustix::process::Pid::from_raw(pid.parse()?).ok_or("a process id")?;
    rustix::process::test_kill_process(pid)?;
    Ok("reached".into())
}

fn parts(about: &str) -> Result<(&str, &str, &str), String> {
    let mut words = about.split(' ');
    let mut next = || words.next().ok_or_else(|| format!("{about:?} names no worker"));
    Ok((next()?, next()?, next()?))
}

fn stolen(found: &str) -> Attempt {
    if found == SECRET { Ok(found.to_owned()) } else { Err("not what was looked for".into()) }
}
