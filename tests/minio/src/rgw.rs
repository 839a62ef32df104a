//! A Ceph object gateway from the system's packages, by the scripts in `tests/minio/rgw`.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use tempfile::TempDir;

use crate::server::UserKeys;

/// What the start script calls.
const PROGRAMS: [&str; 4] = ["ceph-mon", "ceph-osd", "radosgw", "radosgw-admin"];

/// Whether its programs are here.
pub(crate) fn available() -> Result<(), String> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let folders: Vec<PathBuf> = std::env::split_paths(&path).collect();
    let missing = |name: &&str| !folders.iter().any(|folder| folder.join(name).is_file());
    match PROGRAMS.iter().find(|name| missing(name)) {
        Some(name) => Err(format!("{name} is missing (tests/minio/rgw/install)")),
        None => Ok(()),
    }
}

/// A running gateway with its store in memory.
pub(crate) struct Gateway {
    dir: TempDir,
}

impl Gateway {
    /// Starts one with these users; its URL.
    pub(crate) fn start(
        users: &BTreeMap<String, UserKeys>,
        day_seconds: Option<u32>,
    ) -> Result<(Self, String), String> {
        // A short path: sockets in it must not exceed 107 bytes.
        let dir = tempfile::Builder::new().prefix("rgw").tempdir_in("/tmp").unwrap();
        let list = dir.path().join("users");
        let lines = users.iter().fold(String::new(), |mut text, (name, keys)| {
            let _ = writeln!(text, "{name} {} {}", keys.id, keys.secret);
            text
        });
        std::fs::write(&list, lines).unwrap();
        let mut start = Command::new(script("start"));
        start.arg(home(dir.path())).arg(list).stdin(Stdio::null());
        // Ends with this process, however it ends.
        start.env("RGW_OWNER", std::process::id().to_string());
        if let Some(seconds) = day_seconds {
            start.env("RGW_LC_DAY", seconds.to_string());
        }
        let done = start.output().map_err(|error| format!("rgw/start: {error}"))?;
        if !done.status.success() {
            return Err(String::from_utf8_lossy(&done.stderr).into_owned());
        }
        let said = String::from_utf8_lossy(&done.stdout);
        let url = said.lines().last().unwrap_or_default().to_owned();
        Ok((Self { dir }, url))
    }

    pub(crate) fn stop(&self) {
        let stopped = Command::new(script("stop")).arg(home(self.dir.path())).status();
        assert!(stopped.is_ok_and(|status| status.success()), "the gateway was not stopped");
        // Statics are never dropped, and the folder holds keys.
        let _ = std::fs::remove_dir_all(self.dir.path());
    }
}

impl Drop for Gateway {
    fn drop(&mut self) {
        self.stop();
    }
}

fn home(dir: &Path) -> PathBuf {
    dir.join("ceph")
}

fn script(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("rgw").join(name)
}
