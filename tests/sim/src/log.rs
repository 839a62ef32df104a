//! What happened, in order: the artefact of a run, and what its invariants are checked on.

use std::fmt::{self, Write as _};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use carlos_box_agent::CrashPoint;
use carlos_bucket::Context;
use carlos_bucket::layer::Op;

/// One thing that happened.
#[derive(Clone, Debug, PartialEq)]
pub struct Entry {
    /// Milliseconds of virtual time since the run began.
    pub at_ms: u64,
    /// The process, machine or person it happened to.
    pub who: &'static str,
    pub event: Event,
}

/// What happened.
#[derive(Clone, Debug, PartialEq)]
pub enum Event {
    /// A process sent a request to its store.
    Sent(Op, String),
    /// A process has an answer: a success or not.
    Answered(Op, String, bool),
    /// The store did it, whatever the process was told.
    Landed(Op, String),
    /// The agent passed a point of one of its reads.
    Point(CrashPoint),
    /// A process started, stopped, or its machine changed.
    Machine(String),
    /// A worker of a machine, by its number there.
    Worker(u64, Step),
    /// A person's read, by its number.
    Read(usize, ReadStep),
}

/// A step of a worker's life.
#[derive(Clone, Debug, PartialEq)]
pub enum Step {
    Started,
    /// It holds the restored copy.
    Ready,
    /// It was told to run this statement.
    Run(String),
    /// It is gone, and its scratch with it.
    Gone,
}

/// A step of a read, as its person sees it.
#[derive(Clone, Debug, PartialEq)]
pub enum ReadStep {
    /// By the person of this number.
    Asked(usize),
    /// A line came; chunks by their number.
    Line(String),
    /// The request is over for this reason; nothing of it reaches the person any more.
    Ended(String),
}

/// The history of one run. Clones share it.
#[derive(Clone)]
pub struct Log {
    ctx: Context,
    entries: Arc<Mutex<Vec<Entry>>>,
}

impl Log {
    /// An empty log on the time line of `ctx`.
    pub fn new(ctx: &Context) -> Self {
        Self { ctx: ctx.clone(), entries: Arc::default() }
    }

    /// Adds what happens now.
    pub fn add(&self, who: &'static str, event: Event) {
        let at_ms = u64::try_from(self.ctx.monotonic().as_millis()).unwrap();
        self.entries().push(Entry { at_ms, who, event });
    }

    /// Adds a line about a machine or a process.
    pub fn machine(&self, who: &'static str, what: impl Into<String>) {
        self.add(who, Event::Machine(what.into()));
    }

    /// Everything so far.
    pub fn all(&self) -> Vec<Entry> {
        self.entries().clone()
    }

    /// How many entries so far are such ones.
    pub fn count(&self, such: impl Fn(&Entry) -> bool) -> usize {
        self.entries().iter().filter(|entry| such(entry)).count()
    }

    /// The whole history as text, one line for each entry.
    pub fn text(&self) -> String {
        let mut text = String::new();
        for entry in self.entries().iter() {
            writeln!(text, "{entry}").unwrap();
        }
        text
    }

    /// The entries, locked: nothing may be added meanwhile.
    pub(crate) fn entries(&self) -> MutexGuard<'_, Vec<Entry>> {
        self.entries.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl fmt::Display for Entry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (seconds, ms) = (self.at_ms / 1_000, self.at_ms % 1_000);
        write!(f, "{seconds:>5}.{ms:03} {:<8} {:?}", self.who, self.event)
    }
}
