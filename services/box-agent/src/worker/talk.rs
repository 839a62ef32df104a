//! The agent's half of the worker protocol (db-forward §8.3, docs/protocol.md).

use std::io;
use std::time::Duration;

use carlos_bucket::Context;
use carlos_protocol::frames::{self, Frame, FrameDecoder, FrameError, Hello};
use thiserror::Error;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};

use super::hold::Connection;
use crate::config::AgentConfig;
use crate::walls::Missing;

/// A worker encloses itself before it answers; a loaded box needs seconds for that, a worker that
/// needs longer is broken.
const HELLO_WITHIN: Duration = Duration::from_secs(10);

/// Read from the connection at once: a quarter of a chunk.
const READ_BYTES: usize = 64 << 10;

/// Why a conversation cannot go on.
#[derive(Debug, Error)]
pub(crate) enum TalkError {
    #[error("the worker closed its connection")]
    Closed,
    #[error("the worker's connection failed: {0}")]
    Failed(#[from] io::Error),
    #[error("the worker sent what is no frame: {0}")]
    Frame(#[from] FrameError),
    #[error("the worker did not answer in time")]
    Silent,
    #[error("the worker sent a frame out of turn")]
    OutOfTurn,
    #[error("the worker speaks version {0} of the protocol")]
    Version(u32),
    #[error(transparent)]
    Unconfined(#[from] Missing),
}

impl TalkError {
    /// The connection was closed before anything was said on it: by a worker that ended, or by a
    /// manager that had no place for one.
    pub(crate) fn is_hang_up(&self) -> bool {
        match self {
            Self::Closed => true,
            Self::Failed(error) => {
                matches!(error.kind(), io::ErrorKind::ConnectionReset | io::ErrorKind::BrokenPipe)
            }
            _ => false,
        }
    }
}

/// Reads frames; a dropped read loses nothing.
pub(crate) struct Listener {
    reader: Box<dyn AsyncRead + Send + Unpin>,
    decoder: FrameDecoder,
    buffer: Vec<u8>,
}

impl Listener {
    /// The next frame. An end of the connection is an error: a conversation ends with a status.
    pub(crate) async fn next(&mut self) -> Result<Frame, TalkError> {
        loop {
            if let Some(frame) = self.decoder.next() {
                return Ok(frame?);
            }
            match self.reader.read(&mut self.buffer).await? {
                0 => return Err(TalkError::Closed),
                count => self.decoder.feed(&self.buffer[..count]),
            }
        }
    }
}

/// Writes frames.
pub(crate) struct Speaker(Box<dyn AsyncWrite + Send + Unpin>);

impl Speaker {
    pub(crate) async fn say(&mut self, frame: &Frame) -> Result<(), TalkError> {
        self.write(&frame.to_bytes()?).await
    }

    pub(crate) async fn file_data(&mut self, bytes: &[u8]) -> Result<(), TalkError> {
        self.write(&Frame::file_data(bytes)?).await
    }

    async fn write(&mut self, bytes: &[u8]) -> Result<(), TalkError> {
        self.0.write_all(bytes).await?;
        Ok(self.0.flush().await?)
    }
}

/// A conversation with one worker that has said hello. Dropping it ends the worker.
pub(crate) struct Talk {
    pub(crate) listener: Listener,
    pub(crate) speaker: Speaker,
}

impl Talk {
    /// Exchanges hellos and holds the worker's sandbox against what this box demands.
    pub(crate) async fn open(
        ctx: &Context,
        connection: Connection,
        config: &AgentConfig,
    ) -> Result<Self, TalkError> {
        let mut talk = Self {
            listener: Listener {
                reader: connection.reader,
                decoder: FrameDecoder::new(),
                buffer: vec![0; READ_BYTES],
            },
            speaker: Speaker(connection.writer),
        };
        let hello = ctx.timeout(HELLO_WITHIN, talk.greet()).await;
        check(&hello.map_err(|_| TalkError::Silent)??, config)?;
        Ok(talk)
    }

    async fn greet(&mut self) -> Result<Hello, TalkError> {
        self.speaker.say(&Frame::Hello(Hello { v: frames::VERSION, sandbox: None })).await?;
        match self.listener.next().await? {
            Frame::Hello(hello) => Ok(hello),
            _ => Err(TalkError::OutOfTurn),
        }
    }
}

fn check(hello: &Hello, config: &AgentConfig) -> Result<(), TalkError> {
    if hello.v != frames::VERSION {
        return Err(TalkError::Version(hello.v));
    }
    // Nothing reported is nothing in force.
    let report = hello.sandbox.clone().unwrap_or_default();
    Ok(config.sandbox.check(&report, own_uid(), config.max_restored)?)
}

#[cfg(target_os = "linux")]
fn own_uid() -> u32 {
    rustix::process::getuid().as_raw()
}

/// Workers run on Linux only.
#[cfg(not(target_os = "linux"))]
fn own_uid() -> u32 {
    0
}

#[cfg(test)]
mod tests {
    use carlos_protocol::envelope::RootKeys;
    use carlos_protocol::frames::Sandbox;

    use super::*;
    use crate::walls::Walls;

    fn config(sandbox: Walls) -> AgentConfig {
        let (name, region) = ("box-1".parse().expect("label"), "uk".parse().expect("label"));
        AgentConfig { sandbox, ..AgentConfig::new(name, region, RootKeys::default()) }
    }

    #[test]
    fn a_worker_that_reports_nothing_passes_only_where_nothing_is_demanded() {
        let silent = Hello { v: frames::VERSION, sandbox: None };
        assert!(check(&silent, &config(Walls::none())).is_ok());
        for walls in [Walls::platform(), Walls::inner(), Walls::full()] {
            let verdict = check(&silent, &config(walls));
            assert!(matches!(verdict, Err(TalkError::Unconfined(_))));
        }
    }

    #[test]
    fn another_version_is_refused_before_anything_else() {
        let other = Hello { v: frames::VERSION + 1, sandbox: Some(Sandbox::default()) };
        assert!(matches!(check(&other, &config(Walls::none())), Err(TalkError::Version(_))));
    }
}
