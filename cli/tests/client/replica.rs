//! `carlos replica` on replicas that the real Litestream wrote, by the real
//! binary.

use std::path::{Path, PathBuf};

use serde_json::{Value, json};

use crate::{Ran, carlos};

fn fixture(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../crates/replica/tests/fixtures").join(name)
}

fn expected(name: &str) -> Value {
    let text = std::fs::read(fixture(name).join("expected.json")).unwrap();
    serde_json::from_slice(&text).unwrap()
}

fn ask(args: &[&str], name: &str) -> Ran {
    let home = tempfile::tempdir().unwrap();
    let replica = fixture(name).join("replica").canonicalize().unwrap();
    let url = format!("file://{}", replica.display());
    carlos(home.path()).arg("replica").args(args).arg(url).output().unwrap().into()
}

#[test]
fn a_plan_as_json_and_as_lines() {
    let ran = ask(&["plan", "--json"], "tiny");
    assert_eq!(ran.code, 0, "{ran:?}");
    let name = "0000000000000001-0000000000000001.ltx";
    let plan: Value = serde_json::from_slice(&ran.stdout).unwrap();
    assert_eq!(plan["txid"], "0x1");
    assert_eq!(plan["files"][0]["level"], json!(0));
    assert_eq!(plan["files"][0]["name"], name);
    let size = plan["files"][0]["size"].as_u64().unwrap();
    let lines = ask(&["plan"], "tiny");
    assert_eq!(String::from_utf8(lines.stdout).unwrap(), format!("0\t{name}\t{size}\n"));
    assert!(
        lines.stderr.contains("1 file leads to transaction 0x1, listed at "),
        "{}",
        lines.stderr
    );
}

#[test]
fn a_restore_gives_litestreams_own_bytes() {
    let dir = tempfile::tempdir().unwrap();
    let out = dir.path().join("restored.db");
    let out_text = out.to_str().unwrap();
    let ran = ask(&["restore", "--json", "--out", out_text], "tiny");
    assert_eq!(ran.code, 0, "{ran:?}");
    let report: Value = serde_json::from_slice(&ran.stdout).unwrap();
    let newest = &expected("tiny")["newest"];
    assert_eq!(report["sha256"], newest["file_sha256"]);
    assert_eq!(report["bytes"], newest["file_bytes"]);
    assert_eq!(report["page_size"], newest["header_page_size"]);
    ask(&["restore", "--out", out_text], "tiny").failed(2, "already exists");
}

#[test]
fn a_damaged_replica_leaves_no_file() {
    let dir = tempfile::tempdir().unwrap();
    let out = dir.path().join("restored.db");
    for name in ["corrupt-page", "gap-l0", "truncated-trailer", "v03-generations"] {
        ask(&["restore", "--out", out.to_str().unwrap()], name).failed(14, "");
        assert!(!out.exists(), "{name}");
    }
}

#[test]
fn times_and_addresses_that_cannot_be() {
    ask(&["plan", "--at", "2020-01-01T00:00:00Z"], "tiny").failed(14, "reaches back to");
    ask(&["plan", "--at", "yesterday"], "tiny").failed(2, "use one with an offset");
    let home = tempfile::tempdir().unwrap();
    let plan = |url: &str| -> Ran {
        carlos(home.path()).args(["replica", "plan", url]).output().unwrap().into()
    };
    plan("s3://bucket/prefix").failed(2, "CARLOS_S3_REGION");
    plan("/plain/path").failed(2, "file:///path/to/replica");
    plan("file:///no/such/directory").failed(10, "/no/such/directory");
}

#[test]
fn a_listing_names_every_file_and_what_else_there_is() {
    let ran = ask(&["ls"], "junk-files");
    assert_eq!(ran.code, 0, "{ran:?}");
    let lines = String::from_utf8(ran.stdout).unwrap();
    assert_eq!(lines.lines().count(), 9);
    assert!(lines.starts_with("0\t0000000000000001-0000000000000001.ltx\t"), "{lines}");
    assert!(ran.stderr.contains("Litestream's lease: lock.json"), "{}", ran.stderr);
    let json = ask(&["ls", "--json"], "v03-generations");
    let report: Value = serde_json::from_slice(&json.stdout).unwrap();
    assert_eq!(report["layout"], Value::Null);
    assert!(report["others"][0]["kind"].as_str().unwrap().contains("Litestream 0.3"));
}

#[test]
fn a_check_ends_with_0_or_says_what_is_wrong() {
    let sound = ask(&["verify"], "multi-level");
    assert_eq!(sound.code, 0, "{sound:?}");
    assert_eq!(String::from_utf8(sound.stdout).unwrap().lines().count(), 4);
    assert!(sound.stderr.contains("33 files, 41.5 KB, all sound"), "{}", sound.stderr);
    ask(&["verify"], "corrupt-page-literal").failed(14, "checksum mismatch");
    ask(&["verify"], "gap-l0").failed(14, "nothing between 0x4 and 0x6");
    ask(&["verify"], "v03-generations").failed(14, "Litestream 0.3");
}

#[test]
fn a_report_of_damage_reaches_the_script() {
    let ran = ask(&["verify", "--json"], "truncated-trailer");
    assert_eq!(ran.code, 14, "{ran:?}");
    let report: Value = serde_json::from_slice(&ran.stdout).unwrap();
    assert_eq!(report["sound"], json!(false));
    let damage = &report["damaged"][0];
    assert_eq!(damage["name"], "0000000000000005-0000000000000005.ltx");
    assert!(damage["problem"].as_str().unwrap().contains("ends in its trailer"));
}
