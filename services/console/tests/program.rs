//! `carlos-console` as a program: how it ends when it cannot serve.
#![allow(clippy::disallowed_methods, clippy::unwrap_used, clippy::panic)]

use std::{net::TcpListener, process::Command};

use tempfile::TempDir;

/// How the program ended with this environment and no other: its exit code and its log.
fn ended(environment: &[(&str, &str)]) -> (Option<i32>, String) {
    let mut command = Command::new(env!("CARGO_BIN_EXE_carlos-console"));
    let output = command.env_clear().envs(environment.iter().copied()).output().unwrap();
    (output.status.code(), String::from_utf8(output.stderr).unwrap())
}

#[test]
fn an_environment_that_is_not_usable_is_exit_2() {
    let region = ("CARLOS_REGION", "ie");
    let bucket = ("CARLOS_BUCKET", "memory://");
    for (environment, named) in [
        (&[][..], "CARLOS_REGION"),
        (&[region], "CARLOS_BUCKET"),
        (&[region, ("CARLOS_BUCKET", "ftp://host/bucket")], "ftp"),
        (&[region, bucket, ("CARLOS_LISTEN", "everywhere")], "CARLOS_LISTEN"),
        (&[region, bucket, ("CARLOS_DB_FORWARD", "yes")], "CARLOS_DB_FORWARD"),
        (&[region, bucket, ("CARLOS_ROOT_KEY_FILE", "/nowhere")], "CARLOS_ROOT_KEY_FILE"),
    ] {
        let (exit, log) = ended(environment);
        assert_eq!(exit, Some(2), "{log}");
        assert!(log.contains(named), "{named} is not in {log}");
    }
}

#[test]
fn a_port_that_is_taken_is_exit_1() {
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = taken.local_addr().unwrap().to_string();
    let dir = TempDir::new().unwrap();
    let bucket = format!("file://{}", dir.path().display());
    let environment =
        [("CARLOS_REGION", "ie"), ("CARLOS_BUCKET", &*bucket), ("CARLOS_LISTEN", &*address)];
    let (exit, log) = ended(&environment);
    assert_eq!(exit, Some(1), "{log}");
}
