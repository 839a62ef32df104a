//! The agent's half of the worker protocol (db-forward §8.3, docs/protocol.md).

use std::io;
use std::time::Duration;

use carlos_bucket::Context;
use carlos_protocol::frames::{self, Frame, FrameDecoder, FrameError, Hello, Sandbox};
use thiserror::Error;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};

use super::hold::Connection;

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
    #[error("the worker's sandbox lacks {lacks}: {advice}")]
    Unconfined { lacks: &'static str, advice: &'static str },
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
    /// Exchanges hellos and holds the worker's sandbox against the least this box accepts.
    pub(crate) async fn open(
        ctx: &Context,
        connection: Connection,
        least: &Sandbox,
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
        check(&hello.map_err(|_| TalkError::Silent)??, least)?;
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

fn check(hello: &Hello, least: &Sandbox) -> Result<(), TalkError> {
    if hello.v != frames::VERSION {
        return Err(TalkError::Version(hello.v));
    }
    let found = hello.sandbox.clone().unwrap_or_default();
    let outer = [
        ("a network without any device but loopback", least.loopback_only, found.loopback_only),
        ("an empty /data", least.data_empty, found.data_empty),
        ("a closed /etc/carlos", least.config_hidden, found.config_hidden),
    ];
    let inner = [
        ("no_new_privs", least.no_new_privileges, found.no_new_privileges),
        ("Landlock", true, found.landlock_abi >= least.landlock_abi),
        ("a system call filter", least.seccomp, found.seccomp),
    ];
    demand(&outer, NO_UNIT)?;
    demand(&inner, NO_KERNEL)
}

fn demand(walls: &[(&'static str, bool, bool)], advice: &'static str) -> Result<(), TalkError> {
    let missing = walls.iter().find(|(_, wanted, held)| *wanted && !*held);
    missing.map_or(Ok(()), |(lacks, ..)| Err(TalkError::Unconfined { lacks, advice }))
}

/// A worker cannot build these walls itself: a unit does (db-forward §8.3).
const NO_UNIT: &str = "run workers under the unit carlos-dbread@.service, or set \
                       CARLOS_DB_READ_SANDBOX=inner where the walls that a worker builds around \
                       itself are enough";

const NO_KERNEL: &str =
    "the kernel, or what filters this container's system calls, has to allow it";

#[cfg(test)]
mod tests {
    use super::*;

    fn full() -> Sandbox {
        Sandbox {
            loopback_only: true,
            data_empty: true,
            config_hidden: true,
            no_new_privileges: true,
            landlock_abi: 3,
            seccomp: true,
        }
    }

    fn hello(sandbox: Option<Sandbox>) -> Hello {
        Hello { v: frames::VERSION, sandbox }
    }

    #[test]
    fn a_worker_must_report_every_wall_that_is_demanded() {
        let lacking: [fn(&mut Sandbox); 6] = [
            |s| s.loopback_only = false,
            |s| s.data_empty = false,
            |s| s.config_hidden = false,
            |s| s.no_new_privileges = false,
            |s| s.landlock_abi = 2,
            |s| s.seccomp = false,
        ];
        assert!(check(&hello(Some(full())), &full()).is_ok());
        for take in lacking {
            let mut less = full();
            take(&mut less);
            let verdict = check(&hello(Some(less.clone())), &full());
            assert!(matches!(verdict, Err(TalkError::Unconfined { .. })), "{less:?}");
            assert!(check(&hello(Some(full())), &less).is_ok(), "more than demanded: {less:?}");
        }
    }

    #[test]
    fn a_worker_that_reports_nothing_passes_only_where_nothing_is_demanded() {
        assert!(check(&hello(None), &Sandbox::default()).is_ok());
        assert!(matches!(check(&hello(None), &full()), Err(TalkError::Unconfined { .. })));
    }

    #[test]
    fn another_version_is_refused_before_anything_else() {
        let other = Hello { v: frames::VERSION + 1, sandbox: Some(full()) };
        assert!(matches!(check(&other, &full()), Err(TalkError::Version(_))));
    }
}
