//! T15: admission is held by the open request and by nothing else (db-forward J5, §5.7, §11.4).

use std::time::Duration;

use carlos_box_agent::CrashPoint;
use carlos_bucket::hook::Side;
use carlos_bucket::layer::Op;
use carlos_protocol::ids::ReadId;
use carlos_protocol::keys::Key;
use carlos_protocol::lines::Line;
use carlos_protocol::result::{ReadResult, State};
use carlos_protocol::tokens::{Token, TokenKind};
use carlos_tests_reads::{Asked, OTHER_EMAIL, Open, RunningBox, RunningConsole, World, parse};
use tokio_util::sync::{CancellationToken, DropGuard};

/// A count falls when the handler returns, which is at once; this is for a slow machine.
const AT_ONCE: Duration = Duration::from_secs(2);

/// A deployment whose one box has not said anything yet, so that reads wait for an owner.
async fn without_owner() -> World {
    let world = World::new().await;
    world.operator.create_box(&parse("uk-1"), &parse("uk")).await.unwrap();
    world
}

/// A console whose whole count is one person's.
async fn small_console(world: &World) -> RunningConsole {
    world.console_with(|config| config.reads_in_all = config.reads_per_person).await
}

/// A token of another member of the same account.
async fn second_person(world: &World) -> Token {
    let (operator, account) = (&world.operator, &world.place.account);
    operator.add_member(account, OTHER_EMAIL, None).await.unwrap();
    operator.create_token(account, OTHER_EMAIL, TokenKind::Person, None).await.unwrap()
}

/// Why a read of this person is not admitted, if it is not.
async fn refusal(world: &World, console: &RunningConsole, token: &Token) -> Option<String> {
    let asked = Asked::of(world, World::SQL).with_token(token);
    let refused = asked.post(console).await.err()?;
    assert_eq!(refused.status, 429);
    refused.body.code
}

/// Opens as many reads as one person may have, and shows that the counts are full.
async fn fill(world: &World, console: &RunningConsole, other: &Token) -> [Open; 2] {
    let first = console.open(world, World::SQL).await;
    assert_eq!(refusal(world, console, other).await, None, "the console has room for one more");
    let freed = async || refusal(world, console, other).await.is_none().then_some(());
    world.until("the probe's count is free again", freed).await;
    let second = console.open(world, World::SQL).await;
    assert_full(world, console, other).await;
    [first, second]
}

async fn assert_full(world: &World, console: &RunningConsole, other: &Token) {
    for person in [&world.token, other] {
        assert_eq!(refusal(world, console, person).await.as_deref(), Some("DBF-9"));
    }
}

/// The person's count and the console's are free again without anybody doing anything.
async fn assert_free(world: &World, console: &RunningConsole, other: &Token) {
    let both = async {
        for person in [&world.token, other] {
            while refusal(world, console, person).await.is_some() {
                world.context.sleep(Duration::from_millis(20)).await;
            }
        }
    };
    world.context.timeout(AT_ONCE, both).await.expect("the counts never came back");
}

#[tokio::test]
async fn t15_clients_that_leave_before_pickup_free_both_counts() {
    let world = without_owner().await;
    let console = small_console(&world).await;
    let other = second_person(&world).await;
    let open = fill(&world, &console, &other).await;
    let ids = open.each_ref().map(|open| open.id);
    drop(open);
    for id in ids {
        world.appears(&Key::Cancel(id)).await;
    }
    assert_free(&world, &console, &other).await;
}

/// Opens two reads that a box owns and does not go on with before it is told to.
async fn owned(world: &World, console: &RunningConsole, uk: &RunningBox) -> ([Open; 2], DropGuard) {
    let go = CancellationToken::new();
    for _ in 0..2 {
        uk.gates.at(CrashPoint::Planned, go.clone().cancelled_owned());
    }
    let mut first = console.open(world, World::SQL).await;
    let mut second = console.open(world, World::SQL).await;
    first.until_picked().await;
    second.until_picked().await;
    ([first, second], go.drop_guard())
}

#[tokio::test]
async fn t15_clients_that_leave_after_pickup_free_both_counts() {
    let world = World::new().await;
    let console = small_console(&world).await;
    let other = second_person(&world).await;
    let uk = world.start_box("uk-1").await;
    let (open, hold) = owned(&world, &console, &uk).await;
    assert_full(&world, &console, &other).await;
    let ids = open.each_ref().map(|open| open.id);
    drop(open);
    assert_free(&world, &console, &other).await;
    // The box hears of it by itself: its slots are held by its workers and not by the console.
    for id in ids {
        let result = ReadResult::from_bytes(&world.appears(&Key::Result(id)).await).unwrap();
        assert_eq!((result.state, result.last_seq), (State::Cancelled, 0));
    }
    drop(hold);
    console.query(&world, World::SQL).await.printed(World::TSV);
}

#[tokio::test]
async fn t15_counts_are_held_to_the_last_line() {
    let world = World::new().await;
    let console = small_console(&world).await;
    let other = second_person(&world).await;
    let uk = world.start_box("uk-1").await;
    let held = || uk.view.hooks.pause(Side::Before, Op::Create, "/result.json");
    let holds = [held(), held()];
    let mut first = console.open(&world, World::SQL).await;
    let mut second = console.open(&world, World::SQL).await;
    for open in [&mut first, &mut second] {
        while !matches!(open.next().await.unwrap(), Some(Line::Chunk { .. })) {}
    }
    assert_full(&world, &console, &other).await;
    drop(holds);
    for open in [first, second] {
        assert_eq!(open.finish().await.tsv(), World::TSV);
    }
    assert_free(&world, &console, &other).await;
}

#[tokio::test]
async fn t15_refused_reads_hold_nothing() {
    let world = without_owner().await;
    let console = small_console(&world).await;
    let other = second_person(&world).await;
    for sql in ["", "select '\u{fffd}'", "select 1\0"] {
        let refused = Asked::of(&world, sql).post(&console).await;
        assert!(refused.is_err_and(|refused| refused.status < 429), "{sql:?}");
    }
    assert_free(&world, &console, &other).await;
}

#[tokio::test]
async fn t15_a_console_restart_leaves_nothing_to_recover() {
    let world = World::new().await;
    let console = world.console().await;
    let uk = world.start_box("uk-1").await;
    let (open, hold) = owned(&world, &console, &uk).await;
    let ids = open.each_ref().map(|open| open.id);
    console.stop().await;
    for open in open {
        let finished = open.finish().await;
        assert!(finished.end.is_err() && finished.result.is_none(), "{finished:?}");
    }
    let again = world.console().await;
    let other = second_person(&world).await;
    assert_free(&world, &again, &other).await;
    drop(hold);
    again.query(&world, World::SQL).await.printed(World::TSV);
    for id in ids {
        assert_ended(&world, id).await;
        assert_eq!(again.view.ledger.of(&id.to_string()), [], "the new console looked at it");
    }
}

/// The box has ended the read, and the old console wrote the one cancel.
async fn assert_ended(world: &World, id: ReadId) {
    world.appears(&Key::Result(id)).await;
    let names: Vec<String> = world.objects_of(id).await.into_iter().map(|(name, _)| name).collect();
    for name in ["request.json", "picked", "cancel", "result.json"] {
        assert!(names.iter().any(|found| found == name), "no {name} in {names:?}");
    }
}
