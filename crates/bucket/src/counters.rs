//! How many requests of each kind this process sent: requests are what a bucket costs, and a LIST
//! costs twelve GETs (coordination rules on cost; a steady state must not list).

use std::sync::atomic::{AtomicU64, Ordering};

/// A kind of request, as a store bills it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Kind {
    /// Put-if-absent.
    Create,
    /// A read of one object, conditional ones included.
    Get,
    /// One page of up to 1,000 keys.
    List,
    /// A replacing put: serials and pulses only.
    Replace,
}

impl Kind {
    /// Every kind, in the order of [`Counters::snapshot`].
    pub const ALL: [Self; 4] = [Self::Create, Self::Get, Self::List, Self::Replace];

    /// The name for logs and metrics.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Create => "create",
            Self::Get => "get",
            Self::List => "list",
            Self::Replace => "replace",
        }
    }
}

/// What was counted for one kind.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Tally {
    /// Requests sent.
    pub sent: u64,
    /// Of these, turned away with 503 or 429.
    pub throttled: u64,
    /// Of these, ended without a usable answer.
    pub unclear: u64,
}

/// Counters of one process; shared by all clones of its bucket.
#[derive(Debug, Default)]
pub struct Counters {
    cells: [Cell; 4],
}

#[derive(Debug, Default)]
struct Cell {
    sent: AtomicU64,
    throttled: AtomicU64,
    unclear: AtomicU64,
}

impl Counters {
    /// What was counted so far for one kind.
    pub fn of(&self, kind: Kind) -> Tally {
        let cell = &self.cells[kind as usize];
        Tally {
            sent: cell.sent.load(Ordering::Relaxed),
            throttled: cell.throttled.load(Ordering::Relaxed),
            unclear: cell.unclear.load(Ordering::Relaxed),
        }
    }

    /// All kinds with their tallies.
    pub fn snapshot(&self) -> [(Kind, Tally); 4] {
        Kind::ALL.map(|kind| (kind, self.of(kind)))
    }

    pub(crate) fn sent(&self, kind: Kind, requests: u64) {
        self.cells[kind as usize].sent.fetch_add(requests, Ordering::Relaxed);
    }

    pub(crate) fn throttled(&self, kind: Kind) {
        self.cells[kind as usize].throttled.fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn unclear(&self, kind: Kind) {
        self.cells[kind as usize].unclear.fetch_add(1, Ordering::Relaxed);
    }
}
