//! One seed's run: what goes wrong, when, and what came of it.

mod fate;
mod trouble;
mod weather;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use carlos_bucket::Context;
use carlos_bucket::fault::S3Conduct;
use carlos_protocol::ids::ReadId;
use carlos_protocol::keys::{Key, QueueEntry};
use carlos_protocol::limits::{CONSOLE_PICKUP_WAIT, OWNER_GRACE, OWNER_TIME};
use carlos_protocol::time::Seconds;
use futures::future::{join, join_all};
use object_store::ObjectStoreExt as _;
use object_store::path::Path;
use tokio_util::sync::CancellationToken;

use self::fate::{Fate, habits, live, manner};
use self::trouble::{TROUBLE, Trouble};
use self::weather::{Weather, conduct};
use crate::boxes::Machine;
use crate::check::{Broken, History};
use crate::console::Desk;
use crate::log::{Entry, Event, Log, ReadStep};
use crate::person::{Manner, Seen};
use crate::rows::{Kind, Statement};
use crate::wire::Line;
use crate::worker::Habits;
use crate::world::{World, run};

/// Until the agents have probed and published.
const WARM_UP: Duration = Duration::from_secs(5);

/// Reads are asked, and things go wrong, within this.
const SPAN: Duration = Duration::from_secs(70);

/// Every tenth seed has nothing wrong with it, and then every read must be answered.
const CALM_EVERY: u64 = 10;

/// After the last read: its entry has left every box's window, skewed clocks included.
const WINDOW_OVER: Duration = Duration::from_secs(185);

/// Reads after everything is well again: as many as two boxes have slots.
const AFTERGLOW: usize = 4;
const AFTERGLOW_NUMBER: usize = 1_000;

/// Boxes of an ordinary run, and of one with two fleets of three.
const NAMES: [&str; 6] = ["box-a", "box-b", "box-c", "box-d", "box-e", "box-f"];

/// When both fleets lose power, and how soon all their boxes start at the same instant.
const POWER_CUT: (Duration, Duration) = (Duration::from_secs(18), Duration::from_secs(3));

/// Entries of a crowded queue: the first page of a listing, and one more.
const CROWD: usize = 1_001;

/// How old these are when the run begins: for ten seconds boxes still look for their requests,
/// for the rest of the run their listings begin with them.
const CROWDS_AGE: u64 = 50;

/// What a run is about, beside everything that can go wrong in any.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Shape {
    Plain,
    /// The queue holds more than a page of entries that nobody stands behind.
    Crowded,
    /// Two fleets start in step.
    Fleets,
    /// A box stands still for an hour before a write.
    WriterStalls,
    /// The console stands still for an hour.
    ConsoleStalls,
}

impl Shape {
    fn of(seed: u64) -> Self {
        match seed % 32 {
            10 => Self::Crowded,
            7 => Self::Fleets,
            3 | 19 => Self::WriterStalls,
            13 => Self::ConsoleStalls,
            _ => Self::Plain,
        }
    }
}

/// What one seed came to.
pub struct Report {
    pub seed: u64,
    /// The whole history.
    pub log: Log,
    /// What does not hold.
    pub broken: Broken,
    /// How often what was seen, by the name of what a person saw or of what went wrong.
    pub tally: BTreeMap<String, usize>,
}

/// Runs one seed to its end.
pub fn play(seed: u64) -> Report {
    run(async { Course::new(seed).await.run().await })
}

/// One run under way.
struct Course {
    seed: u64,
    shape: Shape,
    world: Arc<World>,
    desk: Arc<Desk>,
    machines: Vec<Arc<Machine>>,
    dice: Context,
    weather: Vec<Weather>,
}

impl Course {
    async fn new(seed: u64) -> Self {
        let (world, shape) = (World::new(seed).await, Shape::of(seed));
        let desk = Desk::new(&world);
        let boxes = if shape == Shape::Fleets { 6 } else { 2 };
        let machines = NAMES[..boxes].iter().map(|who| Machine::new(&world, who)).collect();
        let dice = world.ctx.node("schedule");
        Self { seed, shape, world, desk, machines, dice, weather: Vec::new() }
    }

    fn is_calm(&self) -> bool {
        self.seed.is_multiple_of(CALM_EVERY)
    }

    fn console_stalls(&self) -> bool {
        self.shape == Shape::ConsoleStalls && !self.is_calm()
    }

    async fn run(mut self) -> Report {
        let world = Arc::clone(&self.world);
        world.log.machine(TROUBLE, format!("{:?}", self.shape));
        if !self.is_calm() {
            self.spoil();
        }
        if self.shape == Shape::Crowded {
            self.crowd().await;
        }
        let fates = self.fates();
        let lives: Vec<_> = self.machines.iter().cloned().zip(fates).collect();
        let lives: Vec<_> =
            lives.into_iter().map(|(it, fate)| self.start(live(it, fate))).collect();
        world.ctx.sleep(WARM_UP).await;
        let troubles = self.start(Trouble::draw(&self).happen());
        let reads: Vec<_> = self.asks().into_iter().map(|ask| self.start(ask)).collect();
        let mut seen: BTreeMap<_, _> = BTreeMap::new();
        for read in reads {
            let (statement, end) = read.await.unwrap();
            seen.insert(statement.number, (statement, end));
        }
        for end in lives.into_iter().chain([troubles]) {
            end.await.unwrap();
        }
        let mut broken = self.settle().await;
        broken.extend(self.afterglow(&mut seen).await);
        self.report(seen, broken).await
    }

    fn start<T: Send + 'static>(
        &self,
        work: impl Future<Output = T> + Send + 'static,
    ) -> tokio::task::JoinHandle<T> {
        self.world.ctx.spawn(work)
    }

    /// Bad weather on every line, wrong clocks, and workers with habits.
    fn spoil(&mut self) {
        let dice = self.dice.clone();
        self.world.s3.behave(conduct(&dice));
        let skew = |chance| match dice.chance(chance) {
            true => dice.below(90_000) as i64 - 45_000,
            false => 0,
        };
        self.weather.push(Weather::over(&self.desk.line, &dice));
        self.desk.set_skew_ms(skew(0.4));
        for machine in &self.machines {
            self.weather.push(Weather::over(&machine.line, &dice));
            self.weather.push(Weather::over(&machine.data, &dice));
            machine.set_skew_ms(skew(0.4));
            machine.workers.behave(habits(&dice));
        }
    }

    fn fates(&self) -> Vec<Fate> {
        let dice = &self.dice;
        let mut fates: Vec<_> = self.machines.iter().map(|_| self.fate()).collect();
        if self.shape == Shape::WriterStalls && !self.is_calm() {
            let writer = dice.below(fates.len());
            fates[writer] = Fate::stall(dice);
        }
        fates
    }

    fn fate(&self) -> Fate {
        let (cut, back) = POWER_CUT;
        match self.shape {
            _ if self.is_calm() => Fate::Steady,
            Shape::Fleets => Fate::Killed(cut, Some(back)),
            _ => Fate::draw(&self.dice),
        }
    }

    /// More entries than one page names, none of them with a request.
    async fn crowd(&self) {
        let issued_at = Seconds::new(self.world.ctx.now_unix() - CROWDS_AGE);
        for _ in 0..CROWD {
            let id = ReadId::mint(&mut self.dice.entropy());
            let entry = QueueEntry { region: "uk".parse().unwrap(), issued_at, id };
            let key = Path::from(Key::Queue(entry).to_path());
            self.world.store.put(&key, "".into()).await.unwrap();
        }
    }

    fn asks(&self) -> Vec<impl Future<Output = (Statement, Seen)> + Send + 'static> {
        let count = 3 + self.dice.below(4);
        (1..=count).map(|number| self.ask(number)).collect()
    }

    fn ask(&self, number: usize) -> impl Future<Output = (Statement, Seen)> + Send + 'static {
        let dice = &self.dice;
        let kind = match dice.below(10) {
            0 => Kind::Wrong,
            1..=3 => Kind::Large,
            _ => Kind::Small,
        };
        let (after, person) = (dice.jitter(SPAN), dice.below(self.world.tokens.len()));
        let manner = if self.is_calm() { Manner::default() } else { manner(dice) };
        let (world, desk) = (Arc::clone(&self.world), Arc::clone(&self.desk));
        async move {
            world.ctx.sleep(after).await;
            let statement = Statement { number, kind };
            let seen = world.read(&desk, person, statement.clone(), manner).await;
            (statement, seen)
        }
    }

    /// Everything is well again; whatever still runs comes to its end within its bound.
    async fn settle(&self) -> Broken {
        let ctx = &self.world.ctx;
        self.weather.iter().for_each(Weather::clear);
        self.world.s3.behave(S3Conduct::default());
        self.world.s3.calm_down();
        self.desk.set_skew_ms(0);
        self.desk.boot();
        for machine in &self.machines {
            machine.set_skew_ms(0);
            machine.workers.behave(Habits::BRISK);
            if !machine.is_up() {
                machine.boot(None);
            }
        }
        ctx.sleep(WINDOW_OVER).await;
        let until = ctx.monotonic() + OWNER_TIME + OWNER_GRACE;
        while !self.machines.iter().all(|it| it.is_idle()) {
            if ctx.monotonic() > until {
                return vec!["J5: a read or a worker outlives its owner's deadline".to_owned()];
            }
            ctx.sleep(Duration::from_secs(1)).await;
        }
        let open = self.desk.open_reads();
        if open > 0 { vec![format!("J5: the console still counts {open} reads")] } else { vec![] }
    }

    /// J5, from outside: every slot of two boxes takes a read at the same time, none of them ends
    /// before all are taken, and all are answered.
    async fn afterglow(&self, seen: &mut BTreeMap<usize, (Statement, Seen)>) -> Broken {
        let gate = CancellationToken::new();
        let waiting = Habits { gate: Some(gate.clone()), ..Habits::BRISK };
        self.machines.iter().for_each(|it| it.workers.behave(waiting.clone()));
        let reads = (0..AFTERGLOW).map(|n| async move {
            let statement = Statement { number: AFTERGLOW_NUMBER + n, kind: Kind::Small };
            let manner = Manner::default();
            let end = self.world.read(&self.desk, n / 2, statement.clone(), manner).await;
            (statement, end)
        });
        let (ends, ()) = join(join_all(reads), self.open_when_all_are_taken(gate)).await;
        let mut broken = Broken::new();
        for (statement, end) in ends {
            if !matches!(end, Seen::Rows(_)) {
                broken.push(format!("J5: after all was well, a read ended {}", end.name()));
            }
            seen.insert(statement.number, (statement, end));
        }
        self.world.ctx.sleep(WARM_UP).await;
        broken
    }

    async fn open_when_all_are_taken(&self, gate: CancellationToken) {
        let until = self.world.ctx.monotonic() + CONSOLE_PICKUP_WAIT;
        while self.world.log.count(is_a_taken_afterglow) < AFTERGLOW {
            self.world.ctx.sleep(Duration::from_millis(500)).await;
            if self.world.ctx.monotonic() > until {
                break;
            }
        }
        gate.cancel();
    }

    async fn report(self, seen: BTreeMap<usize, (Statement, Seen)>, known: Broken) -> Report {
        let mut broken = known;
        if self.is_calm() {
            broken.extend(unanswered(&seen));
        }
        for line in self.lines() {
            broken.extend(line.guard.violations().into_iter().map(|it| format!("J2: {it}")));
        }
        let tally = self.tally(&seen);
        self.machines.iter().for_each(|machine| broken.extend(machine.errors()));
        let most = self.machines.iter().map(|it| it.workers.most()).max().unwrap_or_default();
        if most > carlos_protocol::limits::WORKER_CONNECTIONS {
            broken.push(format!("J5: {most} workers at once on one box"));
        }
        let history = History::of(&self.world, seen).await;
        broken.extend(history.broken(&self.world));
        broken.extend(history.people_hold_no_more_than_they_may());
        for machine in &self.machines {
            machine.drain().await;
        }
        if self.world.left_in_scratch() > 0 {
            broken.push("scratch was left behind".to_owned());
        }
        Report { seed: self.seed, log: self.world.log.clone(), broken, tally }
    }

    fn lines(&self) -> impl Iterator<Item = &Line> {
        let boxes = self.machines.iter().flat_map(|it| [&it.line, &it.data]);
        boxes.chain([&self.desk.line])
    }

    /// What people saw, and what went wrong on lines, in the service and around them.
    fn tally(&self, seen: &BTreeMap<usize, (Statement, Seen)>) -> BTreeMap<String, usize> {
        let mut tally = BTreeMap::new();
        let mut count = |name: String, times| *tally.entry(name).or_default() += times;
        for (_, (_, end)) in seen.range(..AFTERGLOW_NUMBER) {
            count(end.name().to_owned(), 1);
        }
        for line in self.lines() {
            line.faults.struck().iter().for_each(|it| count(fault_name(it), 1));
        }
        for (what, times) in self.world.s3.seen() {
            count(format!("s3: {what}"), times);
        }
        for entry in self.world.log.entries().iter() {
            match &entry.event {
                Event::Machine(what) if entry.who == TROUBLE => count(trouble::name(what), 1),
                Event::Machine(what) if what == "frozen" => {
                    count(format!("frozen {}", kind(entry.who)), 1)
                }
                _ => {}
            }
        }
        tally
    }
}

/// Whether this is a clock going wrong in the middle of a run.
pub(crate) fn sets_a_clock(entry: &Entry) -> bool {
    let Event::Machine(what) = &entry.event else { return false };
    entry.who == TROUBLE && what.starts_with("Clock")
}

/// In a run without trouble every read is answered.
fn unanswered(seen: &BTreeMap<usize, (Statement, Seen)>) -> Broken {
    let asked = seen.range(..AFTERGLOW_NUMBER);
    let unanswered = asked.filter(|(_, (statement, end))| match statement.kind {
        Kind::Wrong => end.name() != "DBL-8",
        _ => !matches!(end, Seen::Rows(_)),
    });
    unanswered.map(|(n, (_, end))| format!("calm read {n}: {}", end.name())).collect()
}

fn is_a_taken_afterglow(entry: &Entry) -> bool {
    match &entry.event {
        Event::Read(number, ReadStep::Line(line)) => {
            *number >= AFTERGLOW_NUMBER && line.starts_with("picked")
        }
        _ => false,
    }
}

/// A box is a box.
fn kind(who: &str) -> &str {
    who.split('-').next().unwrap_or(who)
}

/// `Create db-reads/... AnswerLost` is `Create AnswerLost`; how long and which status is left out,
/// but for what a create is told although it landed.
fn fault_name(struck: &str) -> String {
    let mut parts = struck.splitn(3, ' ');
    let (op, fault) = (parts.next().unwrap_or_default(), parts.nth(1).unwrap_or_default());
    let name = match fault.starts_with("DoneBut") || fault.starts_with("Refused") {
        true => fault,
        false => fault.split('(').next().unwrap_or_default(),
    };
    format!("{op} {name}")
}
