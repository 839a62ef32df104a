//! What a crash leaves, on every kind of store that this machine has (docs/design.md).

use std::sync::Arc;
use std::time::Duration;

use carlos_bucket::{file_url, open_store};
use carlos_protocol::limits::OWNER_TIME;
use carlos_tests_sim::run;
use carlos_tests_sim::scenario::{Ground, SCENARIOS};
use object_store::memory::InMemory;

/// Plays every scenario on a ground of its own.
fn play_all(ground: impl Fn() -> Ground) {
    let mut broken = Vec::new();
    for scenario in SCENARIOS {
        let found = run(scenario.run(ground()));
        broken
            .extend(found.iter().map(|it| format!("{} {}: {it}", scenario.number, scenario.name)));
    }
    assert!(broken.is_empty(), "{}", broken.join("\n"));
}

#[test]
fn numbers_are_not_reused() {
    let numbers: Vec<u8> = SCENARIOS.iter().map(|scenario| scenario.number).collect();
    assert!(numbers.is_sorted_by(|a, b| a < b), "{numbers:?}");
}

#[test]
fn crashes_on_memory_leave_what_the_design_says() {
    play_all(|| Ground { store: Arc::new(InMemory::new()), owner_time: OWNER_TIME });
}

#[test]
fn crashes_on_a_directory_leave_what_the_design_says() {
    let dir = tempfile::tempdir().unwrap();
    let number = std::cell::Cell::new(0);
    play_all(|| {
        number.set(number.get() + 1);
        let url = file_url(&dir.path().join(number.get().to_string()));
        Ground { store: open_store(&url).unwrap(), owner_time: Duration::from_secs(60) }
    });
}
