//! The whole product in one process on a local directory: a console, an agent per region, worker
//! processes, and a replica of a person's own database.

pub mod demo;
pub mod dev;
mod home;
mod names;
mod replicator;
mod sample;
mod source;

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use carlos_box_agent::{AgentConfig, ChildWorkerHost, FolderDisk, Ports};
use carlos_box_agent::{StoreReplicas, WorkerCommand};
use carlos_bucket::expire::{self, RULES};
use carlos_bucket::{Bucket, Context};
use carlos_console::ConsoleConfig;
use carlos_protocol::envelope::{KeyFile, RootKeys};
use carlos_protocol::ids::{Account, App, BoxName, Class, Host, Region};
use carlos_protocol::records::{DB_READ_CAPABILITY, Status};
use carlos_protocol::tokens::{Token, TokenKind};
use carlos_replica::Resolution;
use object_store::ObjectStore;
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use self::home::{Home, HomeError};
use self::replicator::{ReplicateError, Replicator};
use self::source::Source;
use crate::admin::{AdminError, NewInstance, Operator};

/// The one account of an embedded stack, and its one member.
const ACCOUNT: &str = "dev";
const MEMBER: &str = "you@dev.local";

/// How long the boxes may take to say what they can do: a probe starts a worker, which takes well
/// under a second on a quiet machine.
const READY_WITHIN: Duration = Duration::from_secs(30);
const READY_LOOK: Duration = Duration::from_millis(50);

/// Files of one name that one directory serves; beyond that a person has lost track as well.
const MOST_NAMESAKES: usize = 100;

/// How long a stopping stack waits for its parts.
const STOP_WITHIN: Duration = Duration::from_secs(20);

/// Why a stack does not start.
#[derive(Debug, thiserror::Error)]
pub enum StackError {
    #[error(transparent)]
    Home(#[from] HomeError),
    #[error(transparent)]
    Admin(#[from] AdminError),
    #[error(transparent)]
    Replicate(#[from] ReplicateError),
    #[error(transparent)]
    Bucket(#[from] carlos_console::UnusableBucket),
    #[error("the sample database could not be made: {0}")]
    Sample(rusqlite::Error),
    #[error("{addresses:?} cannot be listened on: {cause}")]
    Listen { addresses: Vec<SocketAddr>, cause: std::io::Error },
    #[error("this program does not know its own path: {0}")]
    Program(std::io::Error),
    #[error("no box was ready to read after {} s; its log is above", READY_WITHIN.as_secs())]
    NotReady,
    #[error("too many files of this name were replicated into this directory; name another --dir")]
    Names,
    #[error("{0}")]
    Regions(&'static str),
}

/// What to run.
#[derive(Clone, Debug)]
pub struct Options {
    /// Where everything is kept.
    pub dir: PathBuf,
    /// The database to replicate; the sample when there is none.
    pub db: Option<PathBuf>,
    /// The console stands in the first, the data lives in the last.
    pub regions: Vec<Region>,
    /// Where the console listens; on the first of these that is free. Loopback, since it speaks
    /// plain HTTP.
    pub listen: Vec<SocketAddr>,
    /// The program that a worker is.
    pub worker: WorkerCommand,
}

/// A running stack.
pub struct Stack {
    pub url: String,
    pub token: Token,
    pub account: Account,
    pub app: App,
    pub host: Host,
    pub region: Region,
    context: Context,
    shutdown: CancellationToken,
    tasks: TaskTracker,
    _home: Home,
}

impl Stack {
    /// Starts everything and waits until a box in the data's region can read.
    ///
    /// # Errors
    /// [`StackError`]; whatever had started by then ends.
    pub async fn start(options: Options, context: Context) -> Result<Self, StackError> {
        let parts = Parts::prepare(options, context).await?;
        let shutdown = CancellationToken::new();
        let guard = shutdown.clone().drop_guard();
        let stack = parts.run(shutdown).await?;
        guard.disarm();
        Ok(stack)
    }

    /// Ends every part and waits for them, for a bounded time.
    pub async fn stop(self) {
        self.shutdown.cancel();
        self.tasks.close();
        if self.context.timeout(STOP_WITHIN, self.tasks.wait()).await.is_err() {
            tracing::warn!("some parts did not stop in time");
        }
    }
}

/// A stack before anything runs: every record written, the first state replicated.
struct Parts {
    home: Home,
    context: Context,
    options: Options,
    deployment: Arc<dyn ObjectStore>,
    key: KeyFile,
    token: Token,
    app: App,
    host: Host,
    replicator: Replicator,
}

impl Parts {
    async fn prepare(options: Options, context: Context) -> Result<Self, StackError> {
        let Some(data_region) = options.regions.last().cloned() else {
            return Err(StackError::Regions("name at least one region"));
        };
        let home = Home::take(&options.dir)?;
        let database = match &options.db {
            Some(path) => path.clone(),
            None => sample_in(&home)?,
        };
        // First of all: a file that is no database shall leave nothing behind.
        let source = Source::open(&database).map_err(ReplicateError::from)?;
        let app = name_for(&home, &database)?;
        let host = names::host_for(&app);
        let deployment = home.deployment()?;
        let key = home.key(&context)?;
        let operator = Operator::new(Bucket::new(deployment.clone(), context.clone()));
        let token = ensure_member(&operator, &home).await?;
        let (data, copy) = (home.data(&data_region)?, home.copy()?);
        let mut replicator =
            Replicator::open(source, data, host.as_str(), copy, context.clone()).await?;
        replicator.sync().await?;
        ensure_instance(&operator, &app, &host, &data_region).await?;
        Ok(Self { home, context, options, deployment, key, token, app, host, replicator })
    }

    async fn run(self, shutdown: CancellationToken) -> Result<Stack, StackError> {
        let tasks = TaskTracker::new();
        for region in &self.options.regions {
            self.start_agent(region, &tasks, &shutdown)?;
        }
        let url = self.start_console(&tasks, &shutdown).await?;
        let Self { home, context, options, deployment, token, app, host, replicator, .. } = self;
        let staging = home.buckets(&options.regions);
        let expiring =
            expire::expire(deployment.clone(), staging, context.clone(), &RULES, shutdown.clone());
        drop(context.spawn(tasks.track_future(expiring)));
        start_replicator(replicator, &context, &tasks, &shutdown);
        let region = options.regions.last().expect("checked before").clone();
        until_ready(&deployment, &context, &region).await?;
        let account = account();
        Ok(Stack { url, token, account, app, host, region, context, shutdown, tasks, _home: home })
    }

    fn start_agent(
        &self,
        region: &Region,
        tasks: &TaskTracker,
        shutdown: &CancellationToken,
    ) -> Result<(), StackError> {
        let name = box_of(region);
        let context = self.context.node(name.as_str());
        let scratch = self.home.scratch(region)?;
        let replicas = StoreReplicas::new(self.home.data(region)?, "", Resolution::Full);
        let workers =
            ChildWorkerHost::new(context.clone(), self.options.worker.clone(), scratch.clone());
        let ports = Ports::new(
            Bucket::new(self.deployment.clone(), context.clone()),
            Some(Arc::new(replicas)),
            Arc::new(workers),
            Arc::new(FolderDisk(scratch)),
        );
        let roots = RootKeys::from_iter([self.key.public()]);
        let config = AgentConfig::development(name, region.clone(), roots);
        let agent = carlos_box_agent::run(config, ports, shutdown.clone());
        drop(context.spawn(tasks.track_future(async move {
            if let Err(error) = agent.await {
                tracing::error!(%error, "the agent has stopped");
            }
        })));
        Ok(())
    }

    async fn start_console(
        &self,
        tasks: &TaskTracker,
        shutdown: &CancellationToken,
    ) -> Result<String, StackError> {
        let failed = |cause| StackError::Listen { addresses: self.options.listen.clone(), cause };
        let listener = TcpListener::bind(&self.options.listen[..]).await.map_err(failed)?;
        let url = format!("http://{}", listener.local_addr().map_err(failed)?);
        let region = self.options.regions.first().expect("checked before").clone();
        let config = ConsoleConfig::new(region).forwarding(self.key.clone());
        let context = self.context.node("console");
        let bucket = Bucket::new(self.deployment.clone(), context.clone());
        carlos_console::check_bucket(&bucket, shutdown).await?;
        let console = carlos_console::run(config, bucket, listener, shutdown.clone());
        drop(context.spawn(tasks.track_future(console)));
        Ok(url)
    }
}

/// The worker that this very program is.
///
/// # Errors
/// When the system does not tell a program its own path.
pub fn own_worker() -> Result<WorkerCommand, StackError> {
    std::env::current_exe().map(WorkerCommand::carlos).map_err(StackError::Program)
}

fn account() -> Account {
    Account::parse(ACCOUNT).expect("the constant is a label")
}

fn box_of(region: &Region) -> BoxName {
    BoxName::parse(&format!("{region}-1"))
        .or_else(|_| BoxName::parse(region.as_str()))
        .expect("a region is a label")
}

/// On a thread of its own: a copy of a large database takes a while, and nobody shall wait for it.
fn start_replicator(
    replicator: Replicator,
    context: &Context,
    tasks: &TaskTracker,
    shutdown: &CancellationToken,
) {
    let (runtime, shutdown) = (tokio::runtime::Handle::current(), shutdown.clone());
    let following = context.spawn_blocking(move || runtime.block_on(replicator.follow(shutdown)));
    drop(context.spawn(tasks.track_future(async move {
        if following.await.is_err() {
            tracing::error!("the replication has stopped");
        }
    })));
}

fn name_for(home: &Home, database: &Path) -> Result<App, StackError> {
    for app in names::apps_for(database).take(MOST_NAMESAKES) {
        if home.claim(&app, database)? {
            return Ok(app);
        }
    }
    Err(StackError::Names)
}

fn sample_in(home: &Home) -> Result<PathBuf, StackError> {
    let path = home.sample();
    if !Path::exists(&path) {
        sample::create(&path).map_err(StackError::Sample)?;
    }
    Ok(path)
}

/// The account with its member, and a token that opens it.
async fn ensure_member(operator: &Operator, home: &Home) -> Result<Token, StackError> {
    let account = account();
    ignore_existing(operator.create_account(&account).await)?;
    ignore_existing(operator.add_member(&account, MEMBER, None).await)?;
    if let Some(token) = home.token()? {
        let record = operator.account(&account).await?;
        if record.holder(&token, operator.now_unix()).is_some() {
            return Ok(token);
        }
    }
    let token = operator.create_token(&account, MEMBER, TokenKind::Person, None).await?;
    home.keep_token(&token)?;
    Ok(token)
}

async fn ensure_instance(
    operator: &Operator,
    app: &App,
    host: &Host,
    region: &Region,
) -> Result<(), StackError> {
    match operator.instance(host).await {
        Ok(record) if record.region == *region => return Ok(()),
        // Started with other regions than before: it is another life of the name.
        Ok(_) => operator.delete_instance(host).await?,
        Err(AdminError::Absent { .. }) => {}
        Err(error) => return Err(error.into()),
    }
    let new = NewInstance {
        account: account(),
        app: app.clone(),
        host: host.clone(),
        region: region.clone(),
        class: Class::parse("sleeping").expect("the constant is a label"),
    };
    operator.create_instance(new).await?;
    Ok(())
}

fn ignore_existing(done: Result<(), AdminError>) -> Result<(), AdminError> {
    match done {
        Err(AdminError::Exists { .. }) => Ok(()),
        other => other,
    }
}

/// Waits for a pulse of this start: the pulses of an earlier one are still in the bucket.
async fn until_ready(
    deployment: &Arc<dyn ObjectStore>,
    context: &Context,
    region: &Region,
) -> Result<(), StackError> {
    let operator = Operator::new(Bucket::new(deployment.clone(), context.clone()));
    let started = context.now_unix();
    let serves = |status: &Status| {
        status.time_unix >= started && status.region == *region && status.serves(DB_READ_CAPABILITY)
    };
    let ready = async {
        loop {
            let boxes = operator.boxes().await?;
            if boxes.iter().any(|known| known.status.as_ref().is_some_and(serves)) {
                return Ok(());
            }
            context.sleep(READY_LOOK).await;
        }
    };
    context.timeout(READY_WITHIN, ready).await.unwrap_or(Err(StackError::NotReady))
}
