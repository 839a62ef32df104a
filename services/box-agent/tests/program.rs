//! `carlos-box-agent` as a program: how it ends when its environment is not usable.
#![cfg(target_os = "linux")]
#![allow(clippy::disallowed_methods, clippy::unwrap_used)]

use std::process::Command;

/// How the program ended with this environment and no other: its exit code and its log.
fn ended(environment: &[(&str, &str)]) -> (Option<i32>, String) {
    let mut command = Command::new(env!("CARGO_BIN_EXE_carlos-box-agent"));
    let output = command.env_clear().envs(environment.iter().copied()).output().unwrap();
    (output.status.code(), String::from_utf8(output.stderr).unwrap())
}

#[test]
fn an_environment_that_is_not_usable_is_exit_2() {
    let (name, region) = (("CARLOS_BOX", "uk-1"), ("CARLOS_REGION", "uk"));
    let bucket = ("CARLOS_BUCKET", "memory://");
    for (environment, named) in [
        (&[][..], "CARLOS_BOX"),
        (&[name, ("CARLOS_REGION", "No Region")], "CARLOS_REGION"),
        (&[name, region], "CARLOS_BUCKET"),
        (&[name, region, ("CARLOS_BUCKET", "ftp://host/bucket")], "CARLOS_BUCKET"),
        (
            &[name, region, bucket, ("CARLOS_HIBERNATE_BUCKET", "ftp://x")],
            "CARLOS_HIBERNATE_BUCKET",
        ),
        (&[name, region, bucket, ("CARLOS_DB_READ_MAX_BYTES", "2 GB")], "CARLOS_DB_READ_MAX_BYTES"),
        (&[name, region, bucket, ("CARLOS_RELEASE_PUBKEY", "none")], "CARLOS_RELEASE_PUBKEY"),
    ] {
        let (exit, log) = ended(environment);
        assert_eq!(exit, Some(2), "{log}");
        assert!(log.contains(named), "{named} is not in {log}");
    }
}
