//! The sandboxed process that decodes a tenant's pages and runs a member's SQL.
//!
//! It is started with a connection as its standard input, owns one scratch directory, reaches
//! nothing else, and ends with its connection (db-forward §8.3).
#![cfg_attr(test, allow(clippy::disallowed_methods, clippy::disallowed_macros))]

use std::ffi::OsString;
use std::process::ExitCode;

#[cfg(target_os = "linux")]
pub mod clock;
pub mod exit;
#[cfg(target_os = "linux")]
pub mod gate;
pub mod life;
#[cfg(target_os = "linux")]
pub mod listen;
#[cfg(target_os = "linux")]
pub mod options;
#[cfg(target_os = "linux")]
pub mod sandbox;
#[cfg(target_os = "linux")]
pub mod scratch;
#[cfg(target_os = "linux")]
pub mod serve;
pub mod session;
#[cfg(target_os = "linux")]
pub mod voice;
#[cfg(target_os = "linux")]
pub mod watcher;

/// The worker's `main`: serves the connection on standard input and says how it ended, by the
/// codes of [`exit`]. `args` come without the program's name.
///
/// The process must still have one thread, because the sandbox binds only the threads that come
/// after it: call this before any runtime is started.
#[must_use]
pub fn main_entry(args: impl IntoIterator<Item = OsString>) -> ExitCode {
    ExitCode::from(entry::run(args))
}

#[cfg(target_os = "linux")]
mod entry {
    use std::ffi::OsString;
    use std::io::Write;
    use std::panic;

    use tracing_subscriber::EnvFilter;

    use crate::exit;
    use crate::listen;
    use crate::options::Options;
    use crate::options::USAGE;
    use crate::options::UsageError;
    use crate::serve;

    /// What diagnostics are wanted, `warn` without it; `info` tells of every start and end.
    const LOG_VARIABLE: &str = "CARLOS_LOG";

    pub(super) fn run(args: impl IntoIterator<Item = OsString>) -> u8 {
        let args: Vec<OsString> = args.into_iter().collect();
        let count = args.len();
        let options = match Options::parse(args) {
            Ok(options) => options,
            Err(UsageError::Help) => return say(USAGE, exit::DONE),
            Err(error) => {
                return say(&format!("carlos-dbread-worker: {error}\n{USAGE}"), exit::USAGE);
            }
        };
        log_to_stderr();
        if let Some(socket) = &options.listen {
            let Err(error) = listen::listen(socket, &options, &leading(count));
            tracing::error!("{error}");
            return exit::NOT_LISTENING;
        }
        serve::serve_stdin(&options).unwrap_or_else(|error| {
            tracing::error!("{error}");
            error.exit_code()
        })
    }

    /// What comes before the worker's own `count` arguments on this process's command line:
    /// nothing, or the words by which a larger program becomes the worker.
    fn leading(count: usize) -> Vec<OsString> {
        let all: Vec<OsString> = std::env::args_os().skip(1).collect();
        let leading = all.len().saturating_sub(count);
        all.into_iter().take(leading).collect()
    }

    fn say(text: &str, code: u8) -> u8 {
        // Standard output may be the connection, and nobody is left to tell of a failure.
        let _ = writeln!(std::io::stderr(), "{text}");
        code
    }

    fn log_to_stderr() {
        let filter = EnvFilter::try_from_env(LOG_VARIABLE).unwrap_or_else(|_| "warn".into());
        let subscriber = tracing_subscriber::fmt().with_env_filter(filter).with_ansi(false);
        // An embedding program may have set its own before.
        let _ = subscriber.with_writer(std::io::stderr).try_init();
        // The text of a panic can quote what was being decoded; its place cannot.
        panic::set_hook(Box::new(|info| {
            let place = info.location().map(ToString::to_string).unwrap_or_default();
            tracing::error!(%place, "panic");
        }));
    }
}

#[cfg(not(target_os = "linux"))]
mod entry {
    use std::ffi::OsString;
    use std::io::Write;

    use crate::exit;

    pub(super) fn run(_args: impl IntoIterator<Item = OsString>) -> u8 {
        let text = "the database worker runs on Linux boxes only";
        // Nobody is left to tell of a failure.
        let _ = writeln!(std::io::stderr(), "{text}");
        exit::UNSUPPORTED
    }
}
