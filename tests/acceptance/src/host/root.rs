//! The Debian root that hosts are copies of, made once and kept.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::OnceLock;

use tempfile::TempDir;

/// Where it is kept, unless [`CACHE_VARIABLE`] says otherwise.
const CACHE: &str = "/var/cache/carlos-acceptance";
const CACHE_VARIABLE: &str = "CARLOS_ACCEPTANCE_CACHE";

/// Which Debian, unless it is this machine's own.
const SUITE_VARIABLE: &str = "CARLOS_ACCEPTANCE_SUITE";
const SUITE: &str = "trixie";

/// Where its packages come from, unless it is where debootstrap takes them by itself.
const MIRROR_VARIABLE: &str = "CARLOS_ACCEPTANCE_MIRROR";

/// Beyond a minimal Debian: a service manager and its bus, user names of dynamic users, the
/// certificates without which no S3 client is made, and a tool for addresses.
const PACKAGES: &str =
    "--include=systemd,systemd-sysv,dbus,libnss-systemd,ca-certificates,iproute2";

/// Counts changes of [`PACKAGES`], so that a root with others is not taken for one with these.
const REVISION: &str = "2";

/// Programs that boot a host; `tests/acceptance/run` installs them.
const PROGRAMS: [&str; 6] =
    ["systemd-nspawn", "debootstrap", "nsenter", "setpriv", "unshare", "mount"];

/// Whether this machine can boot hosts.
///
/// # Errors
/// What is missing.
pub fn available() -> Result<(), String> {
    if !rustix::process::geteuid().is_root() {
        return Err("only root can boot a host".to_owned());
    }
    let path = std::env::var_os("PATH").unwrap_or_default();
    let folders: Vec<PathBuf> = std::env::split_paths(&path).collect();
    let missing = |name: &&str| !folders.iter().any(|folder| folder.join(name).is_file());
    match PROGRAMS.iter().find(|name| missing(name)) {
        Some(name) => Err(format!("{name} is missing (tests/acceptance/run installs it)")),
        None => Ok(()),
    }
}

/// The root's folder; made first where there is none yet.
///
/// # Errors
/// The end of what the installer said.
pub fn ensure() -> Result<PathBuf, String> {
    // Tests that boot at once wait for the first of them.
    static MADE: OnceLock<Result<PathBuf, String>> = OnceLock::new();
    MADE.get_or_init(made).clone()
}

fn made() -> Result<PathBuf, String> {
    let suite = suite();
    let cache = PathBuf::from(variable(CACHE_VARIABLE).unwrap_or_else(|| CACHE.to_owned()));
    let root = cache.join(format!("{suite}-{REVISION}"));
    if root.is_dir() {
        return Ok(root);
    }
    fs::create_dir_all(&cache).map_err(|error| format!("{}: {error}", cache.display()))?;
    let making = install_again(&suite, &cache)?;
    // It is there whole or not at all. Whoever was faster made the same.
    match fs::rename(making.path(), &root) {
        Ok(()) => drop(making.keep()),
        Err(_) if root.is_dir() => {}
        Err(error) => return Err(format!("{}: {error}", root.display())),
    }
    Ok(root)
}

/// What comes over the network gets a second and a third chance.
fn install_again(suite: &str, cache: &Path) -> Result<TempDir, String> {
    let mut last = String::new();
    for _ in 0..3 {
        let making = tempfile::tempdir_in(cache).map_err(|error| error.to_string())?;
        match install(suite, making.path()) {
            Ok(()) => return Ok(making),
            Err(why) => last = why,
        }
    }
    Err(last)
}

fn install(suite: &str, folder: &Path) -> Result<(), String> {
    let made = Command::new("debootstrap")
        .args(["--variant=minbase", PACKAGES, suite])
        .arg(folder)
        .args(variable(MIRROR_VARIABLE))
        .stdin(Stdio::null())
        .output()
        .map_err(|error| format!("debootstrap: {error}"))?;
    if !made.status.success() {
        let said = String::from_utf8_lossy(&made.stdout).into_owned();
        let last: Vec<_> = said.lines().rev().take(5).collect();
        return Err(format!("debootstrap failed: {}", last.join(" | ")));
    }
    // Each boot finds an identity of its own.
    fs::write(folder.join("etc/machine-id"), "").map_err(|error| error.to_string())?;
    let open = std::os::unix::fs::PermissionsExt::from_mode(0o755);
    fs::set_permissions(folder, open).map_err(|error| error.to_string())
}

/// The programs under test are built here, so the host must not have an older C library.
fn suite() -> String {
    let release = fs::read_to_string("/etc/os-release").unwrap_or_default();
    let field = |name: &str| {
        let value = release.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix('='));
        value.map(|value| value.trim_matches('"').to_owned())
    };
    let own = (field("ID").as_deref() == Some("debian")).then(|| field("VERSION_CODENAME"));
    variable(SUITE_VARIABLE).or_else(|| own.flatten()).unwrap_or_else(|| SUITE.to_owned())
}

fn variable(name: &str) -> Option<String> {
    std::env::var(name).ok().filter(|value| !value.is_empty())
}
