//! The units as files, judged by systemd's own tools on any machine that has them.

use std::fs;
use std::path::Path;
use std::process::Command;

use carlos_tests_acceptance::host::Ran;
use carlos_tests_acceptance::station::program;
use tempfile::TempDir;

const UNITS: [&str; 4] = [
    "carlos-dbread@1.service",
    "carlos-dbread.socket",
    "carlos-agent.service",
    "carlos-console.service",
];

/// What the units refer to; a real one's content says nothing about ours.
const TARGETS: [&str; 7] = [
    "basic.target",
    "multi-user.target",
    "network-online.target",
    "network.target",
    "shutdown.target",
    "sockets.target",
    "sysinit.target",
];

/// Whether the tools are here.
pub(crate) fn available() -> Result<(), String> {
    let found = Command::new("systemd-analyze").arg("--version").output();
    found.map(drop).map_err(|error| format!("systemd-analyze: {error}"))
}

/// No setting that systemd does not know or cannot use.
pub(crate) fn verified() {
    let root = image();
    let judged = analyze(root.path(), &[&["verify"], &UNITS[..]].concat());
    assert_eq!((judged.code, judged.stderr.as_str()), (Some(0), ""), "{judged:?}");
    // What the tool says of a unit with a slip in it.
    add(root.path(), "PrivateNetwrok=yes\n");
    let judged = analyze(root.path(), &[&["verify"], &UNITS[..]].concat());
    assert!(judged.stderr.contains("PrivateNetwrok"), "{judged:?}");
}

/// systemd's own measure of a service, from 0 for none to 10 for a plain one.
pub(crate) fn exposure() {
    let root = image();
    for (unit, tenths) in [(UNITS[0], 15), (UNITS[2], 20), (UNITS[3], 20)] {
        let judged = judged(root.path(), unit, tenths);
        let overall = judged.stdout.lines().last().unwrap_or_default().to_owned();
        eprintln!("{overall}");
        assert_eq!(judged.code, Some(0), "{unit}: {judged:?}");
    }
    add(root.path(), "PrivateNetwork=no\nSystemCallFilter=\nIPAddressDeny=\n");
    let judged = judged(root.path(), UNITS[0], 15);
    assert_ne!(judged.code, Some(0), "a weaker unit passes as well");
}

/// The root of an image with the units installed as for one.
fn image() -> TempDir {
    let root = tempfile::tempdir().unwrap();
    let targets = root.path().join("usr/lib/systemd/system");
    fs::create_dir_all(&targets).unwrap();
    for name in TARGETS {
        fs::write(targets.join(name), "[Unit]\nDescription=stands for the real one\n").unwrap();
    }
    let opt = root.path().join("opt/carlos");
    fs::create_dir_all(&opt).unwrap();
    fs::copy("/bin/true", opt.join("carlos")).unwrap();
    let mut install = Command::new(program("carlos"));
    install.args(["system", "install-units", "--root"]).arg(root.path());
    let installed: Ran = install.output().unwrap().into();
    assert_eq!(installed.code, Some(0), "{installed:?}");
    let enabled = "etc/systemd/system/sockets.target.wants/carlos-dbread.socket";
    assert!(root.path().join(enabled).is_symlink(), "the socket is not enabled");
    root
}

fn judged(root: &Path, unit: &str, tenths: u32) -> Ran {
    let threshold = format!("--threshold={tenths}");
    analyze(root, &["security", "--offline=yes", "--no-pager", &threshold, unit])
}

fn analyze(root: &Path, words: &[&str]) -> Ran {
    let mut command = Command::new("systemd-analyze");
    command.args(words).arg(format!("--root={}", root.display()));
    command.output().unwrap().into()
}

/// Adds lines to the worker's unit.
fn add(root: &Path, lines: &str) {
    let folder = root.join("etc/systemd/system/carlos-dbread@.service.d");
    fs::create_dir_all(&folder).unwrap();
    fs::write(folder.join("added.conf"), format!("[Service]\n{lines}")).unwrap();
}
