//! T16: late writes are harmless, and nothing under `db-reads/` is deleted or replaced
//! (db-forward J1, J2, §11.4).

use std::collections::BTreeMap;
use std::time::Duration;

use carlos_bucket::fault::{Fault, Rule};
use carlos_bucket::hook::Side;
use carlos_bucket::layer::Op;
use carlos_protocol::copy::Exit;
use carlos_protocol::ids::ReadId;
use carlos_protocol::keys::{DB_READS, Key};
use carlos_protocol::result::{ReadResult, State};
use carlos_tests_reads::{Entry, Keeping, Ran, RunningBox, RunningConsole, View, World};

/// Lets the box never see a cancel, so that it writes on after everybody else has gone.
fn deafen(uk: &RunningBox) {
    uk.view.faults.add(Rule::new(Op::Get, Fault::Hidden).on("/cancel").always());
}

/// Waits until the box has written its whole answer, and shows that nobody noticed.
async fn late_and_harmless(world: &World, console: &RunningConsole, id: ReadId) {
    world.appears(&Key::Cancel(id)).await;
    let before = console.view.ledger.of(&id.to_string());
    let activity = world.keys("activity/").await;
    let result = ReadResult::from_bytes(&world.appears(&Key::Result(id)).await).unwrap();
    assert_eq!(result.state, State::Done);
    assert!(world.chunks(id).await > 1, "the late answer has several chunks");
    let objects = world.objects_of(id).await;
    console.query(world, World::SQL).await.printed(World::TSV);
    assert_eq!(console.view.ledger.of(&id.to_string()), before, "the console looked or wrote");
    assert_eq!(world.objects_of(id).await, objects);
    assert_eq!(world.keys("activity/").await.len(), activity.len() + 1, "one for the next read");
}

async fn after_a_timeout(keeping: Keeping) {
    let world = World::with_shop(keeping).await;
    let console = world
        .console_waiting(|timings| {
            timings.owner = Duration::from_millis(500);
            timings.grace = Duration::from_millis(200);
        })
        .await;
    let uk = world.start_box("uk-1").await;
    deafen(&uk);
    let held = uk.data.hooks.pause(Side::Before, Op::List, "");
    console.query(&world, World::LONG_SQL).await.ended(Exit::Unfinished, "DBF-12");
    let id = world.asked().await.id;
    assert_eq!(world.chunks(id).await, 0);
    held.release();
    let patient = world.console().await;
    world.appears(&Key::Result(id)).await;
    let before = console.view.ledger.of(&id.to_string());
    late_and_harmless(&world, &patient, id).await;
    assert_eq!(console.view.ledger.of(&id.to_string()), before);
}

async fn after_a_disconnect(keeping: Keeping) {
    let world = World::with_shop(keeping).await;
    let console = world.console().await;
    let uk = world.start_box("uk-1").await;
    deafen(&uk);
    let mut held = uk.data.hooks.pause(Side::Before, Op::List, "");
    let mut open = console.open(&world, World::LONG_SQL).await;
    open.until_picked().await;
    held.reached().await;
    let id = open.id;
    drop(open);
    world.appears(&Key::Cancel(id)).await;
    held.release();
    late_and_harmless(&world, &console, id).await;
}

#[tokio::test]
async fn t16_a_box_that_writes_on_after_a_timeout() {
    after_a_timeout(Keeping::Memory).await;
}

#[tokio::test]
async fn t16_a_box_that_writes_on_after_a_timeout_in_a_directory() {
    after_a_timeout(Keeping::Directory).await;
}

#[tokio::test]
async fn t16_a_box_that_writes_on_after_a_disconnect() {
    after_a_disconnect(Keeping::Memory).await;
}

#[tokio::test]
async fn t16_a_box_that_writes_on_after_a_disconnect_in_a_directory() {
    after_a_disconnect(Keeping::Directory).await;
}

#[tokio::test]
async fn t16_a_whole_busy_run_only_creates() {
    busy_run(Keeping::Memory).await;
}

#[tokio::test]
async fn t16_a_whole_busy_run_only_creates_in_a_directory() {
    busy_run(Keeping::Directory).await;
}

/// Two boxes with stores that lose answers, one console, and people who ask, fail and leave.
async fn busy_run(keeping: Keeping) {
    let world = World::with_shop(keeping).await;
    let console = world.console().await;
    let boxes = [world.start_box("uk-1").await, world.start_box("uk-2").await];
    for uk in &boxes {
        lose_answers(&uk.view, 0.2);
    }
    lose_answers(&console.view, 0.1);
    for _ in 0..3 {
        let (rows, error) = tokio::join!(
            console.query(&world, World::LONG_SQL),
            console.query(&world, "SELECT * FROM nothing"),
        );
        assert_eq!(rows.code, 0, "{}", rows.stderr);
        error.ended(Exit::Sql, "DBL-8");
        let (short, ()) = tokio::join!(asked_again(&world, &console), leave(&world, &console));
        short.printed(World::TSV);
    }
    let [first, second] = &boxes;
    assert_only_creates(&[&console.view], &["request.json", "queue", "cancel"]);
    assert_only_creates(&[&first.view, &second.view], &["picked", "out", "result.json"]);
    assert_one_owner(&world, &boxes).await;
    world.assert_written_once();
}

/// The store does the work of some creates and does not say so.
fn lose_answers(view: &View, odds: f64) {
    view.faults.add(Rule::new(Op::Create, Fault::AnswerLost).on(DB_READS).odds(odds));
}

async fn asked_again(world: &World, console: &RunningConsole) -> Ran {
    console.query(world, World::SQL).await
}

/// Asks and goes away.
async fn leave(world: &World, console: &RunningConsole) {
    let open = console.open(world, World::LONG_SQL).await;
    let id = open.id;
    drop(open);
    world.appears(&Key::Cancel(id)).await;
}

/// Under `db-reads/` these processes created objects of these kinds, and only read besides.
fn assert_only_creates(views: &[&View], kinds: &[&str]) {
    let mut seen = BTreeMap::new();
    for Entry { op, key, .. } in views.iter().flat_map(|view| view.ledger.of(DB_READS)) {
        match op {
            Op::Get | Op::List => {}
            Op::Create => *seen.entry(kind_of(&key)).or_insert(0) += 1,
            other => panic!("{other:?} {key}"),
        }
    }
    let mut kinds = kinds.to_vec();
    kinds.sort_unstable();
    assert_eq!(seen.keys().map(String::as_str).collect::<Vec<_>>(), kinds, "{seen:?}");
}

/// The part of a key that says what the object is.
fn kind_of(key: &str) -> String {
    let mut parts = key.trim_start_matches(DB_READS).split('/');
    match parts.next() {
        Some("queue") => "queue".to_owned(),
        _ => parts.next().unwrap_or_default().to_owned(),
    }
}

/// Every chunk and result of a read was written by one box.
async fn assert_one_owner(world: &World, boxes: &[RunningBox; 2]) {
    for request in world.signed().await {
        let wrote = |uk: &&RunningBox| {
            let entries = uk.view.ledger.of(&request.id.to_string());
            entries.iter().any(|entry| entry.op == Op::Create && !entry.key.ends_with("/picked"))
        };
        assert!(boxes.iter().filter(wrote).count() <= 1, "two boxes wrote for {}", request.id);
    }
}
