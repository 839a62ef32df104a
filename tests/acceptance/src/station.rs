//! A box: a host with the product's units installed as an operator installs them.

use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::time::Duration;

use crate::deployment::Deployment;
use crate::host::{Host, Network};
use crate::{eventually, within};

/// The workers' socket (db-forward §8.3).
pub const SOCKET: &str = "/run/carlos-dbread/worker.sock";

/// The program that units start.
pub const PROGRAM: &str = "/opt/carlos/carlos";

/// The unit of every worker.
pub const WORKER: &str = "carlos-dbread@.service";

/// The agent's unit.
pub const AGENT: &str = "carlos-agent.service";

/// What removing a few megabytes takes on a busy machine.
const SCRATCH_GOES: Duration = Duration::from_secs(5);

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
        Self::serving_with(deployment, &[], |_| {})
    }

    /// The same with further settings, after `prepare` has changed the host.
    pub fn serving_with(
        deployment: &Deployment,
        more: &[(&str, &str)],
        prepare: impl FnOnce(&Host),
    ) -> Self {
        let station = Self::boot(Network::Shared, &settings(deployment, more));
        prepare(&station.host);
        station.host.ok(&["systemctl", "enable", "--now", AGENT]);
        station.until_ready();
        eventually("the box is on offer", || deployment.offers_reads().then_some(()));
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
        let run = self.host.show(AGENT, "InvocationID");
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

    /// Private scratch of workers' units that is on the host's disk.
    pub fn scratch(&self) -> Vec<PathBuf> {
        let folders = ["/var/tmp", "/tmp"].map(|folder| self.host.path(folder));
        let entries = folders.iter().flat_map(|folder| std::fs::read_dir(folder).unwrap());
        let paths = entries.map(|entry| entry.unwrap().path());
        let of_units = |path: &PathBuf| {
            let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
            name.starts_with("systemd-private-") && name.contains("-carlos-dbread@")
        };
        paths.filter(of_units).collect()
    }

    /// Waits until a worker has restored its copy and gives its unit. Its query has begun, or is
    /// about to.
    pub fn until_restored(&self) -> String {
        self.until_scratch_has(1);
        eventually("one worker runs", || {
            let mut workers = self.workers();
            (workers.len() == 1).then(|| workers.pop()).flatten()
        })
    }

    /// Units of the workers that hold a copy. A probe's worker writes nothing.
    pub fn readers(&self) -> Vec<String> {
        let folders = self.scratch();
        let with_copy = folders.iter().filter(|folder| bytes_below(folder) > 0);
        let unit = |folder: &PathBuf| {
            let name = folder.file_name()?.to_str()?;
            let (begin, end) = (name.find("carlos-dbread@")?, name.rfind('-')?);
            name.get(begin..end).map(str::to_owned)
        };
        with_copy.filter_map(unit).collect()
    }

    /// Waits until workers' scratch holds so many bytes.
    pub fn until_scratch_has(&self, bytes: u64) {
        eventually("a copy is in scratch", || {
            let held: u64 = self.scratch().iter().map(|folder| bytes_below(folder)).sum();
            (held >= bytes).then_some(())
        });
    }

    /// Waits until no worker is left, and sees that its scratch is gone with it.
    pub fn until_alone(&self) {
        eventually("every worker has stopped", || self.workers().is_empty().then_some(()));
        // systemd removes it in a thread of its own, a moment after the unit has stopped.
        within(SCRATCH_GOES, "their scratch is gone", || self.scratch().is_empty().then_some(()));
    }
}

/// Bytes that the files below `folder` take on disk, as far as they stay while they are counted.
/// Their lengths say less: a copy may have its whole length from the beginning.
fn bytes_below(folder: &Path) -> u64 {
    let entries = std::fs::read_dir(folder).into_iter().flatten().flatten();
    let sizes = entries.map(|entry| match entry.metadata() {
        Ok(meta) if meta.is_dir() => bytes_below(&entry.path()),
        Ok(meta) => meta.blocks() * 512,
        Err(_) => 0,
    });
    sizes.sum()
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
    lines(&deployment.vars("box-uk", &[&own[..], more].concat()))
}

/// Variables as an environment file has them.
pub fn lines(vars: &[(String, String)]) -> String {
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
