//! T16: late writes are harmless, and nothing under `db-reads/` is deleted or replaced (db-forward
//! J1, J2), over a whole life of reads: answered, failed, left, timed out, answered too late, with
//! answers of the store lost on both sides, and by an agent that is killed and started again.
//! Proxies before every process count what they ask for.

use std::collections::BTreeSet;

use carlos_protocol::copy::Exit;
use carlos_protocol::ids::ReadId;
use carlos_protocol::keys::{DB_READS, Key};
use carlos_protocol::result::State;
use carlos_tests_minio::deployment::plain_bucket;
use carlos_tests_minio::programs::Ran;
use carlos_tests_minio::proxy::{Fault, Held, Rule, Side};
use carlos_tests_minio::wire::Kind;
use carlos_tests_minio::world::{BoxPlan, Desk};
use carlos_tests_minio::{Buckets, Proxy, Server, World};
use http::Method;
use object_store::ObjectStoreExt as _;
use object_store::path::Path;

/// How long the hasty console lets an owner work: longer than a read takes on a busy machine.
const HASTE_MS: u64 = 8_000;

/// Pairs of busy reads, and more until both proxies have lost an answer.
const ROUNDS: usize = 3;

/// What a process may create under `db-reads/`.
const CONSOLES: [&str; 3] = ["cancel", "queue", "request.json"];
const BOXES: [&str; 3] = ["out", "picked", "result.json"];

pub(crate) async fn test(server: &'static Server) {
    whole_life(World::new(server).await).await;
    the_count_counts(server).await;
}

/// The same on a bucket that would keep what was replaced or deleted.
pub(crate) async fn versioned(server: &'static Server) {
    let buckets = Buckets::create(server).await;
    server.admin().set_versioned(&buckets.deployment.bucket).await;
    let world = World::on(buckets).await;
    drop(world.source(World::SHOP).await);
    let bucket = world.buckets.deployment.bucket.clone();
    whole_life(world).await;
    let answer = server.admin().ask(Method::GET, &format!("{bucket}?versions="), "".into()).await;
    assert!(answer.body.contains("<IsTruncated>false<"), "more versions than one page holds");
    let keys = |text: &str, tag: &str| -> Vec<String> {
        let tag = format!("<{tag}>");
        let pieces = text.split(&tag).skip(1);
        let keys = pieces.filter_map(|piece| piece.split_once("<Key>")?.1.split_once("</Key>"));
        keys.map(|(key, _)| key.to_owned()).filter(|key| key.starts_with(DB_READS)).collect()
    };
    let versions = keys(&answer.body, "Version");
    let once: BTreeSet<_> = versions.iter().collect();
    assert!(!versions.is_empty() && versions.len() == once.len(), "replaced: {versions:?}");
    assert_eq!(keys(&answer.body, "DeleteMarker"), [""; 0]);
}

async fn whole_life(world: World) {
    let life = Life::begin(world).await;
    let agent = life.agent().await;
    life.busy().await;
    life.left_before_the_answer().await;
    life.answered_too_late_after_a_disconnect().await;
    life.answered_too_late_after_a_timeout().await;
    drop(agent);
    let _agent = life.agent().await;
    life.printed(&life.desk).await;
    life.only_created();
}

struct Life {
    world: World,
    front: Proxy,
    hasty_front: Proxy,
    back: Proxy,
    desk: Desk,
    hasty: Desk,
}

impl Life {
    async fn begin(world: World) -> Self {
        let endpoint = &world.server().endpoint;
        let (front, hasty_front, back) =
            (Proxy::before(endpoint), Proxy::before(endpoint), Proxy::before(endpoint));
        let (front, hasty_front, back) = tokio::join!(front, hasty_front, back);
        let (desk, hasty) = tokio::join!(
            world.console(&front.endpoint),
            world.hasty_console(&hasty_front.endpoint, HASTE_MS)
        );
        Self { world, front, hasty_front, back, desk, hasty }
    }

    async fn agent(&self) -> carlos_tests_minio::programs::Service {
        self.world.agent(BoxPlan::usual(&self.back.endpoint)).await
    }

    async fn printed(&self, desk: &Desk) {
        let ran = self.world.query(desk, World::SQL).await;
        assert_eq!((ran.code, ran.stdout.as_str()), (Some(0), World::TSV), "{ran:?}");
    }

    /// Reads that are answered, and one that fails, while answers of the store get lost.
    async fn busy(&self) {
        for (proxy, odds) in [(&self.front, 0.1), (&self.back, 0.2)] {
            for fault in [Fault::DoneBut(500), Fault::DoneAndReset, Fault::Refused(409)] {
                proxy.add(Rule::new(Kind::Create, DB_READS, fault).odds(odds));
            }
        }
        let proxies = [&self.front, &self.back];
        let lossy =
            |proxy: &&Proxy| proxy.seen(DB_READS).into_iter().any(|seen| seen.told != seen.done);
        for round in 0.. {
            if round >= ROUNDS && proxies.iter().all(lossy) {
                break;
            }
            assert!(round < 10 * ROUNDS, "no answer was lost");
            let (long, failed) = tokio::join!(
                self.world.query(&self.desk, World::LONG_SQL),
                self.world.query(&self.desk, "SELECT * FROM nothing"),
            );
            assert_eq!(long.code, Some(0), "{long:?}");
            assert!(long.stdout.lines().count() == 11, "{long:?}");
            ended(&failed, Exit::Sql, "DBL-8");
        }
        proxies.iter().for_each(|proxy| proxy.heal());
    }

    /// Somebody asks and goes away: the owner sees the cancel and stops.
    async fn left_before_the_answer(&self) {
        let (id, held) = self.asked_and_left().await;
        // It looks for a cancel every five seconds, whatever it waits for.
        let result = self.world.result(id).await;
        assert_eq!((result.state, result.last_seq), (State::Cancelled, 0), "{result:?}");
        held.release();
    }

    /// The same with a box that never hears of the cancel.
    async fn answered_too_late_after_a_disconnect(&self) {
        self.deafen();
        let (id, held) = self.asked_and_left().await;
        held.release();
        self.late_and_harmless(id).await;
        self.back.heal();
    }

    /// And with one whose console has waited long enough.
    async fn answered_too_late_after_a_timeout(&self) {
        self.deafen();
        let known = self.world.reads().await;
        let mut held = self.held_plan();
        let ran = self.world.query(&self.hasty, World::LONG_SQL).await;
        ended(&ran, Exit::Unfinished, "DBF-12");
        held.reached().await;
        let id = self.world.asked(&known).await;
        held.release();
        self.late_and_harmless(id).await;
        self.back.heal();
    }

    fn deafen(&self) {
        self.back.add(Rule::new(Kind::Get, "/cancel", Fault::Refused(404)).always());
    }

    /// The box waits before it plans its next read.
    fn held_plan(&self) -> Held {
        self.back.hold(Side::Before, Kind::List, "replicas/")
    }

    /// A read whose person was there until its owner began to plan.
    async fn asked_and_left(&self) -> (ReadId, Held) {
        let known = self.world.reads().await;
        let mut held = self.held_plan();
        let args = ["db", "query", "acme/shop", World::LONG_SQL];
        let mut person = self.world.person_command(&self.desk, &args).spawn().unwrap();
        held.reached().await;
        let id = self.world.asked(&known).await;
        person.kill().await.unwrap();
        self.world.appears(&Key::Cancel(id)).await;
        (id, held)
    }

    /// Waits until the box has written its whole answer, and shows that nobody noticed.
    async fn late_and_harmless(&self, id: ReadId) {
        self.world.appears(&Key::Cancel(id)).await;
        let looks = || self.looks(id);
        let before = (looks(), self.world.keys("activity/").await.len());
        assert_eq!(self.world.result(id).await.state, State::Done);
        assert!(self.world.chunks(id).await > 1, "the late answer has several chunks");
        let objects = self.world.objects_of(id).await;
        self.printed(&self.desk).await;
        self.printed(&self.hasty).await;
        let after = (looks(), self.world.keys("activity/").await.len());
        assert_eq!(after, (before.0, before.1 + 2), "of {id}: one row for each of the next two");
        assert_eq!(self.world.objects_of(id).await, objects);
    }

    /// What the consoles have asked for about a read.
    fn looks(&self, id: ReadId) -> usize {
        let part = id.to_string();
        self.front.seen(&part).len() + self.hasty_front.seen(&part).len()
    }

    /// Everything under `db-reads/` was created, each process its own kinds, and read besides.
    fn only_created(&self) {
        let proxies = [(&self.front, CONSOLES), (&self.hasty_front, CONSOLES), (&self.back, BOXES)];
        for (proxy, kinds) in proxies {
            assert_eq!(proxy.count(Kind::Delete, ""), 0, "a delete");
            assert_eq!(proxy.count(Kind::Replace, DB_READS), 0, "a replacing write");
            let created = proxy.seen(DB_READS).into_iter();
            let created = created.filter(|seen| seen.asked.kind == Kind::Create);
            let created: BTreeSet<_> = created.map(|seen| kind_of(&seen.asked.key)).collect();
            assert_eq!(created, BTreeSet::from(kinds.map(str::to_owned)));
        }
    }
}

/// A proxy would have seen them.
async fn the_count_counts(server: &'static Server) {
    let bucket = plain_bucket(server).await;
    let proxy = Proxy::before(&server.endpoint).await;
    let via = [("CARLOS_S3_ENDPOINT", proxy.endpoint.as_str())];
    let store = server.store_with("operator", &bucket, &via);
    let key = Path::from(format!("{DB_READS}x/picked"));
    store.put(&key, "a".into()).await.unwrap();
    store.delete(&key).await.unwrap();
    assert_eq!(proxy.count(Kind::Replace, DB_READS), 1);
    assert_eq!(proxy.count(Kind::Delete, DB_READS), 1);
}

fn ended(ran: &Ran, exit: Exit, id: &str) {
    assert_eq!(ran.code, Some(i32::from(exit.code())), "{ran:?}");
    assert!(ran.stdout.is_empty() && ran.stderr.contains(&format!("({id})")), "{ran:?}");
}

/// The part of a key that says what the object is.
fn kind_of(key: &str) -> String {
    let mut parts = key.trim_start_matches(DB_READS).split('/');
    match parts.next() {
        Some("queue") => "queue".to_owned(),
        _ => parts.next().unwrap_or_default().to_owned(),
    }
}
