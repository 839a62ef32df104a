//! Seeded schedules: everything at once, held against the invariants.
use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;

use carlos_tests_sim::schedule::{Report, play};

/// How many schedules CI runs, from seed 0; `CARLOS_SIM_SCHEDULES` and `CARLOS_SIM_FIRST` set
/// another number and beginning.
const SCHEDULES: u64 = 2_000;

/// So many failures say what is wrong; more of them only take time.
const ENOUGH: usize = 8;

/// Everything that the simulation can do to a request, a process or a clock, but what is rare.
const FAULTS: [&str; 22] = [
    "Create AnswerLost",
    "Create Conflict",
    "Create DoneBut(409)",
    "Create DoneBut(412)",
    "Create DoneBut(500)",
    "Create DoneInSilence",
    "Create LandsLate",
    "Create NotSent",
    "Create Reset",
    "Create ResetLandsLate",
    "Create Swallowed",
    "ClockJumps",
    "ClockJumps back",
    "Crowded",
    "Fleets",
    "SlowDownStorm",
    "frozen box",
    "frozen console",
    "s3: 409 in a race",
    "s3: 412 after it landed",
    "s3: a further page",
    "s3: landed after its caller left",
];

#[test]
fn schedules_keep_the_invariants() {
    match number("CARLOS_SIM_SEED") {
        Some(seed) => replay(seed),
        None => {
            let first = number("CARLOS_SIM_FIRST").unwrap_or_default();
            let count = number("CARLOS_SIM_SCHEDULES").unwrap_or(SCHEDULES);
            play_all(first..first + count);
        }
    }
}

/// One seed, with its whole history.
fn replay(seed: u64) {
    let report = play(seed);
    println!("{}", report.log.text());
    println!("{:?}", report.tally);
    assert!(report.broken.is_empty(), "seed {seed}:\n{}", report.broken.join("\n"));
}

fn play_all(seeds: Range<u64>) {
    let count = seeds.end - seeds.start;
    let Played { played, tally, failed } = play_on_all_processors(seeds);
    println!("{played} schedules: {tally:?}");
    assert!(failed.is_empty(), "{} of {played} schedules:\n{}", failed.len(), failed.join("\n"));
    if count >= SCHEDULES {
        assert_much_was_seen(count, &tally);
    }
}

/// Schedules in which hardly anything happens, or hardly anything succeeds, show little.
fn assert_much_was_seen(count: u64, tally: &BTreeMap<String, usize>) {
    let seen = |name: &str| tally.get(name).copied().unwrap_or_default() as u64;
    assert!(seen("rows") > count, "{} answered reads in {count} schedules", seen("rows"));
    let ends = ["DBF-2", "DBF-3", "DBF-12", "DBF-15", "DBF-16", "DBL-2", "DBL-8", "left"];
    for name in ends.into_iter().chain(FAULTS) {
        assert!(seen(name) > 0, "{name} was never seen in {count} schedules");
    }
}

fn number(name: &str) -> Option<u64> {
    std::env::var(name).ok()?.parse().ok()
}

/// What some schedules came to; their histories are long, and nobody looks at a good one.
#[derive(Default)]
struct Played {
    played: u64,
    tally: BTreeMap<String, usize>,
    failed: Vec<String>,
}

impl Played {
    fn add(&mut self, report: &Report) {
        self.played += 1;
        for (name, times) in &report.tally {
            *self.tally.entry(name.clone()).or_default() += times;
        }
        if !report.broken.is_empty() {
            self.failed.push(shown(report));
        }
    }
}

/// Runs these seeds, or until enough of them failed.
fn play_on_all_processors(seeds: Range<u64>) -> Played {
    let (next, played) = (AtomicU64::new(seeds.start), Mutex::new(Played::default()));
    let threads = thread::available_parallelism().map_or(1, usize::from);
    let play_on = || {
        while played.lock().unwrap().failed.len() < ENOUGH {
            let seed = next.fetch_add(1, Ordering::SeqCst);
            if seed >= seeds.end {
                break;
            }
            let report = play(seed);
            played.lock().unwrap().add(&report);
        }
    };
    thread::scope(|scope| {
        for _ in 0..threads {
            scope.spawn(play_on);
        }
    });
    played.into_inner().unwrap()
}

fn shown(report: &Report) -> String {
    let Report { seed, broken, .. } = report;
    format!(
        "seed {seed}: {}\n  replay: CARLOS_SIM_SEED={seed} cargo test -p carlos-tests-sim --test \
         sim schedules -- --nocapture",
        broken.join("\n    ")
    )
}
