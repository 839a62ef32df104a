//! Holds a finished run against what must hold in every run (db-forward §5.3, docs/design.md).

mod admission;
mod claims;

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;
use std::time::Duration;

use bytes::Bytes;
use carlos_bucket::Purpose;
use carlos_bucket::layer::Op;
use carlos_protocol::envelope::{RootKeys, verify};
use carlos_protocol::ids::{Digest, ReadId};
use carlos_protocol::keys::{self, Key};
use carlos_protocol::limits::{BEFORE_HEADERS, REQUEST_TIME};
use carlos_protocol::picked::Picked;
use carlos_protocol::request::ReadRequest;
use carlos_protocol::result::ReadResult;

use crate::console::CONSOLE;
use crate::log::{Entry, Event, ReadStep, Step};
use crate::person::Seen;
use crate::rows::Statement;
use crate::world::World;

/// What a run came to.
pub struct History {
    entries: Vec<Entry>,
    /// What was asked, by the read's number, and what its person saw.
    reads: BTreeMap<usize, (Statement, Seen)>,
    /// The number of each read that reached the bucket.
    numbers: BTreeMap<ReadId, usize>,
    /// Everything under `db-reads/`, and the audit rows.
    objects: BTreeMap<String, Bytes>,
    /// From where to where in `entries` each read was open.
    spans: BTreeMap<usize, Range<usize>>,
    runs: Vec<Ran>,
    landings: Vec<Landed>,
    /// The ends and halts of processes, and the lines of each read, by where they stand.
    disturbances: Vec<(usize, &'static str)>,
    lines: BTreeMap<usize, Vec<(usize, String)>>,
}

/// A worker was told to run a read's statement.
struct Ran {
    at: usize,
    who: &'static str,
    worker: u64,
    number: usize,
}

/// The store took an object.
struct Landed {
    at: usize,
    who: &'static str,
    op: Op,
    key: String,
    /// `None` for a key that no part of the product names.
    named: Option<Key>,
}

/// What does not hold, in words.
pub type Broken = Vec<String>;

impl History {
    /// Reads what `world` holds after these reads.
    pub async fn of(world: &World, reads: BTreeMap<usize, (Statement, Seen)>) -> Self {
        let mut objects = BTreeMap::new();
        for prefix in [keys::DB_READS, "activity"] {
            for listed in world.bucket.list(prefix, None, Purpose::Sweep).await.unwrap() {
                let body = world.bucket.get(&listed.key, Purpose::Sweep).await.unwrap();
                objects.insert(listed.key, body.expect("nothing is ever deleted"));
            }
        }
        let entries = world.log.all();
        let numbers = numbers(world, &objects);
        let (spans, runs, landings) = (spans(&entries), runs(&entries), landings(&entries));
        let (disturbances, lines) = (claims::disturbances(&entries), claims::lines(&entries));
        Self { entries, reads, numbers, objects, spans, runs, landings, disturbances, lines }
    }

    /// Everything that is broken.
    pub fn broken(&self, world: &World) -> Broken {
        [
            self.written_once(),
            self.one_owner(),
            self.one_run(),
            self.the_console_ends_with_its_request(),
            self.no_cancel_of_an_answer(),
            self.no_output_before_check_b(),
            self.results_come_last(),
            self.answers_are_right(world),
            self.reads_end_in_time(),
            self.claims_are_held(),
            self.claims_are_young(),
            self.bumps_are_hints(),
            self.one_answer_each(),
            self.boxes_hold_no_more_than_they_may(),
        ]
        .concat()
    }

    /// J2, J4: nothing under `db-reads/` was replaced, and nothing anywhere was deleted.
    fn written_once(&self) -> Broken {
        let bad = self.landings.iter().filter(|it| match it.op {
            Op::Delete => true,
            op => op != Op::Create && it.key.starts_with(keys::DB_READS),
        });
        let bad = bad.map(|it| format!("J2: {:?} {} by {}", it.op, it.key, it.who));
        let gone = self.landings.iter().filter(|it| it.key.starts_with(keys::DB_READS));
        let gone = gone.filter(|it| !self.objects.contains_key(&it.key));
        bad.chain(gone.map(|it| format!("J4: {} is gone", it.key))).collect()
    }

    /// J3: what a box writes about a read, its owner writes.
    fn one_owner(&self) -> Broken {
        let mut broken = Broken::new();
        for Landed { who, key, named, .. } in &self.landings {
            let Some(Key::Chunk(id, _) | Key::Result(id)) = named else { continue };
            let owner = self.owner(*id);
            if owner.as_deref() != Some(who) {
                broken.push(format!("J3: {key} by {who}, owned by {owner:?}"));
            }
        }
        broken
    }

    /// J3: at most one run of each read, by its owner.
    fn one_run(&self) -> Broken {
        let mut broken = Broken::new();
        let mut ran = BTreeSet::new();
        for Ran { who, number, .. } in &self.runs {
            if !ran.insert(number) {
                broken.push(format!("J3: read {number} ran twice"));
            }
            let owner = self.id(*number).and_then(|id| self.owner(id));
            if owner.as_deref() != Some(who) {
                broken.push(format!("J3: read {number} run by {who}, not {owner:?}"));
            }
        }
        broken
    }

    /// Whether the request of this read had ended before this happened.
    fn is_over(&self, number: usize, entry: &Entry) -> bool {
        let end = self.entries.get(self.spans[&number].end);
        end.is_some_and(|end| end.at_ms < entry.at_ms)
    }

    /// J1: the console begins no write of a read after its request ended, but one cancel. A write
    /// of the same instant is none: what a process does and what ends it have no order there.
    fn the_console_ends_with_its_request(&self) -> Broken {
        let mut broken = Broken::new();
        let mut begun = BTreeSet::new();
        let digests = self.digests();
        for (at, entry) in self.entries.iter().enumerate() {
            let Event::Sent(op @ (Op::Create | Op::Replace), key) = &entry.event else { continue };
            if entry.who != CONSOLE || key.ends_with("/cancel") {
                continue;
            }
            let late = match op {
                Op::Create if !begun.insert(key) => false,
                Op::Create => {
                    let number = self.number_of(key, &digests);
                    number.is_some_and(|number| self.is_over(number, entry))
                }
                _ => {
                    let begun = |number: &&usize| self.spans[*number].start <= at;
                    let mut open = self.spans.keys().filter(begun);
                    !open.any(|number| !self.is_over(*number, entry))
                }
            };
            if late {
                broken.push(format!("J1: {op:?} {key} begun after its request ended: {entry}"));
            }
        }
        broken
    }

    /// J1: a read that was answered is not cancelled.
    fn no_cancel_of_an_answer(&self) -> Broken {
        let answered = self.reads.iter().filter(|(_, (_, seen))| matches!(seen, Seen::Rows(_)));
        let cancelled = answered.filter(|(number, _)| {
            let cancel = self.id(**number).map(|id| Key::Cancel(id).to_path());
            cancel.is_some_and(|key| self.objects.contains_key(&key))
        });
        cancelled
            .map(|(number, _)| format!("J1: read {number} was answered and cancelled"))
            .collect()
    }

    /// B1: between the restored copy and the run its box has read the record once more, and no
    /// chunk is there before the run.
    fn no_output_before_check_b(&self) -> Broken {
        let mut broken = Broken::new();
        let mut ran_at = BTreeMap::new();
        for Ran { at, who, worker, number } in &self.runs {
            ran_at.insert(*number, *at);
            let ready = Event::Worker(*worker, Step::Ready);
            let own = self.entries[..*at].iter().rev().filter(|earlier| earlier.who == *who);
            let mut since_ready = own.take_while(|earlier| earlier.event != ready);
            let looked = since_ready.any(|earlier| match &earlier.event {
                Event::Answered(Op::Get, key, _) => key.starts_with("hosts/"),
                _ => false,
            });
            if !looked {
                broken.push(format!("B1: read {number} ran without check B"));
            }
        }
        for Landed { at, key, named, .. } in &self.landings {
            let Some(Key::Chunk(id, _)) = named else { continue };
            if ran_at.get(&self.numbers[id]).is_none_or(|ran| ran > at) {
                broken.push(format!("B1: {key} landed before its run"));
            }
        }
        broken
    }

    /// B2: a result names chunks that landed before it.
    fn results_come_last(&self) -> Broken {
        let mut broken = Broken::new();
        let mut chunks = BTreeSet::new();
        for Landed { key, named, .. } in &self.landings {
            match named {
                Some(Key::Chunk(id, seq)) => drop(chunks.insert((*id, *seq))),
                Some(Key::Result(id)) => {
                    let result = ReadResult::from_bytes(&self.objects[key]);
                    let last = result.expect("a box writes what decodes").last_seq;
                    if !(1..=last).all(|seq| chunks.contains(&(*id, seq))) {
                        broken
                            .push(format!("B2: {key} names {last} chunks that are not all there"));
                    }
                }
                _ => {}
            }
        }
        broken
    }

    /// Whatever reached a person is the source's own rows or a sentence that explains itself.
    fn answers_are_right(&self, world: &World) -> Broken {
        let mut broken = Broken::new();
        for (number, (statement, seen)) in &self.reads {
            let expected = world.expected.rows(&statement.sql());
            match seen {
                Seen::Rows(rows) if Some(rows) == expected.as_ref() => {}
                Seen::Rows(_) => {
                    broken.push(format!("read {number}: other rows than the source's"))
                }
                Seen::Sentence(id) if CLEAN.contains(&id.as_str()) => {}
                Seen::Sentence(id) => broken.push(format!("read {number}: {id} explains nothing")),
                Seen::Left => {}
                Seen::Wrong(what) => broken.push(format!("read {number}: {what}")),
            }
        }
        broken
    }

    /// The list door, the opening, and the longest request there is (db-forward §5.7).
    fn reads_end_in_time(&self) -> Broken {
        let bound = BEFORE_HEADERS * 2 + REQUEST_TIME + DAWDLING;
        let took = |number: usize| {
            let span = &self.spans[&number];
            let (from, to) = (&self.entries[span.start], &self.entries[span.end]);
            Duration::from_millis(to.at_ms - from.at_ms)
        };
        let late = self.reads.keys().filter(|number| took(**number) > bound);
        late.map(|number| format!("read {number} took {:?}", took(*number))).collect()
    }

    fn owner(&self, id: ReadId) -> Option<String> {
        let picked = self.objects.get(&Key::Picked(id).to_path())?;
        let picked = Picked::from_bytes(picked).expect("a box writes what decodes");
        Some(picked.box_name.to_string())
    }

    fn id(&self, number: usize) -> Option<ReadId> {
        self.numbers.iter().find(|(_, known)| **known == number).map(|(id, _)| *id)
    }

    /// The beginning of each statement's digest, by which an audit row names it.
    fn digests(&self) -> BTreeMap<String, usize> {
        let digest = |it: &Statement| Digest::of(it.sql().as_bytes()).prefix();
        self.reads.iter().map(|(number, (statement, _))| (digest(statement), *number)).collect()
    }

    /// The read that one of the console's creates belongs to.
    fn number_of(&self, key: &str, digests: &BTreeMap<String, usize>) -> Option<usize> {
        let id = match Key::parse(key).ok()? {
            Key::Request(id) => id,
            Key::Queue(entry) => entry.id,
            Key::Activity(..) => {
                let row = String::from_utf8_lossy(self.objects.get(key)?);
                let (_, digest) = row.split_once("sha256 ")?;
                return digests.get(digest.split_once(' ')?.0).copied();
            }
            _ => return None,
        };
        self.numbers.get(&id).copied()
    }
}

fn numbers(world: &World, objects: &BTreeMap<String, Bytes>) -> BTreeMap<ReadId, usize> {
    let roots = RootKeys::from_iter([world.key.public()]);
    let mut numbers = BTreeMap::new();
    for (key, body) in objects {
        let Ok(Key::Request(id)) = Key::parse(key) else { continue };
        let request: ReadRequest = verify(&roots, body).expect("the console signs requests");
        numbers.insert(id, Statement::number_in(&request.sql).expect("a run's statement"));
    }
    numbers
}

fn spans(entries: &[Entry]) -> BTreeMap<usize, Range<usize>> {
    let mut spans = BTreeMap::new();
    for (at, entry) in entries.iter().enumerate() {
        match &entry.event {
            Event::Read(number, ReadStep::Asked(_)) => drop(spans.insert(*number, at..usize::MAX)),
            Event::Read(number, ReadStep::Ended(_)) => {
                spans.get_mut(number).expect("a read is asked first").end = at;
            }
            _ => {}
        }
    }
    spans
}

fn runs(entries: &[Entry]) -> Vec<Ran> {
    let run = |(at, entry): (usize, &Entry)| match &entry.event {
        Event::Worker(worker, Step::Run(sql)) => {
            let number = Statement::number_in(sql).expect("a run's statement");
            Some(Ran { at, who: entry.who, worker: *worker, number })
        }
        _ => None,
    };
    entries.iter().enumerate().filter_map(run).collect()
}

fn landings(entries: &[Entry]) -> Vec<Landed> {
    let landed = |(at, entry): (usize, &Entry)| match &entry.event {
        Event::Landed(op, key) => {
            let named = Key::parse(key).ok();
            Some(Landed { at, who: entry.who, op: *op, key: key.clone(), named })
        }
        _ => None,
    };
    entries.iter().enumerate().filter_map(landed).collect()
}

/// What a person who stops reading adds to their own read: the longest pause, before two lines.
const DAWDLING: Duration = Duration::from_secs(70);

/// What a person may be told in these runs. DBF-13, an answer that does not check out, is not among
/// them: nobody forges here.
const CLEAN: [&str; 13] = [
    "DBF-1", "DBF-2", "DBF-3", "DBF-9", "DBF-10", "DBF-12", "DBF-15", "DBF-16",
    // No answer before the headers, SQLite's own words, nothing by that name (between two lives of
    // it), no audit row, and a console that is not there.
    "DBL-2", "DBL-8", "DBL-10", "DBL-21", "DBL-25",
];
