//! How the worker's process ends, for its parent and for the journal.
//!
//! The answer to a read travels in frames; these codes only say why the process stopped.

/// The conversation reached its end, or the peer left before it asked for anything (a probe).
pub const DONE: u8 = 0;
/// An argument is not understood.
pub const USAGE: u8 = 2;
/// Standard input is not a connected unix stream socket.
pub const NO_CONNECTION: u8 = 3;
/// The connection's other end belongs to somebody else than `--peer-user`.
pub const WRONG_PEER: u8 = 4;
/// No scratch directory could be made.
pub const NO_SCRATCH: u8 = 5;
/// The sandbox could not be put in force.
pub const NO_SANDBOX: u8 = 6;
/// The peer broke the protocol.
pub const BROKEN_PROTOCOL: u8 = 7;
/// The peer left in the middle, and the work stopped by itself.
pub const PEER_LOST: u8 = 8;
/// The peer left in the middle, and the watcher ended the process over its work.
pub const PEER_LOST_FORCED: u8 = 9;
/// A time limit passed, and the watcher ended the process over its work.
pub const OVERTIME_FORCED: u8 = 10;
/// The connection failed for another reason than the peer leaving.
pub const CONNECTION_FAILED: u8 = 11;
/// Not a platform this program runs on.
pub const UNSUPPORTED: u8 = 12;
/// `--listen` could not listen, or not any longer.
pub const NOT_LISTENING: u8 = 13;
