//! A box: a host with the product's units installed as an operator installs them.

use std::path::{Path, PathBuf};
use std::time::Duration;

use crate::deployment::Deployment;
use crate::eventually;
use crate::host::{Host, Network};

/// The workers' socket (db-forward §8.3).
pub const SOCKET: &str = "/run/carlos-dbread/worker.sock";

/// The program that units start.
pub const PROGRAM: &str = "/opt/carlos/carlos";

/// The unit of every worker.
pub const WORKER: &str = "carlos-dbread@.service";

/// Thirty seconds, of which a probe takes one.
const READY_LOOKS: u32 = 300;
const LOOK_AGAIN: Duration = Duration::from_millis(100);

/// A host with units.
pub struct Station {
    pub host: Host,
}

impl Station {
    /// Boots a host and installs the units with the limits of `settings`.
    ///
    /// # Panics
    /// When the host does not boot or the units do not install.
    pub fn boot(network: Network, settings: &str) -> Self {
        let host = Host::boot(network).unwrap_or_else(|why| panic!("{why}"));
        host.install(&program("carlos"), PROGRAM);
        // What a worker must not see, readable by mode: only the unit's walls hide it.
        host.write("/data/registry.db", "registry", 0o644);
        host.write("/data/instances/other.example.com/app.db", "tenant", 0o644);
        host.write("/etc/carlos/host.env", "secret", 0o644);
        host.write("/etc/carlos/agent.env", settings, 0o600);
        let station = Self { host };
        station.host.ok(&[PROGRAM, "system", "install-units"]);
        station
    }

    /// A box of `deployment` in `uk`, whose agent runs and offers reads.
    pub fn serving(deployment: &Deployment) -> Self {
        let station = Self::boot(Network::Shared, &settings(deployment, &[]));
        station.host.ok(&["systemctl", "enable", "--now", "carlos-agent.service"]);
        station.until_ready();
        station
    }

    /// Waits until the agent has found its workers in order.
    pub fn until_ready(&self) {
        for _ in 0..READY_LOOKS {
            if self.agent_log().contains("ready=true") {
                return;
            }
            std::thread::sleep(LOOK_AGAIN);
        }
        panic!("the box offers no reads: {}\n{}", self.agent_log(), self.host.tail());
    }

    /// What the agent has logged in this run of it.
    pub fn agent_log(&self) -> String {
        let run = self.host.show("carlos-agent.service", "InvocationID");
        let of = format!("_SYSTEMD_INVOCATION_ID={run}");
        self.host.run(&["journalctl", "--no-pager", "--quiet", "-o", "cat", &of]).stdout
    }

    /// Names of the workers' units that run, start or stop.
    pub fn workers(&self) -> Vec<String> {
        let listed = self.host.ok(&[
            "systemctl",
            "list-units",
            "--all",
            "--plain",
            "--no-legend",
            "carlos-dbread@*.service",
        ]);
        listed.lines().filter_map(|line| line.split_whitespace().next()).map(Into::into).collect()
    }

    /// Private scratch of workers that is left on the host's disk.
    pub fn scratch(&self) -> Vec<PathBuf> {
        let folders = ["/var/tmp", "/tmp"].map(|folder| self.host.path(folder));
        let entries = folders.iter().flat_map(|folder| std::fs::read_dir(folder).unwrap());
        let paths = entries.map(|entry| entry.unwrap().path());
        paths.filter(|path| path.to_string_lossy().contains("carlos-dbread")).collect()
    }

    /// Waits until no worker is left, and sees that its scratch is gone with it.
    pub fn until_alone(&self) {
        eventually("every worker has stopped", || self.workers().is_empty().then_some(()));
        assert_eq!(self.scratch(), Vec::<PathBuf>::new(), "scratch is left");
    }
}

/// The settings of an agent in `uk`. The host's disk is memory, so the floors are small.
pub fn settings(deployment: &Deployment, more: &[(&str, &str)]) -> String {
    let data = format!("s3://{}", deployment.buckets.data("uk"));
    let own = [
        ("CARLOS_BOX", "box-uk"),
        ("CARLOS_REGION", "uk"),
        ("CARLOS_RELEASE_PUBKEY", &deployment.public_key),
        ("CARLOS_HIBERNATE_BUCKET", &data),
        ("CARLOS_HIBERNATE_PREFIX", "replicas"),
        ("CARLOS_DB_READ_MAX_BYTES", "67108864"),
        ("CARLOS_DB_READ_DISK_FLOOR_BYTES", "1048576"),
        ("CARLOS_DB_READ_DISK_FLOOR_PERCENT", "0"),
    ];
    let vars = deployment.vars("box-uk", &[&own[..], more].concat());
    vars.iter().map(|(name, value)| format!("{name}={value}\n")).collect()
}

/// A program that was built beside the tests.
///
/// # Panics
/// When it was not.
pub fn program(name: &str) -> PathBuf {
    let test = std::env::current_exe().unwrap();
    let program = test.parent().and_then(Path::parent).unwrap().join(name);
    assert!(program.is_file(), "{name} is missing: run tests/acceptance/run");
    program
}
