//! Against the real Litestream, where there is one: `CARLOS_LITESTREAM_BINS` names programs,
//! separated by commas, the oldest first. `tests/litestream/fetch` installs two and prints that.
//!
//! Databases of every page size, encoding and auto-vacuum mode are replicated under a random
//! workload of several processes, with Litestream's own compaction, snapshots and retention
//! running, and a restart half way: sometimes by a kill, sometimes into the next version. Then
//! both restore the newest state and many moments, and must give the same bytes.
//!
//! | variable | meaning | when unset |
//! |---|---|---|
//! | `CARLOS_LITESTREAM_POINTS` | moments compared, over all databases | 1000 |
//! | `CARLOS_LITESTREAM_DATABASES` | databases, 24 for every page size in every encoding | 24 |
//! | `CARLOS_LITESTREAM_SECONDS` | length of a database's workload | 8 |
//! | `CARLOS_LITESTREAM_SEED` | where the random workload begins | 1 |
#![allow(clippy::disallowed_methods, clippy::disallowed_macros, clippy::unwrap_used)]

mod common;

use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Mutex;
use std::time::{Duration, Instant};

use carlos_replica::Target;
use carlos_replica::{Layout, PlanError, ReplicaReader, Resolution, RestoreError, RestoreFailure};
use common::{is_intact, reader, restore};
use rusqlite::Connection;
use tempfile::TempDir;

/// Databases that are worked on at once. A workload mostly waits; the restores fill the cores.
const LANES: usize = 4;
/// Processes that change one database.
const WRITERS: u64 = 2;
const ENCODINGS: [&str; 3] = ["UTF-8", "UTF-16le", "UTF-16be"];
/// Names the database to a process that is to change it.
const WRITER: &str = "CARLOS_LITESTREAM_WRITER";
const WRITER_SEED: &str = "CARLOS_LITESTREAM_WRITER_SEED";

/// A small generator, so that a failure can be repeated from its seed.
struct Dice(u64);

impl Dice {
    fn roll(&mut self, sides: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        (self.0 >> 33) % sides
    }
}

/// What one database is like, and who replicates it.
struct Case {
    number: u64,
    page_size: u32,
    auto_vacuum: u64,
    encoding: &'static str,
    /// Which program begins, and which goes on after the restart.
    programs: [PathBuf; 2],
    /// Whether old snapshots, and with them old levels, are removed while this runs.
    forgets: bool,
}

impl Case {
    /// Eight page sizes and three encodings have no common factor, so twenty-four numbers meet
    /// every pair; programs and auto-vacuum modes turn at their own pace.
    fn new(number: u64, programs: &[PathBuf]) -> Self {
        let at = |index: usize| programs[index.min(programs.len() - 1)].clone();
        let last = programs.len() - 1;
        let (first, second) = [(0, 0), (last, last), (0, last)][(number as usize / 2) % 3];
        Self {
            number,
            page_size: 512 << (number % 8),
            auto_vacuum: (number + number / 3) % 3,
            encoding: ENCODINGS[number as usize % 3],
            programs: [at(first), at(second)],
            forgets: number.is_multiple_of(4),
        }
    }

    fn create(&self, path: &Path) {
        let setup = format!(
            "PRAGMA page_size={}; PRAGMA auto_vacuum={}; PRAGMA encoding='{}'; \
             PRAGMA journal_mode=WAL; CREATE TABLE t(id INTEGER PRIMARY KEY, b BLOB, s TEXT);",
            self.page_size, self.auto_vacuum, self.encoding
        );
        Connection::open(path).unwrap().execute_batch(&setup).unwrap();
    }
}

struct Live {
    dir: TempDir,
    case: Case,
}

/// How both answered for one moment.
enum Answer {
    SameBytes,
    BeforeHistory,
    /// Releases before 0.5.15 could leave pages out of a file when the database grew.
    PagesMissing,
}

/// How the moments of all databases compared.
#[derive(Debug, Default)]
struct Tally {
    same: u64,
    before_history: u64,
    pages_missing: u64,
}

impl Tally {
    fn count(&mut self, answer: &Answer) {
        *match answer {
            Answer::SameBytes => &mut self.same,
            Answer::BeforeHistory => &mut self.before_history,
            Answer::PagesMissing => &mut self.pages_missing,
        } += 1;
    }

    fn add(&mut self, other: &Self) {
        self.same += other.same;
        self.before_history += other.before_history;
        self.pages_missing += other.pages_missing;
    }
}

impl Live {
    fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    /// Replicates, changes, restarts, and ends Litestream in order.
    fn work(&self, dice: &mut Dice) {
        self.case.create(&self.path("app.db"));
        let half = Duration::from_secs(number("CARLOS_LITESTREAM_SECONDS", 8)) / 2;
        let mut child = self.replicate(&self.case.programs[0]);
        let mut writers = self.start_writers(dice, half * 2);
        std::thread::sleep(half);
        if dice.roll(2) == 0 {
            child.kill().unwrap();
            child.wait().unwrap();
        } else {
            end_in_order(&mut child);
        }
        // Writers go on meanwhile, so that the program finds a log it cannot continue.
        std::thread::sleep(Duration::from_millis(dice.roll(600)));
        child = self.replicate(&self.case.programs[1]);
        for writer in &mut writers {
            assert!(writer.wait().unwrap().success(), "a writer failed");
        }
        end_in_order(&mut child);
    }

    fn start_writers(&self, dice: &mut Dice, length: Duration) -> Vec<Child> {
        let mut start = || {
            let mut command = Command::new(std::env::current_exe().unwrap());
            command.args(["--exact", "a_process_that_changes_a_database"]);
            command.env(WRITER, self.path("app.db"));
            command.env(WRITER_SEED, format!("{} {}", dice.roll(1 << 30), length.as_millis()));
            command.stdout(Stdio::null()).spawn().unwrap()
        };
        (0..WRITERS).map(|_| start()).collect()
    }

    fn replicate(&self, program: &Path) -> Child {
        let retention = if self.case.forgets { "3s" } else { "1h" };
        let config = format!(
            "levels: [{{interval: 1s}}, {{interval: 3s}}]\n\
             snapshot: {{interval: 2s, retention: {retention}}}\n\
             l0-retention: 2s\nl0-retention-check-interval: 1s\n\
             dbs:\n  - path: {}\n    monitor-interval: 50ms\n    replica: \
             {{type: file, path: {}, sync-interval: 50ms}}\n",
            self.path("app.db").display(),
            self.path("replica").display(),
        );
        std::fs::write(self.path("config.yml"), config).unwrap();
        let mut command = Command::new(program);
        command.arg("replicate").arg("-config").arg(self.path("config.yml"));
        command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap()
    }

    /// Litestream's own restore: the database, or what it said.
    fn restore(&self, at: Option<i64>) -> Result<PathBuf, String> {
        let out = self.path("theirs.db");
        let _ = std::fs::remove_file(&out);
        let mut command = Command::new(&self.case.programs[1]);
        command.arg("restore").arg("-o").arg(&out);
        if let Some(ms) = at {
            command.arg("-timestamp").arg(rfc3339(ms));
        }
        command.arg(format!("file://{}", self.path("replica").display()));
        let done = command.output().unwrap();
        let said = String::from_utf8_lossy(&done.stderr).into_owned();
        if done.status.success() { Ok(out) } else { Err(said) }
    }

    async fn compare(&self, at: Option<i64>) -> Answer {
        let reader = reader(&self.path("replica"), "", Layout::Auto, Resolution::Full);
        let target = at.map_or(Target::Newest, Target::Before);
        let ours = restore(&reader, target, self.dir.path()).await;
        let place = format!("database {} at {at:?}", self.case.number);
        match (self.restore(at), ours) {
            (Ok(theirs), Ok((ours, _))) => {
                let same = std::fs::read(theirs).unwrap() == std::fs::read(&ours).unwrap();
                assert!(same, "{place}: other bytes, kept in {}", self.keep().display());
                std::fs::remove_file(ours).unwrap();
                Answer::SameBytes
            }
            (Err(_), Err(RestoreFailure::Plan(PlanError::HistoryGone { .. }))) => {
                Answer::BeforeHistory
            }
            (theirs, Err(RestoreFailure::Restore(RestoreError::Hole { .. }))) => {
                // Where an older file has the page, Litestream takes that for the missing one.
                let refused = theirs.is_err() || !is_intact(&self.path("theirs.db"));
                assert!(refused, "{place}: a sound database, kept in {}", self.keep().display());
                Answer::PagesMissing
            }
            (theirs, ours) => {
                unreachable!("{place}: theirs {theirs:?}, ours {ours:?}, {}", self.keep().display())
            }
        }
    }

    /// Leaves the replica behind for whoever looks into a failure.
    fn keep(&self) -> PathBuf {
        let kept = std::env::temp_dir().join(format!("carlos-live-{}", self.case.number));
        common::copy_tree(&self.path("replica"), &kept);
        kept
    }

    async fn compare_all(&self, dice: &mut Dice, points: u64) -> Tally {
        let mut tally = Tally::default();
        let newest = self.compare(None).await;
        assert!(!matches!(newest, Answer::BeforeHistory));
        let (oldest, newest) = self.span().await;
        for _ in 0..points {
            let at = oldest + dice.roll((newest - oldest).unsigned_abs() + 1).cast_signed();
            tally.count(&self.compare(Some(at)).await);
        }
        tally
    }

    /// The times of the oldest and the newest file.
    async fn span(&self) -> (i64, i64) {
        let reader = reader(&self.path("replica"), "", Layout::File, Resolution::Full);
        let listing = reader.listing().await.unwrap();
        let times: Vec<_> = listing.files().map(|file| file.created_ms).collect();
        (*times.iter().min().unwrap(), *times.iter().max().unwrap())
    }
}

fn end_in_order(child: &mut Child) {
    let stop = Command::new("kill").arg("-INT").arg(child.id().to_string()).status().unwrap();
    assert!(stop.success() && child.wait().unwrap().success(), "Litestream ended badly");
}

fn rfc3339(ms: i64) -> String {
    let sql = "SELECT strftime('%Y-%m-%dT%H:%M:%fZ', ?1 / 1000.0, 'unixepoch')";
    let db = Connection::open_in_memory().unwrap();
    db.query_row(sql, [ms], |row| row.get(0)).unwrap()
}

fn number(variable: &str, otherwise: u64) -> u64 {
    std::env::var(variable).ok().and_then(|text| text.parse().ok()).unwrap_or(otherwise)
}

fn change(db: &Connection, dice: &mut Dice) {
    let amount = 1 + dice.roll(60);
    let insert = |rows: u64| {
        format!(
            "INSERT INTO t(b, s) WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n \
             WHERE i < {rows}) SELECT randomblob(abs(random()) % 900), hex(randomblob(40)) FROM n"
        )
    };
    let sql = match dice.roll(12) {
        0..=4 => insert(amount),
        // Far enough to move the end of the file by many pages of every size.
        5 => insert(amount * 20),
        6 | 7 => format!("UPDATE t SET b = randomblob(500) WHERE id % {} = 0", 2 + amount),
        8 => format!("DELETE FROM t WHERE id % {} = 0", 1 + amount / 8),
        9 => "DELETE FROM t WHERE id < (SELECT max(id) FROM t)".to_owned(),
        10 => "PRAGMA incremental_vacuum(20)".to_owned(),
        _ => "VACUUM".to_owned(),
    };
    // A busy database refuses now and then; the next change comes anyway.
    let _ = db.execute_batch(&sql);
}

/// Does nothing in a test run of its own. [`Live::start_writers`] starts it as a process.
#[test]
fn a_process_that_changes_a_database() {
    let (Some(path), Ok(text)) = (std::env::var_os(WRITER), std::env::var(WRITER_SEED)) else {
        return;
    };
    let (seed, millis) = text.split_once(' ').unwrap();
    let mut dice = Dice(seed.parse().unwrap());
    let end = Instant::now() + Duration::from_millis(millis.parse().unwrap());
    let db = Connection::open(path).unwrap();
    db.busy_timeout(Duration::from_secs(5)).unwrap();
    while Instant::now() < end {
        change(&db, &mut dice);
        std::thread::sleep(Duration::from_millis(20 + dice.roll(160)));
    }
}

fn run(case: Case, points: u64) -> Tally {
    let seed = number("CARLOS_LITESTREAM_SEED", 1);
    let mut dice = Dice(seed.wrapping_mul(1 << 20).wrapping_add(case.number));
    let live = Live { dir: TempDir::new().unwrap(), case };
    live.work(&mut dice);
    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    runtime.block_on(live.compare_all(&mut dice, points))
}

#[test]
fn both_restore_the_same_bytes_at_every_moment() {
    let Ok(programs) = std::env::var("CARLOS_LITESTREAM_BINS") else {
        say("SKIPPED: CARLOS_LITESTREAM_BINS names no Litestream to compare with");
        return;
    };
    let programs: Vec<_> = programs.split(',').map(PathBuf::from).collect();
    let databases = number("CARLOS_LITESTREAM_DATABASES", 24);
    let points = number("CARLOS_LITESTREAM_POINTS", 1000).div_ceil(databases);
    let next = Mutex::new(0..databases);
    let total = Mutex::new(Tally::default());
    let lane = || {
        loop {
            let Some(number) = next.lock().unwrap().next() else { break };
            let tally = run(Case::new(number, &programs), points);
            total.lock().unwrap().add(&tally);
        }
    };
    std::thread::scope(|scope| (0..LANES).for_each(|_| drop(scope.spawn(lane))));
    let Tally { same, before_history, pages_missing } = total.into_inner().unwrap();
    let compared = same + before_history + pages_missing;
    say(&format!(
        "{databases} databases: newest and {compared} moments agree, {same} by their bytes, \
         {before_history} before the history, {pages_missing} where the writer left pages out"
    ));
    assert!(same * 2 > compared, "most moments must lie in the history");
}

/// Not by a macro: the test harness keeps what those print to itself.
fn say(line: &str) {
    std::io::stderr().write_all(format!("{line}\n").as_bytes()).unwrap();
}
