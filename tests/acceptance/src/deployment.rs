//! What stands around a box: buckets on a real S3 server, a console, an operator and a person, all
//! outside of the host and with keys of their own.

use std::net::TcpListener;
use std::path::Path;
use std::process::{Child, Stdio};

use carlos_bucket::{Bucket, Chain, Purpose};
use carlos_protocol::ids::{BoxName, Principal};
use carlos_protocol::keys::edges_chain;
use carlos_tests_minio::programs::{Ran, Service, carlos, run};
use carlos_tests_minio::source::Source;
use carlos_tests_minio::{Buckets, Server};
use tempfile::TempDir;
use tokio::runtime::Runtime;

use crate::eventually;

/// The instance whose database is read.
pub const HOST: &str = "shop.example.com";

/// The account's people.
const PERSON: &str = "ann";

/// A deployment with one account, one app and one instance, whose data is in `uk`.
pub struct Deployment {
    pub buckets: Buckets,
    pub public_key: String,
    runtime: Runtime,
    dir: TempDir,
    port: u16,
    console: Option<Service>,
}

impl Deployment {
    /// Makes it and starts its console, which stands in `ie`.
    pub fn create(server: &'static Server) -> Self {
        let runtime = Runtime::new().unwrap();
        let buckets = runtime.block_on(Buckets::create(server));
        let dir = tempfile::tempdir().unwrap();
        let port = free_port();
        let public_key = String::new();
        let mut made = Self { buckets, public_key, runtime, dir, port, console: None };
        made.public_key = made.admin(&["keys", "root", "--out", &made.file("root.key")]);
        made.admin(&["account", "create", "acme"]);
        made.admin(&["member", "add", "acme", "ann@example.com"]);
        made.instance(HOST);
        made.admin(&["box", "create", "box-uk", "--region", "uk"]);
        made.start_console();
        made.log_in(made.port);
        made
    }

    /// Another instance of the same app.
    pub fn instance(&self, host: &str) {
        let place = ["--account", "acme", "--app", "shop", "--region", "uk"];
        self.admin(&[&["instance", "create", host], &place[..]].concat());
    }

    /// The database of `host`, made by `schema` and replicated.
    pub fn source(&self, host: &str, schema: &str) -> Source {
        let data = self.server().store("operator", self.buckets.data("uk"));
        self.runtime.block_on(Source::create(data, &format!("replicas/{host}"), schema))
    }

    /// Replicates what has changed in `source`.
    pub fn sync(&self, source: &mut Source) {
        self.runtime.block_on(source.sync());
    }

    /// Waits for `work` on the bucket.
    pub fn block_on<T>(&self, work: impl Future<Output = T>) -> T {
        self.runtime.block_on(work)
    }

    /// The deployment bucket with an operator's rights.
    pub fn bucket(&self) -> Bucket {
        self.buckets.bucket("operator")
    }

    /// Whether the box's edges offer reads.
    pub fn offers_reads(&self) -> bool {
        let name: BoxName = "box-uk".parse().unwrap();
        let chain = Chain::new(self.bucket(), edges_chain(&name), Principal::from(&name));
        let head = self.block_on(chain.head(Purpose::Claim)).unwrap();
        head.is_some_and(|head| String::from_utf8_lossy(&head.content).contains("db-read-1"))
    }

    pub fn server(&self) -> &'static Server {
        self.buckets.server
    }

    /// The variables of somebody with `user`'s keys to the deployment bucket.
    pub fn vars(&self, user: &str, more: &[(&str, &str)]) -> Vec<(String, String)> {
        let bucket = format!("s3://{}", self.buckets.deployment.bucket);
        let own = [("CARLOS_BUCKET", bucket.as_str())];
        let all = own.iter().chain(more).map(|(name, value)| ((*name).into(), (*value).into()));
        self.server().environment(user).into_iter().chain(all).collect()
    }

    /// One line of an operator's command that succeeds.
    ///
    /// # Panics
    /// When it fails.
    pub fn admin(&self, words: &[&str]) -> String {
        let ran = run(&[&["admin"], words].concat(), &self.vars("operator", &[]));
        assert_eq!(ran.code, Some(0), "{words:?}: {ran:?}");
        ran.stdout.trim().to_owned()
    }

    /// What the person sees who asks for rows of `host`.
    pub fn ask(&self, host: &str, sql: &str) -> Ran {
        run(&["db", "query", "acme/shop", "--instance", host, sql], &self.person())
    }

    /// The same, without waiting for it.
    pub fn ask_aside(&self, host: &str, sql: &str) -> Asking {
        let mut command = carlos();
        command.args(["db", "query", "acme/shop", "--instance", host, sql]);
        command.envs(self.person()).stdout(Stdio::piped()).stderr(Stdio::piped());
        Asking(Some(command.spawn().unwrap()))
    }

    /// The settings of a console in `ie` that listens on `port` and signs with the key in `key`.
    pub fn console(&self, port: u16, key: &str) -> Vec<(String, String)> {
        let listen = format!("127.0.0.1:{port}");
        let vars = [
            ("CARLOS_REGION", "ie"),
            ("CARLOS_DB_FORWARD", "1"),
            ("CARLOS_ROOT_KEY_FILE", key),
            ("CARLOS_LISTEN", &listen),
        ];
        self.vars("console", &vars)
    }

    /// The root key, for a console elsewhere.
    pub fn root_key(&self) -> Vec<u8> {
        std::fs::read(self.file("root.key")).unwrap()
    }

    fn start_console(&mut self) {
        let vars = self.console(self.port, &self.file("root.key"));
        let dir: &Path = self.dir.path();
        self.console = Some(Service::start("console", &vars, dir, "console.log"));
    }

    /// The person goes to the console on `port` from now on, as soon as it listens.
    pub fn log_in(&self, port: u16) {
        let token = self.admin(&["token", "create", "acme", &format!("{PERSON}@example.com")]);
        std::fs::create_dir_all(self.file(PERSON)).unwrap();
        let file = self.file("token");
        std::fs::write(&file, token).unwrap();
        let url = format!("http://127.0.0.1:{port}");
        eventually("the console listens", || {
            let ran = run(&["login", &url, "--token-file", &file], &self.person());
            (ran.code == Some(0)).then_some(())
        });
    }

    /// A person has no keys to any bucket.
    fn person(&self) -> Vec<(String, String)> {
        vec![("HOME".into(), self.file(PERSON))]
    }

    fn file(&self, name: &str) -> String {
        self.dir.path().join(name).to_str().unwrap().to_owned()
    }
}

/// One that is free now, for a console that takes it at once.
pub fn free_port() -> u16 {
    TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port()
}

/// A question whose answer is not there yet.
pub struct Asking(Option<Child>);

impl Asking {
    /// Its answer.
    pub fn answer(mut self) -> Ran {
        self.0.take().unwrap().wait_with_output().unwrap().into()
    }

    /// The person gives up, as with Ctrl-C.
    pub fn cancel(mut self) -> Ran {
        let child = self.0.take().unwrap();
        let pid = rustix::process::Pid::from_child(&child);
        rustix::process::kill_process(pid, rustix::process::Signal::INT).unwrap();
        child.wait_with_output().unwrap().into()
    }
}

impl Drop for Asking {
    fn drop(&mut self) {
        if let Some(mut child) = self.0.take() {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}
