//! Smooth weighted round robin over one channel's candidates (routemesh §4, §5; B7 of the vectors).
//!
//! Each pick adds every candidate's weight to its accumulator, takes the largest (the smaller
//! routing ID on a tie) and subtracts the sum of the weights from the one taken. Candidates are
//! kept sorted by routing ID, so the first largest is the right one.

use carlos_protocol::mesh::Rid;

/// A candidate as the table describes it.
#[derive(Clone, Debug)]
pub(crate) struct Candidate<T> {
    pub(crate) rid: Rid,
    /// Above zero.
    pub(crate) weight: u16,
    /// Where its messages go.
    pub(crate) port: T,
}

/// How one selection ended.
#[derive(Debug, Eq, PartialEq)]
pub(crate) enum Pick<T> {
    /// A candidate took the message.
    Taken(T),
    /// All are full: wait for the one whose turn it is.
    Full(T),
    /// There are no candidates.
    Nobody,
}

/// The candidates of a channel with their accumulators.
#[derive(Debug)]
pub(crate) struct Selector<T> {
    entries: Vec<Entry<T>>,
    total: i64,
}

#[derive(Debug)]
struct Entry<T> {
    candidate: Candidate<T>,
    accumulator: i64,
    /// Full in the selection that is going on.
    skipped: bool,
}

impl<T> Default for Selector<T> {
    fn default() -> Self {
        Self { entries: Vec::new(), total: 0 }
    }
}

impl<T: Clone> Selector<T> {
    /// Replaces the candidates at once. Who stays keeps its accumulator, whatever its new weight;
    /// who leaves and returns begins at zero.
    pub(crate) fn replace(&mut self, mut candidates: Vec<Candidate<T>>) {
        candidates.sort_by(|a, b| a.rid.cmp(&b.rid));
        let old = std::mem::take(&mut self.entries);
        let entry = |candidate: Candidate<T>| {
            let place = old.binary_search_by(|entry| entry.candidate.rid.cmp(&candidate.rid));
            let accumulator = place.map_or(0, |at| old[at].accumulator);
            Entry { candidate, accumulator, skipped: false }
        };
        self.entries = candidates.into_iter().map(entry).collect();
        self.total = self.entries.iter().map(|entry| i64::from(entry.candidate.weight)).sum();
    }

    /// Picks and submits in one step: `submit` says whether the picked one took it. One that is
    /// full is left out of the sum, keeps its accumulator, and the next is picked (decision 15).
    pub(crate) fn select(&mut self, mut submit: impl FnMut(&T) -> bool) -> Pick<T> {
        let Some(first) = self.best() else { return Pick::Nobody };
        // The common case: nobody is full.
        if submit(&self.entries[first].candidate.port) {
            self.commit(first, self.total);
            return Pick::Taken(self.entries[first].candidate.port.clone());
        }
        let taken = self.select_rest(first, submit);
        self.entries.iter_mut().for_each(|entry| entry.skipped = false);
        match taken {
            Some(at) => Pick::Taken(self.entries[at].candidate.port.clone()),
            None => {
                self.commit(first, self.total);
                Pick::Full(self.entries[first].candidate.port.clone())
            }
        }
    }

    fn select_rest(&mut self, first: usize, mut submit: impl FnMut(&T) -> bool) -> Option<usize> {
        self.entries[first].skipped = true;
        while let Some(next) = self.best() {
            if submit(&self.entries[next].candidate.port) {
                let open = self.entries.iter().filter(|entry| !entry.skipped);
                let total = open.map(|entry| i64::from(entry.candidate.weight)).sum();
                self.commit(next, total);
                return Some(next);
            }
            self.entries[next].skipped = true;
        }
        None
    }

    /// The index of the one whose turn it is among those that are not full.
    fn best(&self) -> Option<usize> {
        let mut best: Option<(usize, i64)> = None;
        for (index, entry) in self.entries.iter().enumerate() {
            let score = entry.accumulator + i64::from(entry.candidate.weight);
            if !entry.skipped && best.is_none_or(|(_, top)| score > top) {
                best = Some((index, score));
            }
        }
        best.map(|(index, _)| index)
    }

    /// One round. `total` is the sum over those that are not full.
    fn commit(&mut self, picked: usize, total: i64) {
        for entry in self.entries.iter_mut().filter(|entry| !entry.skipped) {
            entry.accumulator += i64::from(entry.candidate.weight);
        }
        self.entries[picked].accumulator -= total;
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn candidates(weights: &[(&str, u16)]) -> Vec<Candidate<String>> {
        let candidate = |&(name, weight): &(&str, u16)| Candidate {
            rid: Rid::parse(name).expect("an id"),
            weight,
            port: name.to_owned(),
        };
        weights.iter().map(candidate).collect()
    }

    fn selector(weights: &[(&str, u16)]) -> Selector<String> {
        let mut selector = Selector::default();
        selector.replace(candidates(weights));
        selector
    }

    fn picks(selector: &mut Selector<String>, count: usize) -> String {
        let pick = |_| match selector.select(|_| true) {
            Pick::Taken(name) => name,
            other => format!("{other:?}"),
        };
        (0..count).map(pick).collect()
    }

    #[test]
    fn the_vectors_hold() {
        for (weights, expected) in [
            (&[("A", 100), ("B", 300)][..], "BABBBABB"),
            (&[("A", 1), ("B", 1), ("C", 1)], "ABCABC"),
            (&[("A", 5), ("B", 1), ("C", 1)], "AABACAA"),
            (&[("A", 200), ("B", 300), ("C", 500)], "CBACBCCABC"),
            (&[("A", 10_000), ("B", 1)], "AAAAAA"),
        ] {
            assert_eq!(picks(&mut selector(weights), expected.len()), expected, "{weights:?}");
        }
    }

    #[test]
    fn survivors_keep_their_accumulators() {
        let mut selector = selector(&[("A", 1), ("B", 1), ("C", 1)]);
        assert_eq!(picks(&mut selector, 1), "A");
        selector.replace(candidates(&[("A", 1), ("C", 1)]));
        assert_eq!(picks(&mut selector, 6), "CCACAC");
    }

    #[test]
    fn who_returns_begins_at_zero() {
        let mut selector = selector(&[("A", 1), ("B", 1)]);
        assert_eq!(picks(&mut selector, 1), "A");
        selector.replace(candidates(&[("B", 1)]));
        selector.replace(candidates(&[("A", 1), ("B", 1)]));
        assert_eq!(selector.entries[0].accumulator, 0);
        assert_eq!(selector.entries[1].accumulator, 1);
    }

    #[test]
    fn a_full_candidate_is_skipped_untouched() {
        let mut selector = selector(&[("A", 100), ("B", 300), ("C", 100)]);
        let pick = selector.select(|name| name != "B");
        assert_eq!(pick, Pick::Taken("A".to_owned()));
        let accumulators: Vec<i64> = selector.entries.iter().map(|e| e.accumulator).collect();
        assert_eq!(accumulators, [-100, 0, 100]);
        assert_eq!(selector.select(|_| false), Pick::Full("B".to_owned()));
        assert!(selector.entries.iter().all(|entry| !entry.skipped));
    }

    #[test]
    fn nobody_is_there() {
        assert_eq!(Selector::<u8>::default().select(|_| true), Pick::Nobody);
    }

    proptest! {
        /// Over one cycle each candidate is picked exactly as often as its weight says, and the
        /// accumulators are back at zero.
        #[test]
        fn a_cycle_is_exact(weights in prop::collection::vec(1_u16..60, 1..6)) {
            let names = ["A", "B", "C", "D", "E"];
            let list: Vec<(&str, u16)> = names.into_iter().zip(weights).collect();
            let mut selector = selector(&list);
            let total: u32 = list.iter().map(|(_, weight)| u32::from(*weight)).sum();
            let picked = picks(&mut selector, total as usize);
            for (name, weight) in &list {
                prop_assert_eq!(picked.matches(name).count(), usize::from(*weight));
            }
            prop_assert!(selector.entries.iter().all(|entry| entry.accumulator == 0));
        }
    }
}
