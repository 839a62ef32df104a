//! The `carlos` command: client commands for people, and the platform's services in one binary.
#![cfg_attr(test, allow(clippy::disallowed_methods, clippy::disallowed_macros))]

pub mod admin;
pub mod args;
pub mod client;
pub mod commands;
pub mod config;
pub mod exit;
pub mod failure;
pub mod out;
pub mod output;
pub mod screen;
#[cfg(target_os = "linux")]
pub mod stack;
#[cfg(not(target_os = "linux"))]
#[path = "stack_elsewhere.rs"]
pub mod stack;
#[cfg(target_os = "linux")]
pub mod system;
pub mod when;

use std::process::ExitCode;

use clap::Parser as _;

use crate::args::Args;
use crate::exit::Exit;

/// Runs the command line this process was started with.
#[must_use]
pub fn main() -> ExitCode {
    match Args::try_parse() {
        Ok(args) => commands::run(args.command),
        Err(error) => {
            out::show_clap(&error);
            let exit = if error.use_stderr() { Exit::Usage } else { Exit::Done };
            ExitCode::from(exit.code())
        }
    }
}
