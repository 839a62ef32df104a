//! Which pages of the database have been written.

use carlos_ltx::Header;

/// One bit per page, numbered from 1. A 2 GiB database of 4 KiB pages takes 64 KiB.
#[derive(Debug, Default)]
pub(crate) struct PageSet {
    words: Vec<u64>,
    len: u32,
}

impl PageSet {
    pub(crate) fn insert(&mut self, page: u32) {
        let (word, bit) = place(page);
        if word >= self.words.len() {
            self.words.resize(word + 1, 0);
        }
        let new = self.words[word] & bit == 0;
        self.words[word] |= bit;
        self.len += u32::from(new);
    }

    pub(crate) fn contains(&self, page: u32) -> bool {
        let (word, bit) = place(page);
        self.words.get(word).is_some_and(|held| held & bit != 0)
    }

    /// The first page that a database of this header must have and the set lacks. No file carries
    /// the lock page.
    pub(crate) fn first_hole(&self, header: &Header) -> Option<u32> {
        let lock = header.lock_page();
        let wanted = header.commit - u32::from(header.commit >= lock);
        if self.len == wanted {
            return None;
        }
        (1..=header.commit).find(|page| *page != lock && !self.contains(*page))
    }

    /// Forgets every page above `last`.
    pub(crate) fn truncate(&mut self, last: u32) {
        let (word, bit) = place(last.saturating_add(1));
        if word >= self.words.len() {
            return;
        }
        self.words.truncate(word + 1);
        self.words[word] &= bit - 1;
        self.len = self.words.iter().map(|word| word.count_ones()).sum();
    }
}

const fn place(page: u32) -> (usize, u64) {
    let bit = page as usize - 1;
    (bit / 64, 1 << (bit % 64))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeSet;

    proptest! {
        #[test]
        fn it_behaves_as_a_set_of_numbers(
            steps in proptest::collection::vec((any::<bool>(), 1u32..300), 0..200),
        ) {
            let (mut pages, mut model) = (PageSet::default(), BTreeSet::new());
            for (insert, page) in steps {
                if insert {
                    pages.insert(page);
                    model.insert(page);
                } else {
                    pages.truncate(page);
                    model.retain(|held| *held <= page);
                }
                prop_assert_eq!(pages.len as usize, model.len());
                prop_assert!((1..310).all(|page| pages.contains(page) == model.contains(&page)));
            }
        }
    }
}
