//! How calls end, and how a start fails.

use std::fmt;

use thiserror::Error;

/// The closed list of ways in which a call fails (channel messaging, error model). None of them
/// tells whether to try again: a target may have done the work of a request that timed out.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
#[repr(u8)]
pub enum ErrorKind {
    /// No such name, node, target or handler.
    NotFound = 0,
    /// It is there already.
    AlreadyExists = 1,
    /// The name stands for something else.
    TypeMismatch = 2,
    /// This process is not set up for the call.
    NotConfigured = 3,
    /// The target refused.
    Rejected = 4,
    /// The target is known and cannot be reached or has no room.
    Unavailable = 5,
    /// A bounded resource of this process is full.
    CapacityExceeded = 6,
    /// The time ran out.
    DeadlineExceeded = 7,
    /// This runtime, or the target, is ending.
    ShuttingDown = 8,
    /// Bytes that do not hold.
    ProtocolError = 9,
    /// A call that makes no sense as it is.
    InvalidOperation = 10,
    /// Data is gone.
    DataLost = 11,
    /// A handler, or the library, failed.
    InternalFailure = 12,
}

/// Why a call failed: exactly one of these ends each call that does not succeed.
#[derive(Clone, Debug, Eq, Error, PartialEq)]
pub enum CallError {
    /// Nobody to send to.
    #[error("no target: {0}")]
    NoTarget(NoTarget),
    /// The target has no handler for the packet.
    #[error("no handler for this packet: {0}")]
    NoHandler(String),
    /// The channel is not registered for this role in this process.
    #[error("{0}")]
    NotConfigured(String),
    /// The target refused.
    #[error("refused: {0}")]
    Rejected(String),
    /// The link was lost, or the target's mailbox had no room.
    #[error("unavailable: {0}")]
    Unavailable(String),
    /// Too many open requests or waiting sends in this process.
    #[error("too many calls at once: {0}")]
    CapacityExceeded(&'static str),
    /// The time ran out: sending, or waiting for the reply.
    #[error("the time for this call ran out")]
    DeadlineExceeded,
    /// This host, or the target, is shutting down.
    #[error("shutting down")]
    ShuttingDown,
    /// A payload, or metadata, that cannot be read or written.
    #[error("not readable: {0}")]
    ProtocolError(String),
    /// The call makes no sense as it is.
    #[error("{0}")]
    InvalidOperation(&'static str),
    /// The handler failed.
    #[error("the handler failed: {0}")]
    InternalFailure(String),
}

impl CallError {
    /// The kind: the stable part.
    pub fn kind(&self) -> ErrorKind {
        match self {
            Self::NoTarget(NoTarget::NotReady) => ErrorKind::Unavailable,
            Self::NoTarget(_) | Self::NoHandler(_) => ErrorKind::NotFound,
            Self::NotConfigured(_) => ErrorKind::NotConfigured,
            Self::Rejected(_) => ErrorKind::Rejected,
            Self::Unavailable(_) => ErrorKind::Unavailable,
            Self::CapacityExceeded(_) => ErrorKind::CapacityExceeded,
            Self::DeadlineExceeded => ErrorKind::DeadlineExceeded,
            Self::ShuttingDown => ErrorKind::ShuttingDown,
            Self::ProtocolError(_) => ErrorKind::ProtocolError,
            Self::InvalidOperation(_) => ErrorKind::InvalidOperation,
            Self::InternalFailure(_) => ErrorKind::InternalFailure,
        }
    }
}

/// Why there is no target (decision 17).
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub enum NoTarget {
    /// The name is not registered in this process.
    NotRegistered,
    /// No node publishes the channel, or no node has the routing ID.
    NotPublished,
    /// Every member's weight is 0.
    WeightZero,
    /// Every member that weighs anything is draining.
    Draining,
    /// Members are known and no link to any of them is ready.
    NotReady,
    /// The node is an object client, which takes no direct messages.
    ObjectClient,
}

impl fmt::Display for NoTarget {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::NotRegistered => "the name is not registered here",
            Self::NotPublished => "nobody publishes it",
            Self::WeightZero => "every member's weight is 0",
            Self::Draining => "every member is draining",
            Self::NotReady => "members are known and none is connected",
            Self::ObjectClient => "the node is an object client",
        })
    }
}
