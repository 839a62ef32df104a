//! How many forwarded reads are open, for each person and in all (db-forward §5.7, J5).
//!
//! A count is a guard object and nothing else: no timer and no sweep ever gives one back. Whoever
//! does the work holds a clone, so the count falls exactly when the last of them has let go.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex},
};

/// The two counts of one console. Clones share them.
#[derive(Clone)]
pub(crate) struct Admission {
    per_person: usize,
    per_console: usize,
    open: Arc<Mutex<Open>>,
}

#[derive(Default)]
struct Open {
    total: usize,
    by_person: HashMap<String, usize>,
}

impl Admission {
    pub(crate) fn new(per_person: usize, per_console: usize) -> Self {
        Self { per_person, per_console, open: Arc::default() }
    }

    /// Takes both counts for `person`, or neither.
    pub(crate) fn admit(&self, person: &str) -> Option<Admitted> {
        let mut open = self.open.lock().expect("no holder of the counts panics");
        let own = open.by_person.get(person).copied().unwrap_or(0);
        if own >= self.per_person || open.total >= self.per_console {
            return None;
        }
        open.total += 1;
        open.by_person.insert(person.to_owned(), own + 1);
        let count = Count { open: Arc::clone(&self.open), person: person.to_owned() };
        Some(Admitted(Arc::new(count)))
    }

    /// Reads open now.
    pub(crate) fn open(&self) -> usize {
        self.open.lock().expect("no holder of the counts panics").total
    }
}

/// One open read. The counts fall when the last clone is dropped.
#[derive(Clone)]
pub(crate) struct Admitted(#[allow(dead_code, reason = "held for its drop")] Arc<Count>);

struct Count {
    open: Arc<Mutex<Open>>,
    person: String,
}

impl Drop for Count {
    fn drop(&mut self) {
        let mut open = self.open.lock().expect("no holder of the counts panics");
        open.total -= 1;
        match open.by_person.get_mut(&self.person) {
            Some(own) if *own > 1 => *own -= 1,
            _ => {
                open.by_person.remove(&self.person);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_person_gets_two_and_the_third_comes_back_with_a_drop() {
        let admission = Admission::new(2, 16);
        let first = admission.admit("a@example.com").unwrap();
        let _second = admission.admit("a@example.com").unwrap();
        assert!(admission.admit("a@example.com").is_none());
        drop(first);
        assert!(admission.admit("a@example.com").is_some());
    }

    #[test]
    fn the_console_bound_holds_over_persons() {
        let admission = Admission::new(2, 3);
        let held: Vec<_> =
            ["a", "a", "b"].iter().map(|person| admission.admit(person).unwrap()).collect();
        assert!(admission.admit("b").is_none() && admission.admit("c").is_none());
        drop(held);
        assert_eq!(admission.open(), 0);
        assert!(admission.open.lock().unwrap().by_person.is_empty());
    }

    #[test]
    fn a_count_falls_with_its_last_holder() {
        let admission = Admission::new(1, 1);
        let body = admission.admit("a").unwrap();
        let task = body.clone();
        drop(body);
        assert!(admission.admit("a").is_none());
        drop(task);
        assert!(admission.admit("a").is_some());
    }
}
