//! The agent's side: one connection for each act, as user carlos.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::os::unix::net::UnixStream;
use std::time::Duration;

use carlos_tests_acceptance::acts::{Answer, Request};

use crate::acts::HOLD;

/// An act that takes longer counts as not having worked.
const PATIENCE: Duration = Duration::from_secs(30);

/// Has each act tried by a worker of its own and prints what came of it, a line each. While a
/// worker holds, the acts after it are tried beside it, on what it said about itself.
pub(crate) fn ask(socket: &str, inner: bool, acts: &[&str]) {
    let mut held: Option<(UnixStream, String)> = None;
    for act in acts {
        let about = held.as_ref().map_or("", |(_, said)| said.as_str());
        let act = if about.is_empty() { (*act).to_owned() } else { format!("{act} {about}") };
        let (connection, answer) = one(socket, inner, &act);
        println!("{}", serde_json::to_string(&answer).unwrap());
        if act == HOLD {
            held = connection.map(|connection| (connection, answer.detail));
        }
    }
}

fn one(socket: &str, inner: bool, act: &str) -> (Option<UnixStream>, Answer) {
    let ended = |why: &str| Answer { worked: false, detail: format!("no answer: {why}") };
    let connection = UnixStream::connect(socket).unwrap();
    connection.set_read_timeout(Some(PATIENCE)).unwrap();
    let request = Request { act: act.to_owned(), inner };
    let line = format!("{}\n", serde_json::to_string(&request).unwrap());
    if let Err(error) = (&connection).write_all(line.as_bytes()) {
        return (None, ended(&error.to_string()));
    }
    let mut answer = String::new();
    if let Err(error) = BufReader::new(&connection).read_line(&mut answer) {
        return (None, ended(&error.to_string()));
    }
    let parsed = serde_json::from_str(&answer);
    let answer: Answer = parsed.unwrap_or_else(|_| ended("the worker ended"));
    if act != HOLD {
        // Its unit may take a moment to stop; the next one must find a free connection.
        let _ = (&connection).read(&mut [0]);
    }
    (Some(connection), answer)
}
