//! Workers in this process: the real session over an in-memory connection, with a real restore and
//! real SQLite. Only the walls and the process itself are missing.

use std::collections::VecDeque;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use async_trait::async_trait;
use carlos_box_agent::{CountUnknown, StartError, WorkerHost, WorkerLife, WorkerLink};
use carlos_bucket::Context;
use carlos_dbread_worker::life::Life;
use carlos_dbread_worker::session::{Next, Session, Sink, status};
use carlos_protocol::frames::{Frame, FrameDecoder, Outcome, Sandbox};
use carlos_protocol::limits::{RESTORED_BYTES, WORKER_EXIT};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _, DuplexStream, ReadHalf, WriteHalf, duplex};
use tokio::sync::mpsc;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

use crate::log::{Event, Log, Step};

/// What a unix socket buffers, roughly.
const SOCKET_BYTES: usize = 64 << 10;

/// Pieces of the connection read ahead of the work: the replicas here are a few of these.
const PIECES_AHEAD: usize = 256;

/// How the workers of a machine behave; drawn anew for each worker.
#[derive(Clone, Debug)]
pub struct Habits {
    /// Up to this long between a frame and the work it asks for.
    pub pause: Duration,
    /// Up to this long before each frame that leaves.
    pub pace: Duration,
    /// How likely a worker does not start.
    pub fails: f64,
    /// How likely it dies at some step, without a word.
    pub dies: f64,
    /// How likely it goes silent at some step, until its agent leaves.
    pub hangs: f64,
    /// Up to this long from the end of the connection to the end of the process.
    pub lingers: Duration,
    /// Restores nothing before this is cancelled.
    pub gate: Option<CancellationToken>,
}

impl Habits {
    /// Quick and faultless.
    pub const BRISK: Self = Self {
        pause: Duration::from_millis(40),
        pace: Duration::from_millis(20),
        fails: 0.0,
        dies: 0.0,
        hangs: 0.0,
        lingers: Duration::from_millis(100),
        gate: None,
    };
}

/// The workers of one machine. They outlive the agent that started them, as processes do.
pub struct InProcessWorkers {
    who: &'static str,
    ctx: Context,
    log: Log,
    scratch: PathBuf,
    habits: Mutex<Habits>,
    started: AtomicU64,
    alive: Arc<AtomicUsize>,
    most: AtomicUsize,
}

impl InProcessWorkers {
    /// A machine without workers, whose workers restore into `scratch`.
    pub fn new(who: &'static str, ctx: &Context, log: &Log, scratch: &Path) -> Arc<Self> {
        Arc::new(Self {
            who,
            ctx: ctx.node(&format!("workers of {who}")),
            log: log.clone(),
            scratch: scratch.to_owned(),
            habits: Mutex::new(Habits::BRISK),
            started: AtomicU64::new(0),
            alive: Arc::default(),
            most: AtomicUsize::new(0),
        })
    }

    /// How workers behave from now on.
    pub fn behave(&self, habits: Habits) {
        *self.habits.lock().unwrap() = habits;
    }

    /// Workers alive now.
    pub fn alive(&self) -> usize {
        self.alive.load(Ordering::SeqCst)
    }

    /// The most that were alive at once.
    pub fn most(&self) -> usize {
        self.most.load(Ordering::SeqCst)
    }

    fn worker(&self, habits: Habits) -> Worker {
        let number = self.started.fetch_add(1, Ordering::SeqCst) + 1;
        let alive = self.alive.fetch_add(1, Ordering::SeqCst) + 1;
        self.most.fetch_max(alive, Ordering::SeqCst);
        self.log.add(self.who, Event::Worker(number, Step::Started));
        Worker {
            ctx: self.ctx.clone(),
            fate: Fate::draw(&self.ctx, &habits),
            habits,
            note: Note { who: self.who, number, log: self.log.clone() },
            _alive: Alive(Arc::clone(&self.alive)),
            scratch: tempfile::tempdir_in(&self.scratch).expect("the scratch root is there"),
        }
    }
}

#[async_trait]
impl WorkerHost for InProcessWorkers {
    async fn start(&self) -> Result<WorkerLink, StartError> {
        let habits = self.habits.lock().unwrap().clone();
        self.ctx.sleep(self.ctx.jitter(habits.pause)).await;
        if self.ctx.chance(habits.fails) {
            return Err(StartError("it was to fail".to_owned()));
        }
        let (ours, theirs) = duplex(SOCKET_BYTES);
        let task = self.ctx.spawn(self.worker(habits).serve(theirs));
        let (reader, writer) = tokio::io::split(ours);
        let life = Box::new(Running(task));
        Ok(WorkerLink { reader: Box::new(reader), writer: Box::new(writer), life })
    }

    async fn running(&self) -> Result<usize, CountUnknown> {
        Ok(self.alive())
    }
}

struct Running(JoinHandle<()>);

#[async_trait]
impl WorkerLife for Running {
    async fn stopped(&mut self) {
        if !self.0.is_finished() {
            (&mut self.0).await.expect("a worker's task ends by itself");
        }
    }
}

/// Counts the worker as alive until it is dropped.
struct Alive(Arc<AtomicUsize>);

impl Drop for Alive {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::SeqCst);
    }
}

struct Note {
    who: &'static str,
    number: u64,
    log: Log,
}

impl Note {
    fn step(&self, step: Step) {
        self.log.add(self.who, Event::Worker(self.number, step));
    }
}

/// What becomes of a worker after so many of its steps.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fate {
    Lives,
    Dies(usize),
    Hangs(usize),
}

/// Steps among which a worker's bad end falls: hello, header, files, run and some output.
const STEPS: usize = 7;

impl Fate {
    fn draw(ctx: &Context, habits: &Habits) -> Self {
        let step = ctx.below(STEPS);
        match (ctx.chance(habits.dies), ctx.chance(habits.hangs)) {
            (true, _) => Self::Dies(step),
            (_, true) => Self::Hangs(step),
            _ => Self::Lives,
        }
    }
}

struct Worker {
    ctx: Context,
    habits: Habits,
    fate: Fate,
    note: Note,
    _alive: Alive,
    scratch: tempfile::TempDir,
}

/// The worker's process ends here.
struct Over;

impl Worker {
    async fn serve(self, connection: DuplexStream) {
        let (reader, writer) = tokio::io::split(connection);
        let (to_work, from_peer) = mpsc::channel(PIECES_AHEAD);
        let left = CancellationToken::new();
        let listening = self.ctx.spawn(listen(reader, to_work, left.clone()));
        let talk = Talk { steps: 0, from_peer, left, writer, decoder: FrameDecoder::new() };
        let Over = self.work(talk).await;
        // The connection is gone with the work, and the listener with it.
        listening.abort();
        self.ctx.sleep(self.ctx.jitter(self.habits.lingers.min(WORKER_EXIT))).await;
        let Self { note, scratch, .. } = self;
        scratch.close().expect("a worker's scratch can be removed");
        note.step(Step::Gone);
    }

    async fn work(&self, mut talk: Talk) -> Over {
        let clock = self.ctx.clone();
        let life = Arc::new(Life::new(move || clock.monotonic()));
        // No walls stand around a worker in this process, and its hello says so.
        let walls = Sandbox::default();
        let mut session =
            Session::new(Arc::clone(&life), self.scratch.path(), RESTORED_BYTES, walls);
        loop {
            let Some(frame) = talk.frame().await else { return Over };
            // An agent gives a worker 10 s for its hello.
            let pause = match frame {
                Frame::Hello(_) => self.habits.pause.min(Duration::from_secs(1)),
                _ => self.habits.pause,
            };
            if let (Frame::Header(_), Some(gate)) = (&frame, &self.habits.gate) {
                let _ = gate.run_until_cancelled(talk.left.cancelled()).await;
            }
            if let Err(over) = self.step(&mut talk, pause).await {
                return over;
            }
            if let Frame::Run(run) = &frame {
                self.note.step(Step::Run(run.sql.clone()));
            }
            let mut said = Said::default();
            let next = match overtime(&life) {
                Some(outcome) => said.last_word(outcome),
                None => session.on_frame(frame, &mut said),
            };
            if let Err(over) = self.say(&mut talk, said).await {
                return over;
            }
            match next {
                Ok(Next::Listen) => {}
                Ok(Next::Over(_)) | Err(_) => return Over,
            }
        }
    }

    async fn say(&self, talk: &mut Talk, said: Said) -> Result<(), Over> {
        for frame in said.0 {
            self.step(talk, self.habits.pace).await?;
            if matches!(frame, Frame::Ready(_)) {
                self.note.step(Step::Ready);
            }
            talk.say(&frame).await?;
        }
        Ok(())
    }

    /// Takes its time, or comes to its bad end.
    async fn step(&self, talk: &mut Talk, most: Duration) -> Result<(), Over> {
        let step = talk.steps;
        talk.steps += 1;
        let rest = self.ctx.sleep(self.ctx.jitter(most));
        tokio::select! {
            biased;
            () = talk.left.cancelled() => return Err(Over),
            () = rest => {}
        }
        match self.fate {
            Fate::Dies(at) if at == step => Err(Over),
            Fate::Hangs(at) if at == step => {
                talk.left.cancelled().await;
                Err(Over)
            }
            _ => Ok(()),
        }
    }
}

/// The watcher's part: a passed limit ends the work with the limit's own outcome.
fn overtime(life: &Life) -> Option<Outcome> {
    life.time_limit().filter(|limit| life.now() >= limit.at).map(|limit| limit.outcome)
}

/// The worker's half of the connection.
struct Talk {
    steps: usize,
    from_peer: mpsc::Receiver<Vec<u8>>,
    left: CancellationToken,
    writer: WriteHalf<DuplexStream>,
    decoder: FrameDecoder,
}

impl Talk {
    /// The next frame; `None` when the peer left or spoke nonsense.
    async fn frame(&mut self) -> Option<Frame> {
        loop {
            if let Some(frame) = self.decoder.next() {
                return frame.ok();
            }
            self.decoder.feed(&self.from_peer.recv().await?);
        }
    }

    async fn say(&mut self, frame: &Frame) -> Result<(), Over> {
        let bytes = frame.to_bytes().expect("the session makes frames that fit");
        self.writer.write_all(&bytes).await.map_err(|_| Over)
    }
}

/// Reads ahead, so that the peer's leaving is seen while the worker is busy.
async fn listen(
    mut reader: ReadHalf<DuplexStream>,
    to_work: mpsc::Sender<Vec<u8>>,
    left: CancellationToken,
) {
    let mut buffer = vec![0; SOCKET_BYTES];
    while let Ok(count @ 1..) = reader.read(&mut buffer).await {
        if to_work.send(buffer[..count].to_vec()).await.is_err() {
            break;
        }
    }
    left.cancel();
}

/// What a session said in one step.
#[derive(Default)]
struct Said(VecDeque<Frame>);

impl Said {
    fn last_word(&mut self, outcome: Outcome) -> io::Result<Next> {
        self.send(Frame::Status(status(outcome, String::new())))?;
        Ok(Next::Over(outcome))
    }
}

impl Sink for Said {
    fn send(&mut self, frame: Frame) -> io::Result<()> {
        self.0.push_back(frame);
        Ok(())
    }
}
