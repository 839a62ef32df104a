//! What a hostile worker would try, by name, and the words between it and the tests.

use serde::{Deserialize, Serialize};

/// Where a cloud machine asks for its credentials.
pub const METADATA: &str = "169.254.169.254:80";

/// Any other server of the machine.
pub const NEIGHBOUR: &str = "127.0.0.1:4711";

/// A socket without a path, which belongs to the network name space.
pub const ABSTRACT: &str = "carlos-acceptance";

/// Folders of the host that everybody may write in, so that only walls keep a worker out.
pub const OPEN_FOLDERS: [&str; 11] = [
    "/data/open",
    "/dev/mqueue",
    "/dev/shm",
    "/etc/open",
    "/home/open",
    "/opt/carlos/open",
    "/run/lock",
    "/run/open",
    "/srv/open",
    "/usr/local/open",
    "/var/lib/open",
];

/// One line to a worker.
#[derive(Debug, Deserialize, Serialize)]
pub struct Request {
    /// The act's name, and after a space what it needs to know.
    pub act: String,
    /// Whether it first builds the walls that a worker builds around itself.
    pub inner: bool,
}

/// One line back.
#[derive(Clone, Debug, Deserialize, PartialEq, Eq, Serialize)]
pub struct Answer {
    /// Whether the act did what it set out to do.
    pub worked: bool,
    /// What it saw or what stopped it.
    pub detail: String,
}

/// Who can do an act where there is no wall.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Control {
    /// The agent's user, in a unit without walls.
    User,
    /// Root, in a unit without walls: the act needs a power.
    Root,
}

/// An act that must fail behind the worker's own wall alone, and behind the unit's alone unless
/// there is no setting for it.
#[derive(Clone, Copy, Debug)]
pub struct Act {
    pub name: &'static str,
    pub control: Control,
    /// Whether the unit stops it as well.
    pub unit: bool,
}

const fn user(name: &'static str) -> Act {
    Act { name, control: Control::User, unit: true }
}

const fn root(name: &'static str) -> Act {
    Act { name, control: Control::Root, unit: true }
}

/// A unit limits each file, not their number.
const fn inner_only(name: &'static str) -> Act {
    Act { name, control: Control::User, unit: false }
}

/// Every act that needs no other worker (db-forward §11.4 T3).
pub const ACTS: &[Act] = &[
    user("read-registry"),
    user("read-another-tenant"),
    user("read-settings"),
    user("read-home"),
    user("read-log"),
    user("see-processes"),
    user("see-first-process"),
    user("write-anywhere"),
    user("run-a-shell"),
    user("run-from-scratch"),
    user("run-by-loader"),
    user("suid-file"),
    user("reach-metadata"),
    user("reach-neighbour"),
    user("reach-abstract"),
    user("reach-bus"),
    user("reach-journal"),
    user("reach-notify"),
    user("reach-users"),
    user("reach-own-socket"),
    user("udp"),
    user("netlink"),
    user("vsock"),
    root("raw-socket"),
    root("packet-socket"),
    user("processes"),
    user("threads"),
    user("memory"),
    user("file-size"),
    inner_only("many-files"),
    user("unshare-user"),
    root("unshare-net"),
    root("mount"),
    root("chroot"),
    user("ptrace"),
    user("io-uring"),
    user("signal-agent"),
    user("sql-attach"),
    user("sql-vacuum-into"),
];

/// Acts on another worker that holds, after [`HOLD`].
pub const SIBLING_ACTS: [&str; 4] =
    ["sibling-seen", "sibling-file", "sibling-memory", "sibling-signal"];

/// A worker with something to steal.
pub const HOLD: &str = "hold";
