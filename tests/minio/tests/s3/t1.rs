//! T1 (db-forward §12): a console in `ie` and a box in `uk`, as processes with keys of their own,
//! and the client that people use.

use std::net::TcpListener;
use std::path::Path as FilePath;
use std::time::Duration;

use carlos_bucket::{Bucket, Cause, Context, Outcome, Purpose, ReadError};
use carlos_protocol::ids::Revision;
use carlos_tests_minio::programs::{Ran, Service, run};
use carlos_tests_minio::source::Source;
use carlos_tests_minio::{Buckets, Server};
use sha2::{Digest as _, Sha256};
use tempfile::TempDir;

/// Far longer than anything here takes on a busy machine.
const PATIENCE: Duration = Duration::from_secs(60);
const LOOK_AGAIN: Duration = Duration::from_millis(100);

const HOST: &str = "shop.example.com";
const SCHEMA: &str = "CREATE TABLE orders(id INTEGER PRIMARY KEY, item TEXT);
                      INSERT INTO orders(item) VALUES ('tea'), ('milk');";
const QUERY: &str = "SELECT id, item FROM orders ORDER BY id";

pub(crate) async fn test(server: &'static Server) {
    let world = World::create(server).await;
    let mut source = world.source().await;
    let (_console, agent) = world.start();
    world.log_in("ann", "acme");
    let rows = eventually("a box serves", || world.ask_done("ann")).await;
    assert_eq!(rows, "id\titem\n1\ttea\n2\tmilk\n", "{}", agent.log());
    source.db.execute_batch("INSERT INTO orders(item) VALUES ('jam')").unwrap();
    source.sync().await;
    let rows = world.ask_done("ann").expect("the box is there");
    assert!(rows.ends_with("3\tjam\n"), "{rows}");
    world.replica_commands(&source);
    world.keys_stay_at_home().await;
    world.another_account_gets_nothing();
    world.a_stranger_gets_nothing().await;
}

/// What `look` gives once it gives something.
pub(crate) async fn eventually<T>(what: &str, mut look: impl FnMut() -> Option<T>) -> T {
    let context = Context::system();
    let begun = context.monotonic();
    loop {
        if let Some(found) = look() {
            return found;
        }
        assert!(context.monotonic() - begun < PATIENCE, "not in time: {what}");
        context.sleep(LOOK_AGAIN).await;
    }
}

struct World {
    buckets: Buckets,
    dir: TempDir,
    public_key: String,
    port: u16,
}

impl World {
    async fn create(server: &'static Server) -> Self {
        let buckets = Buckets::create(server).await;
        let dir = tempfile::tempdir().unwrap();
        // Free now; the console takes it at once.
        let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
        let mut world = Self { buckets, dir, public_key: String::new(), port };
        world.public_key = world.admin(&["keys", "root", "--out", &world.file("root.key")]);
        for (account, email) in [("acme", "ann@example.com"), ("beta", "bob@example.com")] {
            world.admin(&["account", "create", account]);
            world.admin(&["member", "add", account, email]);
        }
        let place = ["--account", "acme", "--app", "shop", "--region", "uk"];
        world.admin(&[&["instance", "create", HOST], &place[..]].concat());
        world.admin(&["box", "create", "box-uk", "--region", "uk"]);
        world
    }

    fn server(&self) -> &'static Server {
        self.buckets.server
    }

    fn file(&self, name: &str) -> String {
        self.dir.path().join(name).to_str().unwrap().to_owned()
    }

    /// The variables of somebody with `user`'s keys to the deployment bucket.
    fn vars(&self, user: &str, more: &[(&str, &str)]) -> Vec<(String, String)> {
        let bucket = format!("s3://{}", self.buckets.deployment.bucket);
        let own = [("CARLOS_BUCKET", bucket.as_str())];
        let all = own.iter().chain(more).map(|(name, value)| ((*name).into(), (*value).into()));
        self.server().environment(user).into_iter().chain(all).collect()
    }

    fn try_admin(&self, words: &[&str]) -> Ran {
        run(&[&["admin"], words].concat(), &self.vars("operator", &[]))
    }

    /// One line of an admin command that succeeds.
    fn admin(&self, words: &[&str]) -> String {
        let ran = self.try_admin(words);
        assert_eq!(ran.code, Some(0), "{words:?}: {ran:?}");
        ran.stdout.trim().to_owned()
    }

    async fn source(&self) -> Source {
        let data = self.server().store("operator", self.buckets.data("uk"));
        Source::create(data, &format!("replicas/{HOST}"), SCHEMA).await
    }

    fn start(&self) -> (Service, Service) {
        let (key, listen) = (self.file("root.key"), format!("127.0.0.1:{}", self.port));
        let console = [
            ("CARLOS_REGION", "ie"),
            ("CARLOS_DB_FORWARD", "1"),
            ("CARLOS_ROOT_KEY_FILE", &key),
            ("CARLOS_LISTEN", &listen),
        ];
        let (data, scratch) = (format!("s3://{}", self.buckets.data("uk")), self.file(""));
        let agent = [
            ("CARLOS_BOX", "box-uk"),
            ("CARLOS_REGION", "uk"),
            ("CARLOS_RELEASE_PUBKEY", &self.public_key),
            ("CARLOS_HIBERNATE_BUCKET", &data),
            ("CARLOS_HIBERNATE_PREFIX", "replicas"),
            ("CARLOS_DB_READ_SANDBOX", "inner"),
            ("CARLOS_DB_READ_DISK_FLOOR_BYTES", "1048576"),
            ("CARLOS_DB_READ_DISK_FLOOR_PERCENT", "0"),
            ("CARLOS_DB_READ_SCRATCH", &scratch),
        ];
        let dir: &FilePath = self.dir.path();
        let console =
            Service::start("console", &self.vars("console", &console), dir, "console.log");
        (console, Service::start("agent", &self.vars("box-uk", &agent), dir, "agent.log"))
    }

    /// The variables of a person, who has no keys to any bucket.
    fn person(&self, name: &str) -> Vec<(String, String)> {
        vec![("HOME".into(), self.file(name))]
    }

    fn log_in(&self, name: &str, account: &str) {
        let token = self.admin(&["token", "create", account, &format!("{name}@example.com")]);
        std::fs::create_dir_all(self.file(name)).unwrap();
        let file = self.file(&format!("{name}.token"));
        std::fs::write(&file, token).unwrap();
        let url = format!("http://127.0.0.1:{}", self.port);
        // One context: each has a time line of its own.
        let context = Context::system();
        let begun = context.monotonic();
        loop {
            let ran = run(&["login", &url, "--token-file", &file], &self.person(name));
            if ran.code == Some(0) {
                return;
            }
            let waited = context.monotonic() - begun;
            assert!(waited < PATIENCE, "{ran:?}");
            std::thread::sleep(LOOK_AGAIN);
        }
    }

    fn ask(&self, name: &str) -> Ran {
        run(&["db", "query", "acme/shop", QUERY], &self.person(name))
    }

    /// The rows, once a box takes the read.
    fn ask_done(&self, name: &str) -> Option<String> {
        let ran = self.ask(name);
        (ran.code == Some(0)).then_some(ran.stdout)
    }

    /// People with keys to a data bucket look into its replicas themselves.
    fn replica_commands(&self, source: &Source) {
        let url = format!("s3://{}/replicas/{HOST}", self.buckets.data("uk"));
        let vars = self.server().environment("box-uk");
        let plan = run(&["replica", "plan", &url, "--json"], &vars);
        assert!(plan.code == Some(0) && plan.stdout.contains("\"txid\":\"0x2\""), "{plan:?}");
        let out = self.file("restored.db");
        let restored = run(&["replica", "restore", &url, "--out", &out, "--json"], &vars);
        assert_eq!(restored.code, Some(0), "{restored:?}");
        let hash = |path: &str| Sha256::digest(std::fs::read(path).unwrap());
        assert_eq!(hash(&out), hash(source.path.to_str().unwrap()));
        let refused = run(&["replica", "plan", &url], &self.server().environment("console"));
        assert!(refused.code != Some(0) && refused.stdout.is_empty(), "{refused:?}");
    }

    /// The console forwards reads because it cannot make them: its keys open no bucket of `uk`.
    async fn keys_stay_at_home(&self) {
        let data = |user: &str| {
            let store = self.server().store(user, self.buckets.data("uk"));
            Bucket::new(store, Context::system())
        };
        let replica = format!("replicas/{HOST}/0000");
        let own = data("box-uk").list(&replica, None, Purpose::Sweep).await.unwrap();
        let file = &own.first().expect("the replica's first file").key;
        for user in ["console", "box-ie", "mesh-node", "stranger"] {
            let listed = data(user).list(&replica, None, Purpose::Sweep).await;
            assert!(matches!(listed, Err(ReadError::Denied(_))), "{user}: {listed:?}");
            let read = data(user).get(file, Purpose::Claim).await;
            assert!(matches!(read, Err(ReadError::Denied(_))), "{user}: {read:?}");
        }
    }

    /// A host has one record: another account's people can neither take it nor read it.
    fn another_account_gets_nothing(&self) {
        let words = ["instance", "create", HOST, "--account", "beta"];
        let taken = self.try_admin(&[&words[..], &["--app", "shop", "--region", "ie"]].concat());
        assert!(taken.code != Some(0) && taken.stderr.contains("exists"), "{taken:?}");
        self.log_in("bob", "beta");
        let asked = self.ask("bob");
        assert!(asked.code != Some(0) && asked.stdout.is_empty(), "{asked:?}");
        let apps = run(&["apps"], &self.person("bob"));
        assert!(!apps.stdout.contains("acme"), "{apps:?}");
        assert!(self.ask_done("ann").is_some(), "the owner still reads");
    }

    /// Nor can somebody with keys of the server but no grant.
    async fn a_stranger_gets_nothing(&self) {
        let bucket = self.buckets.bucket("stranger");
        let record = format!("hosts/{HOST}/{}", Revision::FIRST);
        let read = bucket.get(&record, Purpose::Claim).await;
        assert!(matches!(read, Err(ReadError::Denied(_))), "{read:?}");
        let next = format!("hosts/{HOST}/{}", Revision::FIRST.next());
        let created = bucket.create(&next, "{}".into(), Purpose::Claim).await;
        assert!(matches!(created, Outcome::Unknown(Cause::Denied(_))), "{created:?}");
        let landed = self.buckets.bucket("operator").get(&next, Purpose::Claim).await;
        assert_eq!(landed, Ok(None));
    }
}
