//! The worker as its own program; `carlos system db-worker` is the same entry.

use std::process::ExitCode;

fn main() -> ExitCode {
    carlos_dbread_worker::main_entry(std::env::args_os().skip(1))
}
