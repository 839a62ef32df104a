//! How many requests of each kind this process sent: requests are what a bucket costs, and a LIST
//! costs twelve GETs (coordination rules on cost; a steady state must not list).

use std::sync::atomic::{AtomicU64, Ordering};

use crate::verdict::Verdict;

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

/// How a store answered one request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Answer {
    /// 2xx.
    Ok,
    /// 304: what a conditional GET that brings no news ends in.
    NotModified,
    /// 404.
    Absent,
    /// 412 or 409: the name is taken, or somebody else is about to take it.
    Exists,
    /// 401, 403, or a request that this store does not know.
    Refused,
    /// 429 or 503.
    Throttled,
    /// Any other status, or a connection that broke: what was asked may have been done.
    Failed,
    /// Nothing in time: what was asked may have been done, or may still be.
    TimedOut,
}

impl Answer {
    /// Every answer, in the order of [`Counters::answers`].
    pub const ALL: [Self; 8] = [
        Self::Ok,
        Self::NotModified,
        Self::Absent,
        Self::Exists,
        Self::Refused,
        Self::Throttled,
        Self::Failed,
        Self::TimedOut,
    ];

    /// The name for logs and metrics.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Ok => "ok",
            Self::NotModified => "not_modified",
            Self::Absent => "absent",
            Self::Exists => "exists",
            Self::Refused => "refused",
            Self::Throttled => "throttled",
            Self::Failed => "failed",
            Self::TimedOut => "timed_out",
        }
    }

    /// What a request that was not cut by its own time limit came to.
    pub(crate) fn of<T>(answer: &Result<T, Verdict>) -> Self {
        match answer {
            Ok(_) => Self::Ok,
            Err(Verdict::Absent) => Self::Absent,
            Err(Verdict::Exists) => Self::Exists,
            Err(Verdict::NotModified) => Self::NotModified,
            Err(Verdict::Final(_)) => Self::Refused,
            Err(Verdict::Throttled) => Self::Throttled,
            Err(Verdict::TimedOut) => Self::TimedOut,
            Err(Verdict::Unclear(_) | Verdict::TooLarge(_) | Verdict::TooMany) => Self::Failed,
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
    answers: [AtomicU64; Answer::ALL.len()],
}

impl Cell {
    fn answered(&self, answer: Answer) -> u64 {
        self.answers[answer as usize].load(Ordering::Relaxed)
    }
}

impl Counters {
    /// What was counted so far for one kind.
    pub fn of(&self, kind: Kind) -> Tally {
        let cell = &self.cells[kind as usize];
        Tally {
            sent: cell.sent.load(Ordering::Relaxed),
            throttled: cell.answered(Answer::Throttled),
            unclear: cell.answered(Answer::Failed) + cell.answered(Answer::TimedOut),
        }
    }

    /// All kinds with their tallies.
    pub fn snapshot(&self) -> [(Kind, Tally); 4] {
        Kind::ALL.map(|kind| (kind, self.of(kind)))
    }

    /// How often requests of one kind were answered so.
    pub fn answered(&self, kind: Kind, answer: Answer) -> u64 {
        self.cells[kind as usize].answered(answer)
    }

    /// Every kind with every answer and its count.
    pub fn answers(&self) -> impl Iterator<Item = (Kind, Answer, u64)> {
        let pairs = Kind::ALL.into_iter().flat_map(|kind| Answer::ALL.map(|answer| (kind, answer)));
        pairs.map(|(kind, answer)| (kind, answer, self.answered(kind, answer)))
    }

    /// A request leaves.
    pub(crate) fn sent(&self, kind: Kind) {
        self.cells[kind as usize].sent.fetch_add(1, Ordering::Relaxed);
    }

    /// Its answer is there, or its time is over.
    pub(crate) fn note(&self, kind: Kind, answer: Answer) {
        self.cells[kind as usize].answers[answer as usize].fetch_add(1, Ordering::Relaxed);
    }

    /// A listing took this many pages more than its first.
    pub(crate) fn further_pages(&self, pages: u64) {
        let cell = &self.cells[Kind::List as usize];
        cell.sent.fetch_add(pages, Ordering::Relaxed);
        cell.answers[Answer::Ok as usize].fetch_add(pages, Ordering::Relaxed);
    }
}
