//! The `carlos` command: client commands for people, and the platform's services in one binary.
#![cfg_attr(test, allow(clippy::disallowed_methods, clippy::disallowed_macros))]

pub mod args;
pub mod client;
pub mod commands;
pub mod config;
pub mod exit;
pub mod failure;
pub mod out;
pub mod when;

use std::process::ExitCode;

use carlos_bucket::Context;
use carlos_protocol::copy;
use clap::Parser as _;

use crate::args::{Args, Command};
use crate::exit::Exit;
use crate::failure::Failure;

/// Runs the command line this process was started with.
#[must_use]
pub fn main() -> ExitCode {
    let args = match Args::try_parse() {
        Ok(args) => args,
        Err(error) => {
            out::show_clap(&error);
            let exit = if error.use_stderr() { Exit::Usage } else { Exit::Done };
            return ExitCode::from(exit.code());
        }
    };
    match run(args.command) {
        Ok(()) => ExitCode::from(Exit::Done.code()),
        Err(failure) => {
            out::say(&failure.text());
            ExitCode::from(failure.exit.code())
        }
    }
}

fn run(command: Command) -> Result<(), Failure> {
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(WORKERS)
        .enable_all()
        .build()
        .map_err(|error| Failure::unexpected(format!("could not start: {error}.")))?;
    let ended = runtime.block_on(until_interrupt(commands::run(command, Context::system())));
    // A write to a pager that no longer reads would hold the process; Ctrl-C ends it all the same.
    runtime.shutdown_background();
    ended
}

/// Runs a client command until it ends or the person presses Ctrl-C, which drops it where it is:
/// its connections close, and the other side takes that as the end (db-forward §5.5).
async fn until_interrupt(
    command: impl Future<Output = Result<(), Failure>>,
) -> Result<(), Failure> {
    tokio::select! {
        biased;
        _ = tokio::signal::ctrl_c() => Err(copy::stopped().into()),
        ended = command => ended,
    }
}

/// One for the network and one for whatever blocks; services bring their own needs.
const WORKERS: usize = 2;
