//! The port to whatever starts workers, and the conversation with one of them.

#[cfg(target_os = "linux")]
pub(crate) mod census;
#[cfg(target_os = "linux")]
pub(crate) mod child;
pub(crate) mod hold;
#[cfg(target_os = "linux")]
pub(crate) mod socket;
pub(crate) mod talk;

use async_trait::async_trait;
use thiserror::Error;
use tokio::io::{AsyncRead, AsyncWrite};

/// A worker did not start, or its connection could not be made.
#[derive(Debug, Error)]
#[error("the worker did not start: {0}")]
pub struct StartError(pub String);

/// How many workers run is not known. Never to be read as "none" (db-forward §5.7).
#[derive(Clone, Debug, Error, PartialEq, Eq)]
#[error("running workers cannot be counted: {0}")]
pub struct CountUnknown(pub String);

/// Starts workers: child processes, systemd units or a container's listener.
#[async_trait]
pub trait WorkerHost: Send + Sync {
    /// Starts one worker and connects to it. The agent lets a call run to its end, which must
    /// come by itself within seconds: a worker that does not answer is told by its silence later.
    async fn start(&self) -> Result<WorkerLink, StartError>;

    /// How many workers run on this box, whoever started them.
    async fn running(&self) -> Result<usize, CountUnknown>;

    /// Whether a connection that was closed before its worker said a word met a host that had no
    /// place left: places are taken by workers on no connection of this agent's, or nobody can
    /// tell. Then it says nothing about the worker itself. A host without such a limit says no.
    async fn is_crowded(&self) -> bool {
        false
    }
}

/// One started worker: the two directions of its connection, and its life.
pub struct WorkerLink {
    pub reader: Box<dyn AsyncRead + Send + Unpin>,
    pub writer: Box<dyn AsyncWrite + Send + Unpin>,
    pub life: Box<dyn WorkerLife>,
}

/// The worker as something that ends.
#[async_trait]
pub trait WorkerLife: Send + Sync {
    /// Resolves once the worker has stopped and its scratch is gone. The agent has closed the
    /// connection before it calls this; a worker that stays is ended by the host. A call may be
    /// dropped and made again.
    async fn stopped(&mut self);
}
