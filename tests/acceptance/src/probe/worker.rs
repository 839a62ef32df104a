//! The worker's side: the product's own gate and sandbox, and an act instead of a read.

use std::io::{self, BufRead as _, BufReader, Write as _};
use std::os::fd::AsFd as _;
use std::os::unix::net::UnixStream;
use std::path::Path;

use carlos_dbread_worker::{gate, serve};
use carlos_tests_acceptance::acts::{Answer, Request};

use crate::acts;

/// Where a worker may write: its unit's own.
const SCRATCH: &str = "/var/tmp";

/// Serves one request of the connection on standard input.
pub(crate) fn serve(max_bytes: u64) {
    let uid = gate::resolve_user(gate::DEFAULT_PEER_USER).unwrap();
    let connection = gate::admit(io::stdin().as_fd(), uid).unwrap().connection;
    let mut lines = BufReader::new(connection.try_clone().unwrap());
    let mut line = String::new();
    lines.read_line(&mut line).unwrap();
    let request: Request = serde_json::from_str(&line).unwrap();
    // What a worker holds when a tenant's first byte arrives.
    let fenced =
        request.inner.then(|| serve::fence(&connection, Path::new(SCRATCH), max_bytes).unwrap());
    let scratch = match &fenced {
        Some(fenced) => fenced.scratch.path(),
        None => Path::new(SCRATCH),
    };
    let answer = acts::attempt(&request.act, scratch);
    say(&connection, &answer);
    if request.act == acts::HOLD {
        // A victim stays for as long as somebody looks.
        let _ = lines.read_line(&mut line);
    }
}

fn say(mut connection: &UnixStream, answer: &Answer) {
    let line = format!("{}\n", serde_json::to_string(answer).unwrap());
    connection.write_all(line.as_bytes()).unwrap();
}
