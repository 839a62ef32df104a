//! From a root's folder to a host that has booted.

use std::fs;
use std::os::unix::process::CommandExt as _;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use super::cgroups::{self, Cgroups};
use super::{Host, MARK, root};

/// Long for a boot that takes one second, short for a person who waits.
const BOOT: Duration = Duration::from_secs(60);

/// Units of Debian that have nothing to do here, or would wait for what is not here.
const MASKED: &str = "console-getty.service getty.target apt-daily.timer \
     apt-daily-upgrade.timer dpkg-db-backup.timer e2scrub_all.timer fstrim.timer \
     systemd-update-utmp.service systemd-update-utmp-runlevel.service systemd-networkd.service \
     systemd-networkd.socket systemd-resolved.service systemd-timesyncd.service";

/// nspawn's own list of system calls lacks these, which a machine without nspawn allows.
const CALLS: &str =
    "--system-call-filter=landlock_create_ruleset landlock_add_rule landlock_restrict_self";

/// Systemd 256 and 257 boot on version 1 of the controllers only when told so; others ignore it.
const FORCE: &str = "SYSTEMD_CGROUP_ENABLE_LEGACY_FORCE=1";

/// What of the network a host has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Network {
    /// This machine's, so that a server on its loopback address can be reached.
    Shared,
    /// Its own, with nothing but a loopback device.
    Private,
}

pub(super) fn boot(network: Network) -> Result<Host, String> {
    let root = root::ensure()?;
    let begun = Instant::now();
    let dir = tempfile::Builder::new().prefix("carlos-host-").tempdir();
    let dir = dir.map_err(|error| error.to_string())?;
    let name = dir.path().file_name().expect("has a name").to_string_lossy().to_lowercase();
    let name = name.trim_start_matches("carlos-host-").to_owned();
    let cgroups = Cgroups::make(&name);
    fs::write(dir.path().join("launch"), script(&root, dir.path(), &name, &cgroups, network))
        .map_err(|error| error.to_string())?;
    let nspawn = launch(dir.path()).map_err(|error| format!("unshare: {error}"))?;
    let mut host = Host { nspawn, leader: 0, booted: Duration::ZERO, dir, cgroups };
    wait(&mut host, begun).map_err(|why| {
        let console = fs::read_to_string(host.dir.path().join("console")).unwrap_or_default();
        let mut last: Vec<_> = console.lines().rev().take(15).collect();
        last.reverse();
        format!("{why}; the host's console ends:\n{}", last.join("\n"))
    })?;
    host.booted = begun.elapsed();
    Ok(host)
}

/// What runs in a mount namespace of its own and becomes nspawn. A copy of the root is an overlay
/// with its upper side in memory; when the last process in the namespace ends, it is gone.
fn script(root: &Path, dir: &Path, name: &str, cgroups: &Cgroups, network: Network) -> String {
    let (root, dir) = (root.display(), dir.display());
    let enter: String = cgroups
        .folders()
        .iter()
        .map(|folder| format!("echo $$ > {}/cgroup.procs\n", folder.display()))
        .collect();
    let keep = if cgroups.are_lent() { "--keep-unit" } else { "" };
    let private = match network {
        Network::Private => "--private-network",
        // Without it, newer versions of systemd give a unit no network of its own.
        Network::Shared => "--capability=CAP_NET_ADMIN",
    };
    let unlock = cgroups::unlock();
    format!(
        "set -e
mkdir {dir}/memory
mount -t tmpfs -o mode=0755 carlos-host {dir}/memory
cd {dir}/memory
mkdir upper work root
chmod 755 upper
mount -t overlay carlos-host -o lowerdir={root},upperdir=upper,workdir=work root
for unit in {MASKED}; do ln -sfn /dev/null root/etc/systemd/system/$unit; done
ln -sfn /lib/systemd/system/multi-user.target root/etc/systemd/system/default.target
rm -f root/etc/resolv.conf
cp -L /etc/resolv.conf root/etc/resolv.conf 2>/dev/null || :
echo carlos-{name} > root/etc/hostname
echo 'a root of the acceptance tests' > root{MARK}
cat > root/.begin <<'BEGIN'
#!/bin/sh
{unlock}exec /lib/systemd/systemd {FORCE}
BEGIN
chmod 755 root/.begin
{enter}export SYSTEMD_NSPAWN_TMPFS_TMP=0
exec systemd-nspawn --quiet --directory={dir}/memory/root --machine=carlos-{name} \\
    --register=no {keep} {private} --link-journal=no --resolv-conf=off --timezone=off \\
    --console=read-only --kill-signal=SIGRTMIN+3 '{CALLS}' /.begin
"
    )
}

/// A session of its own, so that no terminal's hang-up reaches it; killed when this thread ends.
fn launch(dir: &Path) -> std::io::Result<Child> {
    let console = fs::File::create(dir.join("console"))?;
    Command::new("setpriv")
        .args(["--pdeathsig", "KILL", "unshare", "--mount", "--propagation", "private", "--"])
        .args(["bash", "launch"])
        .current_dir(dir)
        .env_clear()
        .env("PATH", "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin")
        .process_group(0)
        .stdin(Stdio::null())
        .stdout(console.try_clone()?)
        .stderr(console)
        .spawn()
}

/// Waits until systemd says that it has finished. A host that dies on the way is told at once.
fn wait(host: &mut Host, begun: Instant) -> Result<(), String> {
    loop {
        if let Ok(Some(status)) = host.nspawn.try_wait() {
            return Err(format!("the host ended while it booted ({status})"));
        }
        if begun.elapsed() > BOOT {
            return Err(format!("the host did not boot within {BOOT:?}"));
        }
        if host.leader == 0 {
            host.leader = first_process(host.nspawn.id()).unwrap_or(0);
        } else {
            match host.run(&["systemctl", "is-system-running"]).stdout.as_str() {
                "running" => return Ok(()),
                "degraded" => {
                    let failed = host.run(&["systemctl", "--failed", "--plain", "--no-legend"]);
                    return Err(format!("units failed at boot: {}", failed.stdout));
                }
                _ => {}
            }
        }
        std::thread::sleep(Duration::from_millis(30));
    }
}

/// The child of `parent` that is the first process of its own namespace and has become systemd.
fn first_process(parent: u32) -> Option<u32> {
    let children = fs::read_to_string(format!("/proc/{parent}/task/{parent}/children")).ok()?;
    children.split_whitespace().filter_map(|pid| pid.parse().ok()).find(|pid: &u32| {
        let read = |file: &str| fs::read_to_string(format!("/proc/{pid}/{file}"));
        let first = read("status").is_ok_and(|status| {
            let line = status.lines().find(|line| line.starts_with("NSpid:"));
            line.is_some_and(|line| line.split_whitespace().last() == Some("1"))
        });
        first && read("comm").is_ok_and(|comm| comm.trim() == "systemd")
    })
}
