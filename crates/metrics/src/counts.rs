//! Counters by label, for labels whose texts are few and known.

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use crate::page::Page;

/// Different label texts kept: vocabularies here have at most some twenty words, and what is past
/// the bound is counted as [`OTHER`].
const MAX_TEXTS: usize = 64;

/// The text under which everything past the bound is counted.
const OTHER: &str = "other";

/// Counters of one family, by the texts of its labels.
#[derive(Debug, Default)]
pub struct Counts<const LABELS: usize> {
    cells: Mutex<BTreeMap<[String; LABELS], u64>>,
}

impl<const LABELS: usize> Counts<LABELS> {
    /// Counts one more of these.
    pub fn add(&self, texts: [&str; LABELS]) {
        let mut cells = self.cells();
        let key = texts.map(str::to_owned);
        let known = cells.contains_key(&key);
        let key =
            if known || cells.len() < MAX_TEXTS { key } else { [OTHER; LABELS].map(Into::into) };
        *cells.entry(key).or_default() += 1;
    }

    /// How many of these were counted.
    pub fn of(&self, texts: [&str; LABELS]) -> u64 {
        self.cells().get(&texts.map(str::to_owned)).copied().unwrap_or(0)
    }

    /// Writes a sample for each combination of texts that was counted.
    pub fn write(&self, page: &mut Page, name: &'static str, labels: [&str; LABELS]) {
        for (texts, count) in self.cells().iter() {
            let pairs: Vec<_> = labels.into_iter().zip(texts.iter().map(String::as_str)).collect();
            page.sample(name, &pairs, *count);
        }
    }

    fn cells(&self) -> MutexGuard<'_, BTreeMap<[String; LABELS], u64>> {
        self.cells.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_combination_has_its_sample() {
        let counts = Counts::default();
        counts.add(["done", ""]);
        counts.add(["failed", "timeout"]);
        counts.add(["done", ""]);
        let mut page = Page::default();
        counts.write(&mut page, "reads_total", ["state", "code"]);
        let text = "reads_total{state=\"done\",code=\"\"} 2\n\
                    reads_total{state=\"failed\",code=\"timeout\"} 1\n";
        assert_eq!(page.text(), text);
    }

    /// A box may write any code into its result; the page does not grow with it.
    #[test]
    fn foreign_words_are_bounded() {
        let counts = Counts::default();
        (0..1_000).for_each(|n| counts.add([&format!("code-{n}")]));
        assert_eq!(counts.of([OTHER]), 1_000 - MAX_TEXTS as u64);
        assert_eq!(counts.cells().len(), MAX_TEXTS + 1);
    }
}
