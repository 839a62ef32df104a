//! Numbered crashes: for each, what is left in the bucket and what a person sees, exactly as
//! docs/design.md's table "What a crash leaves" says. Each is a function over a store, so that the
//! same text runs on memory, on a directory and on any other store.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use carlos_bucket::Purpose;
use carlos_bucket::fault::{Fault, Rule};
use carlos_bucket::layer::{Inner, Op};
use carlos_protocol::keys::{self, Key};
use carlos_protocol::limits::{CANCEL_POLL, CONSOLE_PICKUP_WAIT, OWNER_GRACE, WORKER_EXIT};

use crate::boxes::{Machine, Stop};
use crate::check::{Broken, History};
use crate::console::Desk;
use crate::person::{Manner, Seen};
use crate::rows::{Kind, Statement};
use crate::worker::Habits;
use crate::world::World;

/// What a scenario runs on.
pub struct Ground {
    /// An empty store.
    pub store: Inner,
    /// How long the console lets an owner work; db-forward's 20 minutes, or less where every look
    /// into the store takes real time.
    pub owner_time: Duration,
}

/// A crash, and what the design says of it.
#[derive(Clone, Copy, Debug)]
pub struct Scenario {
    /// Its number; never reused.
    pub number: u8,
    pub name: &'static str,
    crash: Crash,
    /// What is there in the end, besides the audit row and the request: keys without ids, chunks as
    /// one.
    leaves: &'static [&'static str],
    sees: Sees,
}

/// Who stops, and after what.
#[derive(Clone, Copy, Debug)]
enum Crash {
    /// The console, when the store has done this and before it hears so.
    Console(Op, &'static str),
    /// The console is told to stop while a box works.
    ConsoleStops,
    /// The only box, at a point of `CrashPoint`; it never comes back.
    Box(u8),
    /// One of two boxes.
    OneOfTwo(u8),
    /// The only box, when the store has done this and before it hears so; another run of it starts
    /// at once.
    BoxRestarts(Op, &'static str),
    /// The only box's create of `picked` lands, and it does not learn so until this long after the
    /// request: it hears then, or stops.
    BoxUnsure(Then),
    /// The only box's worker, at any step.
    Worker,
    /// The person, after this long.
    Person(Duration),
}

/// How a box's doubt ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Then {
    Hears,
    Stops,
}

/// What the person has in the end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Sees {
    Rows,
    /// DBF-12 as soon as the connection or the result says so.
    Unfinished,
    /// DBF-12, a minute after the owner's deadline.
    UnfinishedAtLast,
    /// DBF-3, two minutes after the request.
    NobodyCame,
    /// They are gone.
    Nothing,
}

/// A read that an owner took and never ended, one whose output it began, and an answered one.
const OWNED: &[&str] = &["queue", "serial", "picked", "cancel"];
const HALF: &[&str] = &["queue", "serial", "picked", "out", "cancel"];
const WHOLE: &[&str] = &["queue", "serial", "picked", "out", "result.json"];

const fn scenario(
    number: u8,
    name: &'static str,
    crash: Crash,
    leaves: &'static [&'static str],
    sees: Sees,
) -> Scenario {
    Scenario { number, name, crash, leaves, sees }
}

use Crash::{
    Box as BoxAt, BoxRestarts, BoxUnsure, Console, ConsoleStops, OneOfTwo, Person, Worker,
};
use Sees::{NobodyCame, Nothing, Rows, Unfinished, UnfinishedAtLast};

/// Every scenario, by number.
pub const SCENARIOS: &[Scenario] = &[
    scenario(1, "console: audit row", Console(Op::Create, "activity/"), &[], Unfinished),
    scenario(2, "console: request", Console(Op::Create, "request.json"), &[], Unfinished),
    scenario(
        3,
        "console: queue entry",
        Console(Op::Create, "/queue/"),
        &["queue", "picked", "out", "result.json"],
        Unfinished,
    ),
    scenario(4, "console: serial", Console(Op::Replace, "control/serial/"), WHOLE, Unfinished),
    scenario(5, "console: after the 200", Console(Op::Get, "/picked"), WHOLE, Unfinished),
    scenario(6, "console: told to stop", ConsoleStops, CANCELLED, Unfinished),
    scenario(11, "box: verified", BoxAt(1), UNPICKED, NobodyCame),
    scenario(12, "box: before picked", BoxAt(2), UNPICKED, NobodyCame),
    scenario(13, "box: picked", BoxAt(3), OWNED, UnfinishedAtLast),
    scenario(14, "box: planned", BoxAt(4), OWNED, UnfinishedAtLast),
    scenario(15, "box: worker started", BoxAt(5), OWNED, UnfinishedAtLast),
    scenario(16, "box: fed", BoxAt(6), OWNED, UnfinishedAtLast),
    scenario(17, "box: worker ready", BoxAt(7), OWNED, UnfinishedAtLast),
    scenario(18, "box: checked again", BoxAt(8), OWNED, UnfinishedAtLast),
    scenario(19, "box: some chunks", BoxAt(9), HALF, UnfinishedAtLast),
    scenario(20, "box: last chunk, no result", BoxAt(10), HALF, UnfinishedAtLast),
    scenario(21, "box: result", BoxAt(11), WHOLE, Rows),
    scenario(22, "box: worker stopped", BoxAt(12), WHOLE, Rows),
    scenario(31, "one of two boxes: verified", OneOfTwo(1), WHOLE, Rows),
    scenario(32, "one of two boxes: before picked", OneOfTwo(2), WHOLE, Rows),
    scenario(
        33,
        "box: picked, answer lost, restarted",
        BoxRestarts(Op::Create, "/picked"),
        OWNED,
        UnfinishedAtLast,
    ),
    scenario(
        34,
        "box: result, answer lost, restarted",
        BoxRestarts(Op::Create, "/result.json"),
        WHOLE,
        Rows,
    ),
    scenario(35, "box: picked, heard of late", BoxUnsure(Then::Hears), INTERRUPTED, Unfinished),
    scenario(36, "box: picked, in doubt", BoxUnsure(Then::Stops), OWNED, UnfinishedAtLast),
    scenario(41, "worker: anywhere", Worker, INTERRUPTED, Unfinished),
    scenario(51, "person: while it is queued", Person(QUEUED), GIVEN_UP, Nothing),
    scenario(52, "person: while it is read", Person(READING), CANCELLED, Nothing),
];

const UNPICKED: &[&str] = &["queue", "serial", "cancel"];
const CANCELLED: &[&str] = &["queue", "serial", "picked", "cancel", "result.json"];
const INTERRUPTED: &[&str] = &["queue", "serial", "picked", "result.json"];
const GIVEN_UP: &[&str] = UNPICKED;

/// After the 200, before any box has looked: an idle box looks every 2 s.
const QUEUED: Duration = Duration::from_millis(1_150);
/// Longer than a box asks whose a read is, and within the minutes in which it looks again.
const IN_DOUBT: Duration = Duration::from_secs(40);
/// While the worker works.
const READING: Duration = Duration::from_secs(12);

impl Scenario {
    /// Plays the crash on `ground` and says what differs from the design.
    pub async fn run(&self, ground: Ground) -> Broken {
        let mut stage = Stage::new(ground, self.number).await;
        let seen = stage.play(self.crash).await;
        let mut broken = self.compare(&seen, &stage);
        broken.extend(stage.close(seen).await);
        let left = stage.left().await;
        let wanted: BTreeSet<_> = self.leaves.iter().map(|name| (*name).to_owned()).collect();
        if left != wanted {
            broken.push(format!("left {left:?}, not {wanted:?}"));
        }
        broken
    }

    fn compare(&self, seen: &Seen, stage: &Stage) -> Broken {
        let (name, after) = match self.sees {
            Rows => ("rows", Duration::ZERO),
            Unfinished => ("DBF-12", Duration::ZERO),
            UnfinishedAtLast => ("DBF-12", stage.owner_time + OWNER_GRACE),
            NobodyCame => ("DBF-3", CONSOLE_PICKUP_WAIT),
            Nothing => ("left", Duration::ZERO),
        };
        let mut broken = Broken::new();
        if seen.name() != name {
            broken.push(format!("the person saw {}, not {name}", seen.name()));
        }
        // From the first request to the last line: the opening, the election, a quick read.
        if !(after..after + Duration::from_secs(60)).contains(&stage.took) {
            broken.push(format!("it took {:?}, not {after:?} and a little", stage.took));
        }
        broken
    }
}

/// The parts of one scenario.
struct Stage {
    world: Arc<World>,
    desk: Arc<Desk>,
    machines: Vec<Arc<Machine>>,
    owner_time: Duration,
    statement: Statement,
    took: Duration,
}

impl Stage {
    async fn new(ground: Ground, number: u8) -> Self {
        let Ground { store, owner_time } = ground;
        let world = World::on(u64::from(number), store).await;
        let desk = Desk::with(&world, move |mut config| {
            config.timings.owner = owner_time;
            config
        });
        let machines = vec![Machine::new(&world, "box-a"), Machine::new(&world, "box-b")];
        let statement = Statement { number: 1, kind: Kind::Large };
        Self { world, desk, machines, owner_time, statement, took: Duration::ZERO }
    }

    /// Boots what the crash needs, asks one read, and waits for its end.
    async fn play(&mut self, crash: Crash) -> Seen {
        let first = &self.machines[0];
        first.boot(match crash {
            BoxAt(point) | OneOfTwo(point) => Some(Stop::dies(point, 1)),
            _ => None,
        });
        if let OneOfTwo(_) = crash {
            self.machines[1].boot(None);
        }
        self.world.ctx.sleep(Duration::from_secs(5)).await;
        first.workers.behave(habits(crash));
        if let BoxUnsure(_) = crash {
            let silent = Rule::new(Op::Create, Fault::DoneInSilence);
            first.line.faults.add(silent.on("/picked").always());
            first.line.faults.add(Rule::new(Op::Get, Fault::Refused(500)).on("/picked").always());
        }
        let cut = match crash {
            Console(op, part) => Some(self.desk.line.cut_after(op, part)),
            BoxRestarts(op, part) => Some(first.line.cut_after(op, part)),
            _ => None,
        };
        let asked = self.world.ctx.monotonic();
        let (desk, machine) = (Arc::clone(&self.desk), Arc::clone(first));
        let ctx = self.world.ctx.clone();
        let crashing = ctx.spawn(async move {
            if let Some(cut) = cut {
                cut.cancelled().await;
            }
            happen(crash, &desk, &machine).await;
        });
        let leaves_after = if let Person(after) = crash { Some(after) } else { None };
        let manner = Manner { leaves_after, ..Manner::default() };
        let seen = self.world.read(&self.desk, 0, self.statement.clone(), manner).await;
        self.took = self.world.ctx.monotonic() - asked;
        crashing.abort();
        seen
    }

    /// Waits until nothing goes on any more, and holds all of it against the invariants.
    async fn close(&self, seen: Seen) -> Broken {
        // A sweep, an election and a quick read, for entries that the console left behind; a
        // cancel is seen sooner, and its worker ends within its own bound.
        self.world.ctx.sleep(Duration::from_secs(45) + CANCEL_POLL + WORKER_EXIT).await;
        let mut broken = Broken::new();
        if self.machines.iter().any(|machine| machine.workers.alive() > 0) {
            broken.push("a worker outlives its agent".to_owned());
        }
        if self.world.left_in_scratch() > 0 {
            broken.push("scratch is left behind".to_owned());
        }
        self.desk.boot();
        if self.desk.open_reads() > 0 {
            broken.push("the console still counts a read".to_owned());
        }
        let reads = [(self.statement.number, (self.statement.clone(), seen))].into();
        broken.extend(History::of(&self.world, reads).await.broken(&self.world));
        for machine in &self.machines {
            machine.drain().await;
        }
        broken
    }

    /// Keys of the read in the bucket, without their ids.
    async fn left(&self) -> BTreeSet<String> {
        let mut left = BTreeSet::new();
        for prefix in [keys::DB_READS, "control/serial"] {
            for listed in self.world.bucket.list(prefix, None, Purpose::Sweep).await.unwrap() {
                let name = match Key::parse(&listed.key) {
                    Ok(Key::Queue(_)) => "queue",
                    Ok(Key::Serial(_)) => "serial",
                    Ok(Key::Picked(_)) => "picked",
                    Ok(Key::Chunk(..)) => "out",
                    Ok(Key::Result(_)) => "result.json",
                    Ok(Key::Cancel(_)) => "cancel",
                    Ok(Key::Request(_)) => continue,
                    _ => listed.key.as_str(),
                };
                left.insert(name.to_owned());
            }
        }
        left
    }
}

/// A worker slow enough for several chunks, or for a person to lose patience.
fn habits(crash: Crash) -> Habits {
    match crash {
        Worker => Habits { dies: 1.0, ..Habits::BRISK },
        Person(_) | ConsoleStops => Habits { hangs: 1.0, ..Habits::BRISK },
        _ => Habits { pace: Duration::from_millis(2_500), ..Habits::BRISK },
    }
}

async fn happen(crash: Crash, desk: &Desk, machine: &Machine) {
    match crash {
        Console(..) => desk.kill(),
        ConsoleStops => {
            machine.ctx().sleep(READING).await;
            desk.shut_down().await;
        }
        BoxAt(_) | OneOfTwo(_) => {
            machine.stops().await;
            machine.kill().await;
        }
        BoxRestarts(..) => {
            machine.kill().await;
            machine.boot(None);
        }
        BoxUnsure(then) => {
            machine.ctx().sleep(IN_DOUBT).await;
            match then {
                Then::Hears => machine.line.faults.clear(),
                Then::Stops => machine.kill().await,
            }
        }
        Worker | Person(_) => {}
    }
}
