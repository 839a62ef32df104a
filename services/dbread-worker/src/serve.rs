//! The worker as a process: gate, scratch, sandbox, conversation, end.

use std::ffi::OsString;
use std::io;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::process::ExitCode;
use std::sync::Arc;

use thiserror::Error;

use crate::exit;
use crate::life::Life;
use crate::sandbox;
use crate::sandbox::Report;
use crate::sandbox::SandboxError;
use crate::scratch::Scratch;
use crate::voice::Voice;
use crate::watcher;

/// A process that is enclosed and watched, before it has read a byte.
#[derive(Debug)]
pub struct Fenced {
    /// The directory it may write in.
    pub scratch: Scratch,
    /// What is in force.
    pub report: Report,
    /// Shared with the watcher.
    pub life: Arc<Life>,
    /// Shared with the watcher.
    pub voice: Arc<Voice>,
}

/// Why a process could not be fenced in.
#[derive(Debug, Error)]
pub enum FenceError {
    /// No scratch directory.
    #[error("no scratch directory: {0}")]
    Scratch(io::Error),
    /// No sandbox.
    #[error("no sandbox: {0}")]
    Sandbox(#[from] SandboxError),
    /// No watcher.
    #[error("no watcher: {0}")]
    Watcher(io::Error),
}

/// Makes scratch and puts the sandbox up around the process, in the order that
/// [`crate::sandbox`] explains. `connection` is watched from here on.
///
/// # Errors
/// [`FenceError`]; the process then serves nothing.
pub fn fence(
    connection: &UnixStream,
    scratch_root: &Path,
    max_bytes: u64,
) -> Result<Fenced, FenceError> {
    let scratch = Scratch::create(scratch_root).map_err(FenceError::Scratch)?;
    let enclosed = sandbox::enclose(scratch.path(), max_bytes)?;
    let voice = connection.try_clone().map(Voice::new).map_err(FenceError::Watcher)?;
    let (life, voice) = (Arc::new(Life::default()), Arc::new(voice));
    let ending = ProcessEnd;
    watcher::start(connection, Arc::clone(&life), ending).map_err(FenceError::Watcher)?;
    let report = enclosed.seal()?;
    Ok(Fenced { scratch, report, life, voice })
}

struct ProcessEnd;
impl watcher::Ending for ProcessEnd {
    fn last_word(&mut self) {}
    fn end(&mut self, code: u8) -> ! {
        std::process::exit(code.into())
    }
}
