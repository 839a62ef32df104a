//! The record before, during and after the download, and a replica that changes (db-forward §8.2).

use std::sync::Arc;
use std::sync::atomic::Ordering;

use carlos_bucket::hook::{HookStore, Side};
use carlos_bucket::layer::Op;
use carlos_ltx::{HEADER_LEN, Header, Txid, TxidRange};
use carlos_protocol::Ulid;
use carlos_protocol::ids::Account;
use carlos_protocol::limits::PLAN_FILES;
use carlos_protocol::records::{HostRecord, Move};
use carlos_protocol::result::{Code, State};
use carlos_protocol::time::Seconds;
use object_store::ObjectStoreExt;

use crate::support::{HOST, Running, START_MS, World, instance};
use crate::workers::Script;

/// The ways an instance stops being the one that was admitted, and the code of each.
fn changes() -> Vec<(&'static str, HostRecord, Code)> {
    let base = instance(HOST, Ulid::from_parts(START_MS - 1_000, 1));
    let of = |change: fn(&mut HostRecord)| {
        let mut record = base.clone();
        change(&mut record);
        record
    };
    let moving = Move { to: "us".parse().expect("label"), since: Seconds::new(0) };
    let moving = HostRecord { moving: Some(moving), ..base.clone() };
    vec![
        ("moved", of(|r| r.region = "us".parse().expect("label")), Code::RecordChanged),
        ("recreated", of(|r| r.created_at = Ulid::from_parts(START_MS, 2)), Code::RecordChanged),
        (
            "recreated elsewhere",
            of(|r| r.account = Account::parse("other").expect("label")),
            Code::RecordChanged,
        ),
        ("class", of(|r| r.class = "always-on".parse().expect("label")), Code::RecordChanged),
        ("pooled", of(|r| r.pooled = true), Code::RecordChanged),
        ("fleet", of(|r| r.fleet = true), Code::RecordChanged),
        ("deleted", of(|r| r.deleted = true), Code::RecordChanged),
        ("moving", moving, Code::Moving),
    ]
}

/// Where in a read the record changes.
#[derive(Clone, Copy, Debug)]
enum When {
    BeforePick,
    WhilePlanning,
    WhileDownloading,
}

async fn change_at(when: When, what: &str, record: HostRecord, code: Code) {
    let world = World::new().await;
    let (data, hooks) = HookStore::wrap(Arc::clone(&world.data));
    let workers = world.workers(Script::default());
    let mut ports = world.ports("box-1", Arc::clone(&workers));
    ports.replicas = Some(world.replicas(data));
    let agent = world.start(world.config("box-1"), ports, workers).await;
    let mut pause = match when {
        When::BeforePick => None,
        When::WhilePlanning => Some(hooks.pause(Side::After, Op::List, "/0009")),
        When::WhileDownloading => Some(hooks.pause(Side::After, Op::Get, ".ltx")),
    };
    if pause.is_none() {
        world.put_record(&record).await;
    }
    let asked = world.ask("SELECT 1").await;
    if let Some(mut pause) = pause.take() {
        pause.reached().await;
        world.put_record(&record).await;
        pause.release();
    }
    let name = format!("{what}, {when:?}");
    assert_eq!(world.ending(asked.id).await, (State::Refused, code), "{name}");
    assert_eq!(world.chunks(asked.id).await, 0, "{name}");
    assert_eq!(agent.workers.seen.statements().len(), 0, "{name}");
    world.sleep(1).await;
    assert_eq!(agent.workers.seen.running.load(Ordering::SeqCst), 0, "{name}");
}

#[tokio::test(start_paused = true)]
async fn a_record_changed_before_the_pick_reads_nothing() {
    for (what, record, code) in changes() {
        change_at(When::BeforePick, what, record, code).await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_record_changed_while_planning_runs_nothing() {
    for (what, record, code) in changes() {
        change_at(When::WhilePlanning, what, record, code).await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_record_changed_while_downloading_runs_nothing() {
    for (what, record, code) in changes() {
        change_at(When::WhileDownloading, what, record, code).await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_record_that_is_not_there_is_record_changed() {
    let mut world = World::new().await;
    world.record = instance("other.example.com", Ulid::from_parts(START_MS, 9));
    let _agent = world.agent("box-1", Script::default()).await;
    let asked = world.ask("SELECT 1").await;
    assert_eq!(world.ending(asked.id).await, (State::Refused, Code::RecordChanged));
}

fn range(min: u64, max: u64) -> TxidRange {
    TxidRange::new(Txid(min), Txid(max)).expect("a range")
}

async fn agent_over_hooks(world: &World) -> (Running, HookStore) {
    let (data, hooks) = HookStore::wrap(Arc::clone(&world.data));
    let workers = world.workers(Script::default());
    let mut ports = world.ports("box-1", Arc::clone(&workers));
    ports.replicas = Some(world.replicas(data));
    (world.start(world.config("box-1"), ports, workers).await, hooks)
}

/// Takes `gone` away just after it was listed.
async fn vanish(world: &World, hooks: &HookStore, gone: TxidRange, then: TxidRange) {
    let mut pause = hooks.pause(Side::After, Op::List, "/0009");
    pause.reached().await;
    world.replicate(then.min().0, then.max().0).await;
    world.data.delete(&world.replica_file(gone)).await.expect("it was there");
    pause.release();
}

#[tokio::test(start_paused = true)]
async fn a_file_that_vanishes_once_is_planned_around() {
    let world = World::new().await;
    let (agent, hooks) = agent_over_hooks(&world).await;
    let asked = world.ask("SELECT 1").await;
    vanish(&world, &hooks, range(1, 1), range(1, 5)).await;
    let (_, summary) = world.rows(&asked).await;
    assert_eq!(summary.txid.0, 5);
    assert_eq!(agent.workers.seen.statements().len(), 1);
    assert_eq!(agent.workers.seen.most.load(Ordering::SeqCst), 1);
}

#[tokio::test(start_paused = true)]
async fn a_file_that_vanishes_in_the_middle_starts_a_second_worker_and_checks_again() {
    let world = World::new().await;
    world.replicate(2, 2).await;
    let (agent, hooks) = agent_over_hooks(&world).await;
    let mut pause = hooks.pause(Side::Before, Op::Get, "0000/0000000000000002");
    let asked = world.ask("SELECT 1").await;
    pause.reached().await;
    // The header was asked first; let it go, then take the file away before its bytes.
    let mut second = hooks.pause(Side::Before, Op::Get, "0000/0000000000000002");
    pause.release();
    second.reached().await;
    world.data.delete(&world.replica_file(range(2, 2))).await.expect("it was there");
    world.replicate(1, 3).await;
    let moved = HostRecord { region: "us".parse().expect("label"), ..world.record.clone() };
    world.put_record(&moved).await;
    second.release();
    // The second attempt begins with check A of its own.
    assert_eq!(world.ending(asked.id).await, (State::Refused, Code::RecordChanged));
    assert_eq!(agent.workers.seen.statements().len(), 0);
}

#[tokio::test(start_paused = true)]
async fn a_replica_that_changes_twice_says_so() {
    let world = World::new().await;
    let (agent, hooks) = agent_over_hooks(&world).await;
    let asked = world.ask("SELECT 1").await;
    vanish(&world, &hooks, range(1, 1), range(1, 5)).await;
    vanish(&world, &hooks, range(1, 5), range(1, 9)).await;
    assert_eq!(world.ending(asked.id).await, (State::Failed, Code::ChangedTwice));
    assert_eq!(agent.workers.seen.statements().len(), 0);
}

#[tokio::test(start_paused = true)]
async fn a_second_plan_never_reaches_less_than_the_first() {
    let world = World::new().await;
    world.replicate(1, 5).await;
    world.data.delete(&world.replica_file(range(1, 1))).await.expect("it was there");
    let (_agent, hooks) = agent_over_hooks(&world).await;
    let asked = world.ask("SELECT 1").await;
    vanish(&world, &hooks, range(1, 5), range(1, 4)).await;
    assert_eq!(world.ending(asked.id).await, (State::Failed, Code::ChangedTwice));
}

#[tokio::test(start_paused = true)]
async fn an_empty_replica_and_a_gone_history_have_their_codes() {
    let world = World::new().await;
    let _agent = world.agent("box-1", Script::default()).await;
    let key = carlos_protocol::seal::ReplyKey::generate(&mut world.ctx.entropy());
    let mut request = world.request("SELECT 1", &key);
    let long_ago = carlos_protocol::time::Millis::new(START_MS - 86_400_000);
    request.at = carlos_protocol::time::At::Time(long_ago);
    let id = request.id;
    world.post(request.into()).await;
    assert_eq!(world.ending(id).await, (State::Failed, Code::HistoryGone));
    let result = world.result(id).await;
    let summary = carlos_protocol::summary::Summary::open(&key, id, &result).expect("sealed");
    assert!(summary.oldest.is_some());
    world.data.delete(&world.replica_file(range(1, 1))).await.expect("it was there");
    let asked = world.ask("SELECT 1").await;
    assert_eq!(world.ending(asked.id).await, (State::Failed, Code::NothingReplicated));
}

/// Not `interrupted`, which tells a member to try again: the next try finds the same files.
#[tokio::test(start_paused = true)]
async fn a_replica_of_more_files_than_a_plan_holds_fails_its_check() {
    let world = World::new().await;
    for txid in 2..=PLAN_FILES as u64 + 1 {
        let body = vec![0; HEADER_LEN].into();
        world.data.put(&world.replica_file(range(txid, txid)), body).await.expect("room");
    }
    let agent = world.agent("box-1", Script::default()).await;
    let key = carlos_protocol::seal::ReplyKey::generate(&mut world.ctx.entropy());
    let request = world.request("SELECT 1", &key);
    let id = request.id;
    world.post(request.into()).await;
    assert_eq!(world.ending(id).await, (State::Failed, Code::CheckFailed));
    let result = world.result(id).await;
    carlos_protocol::summary::Summary::open(&key, id, &result).expect("sealed");
    assert_eq!(agent.workers.seen.statements().len(), 0);
}

/// A bit of the page count has flipped: the size is over the cap, and it is not the truth.
#[tokio::test(start_paused = true)]
async fn a_page_count_that_no_file_could_hold_is_damage() {
    let world = World::new().await;
    let range = TxidRange::new(Txid(1), Txid(9)).unwrap();
    let mut body = Header::new(4096, 1 << 20 | 4, range, 0).encode().to_vec();
    body.resize(10_000, 7);
    world.data.put(&world.replica_file(range), body.into()).await.unwrap();
    let agent = world.agent("box-1", Script::default()).await;
    let started = agent.workers.seen.started.load(Ordering::SeqCst);
    let asked = world.ask("SELECT 1").await;
    let result = world.result(asked.id).await;
    assert_eq!((result.state, &result.code), (State::Failed, &Code::CheckFailed));
    assert_eq!(agent.workers.seen.started.load(Ordering::SeqCst), started);
}

#[tokio::test(start_paused = true)]
async fn a_copy_over_the_cap_moves_no_byte() {
    let world = World::new().await;
    let mut config = world.config("box-1");
    config.max_restored = 4 * 4096 - 1;
    let workers = world.workers(Script::default());
    let ports = world.ports("box-1", Arc::clone(&workers));
    let agent = world.start(config, ports, workers).await;
    let started = agent.workers.seen.started.load(Ordering::SeqCst);
    let asked = world.ask("SELECT 1").await;
    let result = world.result(asked.id).await;
    assert_eq!((result.state, &result.code), (State::Failed, &Code::TooLarge));
    let summary = carlos_protocol::summary::Summary::open(&asked.key, asked.id, &result);
    let summary = summary.expect("sealed for this read");
    assert_eq!((summary.restored_bytes, summary.cap_bytes), (4 * 4096, 4 * 4096 - 1));
    assert_eq!(agent.workers.seen.started.load(Ordering::SeqCst), started);
}

/// A request that hangs costs its own time and another try, not the ten minutes of the restore.
#[tokio::test(start_paused = true)]
async fn a_data_bucket_that_hangs_once_delays_a_read_and_no_more() {
    for (op, key) in [(Op::List, "/0009"), (Op::Get, ".ltx")] {
        let world = World::new().await;
        let (agent, hooks) = agent_over_hooks(&world).await;
        let mut pause = hooks.pause(Side::Before, op, key);
        let began = world.ctx.monotonic();
        let asked = world.ask("SELECT 1").await;
        pause.reached().await;
        world.rows(&asked).await;
        assert!((world.ctx.monotonic() - began).as_secs() < 75, "{op:?}");
        assert_eq!(agent.workers.seen.statements().len(), 1);
    }
}
