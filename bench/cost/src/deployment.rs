//! A deployment: one console, some boxes in five regions, one instance in each region, its records
//! and replicas. Console and agents are production's; workers run in this process.

use std::io;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use carlos_box_agent::{
    AgentConfig, AgentError, DiskSpace, Ports, Space, StoreReplicas, Walls, run as run_agent,
};
use carlos_bucket::layer::Inner;
use carlos_bucket::{Bucket, Context, Pace, Serial};
use carlos_cli::admin::{NewInstance, Operator};
use carlos_cli::client::Place;
use carlos_console::{ConsoleConfig, Service};
use carlos_protocol::envelope::{KeyFile, RootKeys};
use carlos_protocol::ids::Region;
use carlos_protocol::keys::Key;
use carlos_protocol::tokens::{Token, TokenKind};
use carlos_replica::Resolution;
use carlos_replica::writer::{PageSource, ReplicaWriter};
use carlos_tests_sim::{InProcessWorkers, Log};
use object_store::memory::InMemory;
use rusqlite::Connection;
use serde::Serialize;
use tempfile::TempDir;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::latency::Distance;
use crate::link::{Landings, Link};
use crate::prices::Requests;

/// The regions, and how far each is from the deployment bucket. The console is in the first.
pub const REGIONS: [(&str, Distance); 5] = [
    ("ie", Distance::SameRegion),
    ("us", Distance::Ms80),
    ("jp", Distance::Ms160),
    ("ca", Distance::Ms80),
    ("au", Distance::Ms160),
];

/// Half an hour before an hour of the queue ends, so that an hour's run holds one turn.
const START_MS: u64 = 1_792_659_600_000 - 30 * 60 * 1_000;

/// Boxes start within this, as a fleet does that was not switched on at once.
const STARTING: Duration = Duration::from_secs(60);

/// Until every box has probed, published and swept once.
const SETTLED: Duration = Duration::from_secs(60);

/// Where boxes look for replicas.
const PREFIX: &str = "replicas";

/// People who read; each may have two reads open.
const PEOPLE: usize = 4;

const SHOP: &str = "
    CREATE TABLE orders (id INTEGER PRIMARY KEY, item TEXT NOT NULL, price REAL);
    INSERT INTO orders VALUES (1, 'kettle', 39.5), (2, 'grinder', 120), (3, 'milk jug', NULL);";

/// What a deployment is made of.
#[derive(Clone, Copy, Debug)]
pub struct Size {
    pub boxes: usize,
    pub seed: u64,
    /// How often boxes look at their queue.
    pub pace: Pace,
}

/// One box's lines, to the deployment bucket and to its region's data bucket.
pub(crate) struct Box {
    pub(crate) region: usize,
    pub(crate) line: Link,
    data: Link,
}

/// A running deployment.
pub(crate) struct Deployment {
    pub(crate) ctx: Context,
    pub(crate) console: Router,
    pub(crate) tokens: Vec<Token>,
    pub(crate) landed: Landings,
    pub(crate) boxes: Vec<Box>,
    desk: Link,
    shutdown: CancellationToken,
    agents: Vec<JoinHandle<Result<(), AgentError>>>,
    _scratch: TempDir,
}

/// What was sent, and by whom.
#[derive(Clone, Copy, Debug, Default, Serialize)]
pub struct Sent {
    /// By the console.
    pub console: Requests,
    /// By the boxes of each of [`REGIONS`], to the deployment bucket.
    pub regions: [Requests; REGIONS.len()],
    /// By boxes, to their regions' data buckets.
    pub data: Requests,
}

impl Sent {
    /// What all boxes sent to the deployment bucket.
    pub fn boxes(&self) -> Requests {
        self.regions.into_iter().sum()
    }

    /// All of it.
    pub fn all(&self) -> Requests {
        [self.console, self.boxes(), self.data].into_iter().sum()
    }

    pub(crate) fn since(&self, earlier: &Self) -> Self {
        Self {
            console: self.console.since(&earlier.console),
            regions: std::array::from_fn(|at| self.regions[at].since(&earlier.regions[at])),
            data: self.data.since(&earlier.data),
        }
    }

    pub(crate) fn plus(&self, other: &Self) -> Self {
        let sum = |one, another| [one, another].into_iter().sum();
        Self {
            console: sum(self.console, other.console),
            regions: std::array::from_fn(|at| sum(self.regions[at], other.regions[at])),
            data: sum(self.data, other.data),
        }
    }
}

impl Deployment {
    /// Makes everything and waits until it has settled.
    pub(crate) async fn new(size: Size) -> Self {
        let ctx = Context::simulated(size.seed, START_MS);
        let ground = Ground::new(&ctx).await;
        let (landed, shutdown) = (Landings::default(), CancellationToken::new());
        let desk = Link::new(&ctx.node("console line"), Distance::SameRegion, &landed);
        let console = ground.console(&ctx, &desk, &shutdown);
        let mut boxes = Vec::new();
        let mut agents = Vec::new();
        for number in 0..size.boxes {
            let (found, agent) = ground.start_box(&ctx, number, size.pace, &landed, &shutdown);
            boxes.push(found);
            agents.push(agent);
        }
        ctx.sleep(STARTING + SETTLED).await;
        let Ground { tokens, scratch, .. } = ground;
        let _scratch = scratch;
        Self { ctx, console, tokens, landed, boxes, desk, shutdown, agents, _scratch }
    }

    /// The place to read in the region of this index.
    pub(crate) fn place(&self, region: usize) -> Place {
        place(region)
    }

    /// Regions that have a box, by index.
    pub(crate) fn regions(&self) -> usize {
        self.boxes.len().min(REGIONS.len())
    }

    pub(crate) fn sent(&self) -> Sent {
        Sent {
            console: self.desk.requests(),
            regions: std::array::from_fn(|region| {
                let boxes = self.boxes.iter().filter(|it| it.region == region);
                boxes.map(|it| it.line.requests()).sum()
            }),
            data: self.boxes.iter().map(|it| it.data.requests()).sum(),
        }
    }

    /// Stops every box.
    ///
    /// # Panics
    /// When an agent has ended by itself.
    pub(crate) async fn stop(self) {
        self.shutdown.cancel();
        for agent in self.agents {
            agent.await.expect("an agent does not panic").expect("the bucket keeps its promises");
        }
    }
}

/// What a deployment stands on.
struct Ground {
    store: Inner,
    data: Vec<Inner>,
    key: KeyFile,
    tokens: Vec<Token>,
    log: Log,
    scratch: TempDir,
}

impl Ground {
    async fn new(ctx: &Context) -> Self {
        let store: Inner = Arc::new(InMemory::new());
        let scratch = tempfile::tempdir().expect("a place for temporary files");
        let bucket = Bucket::new(Arc::clone(&store), ctx.node("operator"));
        let operator = Operator::new(bucket.clone());
        let tokens = people(&operator).await;
        let source = scratch.path().join("source.db");
        Connection::open(&source).and_then(|db| db.execute_batch(SHOP)).expect("a database");
        let mut data = Vec::new();
        for region in 0..REGIONS.len() {
            instance(&operator, region).await;
            // Somebody has read there before: a serial that exists is answered with 304.
            let serial = Serial::new(bucket.clone(), Key::Serial(self::region(region)).to_path());
            serial.bump().await.expect("a memory store");
            data.push(replica(ctx, &source, region).await);
        }
        let key = KeyFile::generate_root(&mut ctx.entropy());
        Self { store, data, key, tokens, log: Log::new(ctx), scratch }
    }

    fn console(&self, ctx: &Context, desk: &Link, shutdown: &CancellationToken) -> Router {
        let bucket = Bucket::new(desk.to(&self.store), ctx.node("console"));
        let config = ConsoleConfig::new(region(0)).forwarding(self.key.clone());
        Service::new(&config, bucket, TaskTracker::new(), shutdown.clone()).router()
    }

    fn start_box(
        &self,
        ctx: &Context,
        number: usize,
        pace: Pace,
        landed: &Landings,
        shutdown: &CancellationToken,
    ) -> (Box, JoinHandle<Result<(), AgentError>>) {
        let (name, at) = (format!("box-{number}"), number % REGIONS.len());
        let node = ctx.node(&name);
        let line = Link::new(&ctx.node(&format!("{name} line")), REGIONS[at].1, landed);
        let own = &Landings::default();
        let data = Link::new(&ctx.node(&format!("{name} data")), Distance::SameRegion, own);
        let replicas = StoreReplicas::new(data.to(&self.data[at]), PREFIX, Resolution::Second);
        let bucket = Bucket::new(line.to(&self.store), node.clone());
        // A name for the whole run, which is short.
        let who: &'static str = String::leak(name);
        let workers = InProcessWorkers::new(who, ctx, &self.log, self.scratch.path());
        let ports = Ports::new(bucket, Some(Arc::new(replicas)), workers, Arc::new(WideDisk));
        let roots = RootKeys::from_iter([self.key.public()]);
        let name = who.parse().expect("box names are labels");
        let config = AgentConfig::development(name, region(at), roots);
        // The workers here say honestly that nothing confines them.
        let config = AgentConfig { sandbox: Walls::none(), pace, ..config };
        let shutdown = shutdown.clone();
        let agent = ctx.spawn(async move {
            node.sleep(node.jitter(STARTING)).await;
            run_agent(config, ports, shutdown).await
        });
        (Box { region: at, line, data }, agent)
    }
}

fn region(at: usize) -> Region {
    REGIONS[at].0.parse().expect("region names are labels")
}

fn place(at: usize) -> Place {
    let host = format!("shop-{}.example.com", REGIONS[at].0);
    Place {
        account: "acme".parse().expect("a label"),
        app: "shop".parse().expect("a label"),
        host: host.parse().expect("a host name"),
    }
}

async fn people(operator: &Operator) -> Vec<Token> {
    let account = place(0).account;
    operator.create_account(&account).await.expect("an empty store");
    let mut tokens = Vec::new();
    for number in 0..PEOPLE {
        let email = format!("person-{number}@example.com");
        operator.add_member(&account, &email, None).await.expect("a new member");
        let token = operator.create_token(&account, &email, TokenKind::Person, None).await;
        tokens.push(token.expect("a member's token"));
    }
    tokens
}

async fn instance(operator: &Operator, at: usize) {
    let Place { account, app, host } = place(at);
    let class = "sleeping".parse().expect("a label");
    let new = NewInstance { account, app, host, region: region(at), class };
    operator.create_instance(new).await.expect("a new instance");
}

async fn replica(ctx: &Context, source: &Path, at: usize) -> Inner {
    let data: Inner = Arc::new(InMemory::new());
    let prefix = format!("{PREFIX}/{}", place(at).host);
    let mut writer = ReplicaWriter::open(Arc::clone(&data), &prefix).await.expect("a new replica");
    let pages = std::fs::read(source).expect("the database was written");
    let now_ms = i64::try_from(ctx.now_unix_ms()).expect("a time of this century");
    writer.sync(&mut Pages(pages), now_ms).await.expect("a memory store");
    data
}

/// A database file in memory.
struct Pages(Vec<u8>);

impl PageSource for Pages {
    fn page_size(&self) -> u32 {
        // Offset 16 of a database file.
        u32::from(u16::from_be_bytes([self.0[16], self.0[17]]))
    }

    fn commit(&self) -> u32 {
        self.0.len() as u32 / self.page_size()
    }

    fn read_page(&mut self, number: u32, page: &mut [u8]) -> io::Result<()> {
        let start = (number as usize - 1) * page.len();
        page.copy_from_slice(&self.0[start..start + page.len()]);
        Ok(())
    }
}

/// A disk with room for everything.
struct WideDisk;

impl DiskSpace for WideDisk {
    fn space(&self) -> io::Result<Space> {
        Ok(Space { free: 1 << 40, total: 1 << 40 })
    }
}
