//! Readiness, admission, draining, and what a crash leaves (db-forward §5.7, §7.1).

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use async_trait::async_trait;
use carlos_box_agent::{AgentConfig, CrashHook, CrashPoint, DiskFloors};
use carlos_bucket::{Chain, Kind, Purpose};
use carlos_protocol::frames::{Sandbox, VERSION};
use carlos_protocol::keys::{Key, edges_chain};
use carlos_protocol::records::{DB_READ_CAPABILITY, Edges, Status};
use carlos_protocol::result::{Code, State};

use crate::support::{TestDisk, World};
use crate::workers::{Hang, Script};

async fn status(world: &World, name: &str) -> Option<Status> {
    let body = world.get(&Key::Status(name.parse().expect("label"))).await?;
    Some(Status::from_bytes(&body).expect("the agent writes what decodes"))
}

async fn edges(world: &World, name: &str) -> Option<(u64, Edges)> {
    let chain = edges_chain(&name.parse().expect("label"));
    let chain = Chain::new(world.bucket.clone(), chain, "test".parse().expect("label"));
    let head = chain.head(Purpose::Claim).await.expect("readable")?;
    Some((head.revision.number(), Edges::from_bytes(&head.content).expect("decodes")))
}

async fn serves(world: &World, name: &str) -> bool {
    let (revision, edges) = edges(world, name).await.expect("published");
    let status = status(world, name).await.expect("published");
    assert_eq!((status.edges_rev, &status.capabilities), (revision, &edges.capabilities));
    edges.serves(DB_READ_CAPABILITY)
}

#[tokio::test(start_paused = true)]
async fn a_box_says_that_it_serves_and_pulses() {
    let world = World::new().await;
    let _agent = world.agent("box-1", Script::default()).await;
    assert!(serves(&world, "box-1").await);
    let (revision, _) = edges(&world, "box-1").await.expect("published");
    world.sleep(200).await;
    let status = status(&world, "box-1").await.expect("published");
    assert!(world.ctx.now_unix() - status.time_unix <= 60);
    assert_eq!(edges(&world, "box-1").await.expect("published").0, revision, "same content");
}

#[tokio::test(start_paused = true)]
async fn t13_a_broken_worker_withdraws_the_capability_and_takes_no_read() {
    let less = Sandbox { seccomp: false, ..Script::default().sandbox };
    let broken = [
        Script { starts: false, ..Script::default() },
        Script { version: VERSION + 1, ..Script::default() },
        Script { sandbox: less, ..Script::default() },
        Script { hang: Hang::BeforeHello, ..Script::default() },
        Script { hang: Hang::Gone, ..Script::default() },
    ];
    for script in broken {
        let world = World::new().await;
        let agent = world.agent("box-1", Script::default()).await;
        assert!(serves(&world, "box-1").await);
        agent.workers.follow(script.clone());
        world.sleep(320).await;
        assert!(!serves(&world, "box-1").await, "{script:?}");
        let asked = world.ask("SELECT 1").await;
        world.sleep(30).await;
        assert_eq!(world.get(&Key::Picked(asked.id)).await, None);
        agent.workers.follow(Script::default());
        world.sleep(45).await;
        assert!(serves(&world, "box-1").await, "{script:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn t13_a_read_s_worker_that_fails_to_start_is_followed_by_a_probe_at_once() {
    let world = World::new().await;
    let agent = world.agent("box-1", Script::default()).await;
    agent.workers.follow(Script { starts: false, ..Script::default() });
    let asked = world.ask("SELECT 1").await;
    assert_eq!(world.ending(asked.id).await, (State::Failed, Code::Interrupted));
    world.sleep(1).await;
    assert!(!serves(&world, "box-1").await);
}

#[tokio::test(start_paused = true)]
async fn t13_a_box_with_two_reads_still_probes_and_takes_no_third() {
    let world = World::new().await;
    let script = Script { hang: Hang::BeforeReady, ..Script::default() };
    let agent = world.agent("box-1", script).await;
    let first = world.ask("SELECT 1").await;
    let second = world.ask("SELECT 2").await;
    world.sleep(5).await;
    let third = world.ask("SELECT 3").await;
    world.sleep(20).await;
    assert!(world.get(&Key::Picked(first.id)).await.is_some());
    assert!(world.get(&Key::Picked(second.id)).await.is_some());
    assert_eq!(world.get(&Key::Picked(third.id)).await, None);
    // A slot that comes free within the window takes the read that waited.
    world.put(&Key::Cancel(first.id), "".into()).await;
    world.sleep(8).await;
    assert!(world.get(&Key::Picked(third.id)).await.is_some());
    world.sleep(310).await;
    assert!(serves(&world, "box-1").await);
    assert_eq!(agent.workers.seen.most.load(Ordering::SeqCst), 3);
}

#[tokio::test(start_paused = true)]
async fn a_slot_is_held_until_the_worker_has_stopped() {
    let world = World::new().await;
    let script = Script { lingers: Duration::from_secs(40), ..Script::default() };
    let _agent = world.agent("box-1", script).await;
    world.sleep(45).await;
    let asked = [world.ask("SELECT 1").await, world.ask("SELECT 2").await];
    for asked in &asked {
        world.rows(asked).await;
    }
    let third = world.ask("SELECT 3").await;
    world.sleep(30).await;
    assert_eq!(world.get(&Key::Picked(third.id)).await, None);
    world.rows(&third).await;
}

#[tokio::test(start_paused = true)]
async fn t12_orphans_block_reads_and_skip_probes() {
    let world = World::new().await;
    let agent = world.agent("box-1", Script::default()).await;
    agent.workers.seen.orphans.store(1, Ordering::SeqCst);
    let started = agent.workers.seen.started.load(Ordering::SeqCst);
    let asked = world.ask("SELECT 1").await;
    world.sleep(400).await;
    assert_eq!(world.get(&Key::Picked(asked.id)).await, None);
    assert_eq!(agent.workers.seen.started.load(Ordering::SeqCst), started);
    assert!(serves(&world, "box-1").await, "a skipped probe is no failed one");
    agent.workers.seen.orphans.store(0, Ordering::SeqCst);
    let asked = world.ask("SELECT 2").await;
    world.rows(&asked).await;
}

#[tokio::test(start_paused = true)]
async fn t12_a_count_that_fails_is_unknown_and_never_none() {
    let world = World::new().await;
    let agent = world.agent("box-1", Script::default()).await;
    agent.workers.seen.uncounted.store(true, Ordering::SeqCst);
    let started = agent.workers.seen.started.load(Ordering::SeqCst);
    let asked = world.ask("SELECT 1").await;
    world.sleep(400).await;
    assert_eq!(world.get(&Key::Picked(asked.id)).await, None);
    assert_eq!(agent.workers.seen.started.load(Ordering::SeqCst), started, "no probe either");
    assert!(serves(&world, "box-1").await, "the last probe's result stands");
    agent.workers.seen.uncounted.store(false, Ordering::SeqCst);
    let asked = world.ask("SELECT 2").await;
    world.rows(&asked).await;
}

#[tokio::test(start_paused = true)]
async fn t12_a_box_that_starts_beside_an_orphan_serves_once_it_is_gone() {
    let world = World::new().await;
    let workers = world.workers(Script::default());
    workers.seen.orphans.store(1, Ordering::SeqCst);
    let ports = world.ports("box-1", Arc::clone(&workers));
    let agent = world.start(world.config("box-1"), ports, workers).await;
    world.sleep(60).await;
    assert!(!serves(&world, "box-1").await);
    assert_eq!(agent.workers.seen.started.load(Ordering::SeqCst), 0);
    agent.workers.seen.orphans.store(0, Ordering::SeqCst);
    world.sleep(6).await;
    assert!(serves(&world, "box-1").await);
}

#[tokio::test(start_paused = true)]
async fn t13_a_probe_that_found_no_place_says_nothing_and_one_that_had_a_place_does() {
    let world = World::new().await;
    let agent = world.agent("box-1", Script::default()).await;
    agent.workers.seen.crowded.store(true, Ordering::SeqCst);
    agent.workers.follow(Script { hang: Hang::Gone, ..Script::default() });
    world.sleep(400).await;
    assert!(serves(&world, "box-1").await, "closed by a manager at its limit");
    agent.workers.seen.crowded.store(false, Ordering::SeqCst);
    world.sleep(6).await;
    assert!(!serves(&world, "box-1").await, "closed over a worker that cannot start");
}

#[tokio::test(start_paused = true)]
async fn t13_a_failed_probe_counts_before_its_worker_has_stopped() {
    let world = World::new().await;
    let agent = world.agent("box-1", Script::default()).await;
    let lingers = Duration::from_secs(3_600);
    agent.workers.follow(Script { hang: Hang::Gone, lingers, ..Script::default() });
    world.sleep(310).await;
    assert!(!serves(&world, "box-1").await);
    // And it does not keep the agent from stopping.
    agent.shutdown.cancel();
    world.ctx.timeout(Duration::from_secs(30), agent.task).await.expect("it stops").unwrap();
}

fn floors(bytes: u64) -> DiskFloors {
    DiskFloors { reserve: bytes, keep_bytes: bytes, keep_percent: 0 }
}

#[tokio::test(start_paused = true)]
async fn a_disk_below_its_floor_stays_out_of_the_election() {
    let world = World::new().await;
    let workers = world.workers(Script::default());
    let mut ports = world.ports("box-1", Arc::clone(&workers));
    let disk = Arc::new(TestDisk(AtomicU64::new(1_999)));
    ports.disk = Arc::clone(&disk) as Arc<_>;
    let config = AgentConfig { floors: floors(1_000), ..world.config("box-1") };
    let _agent = world.start(config, ports, workers).await;
    let asked = world.ask("SELECT 1").await;
    world.sleep(20).await;
    assert_eq!(world.get(&Key::Picked(asked.id)).await, None);
    // Room for the floor, none for the plan's 26,384 bytes.
    disk.0.store(20_000, Ordering::SeqCst);
    assert_eq!(world.ending(asked.id).await, (State::Failed, Code::NoRoom));
}

#[tokio::test(start_paused = true)]
async fn t12_two_reads_on_a_disk_for_one_leave_one_without_room() {
    let world = World::new().await;
    let script = Script { pause: Duration::from_secs(20), ..Script::default() };
    let workers = world.workers(script);
    let mut ports = world.ports("box-1", Arc::clone(&workers));
    ports.disk = Arc::new(TestDisk(AtomicU64::new(40_000)));
    let config = AgentConfig { floors: floors(1_000), ..world.config("box-1") };
    let _agent = world.start(config, ports, workers).await;
    let asked = [world.ask("SELECT 1").await, world.ask("SELECT 2").await];
    let mut endings = vec![world.ending(asked[0].id).await, world.ending(asked[1].id).await];
    endings.sort_by_key(|(state, _)| *state != State::Done);
    assert_eq!(endings, [(State::Done, Code::None), (State::Failed, Code::NoRoom)]);
}

#[tokio::test(start_paused = true)]
async fn a_box_that_is_not_to_serve_says_so_and_lists_nothing() {
    let changes: [fn(&mut AgentConfig); 3] = [
        |config| config.reads = false,
        |config| config.host_claim = true,
        |config| config.roots = Default::default(),
    ];
    for change in changes {
        let world = World::new().await;
        let mut config = world.config("box-1");
        change(&mut config);
        let workers = world.workers(Script::default());
        let ports = world.ports("box-1", Arc::clone(&workers));
        let agent = world.start(config, ports, workers).await;
        let asked = world.ask("SELECT 1").await;
        world.sleep(60).await;
        assert!(!serves(&world, "box-1").await);
        assert_eq!(world.get(&Key::Picked(asked.id)).await, None);
        assert_eq!(agent.workers.seen.started.load(Ordering::SeqCst), 0);
    }
}

#[tokio::test(start_paused = true)]
async fn a_draining_box_finishes_what_it_holds_and_takes_nothing_new() {
    let world = World::new().await;
    let script = Script { pause: Duration::from_secs(5), ..Script::default() };
    let agent = world.agent("box-1", script).await;
    let held = world.ask("SELECT 1").await;
    world.sleep(3).await;
    agent.shutdown.cancel();
    world.sleep(1).await;
    assert!(edges(&world, "box-1").await.expect("published").1.draining);
    let late = world.ask("SELECT 2").await;
    agent.task.await.expect("the agent returns");
    world.rows(&held).await;
    assert_eq!(world.get(&Key::Picked(late.id)).await, None);
    assert_eq!(agent.workers.seen.running.load(Ordering::SeqCst), 0);
}

#[tokio::test(start_paused = true)]
async fn a_read_that_outlasts_the_grace_ends_interrupted() {
    let world = World::new().await;
    let script = Script { hang: Hang::AfterOutput, ..Script::default() };
    let agent = world.agent("box-1", script).await;
    let asked = world.ask("SELECT 1").await;
    world.sleep(5).await;
    let began = world.ctx.monotonic();
    agent.shutdown.cancel();
    agent.task.await.expect("the agent returns");
    assert!(world.ctx.monotonic() - began < Duration::from_secs(15));
    let result = world.result(asked.id).await;
    assert_eq!((result.state, result.code), (State::Failed, Code::Interrupted));
    assert_eq!(result.last_seq, 1);
}

#[tokio::test(start_paused = true)]
async fn an_idle_hour_costs_sweeps_and_polls_and_no_more() {
    let world = World::new().await;
    let workers = world.workers(Script::default());
    let ports = world.ports("box-1", Arc::clone(&workers));
    let bucket = ports.bucket.clone();
    let _agent = world.start(world.config("box-1"), ports, workers).await;
    world.sleep(60).await;
    let sent = |kind| bucket.counters().of(kind).sent;
    let before = [Kind::Create, Kind::Get, Kind::List, Kind::Replace].map(sent);
    world.sleep(3_600).await;
    let after = [Kind::Create, Kind::Get, Kind::List, Kind::Replace].map(sent);
    let [creates, gets, lists, pulses] = std::array::from_fn(|i| after[i] - before[i]);
    // One look every 2 s, one sweep every 30 s with a second hour near the turn, a pulse a minute.
    assert_eq!(creates, 0);
    assert!((1_700..=1_805).contains(&gets), "{gets} GETs");
    assert!((110..=130).contains(&lists), "{lists} LISTs");
    assert!((59..=61).contains(&pulses), "{pulses} pulses");
}

#[tokio::test(start_paused = true)]
async fn a_read_costs_the_requests_the_design_names() {
    let world = World::new().await;
    let workers = world.workers(Script::default());
    let ports = world.ports("box-1", Arc::clone(&workers));
    let bucket = ports.bucket.clone();
    let _agent = world.start(world.config("box-1"), ports, workers).await;
    let creates = || bucket.counters().of(Kind::Create).sent;
    let before = creates();
    let asked = world.ask("SELECT 1").await;
    world.rows(&asked).await;
    world.sleep(1).await;
    // picked, one chunk, one result (db-forward §5.8).
    assert_eq!(creates() - before, 3);
}

/// Holds the agent for ever at one point, as the moment before a kill.
struct StopAt(CrashPoint);

#[async_trait]
impl CrashHook for StopAt {
    async fn reached(&self, point: CrashPoint) {
        if point == self.0 {
            std::future::pending::<()>().await;
        }
    }
}

/// Kills an agent at `point` of a read and starts it again: what the read came to.
async fn crash_at(point: CrashPoint) -> (World, carlos_protocol::ids::ReadId, usize) {
    let world = World::new().await;
    let workers = world.workers(Script::default());
    let mut ports = world.ports("box-1", Arc::clone(&workers));
    ports.crash = Arc::new(StopAt(point));
    let agent = world.start(world.config("box-1"), ports, Arc::clone(&workers)).await;
    let asked = world.ask("SELECT 1").await;
    world.sleep(4).await;
    agent.task.abort();
    assert!(agent.task.await.is_err_and(|error| error.is_cancelled()));
    assert_eq!(workers.seen.running.load(Ordering::SeqCst), 0, "{point:?}: a worker outlived");
    let ports = world.ports("box-1", Arc::clone(&workers));
    let again = world.start(world.config("box-1"), ports, workers).await;
    world.sleep(30).await;
    let statements = again.workers.seen.statements().len();
    (world, asked.id, statements)
}

#[tokio::test(start_paused = true)]
async fn a_crash_before_picked_leaves_the_read_to_the_next_attempt() {
    for point in [CrashPoint::Verified, CrashPoint::BeforePicked] {
        let (world, id, statements) = crash_at(point).await;
        assert_eq!(world.ending(id).await, (State::Done, Code::None), "{point:?}");
        assert_eq!(statements, 1, "{point:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_crash_after_picked_leaves_a_read_that_nobody_runs_again() {
    let points = [
        (CrashPoint::PickedOwned, 0, 0),
        (CrashPoint::Planned, 0, 0),
        (CrashPoint::WorkerStarted, 0, 0),
        (CrashPoint::Fed, 0, 0),
        (CrashPoint::WorkerReady, 0, 0),
        (CrashPoint::CheckedAgain, 0, 0),
        (CrashPoint::ChunkConfirmed(1), 1, 1),
        (CrashPoint::BeforeResult, 1, 1),
    ];
    for (point, statements, chunks) in points {
        let (world, id, ran) = crash_at(point).await;
        assert!(world.get(&Key::Picked(id)).await.is_some(), "{point:?}");
        assert_eq!(world.get(&Key::Result(id)).await, None, "{point:?}");
        assert_eq!((ran, world.chunks(id).await), (statements, chunks), "{point:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_crash_after_the_result_changes_nothing() {
    for point in [CrashPoint::ResultWritten, CrashPoint::WorkerStopped] {
        let (world, id, statements) = crash_at(point).await;
        assert_eq!(world.ending(id).await, (State::Done, Code::None), "{point:?}");
        assert_eq!(statements, 1, "{point:?}");
    }
}
