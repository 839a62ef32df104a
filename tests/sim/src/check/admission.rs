//! Admission is held by what does the work (db-forward §5.3, J5).

use std::collections::BTreeMap;

use carlos_box_agent::CrashPoint;
use carlos_protocol::limits::{
    READS_PER_BOX, READS_PER_CONSOLE, READS_PER_PERSON, WORKER_CONNECTIONS,
};

use super::{Broken, History};
use crate::log::{Event, ReadStep, Step};

impl History {
    /// J5: no box ever runs more than it may, and a slot is free only when its worker is gone.
    pub(super) fn boxes_hold_no_more_than_they_may(&self) -> Broken {
        let mut boxes = BTreeMap::<_, OneBox>::new();
        let found = self.entries.iter().filter_map(|entry| {
            let what = boxes.entry(entry.who).or_default().see(&entry.event)?;
            Some(format!("J5: {what}: {entry}"))
        });
        found.collect()
    }

    /// J5: nobody has more reads open than a console with the limits of db-forward §5.7 admits.
    pub fn people_hold_no_more_than_they_may(&self) -> Broken {
        let mut people = People::default();
        let found = self.entries.iter().filter_map(|entry| {
            let Event::Read(number, step) = &entry.event else { return None };
            let what = people.see(*number, step)?;
            Some(format!("J5: {what}: {entry}"))
        });
        found.collect()
    }
}

/// The open reads of everybody.
#[derive(Default)]
struct People {
    askers: BTreeMap<usize, usize>,
    /// The person of each read that was admitted and is not over.
    open: BTreeMap<usize, usize>,
}

impl People {
    fn see(&mut self, number: usize, step: &ReadStep) -> Option<String> {
        match step {
            ReadStep::Asked(person) => drop(self.askers.insert(number, *person)),
            ReadStep::Ended(_) => drop(self.open.remove(&number)),
            ReadStep::Line(line) if line.starts_with("admitted") => {
                self.open.insert(number, self.askers[&number]);
            }
            ReadStep::Line(_) => {}
        }
        let person = self.askers[&number];
        let own = self.open.values().filter(|other| **other == person).count();
        let too_many = own > READS_PER_PERSON || self.open.len() > READS_PER_CONSOLE;
        too_many.then(|| format!("{own} open reads of person {person}, {} in all", self.open.len()))
    }
}

/// One run of a box's agent: what its predecessor left is not its own.
#[derive(Default)]
struct OneBox {
    reads: usize,
    workers: Vec<u64>,
}

impl OneBox {
    fn see(&mut self, event: &Event) -> Option<String> {
        match event {
            Event::Machine(what) if what.starts_with("boot") => *self = Self::default(),
            Event::Point(CrashPoint::PickedOwned) => self.reads += 1,
            Event::Point(CrashPoint::WorkerStopped) => {
                self.reads = self.reads.saturating_sub(1);
                // Beside the workers of its other reads there is one for the probe.
                if self.workers.len() > self.reads + 1 {
                    return Some(format!("a slot is free, {} workers run", self.workers.len()));
                }
            }
            Event::Worker(number, Step::Started) => self.workers.push(*number),
            Event::Worker(number, Step::Gone) => self.workers.retain(|other| other != number),
            _ => return None,
        }
        let (reads, workers) = (self.reads, self.workers.len());
        let too_many = reads > READS_PER_BOX || workers > WORKER_CONNECTIONS;
        too_many.then(|| format!("{reads} reads and {workers} workers on one box"))
    }
}
