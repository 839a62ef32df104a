//! The real binary against a console that answers from a script.
#![allow(clippy::disallowed_methods, clippy::disallowed_macros, clippy::unwrap_used)]

mod answer;
mod console;
mod doctor;
mod exit_codes;
mod login;
mod operators;
mod replica;
mod t11_buffering;
mod values_and_files;

use std::io::Write as _;
use std::path::Path;
use std::process::{Command, Output, Stdio};

pub(crate) use answer::{Answer, Shop, chunk_line, join, summary_of};
pub(crate) use console::{Console, End, Reply, Script};

/// The token every test logs in with.
pub(crate) const TOKEN: &str = "cpt_acme_aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa";

/// The sentence behind exit code 13, as `docs/errors.md` gives it for `uk`.
pub(crate) const NOT_VERIFIED: &str =
    "the answer from region uk did not check out, so carlos db showed none of it. try again.";

/// What one run of the binary left behind.
#[derive(Debug)]
pub(crate) struct Ran {
    pub(crate) code: i32,
    pub(crate) stdout: Vec<u8>,
    pub(crate) stderr: String,
}

impl Ran {
    /// Checks the contract of every failure: its exit code, its words, and an empty stdout.
    #[track_caller]
    pub(crate) fn failed(&self, code: i32, words: &str) {
        assert!(self.stdout.is_empty(), "stdout is not empty: {self:?}");
        assert_eq!(self.code, code, "{self:?}");
        assert!(self.stderr.contains(words), "no {words:?} in {:?}", self.stderr);
        assert!(!self.stderr.contains("cpt_acme"), "the token shows: {:?}", self.stderr);
    }
}

impl From<Output> for Ran {
    fn from(output: Output) -> Self {
        Self {
            code: output.status.code().unwrap_or(-1),
            stdout: output.stdout,
            stderr: String::from_utf8_lossy(&output.stderr).into_owned(),
        }
    }
}

/// The binary with nothing of this machine's environment that could change what it does.
pub(crate) fn carlos(home: &Path) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_carlos"));
    command
        .env_clear()
        .env("CARLOS_CONFIG_DIR", home)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    command
}

/// Runs `carlos args...` against `console`, logged in by environment.
pub(crate) fn run(console: &Console, args: &[&str]) -> Ran {
    let home = tempfile::tempdir().expect("a directory");
    let mut command = carlos(home.path());
    command.env("CARLOS_URL", console.url()).env("CARLOS_TOKEN", TOKEN).args(args);
    command.output().expect("the binary runs").into()
}

/// The query most tests ask.
pub(crate) fn query(console: &Console, more: &[&str]) -> Ran {
    let mut args = vec!["db", "query", "acme/shop", "--instance", "shop.example.com"];
    args.extend(more);
    args.push("SELECT id, name FROM orders");
    run(console, &args)
}

/// Runs a command that reads `input` from stdin.
pub(crate) fn run_with_input(command: &mut Command, input: &[u8]) -> Ran {
    let mut child = command.stdin(Stdio::piped()).spawn().expect("the binary runs");
    let mut stdin = child.stdin.take().expect("stdin is a pipe");
    // A command that refuses early closes its end, which is no fault of the test's.
    let _ = stdin.write_all(input);
    drop(stdin);
    child.wait_with_output().expect("it ends").into()
}
