//! One seed's run: what goes wrong, when, and what came of it.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use carlos_bucket::Context;
use carlos_bucket::fault::{Fault, Rule};
use carlos_bucket::layer::Op;
use carlos_protocol::limits::{OWNER_GRACE, OWNER_TIME};
use futures::future::join_all;

use crate::boxes::{Machine, Stop};
use crate::check::{Broken, History};
use crate::console::Desk;
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

/// Reads after everything is well again: as many as the boxes have slots.
const AFTERGLOW: usize = 4;
const AFTERGLOW_NUMBER: usize = 1_000;

/// How likely a request goes wrong, one of these for each line of a run.
const BADNESS: [f64; 5] = [0.0, 0.0, 0.03, 0.08, 0.25];

/// What one seed came to.
pub struct Report {
    pub seed: u64,
    /// The whole history, one line for each entry.
    pub log: String,
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
    world: Arc<World>,
    desk: Arc<Desk>,
    machines: Vec<Arc<Machine>>,
    dice: Context,
    weather: Vec<Weather>,
}

impl Course {
    async fn new(seed: u64) -> Self {
        let world = World::new(seed).await;
        let desk = Desk::new(&world);
        let machines = vec![Machine::new(&world, "box-a"), Machine::new(&world, "box-b")];
        let dice = world.ctx.node("schedule");
        Self { seed, world, desk, machines, dice, weather: Vec::new() }
    }

    fn is_calm(&self) -> bool {
        self.seed.is_multiple_of(CALM_EVERY)
    }

    async fn run(mut self) -> Report {
        let world = Arc::clone(&self.world);
        if !self.is_calm() {
            self.spoil();
        }
        let fates: Vec<_> = self.machines.iter().map(|it| (Arc::clone(it), self.fate())).collect();
        let lives: Vec<_> =
            fates.into_iter().map(|(it, fate)| self.start(live(it, fate))).collect();
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

    fn fate(&self) -> Fate {
        match self.is_calm() {
            true => Fate::Steady,
            false => Fate::draw(&self.dice),
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

    /// J5, from outside: every slot of every box takes a read at the same time, and is answered.
    async fn afterglow(&self, seen: &mut BTreeMap<usize, (Statement, Seen)>) -> Broken {
        // So slow that no slot can serve two of them within the pickup window.
        let slow = Habits { pause: Duration::from_secs(100), ..Habits::BRISK };
        self.machines.iter().for_each(|it| it.workers.behave(slow.clone()));
        let reads = (0..AFTERGLOW).map(|n| async move {
            let statement = Statement { number: AFTERGLOW_NUMBER + n, kind: Kind::Small };
            let manner = Manner::default();
            let end = self.world.read(&self.desk, n / 2, statement.clone(), manner).await;
            (statement, end)
        });
        let mut broken = Broken::new();
        for (statement, end) in join_all(reads).await {
            if !matches!(end, Seen::Rows(_)) {
                broken.push(format!("J5: after all was well, a read ended {}", end.name()));
            }
            seen.insert(statement.number, (statement, end));
        }
        self.world.ctx.sleep(WARM_UP).await;
        broken
    }

    async fn report(self, seen: BTreeMap<usize, (Statement, Seen)>, known: Broken) -> Report {
        let mut tally = BTreeMap::new();
        let mut count = |name: &str| *tally.entry(name.to_owned()).or_default() += 1;
        let asked = seen.iter().filter(|(number, _)| **number < AFTERGLOW_NUMBER);
        asked.clone().for_each(|(_, (_, end))| count(end.name()));
        let mut broken = known;
        if self.is_calm() {
            let unanswered = asked.filter(|(_, (statement, end))| match statement.kind {
                Kind::Wrong => end.name() != "DBL-8",
                _ => !matches!(end, Seen::Rows(_)),
            });
            broken.extend(unanswered.map(|(n, (_, end))| format!("calm read {n}: {}", end.name())));
        }
        let lines = self.machines.iter().flat_map(|it| [&it.line, &it.data]);
        for line in lines.chain([&self.desk.line]) {
            broken.extend(line.guard.violations().into_iter().map(|it| format!("J2: {it}")));
            line.faults.struck().iter().for_each(|it| count(fault_name(it)));
        }
        self.machines.iter().for_each(|machine| broken.extend(machine.errors()));
        let most = self.machines.iter().map(|it| it.workers.most()).max().unwrap_or_default();
        if most > carlos_protocol::limits::WORKER_CONNECTIONS {
            broken.push(format!("J5: {most} workers at once on one box"));
        }
        broken.extend(History::of(&self.world, seen).await.broken(&self.world));
        for machine in &self.machines {
            machine.drain().await;
        }
        if self.world.left_in_scratch() > 0 {
            broken.push("scratch was left behind".to_owned());
        }
        let log = self.world.log.text();
        Report { seed: self.seed, log, broken, tally }
    }
}

/// `Create db-reads/... AnswerLost` is `Create AnswerLost`, whatever its numbers.
fn fault_name(struck: &str) -> &str {
    let fault = struck.splitn(3, ' ').nth(2).unwrap_or_default();
    fault.split('(').next().unwrap_or_default()
}

/// What becomes of an agent.
#[derive(Clone, Copy, Debug)]
enum Fate {
    Steady,
    /// It dies where a read passes a point.
    DiesAt(Stop, Back),
    /// It is killed at some time.
    Killed(Duration, Back),
    /// It is told to stop at some time.
    Drained(Duration, Back),
}

/// After how long it comes back, if it does before the end.
type Back = Option<Duration>;

/// Points at which an agent can die, see `CrashPoint`.
const POINTS: usize = 12;

impl Fate {
    fn draw(dice: &Context) -> Self {
        let back = dice.chance(0.8).then(|| dice.jitter(Duration::from_secs(40)));
        match dice.below(6) {
            0 => {
                let (point, nth) = (1 + dice.below(POINTS) as u8, 1 + dice.below(2));
                Self::DiesAt(Stop { point, nth }, back)
            }
            1 => Self::Killed(dice.jitter(SPAN), back),
            2 => Self::Drained(dice.jitter(SPAN), back),
            _ => Self::Steady,
        }
    }
}

async fn live(machine: Arc<Machine>, fate: Fate) {
    let ctx = machine.ctx().clone();
    machine.boot(match fate {
        Fate::DiesAt(stop, _) => Some(stop),
        _ => None,
    });
    let back = match fate {
        Fate::Steady => return,
        Fate::DiesAt(_, back) => {
            if ctx.timeout(WARM_UP + 2 * SPAN, machine.dies()).await.is_ok() {
                machine.kill().await;
            }
            machine.spare();
            back
        }
        Fate::Killed(after, back) => {
            ctx.sleep(after).await;
            machine.kill().await;
            back
        }
        Fate::Drained(after, back) => {
            ctx.sleep(after).await;
            machine.drain().await;
            back
        }
    };
    let Some(back) = back else { return };
    ctx.sleep(back).await;
    if !machine.is_up() {
        machine.boot(None);
    }
}

fn manner(dice: &Context) -> Manner {
    let patience = match dice.below(8) {
        0 => Some(Duration::from_secs(2)),
        1 => Some(Duration::from_secs(30)),
        _ => None,
    };
    let dawdles = match dice.below(12) {
        0 => dice.jitter(Duration::from_secs(12)),
        1 => Duration::from_secs(35),
        _ => Duration::ZERO,
    };
    Manner { leaves_after: patience.map(|most| dice.jitter(most)), dawdles }
}

fn habits(dice: &Context) -> Habits {
    let seconds = |choices: [u64; 3]| Duration::from_millis(choices[dice.below(3)]);
    let sometimes = |p: f64| if dice.chance(0.2) { p } else { 0.0 };
    Habits {
        pause: seconds([40, 1_500, 8_000]),
        pace: seconds([20, 900, 2_500]),
        fails: sometimes(0.2),
        dies: sometimes(0.2),
        hangs: sometimes(0.1),
        lingers: seconds([50, 1_000, 4_500]),
    }
}

/// What can go wrong on one line.
struct Weather {
    line: Line,
    throttled: Arc<AtomicBool>,
    silent: Arc<AtomicBool>,
}

impl Weather {
    fn over(line: &Line, dice: &Context) -> Self {
        let weather =
            Self { line: line.clone(), throttled: Arc::default(), silent: Arc::default() };
        let ops = [Op::Create, Op::Get, Op::List, Op::Replace];
        for op in ops {
            line.faults.add(switched(op, Fault::Refused(503), &weather.throttled));
            line.faults.add(switched(op, Fault::Swallowed, &weather.silent));
        }
        let badness = BADNESS[dice.below(BADNESS.len())];
        for op in ops {
            let faults = faults(op, dice);
            let odds = badness / faults.len() as f64;
            for fault in faults {
                line.faults.add(Rule::new(op, fault).filter(move |key| may(fault, key)).odds(odds));
            }
        }
        weather
    }

    /// Throttled, or silent, for a while.
    async fn squall(&self, ctx: &Context, silent: bool, span: Duration) {
        let switch = if silent { &self.silent } else { &self.throttled };
        switch.store(true, Ordering::SeqCst);
        ctx.sleep(span).await;
        switch.store(false, Ordering::SeqCst);
    }

    fn clear(&self) {
        self.line.faults.clear();
    }
}

fn switched(op: Op, fault: Fault, switch: &Arc<AtomicBool>) -> Rule {
    let switch = Arc::clone(switch);
    Rule::new(op, fault).filter(move |_| switch.load(Ordering::SeqCst)).always()
}

/// A store lists and reads what it has; only what it was just given may be missing for a moment.
fn may(fault: Fault, key: &str) -> bool {
    fault != Fault::Hidden || key.contains("/out/") || key.ends_with("/picked")
}

fn faults(op: Op, dice: &Context) -> Vec<Fault> {
    let late = Duration::from_millis(500 + dice.below(6_000) as u64);
    let slow = Duration::from_millis(300 + dice.below(3_000) as u64);
    let common = [Fault::Refused(500), Fault::NotSent, Fault::Swallowed, Fault::SlowAnswer(slow)];
    let own = match op {
        Op::Create => vec![
            Fault::DoneBut(500),
            Fault::DoneBut(503),
            Fault::AnswerLost,
            Fault::DoneInSilence,
            Fault::Conflict,
            Fault::LandsLate(late),
            Fault::Delayed(slow),
        ],
        Op::Replace => vec![Fault::DoneBut(500), Fault::AnswerLost, Fault::LandsLate(late)],
        _ => vec![Fault::Hidden],
    };
    common.into_iter().chain(own).collect()
}

/// Everything else that happens in a run.
struct Trouble {
    world: Arc<World>,
    desk: Arc<Desk>,
    machines: Vec<Arc<Machine>>,
    weather: Vec<Weather>,
    events: Vec<(Duration, Mishap)>,
}

#[derive(Clone, Copy, Debug)]
enum Mishap {
    /// A machine's clock is set wrong by up to an hour.
    ClockJumps(usize, i64),
    ConsoleIsKilled(Duration),
    ConsoleShutsDown(Duration),
    Moves(Duration),
    Recreated,
    Squall {
        line: usize,
        silent: bool,
        span: Duration,
    },
}

impl Trouble {
    fn draw(course: &Course) -> Self {
        let dice = &course.dice;
        let count = if course.is_calm() { 0 } else { dice.below(4) };
        let mut events: Vec<_> = (0..count)
            .map(|_| (dice.jitter(SPAN), Mishap::draw(dice, course.weather.len())))
            .collect();
        events.sort_by_key(|(at, _)| *at);
        Self {
            world: Arc::clone(&course.world),
            desk: Arc::clone(&course.desk),
            machines: course.machines.clone(),
            weather: course.weather.iter().map(Weather::share).collect(),
            events,
        }
    }

    async fn happen(self) {
        let began = self.world.ctx.monotonic();
        for (at, mishap) in &self.events {
            let passed = self.world.ctx.monotonic() - began;
            self.world.ctx.sleep(at.saturating_sub(passed)).await;
            self.world.log.machine("trouble", format!("{mishap:?}"));
            self.strike(*mishap).await;
        }
    }

    async fn strike(&self, mishap: Mishap) {
        let ctx = &self.world.ctx;
        match mishap {
            Mishap::ClockJumps(machine, ms) => match self.machines.get(machine) {
                Some(machine) => machine.set_skew_ms(ms),
                None => self.desk.set_skew_ms(ms),
            },
            Mishap::ConsoleIsKilled(back) => {
                self.desk.kill();
                ctx.sleep(back).await;
                self.desk.boot();
            }
            Mishap::ConsoleShutsDown(back) => {
                self.desk.shut_down().await;
                ctx.sleep(back).await;
                self.desk.boot();
            }
            Mishap::Moves(span) => {
                self.world.set_moving(true).await;
                ctx.sleep(span).await;
                self.world.set_moving(false).await;
            }
            Mishap::Recreated => self.world.recreate().await,
            Mishap::Squall { line, silent, span } => {
                self.weather[line].squall(ctx, silent, span).await;
            }
        }
    }
}

impl Weather {
    fn share(&self) -> Self {
        let (throttled, silent) = (Arc::clone(&self.throttled), Arc::clone(&self.silent));
        Self { line: self.line.clone(), throttled, silent }
    }
}

impl Mishap {
    fn draw(dice: &Context, lines: usize) -> Self {
        let span = Duration::from_secs(1) + dice.jitter(Duration::from_secs(25));
        match dice.below(9) {
            0 => {
                let reach = [2_000, 90_000, 3_600_000][dice.below(3)];
                Self::ClockJumps(dice.below(3), dice.below(2 * reach) as i64 - reach as i64)
            }
            1 => Self::ConsoleIsKilled(span),
            2 => Self::ConsoleShutsDown(span),
            3 => Self::Moves(span),
            4 => Self::Recreated,
            _ => Self::Squall { line: dice.below(lines), silent: dice.chance(0.4), span },
        }
    }
}
