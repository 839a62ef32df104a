//! What operators mistype: `carlos admin`, services and the worker, by the binary.

use std::path::Path;

use carlos_bucket::file_url;

use crate::{Ran, carlos};

/// Runs `carlos args...` with `variables` and nothing else in its environment.
fn run(variables: &[(&str, &str)], args: &[&str]) -> Ran {
    let home = tempfile::tempdir().expect("a directory");
    let mut command = carlos(home.path());
    command.envs(variables.iter().copied()).args(args);
    command.output().expect("the binary runs").into()
}

fn admin(bucket: &Path, args: &[&str]) -> Ran {
    let url = file_url(bucket);
    run(&[("CARLOS_BUCKET", &url)], &[&["admin"], args].concat())
}

#[test]
fn a_mistyped_bucket_is_not_made() {
    let dir = tempfile::tempdir().expect("a directory");
    let bucket = dir.path().join("bucket");
    for args in [&["account", "list"][..], &["box", "create", "b", "--region", "uk"]] {
        admin(&bucket, args).failed(2, "there is no directory");
        assert!(!bucket.exists(), "{args:?}");
    }
    run(&[("CARLOS_BUCKET", &file_url(&bucket))], &["doctor"]).failed(2, "there is no directory");
    assert!(!bucket.exists());
    assert_eq!(admin(&bucket, &["account", "create", "acme"]).code, 0);
    assert_eq!(admin(&bucket, &["account", "list"]).code, 0);
}

#[test]
fn a_token_is_revoked_by_enough_of_its_hash() {
    let dir = tempfile::tempdir().expect("a directory");
    for prefix in ["", "a", "0123abc"] {
        admin(dir.path(), &["token", "revoke", "acme", prefix]).failed(2, "at least 8");
    }
    let acme = &["account", "create", "acme"];
    assert_eq!(admin(dir.path(), acme).code, 0);
    admin(dir.path(), &["token", "revoke", "acme", "0123abcd"]).failed(10, "there is no token");
}

#[test]
fn an_instance_that_cannot_be_read_says_so_when_it_is_made() {
    let dir = tempfile::tempdir().expect("a directory");
    assert_eq!(admin(dir.path(), &["account", "create", "acme"]).code, 0);
    let create = |host: &str, class: &[&str]| {
        let line = ["instance", "create", host, "--account", "acme", "--app", "shop"];
        admin(dir.path(), &[&line[..], &["--region", "uk"], class].concat())
    };
    let readable = create("a.example.com", &[]);
    assert!(readable.code == 0 && !readable.stderr.contains("cannot be read"));
    let other = create("b.example.com", &["--class", "foo"]);
    assert!(other.code == 0 && other.stderr.contains("class foo"), "{}", other.stderr);
}

#[test]
fn a_new_box_gets_its_whole_environment() {
    let dir = tempfile::tempdir().expect("a directory");
    let key = dir.path().join("root.json");
    let key = key.to_str().expect("a path of this test");
    let public = run(&[], &["admin", "keys", "root", "--out", key]);
    let made = admin(dir.path(), &["box", "create", "b", "--region", "uk", "--key", key]);
    let text = |ran: &Ran| String::from_utf8(ran.stdout.clone()).expect("it is text");
    let line = format!("CARLOS_RELEASE_PUBKEY={}", text(&public));
    assert!(text(&made).contains(&line), "{made:?}");
    assert!(text(&made).contains("# CARLOS_HIBERNATE_BUCKET="));
}

#[test]
fn services_name_the_setting_that_is_wrong() {
    let dir = tempfile::tempdir().expect("a directory");
    let bucket = file_url(dir.path());
    let base = [("CARLOS_BUCKET", bucket.as_str()), ("CARLOS_REGION", "ie")];
    let yes = [&base[..], &[("CARLOS_DB_FORWARD", "yes")]].concat();
    run(&yes, &["console"]).failed(2, "CARLOS_DB_FORWARD is not usable: neither 0 nor 1");
    #[cfg(target_os = "linux")]
    {
        let scratch = [("CARLOS_BOX", "b"), ("CARLOS_DB_READ_SCRATCH", "/nowhere/at/all")];
        let agent = run(&[&base[..], &scratch].concat(), &["agent"]);
        agent.failed(2, "CARLOS_DB_READ_SCRATCH: workers cannot restore copies in /nowhere/at/all");
    }
}

#[test]
fn a_worker_started_by_hand_says_that_it_never_is() {
    run(&[], &["system", "db-worker"]).failed(2, "you never run it yourself.");
}
