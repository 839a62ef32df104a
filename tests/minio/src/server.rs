//! Which S3 server the tests run on: the first of those that can be had.

use std::collections::BTreeMap;
use std::sync::{Mutex, OnceLock, PoisonError};

use carlos_bucket::layer::Inner;
use carlos_bucket::{Context, StoreClock, open_store_with};
use carlos_cli::admin::grants::Dialect;
use data_encoding::HEXLOWER;

use crate::admin::Admin;
use crate::{docker, rgw};

/// The server's URL, when somebody brings their own.
const ENDPOINT: &str = "CARLOS_S3_TESTS_ENDPOINT";
/// Its users: a file of lines "name access-key secret-key" with every name of [`USERS`].
const KEYS: &str = "CARLOS_S3_TESTS_USERS";
/// How it reads policies: `ceph` (the default) or `aws:<account number>`.
const DIALECT: &str = "CARLOS_S3_TESTS_DIALECT";
/// `require` makes a missing server a failure instead of a skip.
const MODE: &str = "CARLOS_S3_TESTS";

/// Everybody with keys. `operator` owns the buckets; `stranger` is granted nothing.
pub const USERS: [&str; 6] = ["operator", "console", "box-ie", "box-uk", "mesh-node", "stranger"];

/// What kind of server it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Somebody's own, by [`ENDPOINT`].
    Given,
    /// MinIO in a container.
    Docker,
    /// A Ceph object gateway, started here.
    Ceph,
}

/// The answer to "which server?", before anything is started.
#[derive(Clone, Debug)]
pub struct Choice {
    /// The server, or why there is none.
    pub kind: Result<Kind, String>,
    /// Whether a missing server is a failure.
    pub required: bool,
    /// For a person: what was chosen and what was passed over.
    pub sentence: String,
}

impl Choice {
    /// Looks at the environment and the machine. Starts nothing.
    pub fn make() -> Self {
        let required = std::env::var(MODE).is_ok_and(|mode| mode == "require");
        if std::env::var_os(ENDPOINT).is_some() {
            let sentence = format!("S3 tests run on the server of {ENDPOINT}");
            return Self { kind: Ok(Kind::Given), required, sentence };
        }
        let no_docker = match docker::available() {
            Ok(()) => {
                let sentence = "S3 tests run on MinIO in a container".into();
                return Self { kind: Ok(Kind::Docker), required, sentence };
            }
            Err(why) => why,
        };
        match rgw::available() {
            Ok(()) => {
                let sentence = format!("S3 tests run on a Ceph object gateway ({no_docker})");
                Self { kind: Ok(Kind::Ceph), required, sentence }
            }
            Err(no_ceph) => {
                let why = format!("{no_docker}; {no_ceph}; {ENDPOINT} is not set");
                let sentence = format!("SKIPPED: S3 tests: there is no server: {why}");
                Self { kind: Err(why), required, sentence }
            }
        }
    }
}

/// One user's keys.
#[derive(Clone)]
pub struct UserKeys {
    pub id: String,
    pub secret: String,
}

/// A running server.
pub struct Server {
    pub kind: Kind,
    pub endpoint: String,
    pub dialect: Dialect,
    pub users: BTreeMap<String, UserKeys>,
    pub(crate) running: Running,
}

/// What must be ended with the tests.
pub(crate) enum Running {
    Elsewhere,
    Ceph(rgw::Gateway),
    #[cfg_attr(not(feature = "docker"), allow(dead_code, reason = "only containers make it"))]
    Docker(docker::Container),
}

static SHARED: OnceLock<Result<Server, String>> = OnceLock::new();
static ENDED: Mutex<bool> = Mutex::new(false);

impl Server {
    /// The one that most tests share, started by the first of them.
    pub fn shared(choice: &Choice) -> Result<&'static Self, String> {
        let started = SHARED.get_or_init(|| Self::start(choice));
        started.as_ref().map_err(Clone::clone)
    }

    /// Ends the shared one, if it was ever started.
    pub fn end_shared() {
        let mut ended = ENDED.lock().unwrap_or_else(PoisonError::into_inner);
        if let (false, Some(Ok(server))) = (*ended, SHARED.get()) {
            server.end();
        }
        *ended = true;
    }

    fn start(choice: &Choice) -> Result<Self, String> {
        match choice.kind.clone()? {
            Kind::Given => Self::given(),
            Kind::Ceph => Self::ceph(None),
            Kind::Docker => docker::start(mint_users()),
        }
    }

    /// A gateway of one's own whose lifecycle days last this many seconds.
    pub fn with_short_days(seconds: u32) -> Result<Self, String> {
        Self::ceph(Some(seconds))
    }

    fn ceph(day_seconds: Option<u32>) -> Result<Self, String> {
        let users = mint_users();
        let (gateway, endpoint) = rgw::Gateway::start(&users, day_seconds)?;
        let running = Running::Ceph(gateway);
        Ok(Self { kind: Kind::Ceph, endpoint, dialect: Dialect::ceph(), users, running })
    }

    fn given() -> Result<Self, String> {
        let var = |name: &str| std::env::var(name).map_err(|_| format!("{name} is not set"));
        let (endpoint, file) = (var(ENDPOINT)?, var(KEYS)?);
        let text = std::fs::read_to_string(&file).map_err(|error| format!("{file}: {error}"))?;
        let users: BTreeMap<_, _> = text.lines().filter_map(user_line).collect();
        if let Some(missing) = USERS.iter().find(|name| !users.contains_key(**name)) {
            return Err(format!("{KEYS} has no line for {missing}"));
        }
        let dialect = match var(DIALECT).as_deref().unwrap_or("ceph") {
            "ceph" => Dialect::ceph(),
            other => Dialect::aws(other.strip_prefix("aws:").ok_or(DIALECT)?),
        };
        Ok(Self { kind: Kind::Given, endpoint, dialect, users, running: Running::Elsewhere })
    }

    /// Ends what was started for it.
    pub fn end(&self) {
        match &self.running {
            Running::Elsewhere => {}
            Running::Ceph(gateway) => gateway.stop(),
            Running::Docker(container) => container.stop(),
        }
    }

    /// The variables under which `user` reaches this server, as the product reads them.
    pub fn environment(&self, user: &str) -> Vec<(String, String)> {
        let keys = &self.users[user];
        let region = std::env::var("AWS_REGION").unwrap_or_else(|_| "us-east-1".into());
        let pairs = [
            ("CARLOS_S3_ENDPOINT", self.endpoint.as_str()),
            ("CARLOS_S3_REGION", &region),
            ("AWS_ACCESS_KEY_ID", &keys.id),
            ("AWS_SECRET_ACCESS_KEY", &keys.secret),
        ];
        pairs.map(|(name, value)| (name.to_owned(), value.to_owned())).to_vec()
    }

    /// A bucket as `user` sees it, opened as the product opens it.
    pub fn store(&self, user: &str, bucket: &str) -> Inner {
        self.store_with(user, bucket, &[])
    }

    /// As [`Server::store`], with further variables, which go first.
    pub fn store_with(&self, user: &str, bucket: &str, more: &[(&str, &str)]) -> Inner {
        self.open(user, bucket, more, None)
    }

    /// As [`Server::store`], with a clock that the answers set.
    pub fn clocked(&self, user: &str, bucket: &str, clock: &StoreClock) -> Inner {
        self.open(user, bucket, &[], Some(clock))
    }

    fn open(
        &self,
        user: &str,
        bucket: &str,
        more: &[(&str, &str)],
        clock: Option<&StoreClock>,
    ) -> Inner {
        let own = self.environment(user);
        let var = |name: &str| {
            let more = more.iter().find(|(key, _)| *key == name).map(|(_, value)| (*value).into());
            more.or_else(|| own.iter().find(|(key, _)| key == name).map(|(_, v)| v.clone()))
        };
        open_store_with(&format!("s3://{bucket}"), var, clock).unwrap()
    }

    /// The operator's hands on buckets themselves.
    pub fn admin(&self) -> Admin {
        Admin::new(&self.endpoint, self.users["operator"].clone())
    }
}

fn user_line(line: &str) -> Option<(String, UserKeys)> {
    let mut words = line.split_whitespace();
    let (name, id, secret) = (words.next()?, words.next()?, words.next()?);
    Some((name.to_owned(), UserKeys { id: id.to_owned(), secret: secret.to_owned() }))
}

fn mint_users() -> BTreeMap<String, UserKeys> {
    let context = Context::system();
    let mint = || {
        let mut bytes = [0; 20];
        context.fill(&mut bytes);
        HEXLOWER.encode(&bytes)
    };
    let user = |name: &str| (name.to_owned(), UserKeys { id: mint(), secret: mint() });
    USERS.iter().map(|name| user(name)).collect()
}
