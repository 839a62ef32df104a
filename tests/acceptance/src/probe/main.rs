//! A worker that tries what no worker may, one act a connection, and says what came of it.
//!
//! It takes the product's place on a test host, so that the units start it exactly as they start a
//! worker. Anywhere else it refuses to run, and no build of the product contains it.
#![allow(clippy::disallowed_methods, clippy::disallowed_macros, clippy::unwrap_used, clippy::panic)]

mod acts;
mod agent;
mod client;
mod stand;
mod worker;

use std::path::Path;
use std::process::ExitCode;

use carlos_tests_acceptance::host::MARK;

fn main() -> ExitCode {
    if !Path::new(MARK).is_file() {
        eprintln!("this program runs in a root of the acceptance tests only");
        return ExitCode::FAILURE;
    }
    let words: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    match words[..] {
        ["system", "db-worker", "--max-bytes", bytes] => worker::serve(bytes.parse().unwrap()),
        ["ask", socket, walls, ref acts @ ..] => client::ask(socket, walls == "inner", acts),
        ["send", socket, file, extra, restored] => {
            agent::send(socket, file, extra.parse().unwrap(), restored.parse().unwrap());
        }
        ["stand"] => stand::forever(),
        ["sleep"] => std::thread::sleep(std::time::Duration::from_secs(30)),
        _ => panic!("{words:?}"),
    }
    ExitCode::SUCCESS
}
