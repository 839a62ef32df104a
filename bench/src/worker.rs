//! The whole path: files read and planned here as the agent does it, applied by a real worker
//! process at the other end of a socket pair.

use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream as Pair;
use std::process::{Command, Stdio};
use std::time::Instant;

use bytes::Bytes;
use carlos_protocol::frames::WorkerLimits;
use carlos_protocol::frames::{self, Frame, FrameDecoder, Header, Hello, PlannedFile};
use carlos_protocol::ids::Txid;
use carlos_replica::restore::plan_replica;
use carlos_replica::{Download, Plan, Target};
use serde_json::json;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::UnixStream;
use tokio::net::unix::{OwnedReadHalf, OwnedWriteHalf};
use tokio::sync::mpsc;

use crate::{OPTIONS, Outcome, directory};

/// As in the agent.
const PIECE: usize = 256 << 10;
const PIECES_AHEAD: usize = 4;

/// How long until the worker has taken the last byte, and until it has checked the copy.
pub(crate) async fn feed(path: &str, program: &str, scratch: &str) -> Outcome {
    let replica = directory(path)?;
    let plan = plan_replica(&replica, Target::Newest).await?;
    let (ours, theirs) = Pair::pair()?;
    ours.set_nonblocking(true)?;
    let stdin = OwnedFd::from(theirs);
    let stdout = stdin.try_clone()?;
    let owner = std::os::unix::fs::MetadataExt::uid(&std::fs::metadata(scratch)?).to_string();
    let mut worker = Command::new(program)
        .args(["--peer-user", &owner, "--scratch", scratch])
        .args(["--max-bytes", &OPTIONS.max_bytes.to_string()])
        .stdin(Stdio::from(stdin))
        .stdout(Stdio::from(stdout))
        .stderr(Stdio::null())
        .spawn()?;
    let (mut reader, mut writer) = UnixStream::from_std(ours)?.into_split();
    let hello = Frame::Hello(Hello { v: frames::VERSION, sandbox: None });
    writer.write_all(&hello.to_bytes()?).await?;
    let mut decoder = FrameDecoder::new();
    next(&mut reader, &mut decoder).await?;
    let start = Instant::now();
    writer.write_all(&Frame::Header(header(&plan)).to_bytes()?).await?;
    send(&replica, &plan, &mut writer).await?;
    let fed = start.elapsed().as_secs_f64();
    let Frame::Ready(ready) = next(&mut reader, &mut decoder).await? else {
        return Err("the worker did not get ready".into());
    };
    let checked = start.elapsed().as_secs_f64();
    drop((reader, writer));
    worker.wait()?;
    let bytes = plan.bytes();
    Ok(json!({"fed_s": fed, "ready_s": checked, "bytes": bytes, "pages": ready.pages}))
}

async fn send(
    replica: &carlos_replica::StoreReplica,
    plan: &Plan,
    writer: &mut OwnedWriteHalf,
) -> Result<(), Box<dyn std::error::Error>> {
    let (pieces, mut arrived) = mpsc::channel::<Bytes>(PIECES_AHEAD);
    let read = async move {
        let mut download = Download::new(replica, plan.files());
        while let Some(bytes) = download.next().await? {
            if pieces.send(bytes).await.is_err() {
                break;
            }
        }
        Ok::<_, Box<dyn std::error::Error>>(())
    };
    let write = async move {
        while let Some(bytes) = arrived.recv().await {
            for piece in bytes.chunks(PIECE) {
                writer.write_all(&Frame::file_data(piece)?).await?;
            }
        }
        Ok(())
    };
    tokio::try_join!(read, write).map(|_| ())
}

async fn next(
    reader: &mut OwnedReadHalf,
    decoder: &mut FrameDecoder,
) -> Result<Frame, Box<dyn std::error::Error>> {
    let mut buffer = vec![0; 64 << 10];
    loop {
        if let Some(frame) = decoder.next() {
            return Ok(frame?);
        }
        match reader.read(&mut buffer).await? {
            0 => return Err("the worker closed its connection".into()),
            len => decoder.feed(&buffer[..len]),
        }
    }
}

fn header(plan: &Plan) -> Header {
    let files = plan.files().iter().map(|file| PlannedFile {
        level: file.level,
        name: file.range.name(),
        size: file.size,
    });
    let limits = WorkerLimits {
        restored_bytes: OPTIONS.max_bytes,
        output_bytes: 1 << 20,
        restore_ms: 600_000,
        query_ms: 1000,
        heap_bytes: 256 << 20,
    };
    Header { files: files.collect(), target: Txid(plan.txid().0), limits }
}
