//! The `carlos` command. Everything is in the library, so that tests and the embedded stack share it.

use std::process::ExitCode;

fn main() -> ExitCode {
    carlos_cli::main()
}
