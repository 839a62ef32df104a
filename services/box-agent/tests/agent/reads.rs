//! Reads from the queue to their result.

use std::sync::atomic::Ordering;
use std::time::Duration;

use carlos_protocol::frames::Outcome;
use carlos_protocol::keys::Key;
use carlos_protocol::result::{Code, State};

use crate::support::World;
use crate::workers::{COPY_TIME, Hang, PAGE_SIZE, PAGES, Script};

#[tokio::test(start_paused = true)]
async fn a_read_reaches_its_result() {
    let world = World::new().await;
    let agent = world.agent("box-1", Script::default()).await;
    let asked = world.ask("SELECT 1").await;
    let (rows, summary) = world.rows(&asked).await;
    assert_eq!(rows, b"rows");
    assert_eq!((summary.rows, summary.bytes), (1, 4));
    assert_eq!(summary.txid.0, 1);
    assert_eq!(summary.time.map(|time| time.unix_ms()), Some(COPY_TIME));
    assert_eq!(summary.restored_bytes, u64::from(PAGES * PAGE_SIZE));
    assert_eq!(agent.workers.seen.statements(), ["SELECT 1"]);
    world.sleep(1).await;
    assert_eq!(agent.workers.seen.running.load(Ordering::SeqCst), 0);
}

#[tokio::test(start_paused = true)]
async fn a_read_reaches_its_result_over_directories() {
    let root = tempfile::tempdir().expect("a directory");
    let open = |name: &str| {
        let url = carlos_bucket::file_url(&root.path().join(name));
        carlos_bucket::open_store(&url).expect("a directory store")
    };
    let world = World::over(open("deployment"), open("data")).await;
    let agents = [
        world.agent("box-1", Script::default()).await,
        world.agent("box-2", Script::default()).await,
    ];
    for number in 0..10 {
        let asked = world.ask(&format!("SELECT {number}")).await;
        assert_eq!(world.rows(&asked).await.0, b"rows");
    }
    let ran = agents.iter().map(|agent| agent.workers.seen.statements().len());
    assert_eq!(ran.sum::<usize>(), 10);
}

#[tokio::test(start_paused = true)]
async fn an_empty_answer_still_has_one_last_chunk() {
    let world = World::new().await;
    let _agent = world.agent("box-1", Script { output: Vec::new(), ..Script::default() }).await;
    let asked = world.ask("SELECT 1 WHERE 0").await;
    let (rows, summary) = world.rows(&asked).await;
    assert!(rows.is_empty());
    assert_eq!((world.chunks(asked.id).await, summary.bytes), (1, 0));
}

#[tokio::test(start_paused = true)]
async fn output_is_cut_by_size_and_by_age() {
    let world = World::new().await;
    let output = vec![vec![1; 600 << 10], vec![2; 10], vec![3; 10]];
    let script = Script { output, pause: Duration::from_millis(1_500), ..Script::default() };
    let _agent = world.agent("box-1", script).await;
    let asked = world.ask("SELECT 1").await;
    let (rows, _) = world.rows(&asked).await;
    assert_eq!(rows.len(), (600 << 10) + 20);
    // Two full chunks and the 88 KiB after them, two aged ones, and the last.
    assert_eq!(world.chunks(asked.id).await, 6);
}

#[tokio::test(start_paused = true)]
async fn a_worker_s_end_becomes_the_read_s() {
    let cases = [
        (Outcome::SqlError, Code::SqlError),
        (Outcome::Timeout, Code::Timeout),
        (Outcome::OutputCap, Code::OutputCap),
        (Outcome::Internal, Code::Interrupted),
    ];
    for (outcome, code) in cases {
        let world = World::new().await;
        let message = "no such table: ordres".to_owned();
        let _agent = world.agent("box-1", Script { outcome, message, ..Script::default() }).await;
        let asked = world.ask("SELECT * FROM ordres").await;
        assert_eq!(world.ending(asked.id).await, (State::Failed, code.clone()));
        let result = world.result(asked.id).await;
        let summary = carlos_protocol::summary::Summary::open(&asked.key, asked.id, &result);
        let shown = summary.expect("sealed for this read").sql_error;
        assert_eq!(shown.is_empty(), code != Code::SqlError);
    }
}

#[tokio::test(start_paused = true)]
async fn a_worker_that_refuses_its_input_ends_the_read_before_any_chunk() {
    for (outcome, code) in [
        (Outcome::CheckFailed, Code::CheckFailed),
        (Outcome::TooLarge, Code::TooLarge),
        (Outcome::NoRoom, Code::NoRoom),
        (Outcome::RestoreTimeout, Code::Interrupted),
    ] {
        let world = World::new().await;
        let script = Script { refuses: Some(outcome), ..Script::default() };
        let _agent = world.agent("box-1", script).await;
        let asked = world.ask("SELECT 1").await;
        assert_eq!(world.ending(asked.id).await, (State::Failed, code));
        assert_eq!(world.chunks(asked.id).await, 0);
    }
}

#[tokio::test(start_paused = true)]
async fn more_rows_than_the_cap_end_the_read() {
    let world = World::new().await;
    let output = vec![vec![0; 1 << 20]; 65];
    let _agent = world.agent("box-1", Script { output, ..Script::default() }).await;
    let asked = world.ask("SELECT 1").await;
    assert_eq!(world.ending(asked.id).await, (State::Failed, Code::OutputCap));
}

#[tokio::test(start_paused = true)]
async fn totals_that_are_not_the_output_s_are_not_believed() {
    let world = World::new().await;
    let _agent = world.agent("box-1", Script { lies: true, ..Script::default() }).await;
    let asked = world.ask("SELECT 1").await;
    assert_eq!(world.ending(asked.id).await, (State::Failed, Code::Interrupted));
}

#[tokio::test(start_paused = true)]
async fn cancel_ends_a_read_within_its_poll() {
    for hang in [Hang::BeforeReady, Hang::AfterOutput] {
        let world = World::new().await;
        let agent = world.agent("box-1", Script { hang, ..Script::default() }).await;
        let asked = world.ask("SELECT 1").await;
        world.sleep(20).await;
        assert_eq!(agent.workers.seen.running.load(Ordering::SeqCst), 1);
        world.put(&Key::Cancel(asked.id), "".into()).await;
        world.sleep(6).await;
        let body = world.get(&Key::Result(asked.id)).await;
        assert!(body.is_some(), "{hang:?}: no result 6 s after cancel");
        assert_eq!(world.ending(asked.id).await, (State::Cancelled, Code::None));
        assert_eq!(agent.workers.seen.running.load(Ordering::SeqCst), 0);
    }
}

#[tokio::test(start_paused = true)]
async fn a_read_that_was_cancelled_before_the_election_is_left_alone() {
    let world = World::new().await;
    let key = carlos_protocol::seal::ReplyKey::generate(&mut world.ctx.entropy());
    let request = world.request("SELECT 1", &key);
    let id = request.id;
    world.put(&Key::Cancel(id), "".into()).await;
    let _agent = world.agent("box-1", Script::default()).await;
    world.post(request.into()).await;
    world.sleep(90).await;
    assert_eq!(world.get(&Key::Picked(id)).await, None);
}

#[tokio::test(start_paused = true)]
async fn restore_and_owner_deadlines_end_a_silent_worker() {
    for (hang, minutes) in [(Hang::BeforeReady, 10), (Hang::AfterOutput, 20)] {
        let world = World::new().await;
        let agent = world.agent("box-1", Script { hang, ..Script::default() }).await;
        let asked = world.ask("SELECT 1").await;
        world.sleep(minutes * 60 - 5).await;
        assert_eq!(world.get(&Key::Result(asked.id)).await, None, "{hang:?}: too early");
        world.sleep(15).await;
        assert!(world.get(&Key::Result(asked.id)).await.is_some(), "{hang:?}: too late");
        assert_eq!(world.ending(asked.id).await, (State::Failed, Code::Interrupted));
        assert_eq!(agent.workers.seen.running.load(Ordering::SeqCst), 0);
    }
}

#[tokio::test(start_paused = true)]
async fn a_lost_serial_costs_one_sweep() {
    let world = World::new().await;
    let _agent = world.agent("box-1", Script::default()).await;
    world.sleep(120).await;
    let key = carlos_protocol::seal::ReplyKey::generate(&mut world.ctx.entropy());
    let request: carlos_protocol::request::ReadRequest = world.request("SELECT 1", &key).into();
    let envelope = world.root.sign(&request).expect("small").to_bytes();
    world.put(&Key::Request(request.id), envelope.into()).await;
    world.put(&Key::Queue(request.queue_entry()), "".into()).await;
    world.sleep(33).await;
    assert!(world.get(&Key::Picked(request.id)).await.is_some(), "no sweep found the entry");
}
