//! One deployment: its stores, its records and its people.

use std::future::Future;
use std::str::FromStr;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use carlos_bucket::layer::Inner;
use carlos_bucket::{
    Append, Bucket, Chain, ChainError, Context, Outcome, Purpose, WriteOnceGuard, file_url,
    open_store,
};
use carlos_cli::admin::{NewInstance, Operator};
use carlos_cli::client::Place;
use carlos_protocol::envelope::{KeyFile, RootKeys, verify};
use carlos_protocol::ids::{Host, ReadId};
use carlos_protocol::keys::{self, Key};
use carlos_protocol::records::{self, HostRecord};
use carlos_protocol::request::ReadRequest;
use carlos_protocol::tokens::{Token, TokenKind};
use object_store::memory::InMemory;
use tempfile::TempDir;

use crate::replica::Source;

/// The member whose reads the tests ask for.
pub const EMAIL: &str = "ann@example.com";
/// The member of the second tenant.
pub const OTHER_EMAIL: &str = "bob@example.com";

/// Where in the data bucket boxes look for replicas (`CARLOS_HIBERNATE_PREFIX`).
pub(crate) const PREFIX: &str = "replicas";

/// How long something may take that takes well under a second on a quiet machine.
const PATIENCE: Duration = Duration::from_secs(30);
const LOOK_AGAIN: Duration = Duration::from_millis(10);

/// What keeps the objects.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Keeping {
    Memory,
    Directory,
}

/// A deployment with account `acme`, app `shop`, and one instance whose data is in region `uk`.
pub struct World {
    pub context: Context,
    /// The deployment bucket, behind a guard that refuses to replace or delete under `db-reads/`.
    pub deployment: Inner,
    /// The data bucket of region `uk`.
    pub data: Inner,
    /// The root key that consoles sign with.
    pub key: KeyFile,
    pub operator: Operator,
    /// The test's own eyes and hands in the deployment bucket.
    pub bucket: Bucket,
    /// The instance that is read.
    pub place: Place,
    /// What `EMAIL` opens consoles with.
    pub token: Token,
    guard: WriteOnceGuard,
    _dir: Option<TempDir>,
}

impl World {
    /// A deployment in memory, with the shop's replica.
    pub async fn new() -> Self {
        Self::with_shop(Keeping::Memory).await
    }

    /// A deployment with the shop's replica.
    pub async fn with_shop(keeping: Keeping) -> Self {
        let world = Self::bare(keeping).await;
        drop(world.source(Self::SHOP).await);
        world
    }

    /// A deployment whose instance has no replica yet.
    pub async fn bare(keeping: Keeping) -> Self {
        let context = Context::system();
        let dir = (keeping == Keeping::Directory).then(|| tempfile::tempdir().unwrap());
        let open = |name: &str| match &dir {
            Some(dir) => open_store(&file_url(&dir.path().join(name))).unwrap(),
            None => Arc::new(InMemory::new()),
        };
        let (deployment, guard) = WriteOnceGuard::wrap(open("deployment"));
        let bucket = Bucket::new(deployment.clone(), context.node("test"));
        let operator = Operator::new(bucket.clone());
        let (account, app) = (parse("acme"), parse("shop"));
        let place = Place { account, app, host: parse("shop.example.com") };
        let token = new_tenant(&operator, &place, EMAIL).await;
        let key = KeyFile::generate_root(&mut context.entropy());
        let data = open("data-uk");
        Self { context, deployment, data, key, operator, bucket, place, token, guard, _dir: dir }
    }

    /// A second account with an app, an instance and a replica of its own in the same data bucket.
    pub async fn second_tenant(&self, schema: &str) -> (Place, Token) {
        let (account, app) = (parse("rival"), parse("store"));
        let place = Place { account, app, host: parse("store.example.com") };
        let token = new_tenant(&self.operator, &place, OTHER_EMAIL).await;
        drop(Source::create(&self.context, &self.data, &replica_of(&place.host), schema).await);
        (place, token)
    }

    /// The shop's database with this content, replicated.
    pub async fn source(&self, schema: &str) -> Source {
        Source::create(&self.context, &self.data, &replica_of(&self.place.host), schema).await
    }

    /// The shop's database.
    pub const SHOP: &str = "
        CREATE TABLE orders (id INTEGER PRIMARY KEY, item TEXT NOT NULL);
        INSERT INTO orders VALUES (1, 'kettle'), (2, 'grinder'), (3, 'milk jug');";

    /// What the tests ask when it does not matter what.
    pub const SQL: &str = "SELECT id, item FROM orders ORDER BY id";

    /// [`World::SQL`]'s answer, as it is printed into a pipe.
    pub const TSV: &str = "id\titem\n1\tkettle\n2\tgrinder\n3\tmilk jug\n";

    /// A statement whose answer fills several chunks.
    pub const LONG_SQL: &str = "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n \
        WHERE i < 10) SELECT i, zeroblob(100000) FROM n";

    /// The keys whose envelopes boxes accept.
    pub fn roots(&self) -> RootKeys {
        RootKeys::from_iter([self.key.public()])
    }

    /// The object at `key`, if there is one.
    pub async fn object(&self, key: &Key) -> Option<Bytes> {
        self.bucket.get(&key.to_path(), Purpose::Claim).await.unwrap()
    }

    /// Every key under `prefix`.
    pub async fn keys(&self, prefix: &str) -> Vec<String> {
        let listed = self.bucket.list(prefix, None, Purpose::Claim).await.unwrap();
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

    /// Waits for an object.
    pub async fn appears(&self, key: &Key) -> Bytes {
        self.until(&key.to_path(), async || self.object(key).await).await
    }

    /// Waits until `look` finds something.
    pub async fn until<T>(&self, what: &str, mut look: impl AsyncFnMut() -> Option<T>) -> T {
        let looking = async {
            loop {
                if let Some(found) = look().await {
                    return found;
                }
                self.context.sleep(LOOK_AGAIN).await;
            }
        };
        match self.context.timeout(PATIENCE, looking).await {
            Ok(found) => found,
            Err(_) => panic!("not after {} s: {what}", PATIENCE.as_secs()),
        }
    }

    /// What `work` gives, within the same patience.
    pub async fn soon<T>(&self, what: &str, work: impl Future<Output = T>) -> T {
        let done = self.context.timeout(PATIENCE, work).await;
        done.unwrap_or_else(|_| panic!("not after {} s: {what}", PATIENCE.as_secs()))
    }

    /// The reads that consoles have signed so far, oldest first.
    pub async fn signed(&self) -> Vec<ReadRequest> {
        let mut signed = Vec::new();
        for key in self.keys(keys::DB_READS).await {
            let Ok(Key::Request(id)) = Key::parse(&key) else { continue };
            signed.extend(self.request(id).await);
        }
        signed.sort_by_key(|request| request.issued_at.unix());
        signed
    }

    /// Waits until a console has signed a read, which must be the only one.
    pub async fn asked(&self) -> ReadRequest {
        let one = async || {
            let mut signed = self.signed().await;
            assert!(signed.len() < 2, "one read was asked for");
            signed.pop()
        };
        self.until("a request", one).await
    }

    /// The read's request, if a root key signed it.
    pub async fn request(&self, id: ReadId) -> Option<ReadRequest> {
        let envelope = self.object(&Key::Request(id)).await?;
        verify(&self.roots(), &envelope).ok()
    }

    /// Creates an object that nobody has created.
    pub async fn create(&self, key: &Key, body: impl Into<Bytes>) {
        let outcome = self.bucket.create(&key.to_path(), body.into(), Purpose::Claim).await;
        assert_eq!(outcome, Outcome::Created, "{key}");
    }

    /// Changes the shop's record as its next revision.
    pub async fn change_record(&self, change: impl FnOnce(&mut HostRecord)) {
        let mut record = self.operator.instance(&self.place.host).await.unwrap();
        change(&mut record);
        let chain = keys::host_chain(&self.place.host);
        self.append(&chain, &records::encode(&record)).await;
    }

    /// Appends any content to a chain, past a head that nobody can read.
    pub async fn append(&self, chain: &str, content: &[u8]) {
        let chain = Chain::new(self.bucket.clone(), chain, parse("operator"));
        let head = match chain.head(Purpose::Claim).await {
            Ok(head) => head.map(|head| head.revision),
            Err(ChainError::Malformed(revision)) => Some(revision),
            Err(error) => panic!("{error}"),
        };
        let appended = chain.append(head, content, Purpose::Claim).await;
        assert!(matches!(appended, Append::Written(_)), "{appended:?}");
    }

    /// Puts any bytes where the chain's next revision belongs.
    pub async fn break_chain(&self, chain: &str, bytes: &'static [u8]) {
        let next = self.keys(&format!("{chain}/")).await.len() + 1;
        let key = format!("{chain}/{next:020}");
        let outcome = self.bucket.create(&key, Bytes::from_static(bytes), Purpose::Claim).await;
        assert_eq!(outcome, Outcome::Created, "{key}");
    }

    /// What an operator does to end the instance and give its name to `account`.
    pub async fn recreate(&self, account: &str) {
        let Place { app, host, .. } = self.place.clone();
        self.operator.delete_instance(&host).await.unwrap();
        let place = Place { account: parse(account), app, host };
        new_instance(&self.operator, &place).await;
    }

    /// Fails the test when somebody tried to replace or delete under `db-reads/`.
    pub fn assert_written_once(&self) {
        assert_eq!(self.guard.violations(), [""; 0], "db-forward J2: every object is written once");
    }
}

impl Drop for World {
    fn drop(&mut self) {
        if !std::thread::panicking() {
            self.assert_written_once();
        }
    }
}

async fn new_tenant(operator: &Operator, place: &Place, email: &str) -> Token {
    operator.create_account(&place.account).await.unwrap();
    operator.add_member(&place.account, email, None).await.unwrap();
    new_instance(operator, place).await;
    operator.create_token(&place.account, email, TokenKind::Person, None).await.unwrap()
}

async fn new_instance(operator: &Operator, place: &Place) {
    let Place { account, app, host } = place.clone();
    let (region, class) = (parse("uk"), parse("sleeping"));
    operator.create_instance(NewInstance { account, app, host, region, class }).await.unwrap();
}

fn replica_of(host: &Host) -> String {
    format!("{PREFIX}/{host}")
}

/// A constant of a test as the protocol's type.
pub fn parse<T: FromStr<Err: std::fmt::Debug>>(text: &str) -> T {
    text.parse().unwrap()
}
