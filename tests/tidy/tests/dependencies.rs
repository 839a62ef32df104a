//! Dependencies point one way: protocol <- crates <- services <- cli, tests.
#![allow(clippy::panic)]

use std::process::Command;

use cargo_metadata::{DependencyKind, Metadata, MetadataCommand, Package};
use carlos_tests_tidy::root;

/// What decodes tenant bytes. The agent reads every tenant's objects, so none of this may be
/// within its reach (db-forward §8.1).
const NOT_IN_THE_AGENT: &[&str] = &["rusqlite", "libsqlite3-sys", "lz4_flex", "carlos-dbquery"];

fn metadata() -> Metadata {
    MetadataCommand::new()
        .current_dir(root())
        .other_options(vec!["--locked".into(), "--offline".into()])
        .no_deps()
        .exec()
        .expect("cargo metadata reads the workspace")
}

/// The layer of a package by its folder; a dependency's layer is never above its user's.
fn layer(package: &Package) -> u8 {
    let path = package.manifest_path.strip_prefix(root()).expect("members lie below the root");
    match path.components().next().expect("a manifest has a path").as_str() {
        "protocol" => 0,
        "crates" => 1,
        "services" => 2,
        "cli" => 3,
        "tests" | "fuzz" | "bench" => 4,
        other => panic!("{other}: a folder without a layer"),
    }
}

#[test]
fn dependencies_point_one_way() {
    let metadata = metadata();
    let members = metadata.workspace_packages();
    for package in &members {
        for dependency in &package.dependencies {
            let Some(target) = members.iter().find(|m| *m.name == dependency.name) else {
                continue;
            };
            let (from, to) = (layer(package), layer(target));
            let beside = from == to && from != 1 && from != 4;
            let test_only = dependency.kind == DependencyKind::Development && from == 4;
            assert!(
                to <= from && (!beside || test_only),
                "{} must not depend on {}",
                package.name,
                target.name
            );
        }
    }
}

fn tree(package: &str) -> String {
    let cargo = std::env::var("CARGO").unwrap_or_else(|_| "cargo".into());
    let output = Command::new(cargo)
        .args(["tree", "--locked", "--offline", "-e", "normal,build", "--prefix", "none"])
        .args(["--format", "{p}", "-p", package])
        .current_dir(root())
        .output()
        .expect("cargo tree runs");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).expect("cargo writes UTF-8")
}

fn names(package: &str) -> Vec<String> {
    tree(package).lines().filter_map(|l| l.split(' ').next()).map(str::to_owned).collect()
}

#[test]
fn the_agent_cannot_decode_tenant_bytes() {
    let found = names("carlos-box-agent");
    assert!(found.iter().any(|name| name == "carlos-replica"), "the tree is read");
    for name in NOT_IN_THE_AGENT {
        assert!(!found.iter().any(|f| f == name), "carlos-box-agent reaches {name}");
    }
    let worker = names("carlos-dbread-worker");
    for name in NOT_IN_THE_AGENT {
        assert!(worker.iter().any(|f| f == name), "{name}: the list names a crate nobody uses");
    }
}

#[test]
fn the_console_cannot_open_a_database() {
    let found = names("carlos-console");
    assert!(!found.iter().any(|name| name == "libsqlite3-sys"), "carlos-console reaches SQLite");
}

#[test]
fn protocol_is_bytes_in_bytes_out() {
    for name in names("carlos-protocol") {
        let heavy = ["tokio", "axum", "hyper", "object_store", "rand", "getrandom"];
        assert!(!heavy.contains(&name.as_str()), "carlos-protocol reaches {name}");
    }
}
