//! A unit stand-in for the worker: it speaks real frames over an in-memory connection and decodes
//! nothing. What a real worker does is tested with the real one.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use async_trait::async_trait;
use carlos_box_agent::{CountUnknown, StartError, WorkerHost, WorkerLife, WorkerLink};
use carlos_bucket::Context;
use carlos_protocol::frames::{
    Frame, FrameDecoder, Header, Hello, Outcome, Ready, Rlimits, Sandbox, Status, VERSION,
};
use carlos_protocol::ids::Digest;
use carlos_protocol::time::Millis;
use tokio::io::{AsyncReadExt, AsyncWriteExt, DuplexStream, duplex};
use tokio::task::JoinHandle;

/// Pages of the copy that the script claims to hold; `support` writes headers that agree.
pub(crate) const PAGES: u32 = 4;
pub(crate) const PAGE_SIZE: u32 = 4096;
pub(crate) const COPY_TIME: u64 = 1_790_000_000_123;

/// Where a scripted worker stops doing anything, except noticing that its agent left.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Hang {
    Never,
    BeforeHello,
    /// Not at all a hang: it is gone before it says a word.
    Gone,
    BeforeReady,
    AfterOutput,
}

#[derive(Clone, Debug)]
pub(crate) struct Script {
    pub(crate) starts: bool,
    pub(crate) version: u32,
    pub(crate) sandbox: Sandbox,
    pub(crate) hang: Hang,
    /// Refuses its input with this outcome in place of `ready`.
    pub(crate) refuses: Option<Outcome>,
    pub(crate) output: Vec<Vec<u8>>,
    pub(crate) pause: Duration,
    pub(crate) outcome: Outcome,
    pub(crate) message: String,
    /// Claims other totals than those of its output.
    pub(crate) lies: bool,
    /// How long it takes to stop after its connection is gone.
    pub(crate) lingers: Duration,
}

impl Default for Script {
    fn default() -> Self {
        Self {
            starts: true,
            version: VERSION,
            sandbox: Sandbox {
                no_new_privileges: true,
                no_capabilities: true,
                no_dump: true,
                limits: Rlimits { core: 0, data: 1 << 20, file: 1 << 20, open: 64 },
                landlock_abi: 1,
                landlock_offered: 1,
                seccomp: true,
                ..Sandbox::default()
            },
            hang: Hang::Never,
            refuses: None,
            output: vec![b"rows".to_vec()],
            pause: Duration::ZERO,
            outcome: Outcome::Done,
            message: String::new(),
            lies: false,
            lingers: Duration::ZERO,
        }
    }
}

/// What became of the workers of one host.
#[derive(Default)]
pub(crate) struct Seen {
    pub(crate) started: AtomicUsize,
    pub(crate) running: AtomicUsize,
    pub(crate) most: AtomicUsize,
    /// Workers nobody here started.
    pub(crate) orphans: AtomicUsize,
    /// What the host says of a connection that was closed unheard.
    pub(crate) crowded: AtomicBool,
    /// The host cannot count.
    pub(crate) uncounted: AtomicBool,
    pub(crate) statements: Mutex<Vec<String>>,
    pub(crate) fed: Mutex<Vec<u64>>,
}

impl Seen {
    pub(crate) fn statements(&self) -> Vec<String> {
        self.statements.lock().unwrap().clone()
    }
}

pub(crate) struct ScriptedWorkers {
    ctx: Context,
    script: Mutex<Script>,
    pub(crate) seen: Arc<Seen>,
}

impl ScriptedWorkers {
    pub(crate) fn new(ctx: Context, script: Script) -> Arc<Self> {
        Arc::new(Self { ctx, script: Mutex::new(script), seen: Arc::default() })
    }

    pub(crate) fn follow(&self, script: Script) {
        *self.script.lock().unwrap() = script;
    }
}

#[async_trait]
impl WorkerHost for ScriptedWorkers {
    async fn start(&self) -> Result<WorkerLink, StartError> {
        let script = self.script.lock().unwrap().clone();
        if !script.starts {
            return Err(StartError("scripted".to_owned()));
        }
        let seen = Arc::clone(&self.seen);
        seen.started.fetch_add(1, Ordering::SeqCst);
        let running = seen.running.fetch_add(1, Ordering::SeqCst) + 1;
        seen.most.fetch_max(running, Ordering::SeqCst);
        let (ours, theirs) = duplex(64 << 10);
        let lingers = script.lingers;
        let worker = Worker { ctx: self.ctx.clone(), script, seen, decoder: FrameDecoder::new() };
        let task = self.ctx.spawn(worker.serve(theirs));
        let (reader, writer) = tokio::io::split(ours);
        let life =
            Life { ctx: self.ctx.clone(), task: Some(task), lingers, seen: self.seen.clone() };
        Ok(WorkerLink { reader: Box::new(reader), writer: Box::new(writer), life: Box::new(life) })
    }

    async fn running(&self) -> Result<usize, CountUnknown> {
        if self.seen.uncounted.load(Ordering::SeqCst) {
            return Err(CountUnknown("scripted".to_owned()));
        }
        let orphans = self.seen.orphans.load(Ordering::SeqCst);
        Ok(self.seen.running.load(Ordering::SeqCst) + orphans)
    }

    async fn is_crowded(&self) -> bool {
        self.seen.crowded.load(Ordering::SeqCst)
    }
}

struct Life {
    ctx: Context,
    task: Option<JoinHandle<()>>,
    lingers: Duration,
    seen: Arc<Seen>,
}

#[async_trait]
impl WorkerLife for Life {
    async fn stopped(&mut self) {
        let Some(task) = &mut self.task else { return };
        task.await.expect("the scripted worker does not panic");
        self.ctx.sleep(self.lingers).await;
        self.task = None;
        self.seen.running.fetch_sub(1, Ordering::SeqCst);
    }
}

impl Drop for Life {
    fn drop(&mut self) {
        // As kill_on_drop: a killed agent takes its workers with it.
        if let Some(task) = self.task.take() {
            task.abort();
            self.seen.running.fetch_sub(1, Ordering::SeqCst);
        }
    }
}

struct Worker {
    ctx: Context,
    script: Script,
    seen: Arc<Seen>,
    decoder: FrameDecoder,
}

impl Worker {
    async fn serve(mut self, mut stream: DuplexStream) {
        // The agent leaving at any moment is an ordinary end.
        let _ended = self.converse(&mut stream).await;
    }

    async fn converse(&mut self, stream: &mut DuplexStream) -> Option<()> {
        self.next(stream).await?;
        if self.script.hang == Hang::Gone {
            return None;
        }
        self.hang_at(Hang::BeforeHello, stream).await;
        let sandbox = Some(self.script.sandbox.clone());
        say(stream, &Frame::Hello(Hello { v: self.script.version, sandbox })).await?;
        let Frame::Header(header) = self.next(stream).await? else { return None };
        if let Some(outcome) = self.script.refuses {
            return say(stream, &self.status(outcome, &[])).await;
        }
        self.take_files(&header, stream).await?;
        self.hang_at(Hang::BeforeReady, stream).await;
        let time = Millis::new(COPY_TIME);
        let ready = Ready { txid: header.target, pages: PAGES, page_size: PAGE_SIZE, time };
        say(stream, &Frame::Ready(ready)).await?;
        let Frame::Run(run) = self.next(stream).await? else { return None };
        self.seen.statements.lock().unwrap().push(run.sql);
        self.answer(stream).await
    }

    async fn answer(&mut self, stream: &mut DuplexStream) -> Option<()> {
        for piece in self.script.output.clone() {
            for part in piece.chunks(512 << 10) {
                say(stream, &Frame::Output(part.to_vec())).await?;
            }
            self.ctx.sleep(self.script.pause).await;
        }
        self.hang_at(Hang::AfterOutput, stream).await;
        let output = if self.script.lies { Vec::new() } else { self.script.output.concat() };
        say(stream, &self.status(self.script.outcome, &output)).await
    }

    fn status(&self, outcome: Outcome, output: &[u8]) -> Frame {
        Frame::Status(Status {
            outcome,
            message: self.script.message.clone(),
            rows: 1,
            bytes: output.len() as u64,
            sha256: Digest::of(output),
        })
    }

    async fn take_files(&mut self, header: &Header, stream: &mut DuplexStream) -> Option<()> {
        let total = header.total_bytes()?;
        let mut taken = 0;
        while taken < total {
            let Frame::FileData(bytes) = self.next(stream).await? else { return None };
            taken += bytes.len() as u64;
        }
        self.seen.fed.lock().unwrap().push(taken);
        Some(())
    }

    async fn hang_at(&mut self, place: Hang, stream: &mut DuplexStream) {
        while self.script.hang == place && self.next(stream).await.is_some() {}
    }

    async fn next(&mut self, stream: &mut DuplexStream) -> Option<Frame> {
        let mut buffer = [0; 16 << 10];
        loop {
            if let Some(frame) = self.decoder.next() {
                return frame.ok();
            }
            match stream.read(&mut buffer).await.ok()? {
                0 => return None,
                count => self.decoder.feed(&buffer[..count]),
            }
        }
    }
}

async fn say(stream: &mut DuplexStream, frame: &Frame) -> Option<()> {
    stream.write_all(&frame.to_bytes().ok()?).await.ok()
}
