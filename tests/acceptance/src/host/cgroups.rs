//! The part of the control groups that is lent to a host.
//!
//! Where a machine has the controllers on version 1, nspawn mounts them read-only, and a unit's
//! limits on memory, tasks and CPU are accepted and hold nothing. So a host gets a group of its
//! own in each hierarchy, which is the root of what it sees, and its first program makes the
//! mounts writable before it becomes systemd. On version 2 nspawn does all of it.

use std::fs;
use std::path::{Path, PathBuf};

/// Where the hierarchies are.
const TREE: &str = "/sys/fs/cgroup";

/// Those whose limits the units use, and those that systemd keeps its own books in.
const HIERARCHIES: [&str; 7] =
    ["memory", "cpu", "cpuacct", "pids", "devices", "systemd", "unified"];

/// How a host's groups begin; the process id of the tests and the host's name follow.
const PREFIX: &str = "carlos-acceptance-";

/// One host's groups, by hierarchy; none on version 2.
pub(super) struct Cgroups(Vec<PathBuf>);

impl Cgroups {
    /// Makes them, and removes what dead hosts left.
    pub(super) fn make(name: &str) -> Self {
        let hierarchies = hierarchies();
        hierarchies.iter().for_each(|hierarchy| remove_orphaned(hierarchy));
        let name = format!("{PREFIX}{}-{name}", std::process::id());
        let folders: Vec<PathBuf> = hierarchies.iter().map(|tree| tree.join(&name)).collect();
        Self(folders.into_iter().filter(|folder| fs::create_dir(folder).is_ok()).collect())
    }

    pub(super) fn folders(&self) -> Vec<PathBuf> {
        self.0.clone()
    }

    /// Whether nspawn has to be told that its groups are made already.
    pub(super) fn are_lent(&self) -> bool {
        !self.0.is_empty()
    }

    pub(super) fn remove(&self) {
        // A killed process leaves its group a moment after it has gone.
        for _ in 0..100 {
            self.0.iter().for_each(|folder| remove_tree(folder));
            if !self.0.iter().any(|folder| folder.exists()) {
                return;
            }
            std::thread::sleep(std::time::Duration::from_millis(20));
        }
    }
}

/// Shell words that make the lent groups writable from inside.
pub(super) fn unlock() -> String {
    let limits = HIERARCHIES.iter().take(5);
    // The mount's own flag: the file system itself is shared and stays as it is.
    let lines = limits.map(|name| format!("mount -o remount,bind,rw {TREE}/{name} || exit 1\n"));
    if hierarchies().is_empty() { String::new() } else { lines.collect() }
}

fn hierarchies() -> Vec<PathBuf> {
    let folders = HIERARCHIES.iter().map(|name| Path::new(TREE).join(name));
    // Some are links to others; on version 2 none exists.
    let real = |folder: &PathBuf| fs::symlink_metadata(folder).is_ok_and(|meta| meta.is_dir());
    folders.filter(real).collect()
}

/// Groups of test programs that are gone. Those of a living one may be empty still.
fn remove_orphaned(hierarchy: &Path) {
    let entries = fs::read_dir(hierarchy).into_iter().flatten().flatten();
    let orphaned = entries.filter(|entry| {
        let name = entry.file_name().to_string_lossy().into_owned();
        let owner = name.strip_prefix(PREFIX).and_then(|rest| rest.split('-').next());
        owner.is_some_and(|pid| !Path::new("/proc").join(pid).exists())
    });
    orphaned.for_each(|entry| remove_tree(&entry.path()));
}

/// Removes groups without processes; the kernel keeps the others.
fn remove_tree(folder: &Path) {
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    for entry in entries.filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_dir())) {
        remove_tree(&entry.path());
    }
    let _ = fs::remove_dir(folder);
}
