//! Between agent and worker: length-framed messages over one stream socket (db-forward §8.3).
//!
//! `u32 BE length | u8 type | payload`; the length counts type and payload and is at most
//! [`FRAME_BYTES`]. The agent speaks first: `Hello`, and the worker answers `Hello`. A readiness
//! probe ends there. A read goes on with `Header`, `FileData`..., `Ready`, `Run` or `Stop`,
//! `Output`..., `Status`.

use std::fmt;

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use thiserror::Error;

use crate::canon::{self, CanonError};
use crate::ids::{Digest, Txid};
use crate::limits::{FRAME_BYTES, PLAN_FILES, SQL_BYTES};
use crate::params::Params;
use crate::redacted::Redacted;
use crate::result::Code;
use crate::time::Millis;

/// The version of this protocol; both hellos carry it and both must be equal.
pub const VERSION: u32 = 2;

/// Payload bytes a raw frame carries at most.
pub const MAX_PAYLOAD: usize = FRAME_BYTES - 1;

const HEAD: usize = 4;

/// One message.
#[derive(Clone, Debug, PartialEq)]
pub enum Frame {
    /// Both ways, first.
    Hello(Hello),
    /// Agent to worker: what will be sent, and the bounds.
    Header(Header),
    /// Agent to worker: bytes of the planned files, in plan order; a file ends at its size.
    FileData(Vec<u8>),
    /// Worker to agent: the copy is restored and sound.
    Ready(Ready),
    /// Agent to worker: run this statement.
    Run(Run),
    /// Agent to worker: end without running.
    Stop,
    /// Worker to agent: bytes of the row stream.
    Output(Vec<u8>),
    /// Worker to agent, last: how it ended.
    Status(Status),
}

/// Who speaks, and what confines the speaker.
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize)]
#[serde(deny_unknown_fields)]
pub struct Hello {
    /// [`VERSION`].
    pub v: u32,
    /// What is in force around the worker; absent in the agent's hello.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub sandbox: Option<Sandbox>,
}

/// What a worker finds in force around itself, as the kernel shows it. The agent decides what it
/// demands.
#[derive(Clone, Debug, Default, Deserialize, Eq, PartialEq, Serialize)]
#[serde(deny_unknown_fields)]
pub struct Sandbox {
    /// No network interface but loopback.
    pub loopback_only: bool,
    /// `/data` is absent or empty.
    pub data_empty: bool,
    /// `/etc/carlos` cannot be read.
    pub config_hidden: bool,
    /// The user it runs as.
    pub uid: u32,
    /// No new privileges can be gained.
    pub no_new_privileges: bool,
    /// No capability is held.
    pub no_capabilities: bool,
    /// Neither a core dump nor a debugger of the same user gets at its memory.
    pub no_dump: bool,
    /// What the kernel lets it have at most.
    pub limits: Rlimits,
    /// The Landlock ABI in force; 0 for none.
    pub landlock_abi: u32,
    /// The Landlock ABI the kernel offers; 0 when it has none or hides it.
    pub landlock_offered: u32,
    /// A system call filter is in force on every thread.
    pub seccomp: bool,
}

/// Hard limits of a process, in bytes and in files; the largest number where there is none.
#[derive(Clone, Copy, Debug, Deserialize, Eq, PartialEq, Serialize)]
#[serde(deny_unknown_fields)]
pub struct Rlimits {
    /// Of a core dump.
    pub core: u64,
    /// Of writable private memory.
    pub data: u64,
    /// Of a file, and so of all scratch: a worker writes one.
    pub file: u64,
    /// Open files.
    pub open: u64,
}

impl Default for Rlimits {
    /// No limit.
    fn default() -> Self {
        Self { core: u64::MAX, data: u64::MAX, file: u64::MAX, open: u64::MAX }
    }
}

/// What will be sent, and the bounds.
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize)]
#[serde(deny_unknown_fields)]
pub struct Header {
    /// The planned files in the order of the plan; at most [`PLAN_FILES`].
    pub files: Vec<PlannedFile>,
    /// The transaction the restored copy must hold.
    pub target: Txid,
    /// The bounds.
    pub limits: WorkerLimits,
}

impl Header {
    /// Bytes of all files together; `None` when their sum is no 64-bit number.
    pub fn total_bytes(&self) -> Option<u64> {
        self.files.iter().try_fold(0_u64, |sum, file| sum.checked_add(file.size))
    }
}

/// One planned file.
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize)]
#[serde(deny_unknown_fields)]
pub struct PlannedFile {
    /// Its compaction level.
    pub level: u8,
    /// Its name in the level, `<min>-<max>.ltx`; never a path.
    pub name: String,
    /// Its size in bytes: not one more is accepted.
    pub size: u64,
}

/// The bounds of one read.
#[derive(Clone, Copy, Debug, Deserialize, Eq, PartialEq, Serialize)]
#[serde(deny_unknown_fields)]
pub struct WorkerLimits {
    /// The restored database, in bytes.
    pub restored_bytes: u64,
    /// The row stream, in bytes.
    pub output_bytes: u64,
    /// Restore and check, in milliseconds.
    pub restore_ms: u64,
    /// The query, in milliseconds.
    pub query_ms: u64,
    /// SQLite's heap, sorts and temporary tables included, in bytes.
    pub heap_bytes: u64,
}

/// The copy that a worker holds.
#[derive(Clone, Copy, Debug, Deserialize, Eq, PartialEq, Serialize)]
#[serde(deny_unknown_fields)]
pub struct Ready {
    /// The transaction it holds.
    pub txid: Txid,
    /// Its pages.
    pub pages: u32,
    /// Bytes of a page.
    pub page_size: u32,
    /// When the transaction was written.
    pub time: Millis,
}

impl Ready {
    /// Bytes of the restored database.
    pub fn restored_bytes(&self) -> u64 {
        u64::from(self.pages) * u64::from(self.page_size)
    }
}

/// The statement.
#[derive(Clone, Deserialize, Eq, PartialEq, Serialize)]
#[serde(deny_unknown_fields)]
pub struct Run {
    /// At most [`SQL_BYTES`] bytes.
    pub sql: String,
    /// The values of its parameters.
    #[serde(default, skip_serializing_if = "Params::is_empty")]
    pub params: Params,
}

impl fmt::Debug for Run {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut run = f.debug_struct("Run");
        run.field("sql", &Redacted(&self.sql)).field("params", &self.params).finish()
    }
}

/// How a worker ended.
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize)]
#[serde(deny_unknown_fields)]
pub struct Status {
    /// In one word.
    pub outcome: Outcome,
    /// SQLite's text for a person, or a diagnostic for the box's log; at most
    /// [`MESSAGE_BYTES`](crate::limits::MESSAGE_BYTES).
    pub message: String,
    /// Rows written.
    pub rows: u64,
    /// Bytes of the row stream.
    pub bytes: u64,
    /// SHA-256 of the row stream.
    pub sha256: Digest,
}

/// A worker's end in one word.
#[derive(Clone, Copy, Debug, Deserialize, Eq, PartialEq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Outcome {
    /// All rows are written.
    Done,
    /// The files do not restore to a sound database.
    CheckFailed,
    /// The agent broke this protocol, or its header does not hold.
    BadInput,
    /// Something of the worker's own failed.
    Internal,
    /// The scratch has no room.
    NoRoom,
    /// More rows than the output bound.
    OutputCap,
    /// Restore and check ran out of their time.
    RestoreTimeout,
    /// SQLite refused or failed the statement.
    SqlError,
    /// The agent said stop.
    Stopped,
    /// The query ran out of its time.
    Timeout,
    /// The restored database is larger than its bound.
    TooLarge,
}

impl Outcome {
    /// The word that the read's result carries.
    pub fn code(self) -> Code {
        match self {
            Self::Done => Code::None,
            Self::CheckFailed => Code::CheckFailed,
            Self::NoRoom => Code::NoRoom,
            Self::OutputCap => Code::OutputCap,
            Self::SqlError => Code::SqlError,
            Self::Timeout => Code::Timeout,
            Self::TooLarge => Code::TooLarge,
            Self::BadInput | Self::Internal | Self::RestoreTimeout | Self::Stopped => {
                Code::Interrupted
            }
        }
    }
}

/// Why bytes are not frames of this protocol.
#[derive(Clone, Copy, Debug, Eq, Error, PartialEq)]
pub enum FrameError {
    /// A length of zero: there is no type.
    #[error("an empty frame")]
    Empty,
    /// A payload that is not this type's JSON.
    #[error("type {kind}: {error}")]
    Form {
        /// The frame's type byte.
        kind: u8,
        /// What is wrong with its payload.
        error: CanonError,
    },
    /// More files, or a longer statement, than the protocol allows.
    #[error("type {0}: a field exceeds its bound")]
    OutOfBounds(u8),
    /// A longer frame than either side holds.
    #[error("a frame of {0} bytes, where at most {FRAME_BYTES} are allowed")]
    TooLong(u32),
    /// A type this version does not know.
    #[error("unknown frame type {0}")]
    UnknownType(u8),
}

/// What the name of the count socket adds to that of the workers' socket.
pub const COUNT_SUFFIX: &str = ".count";

/// Longest count: the field and a number of 32 bits.
pub const COUNT_BYTES: usize = 32;

/// How many workers hold scratch, as a listener without a service manager tells it: the whole of
/// one connection, canonical JSON.
#[derive(Clone, Copy, Debug, Deserialize, Eq, PartialEq, Serialize)]
#[serde(deny_unknown_fields)]
pub struct Running {
    /// Running, starting or stopping.
    pub running: u32,
}

impl Running {
    /// Its bytes.
    pub fn to_bytes(self) -> Vec<u8> {
        canon::encode(&self)
    }

    /// Reads a whole count.
    ///
    /// # Errors
    /// [`CanonError`] for anything else, also for a part of one.
    pub fn from_bytes(bytes: &[u8]) -> Result<Self, CanonError> {
        canon::decode(bytes, COUNT_BYTES)
    }
}

const HELLO: u8 = 1;
const HEADER: u8 = 2;
const FILE_DATA: u8 = 3;
const READY: u8 = 4;
const RUN: u8 = 5;
const STOP: u8 = 6;
const OUTPUT: u8 = 7;
const STATUS: u8 = 8;

impl Frame {
    /// The frame's bytes.
    ///
    /// # Errors
    /// [`FrameError::TooLong`] for more than [`MAX_PAYLOAD`] bytes.
    pub fn to_bytes(&self) -> Result<Vec<u8>, FrameError> {
        let (kind, payload) = match self {
            Self::Hello(hello) => (HELLO, canon::encode(hello)),
            Self::Header(header) => (HEADER, canon::encode(header)),
            Self::FileData(bytes) => return raw(FILE_DATA, bytes),
            Self::Ready(ready) => (READY, canon::encode(ready)),
            Self::Run(run) => (RUN, canon::encode(run)),
            Self::Stop => (STOP, Vec::new()),
            Self::Output(bytes) => return raw(OUTPUT, bytes),
            Self::Status(status) => (STATUS, canon::encode(status)),
        };
        raw(kind, &payload)
    }

    /// A `FileData` frame of borrowed bytes.
    ///
    /// # Errors
    /// As [`Self::to_bytes`].
    pub fn file_data(bytes: &[u8]) -> Result<Vec<u8>, FrameError> {
        raw(FILE_DATA, bytes)
    }

    /// An `Output` frame of borrowed bytes.
    ///
    /// # Errors
    /// As [`Self::to_bytes`].
    pub fn output(bytes: &[u8]) -> Result<Vec<u8>, FrameError> {
        raw(OUTPUT, bytes)
    }

    fn decode(kind: u8, payload: &[u8]) -> Result<Self, FrameError> {
        match kind {
            HELLO => read(kind, payload).map(Self::Hello),
            HEADER => {
                let header: Header = read(kind, payload)?;
                within(kind, header.files.len() <= PLAN_FILES)?;
                Ok(Self::Header(header))
            }
            FILE_DATA => Ok(Self::FileData(payload.to_vec())),
            READY => read(kind, payload).map(Self::Ready),
            RUN => {
                let run: Run = read(kind, payload)?;
                within(kind, run.sql.len() <= SQL_BYTES)?;
                Ok(Self::Run(run))
            }
            STOP => within(kind, payload.is_empty()).map(|()| Self::Stop),
            OUTPUT => Ok(Self::Output(payload.to_vec())),
            STATUS => read(kind, payload).map(Self::Status),
            _ => Err(FrameError::UnknownType(kind)),
        }
    }
}

fn raw(kind: u8, payload: &[u8]) -> Result<Vec<u8>, FrameError> {
    let length = u32::try_from(payload.len() + 1).unwrap_or(u32::MAX);
    if payload.len() > MAX_PAYLOAD {
        return Err(FrameError::TooLong(length));
    }
    let mut frame = Vec::with_capacity(HEAD + 1 + payload.len());
    frame.extend_from_slice(&length.to_be_bytes());
    frame.push(kind);
    frame.extend_from_slice(payload);
    Ok(frame)
}

fn read<T: Serialize + DeserializeOwned>(kind: u8, payload: &[u8]) -> Result<T, FrameError> {
    canon::decode(payload, MAX_PAYLOAD).map_err(|error| FrameError::Form { kind, error })
}

fn within(kind: u8, fits: bool) -> Result<(), FrameError> {
    if fits { Ok(()) } else { Err(FrameError::OutOfBounds(kind)) }
}

/// Cuts a byte stream into frames; holds at most one frame and what was fed.
#[derive(Debug, Default)]
pub struct FrameDecoder {
    buffer: Vec<u8>,
    /// Bytes of `buffer` already given out.
    read: usize,
    /// An error has been given out: nothing after it has a meaning.
    failed: bool,
}

impl FrameDecoder {
    /// A decoder at the start of a connection.
    pub fn new() -> Self {
        Self::default()
    }

    /// Takes bytes as they arrive. Call [`Self::next`] until it gives `None` before feeding more.
    pub fn feed(&mut self, bytes: &[u8]) {
        self.buffer.drain(..self.read);
        self.read = 0;
        self.buffer.extend_from_slice(bytes);
    }

    /// The next whole frame, or `None` until more bytes arrive. A length out of bounds is refused
    /// before its payload is waited for. Gives `None` for ever after an error.
    ///
    /// # Errors
    /// [`FrameError`]; the connection is of no further use then.
    #[expect(clippy::should_implement_trait, reason = "a push decoder pauses, an iterator ends")]
    pub fn next(&mut self) -> Option<Result<Frame, FrameError>> {
        if self.failed {
            return None;
        }
        let frame = self.cut().transpose();
        self.failed = matches!(frame, Some(Err(_)));
        frame
    }

    fn cut(&mut self) -> Result<Option<Frame>, FrameError> {
        let waiting = &self.buffer[self.read..];
        let Some((head, rest)) = waiting.split_first_chunk::<HEAD>() else { return Ok(None) };
        let length = u32::from_be_bytes(*head);
        let size = usize::try_from(length).ok().filter(|&size| size <= FRAME_BYTES);
        let size = size.ok_or(FrameError::TooLong(length))?;
        let Some(body) = rest.get(..size) else { return Ok(None) };
        let (kind, payload) = body.split_first().ok_or(FrameError::Empty)?;
        let frame = Frame::decode(*kind, payload)?;
        self.read += HEAD + size;
        Ok(Some(frame))
    }

    /// Whether no part of a frame is waiting: where a connection may end.
    pub fn is_empty(&self) -> bool {
        self.read == self.buffer.len()
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::params::tests::longest_params;

    fn header(files: usize) -> Header {
        let name = "0000000000000001-0000000000000001.ltx".to_owned();
        let limits = WorkerLimits {
            restored_bytes: 1,
            output_bytes: 2,
            restore_ms: 3,
            query_ms: 4,
            heap_bytes: 5,
        };
        let file = PlannedFile { level: 9, name, size: u64::MAX / PLAN_FILES as u64 };
        Header { files: vec![file; files], target: Txid(1), limits }
    }

    fn run(sql: String, params: Params) -> Frame {
        Frame::Run(Run { sql, params })
    }

    fn frames() -> Vec<Frame> {
        let ready = Ready { txid: Txid(1), pages: 2, page_size: 4096, time: Millis::new(0) };
        let status = Status {
            outcome: Outcome::OutputCap,
            message: "x".into(),
            rows: 1,
            bytes: 2,
            sha256: Digest::of(b""),
        };
        vec![
            Frame::Hello(Hello { v: VERSION, sandbox: None }),
            Frame::Hello(Hello { v: VERSION, sandbox: Some(Sandbox::default()) }),
            Frame::Header(header(2)),
            Frame::FileData(vec![1, 2, 3]),
            Frame::Ready(ready),
            run("SELECT 1".into(), Params::default()),
            Frame::Stop,
            Frame::Output(Vec::new()),
            Frame::Status(status),
        ]
    }

    fn decode(bytes: &[u8]) -> Vec<Result<Frame, FrameError>> {
        let mut decoder = FrameDecoder::new();
        decoder.feed(bytes);
        std::iter::from_fn(|| decoder.next()).collect()
    }

    #[test]
    fn every_frame_round_trips() {
        for frame in frames() {
            let bytes = frame.to_bytes().expect("small");
            assert_eq!(decode(&bytes), [Ok(frame)]);
        }
    }

    #[test]
    fn the_largest_plan_and_statement_fit_a_frame() {
        let plan = Frame::Header(header(PLAN_FILES));
        let run = run("\u{1}".repeat(SQL_BYTES), longest_params());
        for frame in [plan, run] {
            assert_eq!(decode(&frame.to_bytes().expect("fits")), [Ok(frame)]);
        }
        assert!(header(PLAN_FILES).total_bytes().is_some());
        assert!(header(PLAN_FILES + 1).total_bytes().is_none());
    }

    #[test]
    fn bounds_are_checked_before_the_payload_arrives() {
        let too_long = u32::try_from(FRAME_BYTES + 1).expect("small");
        assert_eq!(decode(&too_long.to_be_bytes()), [Err(FrameError::TooLong(too_long))]);
        assert_eq!(decode(&[0; 4]), [Err(FrameError::Empty)]);
        assert_eq!(decode(&[0, 0, 0, 1, 9])[0], Err(FrameError::UnknownType(9)));
        assert_eq!(decode(&[0, 0, 0, 2, STOP, 0])[0], Err(FrameError::OutOfBounds(STOP)));
        assert!(Frame::output(&vec![0; MAX_PAYLOAD]).is_ok());
        assert!(Frame::output(&vec![0; MAX_PAYLOAD + 1]).is_err());
    }

    #[test]
    fn more_files_or_sql_than_allowed_are_refused() {
        let plan = Frame::Header(header(PLAN_FILES + 1)).to_bytes().expect("fits a frame");
        assert_eq!(decode(&plan)[0], Err(FrameError::OutOfBounds(HEADER)));
        let run = run("x".repeat(SQL_BYTES + 1), Params::default()).to_bytes().expect("fits");
        assert_eq!(decode(&run)[0], Err(FrameError::OutOfBounds(RUN)));
    }

    proptest! {
        #[test]
        fn any_split_gives_the_same_frames(cuts in prop::collection::vec(1..60_usize, 1..50)) {
            let whole: Vec<u8> =
                frames().iter().flat_map(|frame| frame.to_bytes().expect("small")).collect();
            let (mut decoder, mut got, mut rest) = (FrameDecoder::new(), Vec::new(), &whole[..]);
            let mut cuts = cuts.into_iter().cycle();
            while !rest.is_empty() {
                let cut = cuts.next().expect("a cycle").min(rest.len());
                decoder.feed(&rest[..cut]);
                got.extend(std::iter::from_fn(|| decoder.next()));
                rest = &rest[cut..];
            }
            prop_assert_eq!(got, frames().into_iter().map(Ok).collect::<Vec<_>>());
            prop_assert!(decoder.is_empty());
        }

        #[test]
        fn foreign_bytes_never_panic(bytes: Vec<u8>) {
            decode(&bytes);
        }
    }
}
