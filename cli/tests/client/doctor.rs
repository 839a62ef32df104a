//! `carlos doctor` by the binary, on directories with something wrong in each.

use std::fs::{File, FileTimes};
use std::path::Path;
use std::time::{Duration, SystemTime};

use carlos_bucket::{Context, file_url};
use carlos_protocol::ids::{BoxName, Capability};
use carlos_protocol::records::{self, DB_READ_CAPABILITY, Status, VERSION};
use serde_json::Value;

use crate::{Ran, carlos};

fn run(bucket: &Path, variables: &[(&str, &str)], args: &[&str]) -> Ran {
    let home = tempfile::tempdir().expect("a directory");
    let mut command = carlos(home.path());
    command.env("CARLOS_BUCKET", file_url(bucket)).envs(variables.iter().copied()).args(args);
    command.output().expect("the binary runs").into()
}

fn admin(bucket: &Path, args: &[&str]) {
    let ran = run(bucket, &[], &[&["admin"], args].concat());
    assert_eq!(ran.code, 0, "{args:?}: {ran:?}");
}

/// The report, the codes in it, and the exit code.
fn doctor(bucket: &Path, args: &[&str]) -> (Value, Vec<String>, i32) {
    let ran = run(bucket, &[], &[&["doctor", "--json"], args].concat());
    let report: Value = serde_json::from_slice(&ran.stdout).expect("one JSON object");
    let found = report["findings"].as_array().expect("a list");
    let text = |member: &Value| member.as_str().expect("text").to_owned();
    (report.clone(), found.iter().map(|one| text(&one["code"])).collect(), ran.code)
}

fn boxes(bucket: &Path) -> (Vec<String>, i32) {
    let (_, codes, exit) = doctor(bucket, &["--only", "boxes"]);
    (codes, exit)
}

fn deployment() -> tempfile::TempDir {
    let dir = tempfile::tempdir().expect("a directory");
    admin(dir.path(), &["account", "create", "acme"]);
    dir
}

/// What the box's agent would write, some seconds ago.
fn beat(bucket: &Path, name: &str, seconds_ago: u64, capable: bool) {
    let capability = Capability::parse(DB_READ_CAPABILITY).expect("a label");
    let params = Capability::parse(records::DB_READ_PARAMS_CAPABILITY).expect("a label");
    let capabilities = if capable { vec![capability, params] } else { Vec::new() };
    let (name, region) = (BoxName::parse(name).expect("a label"), "uk".parse().expect("a label"));
    let time_unix = Context::system().now_unix() - seconds_ago;
    let (v, edges_rev, draining) = (VERSION, 1, false);
    let box_name = name.clone();
    let status = Status { v, box_name, time_unix, edges_rev, region, capabilities, draining };
    let path = bucket.join("control/status");
    std::fs::create_dir_all(&path).expect("a directory");
    std::fs::write(path.join(name.as_str()), records::encode(&status)).expect("a file");
}

#[test]
fn a_sound_deployment_ends_with_0_and_says_what_was_looked_at() {
    let dir = deployment();
    let (report, codes, exit) = doctor(dir.path(), &[]);
    assert_eq!(exit, 0, "{report}");
    assert_eq!(codes, ["bucket-ok", "lifecycle-by-process", "boxes-ok", "serials-ok"]);
    assert_eq!((&report["as"], &report["level"]), (&"operator".into(), &"ok".into()));
    let plain = run(dir.path(), &[], &["doctor"]);
    let text = String::from_utf8(plain.stdout).expect("text");
    assert!(plain.code == 0 && text.lines().count() == 4 && text.contains("ok       boxes-ok"));
}

#[test]
fn a_box_is_told_by_its_files() {
    let dir = deployment();
    admin(dir.path(), &["box", "create", "box-uk", "--region", "uk"]);
    assert_eq!(boxes(dir.path()), (vec!["box-not-seen".into()], 0));
    beat(dir.path(), "box-uk", 400, true);
    assert_eq!(boxes(dir.path()), (vec!["box-stale".into()], 20));
    beat(dir.path(), "box-uk", 5, false);
    assert_eq!(boxes(dir.path()), (vec!["box-not-serving".into()], 0));
    std::fs::write(dir.path().join("control/status/box-uk"), "{}").expect("a file");
    assert_eq!(boxes(dir.path()), (vec!["box-unreadable".into()], 20));
}

#[test]
fn a_region_with_instances_and_no_box_is_named() {
    let dir = deployment();
    let place = ["--account", "acme", "--app", "shop", "--region", "uk"];
    admin(dir.path(), &[&["instance", "create", "shop.example.com"], &place[..]].concat());
    assert_eq!(boxes(dir.path()), (vec!["region-not-served".into()], 20));
    let ran = run(dir.path(), &[], &["doctor"]);
    assert!(ran.code == 20 && ran.stderr.contains("at fault: region-not-served."), "{ran:?}");
    admin(dir.path(), &["instance", "delete", "shop.example.com"]);
    assert_eq!(boxes(dir.path()), (vec!["boxes-ok".into()], 0));
}

#[test]
fn what_should_be_long_gone_is_found() {
    let dir = deployment();
    let old = dir.path().join("presence/mesh/chat/1/node.1");
    std::fs::create_dir_all(old.parent().expect("a folder")).expect("a directory");
    let file = File::create(&old).expect("a file");
    let written = SystemTime::now() - Duration::from_secs(10 * 24 * 60 * 60);
    file.set_times(FileTimes::new().set_modified(written)).expect("its time");
    let (_, codes, exit) = doctor(dir.path(), &["--only", "lifecycle"]);
    assert_eq!(
        (codes.as_slice(), exit),
        (&["lifecycle-by-process".into(), "lifecycle-behind".into()][..], 0)
    );
}

#[test]
fn moving_a_serial_is_asked_for() {
    let dir = deployment();
    admin(dir.path(), &["box", "create", "box-uk", "--region", "uk"]);
    let serial = dir.path().join("control/serial/uk");
    let (_, codes, _) = doctor(dir.path(), &["--only", "serials"]);
    assert!(codes == ["serials-ok"] && !serial.exists());
    let (_, codes, _) = doctor(dir.path(), &["--only", "serials", "--bump"]);
    assert!(codes == ["serials-ok"] && serial.exists());
}

#[test]
fn whose_keys_these_are_is_told_by_the_environment() {
    let dir = deployment();
    let asked_as = |variables: &[(&str, &str)]| {
        let ran = run(dir.path(), variables, &["doctor", "--json", "--only", "bucket"]);
        let report: Value = serde_json::from_slice(&ran.stdout).expect("one JSON object");
        report["as"].as_str().expect("text").to_owned()
    };
    assert_eq!(asked_as(&[]), "operator");
    assert_eq!(asked_as(&[("CARLOS_REGION", "ie"), ("CARLOS_DB_FORWARD", "1")]), "console");
    assert_eq!(asked_as(&[("CARLOS_REGION", "uk"), ("CARLOS_BOX", "box-uk")]), "box-uk");
    run(dir.path(), &[("CARLOS_BOX", "b")], &["doctor"]).failed(2, "CARLOS_REGION");
    run(dir.path(), &[], &["doctor", "--as", "agent", "--region", "uk"]).failed(2, "whose name");
    let mesh_node = ["doctor", "--as", "mesh-node", "--name", "a"];
    run(dir.path(), &[], &mesh_node).failed(2, "of which mesh");
}

#[cfg(not(feature = "admin"))]
#[test]
fn a_build_without_its_client_says_how_to_get_it() {
    let home = tempfile::tempdir().expect("a directory");
    let args = ["admin", "apply", "--bucket", "s3://b"];
    let ran: Ran = carlos(home.path()).args(args).output().expect("the binary runs").into();
    ran.failed(22, "--features admin. (DBL-40)");
}
