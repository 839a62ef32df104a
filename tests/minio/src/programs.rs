//! The real programs, as processes of their own.

use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};

/// The program that everything is; built beside the tests.
pub fn carlos() -> Command {
    built("carlos")
}

/// Parts of the product with settings that only tests have; see `src/part.rs`.
pub(crate) fn part() -> Command {
    built("carlos-s3-part")
}

fn built(name: &str) -> Command {
    let test = std::env::current_exe().unwrap();
    let program = test.parent().and_then(Path::parent).unwrap().join(name);
    assert!(program.is_file(), "run: cargo build --workspace --bins");
    let mut command = Command::new(program);
    // Nothing of whoever runs the tests.
    command.env_clear().env("PATH", std::env::var_os("PATH").unwrap_or_default());
    command.stdin(Stdio::null());
    command
}

/// What a finished program said.
#[derive(Debug)]
pub struct Ran {
    pub code: Option<i32>,
    pub stdout: String,
    pub stderr: String,
}

impl From<Output> for Ran {
    fn from(output: Output) -> Self {
        let text = |bytes: Vec<u8>| String::from_utf8_lossy(&bytes).into_owned();
        Self {
            code: output.status.code(),
            stdout: text(output.stdout),
            stderr: text(output.stderr),
        }
    }
}

/// Runs `carlos` with these words and variables to its end.
pub fn run(words: &[&str], vars: &[(String, String)]) -> Ran {
    let vars = vars.iter().map(|(name, value)| (name, value));
    carlos().args(words).envs(vars).output().unwrap().into()
}

/// A service that runs until it is dropped.
pub struct Service {
    child: Child,
    log: PathBuf,
}

impl Service {
    /// Starts `carlos <name>`; what it logs goes to `<dir>/<log>`.
    pub fn start(name: &str, vars: &[(String, String)], dir: &Path, log: &str) -> Self {
        let vars = vars.iter().map(|(name, value)| (name, value));
        let mut command = carlos();
        command.arg(name).envs(vars);
        Self::spawn(command, dir.join(log))
    }

    /// Starts any program; what it logs goes to `log`.
    pub fn spawn(mut command: Command, log: PathBuf) -> Self {
        let out = std::fs::File::create(&log).unwrap();
        command.stderr(out).stdout(Stdio::null());
        Self { child: command.spawn().unwrap(), log }
    }

    /// Its number among the machine's processes.
    pub fn id(&self) -> u32 {
        self.child.id()
    }

    /// Everything it has logged.
    pub fn log(&self) -> String {
        std::fs::read_to_string(&self.log).unwrap()
    }

    /// Its exit code, if it has ended.
    pub fn ended(&mut self) -> Option<i32> {
        self.child.try_wait().unwrap().map(|status| status.code().unwrap_or(-1))
    }
}

impl Drop for Service {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
