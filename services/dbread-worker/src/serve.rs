//! The worker as a process: gate, scratch, sandbox, conversation, end.

use std::io;
use std::io::Read;
use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;
use std::panic::AssertUnwindSafe;
use std::panic::catch_unwind;
use std::path::Path;
use std::sync::Arc;

use carlos_protocol::frames::Frame;
use carlos_protocol::frames::FrameDecoder;
use carlos_protocol::frames::Outcome;
use carlos_protocol::frames::Sandbox;
use thiserror::Error;

use crate::clock;
use crate::exit;
use crate::gate;
use crate::gate::GateError;
use crate::gate::UnknownUser;
use crate::life::Life;
use crate::life::Reason;
use crate::options::Options;
use crate::sandbox;
use crate::sandbox::Report;
use crate::sandbox::SandboxError;
use crate::scratch::Scratch;
use crate::session;
use crate::session::DATABASE;
use crate::session::Next;
use crate::session::Session;
use crate::session::Sink;
use crate::voice::Voice;
use crate::watcher;

/// Bytes read from the connection at once: a frame of file data is a few of these.
const READ_BYTES: usize = 256 * 1024;

/// Why the worker serves nobody.
#[derive(Debug, Error)]
pub enum StartError {
    /// Standard input is not a connection to serve.
    #[error(transparent)]
    Gate(#[from] GateError),
    /// No sandbox.
    #[error("no sandbox: {0}")]
    Sandbox(#[from] SandboxError),
    /// No scratch directory.
    #[error("no scratch directory: {0}")]
    Scratch(io::Error),
    /// `--peer-user` names nobody.
    #[error(transparent)]
    User(#[from] UnknownUser),
    /// No watcher.
    #[error("no watcher: {0}")]
    Watcher(io::Error),
}

impl StartError {
    /// How the process ends over it.
    #[must_use]
    pub fn exit_code(&self) -> u8 {
        match self {
            Self::Gate(GateError::WrongPeer { .. }) => exit::WRONG_PEER,
            Self::Gate(_) => exit::NO_CONNECTION,
            Self::Sandbox(_) | Self::Watcher(_) => exit::NO_SANDBOX,
            Self::Scratch(_) => exit::NO_SCRATCH,
            Self::User(_) => exit::USAGE,
        }
    }
}

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

/// Serves the connection on standard input to its end, and says how the process shall end.
///
/// # Errors
/// [`StartError`] when there is nothing to serve, or nothing to serve it in.
pub fn serve_stdin(options: &Options) -> Result<u8, StartError> {
    let wanted = gate::resolve_user(&options.peer_user)?;
    let connection = gate::admit(io::stdin().as_fd(), wanted)?.connection;
    let fenced = fence(&connection, &options.scratch_root, options.max_bytes)?;
    tracing::info!(report = ?fenced.report, "enclosed");
    Ok(converse(connection, &fenced, options.max_bytes))
}

/// Makes scratch and puts the sandbox up around the process, in the order that
/// [`crate::sandbox`] explains. `connection` is watched from here on.
///
/// # Errors
/// [`StartError`]; the process then serves nothing.
pub fn fence(
    connection: &UnixStream,
    scratch_root: &Path,
    max_bytes: u64,
) -> Result<Fenced, StartError> {
    let scratch = Scratch::create(scratch_root).map_err(StartError::Scratch)?;
    let life = Arc::new(Life::new(clock::monotonic));
    // The first look finds the page that the kernel shares its clock on, through /proc, which is
    // closed afterwards. Without that page every later look would be a system call.
    let _ = life.now();
    let enclosed = sandbox::enclose(&scratch.path().join(DATABASE), max_bytes)?;
    let voice = connection.try_clone().map(Voice::new).map_err(StartError::Watcher)?;
    let voice = Arc::new(voice);
    let ending = ProcessEnd { voice: Arc::clone(&voice) };
    watcher::start(connection, Arc::clone(&life), ending).map_err(StartError::Watcher)?;
    let report = enclosed.seal()?;
    Ok(Fenced { scratch, report, life, voice })
}

/// Reads frames until the session is over or the peer has left.
fn converse(mut connection: UnixStream, fenced: &Fenced, max_bytes: u64) -> u8 {
    let Fenced { scratch, report, life, voice } = fenced;
    let mut session = Session::new(Arc::clone(life), scratch.path(), max_bytes, hello(report));
    let (mut decoder, mut buffer) = (FrameDecoder::new(), vec![0; READ_BYTES]);
    let mut sink = Speaking(voice);
    loop {
        let len = match connection.read(&mut buffer) {
            Ok(0) if session.may_end() && decoder.is_empty() => return exit::DONE,
            Ok(0) => return exit::PEER_LOST,
            Ok(len) => len,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
            Err(error) => return lost(&error, life),
        };
        decoder.feed(&buffer[..len]);
        match all_frames(&mut decoder, &mut session, &mut sink) {
            Ok(Next::Listen) => {}
            Ok(Next::Over(outcome)) => return over(outcome, life),
            Err(error) => return lost(&error, life),
        }
    }
}

fn all_frames(
    decoder: &mut FrameDecoder,
    session: &mut Session,
    sink: &mut Speaking<'_>,
) -> io::Result<Next> {
    while let Some(frame) = decoder.next() {
        let next = match frame {
            Ok(frame) => contained(session, frame, sink)?,
            Err(error) => session.on_garbage(&error, sink)?,
        };
        if matches!(next, Next::Over(_)) {
            return Ok(next);
        }
    }
    Ok(Next::Listen)
}

/// A panic in a decoder is a fault of ours that a tenant's bytes have found. It ends this read
/// with a status, and the process with it.
fn contained(session: &mut Session, frame: Frame, sink: &mut Speaking<'_>) -> io::Result<Next> {
    catch_unwind(AssertUnwindSafe(|| session.on_frame(frame, sink))).unwrap_or_else(|_panic| {
        let fault = session::status(Outcome::Internal, "the worker failed".to_owned());
        sink.send(Frame::Status(fault))?;
        Ok(Next::Over(Outcome::Internal))
    })
}

fn over(outcome: Outcome, life: &Life) -> u8 {
    tracing::info!(?outcome, "over");
    match outcome {
        Outcome::BadInput => exit::BROKEN_PROTOCOL,
        _ if life.reason() == Some(Reason::PeerLost) => exit::PEER_LOST,
        _ => exit::DONE,
    }
}

fn lost(error: &io::Error, life: &Life) -> u8 {
    use io::ErrorKind::BrokenPipe;
    use io::ErrorKind::ConnectionReset;
    let left = matches!(error.kind(), BrokenPipe | ConnectionReset);
    if left || life.reason() == Some(Reason::PeerLost) {
        return exit::PEER_LOST;
    }
    tracing::error!(%error, "the connection failed");
    exit::CONNECTION_FAILED
}

fn hello(report: &Report) -> Sandbox {
    Sandbox {
        loopback_only: report.only_loopback,
        data_empty: report.data_empty,
        config_hidden: report.config_unreadable,
        uid: report.uid,
        no_new_privileges: report.no_new_privs,
        no_capabilities: report.powerless,
        no_dump: report.non_dumpable,
        limits: report.limits,
        landlock_abi: report.landlock_abi,
        landlock_offered: report.landlock_offered,
        seccomp: report.seccomp,
    }
}

/// Frames to the peer.
struct Speaking<'a>(&'a Voice);

impl Sink for Speaking<'_> {
    fn send(&mut self, frame: Frame) -> io::Result<()> {
        self.0.say(&frame.to_bytes().map_err(io::Error::other)?)
    }
}

/// How the watcher ends this process.
struct ProcessEnd {
    voice: Arc<Voice>,
}

impl watcher::Ending for ProcessEnd {
    fn last_word(&mut self, outcome: Outcome) {
        let status = session::status(outcome, String::new());
        if let Ok(frame) = Frame::Status(status).to_bytes() {
            self.voice.say_at_once(&frame);
        }
    }

    /// Runs no destructor of another thread and waits for none: what the C library does on the
    /// way is to flush its own streams, and nothing here uses them.
    fn end(&mut self, code: u8) -> ! {
        std::process::exit(code.into())
    }
}
