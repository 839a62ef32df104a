//! Real agents whose workers are the real worker program.

use std::os::unix::fs::MetadataExt;
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use async_trait::async_trait;
use carlos_box_agent::{
    AgentConfig, Census, ChildWorkerHost, CrashHook, CrashPoint, FolderDisk, Ports,
    SocketWorkerHost, StoreReplicas, WorkerCommand, WorkerHost,
};
use carlos_bucket::layer::{Inner, Op};
use carlos_bucket::{Bucket, Context, Pace};
use carlos_protocol::ids::{BoxName, Region};
use carlos_protocol::keys::Key;
use carlos_protocol::records::{DB_READ_CAPABILITY, Status};
use carlos_replica::Resolution;
use futures::future::BoxFuture;
use tempfile::TempDir;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

use crate::programs;
use crate::stores::View;
use crate::world::{PREFIX, World, parse};

/// Production looks every two seconds, and every quarter after it has seen work. Here a look costs
/// nothing, and a hundred tests would wait a second each for the first.
const PACE: Pace = Pace {
    idle: Duration::from_millis(50),
    active: Duration::from_millis(50),
    linger: Duration::from_secs(60),
    longest: Duration::from_secs(1),
};

/// How a box is set up.
pub struct BoxPlan {
    pub name: BoxName,
    pub region: Region,
    /// Where in the data bucket it looks for replicas.
    pub prefix: String,
    pub data: Inner,
    /// How exact the data bucket's listing times are.
    pub resolution: Resolution,
    /// Starts its workers in the place of the box, as in a container.
    pub listener: Option<Arc<Listener>>,
}

/// `db-worker --listen`: workers that are nobody's children here. Dropping it ends it as a kill
/// does.
pub struct Listener {
    child: Child,
    /// The sockets, and the scratch.
    dir: TempDir,
}

impl Listener {
    /// Starts one for this process's user, with scratch of its own, and waits until it listens.
    pub fn start() -> Arc<Self> {
        let dir = tempfile::tempdir().unwrap();
        std::fs::create_dir(dir.path().join("scratch")).unwrap();
        let uid = dir.path().metadata().unwrap().uid();
        let child = Command::new(programs::worker())
            .arg("--listen")
            .arg(dir.path().join("socket"))
            .args(["--peer-user", &uid.to_string(), "--scratch"])
            .arg(dir.path().join("scratch"))
            .stdin(Stdio::null())
            .spawn()
            .unwrap();
        let count = dir.path().join("socket.count");
        while UnixStream::connect(&count).is_err() {
            std::thread::sleep(Duration::from_millis(10));
        }
        Arc::new(Self { child, dir })
    }

    /// Workers that run, or have left something behind.
    pub fn workers(&self) -> usize {
        std::fs::read_dir(self.scratch()).unwrap().count()
    }

    fn scratch(&self) -> PathBuf {
        self.dir.path().join("scratch")
    }

    fn host(&self, context: &Context) -> SocketWorkerHost {
        let socket = self.dir.path().join("socket");
        let census = Census::listener(&socket);
        SocketWorkerHost::new(context.clone(), socket, census)
    }
}

impl Drop for Listener {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// An agent that runs until it is dropped, which ends it as a kill does.
pub struct RunningBox {
    pub name: BoxName,
    /// The deployment bucket as this box sees it.
    pub view: View,
    /// The data bucket as this box sees it.
    pub data: View,
    /// What happens on the way of its reads.
    pub gates: Gates,
    shutdown: CancellationToken,
    task: JoinHandle<()>,
    scratch: TempDir,
}

/// Work that is done once when a read of the box reaches a point; the read waits for it.
#[derive(Clone, Default)]
pub struct Gates(Arc<Mutex<Vec<Gate>>>);

struct Gate {
    point: CrashPoint,
    work: BoxFuture<'static, ()>,
}

impl Gates {
    /// Does `work` when the next read reaches `point`.
    pub fn at(&self, point: CrashPoint, work: impl Future<Output = ()> + Send + 'static) {
        self.0.lock().unwrap().push(Gate { point, work: Box::pin(work) });
    }

    fn take(&self, point: CrashPoint) -> Option<BoxFuture<'static, ()>> {
        let mut gates = self.0.lock().unwrap();
        let at = gates.iter().position(|gate| gate.point == point)?;
        Some(gates.remove(at).work)
    }
}

#[async_trait]
impl CrashHook for Gates {
    async fn reached(&self, point: CrashPoint) {
        let work = self.take(point);
        if let Some(work) = work {
            work.await;
        }
    }
}

impl RunningBox {
    /// Where the box's workers make their scratch directories.
    pub fn scratch(&self) -> PathBuf {
        self.scratch.path().to_owned()
    }

    /// Workers that run, or have left something behind.
    pub fn workers(&self) -> usize {
        std::fs::read_dir(self.scratch.path()).unwrap().count()
    }

    /// Stops as a process does that was told to, and waits for it.
    pub async fn stop(mut self) {
        self.shutdown.cancel();
        (&mut self.task).await.unwrap();
    }
}

impl Drop for RunningBox {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl World {
    /// A box of region `uk`, as the tests usually have it.
    pub fn box_plan(&self, name: &str) -> BoxPlan {
        BoxPlan {
            name: parse(name),
            region: parse("uk"),
            prefix: PREFIX.to_owned(),
            data: self.data.clone(),
            resolution: Resolution::Full,
            listener: None,
        }
    }

    /// Starts a box of region `uk` and waits until it can serve.
    pub async fn start_box(&self, name: &str) -> RunningBox {
        self.start(self.box_plan(name)).await
    }

    /// Starts a box and waits until it can serve.
    pub async fn start(&self, plan: BoxPlan) -> RunningBox {
        let running = self.launch(plan);
        self.until("the box serves", async || self.serves(&running).await.then_some(())).await;
        running
    }

    fn launch(&self, plan: BoxPlan) -> RunningBox {
        let context = self.context.node(plan.name.as_str());
        let view = View::of(self.deployment.clone(), &context);
        let data = View::of(plan.data, &context);
        let scratch = tempfile::tempdir().unwrap();
        let root = match &plan.listener {
            Some(listener) => listener.scratch(),
            None => scratch.path().to_owned(),
        };
        let workers: Arc<dyn WorkerHost> = match &plan.listener {
            Some(listener) => Arc::new(listener.host(&context)),
            None => {
                let command = WorkerCommand { program: programs::worker(), args: Vec::new() };
                Arc::new(ChildWorkerHost::new(context.clone(), command, root.clone()))
            }
        };
        let replicas = StoreReplicas::new(data.store.clone(), &plan.prefix, plan.resolution);
        let bucket = Bucket::new(view.store.clone(), context);
        let disk = Arc::new(FolderDisk(root));
        let gates = Gates::default();
        let mut ports = Ports::new(bucket, Some(Arc::new(replicas)), workers, disk);
        ports.crash = Arc::new(gates.clone());
        let mut config = AgentConfig::development(plan.name.clone(), plan.region, self.roots());
        config.pace = PACE;
        let shutdown = CancellationToken::new();
        let agent = carlos_box_agent::run(config, ports, shutdown.clone());
        let task = self.context.spawn(async move { agent.await.unwrap() });
        RunningBox { name: plan.name, view, data, gates, shutdown, task, scratch }
    }

    /// The status of an earlier run of the box is still in the bucket: its own first two are "not
    /// ready" and what its probe found.
    async fn serves(&self, running: &RunningBox) -> bool {
        assert!(!running.task.is_finished(), "the agent ended");
        if running.view.ledger.count(Op::Replace, "control/status/") < 2 {
            return false;
        }
        let status = self.object(&Key::Status(running.name.clone())).await.unwrap();
        Status::from_bytes(&status).unwrap().serves(DB_READ_CAPABILITY)
    }
}
