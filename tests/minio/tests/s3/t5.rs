//! T5 (db-forward §11.4, J3) in its real form: two agents as processes, with keys of their own and
//! a real S3 server's conditional create between them. One of them is behind a proxy that loses
//! answers. Signed requests are written directly, so that no console's limits slow them down.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::time::Duration;

use carlos_protocol::ids::ReadId;
use carlos_protocol::keys::{DB_READS, Key};
use carlos_protocol::picked::Picked;
use carlos_protocol::records::HostRecord;
use carlos_protocol::result::{ReadResult, State};
use carlos_tests_minio::programs::Service;
use carlos_tests_minio::proxy::{Fault, Rule, Seen};
use carlos_tests_minio::wire::Kind;
use carlos_tests_minio::world::{BOX, BoxPlan, parse};
use carlos_tests_minio::{Proxy, Server, World};
use futures::{StreamExt as _, stream};

/// As many reads as db-forward §11.4 asks for, and how long they may take.
const READS: usize = 1_000;
const BOUND: Duration = Duration::from_secs(90);

/// More than both boxes' slots, so that both always have something to elect.
const OPEN_AT_ONCE: usize = 80;
/// A box has two. A read of a small copy is mostly the half second of jitter before its election.
const SLOTS: usize = 24;

/// No read waits longer; a box would refuse it after a minute.
const LONGEST_WAIT: Duration = Duration::from_secs(45);
/// Oftener, and the test's own looks are a third of all that the server does.
const LOOK_AGAIN: Duration = Duration::from_millis(900);

const OTHER: &str = "box-uk-2";

/// What becomes of the creates of one box, and how often.
const FAULTS: [(Fault, f64); 3] =
    [(Fault::DoneBut(500), 0.15), (Fault::DoneAndReset, 0.15), (Fault::Refused(409), 0.15)];

pub(crate) async fn test(server: &'static Server) {
    let region = Region::new(server).await;
    let begun = region.world.context.monotonic();
    let reads = stream::iter((0..READS).map(|number| region.read(number)));
    let reads: BTreeMap<_, _> = reads.buffer_unordered(OPEN_AT_ONCE).collect().await;
    let took = region.world.context.monotonic() - begun;
    // A box that came second may still be at its read-back.
    region.world.context.sleep(Duration::from_secs(6)).await;
    let history = History::of(&region, &reads).await;
    let (figures, asked) = (history.figures(&reads), region.lossy.seen("").len());
    let took_s = took.as_secs_f64();
    eprintln!("T5: {READS} reads in {took_s:.1} s, {figures}; {BOX} asked {asked} times");
    history.one_run_each(&region, &reads);
    history.one_answer_each(&reads);
    assert!(took < BOUND, "{READS} reads took {took:?}");
    assert!(history.shares.values().all(|reads| *reads >= READS / 5), "{:?}", history.shares);
    let longest = reads.values().map(|read| read.waited).max().unwrap();
    assert!(longest < LONGEST_WAIT, "a read waited {longest:?}");
    // Each of these was read back. With an answer taken for what it says, nobody would have run
    // the first kind, and two boxes the second.
    let (own, lost) = (history.landed_and_told_otherwise.len(), history.failed_and_lost.len());
    assert!(own > READS / 20 && lost > READS / 20, "{own} and {lost}: {figures}");
}

/// Two boxes of one region.
struct Region {
    world: World,
    record: HostRecord,
    /// Before the box whose answers get lost.
    lossy: Proxy,
    /// What each box ran.
    runs: [PathBuf; 2],
    _agents: [Service; 2],
    _honest: Proxy,
}

/// One answered read.
struct Read {
    id: ReadId,
    result: ReadResult,
    waited: Duration,
}

impl Region {
    async fn new(server: &'static Server) -> Self {
        let world = World::new(server).await;
        world.operator.create_box(&parse(OTHER), &parse("uk")).await.unwrap();
        let [lossy, honest] =
            [Proxy::before(&server.endpoint).await, Proxy::before(&server.endpoint).await];
        let runs = [world.file("runs"), world.file("runs")];
        let first = BoxPlan::usual(&lossy.endpoint);
        // The deployment has one box's keys in this region; the other stands in with an operator's.
        let second = BoxPlan { name: OTHER, user: "operator", ..BoxPlan::usual(&honest.endpoint) };
        let (first, second) = tokio::join!(
            world.wide_agent(first, SLOTS, &runs[0]),
            world.wide_agent(second, SLOTS, &runs[1]),
        );
        for part in ["/picked", "/out/", "/result.json"] {
            for (fault, odds) in FAULTS {
                lossy.add(Rule::new(Kind::Create, part, fault).odds(odds));
            }
        }
        let (record, _agents) = (world.record().await, [first, second]);
        Self { world, record, lossy, runs, _agents, _honest: honest }
    }

    async fn read(&self, number: usize) -> (usize, Read) {
        let context = &self.world.context;
        let sql = format!("SELECT {number} AS number, item FROM orders WHERE id = 1");
        let begun = context.monotonic();
        let offer = self.world.offer_of(&self.record, &sql);
        self.world.write_offer(&offer).await;
        let id = offer.request.id;
        let result = loop {
            context.sleep(LOOK_AGAIN).await;
            if let Some(result) = self.world.object(&Key::Result(id)).await {
                break ReadResult::from_bytes(&result).unwrap();
            }
            let waited = context.monotonic() - begun;
            assert!(waited < LONGEST_WAIT, "read {number}, {id}, is not answered");
        };
        let waited = context.monotonic() - begun;
        assert_eq!(result.state, State::Done, "read {number}: {result:?}");
        let rows = self.world.rows(&offer, result.clone()).await;
        assert_eq!(rows, format!("number\titem\n{number}\tkettle\n"));
        (number, Read { id, result, waited })
    }
}

/// What a run left in the bucket, in the workers' notes and at the proxy.
struct History {
    /// The names of each read's objects.
    objects: BTreeMap<ReadId, BTreeSet<String>>,
    owners: BTreeMap<ReadId, Picked>,
    /// Answered reads by box.
    shares: BTreeMap<String, usize>,
    /// Creates of `picked` that failed for the box that owns the read.
    landed_and_told_otherwise: Vec<ReadId>,
    /// The same for a read that the other box owns.
    failed_and_lost: Vec<ReadId>,
}

impl History {
    async fn of(region: &Region, reads: &BTreeMap<usize, Read>) -> Self {
        let (world, mut objects) = (&region.world, BTreeMap::<_, BTreeSet<_>>::new());
        for key in world.keys(DB_READS).await {
            let (id, rest) = match Key::parse(&key).unwrap() {
                Key::Queue(entry) => (entry.id, "queue".to_owned()),
                Key::Request(id) | Key::Picked(id) | Key::Result(id) | Key::Chunk(id, _) => {
                    (id, key.rsplit_once(&format!("{id}/")).unwrap().1.to_owned())
                }
                other => panic!("{other:?}"),
            };
            assert!(objects.entry(id).or_default().insert(rest));
        }
        let picked = reads.values().map(|read| async move {
            let picked = world.object(&Key::Picked(read.id)).await.unwrap();
            (read.id, Picked::from_bytes(&picked).unwrap())
        });
        let owners: BTreeMap<_, _> = stream::iter(picked).buffer_unordered(16).collect().await;
        let mut shares = BTreeMap::new();
        for picked in owners.values() {
            *shares.entry(picked.box_name.to_string()).or_default() += 1;
        }
        let failed = failed_elections(&region.lossy);
        let own = |id: &ReadId| owners[id].box_name.as_str() == BOX;
        let (landed_and_told_otherwise, failed_and_lost) = failed.into_iter().partition(own);
        Self { objects, owners, shares, landed_and_told_otherwise, failed_and_lost }
    }

    /// J3: every read was run once, by the box that owns it.
    fn one_run_each(&self, region: &Region, reads: &BTreeMap<usize, Read>) {
        let mut ran = BTreeMap::<usize, Vec<&str>>::new();
        for (name, runs) in [BOX, OTHER].into_iter().zip(&region.runs) {
            numbers(runs).for_each(|number| ran.entry(number).or_default().push(name));
        }
        for (number, read) in reads {
            let owner = self.owners[&read.id].box_name.as_str();
            assert_eq!(ran.remove(number), Some(vec![owner]), "read {number}");
        }
        assert_eq!(ran, BTreeMap::new(), "runs of no read");
    }

    /// Every read has one owner, one answer and nothing else.
    fn one_answer_each(&self, reads: &BTreeMap<usize, Read>) {
        let whole = ["out/00000001", "picked", "queue", "request.json", "result.json"];
        let whole = BTreeSet::from(whole.map(str::to_owned));
        assert_eq!(self.objects.len(), reads.len());
        for read in reads.values() {
            assert_eq!(self.objects[&read.id], whole, "{}", read.id);
            assert_eq!(self.owners[&read.id].box_name, read.result.box_name);
            assert_eq!(read.result.last_seq, 1);
        }
    }

    fn figures(&self, reads: &BTreeMap<usize, Read>) -> String {
        let mut waits: Vec<_> = reads.values().map(|read| read.waited.as_millis()).collect();
        waits.sort_unstable();
        let at = |share: usize| waits[(waits.len() - 1) * share / 100];
        format!(
            "waited {} ms p50, {} p99, {} at most; {:?}; {} picked landed and were told \
             otherwise, {} failed and the other box owned",
            at(50),
            at(99),
            at(100),
            self.shares,
            self.landed_and_told_otherwise.len(),
            self.failed_and_lost.len(),
        )
    }
}

/// The reads of whose `picked` the proxy's client was never told that it is created.
fn failed_elections(lossy: &Proxy) -> BTreeSet<ReadId> {
    let mut told = BTreeMap::<ReadId, Vec<Seen>>::new();
    for seen in lossy.seen("/picked") {
        let Ok(Key::Picked(id)) = Key::parse(&seen.asked.key) else { continue };
        if seen.asked.kind == Kind::Create {
            told.entry(id).or_default().push(seen);
        }
    }
    let spoilt = |seen: &Seen| seen.told != seen.done;
    let failed = |tries: &Vec<Seen>| {
        tries.iter().any(spoilt) && tries.iter().all(|seen| seen.told != Some(200))
    };
    told.into_iter().filter(|(_, tries)| failed(tries)).map(|(id, _)| id).collect()
}

/// The numbers of the reads whose statements a box ran.
fn numbers(runs: &Path) -> impl Iterator<Item = usize> {
    let text = std::fs::read_to_string(runs).unwrap();
    let number = |line: &str| line.split_whitespace().nth(1).unwrap().parse().unwrap();
    text.lines().map(number).collect::<Vec<_>>().into_iter()
}
