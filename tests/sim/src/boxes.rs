//! A box: a machine whose agent can be killed, drained and started again, beside workers that live
//! on without it.

use std::future::pending;
use std::io;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use async_trait::async_trait;
use carlos_box_agent::{
    AgentConfig, AgentError, CrashHook, CrashPoint, DiskSpace, Draining, Ports, Space,
    StoreReplicas, Walls, run,
};
use carlos_bucket::{Bucket, Context};
use carlos_protocol::envelope::RootKeys;
use carlos_replica::Resolution;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

use crate::log::Event;
use crate::wire::{Line, Power};
use crate::worker::InProcessWorkers;
use crate::world::{PREFIX, World};

/// A stopping agent's patience here: long enough for a read, short enough for a run.
const DRAINING: Draining =
    Draining { grace: Duration::from_secs(20), end: Duration::from_secs(20) };

/// Where an agent is to stop: the `nth` time that it passes the point of this number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stop {
    pub point: u8,
    pub nth: usize,
    /// It stands still for so long, or dies.
    pub stalls: Option<Duration>,
}

impl Stop {
    /// The agent dies there.
    pub fn dies(point: u8, nth: usize) -> Self {
        Self { point, nth, stalls: None }
    }

    /// The agent stands still there for an hour, as on a host that was suspended.
    pub fn stalls(point: u8, nth: usize) -> Self {
        Self { point, nth, stalls: Some(STALL) }
    }
}

/// A suspended host comes back long after everybody stopped waiting for it.
pub(crate) const STALL: Duration = Duration::from_secs(3_600);

/// A box of region `uk`.
pub struct Machine {
    pub who: &'static str,
    pub line: Line,
    pub data: Line,
    pub workers: Arc<InProcessWorkers>,
    world: Arc<World>,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    boots: u32,
    skew_ms: i64,
    process: Option<Process>,
    errors: Vec<String>,
}

/// One run of the agent.
struct Process {
    ctx: Context,
    power: Power,
    task: JoinHandle<Result<(), AgentError>>,
    shutdown: CancellationToken,
    stop: Arc<Mutex<Option<Stop>>>,
    owned: Arc<AtomicUsize>,
    stopped: CancellationToken,
}

impl Machine {
    /// A machine whose agent does not run yet.
    pub fn new(world: &Arc<World>, who: &'static str) -> Arc<Self> {
        Arc::new(Self {
            who,
            line: world.line(who),
            data: world.data_line(who),
            workers: InProcessWorkers::new(who, &world.ctx, &world.log, world.scratch()),
            world: Arc::clone(world),
            state: Mutex::default(),
        })
    }

    /// Starts the agent, which stops at `stop` if it gets there.
    pub fn boot(&self, stop: Option<Stop>) {
        let world = &self.world;
        let mut state = self.state.lock().unwrap();
        assert!(state.process.is_none(), "{} runs already", self.who);
        state.boots += 1;
        // Another process draws other random numbers, and reads the same machine's clock.
        let ctx = world.ctx.node(&format!("{} {}", self.who, state.boots));
        ctx.set_skew_ms(state.skew_ms);
        let (power, shutdown, stopped) =
            (Power::on(), CancellationToken::new(), CancellationToken::new());
        let (at, owned) = (Arc::new(Mutex::new(stop)), Arc::<AtomicUsize>::default());
        let fuse = Fuse {
            who: self.who,
            world: Arc::clone(world),
            ctx: ctx.clone(),
            power: power.clone(),
            stopped: stopped.clone(),
            left: Arc::clone(&at),
            owned: Arc::clone(&owned),
        };
        let agent = run(self.config(), self.ports(&ctx, &power, fuse), shutdown.clone());
        let task = ctx.spawn(agent);
        world.log.machine(self.who, format!("boot {}, to stop at {stop:?}", state.boots));
        state.process = Some(Process { ctx, power, task, shutdown, stop: at, owned, stopped });
    }

    fn config(&self) -> AgentConfig {
        let roots = RootKeys::from_iter([self.world.key.public()]);
        let (name, region) = (self.who.parse().unwrap(), "uk".parse().unwrap());
        let config = AgentConfig::development(name, region, roots);
        // The workers here say honestly that nothing confines them.
        AgentConfig { sandbox: Walls::none(), draining: DRAINING, ..config }
    }

    fn ports(&self, ctx: &Context, power: &Power, fuse: Fuse) -> Ports {
        let data = self.data.plug_impatiently(&ctx.node("data"), power);
        let replicas = Arc::new(StoreReplicas::new(data, PREFIX, Resolution::Second));
        let bucket = Bucket::new(self.line.plug(ctx, power), ctx.clone());
        let workers = Arc::clone(&self.workers);
        let ports = Ports::new(bucket, Some(replicas), workers, Arc::new(WideDisk));
        Ports { crash: Arc::new(fuse), ..ports }
    }

    /// The run's own clock.
    pub(crate) fn ctx(&self) -> &Context {
        &self.world.ctx
    }

    /// Whether an agent runs, or lies where it died.
    pub fn is_up(&self) -> bool {
        self.state.lock().unwrap().process.is_some()
    }

    /// Resolves when the agent has come to its stop.
    pub async fn stops(&self) {
        let state = self.state.lock().unwrap().process.as_ref().map(|it| it.stopped.clone());
        match state {
            Some(stopped) => stopped.cancelled().await,
            None => pending().await,
        }
    }

    /// Whether the agent has nothing under way: no read that it owns, no worker.
    pub fn is_idle(&self) -> bool {
        let state = self.state.lock().unwrap();
        let owned = state.process.as_ref().map_or(0, |it| it.owned.load(Ordering::SeqCst));
        owned == 0 && self.workers.alive() == 0
    }

    /// Takes the stop back: an agent that has not died lives on.
    pub fn spare(&self) {
        if let Some(process) = &self.state.lock().unwrap().process {
            *process.stop.lock().unwrap() = None;
        }
    }

    /// Ends the agent as `kill -9` does.
    pub async fn kill(&self) {
        let Some(process) = self.state.lock().unwrap().process.take() else { return };
        process.power.cut();
        process.task.abort();
        self.note(process.task.await.unwrap_or(Ok(())));
        self.world.log.machine(self.who, "killed");
    }

    /// Ends the agent as systemd does: it drains first.
    pub async fn drain(&self) {
        let Some(process) = self.state.lock().unwrap().process.take() else { return };
        self.world.log.machine(self.who, "draining");
        process.shutdown.cancel();
        self.note(process.task.await.expect("an agent does not panic"));
        self.world.log.machine(self.who, "drained");
    }

    /// Sets the machine's clock wrong by so much.
    pub fn set_skew_ms(&self, skew_ms: i64) {
        let mut state = self.state.lock().unwrap();
        state.skew_ms = skew_ms;
        if let Some(process) = &state.process {
            process.ctx.set_skew_ms(skew_ms);
        }
        self.world.log.machine(self.who, format!("clock off by {skew_ms} ms"));
    }

    /// Ends that no agent on this store should come to.
    pub fn errors(&self) -> Vec<String> {
        self.state.lock().unwrap().errors.clone()
    }

    fn note(&self, ended: Result<(), AgentError>) {
        if let Err(error) = ended {
            self.state.lock().unwrap().errors.push(format!("{}: {error}", self.who));
        }
    }
}

/// A disk with room for everything.
struct WideDisk;

impl DiskSpace for WideDisk {
    fn space(&self) -> io::Result<Space> {
        Ok(Space { free: 1 << 40, total: 1 << 40 })
    }
}

/// Notes every point, and stops the process at one.
struct Fuse {
    who: &'static str,
    world: Arc<World>,
    ctx: Context,
    power: Power,
    stopped: CancellationToken,
    left: Arc<Mutex<Option<Stop>>>,
    owned: Arc<AtomicUsize>,
}

impl Fuse {
    fn blows_at(&self, point: CrashPoint) -> Option<Stop> {
        let mut left = self.left.lock().unwrap();
        let stop = left.as_mut().filter(|stop| stop.point == point.number())?;
        stop.nth = stop.nth.saturating_sub(1);
        left.take_if(|stop| stop.nth == 0)
    }

    async fn blow(&self, stop: Stop) {
        self.stopped.cancel();
        let Some(stall) = stop.stalls else {
            self.power.cut();
            return pending().await;
        };
        self.world.log.machine(self.who, "frozen");
        self.ctx.freeze();
        let (world, frozen) = (Arc::clone(&self.world), self.ctx.clone());
        self.world.ctx.spawn(async move {
            world.ctx.sleep(stall).await;
            frozen.thaw();
        });
        // Nothing more happens at this point: the next poll comes after the thaw.
        tokio::task::yield_now().await;
    }
}

#[async_trait]
impl CrashHook for Fuse {
    async fn reached(&self, point: CrashPoint) {
        self.power.flows().await;
        self.world.log.add(self.who, Event::Point(point));
        match point {
            CrashPoint::PickedOwned => drop(self.owned.fetch_add(1, Ordering::SeqCst)),
            CrashPoint::WorkerStopped => drop(self.owned.fetch_sub(1, Ordering::SeqCst)),
            _ => {}
        }
        if let Some(stop) = self.blows_at(point) {
            self.blow(stop).await;
        }
    }
}
