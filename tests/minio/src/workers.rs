//! Workers in an agent's own process: the real session, a real restore and real SQLite, without a
//! process and its walls. A thousand reads would spend their time on starting processes.

use std::collections::VecDeque;
use std::fs::File;
use std::io::{self, Write as _};
use std::path::PathBuf;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use async_trait::async_trait;
use carlos_box_agent::{CountUnknown, StartError, WorkerHost, WorkerLife, WorkerLink};
use carlos_bucket::Context;
use carlos_dbread_worker::life::Life;
use carlos_dbread_worker::session::{Next, Session, Sink};
use carlos_protocol::frames::{Frame, FrameDecoder, Sandbox};
use carlos_protocol::limits::RESTORED_BYTES;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _, DuplexStream, duplex};
use tokio::task::JoinHandle;

/// What a unix socket buffers, roughly.
const SOCKET_BYTES: usize = 64 << 10;

/// Starts workers that are tasks of this process.
pub struct InProcessWorkers {
    context: Context,
    scratch: PathBuf,
    runs: Arc<Mutex<File>>,
    alive: Arc<AtomicUsize>,
}

impl InProcessWorkers {
    /// Workers that restore into `scratch`; each statement they run becomes a line of `runs`.
    pub fn new(context: Context, scratch: PathBuf, runs: File) -> Self {
        Self { context, scratch, runs: Arc::new(Mutex::new(runs)), alive: Arc::default() }
    }
}

#[async_trait]
impl WorkerHost for InProcessWorkers {
    async fn start(&self) -> Result<WorkerLink, StartError> {
        let scratch = tempfile::tempdir_in(&self.scratch);
        let scratch = scratch.map_err(|error| StartError(error.to_string()))?;
        let (ours, theirs) = duplex(SOCKET_BYTES);
        let (clock, runs) = (self.context.clone(), Arc::clone(&self.runs));
        let alive = Alive::one_of(&self.alive);
        let task = self.context.spawn(async move {
            let life = Arc::new(Life::new(move || clock.monotonic()));
            let walls = Sandbox::default();
            let session = Session::new(life, scratch.path(), RESTORED_BYTES, walls);
            // Whoever leaves first ends it; the agent sees how far it came.
            let _ = Worker { session, runs }.serve(theirs).await;
            drop((scratch, alive));
        });
        let (reader, writer) = tokio::io::split(ours);
        let life = Box::new(Running(task));
        Ok(WorkerLink { reader: Box::new(reader), writer: Box::new(writer), life })
    }

    async fn running(&self) -> Result<usize, CountUnknown> {
        Ok(self.alive.load(Ordering::SeqCst))
    }
}

struct Running(JoinHandle<()>);

#[async_trait]
impl WorkerLife for Running {
    async fn stopped(&mut self) {
        if !self.0.is_finished() {
            (&mut self.0).await.unwrap();
        }
    }
}

/// Counts a worker until it is dropped.
struct Alive(Arc<AtomicUsize>);

impl Alive {
    fn one_of(all: &Arc<AtomicUsize>) -> Self {
        all.fetch_add(1, Ordering::SeqCst);
        Self(Arc::clone(all))
    }
}

impl Drop for Alive {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::SeqCst);
    }
}

struct Worker {
    session: Session,
    runs: Arc<Mutex<File>>,
}

impl Worker {
    async fn serve(mut self, mut connection: DuplexStream) -> io::Result<()> {
        let mut decoder = FrameDecoder::new();
        let mut buffer = vec![0; SOCKET_BYTES];
        loop {
            while let Some(frame) = decoder.next() {
                let frame = frame.map_err(io::Error::other)?;
                self.note(&frame)?;
                let mut said = Said::default();
                let next = self.session.on_frame(frame, &mut said)?;
                for frame in said.0 {
                    connection.write_all(&frame.to_bytes().map_err(io::Error::other)?).await?;
                }
                if let Next::Over(_) = next {
                    return Ok(());
                }
            }
            match connection.read(&mut buffer).await? {
                0 => return Ok(()),
                count => decoder.feed(&buffer[..count]),
            }
        }
    }

    fn note(&self, frame: &Frame) -> io::Result<()> {
        let Frame::Run(run) = frame else { return Ok(()) };
        // One write a line: it stays whole, and a killed process has written all of it.
        let line = format!("{}\n", run.sql.replace('\n', " "));
        self.runs.lock().unwrap().write_all(line.as_bytes())
    }
}

#[derive(Default)]
struct Said(VecDeque<Frame>);

impl Sink for Said {
    fn send(&mut self, frame: Frame) -> io::Result<()> {
        self.0.push_back(frame);
        Ok(())
    }
}
