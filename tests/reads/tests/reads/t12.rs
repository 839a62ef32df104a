//! T12 where workers are started by `db-worker --listen`, as in a container (db-forward §5.7): the
//! real agent, the real listener and the real worker. Under systemd, tests/acceptance shows it.

use std::sync::Arc;
use std::time::Duration;

use carlos_box_agent::CrashPoint;
use carlos_tests_reads::{BoxPlan, Listener, RunningBox, World};
use tokio::sync::oneshot;

/// One instruction of SQLite that compares for longer than a worker's grace and looks at nothing.
const STUCK: &str = "SELECT instr(replace(hex(zeroblob(15000000)), '0', 'a'), \
     replace(hex(zeroblob(4000000)), '0', 'a') || 'b')";

/// A worker that is stuck ends five seconds after its connection; the rest is what a busy machine
/// may have used up before.
const ORPHAN_LASTS: Duration = Duration::from_secs(3);

async fn start(world: &World, listener: &Arc<Listener>) -> RunningBox {
    let listener = Some(Arc::clone(listener));
    world.start(BoxPlan { listener, ..world.box_plan("uk-1") }).await
}

#[tokio::test]
async fn t12_a_read_through_a_listener_leaves_no_worker_and_no_scratch() {
    let world = World::new().await;
    let (console, listener) = (world.console().await, Listener::start());
    let _uk = start(&world, &listener).await;
    for _ in 0..2 {
        console.query(&world, World::SQL).await.printed(World::TSV);
    }
    let gone = async || (listener.workers() == 0).then_some(());
    world.until("workers and scratch are gone", gone).await;
}

#[tokio::test]
async fn t12_a_restarted_agent_serves_once_the_killed_one_s_worker_is_gone() {
    let world = World::new().await;
    let (console, listener) = (world.console().await, Listener::start());
    let uk = start(&world, &listener).await;
    let (runs, running) = oneshot::channel();
    uk.gates.at(CrashPoint::CheckedAgain, async { runs.send(()).unwrap() });
    let _open = console.open(&world, STUCK).await;
    running.await.unwrap();
    // The statement is sent right after; it is well under way a second later.
    world.context.sleep(Duration::from_secs(1)).await;
    let killed = world.context.monotonic();
    drop(uk);
    let _again = start(&world, &listener).await;
    assert!(world.context.monotonic() - killed >= ORPHAN_LASTS, "it did not wait");
    console.query(&world, World::SQL).await.printed(World::TSV);
}
