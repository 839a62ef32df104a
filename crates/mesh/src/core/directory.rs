//! What is known of the other nodes (routemesh §8).

use std::collections::BTreeMap;
use std::time::Duration;

use carlos_protocol::mesh::{Descriptor, NodeState, Rid};

/// One other node.
#[derive(Debug)]
pub(crate) struct Known {
    /// Its newest revision.
    pub(crate) descriptor: Descriptor,
    /// It stands in the last list of the store.
    pub(crate) listed: bool,
}

/// How a descriptor relates to what is known.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Applied {
    /// It is news.
    New,
    /// It is what was known, or older.
    Nothing,
    /// It contradicts what is known: another lifecycle, other fixed values, or other bytes under
    /// one revision.
    Contradiction,
}

/// All other nodes of the mesh, and how far the store can be believed.
#[derive(Debug, Default)]
pub(crate) struct Directory {
    nodes: BTreeMap<Rid, Known>,
    store: Store,
}

#[derive(Debug, Default)]
struct Store {
    failing: bool,
    /// The first list after an outage.
    recovered: Option<Duration>,
}

impl Directory {
    /// A node.
    pub(crate) fn get(&self, rid: &Rid) -> Option<&Known> {
        self.nodes.get(rid)
    }

    /// All nodes, by routing ID.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (&Rid, &Known)> {
        self.nodes.iter()
    }

    /// Whether the last look at the store failed: nothing new is dialled then.
    pub(crate) fn is_store_failing(&self) -> bool {
        self.store.failing
    }

    /// The store gave no list.
    pub(crate) fn store_failed(&mut self) {
        self.store = Store { failing: true, recovered: None };
    }

    /// Takes a descriptor that a hello, an update or the store brought.
    pub(crate) fn apply(&mut self, descriptor: &Descriptor) -> Applied {
        let Some(known) = self.nodes.get_mut(&descriptor.rid) else {
            let known = Known { descriptor: descriptor.clone(), listed: false };
            self.nodes.insert(descriptor.rid.clone(), known);
            return Applied::New;
        };
        let before = &known.descriptor;
        if !before.is_same_life(descriptor) {
            return Applied::Contradiction;
        }
        if descriptor.revision < before.revision || *descriptor == *before {
            return Applied::Nothing;
        }
        if descriptor.revision == before.revision {
            return Applied::Contradiction;
        }
        known.descriptor = descriptor.clone();
        Applied::New
    }

    /// Takes a whole list. Nodes missing from it are unlisted; right after an outage only once
    /// lists have succeeded for `patience`, because the others' announcements may be late too
    /// (decision 7). Gives the routing IDs that are gone.
    pub(crate) fn apply_listing(
        &mut self,
        now: Duration,
        patience: Duration,
        listing: &[Descriptor],
    ) -> Vec<Rid> {
        if std::mem::take(&mut self.store.failing) {
            self.store.recovered = Some(now);
        }
        let patient = self.store.recovered.is_some_and(|since| now < since + patience);
        let living = listing.iter().filter(|node| node.state != NodeState::Stopped);
        let mut present: Vec<&Rid> = Vec::new();
        for descriptor in living {
            if self.apply(descriptor) == Applied::Contradiction {
                tracing::warn!(rid = %descriptor.rid, "a descriptor contradicts what is known");
                continue;
            }
            present.push(&descriptor.rid);
        }
        present.sort_unstable();
        let mut gone = Vec::new();
        for (rid, known) in &mut self.nodes {
            match present.binary_search(&rid).is_ok() {
                true => known.listed = true,
                false if patient => {}
                false if std::mem::take(&mut known.listed) => gone.push(rid.clone()),
                false => {}
            }
        }
        gone
    }

    /// Forgets a node.
    pub(crate) fn remove(&mut self, rid: &Rid) {
        self.nodes.remove(rid);
    }
}

#[cfg(test)]
mod tests {
    use carlos_protocol::mesh::Generation;

    use super::super::testing::{descriptor, weighted};
    use super::*;

    const MINUTE: Duration = Duration::from_secs(60);

    #[test]
    fn revisions_only_grow() {
        let mut directory = Directory::default();
        let at = |revision| weighted("b", 5, revision);
        assert_eq!(directory.apply(&at(7)), Applied::New);
        assert_eq!(directory.apply(&at(6)), Applied::Nothing);
        assert_eq!(directory.apply(&at(8)), Applied::New);
        assert_eq!(directory.apply(&at(8)), Applied::Nothing);
        assert_eq!(directory.apply(&weighted("b", 6, 8)), Applied::Contradiction);
        let mut other = at(9);
        other.generation = Generation::new(99).expect("not zero");
        assert_eq!(directory.apply(&other), Applied::Contradiction);
        let known = directory.get(&at(8).rid).expect("known");
        assert_eq!(known.descriptor, at(8));
    }

    #[test]
    fn an_outage_makes_absence_wait() {
        let (mut directory, b) = (Directory::default(), descriptor("b"));
        assert!(directory.apply_listing(MINUTE, 2 * MINUTE, std::slice::from_ref(&b)).is_empty());
        directory.store_failed();
        assert!(directory.is_store_failing());
        assert!(directory.apply_listing(5 * MINUTE, 2 * MINUTE, &[]).is_empty());
        assert!(!directory.is_store_failing());
        assert!(directory.apply_listing(6 * MINUTE, 2 * MINUTE, &[]).is_empty());
        assert_eq!(directory.apply_listing(7 * MINUTE, 2 * MINUTE, &[]), [b.rid]);
    }

    #[test]
    fn a_stopped_node_is_gone_at_once() {
        let (mut directory, mut b) = (Directory::default(), descriptor("b"));
        directory.apply_listing(MINUTE, 2 * MINUTE, &[b.clone()]);
        b.revision = b.revision.next();
        b.state = NodeState::Stopped;
        assert_eq!(directory.apply_listing(MINUTE, 2 * MINUTE, &[b.clone()]), [b.rid]);
    }
}
