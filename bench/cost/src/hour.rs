//! One hour of a deployment, and what came of it.

use std::collections::BTreeMap;
use std::time::Duration;

use carlos_bucket::Pace;
use carlos_protocol::keys::Key;
use serde::Serialize;

use crate::deployment::{Deployment, REGIONS, Sent, Size};
use crate::latency::Distance;
use crate::person::{Seen, read};
use crate::prices::HOURS;
use crate::share::Waits;

/// Waits by how far the read's region is from the bucket.
pub type ByDistance = BTreeMap<Distance, Waits>;

/// How long is measured.
const HOUR: Duration = Duration::from_secs(3_600);

/// People come to look at something and ask several times: so many reads each time.
const SITTING: usize = 6;

/// The longest time between an answer and the next question of a sitting.
const THINKING: Duration = Duration::from_secs(40);

/// A box is awake for this long after it saw work: the pace's linger, and the time that an entry
/// takes to leave the pickup window, during which each listing shows it again.
const AWAKE: Duration = Duration::from_secs(60 + 125);

/// What is asked in an hour.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub enum Load {
    /// Nothing.
    Idle,
    /// So many reads, spread over every region that has a box.
    Reads(usize),
    /// So many reads of the region with this index, and none of any other.
    ReadsIn(usize, usize),
}

impl Load {
    fn reads(self) -> usize {
        match self {
            Self::Idle => 0,
            Self::Reads(count) | Self::ReadsIn(_, count) => count,
        }
    }

    /// The region of a sitting.
    fn region(self, sitting: usize, regions: usize) -> usize {
        match self {
            Self::ReadsIn(region, _) => region,
            _ => sitting % regions,
        }
    }
}

/// What one hour came to, or several.
#[derive(Clone, Debug, Serialize)]
pub struct Report {
    pub boxes: usize,
    pub load: Load,
    /// Hours measured. Counts and waits are of all of them, dollars of the average one.
    pub hours: usize,
    pub sent: Sent,
    /// Reads that were asked, and those among them without an answer.
    pub reads: usize,
    pub unanswered: usize,
    /// From the serial's move to `picked`, when somebody read in that region within a minute.
    pub pickup: ByDistance,
    /// The same for the first read after a quiet time.
    pub pickup_after_quiet: ByDistance,
    /// From a person's command to the first sealed rows at their end.
    pub first_row: ByDistance,
    /// To rows that have checked out.
    pub answer: ByDistance,
    /// Quick looks of boxes in whose region nobody had read.
    pub woken_elsewhere: usize,
}

impl Report {
    /// Dollars for thirty days of such hours.
    pub fn dollars_a_month(&self) -> f64 {
        self.sent.all().dollars() * HOURS / self.hours as f64
    }

    /// The same for what one box asks of both buckets, on average.
    pub fn dollars_a_month_a_box(&self) -> f64 {
        let boxes = self.sent.boxes().dollars() + self.sent.data.dollars();
        boxes * HOURS / (self.hours * self.boxes) as f64
    }

    /// Another hour of the same deployment beside this one.
    pub fn merge(mut self, other: &Self) -> Self {
        self.hours += other.hours;
        self.sent = self.sent.plus(&other.sent);
        self.reads += other.reads;
        self.unanswered += other.unanswered;
        self.woken_elsewhere += other.woken_elsewhere;
        for (mine, theirs) in [
            (&mut self.pickup, &other.pickup),
            (&mut self.pickup_after_quiet, &other.pickup_after_quiet),
            (&mut self.first_row, &other.first_row),
            (&mut self.answer, &other.answer),
        ] {
            theirs.iter().for_each(|(at, waits)| mine.entry(*at).or_default().merge(waits));
        }
        self
    }
}

/// Runs one deployment through an hour, on virtual time.
pub fn play(size: Size, load: Load) -> Report {
    carlos_tests_sim::run(async {
        let all = Deployment::new(size).await;
        let before = all.sent();
        let reads = hour(&all, load).await;
        let sent = all.sent();
        let report = Course { all: &all, load, reads }.report(before, sent);
        all.stop().await;
        report
    })
}

/// A deployment with production's pace.
pub fn size(boxes: usize, seed: u64) -> Size {
    Size { boxes, seed, pace: Pace::default() }
}

/// A read that was asked.
struct Read {
    region: usize,
    asked: Duration,
    seen: Option<Seen>,
}

async fn hour(all: &Deployment, load: Load) -> Vec<Read> {
    let begun = all.ctx.monotonic();
    let sittings = load.reads().div_ceil(SITTING);
    let mut reads = Vec::new();
    for sitting in 0..sittings {
        let share = HOUR / u32::try_from(sittings).expect("a few");
        let start = share * sitting as u32 + all.ctx.jitter(share / 4);
        all.ctx.sleep((begun + start).saturating_sub(all.ctx.monotonic())).await;
        let region = load.region(sitting, all.regions());
        let count = SITTING.min(load.reads() - reads.len());
        sit(all, region, count, &mut reads).await;
    }
    all.ctx.sleep((begun + HOUR).saturating_sub(all.ctx.monotonic())).await;
    reads
}

async fn sit(all: &Deployment, region: usize, count: usize, reads: &mut Vec<Read>) {
    for _ in 0..count {
        let asked = all.ctx.monotonic();
        let seen = read(all, region, reads.len()).await;
        reads.push(Read { region, asked, seen });
        all.ctx.sleep(all.ctx.jitter(THINKING)).await;
    }
}

/// An hour that is over.
struct Course<'a> {
    all: &'a Deployment,
    load: Load,
    reads: Vec<Read>,
}

impl Course<'_> {
    fn report(&self, before: Sent, sent: Sent) -> Report {
        let (pickup, pickup_after_quiet) = self.pickups();
        Report {
            boxes: self.all.boxes.len(),
            load: self.load,
            hours: 1,
            sent: sent.since(&before),
            reads: self.reads.len(),
            unanswered: self.reads.iter().filter(|read| read.seen.is_none()).count(),
            pickup,
            pickup_after_quiet,
            first_row: self.waits(|seen| seen.first_row - seen.asked),
            answer: self.waits(|seen| seen.answered - seen.asked),
            woken_elsewhere: self.woken_elsewhere(),
        }
    }

    fn waits(&self, wait: impl Fn(&Seen) -> Duration) -> ByDistance {
        let mut waits: ByDistance = BTreeMap::new();
        for read in &self.reads {
            if let Some(seen) = &read.seen {
                waits.entry(REGIONS[read.region].1).or_default().add(wait(seen));
            }
        }
        waits
    }

    /// From the serial's move to `picked`, by whether the region had a read within a minute.
    fn pickups(&self) -> (ByDistance, ByDistance) {
        let landed = Landed::of(&self.all.landed.all());
        let (mut warm, mut cold) = (BTreeMap::new(), BTreeMap::new());
        let mut last = [None; REGIONS.len()];
        for read in &self.reads {
            let Some(seen) = &read.seen else { continue };
            let before: Option<Duration> = last[read.region].replace(seen.asked);
            let lately = before.is_some_and(|at| seen.asked - at <= Duration::from_secs(60));
            let waits: &mut ByDistance = if lately { &mut warm } else { &mut cold };
            let pickup = landed.pickup(REGIONS[read.region].0, seen);
            waits.entry(REGIONS[read.region].1).or_default().add(pickup);
        }
        (warm, cold)
    }

    fn woken_elsewhere(&self) -> usize {
        let woken = |read: &Read, at: Duration| (read.asked..read.asked + AWAKE).contains(&at);
        let looks = self
            .all
            .boxes
            .iter()
            .flat_map(|it| it.line.quick_looks().into_iter().map(|at| (it.region, at)));
        looks
            .filter(|(region, at)| {
                let mut own = self.reads.iter().filter(|read| read.region == *region);
                !own.any(|read| woken(read, *at))
            })
            .count()
    }
}

/// When what took effect.
struct Landed {
    picked: BTreeMap<String, Duration>,
    bumps: BTreeMap<String, Vec<Duration>>,
}

impl Landed {
    fn of(all: &[(String, Duration)]) -> Self {
        let mut found = Self { picked: BTreeMap::new(), bumps: BTreeMap::new() };
        for (key, at) in all {
            match Key::parse(key) {
                Ok(Key::Picked(id)) => drop(found.picked.insert(id.to_string(), *at)),
                Ok(Key::Serial(region)) => {
                    found.bumps.entry(region.to_string()).or_default().push(*at);
                }
                _ => {}
            }
        }
        found
    }

    /// A sweep may find an entry before its serial moves; then nobody waited for the move.
    fn pickup(&self, region: &str, seen: &Seen) -> Duration {
        let picked = self.picked[&seen.id.to_string()];
        let bump = self.bumps[region].iter().find(|at| **at >= seen.asked);
        picked.saturating_sub(*bump.expect("every read moves the serial"))
    }
}
