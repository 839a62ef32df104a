//! What is in force, read back from the kernel.

use std::fs;
use std::io;
use std::path::Path;

use carlos_protocol::frames::Rlimits;

use super::walls::Landlocked;

/// Network devices of the process's own network namespace, one a line after two lines of heading.
const NETWORK_DEVICES: &str = "/proc/self/net/dev";

/// Where instances keep their live databases: empty as seen by a worker (db-forward §8.3).
const DATA: &str = "/data";

/// The box's configuration and credentials: closed to a worker (db-forward §8.3).
const CONFIGURATION: &str = "/etc/carlos";

/// How much of what was asked for the kernel enforces.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Level {
    /// All of it.
    Full,
    /// Nothing.
    None,
    /// Some: an older kernel.
    Partial,
}

/// The sandbox as the kernel and the file system show it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Report {
    /// How much of the Landlock request is enforced.
    pub landlock: Level,
    /// Version of Landlock whose rights are enforced; 0 for none.
    pub landlock_abi: u32,
    /// Version of Landlock that the kernel offers; 0 when it has none or hides it.
    pub landlock_offered: u32,
    /// Hard limits.
    pub limits: Rlimits,
    /// The kernel shows a system call filter on this process.
    pub seccomp: bool,
    /// The kernel shows `NoNewPrivs: 1`.
    pub no_new_privs: bool,
    /// Neither a core dump nor a debugger of the same user gets at the memory.
    pub non_dumpable: bool,
    /// The kernel shows an empty set of effective capabilities.
    pub powerless: bool,
    /// Every network device of the namespace is loopback. Seen before Landlock closed the view.
    pub only_loopback: bool,
    /// `/data` is empty or does not exist. Seen before Landlock closed the view.
    pub data_empty: bool,
    /// `/etc/carlos` cannot be read or does not exist. Seen before Landlock closed the view.
    pub config_unreadable: bool,
    /// User id the worker runs as.
    pub uid: u32,
    /// Threads of the process, all of them under the filter.
    pub threads: u64,
}

impl Report {
    pub(super) fn new(
        status: &Status,
        view: View,
        landlock: Landlocked,
        dumpable: bool,
        limits: Rlimits,
    ) -> Self {
        Self {
            landlock: landlock.level,
            landlock_abi: landlock.abi,
            landlock_offered: landlock.offered,
            limits,
            // 2 is SECCOMP_MODE_FILTER.
            seccomp: status.seccomp == 2,
            no_new_privs: status.no_new_privs == 1,
            non_dumpable: !dumpable,
            powerless: status.capabilities == Some(0),
            only_loopback: view.only_loopback,
            data_empty: view.data_empty,
            config_unreadable: view.config_unreadable,
            uid: view.uid,
            threads: status.threads,
        }
    }

    /// The first wall that every supported kernel can put up and that does not stand. Landlock is
    /// not among them, and neither is what the unit around the process gives: the peer decides.
    pub(super) fn missing(&self) -> Option<&'static str> {
        [
            ("no_new_privs", self.no_new_privs),
            ("the system call filter", self.seccomp),
            ("the loss of capabilities", self.powerless),
            ("non-dumpability", self.non_dumpable),
        ]
        .into_iter()
        .find_map(|(wall, stands)| (!stands).then_some(wall))
    }
}

/// The lines of /proc/self/status that count here; a missing number reads as 0.
#[derive(Debug, Default)]
pub(super) struct Status {
    pub(super) capabilities: Option<u64>,
    pub(super) no_new_privs: u64,
    pub(super) seccomp: u64,
    pub(super) threads: u64,
}

impl Status {
    pub(super) fn parse(text: &str) -> Self {
        let field = |name: &str| {
            text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':')).map(str::trim)
        };
        let number = |name: &str| field(name).and_then(|value| value.parse().ok()).unwrap_or(0);
        Self {
            capabilities: field("CapEff").and_then(|value| u64::from_str_radix(value, 16).ok()),
            no_new_privs: number("NoNewPrivs"),
            seccomp: number("Seccomp"),
            threads: number("Threads"),
        }
    }
}

/// What the walls around the process leave to be seen, before its own close the view.
#[derive(Clone, Copy, Debug)]
pub(super) struct View {
    only_loopback: bool,
    data_empty: bool,
    config_unreadable: bool,
    uid: u32,
}

impl View {
    pub(super) fn take() -> Self {
        Self {
            only_loopback: fs::read_to_string(NETWORK_DEVICES)
                .is_ok_and(|devices| only_loopback(&devices)),
            data_empty: is_empty_or_absent(Path::new(DATA)),
            config_unreadable: fs::read_dir(CONFIGURATION).is_err(),
            uid: rustix::process::getuid().as_raw(),
        }
    }
}

fn only_loopback(devices: &str) -> bool {
    devices
        .lines()
        .filter_map(|line| line.split_once(':'))
        .all(|(name, _counters)| name.trim() == "lo")
}

fn is_empty_or_absent(dir: &Path) -> bool {
    match fs::read_dir(dir) {
        Ok(mut entries) => entries.next().is_none(),
        Err(error) => error.kind() == io::ErrorKind::NotFound,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn status_lines_are_found_by_their_whole_name() {
        let lines = "Threads:\t2\nCapEff:\t00000000000000c0\nNoNewPrivs:\t1\nSeccomp:\t2\n";
        let status = Status::parse(lines);
        assert_eq!((status.threads, status.no_new_privs, status.seccomp), (2, 1, 2));
        assert_eq!(status.capabilities, Some(0xc0));
        assert_eq!(Status::parse("Seccomp_filters:\t2\n").seccomp, 0);
        assert_eq!(Status::parse("").capabilities, None);
    }

    #[test]
    fn a_wall_that_does_not_stand_is_named() {
        let view =
            View { only_loopback: false, data_empty: false, config_unreadable: false, uid: 1 };
        let landlock = Landlocked { level: Level::None, abi: 0, offered: 0 };
        let report = |status: &Status, dumpable| {
            Report::new(status, view, landlock, dumpable, Rlimits::default())
        };
        let standing = Status { capabilities: Some(0), no_new_privs: 1, seccomp: 2, threads: 2 };
        assert_eq!(report(&standing, false).missing(), None);
        assert_eq!(report(&standing, true).missing(), Some("non-dumpability"));
        let powerful = Status { capabilities: Some(1), ..standing };
        assert_eq!(report(&powerful, false).missing(), Some("the loss of capabilities"));
        let strict = Status { seccomp: 1, ..standing };
        assert_eq!(report(&strict, false).missing(), Some("the system call filter"));
    }

    #[test]
    fn any_device_but_loopback_is_noticed() {
        let head = "Inter-|   Receive\n face |bytes\n";
        assert!(only_loopback(&format!("{head}    lo: 0 0\n")));
        assert!(!only_loopback(&format!("{head}    lo: 0 0\n  eth0: 1 1\n")));
    }

    #[test]
    fn an_empty_and_an_absent_directory_are_both_empty() {
        let dir = tempfile::tempdir().unwrap();
        assert!(is_empty_or_absent(dir.path()));
        assert!(is_empty_or_absent(&dir.path().join("none")));
        fs::write(dir.path().join("registry.db"), b"").unwrap();
        assert!(!is_empty_or_absent(dir.path()));
    }
}
