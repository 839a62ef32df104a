//! Seeded schedules: everything at once, held against the invariants.
use std::collections::BTreeMap;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;

use carlos_tests_sim::schedule::{Report, play};

/// How many schedules CI runs; `CARLOS_SIM_SCHEDULES` sets another number.
const SCHEDULES: u64 = 200;

#[test]
fn schedules_keep_the_invariants() {
    if let Some(seed) = number("CARLOS_SIM_SEED") {
        let report = play(seed);
        println!("{}", report.log);
        println!("{:?}", report.tally);
        assert!(report.broken.is_empty(), "seed {seed}:\n{}", report.broken.join("\n"));
        return;
    }
    let count = number("CARLOS_SIM_SCHEDULES").unwrap_or(SCHEDULES);
    let reports = play_all(count);
    let mut tally = BTreeMap::<String, usize>::new();
    for report in &reports {
        for (name, times) in &report.tally {
            *tally.entry(name.clone()).or_default() += times;
        }
    }
    println!("{count} schedules: {tally:?}");
    if count >= SCHEDULES {
        assert_much_was_seen(count, &tally);
    }
    let failed: Vec<_> = reports.iter().filter(|it| !it.broken.is_empty()).map(shown).collect();
    assert!(failed.is_empty(), "{} of {count} schedules:\n{}", failed.len(), failed.join("\n"));
}

/// Schedules in which hardly anything happens, or hardly anything succeeds, show little.
fn assert_much_was_seen(count: u64, tally: &BTreeMap<String, usize>) {
    let seen = |name: &str| tally.get(name).copied().unwrap_or_default() as u64;
    assert!(seen("rows") > count, "{} answered reads in {count} schedules", seen("rows"));
    let ends = ["DBF-2", "DBF-3", "DBF-12", "DBF-15", "DBF-16", "DBL-2", "DBL-8", "left"];
    let faults = ["AnswerLost", "Conflict", "DoneBut", "DoneInSilence", "LandsLate", "Swallowed"];
    for name in ends.into_iter().chain(faults) {
        assert!(seen(name) > 0, "{name} was never seen in {count} schedules");
    }
}

fn number(name: &str) -> Option<u64> {
    std::env::var(name).ok()?.parse().ok()
}

/// Runs seeds 0 to `count` on as many threads as there are processors.
fn play_all(count: u64) -> Vec<Report> {
    let (next, reports) = (AtomicU64::new(0), Mutex::new(Vec::new()));
    let threads = thread::available_parallelism().map_or(1, usize::from);
    thread::scope(|scope| {
        for _ in 0..threads {
            scope.spawn(|| {
                loop {
                    let seed = next.fetch_add(1, Ordering::SeqCst);
                    if seed >= count {
                        break;
                    }
                    let report = play(seed);
                    reports.lock().unwrap().push(report);
                }
            });
        }
    });
    reports.into_inner().unwrap()
}

fn shown(report: &Report) -> String {
    let Report { seed, broken, .. } = report;
    format!(
        "seed {seed}: {}\n  replay: CARLOS_SIM_SEED={seed} cargo test -p carlos-tests-sim --test \
         sim schedules -- --nocapture",
        broken.join("\n    ")
    )
}
