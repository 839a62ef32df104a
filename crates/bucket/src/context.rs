//! The one place that reads a clock, waits, spawns or draws a random number, so that tests own all
//! four (architecture: time, randomness, failure).

use std::future::Future;
use std::pin::Pin;
use std::sync::atomic::{AtomicI64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Poll, Waker};
use std::time::Duration;

use rand::{Rng, RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;
use tokio::task::JoinHandle;
use tokio::time::Instant;
use ulid::Ulid;

/// A wait ended before the future it was given to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the time allowed for this ran out")]
pub struct Elapsed;

/// Clock, randomness, sleep and spawn of one process. Clones are one process: they share the clock
/// skew and the random stream. [`Context::node`] makes another process on the same time line.
///
/// # Simulation
///
/// [`Context::simulated`] is deterministic when all of this holds:
///
/// - the runtime is Tokio's current-thread one with paused time (`start_paused = true`, or
///   `Builder::new_current_thread().enable_time().start_paused(true)`), and the context is made
///   inside it;
/// - every task is spawned from that thread, and every `select!` is `biased` (the unbiased one
///   draws from a generator that nobody seeds);
/// - nothing iterates a hash map, and the store is a memory store: a directory store finishes on
///   other threads, in an order of their own;
/// - blocking work goes through [`Context::spawn_blocking`], which a simulation runs in place.
#[derive(Clone)]
pub struct Context {
    line: Arc<TimeLine>,
    node: Arc<Node>,
}

struct TimeLine {
    origin: Instant,
    /// Unix milliseconds at `origin`; `None` asks the system each time.
    start_unix_ms: Option<u64>,
    seed: u64,
}

struct Node {
    skew_ms: AtomicI64,
    dice: Mutex<Dice>,
    frozen: Mutex<Option<Vec<Waker>>>,
}

enum Dice {
    System,
    Seeded(Box<ChaCha8Rng>),
}

// The ban on clocks, sleep, spawn and randomness points here; this is the one exemption.
#[allow(clippy::disallowed_methods)]
impl Context {
    /// The machine's clock and the operating system's randomness.
    pub fn system() -> Self {
        let line = TimeLine { origin: Instant::now(), start_unix_ms: None, seed: 0 };
        Self { line: Arc::new(line), node: Node::new(Dice::System) }
    }

    /// Virtual time that begins at `start_unix_ms`, and randomness from `seed`. See the type's own
    /// text for what a deterministic run needs.
    pub fn simulated(seed: u64, start_unix_ms: u64) -> Self {
        let line = TimeLine { origin: Instant::now(), start_unix_ms: Some(start_unix_ms), seed };
        Self { line: Arc::new(line), node: Node::new(Dice::seeded(seed)) }
    }

    /// Another process on this time line: its own clock skew (none at first) and, in a simulation,
    /// its own random stream, drawn from the seed and `name` alone.
    pub fn node(&self, name: &str) -> Self {
        let dice = match self.line.start_unix_ms {
            Some(_) => Dice::seeded(mix(self.line.seed, name)),
            None => Dice::System,
        };
        Self { line: Arc::clone(&self.line), node: Node::new(dice) }
    }

    /// Whether time is virtual.
    pub fn is_simulated(&self) -> bool {
        self.line.start_unix_ms.is_some()
    }

    /// Moves the wall clock of this process by `skew_ms` milliseconds against the true time. Waits
    /// and [`Context::monotonic`] are not moved: a wrong date does not stretch a second.
    pub fn set_skew_ms(&self, skew_ms: i64) {
        self.node.skew_ms.store(skew_ms, Ordering::Relaxed);
    }

    /// Stops the process of a simulation as `SIGSTOP` does, or a host that is paused: its tasks
    /// stand still where they are. Clocks go on, and what it sent is on its way.
    pub fn freeze(&self) {
        self.node.frozen().get_or_insert_default();
    }

    /// Lets a frozen process go on.
    pub fn thaw(&self) {
        let waiting = self.node.frozen().take();
        waiting.into_iter().flatten().for_each(Waker::wake);
    }

    /// Unix time in milliseconds, skew included.
    pub fn now_unix_ms(&self) -> u64 {
        let truth = match self.line.start_unix_ms {
            Some(start) => start.saturating_add(millis(self.monotonic())),
            None => millis(std::time::SystemTime::UNIX_EPOCH.elapsed().unwrap_or_default()),
        };
        truth.saturating_add_signed(self.node.skew_ms.load(Ordering::Relaxed))
    }

    /// Unix time in whole seconds, skew included.
    pub fn now_unix(&self) -> u64 {
        self.now_unix_ms() / 1_000
    }

    /// Time since this time line began. Never goes back and knows no skew.
    pub fn monotonic(&self) -> Duration {
        self.line.origin.elapsed()
    }

    /// Waits for `duration`.
    pub async fn sleep(&self, duration: Duration) {
        tokio::time::sleep(duration).await;
    }

    /// Runs `future` for at most `duration`; what is not done by then is dropped.
    pub async fn timeout<F: Future>(
        &self,
        duration: Duration,
        future: F,
    ) -> Result<F::Output, Elapsed> {
        tokio::time::timeout(duration, future).await.map_err(|_| Elapsed)
    }

    /// Starts a task.
    pub fn spawn<F>(&self, future: F) -> JoinHandle<F::Output>
    where
        F: Future + Send + 'static,
        F::Output: Send + 'static,
    {
        match self.is_simulated() {
            true => {
                tokio::spawn(Freezable { node: Arc::clone(&self.node), task: Box::pin(future) })
            }
            false => tokio::spawn(future),
        }
    }

    /// Runs `work` where it may block. A simulation runs it in place instead, because the end of a
    /// second thread has no fixed place in the order of events.
    pub fn spawn_blocking<F, T>(&self, work: F) -> JoinHandle<T>
    where
        F: FnOnce() -> T + Send + 'static,
        T: Send + 'static,
    {
        match self.is_simulated() {
            true => self.spawn(async move { work() }),
            false => tokio::task::spawn_blocking(work),
        }
    }

    /// Fills `out` with random bytes, good enough for keys outside a simulation.
    pub fn fill(&self, out: &mut [u8]) {
        match &mut *self.dice() {
            Dice::System => rand::rng().fill_bytes(out),
            Dice::Seeded(dice) => dice.fill_bytes(out),
        }
    }

    /// This context as the source of randomness that the protocol's functions take.
    pub fn entropy(&self) -> ContextEntropy {
        ContextEntropy(self.clone())
    }

    /// A fresh ULID of this moment.
    pub fn ulid(&self) -> Ulid {
        let mut random = [0; 16];
        self.fill(&mut random);
        Ulid::from_parts(self.now_unix_ms(), u128::from_be_bytes(random))
    }

    /// A random wait from zero up to, but not including, `max` (full jitter).
    pub fn jitter(&self, max: Duration) -> Duration {
        max.mul_f64(self.fraction())
    }

    /// True with probability `p`.
    pub fn chance(&self, p: f64) -> bool {
        self.fraction() < p
    }

    /// A random number below `end`; zero when `end` is zero.
    pub fn below(&self, end: usize) -> usize {
        let mut random = [0; 8];
        self.fill(&mut random);
        // The bias of the remainder is below 2^-32 for every bound this is used with.
        (u64::from_be_bytes(random) % (end.max(1) as u64)) as usize
    }

    fn fraction(&self) -> f64 {
        match &mut *self.dice() {
            Dice::System => rand::rng().random(),
            Dice::Seeded(dice) => dice.random(),
        }
    }

    fn dice(&self) -> MutexGuard<'_, Dice> {
        self.node.dice.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl std::fmt::Debug for Context {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        // The state of the generator is a secret: keys are drawn from it.
        f.debug_struct("Context").field("simulated", &self.is_simulated()).finish_non_exhaustive()
    }
}

/// Randomness for the protocol's functions; see [`Context::entropy`].
#[derive(Clone, Debug)]
pub struct ContextEntropy(Context);

impl carlos_protocol::Entropy for ContextEntropy {
    fn fill(&mut self, out: &mut [u8]) {
        self.0.fill(out);
    }
}

impl Node {
    fn new(dice: Dice) -> Arc<Self> {
        let (skew_ms, dice) = (AtomicI64::new(0), Mutex::new(dice));
        Arc::new(Self { skew_ms, dice, frozen: Mutex::default() })
    }

    fn frozen(&self) -> MutexGuard<'_, Option<Vec<Waker>>> {
        self.frozen.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A task of a process that can be frozen.
struct Freezable<F> {
    node: Arc<Node>,
    task: Pin<Box<F>>,
}

impl<F: Future> Future for Freezable<F> {
    type Output = F::Output;

    fn poll(mut self: Pin<&mut Self>, cx: &mut std::task::Context<'_>) -> Poll<F::Output> {
        if let Some(waiting) = self.node.frozen().as_mut() {
            waiting.push(cx.waker().clone());
            return Poll::Pending;
        }
        self.task.as_mut().poll(cx)
    }
}

impl Dice {
    fn seeded(seed: u64) -> Self {
        Self::Seeded(Box::new(ChaCha8Rng::seed_from_u64(seed)))
    }
}

/// FNV-1a over the name, started from the seed: equal names give equal streams in every build.
fn mix(seed: u64, name: &str) -> u64 {
    name.bytes().fold(seed ^ 0xcbf2_9ce4_8422_2325, |hash, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3)
    })
}

fn millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;

    use super::*;

    const START_MS: u64 = 1_792_659_600_000;

    /// Forty tasks that draw, wait and write down, on virtual time; what they wrote.
    fn run(seed: u64) -> Vec<String> {
        let mut runtime = tokio::runtime::Builder::new_current_thread();
        let runtime = runtime.enable_time().start_paused(true).build().expect("a runtime");
        runtime.block_on(async move {
            let ctx = Context::simulated(seed, START_MS);
            let log = Arc::new(Mutex::new(Vec::new()));
            let tasks: Vec<_> =
                (0..40).map(|n| ctx.spawn(act(ctx.clone(), n, log.clone()))).collect();
            for task in tasks {
                task.await.expect("the task ends");
            }
            let log = log.lock().expect("nobody panicked");
            log.clone()
        })
    }

    async fn act(ctx: Context, n: usize, log: Arc<Mutex<Vec<String>>>) {
        for _ in 0..20 {
            ctx.sleep(ctx.jitter(Duration::from_millis(50))).await;
            let worked = ctx.clone();
            let ulid = ctx.spawn_blocking(move || worked.ulid()).await.expect("work ends");
            log.lock().expect("nobody panicked").push(format!("{} {n} {ulid}", ctx.now_unix_ms()));
        }
    }

    #[test]
    fn one_seed_gives_one_log() {
        let first = run(11);
        assert_eq!(first.len(), 800);
        for _ in 0..5 {
            assert_eq!(run(11), first);
        }
        assert_ne!(run(12), first);
    }

    #[tokio::test(start_paused = true)]
    async fn skew_moves_one_process_and_no_wait() {
        let ctx = Context::simulated(1, START_MS);
        let (fast, slow) = (ctx.node("fast"), ctx.node("slow"));
        fast.clone().set_skew_ms(3_600_000);
        slow.set_skew_ms(-3_600_000);
        ctx.sleep(Duration::from_secs(10)).await;
        let now = START_MS + 10_000;
        assert_eq!(ctx.now_unix_ms(), now);
        assert_eq!(fast.now_unix_ms(), now + 3_600_000);
        assert_eq!(slow.now_unix_ms(), now - 3_600_000);
        assert_eq!(fast.monotonic(), slow.monotonic());
    }

    /// A frozen process keeps its place, and time passes it by.
    #[tokio::test(start_paused = true)]
    async fn a_frozen_process_goes_on_where_it_stood() {
        let ctx = Context::simulated(1, START_MS);
        let process = ctx.node("stalled");
        let clock = process.clone();
        let task = process.spawn(async move {
            for _ in 0..3 {
                clock.sleep(Duration::from_secs(1)).await;
            }
            clock.monotonic()
        });
        ctx.sleep(Duration::from_millis(1_500)).await;
        process.freeze();
        ctx.sleep(Duration::from_secs(3_600)).await;
        assert!(!task.is_finished());
        process.thaw();
        // The second wait ended long ago; the third begins only now.
        let ended = task.await.expect("the task ends");
        assert_eq!(ended, Duration::from_millis(3_602_500));
    }

    #[tokio::test(start_paused = true)]
    async fn processes_draw_apart_and_by_name() {
        let draw = |ctx: &Context| {
            let mut bytes = [0; 16];
            ctx.fill(&mut bytes);
            bytes
        };
        let (one, two) = (Context::simulated(1, 0), Context::simulated(1, 0));
        let first = draw(&one.node("a"));
        draw(&two);
        assert_eq!(draw(&two.node("a")), first, "only seed and name count");
        assert_ne!(draw(&two.node("b")), first);
        assert_ne!(draw(&Context::simulated(2, 0).node("a")), first);
    }

    #[tokio::test]
    async fn the_system_context_is_random_and_on_time() {
        let ctx = Context::system();
        assert_ne!(ctx.ulid(), ctx.node("other").ulid());
        assert!(ctx.now_unix() > 1_700_000_000);
        assert!((0..1_000).all(|_| ctx.below(3) < 3));
        assert!((0..1_000).all(|_| ctx.jitter(Duration::from_secs(1)) < Duration::from_secs(1)));
        assert_eq!(ctx.below(0), 0);
    }

    #[tokio::test(start_paused = true)]
    async fn a_wait_that_is_too_long_is_cut() {
        let ctx = Context::simulated(1, 0);
        let cut = ctx.timeout(Duration::from_secs(1), std::future::pending::<()>()).await;
        assert_eq!(cut, Err(Elapsed));
        assert_eq!(ctx.monotonic(), Duration::from_secs(1));
        assert!(!format!("{ctx:?}").contains("ChaCha"));
    }
}
