//! J1 at every moment of an opening: whenever a person leaves, the console begins no write but the
//! cancel (db-forward §5.5 step 3).

use std::time::Duration;

use carlos_bucket::fault::{Fault, Rule};
use carlos_bucket::layer::Op;
use carlos_tests_sim::check::History;
use carlos_tests_sim::{Desk, Kind, Machine, Manner, Statement, World, run};

/// Moments in one opening.
const MOMENTS: u32 = 100;

/// One read whose person leaves at `after`; what it broke.
fn leave_at(after: Duration, throttled: u32) -> Vec<String> {
    run(async {
        let world = World::new(21).await;
        let desk = Desk::new(&world);
        let machine = Machine::new(&world, "box-a");
        machine.boot(None);
        world.ctx.sleep(Duration::from_secs(5)).await;
        for op in [Op::Create, Op::Get] {
            let slow_down = Rule::new(op, Fault::Refused(503)).on("activity/");
            desk.line.faults.add(slow_down.times(throttled));
        }
        let statement = Statement { number: 1, kind: Kind::Small };
        let manner = Manner { leaves_after: Some(after), ..Manner::default() };
        let seen = world.read(&desk, 0, statement.clone(), manner).await;
        world.ctx.sleep(Duration::from_secs(40)).await;
        let mut broken = History::of(&world, [(1, (statement, seen))].into()).await.broken(&world);
        if desk.open_reads() > 0 {
            broken.push("J5: the console still counts the read".to_owned());
        }
        broken
    })
}

/// Leaves at each of `MOMENTS` moments of an opening that takes `span`.
fn leave_at_every_moment(span: Duration, throttled: u32) {
    let moments = (0..MOMENTS).map(|n| span * n / MOMENTS);
    let broken: Vec<_> = moments
        .flat_map(|after| {
            let broken = leave_at(after, throttled);
            broken.into_iter().map(move |it| format!("after {after:?}: {it}"))
        })
        .collect();
    assert!(broken.is_empty(), "{}", broken.join("\n"));
}

#[test]
fn j1_a_person_leaves_at_every_moment() {
    leave_at_every_moment(Duration::from_secs(4), 0);
}

/// The brake spaces the console's requests: a write it holds back must not go out afterwards.
#[test]
fn j1_a_person_leaves_at_every_moment_of_a_throttled_opening() {
    leave_at_every_moment(Duration::from_secs(12), 3);
}
