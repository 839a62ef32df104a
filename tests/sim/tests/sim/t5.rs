//! T5, in virtual time (db-forward §11.4): two boxes, a store that loses answers, and exactly one
//! run of each read. Console, agents, workers and the person's checks are the real ones.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use carlos_bucket::fault::{Fault, Rule};
use carlos_bucket::layer::Op;
use carlos_protocol::keys::{self, Key};
use carlos_tests_sim::check::History;
use carlos_tests_sim::{
    Desk, Entry, Event, Kind, Machine, Manner, Seen, Statement, Step, World, run,
};
use futures::{StreamExt as _, stream};

/// As many reads as db-forward §11.4 asks for.
const READS: usize = 1_000;

/// More than the four slots of two boxes, so that both always have something to elect.
const OPEN_AT_ONCE: usize = 8;

/// How a create of `picked` can fail, and how likely each is.
const FAULTS: [(Fault, f64); 8] = [
    (Fault::DoneBut(500), 0.12),
    (Fault::AnswerLost, 0.12),
    (Fault::Conflict, 0.12),
    (Fault::Refused(500), 0.04),
    (Fault::DoneInSilence, 0.03),
    (Fault::Swallowed, 0.03),
    (Fault::LandsLate(Duration::from_secs(3)), 0.03),
    (Fault::Delayed(Duration::from_millis(900)), 0.03),
];

/// Two boxes and a console that holds more reads than one console of a deployment may.
struct Region {
    world: Arc<World>,
    desk: Arc<Desk>,
    machines: [Arc<Machine>; 2],
}

impl Region {
    async fn new(seed: u64) -> Self {
        let world = World::new(seed).await;
        let desk = Desk::with(&world, |mut config| {
            config.reads_per_person = OPEN_AT_ONCE;
            config.requests_per_minute = u32::MAX;
            config
        });
        let machines = ["box-a", "box-b"].map(|who| Machine::new(&world, who));
        machines.iter().for_each(|machine| machine.boot(None));
        world.ctx.sleep(Duration::from_secs(5)).await;
        Self { world, desk, machines }
    }

    async fn read(&self, number: usize) -> (usize, (Statement, Seen)) {
        let statement = Statement { number, kind: Kind::Small };
        let manner = Manner::default();
        let person = number % self.world.tokens.len();
        let seen = self.world.read(&self.desk, person, statement.clone(), manner).await;
        (number, (statement, seen))
    }

    /// Reads this many, some at once, and holds the whole run against the invariants.
    async fn read_all(&self, reads: usize) -> Elections {
        let reads = stream::iter((0..reads).map(|number| self.read(number)));
        let seen: BTreeMap<_, _> = reads.buffer_unordered(OPEN_AT_ONCE).collect().await;
        for (number, (_, end)) in &seen {
            assert!(matches!(end, Seen::Rows(_)), "read {number} ended {}", end.name());
        }
        // A box that came second may still be at its read-back.
        self.world.ctx.sleep(Duration::from_secs(15)).await;
        let history = History::of(&self.world, seen).await;
        assert_eq!(history.broken(&self.world), Vec::<String>::new());
        for machine in &self.machines {
            assert_eq!(machine.line.guard.violations(), Vec::<String>::new());
        }
        Elections::of(&self.world.log.all())
    }
}

/// What became of the attempts of a run, by the read's `picked`.
#[derive(Default)]
struct Elections {
    /// Runs, by the number of the read.
    ran: BTreeMap<usize, usize>,
    /// Attempts by which box, told that they failed although they landed.
    landed_and_told_otherwise: BTreeSet<(&'static str, String)>,
    /// Attempts by which box, told that they failed, of a read that another box owns.
    failed_and_lost: BTreeSet<(&'static str, String)>,
}

impl Elections {
    fn of(entries: &[Entry]) -> Self {
        let mut elections = Self::default();
        let (mut owner, mut tried) = (BTreeMap::new(), BTreeSet::new());
        for Entry { who, event, .. } in entries {
            match event {
                Event::Landed(_, key) if is_picked(key) => drop(owner.insert(key.clone(), *who)),
                Event::Sent(Op::Create, key) if is_picked(key) => {
                    tried.insert((*who, key.clone()));
                }
                Event::Answered(Op::Create, key, true) if is_picked(key) => {
                    tried.remove(&(*who, key.clone()));
                }
                Event::Worker(_, Step::Run(sql)) => {
                    let number = Statement::number_in(sql).expect("a run's statement");
                    *elections.ran.entry(number).or_default() += 1;
                }
                _ => {}
            }
        }
        let owns = |(who, key): &(&'static str, String)| owner.get(key) == Some(who);
        let (own, lost): (BTreeSet<_>, BTreeSet<_>) = tried.into_iter().partition(owns);
        (elections.landed_and_told_otherwise, elections.failed_and_lost) = (own, lost);
        elections
    }
}

fn is_picked(key: &str) -> bool {
    key.starts_with(keys::DB_READS) && matches!(Key::parse(key), Ok(Key::Picked(_)))
}

#[test]
fn t5_exactly_one_box_runs_each_of_a_thousand_reads() {
    let elections = run(async {
        let region = Region::new(5).await;
        for machine in &region.machines {
            for (fault, odds) in FAULTS {
                machine.line.faults.add(Rule::new(Op::Create, fault).on("/picked").odds(odds));
            }
        }
        region.read_all(READS).await
    });
    assert_eq!(elections.ran.len(), READS);
    assert!(elections.ran.values().all(|runs| *runs == 1), "{:?}", elections.ran);
    // Each of these was read back: with an answer taken for what it says, nobody would have run
    // the first kind, and two boxes the second.
    let (own, lost) = (elections.landed_and_told_otherwise.len(), elections.failed_and_lost.len());
    println!("{own} creates landed and were told otherwise; {lost} failed and another box owned");
    assert!(own > READS / 10 && lost > READS / 10, "{own} and {lost} of {READS}");
}

/// "A box whose `picked` create commits on the server but answers an error reads it back and runs
/// the read" (codex 16), for every way in which an answer is lost.
#[test]
fn t5_a_create_that_landed_but_answered_an_error_is_read_back_and_run() {
    for fault in [
        Fault::DoneBut(500),
        Fault::DoneBut(503),
        Fault::DoneBut(409),
        Fault::AnswerLost,
        Fault::DoneInSilence,
    ] {
        let elections = run(async {
            let region = Region::new(6).await;
            region.machines[1].kill().await;
            region.machines[0].line.faults.add(Rule::new(Op::Create, fault).on("/picked"));
            region.read_all(1).await
        });
        assert_eq!(elections.ran, BTreeMap::from([(0, 1)]), "{fault:?}");
    }
}

/// "A box whose create answers an error when another box owns it steps away" (codex 16).
#[test]
fn t5_a_create_that_errs_when_another_box_owns_the_read_steps_away() {
    for fault in [Fault::DoneBut(500), Fault::AnswerLost, Fault::DoneInSilence, Fault::Conflict] {
        let elections = run(async {
            let region = Region::new(7).await;
            // The slower box always comes second, and never hears so.
            let late = Duration::from_millis(1_200);
            let second = &region.machines[1].line.faults;
            second.add(Rule::new(Op::Get, Fault::Delayed(late)).on("/request.json").always());
            second.add(Rule::new(Op::Create, fault).on("/picked").always());
            region.read_all(1).await
        });
        assert_eq!(elections.ran, BTreeMap::from([(0, 1)]), "{fault:?}");
        assert_eq!(elections.landed_and_told_otherwise.len(), 0, "{fault:?}");
        assert_eq!(elections.failed_and_lost.len(), 1, "{fault:?}");
    }
}
