//! The simulation itself: one seed, one history.

use carlos_tests_sim::schedule::play;

/// A seed with kills, squalls and wrong clocks; any will do.
const SEED: u64 = 7;

/// Where two texts part, as a reader of a failure wants it.
fn parting(one: &str, other: &str) -> Option<String> {
    let mut lines = one.lines().zip(other.lines()).enumerate();
    let (at, (a, b)) = lines.find(|(_, (a, b))| a != b)?;
    Some(format!("line {}:\n{a}\n{b}", at + 1))
}

#[test]
fn meta_same_seed_same_log() {
    let first = play(SEED).log.text();
    assert!(first.lines().count() > 1_000, "a run has a history");
    for _ in 0..2 {
        let again = play(SEED).log.text();
        assert_eq!(parting(&first, &again), None);
        assert!(first == again, "one is the other's beginning");
    }
}

#[test]
fn meta_another_seed_another_log() {
    assert!(parting(&play(SEED).log.text(), &play(SEED + 1).log.text()).is_some());
}
