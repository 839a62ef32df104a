//! One deployment: its stores, its records and its people.

use std::io;
use std::path::Path;
use std::sync::Arc;

use carlos_bucket::fault::S3Model;
use carlos_bucket::layer::Inner;
use carlos_bucket::shuffle::Shuffled;
use carlos_bucket::{Bucket, Context};
use carlos_cli::admin::{NewInstance, Operator};
use carlos_cli::client::Place;
use carlos_protocol::envelope::KeyFile;
use carlos_protocol::tokens::{Token, TokenKind};
use carlos_replica::writer::{PageSource, ReplicaWriter};
use object_store::memory::InMemory;
use rusqlite::Connection;
use tempfile::TempDir;

use crate::log::Log;
use crate::rows::{Expected, SHOP};
use crate::wire::Line;

/// When every run begins: a minute before an hour of the queue ends.
const START_MS: u64 = 1_792_659_540_000;

/// People who may read. Each has two reads open at most.
const PEOPLE: usize = 4;

/// Where boxes look for replicas.
pub(crate) const PREFIX: &str = "replicas";

/// What all parts of a run share.
pub struct World {
    pub ctx: Context,
    pub log: Log,
    pub seed: u64,
    /// The deployment bucket as it is, without anybody's faults.
    pub store: Inner,
    /// The service between both buckets and everybody's lines.
    pub s3: S3Model,
    /// A healthy view of it: the operator's, and the test's own eyes.
    pub bucket: Bucket,
    pub operator: Operator,
    /// The data bucket of region `uk`.
    pub data: Inner,
    /// The root key that consoles sign with.
    pub key: KeyFile,
    pub place: Place,
    pub tokens: Vec<Token>,
    pub expected: Expected,
    dir: TempDir,
}

/// Runs `play` on virtual time.
pub fn run<T>(play: impl Future<Output = T>) -> T {
    let mut runtime = tokio::runtime::Builder::new_current_thread();
    let runtime = runtime.enable_time().start_paused(true).build().expect("a runtime");
    runtime.block_on(play)
}

impl World {
    /// A deployment in memory.
    pub async fn new(seed: u64) -> Arc<Self> {
        Self::on(seed, Arc::new(InMemory::new())).await
    }

    /// A deployment whose bucket is `store`, with one instance and its replica.
    pub async fn on(seed: u64, store: Inner) -> Arc<Self> {
        let ctx = Context::simulated(seed, START_MS);
        let log = Log::new(&ctx);
        let (store, s3) = (Shuffled::wrap(store, &ctx), S3Model::new(&ctx));
        let bucket = Bucket::new(Arc::clone(&store), ctx.node("operator"));
        let operator = Operator::new(bucket.clone());
        let place = Place {
            account: "acme".parse().unwrap(),
            app: "shop".parse().unwrap(),
            host: "shop.example.com".parse().unwrap(),
        };
        let tokens = found(&operator, &place).await;
        let (data, dir) = (Arc::new(InMemory::new()) as Inner, scratch());
        let source = dir.path().join("source.db");
        replicate(&ctx, &data, &source, &format!("{PREFIX}/{}", place.host)).await;
        let key = KeyFile::generate_root(&mut ctx.entropy());
        let expected = Expected::of(&source);
        let world = Self {
            ctx,
            log,
            seed,
            store,
            s3,
            bucket,
            operator,
            data,
            key,
            place,
            tokens,
            expected,
            dir,
        };
        Arc::new(world)
    }

    /// A line of `who` to the deployment bucket.
    pub fn line(&self, who: &'static str) -> Line {
        self.line_to(who, &self.store)
    }

    /// A line of `who` to the data bucket.
    pub fn data_line(&self, who: &'static str) -> Line {
        self.line_to(who, &self.data)
    }

    fn line_to(&self, who: &'static str, store: &Inner) -> Line {
        // A time line of its own, because a fault store's chance depends on nothing but its seed.
        let chance = Context::simulated(self.seed ^ name_hash(who), START_MS);
        Line::new(who, Arc::clone(store), &self.s3, &self.log, &chance)
    }

    /// Where workers restore.
    pub fn scratch(&self) -> &Path {
        self.dir.path()
    }

    /// What workers left behind.
    pub fn left_in_scratch(&self) -> usize {
        let entries = std::fs::read_dir(self.dir.path()).unwrap();
        entries.filter(|entry| entry.as_ref().unwrap().path().is_dir()).count()
    }

    /// Begins a move of the instance, or ends it. It moves to where it is, so that there is
    /// something to read afterwards.
    pub async fn set_moving(&self, moving: bool) {
        let (host, region) = (&self.place.host, "uk".parse().unwrap());
        let changed = match moving {
            true => self.operator.begin_move(host, &region).await,
            false => self.operator.end_move(host).await,
        };
        changed.expect("the operator's line is healthy");
        self.log.machine("operator", format!("moving: {moving}"));
    }

    /// Ends the instance and begins another life of its name.
    pub async fn recreate(&self) {
        self.operator.delete_instance(&self.place.host).await.unwrap();
        instance(&self.operator, &self.place).await;
        self.log.machine("operator", "recreated the instance");
    }
}

/// A folder in memory where the system has one: what a worker restores is gone within seconds.
fn scratch() -> TempDir {
    let memory = Path::new("/dev/shm");
    match memory.is_dir() {
        true => tempfile::tempdir_in(memory).unwrap(),
        false => tempfile::tempdir().unwrap(),
    }
}

fn name_hash(name: &str) -> u64 {
    name.bytes().fold(0xcbf2_9ce4_8422_2325, |hash, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3)
    })
}

async fn found(operator: &Operator, place: &Place) -> Vec<Token> {
    operator.create_account(&place.account).await.unwrap();
    let mut tokens = Vec::new();
    for number in 0..PEOPLE {
        let email = format!("person-{number}@example.com");
        operator.add_member(&place.account, &email, None).await.unwrap();
        let token = operator.create_token(&place.account, &email, TokenKind::Person, None).await;
        tokens.push(token.unwrap());
    }
    instance(operator, place).await;
    tokens
}

async fn instance(operator: &Operator, place: &Place) {
    let Place { account, app, host } = place.clone();
    let (region, class) = ("uk".parse().unwrap(), "sleeping".parse().unwrap());
    operator.create_instance(NewInstance { account, app, host, region, class }).await.unwrap();
}

async fn replicate(ctx: &Context, data: &Inner, source: &Path, prefix: &str) {
    let db = Connection::open(source).unwrap();
    db.execute_batch(SHOP).unwrap();
    drop(db);
    let mut writer = ReplicaWriter::open(Arc::clone(data), prefix).await.unwrap();
    let now_ms = i64::try_from(ctx.now_unix_ms()).unwrap();
    writer.sync(&mut Pages(std::fs::read(source).unwrap()), now_ms).await.unwrap();
}

/// A database file in memory.
struct Pages(Vec<u8>);

impl PageSource for Pages {
    fn page_size(&self) -> u32 {
        // Offset 16 of a database file.
        u32::from(u16::from_be_bytes([self.0[16], self.0[17]]))
    }

    fn commit(&self) -> u32 {
        u32::try_from(self.0.len()).unwrap() / self.page_size()
    }

    fn read_page(&mut self, number: u32, page: &mut [u8]) -> io::Result<()> {
        let start = (number as usize - 1) * page.len();
        page.copy_from_slice(&self.0[start..start + page.len()]);
        Ok(())
    }
}
