//! One deployment on a real S3 server: its buckets, its records, its person, and the real programs
//! as processes, each before the server or before a proxy.

use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::str::FromStr;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use bytes::Bytes;
use carlos_bucket::{Bucket, Context, Outcome, Purpose};
use carlos_cli::admin::{NewInstance, Operator, write_private};
use carlos_cli::client::Place;
use carlos_protocol::envelope::KeyFile;
use carlos_protocol::ids::{Account, ReadId};
use carlos_protocol::keys::{self, Key};
use carlos_protocol::records::{DB_READ_CAPABILITY, Status};
use carlos_protocol::result::ReadResult;
use carlos_protocol::tokens::{Token, TokenKind};
use tempfile::TempDir;

use crate::programs::{Ran, Service, carlos, part};
use crate::source::Source;
use crate::{Buckets, Server};

/// The member whose reads the tests ask for.
pub const EMAIL: &str = "ann@example.com";
/// Where in the data bucket boxes look for replicas.
const PREFIX: &str = "replicas";
/// The box whose keys the server holds its agent to.
pub const BOX: &str = "box-uk";

/// Far longer than anything here takes on a busy machine.
const PATIENCE: Duration = Duration::from_secs(60);
const LOOK_AGAIN: Duration = Duration::from_millis(50);

/// A deployment with account `acme`, app `shop`, and one instance whose data is in region `uk`.
pub struct World {
    pub buckets: Buckets,
    pub context: Context,
    pub operator: Operator,
    /// The test's own eyes and hands in the deployment bucket, with an operator's keys.
    pub bucket: Bucket,
    /// The root key that the console signs with.
    pub key: KeyFile,
    pub place: Place,
    pub token: Token,
    dir: TempDir,
    files: AtomicUsize,
}

/// A console that serves until it is dropped.
pub struct Desk {
    pub service: Service,
    pub url: String,
}

/// How a box's process is set up.
#[derive(Clone)]
pub struct BoxPlan<'a> {
    pub name: &'a str,
    /// Whose keys it has.
    pub user: &'a str,
    /// What it takes for the server.
    pub via: &'a str,
    /// Variables of its own.
    pub more: Vec<(&'a str, String)>,
}

impl<'a> BoxPlan<'a> {
    /// The box of region `uk`, as the tests usually have it.
    pub fn usual(via: &'a str) -> Self {
        Self { name: BOX, user: BOX, via, more: Vec::new() }
    }
}

impl World {
    /// What the tests ask when it does not matter what.
    pub const SQL: &str = "SELECT id, item FROM orders ORDER BY id";
    /// The database behind it.
    pub const SHOP: &str = "
        CREATE TABLE orders (id INTEGER PRIMARY KEY, item TEXT NOT NULL);
        INSERT INTO orders VALUES (1, 'kettle'), (2, 'grinder'), (3, 'milk jug');";
    /// The answer, as it is printed into a pipe.
    pub const TSV: &str = "id\titem\n1\tkettle\n2\tgrinder\n3\tmilk jug\n";
    /// A statement whose answer fills several chunks.
    pub const LONG_SQL: &str = "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n \
        WHERE i < 10) SELECT i, zeroblob(100000) FROM n";

    /// A deployment whose shop has the usual replica.
    pub async fn new(server: &'static Server) -> Self {
        let world = Self::bare(server).await;
        drop(world.source(Self::SHOP).await);
        world
    }

    /// A deployment whose shop has no replica yet.
    pub async fn bare(server: &'static Server) -> Self {
        Self::on(Buckets::create(server).await).await
    }

    /// The same in these buckets.
    pub async fn on(buckets: Buckets) -> Self {
        let context = Context::system();
        let bucket = buckets.bucket("operator");
        let operator = Operator::new(bucket.clone());
        let (account, app) = (parse("acme"), parse("shop"));
        let place = Place { account, app, host: parse("shop.example.com") };
        operator.create_account(&place.account).await.unwrap();
        operator.add_member(&place.account, EMAIL, None).await.unwrap();
        let token = operator.create_token(&place.account, EMAIL, TokenKind::Person, None).await;
        let token = token.unwrap();
        operator.create_box(&parse(BOX), &parse("uk")).await.unwrap();
        let key = KeyFile::generate_root(&mut context.entropy());
        let dir = tempfile::tempdir().unwrap();
        write_private(&dir.path().join("root.key"), &key.to_json()).unwrap();
        let files = AtomicUsize::new(0);
        let world = Self { buckets, context, operator, bucket, key, place, token, dir, files };
        world.create_instance("acme").await;
        world
    }

    /// Makes the shop's instance, in `account`.
    pub async fn create_instance(&self, account: &str) {
        let Place { app, host, .. } = self.place.clone();
        let (account, region, class) = (parse::<Account>(account), parse("uk"), parse("sleeping"));
        let new = NewInstance { account, app, host, region, class };
        self.operator.create_instance(new).await.unwrap();
    }

    /// The server it is on.
    pub fn server(&self) -> &'static Server {
        self.buckets.server
    }

    /// The shop's database with this content, replicated.
    pub async fn source(&self, schema: &str) -> Source {
        let data = self.server().store("operator", self.buckets.data("uk"));
        Source::create(data, &self.replica(), schema).await
    }

    /// Where in the data bucket the shop's replica is.
    pub fn replica(&self) -> String {
        format!("{PREFIX}/{}", self.place.host)
    }

    /// A fresh path in the test's own directory.
    pub fn file(&self, name: &str) -> PathBuf {
        let number = self.files.fetch_add(1, Ordering::Relaxed);
        self.dir.path().join(format!("{number}-{name}"))
    }

    /// The variables of a program with `user`'s keys before `via`.
    fn vars(&self, user: &str, via: &str) -> Vec<(String, String)> {
        let mut vars = self.server().environment(user);
        vars.retain(|(name, _)| name != "CARLOS_S3_ENDPOINT");
        let bucket = format!("s3://{}", self.buckets.deployment.bucket);
        vars.extend(owned([("CARLOS_S3_ENDPOINT", via.into()), ("CARLOS_BUCKET", bucket)]));
        vars
    }

    /// Starts `carlos console` in `ie` and waits until it listens.
    pub async fn console(&self, via: &str) -> Desk {
        let mut command = carlos();
        command.arg("console");
        self.start_console(command, via, []).await
    }

    /// Starts a console that ends an owner's time after `owner_ms`, and waits until it listens.
    pub async fn hasty_console(&self, via: &str, owner_ms: u64) -> Desk {
        let mut command = part();
        command.arg("console");
        self.start_console(command, via, [("CARLOS_TEST_OWNER_MS", owner_ms.to_string())]).await
    }

    async fn start_console<const N: usize>(
        &self,
        mut command: Command,
        via: &str,
        more: [(&str, String); N],
    ) -> Desk {
        // Free now; the console takes it at once.
        let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
        let key = self.dir.path().join("root.key").to_str().unwrap().to_owned();
        command.envs(self.vars("console", via)).envs(owned(more)).envs(owned([
            ("CARLOS_REGION", "ie".into()),
            ("CARLOS_DB_FORWARD", "1".into()),
            ("CARLOS_ROOT_KEY_FILE", key),
            ("CARLOS_LISTEN", format!("127.0.0.1:{port}")),
        ]));
        let mut service = Service::spawn(command, self.file("console.log"));
        self.until("the console listens", async || {
            assert_eq!(service.ended(), None, "{}", service.log());
            std::net::TcpStream::connect(("127.0.0.1", port)).ok()
        })
        .await;
        Desk { service, url: format!("http://127.0.0.1:{port}") }
    }

    /// Starts `carlos agent`, with workers of its own, and waits until it serves.
    pub async fn agent(&self, plan: BoxPlan<'_>) -> Service {
        let mut command = carlos();
        command.arg("agent");
        self.start_agent(command, plan).await
    }

    /// Starts an agent with these many slots, whose workers are in its own process, and waits
    /// until it serves. It writes each statement it runs as a line of `runs`.
    pub async fn wide_agent(&self, mut plan: BoxPlan<'_>, slots: usize, runs: &Path) -> Service {
        let mut command = part();
        command.arg("agent");
        plan.more.push(("CARLOS_TEST_SLOTS", slots.to_string()));
        plan.more.push(("CARLOS_TEST_RUNS", runs.to_str().unwrap().to_owned()));
        self.start_agent(command, plan).await
    }

    async fn start_agent(&self, mut command: Command, plan: BoxPlan<'_>) -> Service {
        let scratch = self.file("scratch");
        std::fs::create_dir(&scratch).unwrap();
        let key = self.key.public().to_string();
        command.envs(self.vars(plan.user, plan.via)).envs(owned([
            ("CARLOS_BOX", plan.name.into()),
            ("CARLOS_REGION", "uk".into()),
            ("CARLOS_RELEASE_PUBKEY", key),
            ("CARLOS_HIBERNATE_BUCKET", format!("s3://{}", self.buckets.data("uk"))),
            ("CARLOS_HIBERNATE_PREFIX", PREFIX.into()),
            ("CARLOS_DB_READ_SANDBOX", "inner".into()),
            ("CARLOS_DB_READ_DISK_FLOOR_BYTES", "1048576".into()),
            ("CARLOS_DB_READ_DISK_FLOOR_PERCENT", "0".into()),
            ("CARLOS_DB_READ_SCRATCH", scratch.to_str().unwrap().to_owned()),
        ]));
        command.envs(plan.more);
        let begun = self.context.now_unix_ms();
        let mut service = Service::spawn(command, self.file("agent.log"));
        let status = Key::Status(parse(plan.name));
        self.until("the box serves", async || {
            assert_eq!(service.ended(), None, "{}", service.log());
            let status = Status::from_bytes(&self.object(&status).await?).unwrap();
            let fresh = status.time_unix * 1_000 + 999 >= begun;
            (fresh && status.serves(DB_READ_CAPABILITY)).then_some(())
        })
        .await;
        service
    }

    /// Runs `carlos args...` as the shop's member, who has no keys to any bucket.
    pub async fn person(&self, desk: &Desk, args: &[&str]) -> Ran {
        self.person_command(desk, args).output().await.unwrap().into()
    }

    /// The same, to be started by the test, which may kill it.
    pub fn person_command(&self, desk: &Desk, args: &[&str]) -> tokio::process::Command {
        let mut command = carlos();
        command
            .env("HOME", self.dir.path())
            .env("CARLOS_URL", &desk.url)
            .env("CARLOS_TOKEN", self.token.reveal())
            .args(args)
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        let mut command = tokio::process::Command::from(command);
        command.kill_on_drop(true);
        command
    }

    /// Asks the shop one question, as its member.
    pub async fn query(&self, desk: &Desk, sql: &str) -> Ran {
        self.person(desk, &["db", "query", "acme/shop", sql]).await
    }

    /// The object at `key`, if there is one.
    pub async fn object(&self, key: &Key) -> Option<Bytes> {
        self.bucket.get(&key.to_path(), Purpose::Claim).await.unwrap()
    }

    /// Every key under `prefix`.
    pub async fn keys(&self, prefix: &str) -> Vec<String> {
        let listed = self.bucket.list(prefix, None, Purpose::Sweep).await.unwrap();
        listed.into_iter().map(|listed| listed.key).collect()
    }

    /// Every object of one read, by the part of its name behind the id.
    pub async fn objects_of(&self, id: ReadId) -> Vec<(String, Bytes)> {
        let prefix = format!("{}{id}/", keys::DB_READS);
        let mut objects = Vec::new();
        for key in self.keys(&prefix).await {
            let body = self.bucket.get(&key, Purpose::Claim).await.unwrap().unwrap();
            objects.push((key[prefix.len()..].to_owned(), body));
        }
        objects
    }

    /// How many chunks one read has.
    pub async fn chunks(&self, id: ReadId) -> usize {
        self.keys(&keys::out_prefix(&id)).await.len()
    }

    /// The reads that have a request, in no order.
    pub async fn reads(&self) -> Vec<ReadId> {
        let named = |key: &String| match Key::parse(key) {
            Ok(Key::Request(id)) => Some(id),
            _ => None,
        };
        self.keys(keys::DB_READS).await.iter().filter_map(named).collect()
    }

    /// Waits for a read that is not among `known`.
    pub async fn asked(&self, known: &[ReadId]) -> ReadId {
        let new = async || self.reads().await.into_iter().find(|id| !known.contains(id));
        self.until("a request", new).await
    }

    /// Waits for a read's result.
    pub async fn result(&self, id: ReadId) -> ReadResult {
        ReadResult::from_bytes(&self.appears(&Key::Result(id)).await).unwrap()
    }

    /// Waits for an object.
    pub async fn appears(&self, key: &Key) -> Bytes {
        self.until(&key.to_path(), async || self.object(key).await).await
    }

    /// Creates an object that nobody has created.
    pub async fn create(&self, key: &Key, body: impl Into<Bytes>) {
        let outcome = self.bucket.create(&key.to_path(), body.into(), Purpose::Claim).await;
        assert_eq!(outcome, Outcome::Created, "{key}");
    }

    /// Waits until `look` finds something.
    pub async fn until<T>(&self, what: &str, mut look: impl AsyncFnMut() -> Option<T>) -> T {
        let begun = self.context.monotonic();
        loop {
            if let Some(found) = look().await {
                return found;
            }
            assert!(self.context.monotonic() - begun < PATIENCE, "not in time: {what}");
            self.context.sleep(LOOK_AGAIN).await;
        }
    }
}

fn owned<const N: usize>(pairs: [(&str, String); N]) -> [(String, String); N] {
    pairs.map(|(name, value)| (name.to_owned(), value))
}

/// A constant of a test as the protocol's type.
pub fn parse<T: FromStr<Err: std::fmt::Debug>>(text: &str) -> T {
    text.parse().unwrap()
}
