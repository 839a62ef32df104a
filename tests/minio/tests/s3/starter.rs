//! The starter of the Ceph gateway, where a daemon of it dies.

use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use carlos_bucket::Context;
use carlos_tests_minio::{Choice, Kind};
use tokio::runtime::Runtime;

/// Far below the starter's own patience: a dead daemon is seen, not waited for.
const SOON: Duration = Duration::from_secs(15);

pub(crate) fn test(choice: &Choice, _: &Runtime) -> Result<(), String> {
    if choice.kind.clone()? != Kind::Ceph {
        return Ok(());
    }
    let dir = tempfile::Builder::new().prefix("rgw").tempdir_in("/tmp").unwrap();
    let programs = dir.path().join("bin");
    std::fs::create_dir(&programs).unwrap();
    let dying = programs.join("radosgw");
    std::fs::write(&dying, "#!/bin/sh\necho broken on purpose >&2\nexit 3\n").unwrap();
    std::fs::set_permissions(&dying, std::fs::Permissions::from_mode(0o755)).unwrap();
    let path = format!("{}:{}", programs.display(), std::env::var("PATH").unwrap());
    let home = dir.path().join("ceph");
    let context = Context::system();
    let begun = context.monotonic();
    let start = Path::new(env!("CARGO_MANIFEST_DIR")).join("rgw/start");
    let ran = Command::new(start).arg(&home).env("PATH", path).output().unwrap();
    let took = context.monotonic() - begun;
    let said = String::from_utf8_lossy(&ran.stderr);
    assert!(!ran.status.success() && ran.stdout.is_empty(), "{ran:?}");
    assert!(said.contains("rgw died") && said.contains("broken on purpose"), "{said}");
    assert!(took < SOON, "told after {took:?}");
    assert!(!home.exists(), "its files are left");
    assert_eq!(running(&home), Vec::<String>::new(), "its other daemons go on");
    Ok(())
}

/// Every process whose command line names `dir`.
fn running(dir: &Path) -> Vec<String> {
    let dir = dir.to_str().unwrap();
    let lines = std::fs::read_dir("/proc").unwrap().filter_map(|entry| {
        let line = std::fs::read(entry.unwrap().path().join("cmdline")).ok()?;
        Some(String::from_utf8_lossy(&line).replace('\0', " "))
    });
    lines.filter(|line| line.contains(dir)).collect()
}
