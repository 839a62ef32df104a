//! Who holds a read, to its end (db-forward §5.3, J3), and what may and may not be lost on the way.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use carlos_bucket::layer::Op;
use carlos_protocol::ids::ReadId;
use carlos_protocol::keys::{self, Key};
use carlos_protocol::limits::{BEFORE_HEADERS, PICKUP_WINDOW};

use super::{Broken, History};
use crate::console::CONSOLE;
use crate::log::{Entry, Event, ReadStep};
use crate::person::Seen;
use crate::schedule;

/// A box that does not know whether it owns a read asks again for longer than this. One that
/// steps away sooner takes somebody else for the owner.
const STEPS_AWAY: Duration = Duration::from_secs(10);

/// How far two clocks of a run part that neither jump nor drift: each is 45 s off at most.
const CLOCKS_APART: Duration = Duration::from_secs(90);

/// From the check of a request's age to its claim: seconds are whole, and answers take a while.
const A_MOMENT: Duration = Duration::from_secs(4);

/// What the console still needs when a queue entry is there: the bump has its own 5 s.
const AFTER_THE_ENTRY: Duration = Duration::from_secs(6);

impl History {
    /// J3: a box steps away from a read only for another that holds it, and whoever holds a read
    /// and lives ends it.
    pub(super) fn claims_are_held(&self) -> Broken {
        let (claims, ended) = (self.claims(), self.ended());
        let mut broken = Broken::new();
        for ((id, who), claim) in &claims {
            if self.is_disturbed(who, claim.first, self.entries.len()) {
                continue;
            }
            let tried = self.between(claim.first, claim.last);
            match self.owner(*id) {
                None if tried < STEPS_AWAY => broken.push(format!(
                    "J3: nobody holds {id}, from which {who} stepped away after {tried:?}"
                )),
                Some(owner) if owner == **who && !ended.contains(id) => {
                    broken.push(format!("J3: {who} holds {id}, lives, and never ended it"));
                }
                _ => {}
            }
        }
        broken
    }

    /// db-forward §5.5: a request is claimed within its window, however long its box stood still
    /// after it had looked at the clock.
    pub(super) fn claims_are_young(&self) -> Broken {
        if self.entries.iter().any(schedule::sets_a_clock) {
            return Broken::new();
        }
        let mut broken = Broken::new();
        let asked = self.asked();
        for ((id, who), claim) in self.claims() {
            // A box claims what it has verified, so the console sent it.
            let Some(asked) = asked.get(&id) else { continue };
            let age = self.between(*asked, claim.first);
            if age > PICKUP_WINDOW + CLOCKS_APART + A_MOMENT {
                broken.push(format!("J3: {who} claims {id} {age:?} after it was asked"));
            }
        }
        broken
    }

    /// A serial is a hint: a read whose entry boxes can see is answered with its lines, whatever
    /// became of the bump.
    pub(super) fn bumps_are_hints(&self) -> Broken {
        let mut broken = Broken::new();
        for (at, entry) in self.entries.iter().enumerate() {
            let Event::Answered(Op::Create, key, true) = &entry.event else { continue };
            let Ok(Key::Queue(queued)) = Key::parse(key) else { continue };
            let Some(number) = self.numbers.get(&queued.id) else { continue };
            let span = &self.spans[number];
            let in_time = self.between(span.start, at) + AFTER_THE_ENTRY < BEFORE_HEADERS;
            let left = matches!(self.reads[number].1, Seen::Left);
            if left || !in_time || self.is_disturbed(CONSOLE, span.start, span.end) {
                continue;
            }
            if !self.lines_of(*number).any(|(_, line)| line.starts_with("admitted")) {
                broken.push(format!("B3: read {number} was refused though boxes can see it"));
            }
        }
        broken
    }

    /// J1: at most one answer of a read reaches its person, and nothing after the end.
    pub(super) fn one_answer_each(&self) -> Broken {
        let mut broken = Broken::new();
        for number in self.reads.keys() {
            for once in ["admitted", "picked", "result"] {
                let lines = self.lines_of(*number).filter(|(_, line)| line.starts_with(once));
                if lines.count() > 1 {
                    broken.push(format!("J1: read {number} has more than one line '{once}'"));
                }
            }
            let end = self.spans[number].end;
            for (_, line) in self.lines_of(*number).filter(|(at, _)| *at > end) {
                broken.push(format!("J1: read {number} had '{line}' after its end"));
            }
        }
        broken
    }

    /// The reads of which a result was sent, at least once: after a cancel nobody waits for it.
    fn ended(&self) -> BTreeSet<ReadId> {
        let result = |entry: &Entry| match &entry.event {
            Event::Sent(Op::Create, key) if key.ends_with("/result.json") => {
                match Key::parse(key) {
                    Ok(Key::Result(id)) => Some(id),
                    _ => None,
                }
            }
            _ => None,
        };
        self.entries.iter().filter_map(result).collect()
    }

    /// When each request was first sent.
    fn asked(&self) -> BTreeMap<ReadId, usize> {
        let mut asked = BTreeMap::new();
        for (at, entry) in self.entries.iter().enumerate() {
            let Event::Sent(Op::Create, key) = &entry.event else { continue };
            if let (CONSOLE, Ok(Key::Request(id))) = (entry.who, Key::parse(key)) {
                asked.entry(id).or_insert(at);
            }
        }
        asked
    }

    /// The claims that boxes sent, by read and box.
    fn claims(&self) -> BTreeMap<(ReadId, &'static str), Claim> {
        let mut claims = BTreeMap::<_, Claim>::new();
        for (at, entry) in self.entries.iter().enumerate() {
            let Event::Sent(Op::Create, key) = &entry.event else { continue };
            if !key.starts_with(keys::DB_READS) {
                continue;
            }
            let Ok(Key::Picked(id)) = Key::parse(key) else { continue };
            let claim = claims.entry((id, entry.who)).or_insert(Claim { first: at, last: at });
            claim.last = at;
        }
        claims
    }

    fn lines_of(&self, number: usize) -> impl Iterator<Item = (usize, &str)> {
        let lines = self.lines.get(&number).into_iter().flatten();
        lines.map(|(at, line)| (*at, line.as_str()))
    }

    /// Whether this process ended, was told to, or stood still between two entries.
    fn is_disturbed(&self, who: &str, from: usize, to: usize) -> bool {
        self.disturbances.iter().any(|(at, whose)| *whose == who && (from..to).contains(at))
    }

    fn between(&self, from: usize, to: usize) -> Duration {
        Duration::from_millis(self.entries[to].at_ms.saturating_sub(self.entries[from].at_ms))
    }
}

/// From where to where in the history a box sent creates of `picked`.
struct Claim {
    first: usize,
    last: usize,
}

/// The ends and halts of processes, by where they stand in the history.
pub(super) fn disturbances(entries: &[Entry]) -> Vec<(usize, &'static str)> {
    let disturbs = |(at, entry): (usize, &Entry)| match &entry.event {
        Event::Machine(what) => DISTURBING.contains(&what.as_str()).then_some((at, entry.who)),
        _ => None,
    };
    entries.iter().enumerate().filter_map(disturbs).collect()
}

/// The lines that each read's person got.
pub(super) fn lines(entries: &[Entry]) -> BTreeMap<usize, Vec<(usize, String)>> {
    let mut lines = BTreeMap::<_, Vec<_>>::new();
    for (at, entry) in entries.iter().enumerate() {
        if let Event::Read(number, ReadStep::Line(line)) = &entry.event {
            lines.entry(*number).or_default().push((at, line.clone()));
        }
    }
    lines
}

const DISTURBING: [&str; 4] = ["killed", "draining", "shutting down", "frozen"];
