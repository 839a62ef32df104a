//! One throw-away host: systemd as the first process of a container, on a copy of a Debian root.
//!
//! Everything about it ends with it: its mounts live in a mount namespace of their own, what is
//! written goes to memory, and the container is killed when the thread that booted it ends. Only
//! empty cgroups can be left by a kill of the tests, and the next boot removes those.

mod boot;
mod cgroups;
pub mod root;

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

use tempfile::TempDir;

pub use self::boot::Network;
use self::cgroups::Cgroups;

/// What an orderly halt may take before the host is killed.
const HALT: Duration = Duration::from_secs(20);

/// The longest that one command inside may run: what takes longer hangs.
const COMMAND_SECONDS: &str = "120";

/// A file that only roots of these tests have.
pub const MARK: &str = "/.carlos-acceptance";

/// A running host.
pub struct Host {
    /// nspawn's process, whose end is the host's.
    nspawn: Child,
    /// The host's first process, as numbered out here.
    leader: u32,
    /// How long it took until systemd had finished booting.
    pub booted: Duration,
    dir: TempDir,
    cgroups: Cgroups,
}

/// How a command inside ended, and what it said.
#[derive(Debug)]
pub struct Ran {
    pub code: Option<i32>,
    pub stdout: String,
    pub stderr: String,
}

impl From<Output> for Ran {
    fn from(output: Output) -> Self {
        let text = |bytes: Vec<u8>| String::from_utf8_lossy(&bytes).trim_end().to_owned();
        let (stdout, stderr) = (text(output.stdout), text(output.stderr));
        Self { code: output.status.code(), stdout, stderr }
    }
}

impl Host {
    /// Boots a clean copy of the root.
    ///
    /// # Errors
    /// What stood in the way, with the end of the host's console.
    pub fn boot(network: Network) -> Result<Self, String> {
        boot::boot(network)
    }

    /// A command to run inside as root, with the host's own environment.
    pub fn command(&self, program: &str) -> Command {
        let mut command = Command::new("nsenter");
        let target = self.leader.to_string();
        command.args(["--target", &target, "--mount", "--uts", "--ipc", "--net", "--pid"]);
        command.args(["--cgroup", "--root", "--wd", "--", "env", "-i"]);
        command.args(["PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"]);
        command.args(["LANG=C.UTF-8", "timeout", COMMAND_SECONDS, program]);
        command.stdin(Stdio::null());
        command
    }

    /// Runs `words` inside as root, to their end.
    pub fn run(&self, words: &[&str]) -> Ran {
        let mut command = self.command(words[0]);
        command.args(&words[1..]).output().expect("nsenter is installed").into()
    }

    /// The same, which must succeed; what it printed.
    ///
    /// # Panics
    /// When it fails.
    pub fn ok(&self, words: &[&str]) -> String {
        let ran = self.run(words);
        assert_eq!(ran.code, Some(0), "{words:?}: {ran:?}\n{}", self.tail());
        ran.stdout
    }

    /// Where `path` of the host is out here.
    pub fn path(&self, path: &str) -> PathBuf {
        PathBuf::from(format!("/proc/{}/root{path}", self.leader))
    }

    /// Puts a file there, with its folders.
    pub fn write(&self, path: &str, content: impl AsRef<[u8]>, mode: u32) {
        let path = self.path(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(&path, content).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(mode)).unwrap();
    }

    /// Puts a copy of `file` there as a program.
    pub fn install(&self, file: &Path, path: &str) {
        let to = self.path(path);
        fs::create_dir_all(to.parent().unwrap()).unwrap();
        // A running program's file cannot be written, but its name can be given to another.
        let aside = to.with_extension("new");
        fs::copy(file, &aside).unwrap();
        fs::set_permissions(&aside, fs::Permissions::from_mode(0o755)).unwrap();
        fs::rename(aside, to).unwrap();
    }

    /// The value of a unit's property.
    pub fn show(&self, unit: &str, property: &str) -> String {
        self.ok(&["systemctl", "show", "--value", "--property", property, unit])
    }

    /// Adds settings to a unit, replacing those that an earlier call of the same name added.
    pub fn drop_in(&self, unit: &str, name: &str, text: &str) {
        self.write(&format!("/etc/systemd/system/{unit}.d/{name}.conf"), text, 0o644);
        self.ok(&["systemctl", "daemon-reload"]);
    }

    /// The last lines of the journal.
    pub fn tail(&self) -> String {
        self.run(&["journalctl", "--no-pager", "--quiet", "--lines", "60", "-o", "cat"]).stdout
    }

    /// Everything a unit has logged.
    pub fn journal(&self, unit: &str) -> String {
        self.ok(&["journalctl", "--no-pager", "--quiet", "-o", "cat", "--unit", unit])
    }

    /// Which systemd it runs.
    pub fn systemd(&self) -> String {
        let version = self.ok(&["systemctl", "--version"]);
        version.lines().next().unwrap_or_default().to_owned()
    }

    /// Halts it in order, as an operator would; how long that took.
    pub fn halt(mut self) -> Duration {
        let begun = Instant::now();
        // nspawn passes this on as a wish to halt.
        signal(self.nspawn.id(), rustix::process::Signal::TERM);
        while begun.elapsed() < HALT {
            if self.nspawn.try_wait().is_ok_and(|status| status.is_some()) {
                return begun.elapsed();
            }
            std::thread::sleep(Duration::from_millis(20));
        }
        panic!("no orderly halt within {HALT:?}");
    }

    /// Ends it as a power cut would.
    pub fn kill(&self) {
        signal(self.leader, rustix::process::Signal::KILL);
    }

    /// Folder and cgroups, to see that nothing is left of them.
    pub fn traces(&self) -> Vec<PathBuf> {
        let mut traces = self.cgroups.folders();
        traces.push(self.dir.path().to_owned());
        traces
    }
}

impl Drop for Host {
    fn drop(&mut self) {
        // Once its first process is gone, nspawn cleans up behind it and ends.
        if self.nspawn.try_wait().is_ok_and(|status| status.is_none()) {
            self.kill();
            let begun = Instant::now();
            while self.nspawn.try_wait().is_ok_and(|status| status.is_none()) {
                if begun.elapsed() > Duration::from_secs(5) {
                    let _ = self.nspawn.kill();
                }
                std::thread::sleep(Duration::from_millis(10));
            }
        }
        self.cgroups.remove();
    }
}

fn signal(pid: u32, signal: rustix::process::Signal) {
    let pid = i32::try_from(pid).ok().and_then(rustix::process::Pid::from_raw);
    // Gone already is what is wanted.
    let _ = rustix::process::kill_process(pid.expect("process ids are positive"), signal);
}
