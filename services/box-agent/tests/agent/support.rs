//! A region in memory: bucket, data bucket, root key, one instance, and agents on virtual time.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use bytes::Bytes;
use carlos_box_agent::{
    AgentConfig, DiskSpace, Draining, Ports, Replicas, Space, StoreReplicas, run,
};
use carlos_bucket::{Bucket, Chain, Context, Purpose, Queue, Serial};
use carlos_ltx::{Header, Txid, TxidRange};
use carlos_protocol::Ulid;
use carlos_protocol::envelope::{KeyFile, RootKeys};
use carlos_protocol::ids::{Host, ReadId, Region};
use carlos_protocol::keys::{Key, host_chain, out_prefix};
use carlos_protocol::params::Params;
use carlos_protocol::records::{self, HostRecord};
use carlos_protocol::request::{NewRequest, OP_QUERY, ReadRequest};
use carlos_protocol::result::{Code, ReadResult, State};
use carlos_protocol::seal::{self, Place, ReplyKey};
use carlos_protocol::summary::Summary;
use carlos_protocol::time::{At, Seconds};
use carlos_replica::Resolution;
use object_store::memory::InMemory;
use object_store::path::Path;
use object_store::{ObjectStore, ObjectStoreExt};
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

use crate::workers::{PAGE_SIZE, PAGES, Script, ScriptedWorkers};

pub(crate) const START_MS: u64 = 1_792_659_600_000;
pub(crate) const HOST: &str = "shop.example.com";
const PREFIX: &str = "replicas";

/// Longest wait for a result: the request's own bound and a little.
const PATIENCE: Duration = Duration::from_secs(25 * 60);

pub(crate) struct TestDisk(pub(crate) AtomicU64);

impl DiskSpace for TestDisk {
    fn space(&self) -> io::Result<Space> {
        let free = self.0.load(Ordering::SeqCst);
        Ok(Space { free, total: free })
    }
}

/// One region and what its console and operator would do.
pub(crate) struct World {
    pub(crate) ctx: Context,
    /// As the console sees it, without the faults that an agent's own store may have.
    pub(crate) bucket: Bucket,
    pub(crate) store: Arc<dyn ObjectStore>,
    pub(crate) data: Arc<dyn ObjectStore>,
    pub(crate) root: KeyFile,
    pub(crate) record: HostRecord,
    boots: AtomicU64,
}

/// A read that was asked, with what its CLI keeps.
pub(crate) struct Asked {
    pub(crate) id: ReadId,
    pub(crate) key: ReplyKey,
}

/// An agent that runs as a task; aborting it is a kill.
pub(crate) struct Running {
    pub(crate) task: JoinHandle<()>,
    pub(crate) shutdown: CancellationToken,
    pub(crate) workers: Arc<ScriptedWorkers>,
}

impl World {
    pub(crate) async fn new() -> Self {
        Self::over(Arc::new(InMemory::new()), Arc::new(InMemory::new())).await
    }

    /// A world whose deployment bucket and data bucket are these stores.
    pub(crate) async fn over(store: Arc<dyn ObjectStore>, data: Arc<dyn ObjectStore>) -> Self {
        let ctx = Context::simulated(7, START_MS);
        let world = Self {
            bucket: Bucket::new(Arc::clone(&store), ctx.clone()),
            store,
            data,
            root: KeyFile::generate_root(&mut ctx.entropy()),
            record: instance(HOST, Ulid::from_parts(START_MS - 1_000, 1)),
            boots: AtomicU64::new(0),
            ctx,
        };
        world.put_record(&world.record).await;
        world.replicate(1, 1).await;
        world
    }

    /// Appends a revision to the instance's record.
    pub(crate) async fn put_record(&self, record: &HostRecord) {
        let name = host_chain(&record.host);
        let chain = Chain::new(self.bucket.clone(), name, "console".parse().unwrap());
        let head = chain.head(Purpose::Claim).await.unwrap().map(|head| head.revision);
        let appended = chain.append(head, &records::encode(record), Purpose::Claim).await;
        assert!(matches!(appended, carlos_bucket::Append::Written(_)), "{appended:?}");
    }

    /// Puts a snapshot of transactions `min..=max` into the instance's replica.
    pub(crate) async fn replicate(&self, min: u64, max: u64) {
        let range = TxidRange::new(Txid(min), Txid(max)).unwrap();
        let header = Header::new(PAGE_SIZE, PAGES, range, START_MS as i64 - 5_000);
        let mut body = header.encode().to_vec();
        body.resize(10_000, 7);
        self.data.put(&self.replica_file(range), body.into()).await.unwrap();
    }

    pub(crate) fn replica_file(&self, range: TxidRange) -> Path {
        let level = if range.is_snapshot() { "0009" } else { "0000" };
        Path::from(format!("{PREFIX}/{HOST}/{level}/{}", range.name()))
    }

    pub(crate) fn config(&self, name: &str) -> AgentConfig {
        let roots: RootKeys = [self.root.public()].into_iter().collect();
        let mut config =
            AgentConfig::development(name.parse().unwrap(), "uk".parse().unwrap(), roots);
        config.draining = Draining { grace: Duration::from_secs(10), end: Duration::from_secs(10) };
        config
    }

    pub(crate) fn ports(&self, name: &str, workers: Arc<ScriptedWorkers>) -> Ports {
        self.ports_over(name, workers, Arc::clone(&self.store))
    }

    /// Ports whose deployment bucket is another view of the same one: faults, hooks, guards.
    pub(crate) fn ports_over(
        &self,
        name: &str,
        workers: Arc<ScriptedWorkers>,
        store: Arc<dyn ObjectStore>,
    ) -> Ports {
        // A restarted process draws other random numbers than the one before it.
        let boot = self.boots.fetch_add(1, Ordering::SeqCst);
        let bucket = Bucket::new(store, self.ctx.node(&format!("{name} {boot}")));
        let disk = Arc::new(TestDisk(AtomicU64::new(1 << 40)));
        Ports::new(bucket, Some(self.replicas(Arc::clone(&self.data))), workers, disk)
    }

    pub(crate) fn replicas(&self, data: Arc<dyn ObjectStore>) -> Arc<dyn Replicas> {
        Arc::new(StoreReplicas::new(data, PREFIX, Resolution::Second))
    }

    pub(crate) fn workers(&self, script: Script) -> Arc<ScriptedWorkers> {
        ScriptedWorkers::new(self.ctx.clone(), script)
    }

    /// Starts an agent with a scripted worker and waits until it can serve.
    pub(crate) async fn agent(&self, name: &str, script: Script) -> Running {
        let workers = self.workers(script);
        let ports = self.ports(name, Arc::clone(&workers));
        self.start(self.config(name), ports, workers).await
    }

    pub(crate) async fn start(
        &self,
        config: AgentConfig,
        ports: Ports,
        workers: Arc<ScriptedWorkers>,
    ) -> Running {
        let running = self.launch(config, ports, workers);
        // The first probe, the first look at the queue.
        self.ctx.sleep(Duration::from_secs(3)).await;
        running
    }

    pub(crate) fn launch(
        &self,
        config: AgentConfig,
        ports: Ports,
        workers: Arc<ScriptedWorkers>,
    ) -> Running {
        let shutdown = CancellationToken::new();
        let agent = run(config, ports, shutdown.clone());
        let task = self.ctx.spawn(async move { agent.await.expect("the bucket keeps its word") });
        Running { task, shutdown, workers }
    }

    pub(crate) fn request(&self, sql: &str, key: &ReplyKey) -> NewRequest {
        NewRequest {
            id: ReadId::mint(&mut self.ctx.entropy()),
            account: self.record.account.clone(),
            app: self.record.app.clone(),
            host: self.record.host.clone(),
            incarnation: self.record.incarnation(),
            region: self.record.region.clone(),
            op: OP_QUERY.to_owned(),
            sql: sql.to_owned(),
            params: Params::default(),
            at: At::Newest,
            reply_key: key.public(),
            by: "member@example.com".to_owned(),
            issued_at: Seconds::new(self.ctx.now_unix()),
        }
    }

    /// What the console does for one read.
    pub(crate) async fn ask(&self, sql: &str) -> Asked {
        let key = ReplyKey::generate(&mut self.ctx.entropy());
        let request = self.request(sql, &key);
        let id = request.id;
        self.post(request.into()).await;
        Asked { id, key }
    }

    pub(crate) async fn post(&self, request: ReadRequest) {
        let envelope = self.root.sign(&request).unwrap().to_bytes();
        self.put(&Key::Request(request.id), envelope.into()).await;
        let queue = Queue::new(self.bucket.clone(), request.region.clone());
        assert!(queue.add(&request.queue_entry(), Purpose::Claim).await.is_ours());
        self.bump(&request.region).await;
    }

    pub(crate) async fn bump(&self, region: &Region) {
        let key = Key::Serial(region.clone()).to_path();
        Serial::new(self.bucket.clone(), key).bump().await.unwrap();
    }

    pub(crate) async fn put(&self, key: &Key, body: Bytes) {
        let outcome = self.bucket.create(&key.to_path(), body, Purpose::Claim).await;
        assert!(outcome.is_ours(), "{key}: {outcome:?}");
    }

    pub(crate) async fn get(&self, key: &Key) -> Option<Bytes> {
        self.bucket.get(&key.to_path(), Purpose::Claim).await.unwrap()
    }

    /// Waits for the read's result; panics when the longest request would have ended.
    pub(crate) async fn result(&self, id: ReadId) -> ReadResult {
        let until = self.ctx.monotonic() + PATIENCE;
        while self.ctx.monotonic() < until {
            if let Some(body) = self.get(&Key::Result(id)).await {
                return ReadResult::from_bytes(&body).expect("the owner writes what decodes");
            }
            self.ctx.sleep(Duration::from_millis(200)).await;
        }
        panic!("no result of {id}");
    }

    pub(crate) async fn ending(&self, id: ReadId) -> (State, Code) {
        let result = self.result(id).await;
        (result.state, result.code)
    }

    /// Opens every chunk and the summary as the CLI does.
    pub(crate) async fn rows(&self, asked: &Asked) -> (Vec<u8>, Summary) {
        let result = self.result(asked.id).await;
        assert_eq!((result.state, &result.code), (State::Done, &Code::None));
        let mut rows = Vec::new();
        for seq in 1..=result.last_seq {
            let sealed = self.get(&Key::Chunk(asked.id, seq)).await.expect("a named chunk exists");
            let place = Place::rows(asked.id, seq, seq == result.last_seq);
            rows.extend(seal::open(&asked.key, &place, &sealed).expect("sealed for this place"));
        }
        (rows, Summary::open(&asked.key, asked.id, &result).expect("sealed for this read"))
    }

    pub(crate) async fn chunks(&self, id: ReadId) -> usize {
        let prefix = out_prefix(&id);
        self.bucket.list(&prefix, None, Purpose::Sweep).await.unwrap().len()
    }

    pub(crate) async fn sleep(&self, seconds: u64) {
        self.ctx.sleep(Duration::from_secs(seconds)).await;
    }
}

pub(crate) fn instance(host: &str, created_at: Ulid) -> HostRecord {
    HostRecord {
        v: records::VERSION,
        host: Host::parse(host).unwrap(),
        account: "acme".parse().unwrap(),
        app: "shop".parse().unwrap(),
        class: "sleeping".parse().unwrap(),
        region: "uk".parse().unwrap(),
        created_at,
        moving: None,
        pooled: false,
        fleet: false,
        deleted: false,
    }
}
