//! The `carlos` command. Everything is in the library, which tests and the embedded stack share.

use std::process::ExitCode;

fn main() -> ExitCode {
    carlos_cli::main()
}
