//! The worker's program refuses every standard input but a connected unix stream of its user.
#![cfg(target_os = "linux")]
#![allow(clippy::disallowed_methods, clippy::disallowed_macros)]
#![allow(clippy::unwrap_used, clippy::panic)]

use std::fs::File;
use std::net::TcpListener;
use std::net::TcpStream;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixDatagram;
use std::os::unix::net::UnixListener;
use std::os::unix::net::UnixStream;
use std::process::Command;
use std::process::Output;
use std::process::Stdio;

use carlos_dbread_worker::exit;

fn run(stdin: impl Into<OwnedFd>, args: &[&str]) -> Output {
    let stdin: OwnedFd = stdin.into();
    Command::new(env!("CARGO_BIN_EXE_carlos-dbread-worker"))
        .args(args)
        .stdin(Stdio::from(stdin))
        .output()
        .unwrap()
}

fn own_uid() -> String {
    rustix::process::getuid().as_raw().to_string()
}

fn assert_refused(stdin: impl Into<OwnedFd>, code: u8, word: &str) {
    let output = run(stdin, &["--peer-user", &own_uid()]);
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(code.into()), "{stderr}");
    assert!(stderr.contains(word), "{stderr}");
    assert!(output.stdout.is_empty());
}

#[test]
fn what_is_not_a_socket_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    let (pipe, _writer) = std::io::pipe().unwrap();
    assert_refused(pipe, exit::NO_CONNECTION, "not a socket");
    let file = File::create_new(dir.path().join("file")).unwrap();
    assert_refused(file, exit::NO_CONNECTION, "not a socket");
    assert_refused(File::open("/dev/null").unwrap(), exit::NO_CONNECTION, "not a socket");
}

#[test]
fn other_sockets_are_refused() {
    let (datagram, _other) = UnixDatagram::pair().unwrap();
    assert_refused(datagram, exit::NO_CONNECTION, "not a stream");
    let dir = tempfile::tempdir().unwrap();
    let listener = UnixListener::bind(dir.path().join("socket")).unwrap();
    assert_refused(listener, exit::NO_CONNECTION, "not connected");
    let tcp = TcpListener::bind("127.0.0.1:0").unwrap();
    let stream = TcpStream::connect(tcp.local_addr().unwrap()).unwrap();
    assert_refused(stream, exit::NO_CONNECTION, "not a unix socket");
}

#[test]
fn another_users_connection_is_refused() {
    let (ours, _theirs) = UnixStream::pair().unwrap();
    let output = run(ours, &["--peer-user", "64999"]);
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(exit::WRONG_PEER.into()), "{stderr}");
    assert!(stderr.contains("64999"), "{stderr}");
}

#[test]
fn a_user_that_does_not_exist_is_a_usage_error() {
    let (ours, _theirs) = UnixStream::pair().unwrap();
    let output = run(ours, &["--peer-user", "nobody-of-that-name"]);
    assert_eq!(output.status.code(), Some(exit::USAGE.into()));
}

#[test]
fn unknown_arguments_show_the_usage() {
    let output = run(File::open("/dev/null").unwrap(), &["query"]);
    assert_eq!(output.status.code(), Some(exit::USAGE.into()));
    assert!(String::from_utf8_lossy(&output.stderr).contains("usage: carlos-dbread-worker"));
}

#[test]
fn a_scratch_root_that_is_missing_is_said() {
    let (ours, _theirs) = UnixStream::pair().unwrap();
    let output = run(ours, &["--peer-user", &own_uid(), "--scratch", "/nowhere/at/all"]);
    assert_eq!(output.status.code(), Some(exit::NO_SCRATCH.into()));
}
