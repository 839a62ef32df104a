//! Every principal tries everything on a key of every kind: what it is granted succeeds, and every
//! other pair is refused.

use carlos_bucket::Context;
use carlos_bucket::layer::Inner;
use carlos_cli::admin::grants::{Act, Dialect, Holder, Place, Right};
use carlos_protocol::ids::{ReadId, Revision};
use carlos_protocol::keys::{Key, QueueEntry};
use carlos_protocol::time::{Day, Seconds};
use carlos_tests_minio::server::USERS;
use carlos_tests_minio::{Buckets, Server};
use futures::TryStreamExt;
use http::Method;
use object_store::path::Path;
use object_store::{Error, ObjectStoreExt, PutMode, PutOptions};

/// How a request ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum End {
    Done,
    Absent,
    Refused,
}

/// What nobody may be granted, whatever the table of grants says: the table must not be its own
/// only witness. A user, what is not to be done, and a part of the keys.
const NEVER: &[(&str, &[Act], &[&str])] = &[
    ("console", READ, &["router/"]),
    ("console", WRITE, &["accounts/", "control/edges/", "control/status/", "mesh/nodes/"]),
    ("console", WRITE, &["mesh/fanout/", "presence/", "probe/box-uk/", "router/"]),
    ("box-uk", READ, &["accounts/", "activity/", "apps/", "control/status/", "mesh/", "router/"]),
    ("box-uk", READ, &["/box-ie", "control/serial/ie", "control/serial/mesh/", "presence/"]),
    ("box-uk", WRITE, &["accounts/", "activity/", "apps/", "control/serial/", "hosts/", "mesh/"]),
    ("box-uk", WRITE, &["/box-ie", "/cancel", "/queue/", "/request.json", "presence/", "router/"]),
    ("mesh-node", READ, &["accounts/", "activity/", "apps/", "db-reads/", "hosts/", "router/"]),
    ("mesh-node", READ, &["control/edges/", "control/serial/uk", "control/status/"]),
    ("mesh-node", WRITE, &["accounts/", "activity/", "apps/", "control/edges/", "db-reads/"]),
    ("mesh-node", WRITE, &["control/serial/mesh/other", "hosts/", "router/", "somebody-else"]),
    ("stranger", ALL, &[""]),
];
const READ: &[Act] = &[Act::Read, Act::Everything];
const WRITE: &[Act] = &[Act::Create, Act::Replace, Act::Everything];
const ALL: &[Act] = &[Act::Create, Act::Everything, Act::Read, Act::Replace];

/// Who reads the replicas of which region.
const READERS: [(&str, &str); 3] = [("console", "ie"), ("box-ie", "ie"), ("box-uk", "uk")];

/// How many requests ended in which way.
#[derive(Debug, Default)]
struct Tally {
    granted: usize,
    refused: usize,
}

pub(crate) async fn test(server: &'static Server) {
    let buckets = Buckets::create(server).await;
    let mut tally = Tally::default();
    for (place, bucket) in places(&buckets) {
        let keys = keys(&place);
        for user in USERS.iter().filter(|user| **user != "operator") {
            Trier::new(&buckets, user, &place, &bucket).is_never_granted(&keys);
        }
        for user in USERS.iter().filter(|user| **user != "operator") {
            let trier = Trier::new(&buckets, user, &place, &bucket);
            trier.on_free_names(&keys, &mut tally).await;
        }
        let own = server.store("operator", &bucket);
        for key in &keys {
            own.put(&Path::from(key.as_str()), "x".into()).await.unwrap();
        }
        for user in USERS.iter().filter(|user| **user != "operator") {
            let trier = Trier::new(&buckets, user, &place, &bucket);
            trier.on_the_whole(&mut tally).await;
            trier.on_taken_names(&keys, &mut tally).await;
            settings(server, user, &bucket, &mut tally).await;
        }
        nobody(server, &bucket, &keys, &mut tally).await;
    }
    eprintln!("rights: {} requests granted, {} refused", tally.granted, tally.refused);
    // Numbers that only fall when somebody takes keys or principals out.
    assert!(tally.granted > 150 && tally.refused > 600, "{tally:?}");
}

fn places(buckets: &Buckets) -> Vec<(Place, String)> {
    let data = buckets.deployment.data.iter();
    let data = data.map(|(region, name)| (Place::Data(region.clone()), name.clone()));
    std::iter::once((Place::Deployment, buckets.deployment.bucket.clone())).chain(data).collect()
}

/// One user before one bucket.
struct Trier<'a> {
    user: &'a str,
    holder: Option<&'a Holder>,
    place: &'a Place,
    store: Inner,
    operator: Inner,
    /// What the server can tell apart.
    dialect: &'a Dialect,
}

impl<'a> Trier<'a> {
    fn new(buckets: &'a Buckets, user: &'a str, place: &'a Place, bucket: &str) -> Self {
        let server = buckets.server;
        let mut holders = buckets.deployment.holders.iter();
        Self {
            user,
            holder: holders.find(|holder| holder.name.as_str() == user),
            place,
            store: server.store(user, bucket),
            operator: server.store("operator", bucket),
            dialect: &server.dialect,
        }
    }

    fn may(&self, act: Act, key: &str) -> bool {
        self.rights().iter().any(|right| right.act == act && matches(&right.keys, key))
    }

    fn rights(&self) -> Vec<Right> {
        let rights = self.holder.map(Holder::rights).unwrap_or_default();
        rights.into_iter().filter(|right| right.place == *self.place).collect()
    }

    /// Whether a name that is free is shown to be. Where the server does not compare the name with
    /// what may be listed, whoever may list anything is told of every name.
    fn may_miss(&self, key: &str) -> bool {
        let lists = !self.dialect.compares_missing_names && self.may_list_all();
        lists || self.may(Act::Read, key)
    }

    /// Whether the whole bucket may be listed.
    fn may_list_all(&self) -> bool {
        let anything = self.rights().iter().any(|right| right.act == Act::Read);
        self.may(Act::Read, "") || anything && !self.dialect.compares_missing_names
    }

    fn is_never_granted(&self, keys: &[String]) {
        if let Place::Data(region) = self.place {
            let reads = READERS.contains(&(self.user, region.as_str()));
            let acts: Vec<_> = self.rights().iter().map(|right| right.act).collect();
            assert_eq!(acts, if reads { vec![Act::Read] } else { Vec::new() }, "{}", self.user);
            return;
        }
        for (_, acts, parts) in NEVER.iter().filter(|(user, ..)| *user == self.user) {
            for part in *parts {
                let mut found = keys.iter().filter(|key| key.contains(part)).peekable();
                assert!(found.peek().is_some(), "{part}: no key of this kind is tried");
                let granted: Vec<_> =
                    found.filter(|key| acts.iter().any(|act| self.may(*act, key))).collect();
                assert!(granted.is_empty(), "{} may {acts:?} {granted:?}", self.user);
            }
        }
    }

    async fn on_the_whole(&self, tally: &mut Tally) {
        let listed: Result<Vec<_>, _> = self.store.list(None).try_collect().await;
        let seen = end(listed.map(drop));
        self.check("list the whole", "bucket", (seen, granted(self.may_list_all())), tally);
    }

    /// Reading what is not there, and creating it.
    async fn on_free_names(&self, keys: &[String], tally: &mut Tally) {
        for key in keys {
            let path = Path::from(key.as_str());
            let read = end(self.store.get(&path).await.map(drop));
            let expected = if self.may_miss(key) { End::Absent } else { End::Refused };
            self.check("read the free name", key, (read, expected), tally);
            let create = PutOptions { mode: PutMode::Create, ..PutOptions::default() };
            let created = end(self.store.put_opts(&path, "x".into(), create).await.map(drop));
            let may = self.may(Act::Create, key) || self.may(Act::Replace, key);
            self.check("create", key, (created, granted(may)), tally);
            if created == End::Done {
                self.operator.delete(&path).await.unwrap();
            }
        }
    }

    /// Reading, listing, replacing and deleting what is there.
    async fn on_taken_names(&self, keys: &[String], tally: &mut Tally) {
        for key in keys {
            let path = Path::from(key.as_str());
            let read = end(self.store.get(&path).await.map(drop));
            self.check("read", key, (read, granted(self.may(Act::Read, key))), tally);
            let folder = key.rsplit_once('/').map_or("", |(folder, _)| folder);
            let listed: Result<Vec<_>, _> =
                self.store.list(Some(&Path::from(folder))).try_collect().await;
            let may = self.may(Act::Read, &format!("{folder}/"));
            self.check("list the folder of", key, (end(listed.map(drop)), granted(may)), tally);
            let replaced = end(self.store.put(&path, "y".into()).await.map(drop));
            let create = !self.dialect.knows_if_none_match && self.may(Act::Create, key);
            let may = create || self.may(Act::Replace, key);
            self.check("replace", key, (replaced, granted(may)), tally);
            let deleted = end(self.store.delete(&path).await);
            self.check("delete", key, (deleted, End::Refused), tally);
        }
    }

    #[track_caller]
    fn check(&self, what: &str, key: &str, (seen, expected): (End, End), tally: &mut Tally) {
        assert_eq!(seen, expected, "{} tries to {what} {key} of {:?}", self.user, self.place);
        tally.note(seen);
    }
}

impl Tally {
    fn note(&mut self, end: End) {
        match end {
            End::Refused => self.refused += 1,
            End::Done | End::Absent => self.granted += 1,
        }
    }
}

/// Nobody but the operator looks at or changes what a bucket is.
async fn settings(server: &Server, user: &str, bucket: &str, tally: &mut Tally) {
    let admin = carlos_tests_minio::Admin::new(&server.endpoint, server.users[user].clone());
    let asked = [
        (Method::GET, "?policy="),
        (Method::PUT, "?policy="),
        (Method::DELETE, "?policy="),
        (Method::PUT, "?versioning="),
        (Method::PUT, "?lifecycle="),
        (Method::DELETE, "?lifecycle="),
        (Method::DELETE, ""),
    ];
    for (method, query) in asked {
        let answer = admin.ask(method.clone(), &format!("{bucket}{query}"), String::new()).await;
        assert_eq!(answer.status, 403, "{user}: {method} {query}: {answer:?}");
        tally.note(End::Refused);
    }
}

/// Whoever has no keys gets nothing.
async fn nobody(server: &Server, bucket: &str, keys: &[String], tally: &mut Tally) {
    let admin = server.admin();
    for key in keys {
        for method in [Method::GET, Method::PUT, Method::DELETE] {
            let target = format!("{bucket}/{key}");
            let answer = admin.ask_unsigned(method.clone(), &target, String::new()).await;
            assert_eq!(answer.status, 403, "nobody: {method} {key}: {answer:?}");
            tally.note(End::Refused);
        }
    }
    let listed = admin.ask_unsigned(Method::GET, bucket, String::new()).await;
    assert_eq!(listed.status, 403, "{listed:?}");
}

/// A key of every kind, and for principals' own keys another principal's too.
fn keys(place: &Place) -> Vec<String> {
    match place {
        Place::Deployment => control_keys().into_iter().chain(other_keys()).collect(),
        Place::Data(_) => {
            let file = "0000/0000000000000001-0000000000000001.ltx";
            vec![format!("replicas/shop.example.com/{file}"), "elsewhere/x".into()]
        }
    }
}

fn control_keys() -> Vec<String> {
    let context = Context::system();
    let id = ReadId::mint(&mut context.entropy());
    let (now, ulid, first) = (context.now_unix(), context.ulid(), Revision::FIRST);
    let entry = |region: &str| {
        let region = region.parse().unwrap();
        Key::Queue(QueueEntry { region, issued_at: Seconds::new(now), id })
    };
    let account = || "acme".parse().unwrap();
    let host = || "shop.example.com".parse().unwrap();
    let keys = [
        Key::Account(account(), first),
        Key::Activity(account(), Day::of(now), ulid),
        Key::App(account(), "shop".parse().unwrap(), host()),
        Key::Cancel(id),
        Key::Chunk(id, 1),
        Key::Edges("box-ie".parse().unwrap(), first),
        Key::Edges("box-uk".parse().unwrap(), first),
        Key::Host(host(), first),
        Key::Picked(id),
        Key::Probe("box-ie".parse().unwrap(), ulid),
        Key::Probe("box-uk".parse().unwrap(), ulid),
        Key::Probe("console".parse().unwrap(), ulid),
        Key::Probe("mesh-node".parse().unwrap(), ulid),
        entry("ie"),
        entry("uk"),
        Key::Request(id),
        Key::Result(id),
        Key::Serial("ie".parse().unwrap()),
        Key::Serial("uk".parse().unwrap()),
        Key::Status("box-ie".parse().unwrap()),
        Key::Status("box-uk".parse().unwrap()),
    ];
    keys.iter().map(Key::to_path).collect()
}

fn other_keys() -> Vec<String> {
    let first = Revision::FIRST;
    vec![
        "control/serial/mesh/chat".into(),
        "control/serial/mesh/other".into(),
        format!("mesh/fanout/orders/mesh-node/{first}"),
        format!("mesh/nodes/chat/mesh-node/{first}"),
        format!("mesh/nodes/chat/somebody-else/{first}"),
        format!("mesh/nodes/other/mesh-node/{first}"),
        "presence/mesh/chat/29877660/mesh-node.1".into(),
        "presence/mesh/chat/29877660/somebody-else.1".into(),
        format!("router/main/directory/{first}"),
        "router/main/serial".into(),
        "of-no-kind/x".into(),
    ]
}

fn granted(may: bool) -> End {
    if may { End::Done } else { End::Refused }
}

fn end(answer: Result<(), Error>) -> End {
    match answer {
        Ok(()) => End::Done,
        Err(Error::NotFound { .. }) => End::Absent,
        Err(Error::PermissionDenied { .. }) => End::Refused,
        Err(other) => panic!("{other}"),
    }
}

/// As servers match a policy's resource: `*` is any text.
fn matches(pattern: &str, key: &str) -> bool {
    let Some((head, rest)) = pattern.split_once('*') else { return pattern == key };
    let Some(tail) = key.strip_prefix(head) else { return false };
    let mut ends = tail.char_indices().map(|(at, _)| at).chain([tail.len()]);
    ends.any(|at| matches(rest, &tail[at..]))
}
