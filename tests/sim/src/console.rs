//! The console's process, without its sockets.

use std::sync::{Arc, Mutex};

use axum::body::Body;
use axum::http::{Request, Response};
use carlos_bucket::{Bucket, Context};
use carlos_console::{ConsoleConfig, Service};
use tokio_util::sync::CancellationToken;
use tokio_util::task::{AbortOnDropHandle, TaskTracker};
use tower::ServiceExt as _;

use crate::wire::{Line, Power};
use crate::world::World;

/// The name of the console's line and log.
pub(crate) const CONSOLE: &str = "console";

/// A console of region `ie`.
pub struct Desk {
    pub line: Line,
    world: Arc<World>,
    change: Box<dyn Fn(ConsoleConfig) -> ConsoleConfig + Send + Sync>,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    boots: u32,
    skew_ms: i64,
    stalled: bool,
    process: Option<Process>,
}

/// One run of the console.
struct Process {
    ctx: Context,
    service: Service,
    power: Power,
    shutdown: CancellationToken,
    tasks: TaskTracker,
    /// Cancelled when the process is gone, and with it every connection.
    down: CancellationToken,
}

/// The connection broke, or nobody took it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Refused;

impl Desk {
    /// A console that runs.
    pub fn new(world: &Arc<World>) -> Arc<Self> {
        Self::with(world, |config| config)
    }

    /// A console whose configuration is changed, and which runs.
    pub fn with(
        world: &Arc<World>,
        change: impl Fn(ConsoleConfig) -> ConsoleConfig + Send + Sync + 'static,
    ) -> Arc<Self> {
        let (line, world) = (world.line(CONSOLE), Arc::clone(world));
        let desk = Self { line, world, change: Box::new(change), state: Mutex::default() };
        desk.boot();
        Arc::new(desk)
    }

    /// Starts the console, if it does not run.
    pub fn boot(&self) {
        let mut state = self.state.lock().unwrap();
        if state.process.is_some() {
            return;
        }
        state.boots += 1;
        let ctx = self.world.ctx.node(&format!("{CONSOLE} {}", state.boots));
        ctx.set_skew_ms(state.skew_ms);
        let config = ConsoleConfig::new("ie".parse().unwrap()).forwarding(self.world.key.clone());
        let (config, power) = ((self.change)(config), Power::on());
        let bucket = Bucket::new(self.line.plug(&ctx, &power), ctx.clone());
        let (tasks, shutdown) = (TaskTracker::new(), CancellationToken::new());
        let service = Service::new(&config, bucket, tasks.clone(), shutdown.clone());
        self.world.log.machine(CONSOLE, format!("boot {}", state.boots));
        let down = CancellationToken::new();
        state.process = Some(Process { ctx, service, power, shutdown, tasks, down });
    }

    /// Ends the console as `kill -9` does.
    pub fn kill(&self) {
        let Some(process) = self.state.lock().unwrap().process.take() else { return };
        process.power.cut();
        self.world.log.machine(CONSOLE, "killed");
        process.down.cancel();
    }

    /// Ends the console as systemd does.
    pub async fn shut_down(&self) {
        let Some(process) = self.state.lock().unwrap().process.take() else { return };
        self.world.log.machine(CONSOLE, "shutting down");
        process.shutdown.cancel();
        process.tasks.close();
        process.tasks.wait().await;
        process.down.cancel();
        self.world.log.machine(CONSOLE, "shut down");
    }

    /// Sets the machine's clock wrong by so much.
    pub fn set_skew_ms(&self, skew_ms: i64) {
        let mut state = self.state.lock().unwrap();
        state.skew_ms = skew_ms;
        if let Some(process) = &state.process {
            process.ctx.set_skew_ms(skew_ms);
        }
        self.world.log.machine(CONSOLE, format!("clock off by {skew_ms} ms"));
    }

    /// Stops the process where it stands; its context lets it go on.
    pub fn freeze(&self) -> Option<Context> {
        let mut state = self.state.lock().unwrap();
        let ctx = state.process.as_ref()?.ctx.clone();
        state.stalled = true;
        ctx.freeze();
        self.world.log.machine(CONSOLE, "frozen");
        Some(ctx)
    }

    /// Whether it ever stood still.
    pub fn has_stalled(&self) -> bool {
        self.state.lock().unwrap().stalled
    }

    /// Reads that the console counts as open.
    pub fn open_reads(&self) -> usize {
        let state = self.state.lock().unwrap();
        state.process.as_ref().expect("the console runs").service.open_reads()
    }

    /// Sends one request. The token ends the connection.
    pub(crate) async fn send(
        &self,
        request: Request<Body>,
    ) -> Result<(Response<Body>, CancellationToken), Refused> {
        let process = {
            let state = self.state.lock().unwrap();
            let process = state.process.as_ref().ok_or(Refused)?;
            (process.service.router(), process.ctx.clone(), process.down.clone())
        };
        let (app, ctx, down) = process;
        // A task of the console's process, which ends with its connection.
        let answer = AbortOnDropHandle::new(ctx.spawn(app.oneshot(request)));
        let answer = tokio::select! {
            biased;
            () = down.cancelled() => return Err(Refused),
            answer = answer => answer.expect("a handler does not panic"),
        };
        let Ok(answer) = answer;
        Ok((answer, down))
    }
}
