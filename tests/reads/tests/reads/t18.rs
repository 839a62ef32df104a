//! T18: the result overtakes the last chunk (db-forward §5.5 step 6, codex 20, §11.4).

use std::time::Duration;

use carlos_bucket::fault::{Fault, Rule};
use carlos_bucket::hook::Side;
use carlos_bucket::layer::Op;
use carlos_protocol::copy::Exit;
use carlos_protocol::keys::Key;
use carlos_protocol::lines::Line;
use carlos_tests_reads::{Finished, Open, Player, RunningConsole, World, parse};

/// Between which two looks of the console the box writes its last objects.
#[derive(Clone, Copy, Debug)]
enum Between {
    ResultAndListing,
    ListingAndResult,
}

/// In which order they become visible.
#[derive(Clone, Copy, Debug)]
enum Order {
    ChunkThenResult,
    ResultThenChunk,
}

impl Between {
    /// The look after which it happens.
    fn look(self) -> (Op, &'static str) {
        match self {
            Self::ResultAndListing => (Op::Get, "/result.json"),
            Self::ListingAndResult => (Op::List, "/out"),
        }
    }
}

async fn waiting_console() -> (World, RunningConsole) {
    let world = World::new().await;
    world.operator.create_box(&parse("uk-1"), &parse("uk")).await.unwrap();
    let console = world.console().await;
    (world, console)
}

/// Opens a read whose owner has written two of its three chunks.
async fn nearly_done(world: &World, console: &RunningConsole) -> (Open, Player) {
    let open = console.open(world, World::SQL).await;
    let player = Player::of(world, open.id).await;
    player.chunk(1).await;
    player.chunk(2).await;
    (open, player)
}

async fn overtaken(between: Between, order: Order) {
    let (world, console) = waiting_console().await;
    let (open, player) = nearly_done(&world, &console).await;
    let (op, part) = between.look();
    let (hooks, inner, late) = (&console.view.hooks, console.view.hooks.clone(), player.clone());
    hooks.on(Side::After, op, part, 1, move |_| {
        let (late, inner) = (late.clone(), inner.clone());
        async move {
            if matches!(order, Order::ChunkThenResult) {
                late.chunk(3).await;
                return late.done(3).await;
            }
            late.done(3).await;
            // The chunk becomes visible only after the console has seen the result and listed.
            inner.on(Side::After, Op::List, "/out", 1, move |_| {
                let late = late.clone();
                async move { late.chunk(3).await }
            });
        }
    });
    player.pick().await;
    let finished = open.finish().await;
    assert_in_order(&finished);
    assert_eq!(finished.tsv(), Player::TSV);
}

/// The result is the last line, after every chunk it names, each once.
fn assert_in_order(finished: &Finished) {
    assert_eq!(finished.end, Ok(()));
    let Some(Line::Result(result)) = finished.lines.last() else { panic!("{finished:?}") };
    assert_eq!(finished.chunks(), (1..=result.last_seq).collect::<Vec<_>>());
    let results = finished.lines.iter().filter(|line| matches!(line, Line::Result(_)));
    assert_eq!(results.count(), 1);
}

#[tokio::test]
async fn t18_between_result_and_listing() {
    overtaken(Between::ResultAndListing, Order::ChunkThenResult).await;
}

#[tokio::test]
async fn t18_between_listing_and_result() {
    overtaken(Between::ListingAndResult, Order::ChunkThenResult).await;
}

#[tokio::test]
async fn t18_between_result_and_listing_with_the_chunk_last() {
    overtaken(Between::ResultAndListing, Order::ResultThenChunk).await;
}

#[tokio::test]
async fn t18_between_listing_and_result_with_the_chunk_last() {
    overtaken(Between::ListingAndResult, Order::ResultThenChunk).await;
}

/// A store whose listings lag behind its writes.
#[tokio::test]
async fn t18_a_listing_that_lags() {
    let (world, console) = waiting_console().await;
    let (open, player) = nearly_done(&world, &console).await;
    let lag = |seq: u64, looks| {
        let chunk = Key::Chunk(open.id, seq).to_path();
        console.view.faults.add(Rule::new(Op::List, Fault::Hidden).on(&chunk).times(looks));
    };
    lag(2, 2);
    lag(3, 4);
    player.chunk(3).await;
    player.done(3).await;
    player.pick().await;
    let finished = open.finish().await;
    assert_in_order(&finished);
    assert_eq!(finished.tsv(), Player::TSV);
}

/// A chunk that is listed and cannot be read yet.
#[tokio::test]
async fn t18_a_chunk_that_lags_behind_its_listing() {
    let (world, console) = waiting_console().await;
    let (open, player) = nearly_done(&world, &console).await;
    player.chunk(3).await;
    player.done(3).await;
    let chunk = Key::Chunk(open.id, 2).to_path();
    console.view.faults.add(Rule::new(Op::Get, Fault::Hidden).on(&chunk).times(2));
    player.pick().await;
    let finished = open.finish().await;
    assert_in_order(&finished);
    assert_eq!(finished.tsv(), Player::TSV);
}

/// A result that names a chunk which never comes is held until the request's own end.
#[tokio::test]
async fn t18_a_chunk_that_never_comes() {
    let world = World::new().await;
    world.operator.create_box(&parse("uk-1"), &parse("uk")).await.unwrap();
    let waits = Duration::from_millis(500);
    let console =
        world.console_waiting(|timings| (timings.owner, timings.grace) = (waits, waits)).await;
    let playing = async {
        let player = Player::of(&world, world.asked().await.id).await;
        player.pick().await;
        player.chunk(1).await;
        player.chunk(2).await;
        player.done(3).await;
    };
    let (ran, ()) = tokio::join!(console.query(&world, World::SQL), playing);
    ran.ended(Exit::Unfinished, "DBF-12");
}

/// What makes all of this hold: no listing is taken on trust that is older than the result.
#[tokio::test]
async fn t18_the_console_looks_for_the_result_before_it_lists() {
    let (world, console) = waiting_console().await;
    let (open, player) = nearly_done(&world, &console).await;
    player.pick().await;
    let mut once = console.view.hooks.pause(Side::After, Op::List, "/out");
    once.reached().await;
    player.chunk(3).await;
    player.done(3).await;
    once.release();
    let id = open.id;
    open.finish().await;
    let looks = console.view.ledger.of(&id.to_string());
    let is_result = |key: &str| key.ends_with("/result.json");
    let first = looks.iter().find(|look| is_result(&look.key) || look.op == Op::List).unwrap();
    assert!(is_result(&first.key), "the first look was {first:?}");
    let found = looks.iter().position(|look| is_result(&look.key) && look.good).unwrap();
    assert!(looks[found..].iter().any(|look| look.op == Op::List), "no listing after the result");
}

/// The real box: its result waits for the chunk that is late.
#[tokio::test]
async fn t18_a_real_box_whose_chunk_is_late() {
    let world = World::new().await;
    let console = world.console().await;
    let uk = world.start_box("uk-1").await;
    let mut late = uk.view.hooks.pause(Side::Before, Op::Create, "/out/00000002");
    let open = console.open(&world, World::LONG_SQL).await;
    let id = open.id;
    let holding = async {
        late.reached().await;
        world.appears(&Key::Chunk(id, 3)).await;
        world.context.sleep(Duration::from_millis(300)).await;
        assert_eq!(world.object(&Key::Result(id)).await, None, "a result without its chunk");
        late.release();
    };
    let (finished, ()) = tokio::join!(open.finish(), holding);
    assert_in_order(&finished);
    assert_eq!(finished.tsv().lines().count(), 11);
}
