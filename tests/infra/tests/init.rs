//! The compose file's init job with a stand-in for `mc` that only writes down what it is told:
//! which rules and rights it asks a server for. That a server takes them is not shown here.
#![cfg(unix)]
#![allow(clippy::disallowed_methods)]

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::Command;

use carlos_bucket::expire::RULES;
use carlos_tests_infra::root;

const STAND_IN: &str = "#!/bin/sh\necho \"$@\" >>\"$SAID\"\n";

/// Everything that init.sh tells `mc`, a command a line.
fn told(folder: &Path) -> Vec<String> {
    let (program, said) = (folder.join("mc"), folder.join("said"));
    fs::write(&program, STAND_IN).expect("a folder of the test's own");
    fs::set_permissions(&program, fs::Permissions::from_mode(0o700)).expect("its own file");
    let compose = root().join("infra/compose");
    let path = std::env::var("PATH").unwrap_or_default();
    let mut init = Command::new("sh");
    init.arg(compose.join("init.sh"))
        .env("PATH", format!("{}:{path}", folder.display()))
        .env("SAID", &said)
        .env("INFRA", &compose)
        .env("MINIO_URL", "http://minio:9000");
    for name in ["MINIO_ROOT_USER", "MINIO_ROOT_PASSWORD", "CONSOLE_SECRET", "BOX_IE_SECRET"]
        .into_iter()
        .chain(["BOX_UK_SECRET", "OPERATOR_SECRET", "REPLICATOR_SECRET"])
    {
        init.env(name, format!("the-{name}"));
    }
    assert!(init.status().expect("a shell").success());
    let said = fs::read_to_string(said).expect("the stand-in wrote");
    said.lines().map(str::to_owned).collect()
}

#[test]
fn every_expiring_prefix_gets_both_rules_and_nothing_else_does() {
    let folder = tempfile::tempdir().expect("a folder");
    let told = told(folder.path());
    let rules: Vec<_> = told.iter().filter(|line| line.starts_with("ilm rule add")).collect();
    assert_eq!(rules.len(), RULES.len() * 2);
    for rule in RULES {
        let days = rule.after.as_secs() / (24 * 60 * 60);
        let ages = format!(
            "ilm rule add --prefix {}/ --expire-days {days} --noncurrent-expire-days 1 \
             store/carlos-deployment",
            rule.prefix
        );
        let markers = format!(
            "ilm rule add --prefix {}/ --expire-delete-marker store/carlos-deployment",
            rule.prefix
        );
        assert!(told.contains(&ages) && told.contains(&markers), "{told:#?}");
    }
}

#[test]
fn every_user_gets_its_own_policy_and_secret() {
    let folder = tempfile::tempdir().expect("a folder");
    let told = told(folder.path());
    for (user, secret) in [
        ("console", "CONSOLE"),
        ("box-ie", "BOX_IE"),
        ("box-uk", "BOX_UK"),
        ("operator", "OPERATOR"),
        ("replicator", "REPLICATOR"),
    ] {
        let attached = format!("admin policy attach store {user} --user {user}");
        assert!(told.contains(&attached), "{told:#?}");
        assert!(told.contains(&format!("admin user add store {user} the-{secret}_SECRET")));
        let policy = format!("infra/compose/policies/{user}.json");
        assert!(root().join(&policy).exists(), "{policy}");
        let created = format!("admin policy create store {user} ");
        let end = format!("/policies/{user}.json");
        assert!(told.iter().any(|line| line.starts_with(&created) && line.ends_with(&end)));
    }
}
