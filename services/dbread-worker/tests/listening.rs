//! `--listen`: a worker in a process of its own for each connection, three at most, and a count.
#![cfg(target_os = "linux")]
#![allow(clippy::disallowed_methods, clippy::disallowed_macros)]
#![allow(clippy::unwrap_used, clippy::panic)]

use std::fs;
use std::io::Read;
use std::io::Write;
use std::os::unix::fs::MetadataExt;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::path::PathBuf;
use std::process::Child;
use std::process::Command;
use std::process::Stdio;
use std::thread::sleep;
use std::time::Duration;

use carlos_dbread_worker::exit;
use carlos_protocol::frames;
use carlos_protocol::frames::Frame;
use carlos_protocol::frames::FrameDecoder;
use carlos_protocol::frames::Hello;
use carlos_protocol::frames::Running;
use carlos_protocol::frames::Sandbox;

/// Looks, 20 ms apart, before what should happen counts as not happening.
const LOOKS: u32 = 1_000;

fn until(what: &str, mut holds: impl FnMut() -> bool) {
    for _ in 0..LOOKS {
        if holds() {
            return;
        }
        sleep(Duration::from_millis(20));
    }
    panic!("never: {what}");
}

fn own_uid() -> u32 {
    rustix::process::getuid().as_raw()
}

fn command(dir: &Path, peer: u32) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_carlos-dbread-worker"));
    command.arg("--listen").arg(dir.join("socket"));
    command.args(["--peer-user", &peer.to_string(), "--max-bytes", "1048576", "--scratch"]);
    command.arg(dir.join("scratch")).stdin(Stdio::null());
    command
}

struct Listener {
    dir: tempfile::TempDir,
    child: Child,
}

impl Listener {
    fn start() -> Self {
        Self::for_peer(own_uid())
    }

    fn for_peer(peer: u32) -> Self {
        let dir = tempfile::tempdir().unwrap();
        fs::create_dir(dir.path().join("scratch")).unwrap();
        let child = command(dir.path(), peer).spawn().unwrap();
        let listener = Self { dir, child };
        until("it listens", || listener.try_count().is_some());
        listener
    }

    fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    fn try_count(&self) -> Option<u32> {
        let mut bytes = Vec::new();
        UnixStream::connect(self.path("socket.count")).ok()?.read_to_end(&mut bytes).ok()?;
        Some(Running::from_bytes(&bytes).ok()?.running)
    }

    fn count(&self) -> u32 {
        self.try_count().expect("a whole count")
    }

    fn connect(&self) -> UnixStream {
        let stream = UnixStream::connect(self.path("socket")).unwrap();
        stream.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
        stream
    }

    /// A connection whose worker has said hello, and what it said.
    fn greeted(&self) -> (UnixStream, Sandbox) {
        let mut stream = self.connect();
        let hello = greet(&mut stream).expect("a hello");
        (stream, hello)
    }

    /// Process ids of the workers that hold scratch.
    fn workers(&self) -> Vec<i32> {
        let dirs = fs::read_dir(self.path("scratch")).unwrap();
        let names = dirs.map(|dir| dir.unwrap().file_name().into_string().unwrap());
        names.map(|name| name.split('-').nth(2).unwrap().parse().unwrap()).collect()
    }
}

impl Drop for Listener {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn greet(stream: &mut UnixStream) -> Option<Sandbox> {
    let hello = Frame::Hello(Hello { v: frames::VERSION, sandbox: None });
    stream.write_all(&hello.to_bytes().unwrap()).ok()?;
    let (mut decoder, mut buffer) = (FrameDecoder::new(), [0; 4096]);
    loop {
        if let Some(frame) = decoder.next() {
            let Ok(Frame::Hello(hello)) = frame else { panic!("{frame:?}") };
            return hello.sandbox;
        }
        match stream.read(&mut buffer).ok()? {
            0 => return None,
            len => decoder.feed(&buffer[..len]),
        }
    }
}

#[test]
fn each_connection_has_a_fresh_enclosed_process_and_leaves_nothing() {
    let listener = Listener::start();
    assert_eq!(listener.count(), 0);
    let (first, sandbox) = listener.greeted();
    assert!(sandbox.seccomp && sandbox.no_new_privileges && sandbox.no_dump);
    assert_eq!((sandbox.limits.file, sandbox.limits.core), (1 << 20, 0));
    let (second, _) = listener.greeted();
    assert_eq!(listener.count(), 2);
    let pids = listener.workers();
    assert_eq!(pids.len(), 2);
    assert!(pids[0] != pids[1] && !pids.contains(&(listener.child.id() as i32)));
    drop((first, second));
    until("both have stopped", || listener.count() == 0);
    assert_eq!(listener.workers(), [0; 0], "no scratch is left");
}

#[test]
fn a_fourth_connection_is_closed_unheard_and_a_place_comes_free() {
    let listener = Listener::start();
    let mut held: Vec<_> = (0..3).map(|_| listener.greeted()).collect();
    assert_eq!(greet(&mut listener.connect()), None);
    assert_eq!(listener.count(), 3);
    held.pop();
    until("a place is free", || listener.count() == 2);
    held.push(listener.greeted());
    assert_eq!(listener.count(), 3);
}

#[test]
fn a_worker_that_was_killed_leaves_no_scratch_and_no_place_taken() {
    let listener = Listener::start();
    let (mut stream, _) = listener.greeted();
    let pid = rustix::process::Pid::from_raw(listener.workers()[0]).unwrap();
    rustix::process::kill_process(pid, rustix::process::Signal::KILL).unwrap();
    assert_eq!(stream.read(&mut [0]).unwrap_or(0), 0);
    until("it is gone", || listener.count() == 0);
    assert_eq!(listener.workers(), [0; 0]);
}

#[test]
fn workers_of_an_earlier_listener_count_until_they_are_gone() {
    let mut listener = Listener::start();
    let (orphaned, _) = listener.greeted();
    listener.child.kill().unwrap();
    listener.child.wait().unwrap();
    // The sockets it left do not keep another from taking their place.
    listener.child = command(listener.dir.path(), own_uid()).spawn().unwrap();
    until("it listens again", || listener.try_count().is_some());
    assert_eq!(listener.count(), 1);
    let (_own, _) = listener.greeted();
    assert_eq!(listener.count(), 2);
    drop(orphaned);
    until("the orphan is gone", || listener.count() == 1);
}

#[test]
fn a_stranger_s_connection_starts_nothing() {
    let listener = Listener::for_peer(own_uid() + 1);
    assert_eq!(greet(&mut listener.connect()), None);
    assert_eq!(listener.count(), 0);
    assert_eq!(listener.workers(), [0; 0]);
}

#[test]
fn the_sockets_are_closed_to_other_users() {
    let listener = Listener::start();
    for name in ["socket", "socket.count"] {
        let mode = fs::metadata(listener.path(name)).unwrap().mode();
        assert_eq!(mode & 0o777, 0o660, "{name}");
    }
}

#[test]
fn what_cannot_be_listened_on_or_written_in_is_said() {
    let listener = Listener::start();
    let refused = |dir: &Path| {
        let output = command(dir, own_uid()).output().unwrap();
        assert_eq!(output.status.code(), Some(exit::NOT_LISTENING.into()), "{output:?}");
        String::from_utf8(output.stderr).unwrap()
    };
    assert!(refused(listener.dir.path()).contains("socket"), "somebody listens there");
    until("no worker is left of the look", || listener.count() == 0);
    let dir = tempfile::tempdir().unwrap();
    assert!(refused(dir.path()).contains("scratch"));
    fs::create_dir(dir.path().join("scratch")).unwrap();
    fs::write(dir.path().join("socket"), b"a person's file").unwrap();
    assert!(refused(dir.path()).contains("socket"));
    assert_eq!(fs::read(dir.path().join("socket")).unwrap(), b"a person's file");
}
