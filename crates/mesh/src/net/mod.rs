//! Byte streams between nodes: who dials, who listens, and what protects them. Everything above
//! sees [`Stream`]s only, so that a simulation can bring its own.

use std::io;

use async_trait::async_trait;
use tokio::io::{AsyncRead, AsyncWrite};

mod tcp;
mod tls;

pub use tcp::TcpNet;
pub(crate) use tls::{Keys, TlsError};

/// A byte stream in both directions.
pub trait Stream: AsyncRead + AsyncWrite + Send + Unpin {}

impl<T: AsyncRead + AsyncWrite + Send + Unpin> Stream for T {}

/// A network: TCP, or one that a simulation made.
#[async_trait]
pub trait Net: Send + Sync + 'static {
    /// Listens at a host and port; port 0 lets the network choose.
    async fn bind(&self, host: &str, port: u16) -> io::Result<Box<dyn Listener>>;

    /// Connects to `host:port`. The caller bounds the time.
    async fn dial(&self, endpoint: &str) -> io::Result<Box<dyn Stream>>;
}

/// A bound listener.
#[async_trait]
pub trait Listener: Send {
    /// The port in use.
    fn port(&self) -> u16;

    /// The next connection. An error says nothing about the following ones.
    async fn accept(&mut self) -> io::Result<Box<dyn Stream>>;
}
