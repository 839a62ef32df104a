//! One read, from hello to status, as a state machine over frames.
//!
//! ```text
//!            Hello            Header            last byte            Run
//! Greeting --------> Waiting --------> Receiving ---------> Holding -----> Over
//!            Hello                                Ready             Output*, Status
//! ```
//!
//! Nothing is answered from an unchecked copy. Before `Ready` the structure of the whole file is
//! checked, which takes seconds for a gigabyte; after `Run`, and before the statement begins, the
//! tables that it reads are checked against their indexes, which takes most of a minute for a
//! gigabyte and nothing for what the statement leaves alone (docs/design.md).
//!
//! `Stop` ends every state but the first with a status. A frame that has no place in a state, and
//! whatever a header or a file says that does not hold, ends the read with a status that says so.
//! Nothing here owns a socket or a thread: frames come in through [`Session::on_frame`] and leave
//! through a [`Sink`], so that the process on a box and a test run the same code.

use std::io;
use std::mem;
use std::path::Path;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use carlos_dbquery::IntegrityError;
use carlos_dbquery::IntegrityMode;
use carlos_dbquery::Limits;
use carlos_dbquery::Query;
use carlos_dbquery::QueryError;
use carlos_dbquery::Ran;
use carlos_protocol::frames::Frame;
use carlos_protocol::frames::FrameError;
use carlos_protocol::frames::Header;
use carlos_protocol::frames::Hello;
use carlos_protocol::frames::Outcome;
use carlos_protocol::frames::Run;
use carlos_protocol::frames::Sandbox;
use carlos_protocol::frames::Status;
use carlos_protocol::frames::VERSION;
use carlos_protocol::ids::Digest;
use carlos_protocol::limits;

use self::bounds::BadHeader;
use self::bounds::Bounds;
use self::outlet::Outlet;
use self::receiving::Receiving;
use crate::life::Life;
use crate::life::Reason;

mod bounds;
mod outlet;
mod receiving;

/// Name of the restored database in the scratch directory.
pub const DATABASE: &str = "database";

/// Where a session's frames go.
pub trait Sink {
    /// Passes one frame on, waiting as long as the other side takes.
    ///
    /// # Errors
    /// When nobody takes frames any more; the session is then over.
    fn send(&mut self, frame: Frame) -> io::Result<()>;
}

/// Whether a session wants another frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Next {
    /// It does.
    Listen,
    /// The last frame has been sent.
    Over(Outcome),
}

/// One read.
#[derive(Debug)]
pub struct Session {
    life: Arc<Life>,
    scratch: PathBuf,
    max_bytes: u64,
    sandbox: Sandbox,
    state: State,
}

#[derive(Debug)]
enum State {
    /// Nothing was said yet.
    Greeting,
    /// Both sides have said hello.
    Waiting,
    /// The planned files come in.
    Receiving(Box<Receiving>),
    /// The copy is restored and sound, and no SQL has been seen.
    Holding(Held),
    /// The status, or a hello of another version, was the last word.
    Over,
}

/// A restored copy that is waiting for its statement.
#[derive(Debug)]
struct Held {
    bounds: Bounds,
    /// What restoring and checking have left of their time.
    check_time: Duration,
}

/// An end that is not a whole answer.
struct Failure(Outcome, String);

impl Session {
    /// A session that restores at most `max_bytes` into `scratch`, and says `sandbox` in its hello.
    ///
    /// The whole session is bounded by the owner's deadline, counted from here.
    #[must_use]
    pub fn new(life: Arc<Life>, scratch: &Path, max_bytes: u64, sandbox: Sandbox) -> Self {
        life.limit(limits::OWNER_TIME, Outcome::Stopped);
        Self { life, scratch: scratch.to_owned(), max_bytes, sandbox, state: State::Greeting }
    }

    /// Takes one frame of the peer's and does all it asks for, which can take minutes.
    ///
    /// # Errors
    /// The sink's.
    pub fn on_frame(&mut self, frame: Frame, sink: &mut dyn Sink) -> io::Result<Next> {
        match (mem::replace(&mut self.state, State::Over), frame) {
            (State::Greeting, Frame::Hello(hello)) => self.greet(&hello, sink),
            (State::Waiting, Frame::Header(header)) => self.begin(&header, sink),
            (State::Receiving(receiving), Frame::FileData(bytes)) => {
                self.receive(receiving, &bytes, sink)
            }
            (State::Holding(held), Frame::Run(run)) => self.run(&held, &run, sink),
            (State::Waiting | State::Receiving(_) | State::Holding(_), Frame::Stop) => {
                end(Failure(Outcome::Stopped, String::new()), sink)
            }
            (_, frame) => end(bad_input(format!("{} has no place here", name(&frame))), sink),
        }
    }

    /// Ends the session over bytes that are no frame.
    ///
    /// # Errors
    /// The sink's.
    pub fn on_garbage(&mut self, error: &FrameError, sink: &mut dyn Sink) -> io::Result<Next> {
        self.state = State::Over;
        end(bad_input(error.to_string()), sink)
    }

    /// Whether the peer may leave here without having lost anything: it asked for nothing (a
    /// probe), or has the status.
    #[must_use]
    pub fn may_end(&self) -> bool {
        matches!(self.state, State::Greeting | State::Waiting | State::Over)
    }

    fn greet(&mut self, hello: &Hello, sink: &mut dyn Sink) -> io::Result<Next> {
        sink.send(Frame::Hello(Hello { v: VERSION, sandbox: Some(self.sandbox.clone()) }))?;
        // A peer of another version still learns this one's, and then nothing else is understood.
        if hello.v == VERSION {
            self.state = State::Waiting;
        }
        Ok(Next::Listen)
    }

    fn begin(&mut self, header: &Header, sink: &mut dyn Sink) -> io::Result<Next> {
        let begun = Bounds::of(header, self.max_bytes)
            .map_err(|BadHeader(what)| bad_input(what.to_owned()))
            .and_then(|bounds| {
                self.life.limit(bounds.restore_time, Outcome::RestoreTimeout);
                Receiving::begin(&self.scratch.join(DATABASE), header, bounds)
            });
        match begun {
            Ok(receiving) => {
                self.state = State::Receiving(Box::new(receiving));
                Ok(Next::Listen)
            }
            Err(failure) => end(failure, sink),
        }
    }

    fn receive(
        &mut self,
        mut receiving: Box<Receiving>,
        bytes: &[u8],
        sink: &mut dyn Sink,
    ) -> io::Result<Next> {
        if let Some(failure) = self.cancelled(Outcome::RestoreTimeout) {
            return end(failure, sink);
        }
        match receiving.feed(bytes) {
            Ok(()) if receiving.is_complete() => self.hold(*receiving, sink),
            Ok(()) => {
                self.state = State::Receiving(receiving);
                Ok(Next::Listen)
            }
            Err(failure) => end(failure, sink),
        }
    }

    /// Every byte is there: the copy is finished, looked over, and announced.
    fn hold(&mut self, receiving: Receiving, sink: &mut dyn Sink) -> io::Result<Next> {
        let bounds = receiving.bounds();
        let sound = receiving
            .finish()
            .and_then(|ready| self.check(&bounds, &IntegrityMode::Quick).map(|()| ready));
        match sound {
            Ok(ready) => {
                let check_time = self.restore_time_left(&bounds);
                // The peer checks its record once more before it says run, db-forward §8.2.
                self.life.limit(limits::OWNER_TIME, Outcome::Stopped);
                self.state = State::Holding(Held { bounds, check_time });
                sink.send(Frame::Ready(ready))?;
                Ok(Next::Listen)
            }
            Err(failure) => end(failure, sink),
        }
    }

    fn check(&self, bounds: &Bounds, mode: &IntegrityMode) -> Result<(), Failure> {
        if let Some(failure) = self.cancelled(Outcome::RestoreTimeout) {
            return Err(failure);
        }
        let limits = Limits { time: self.restore_time_left(bounds), ..bounds.query.clone() };
        let database = self.scratch.join(DATABASE);
        carlos_dbquery::integrity(&database, mode, &limits, self.life.stop()).map_err(unsound)
    }

    fn restore_time_left(&self, bounds: &Bounds) -> Duration {
        let limit = self.life.time_limit();
        limit.map_or(bounds.restore_time, |limit| limit.at.saturating_sub(self.life.now()))
    }

    /// Checks what the statement reads, on the restore's time and not on the query's: DBF-7 says
    /// that the query ran for five minutes.
    fn check_read(&self, held: &Held, query: Query<'_>) -> Result<(), Failure> {
        self.life.limit(held.check_time, Outcome::RestoreTimeout);
        let limits = Limits { time: held.check_time, ..held.bounds.query.clone() };
        let database = self.scratch.join(DATABASE);
        let read = carlos_dbquery::read_by(&database, query, &limits, self.life.stop());
        let read = read.map_err(|error| self.unanswered(error))?;
        self.check(&held.bounds, &read)
    }

    fn run(&self, held: &Held, run: &Run, sink: &mut dyn Sink) -> io::Result<Next> {
        let (bounds, database) = (&held.bounds, self.scratch.join(DATABASE));
        let query = Query { sql: &run.sql, params: run.params.as_slice() };
        if let Err(failure) = self.check_read(held, query) {
            return end(failure, sink);
        }
        self.life.limit(bounds.query.time, Outcome::Timeout);
        let mut outlet = Outlet::new(sink);
        let stop = self.life.stop();
        let ran = carlos_dbquery::run(&database, query, &bounds.query, &mut outlet, stop);
        let flushed = io::Write::flush(&mut outlet);
        match ran {
            Ok(ran) => flushed.and_then(|()| done(&ran, sink)),
            Err(QueryError::Sink(error)) => Err(error),
            Err(error) => end(self.unanswered(error), sink),
        }
    }

    /// What is said of a query that has no whole answer. These words are for the person and travel
    /// sealed; SQLite's own may quote their data.
    fn unanswered(&self, error: QueryError) -> Failure {
        let message = error.to_string();
        let outcome = match error {
            QueryError::Cancelled => {
                return self
                    .cancelled(Outcome::Timeout)
                    .unwrap_or(Failure(Outcome::Stopped, String::new()));
            }
            QueryError::OutputCap => Outcome::OutputCap,
            QueryError::Timeout => Outcome::Timeout,
            QueryError::Memory | QueryError::Refused(_) | QueryError::Sql(_) => Outcome::SqlError,
            QueryError::Setup(_) | QueryError::Sink(_) => Outcome::Internal,
        };
        Failure(outcome, message)
    }

    fn cancelled(&self, overtime: Outcome) -> Option<Failure> {
        let outcome = match self.life.reason()? {
            Reason::PeerLost => Outcome::Stopped,
            Reason::TimeUp => overtime,
        };
        Some(Failure(outcome, String::new()))
    }
}

/// The status of an end without a whole answer.
#[must_use]
pub fn status(outcome: Outcome, mut message: String) -> Status {
    message.truncate(message.floor_char_boundary(limits::MESSAGE_BYTES));
    Status { outcome, message, rows: 0, bytes: 0, sha256: Digest::of(b"") }
}

fn end(Failure(outcome, message): Failure, sink: &mut dyn Sink) -> io::Result<Next> {
    sink.send(Frame::Status(status(outcome, message)))?;
    Ok(Next::Over(outcome))
}

fn done(ran: &Ran, sink: &mut dyn Sink) -> io::Result<Next> {
    sink.send(Frame::Status(Status {
        outcome: Outcome::Done,
        message: String::new(),
        rows: ran.rows,
        bytes: ran.bytes,
        sha256: Digest::from_bytes(ran.sha256),
    }))?;
    Ok(Next::Over(Outcome::Done))
}

fn bad_input(what: String) -> Failure {
    Failure(Outcome::BadInput, what)
}

/// What is said of a copy that did not pass. SQLite's findings name tables and indexes, and this
/// status reaches the box's log, so they stay here.
fn unsound(error: IntegrityError) -> Failure {
    let (outcome, what) = match error {
        // Not about the tenant's data: the process is not fit to open any.
        IntegrityError::Stopped(QueryError::Setup(what)) => {
            return Failure(Outcome::Internal, what);
        }
        IntegrityError::Damaged(_) => (Outcome::CheckFailed, "the restored database is damaged"),
        IntegrityError::Stopped(QueryError::Cancelled | QueryError::Timeout) => {
            (Outcome::RestoreTimeout, "the integrity check ran out of time")
        }
        IntegrityError::Stopped(QueryError::Memory) => {
            (Outcome::CheckFailed, "the integrity check ran out of memory")
        }
        IntegrityError::Stopped(_) => (Outcome::Internal, "the integrity check could not run"),
    };
    Failure(outcome, what.to_owned())
}

fn name(frame: &Frame) -> &'static str {
    match frame {
        Frame::Hello(_) => "Hello",
        Frame::Header(_) => "Header",
        Frame::FileData(_) => "FileData",
        Frame::Ready(_) => "Ready",
        Frame::Run(_) => "Run",
        Frame::Stop => "Stop",
        Frame::Output(_) => "Output",
        Frame::Status(_) => "Status",
    }
}
