//! A busy database that the real Litestream replicates to the S3 server, and what it ever held.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::Duration;

use carlos_bucket::Context;
use rusqlite::{Connection, params};
use sha2::{Digest as _, Sha256};

use crate::World;

/// Rows over several pages: a copy that mixed two states would hardly have all of one.
const ROWS: u32 = 96;
const PAD_BYTES: u32 = 500;
/// Rows that one transaction changes.
const CHANGES: usize = 7;
/// Between two transactions, which is more often than Litestream looks.
const PAUSE: Duration = Duration::from_millis(15);

const SCHEMA: &str = "
    PRAGMA journal_mode = WAL;
    CREATE TABLE counter (n INTEGER NOT NULL);
    CREATE TABLE cells (id INTEGER PRIMARY KEY, v INTEGER NOT NULL, pad BLOB NOT NULL);
    CREATE TABLE sums (sha256 TEXT NOT NULL);
    INSERT INTO counter VALUES (0);
    INSERT INTO sums VALUES ('');";

/// A whole state in one row: its number, its cells, and what the same transaction said of them.
pub const STATE_SQL: &str = "SELECT (SELECT n FROM counter) AS n, \
    (SELECT sha256 FROM sums) AS sum, \
    (SELECT group_concat(v || ':' || substr(hex(pad), 1, 8), ',') \
     FROM (SELECT v, pad FROM cells ORDER BY id)) AS cells";

/// Every state that the database had, by its number.
#[derive(Clone, Default)]
pub struct States(Arc<Mutex<HashMap<u32, String>>>);

impl States {
    /// How many there were so far.
    pub fn count(&self) -> usize {
        self.0.lock().unwrap().len()
    }

    /// The number of the state that a printed answer shows.
    ///
    /// # Errors
    /// What is wrong with it: a state that never was.
    pub fn find(&self, printed: &str) -> Result<u32, String> {
        let row = printed.lines().nth(1).ok_or("no row")?;
        let [number, sum, cells] = row.split('\t').collect::<Vec<_>>()[..] else {
            return Err(format!("not three columns: {row}"));
        };
        let number: u32 = number.parse().map_err(|_| format!("no number: {number}"))?;
        if sum != sum_of(cells) {
            return Err(format!("the cells of {number} are not those it summed up"));
        }
        match self.0.lock().unwrap().get(&number) {
            Some(state) if state == cells => Ok(number),
            Some(_) => Err(format!("{number} had other cells")),
            None => Err(format!("{number} never was")),
        }
    }

    fn add(&self, number: u32, cells: String) {
        self.0.lock().unwrap().insert(number, cells);
    }
}

fn sum_of(cells: &str) -> String {
    data_encoding::HEXLOWER.encode(&Sha256::digest(cells))
}

/// A database that a thread changes, and Litestream beside it, until both are stopped.
pub struct Busy {
    pub states: States,
    stop: Arc<AtomicBool>,
    writer: Option<JoinHandle<()>>,
    litestream: Child,
    log: PathBuf,
}

impl Busy {
    /// Starts both; `program` is Litestream's.
    pub fn start(world: &World, program: &Path) -> Self {
        let path = world.file("busy.db");
        let db = Connection::open(&path).unwrap();
        db.busy_timeout(Duration::from_secs(5)).unwrap();
        db.execute_batch(SCHEMA).unwrap();
        for id in 1..=ROWS {
            db.execute("INSERT INTO cells VALUES (?1, 0, zeroblob(?2))", params![id, PAD_BYTES])
                .unwrap();
        }
        let (states, stop) = (States::default(), Arc::<AtomicBool>::default());
        let log = world.file("litestream.log");
        let litestream = replicate(world, program, &path, &log);
        let writer = std::thread::spawn({
            let (states, stop) = (states.clone(), Arc::clone(&stop));
            move || write(&db, &states, &stop)
        });
        Self { states, stop, writer: Some(writer), litestream, log }
    }

    /// What Litestream complained about.
    pub fn complaints(&self) -> Vec<String> {
        let log = std::fs::read_to_string(&self.log).unwrap();
        log.lines().filter(|line| line.contains("level=ERROR")).map(str::to_owned).collect()
    }
}

impl Drop for Busy {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        let writer = self.writer.take().map(JoinHandle::join);
        let _ = self.litestream.kill();
        let _ = self.litestream.wait();
        if !std::thread::panicking() {
            assert!(writer.is_none_or(|ended| ended.is_ok()), "the writer failed");
        }
    }
}

fn replicate(world: &World, program: &Path, path: &Path, log: &Path) -> Child {
    let server = world.server();
    let keys = &server.users["operator"];
    // Short enough that files of level 0 vanish while a read is at work.
    let config = format!(
        "levels: [{{interval: 1s}}, {{interval: 3s}}]\n\
         snapshot: {{interval: 4s, retention: 6s}}\n\
         l0-retention: 1s\nl0-retention-check-interval: 500ms\n\
         dbs:\n  - path: {}\n    monitor-interval: 50ms\n    replica: {{type: s3, bucket: {}, \
         path: {}, endpoint: \"{}\", region: us-east-1, force-path-style: true, \
         access-key-id: {}, secret-access-key: {}, sync-interval: 50ms}}\n",
        path.display(),
        world.buckets.data("uk"),
        world.replica(),
        server.endpoint,
        keys.id,
        keys.secret,
    );
    let file = world.file("litestream.yml");
    std::fs::write(&file, config).unwrap();
    let out = std::fs::File::create(log).unwrap();
    let mut command = Command::new(program);
    command.arg("replicate").arg("-config").arg(file).env_clear().stdin(Stdio::null());
    command.stdout(out.try_clone().unwrap()).stderr(out).spawn().unwrap()
}

fn write(db: &Connection, states: &States, stop: &AtomicBool) {
    let context = Context::system();
    let mut number = 0;
    while !stop.load(Ordering::Relaxed) {
        number += 1;
        change(db, &context, number, states);
        std::thread::sleep(PAUSE);
    }
}

/// One transaction: some cells, the number, and the sum of all cells.
fn change(db: &Connection, context: &Context, number: u32, states: &States) {
    db.execute_batch("BEGIN IMMEDIATE").unwrap();
    for _ in 0..CHANGES {
        let (id, v) = (below(context, ROWS) + 1, below(context, 1_000_000));
        db.execute(
            "UPDATE cells SET v = ?2, pad = randomblob(?3) WHERE id = ?1",
            params![id, v, PAD_BYTES],
        )
        .unwrap();
    }
    db.execute("UPDATE counter SET n = ?1", [number]).unwrap();
    let cells: String = db.query_row(STATE_SQL, [], |row| row.get(2)).unwrap();
    db.execute("UPDATE sums SET sha256 = ?1", [sum_of(&cells)]).unwrap();
    // Known before anybody can read it.
    states.add(number, cells);
    db.execute_batch("COMMIT").unwrap();
}

fn below(context: &Context, end: u32) -> u32 {
    u32::try_from(context.below(end as usize)).unwrap()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What the whole test stands on: an answer that is no state is told from one that is.
    #[test]
    fn a_state_that_never_was_is_found_out() {
        let states = States::default();
        states.add(1, "5:AA,6:BB".to_owned());
        states.add(2, "5:AA,7:CC".to_owned());
        let printed =
            |n: u32, sum: &str, cells: &str| format!("n\tsum\tcells\n{n}\t{sum}\t{cells}\n");
        let honest = |n, cells| printed(n, &sum_of(cells), cells);
        assert_eq!(states.find(&honest(2, "5:AA,7:CC")), Ok(2));
        // An older page among newer ones, an older counter beside newer cells, an older sum.
        assert!(states.find(&honest(2, "5:AA,6:BB")).is_err());
        assert!(states.find(&honest(1, "5:AA,7:CC")).is_err());
        assert!(states.find(&printed(2, &sum_of("5:AA,6:BB"), "5:AA,7:CC")).is_err());
        assert!(states.find(&honest(3, "5:AA,7:CC")).is_err());
        assert!(states.find("n\tsum\tcells\n").is_err());
    }
}
