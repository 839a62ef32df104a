//! Against the real Litestream, when there is one: `CARLOS_LITESTREAM_BIN` names the program.
//!
//! It replicates a database under a random workload with its own compaction, snapshots and
//! retention running; then both restore the newest state and many moments, byte for byte.
//! `CARLOS_LITESTREAM_POINTS` sets the number of moments (60 if unset) and
//! `CARLOS_LITESTREAM_SECONDS` the length of the workload (8).
#![allow(clippy::disallowed_methods, clippy::disallowed_macros, clippy::unwrap_used)]

mod common;

use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use carlos_replica::{Layout, PlanError, ReplicaReader, Resolution, RestoreFailure, Target};
use common::{reader, restore, sha256};
use rusqlite::Connection;
use tempfile::TempDir;

/// A small generator, so that a failure can be repeated from its seed.
struct Dice(u64);

impl Dice {
    fn roll(&mut self, sides: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        (self.0 >> 33) % sides
    }
}

struct Live {
    dir: TempDir,
    bin: PathBuf,
}

impl Live {
    fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    fn replicate(&self) -> Child {
        let config = format!(
            "levels: [{{interval: 1s}}, {{interval: 3s}}]\n\
             snapshot: {{interval: 4s, retention: 1h}}\n\
             l0-retention: 2s\nl0-retention-check-interval: 1s\n\
             dbs:\n  - path: {}\n    monitor-interval: 50ms\n    replica: \
             {{type: file, path: {}, sync-interval: 50ms}}\n",
            self.path("app.db").display(),
            self.path("replica").display(),
        );
        std::fs::write(self.path("config.yml"), config).unwrap();
        let mut command = Command::new(&self.bin);
        command.arg("replicate").arg("-config").arg(self.path("config.yml"));
        command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap()
    }

    /// Litestream's own restore: the database, or what it said.
    fn restore(&self, at: Option<i64>) -> Result<PathBuf, String> {
        let out = self.path("theirs.db");
        let _ = std::fs::remove_file(&out);
        let mut command = Command::new(&self.bin);
        command.arg("restore").arg("-o").arg(&out);
        if let Some(ms) = at {
            command.arg("-timestamp").arg(rfc3339(ms));
        }
        command.arg(format!("file://{}", self.path("replica").display()));
        let done = command.output().unwrap();
        let said = String::from_utf8_lossy(&done.stderr).into_owned();
        if done.status.success() { Ok(out) } else { Err(said) }
    }

    async fn assert_same(&self, at: Option<i64>) -> bool {
        let reader = reader(&self.path("replica"), "", Layout::Auto, Resolution::Full);
        let target = at.map_or(Target::Newest, Target::Before);
        let ours = restore(&reader, target, self.dir.path()).await;
        match (self.restore(at), ours) {
            (Ok(theirs), Ok((ours, _))) => {
                assert_eq!(sha256(&theirs), sha256(&ours), "{at:?}");
                std::fs::remove_file(ours).unwrap();
                true
            }
            (Err(_), Err(RestoreFailure::Plan(PlanError::HistoryGone { .. }))) => false,
            (theirs, ours) => unreachable!("{at:?}: theirs {theirs:?}, ours {ours:?}"),
        }
    }
}

fn rfc3339(ms: i64) -> String {
    let sql = "SELECT strftime('%Y-%m-%dT%H:%M:%fZ', ?1 / 1000.0, 'unixepoch')";
    let db = Connection::open_in_memory().unwrap();
    db.query_row(sql, [ms], |row| row.get(0)).unwrap()
}

fn number(variable: &str, otherwise: u64) -> u64 {
    std::env::var(variable).ok().and_then(|text| text.parse().ok()).unwrap_or(otherwise)
}

/// A new database of some page size, auto-vacuum mode and encoding.
fn create(path: &Path, dice: &mut Dice) {
    let page_size = 512 << dice.roll(8);
    let auto_vacuum = dice.roll(3);
    let encoding = ["UTF-8", "UTF-16le", "UTF-16be"][dice.roll(3) as usize];
    let setup = format!(
        "PRAGMA page_size={page_size}; PRAGMA auto_vacuum={auto_vacuum}; \
         PRAGMA encoding='{encoding}'; PRAGMA journal_mode=WAL; \
         CREATE TABLE t(id INTEGER PRIMARY KEY, b BLOB, s TEXT);"
    );
    Connection::open(path).unwrap().execute_batch(&setup).unwrap();
    eprintln!("page size {page_size}, auto-vacuum {auto_vacuum}, {encoding}");
}

fn change(db: &Connection, dice: &mut Dice) {
    let amount = 1 + dice.roll(60);
    let sql = match dice.roll(10) {
        0..=4 => format!(
            "INSERT INTO t(b, s) WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n \
             WHERE i < {amount}) SELECT randomblob(abs(random()) % 900), hex(randomblob(40)) FROM n"
        ),
        5 | 6 => format!("UPDATE t SET b = randomblob(500) WHERE id % {} = 0", 2 + amount),
        7 => format!("DELETE FROM t WHERE id % {} = 0", 1 + amount / 8),
        8 => "PRAGMA incremental_vacuum(20)".to_owned(),
        _ => "VACUUM".to_owned(),
    };
    // A busy database refuses now and then; the next change comes anyway.
    let _ = db.execute_batch(&sql);
}

fn work(path: &Path, dice: &mut Dice, length: Duration) {
    let db = Connection::open(path).unwrap();
    db.busy_timeout(Duration::from_secs(5)).unwrap();
    let end = Instant::now() + length;
    while Instant::now() < end {
        change(&db, dice);
        std::thread::sleep(Duration::from_millis(20 + dice.roll(120)));
    }
}

/// The times of the oldest and the newest file.
async fn span(live: &Live) -> (i64, i64) {
    let reader = reader(&live.path("replica"), "", Layout::File, Resolution::Full);
    let listing = reader.listing().await.unwrap();
    let times: Vec<_> = listing.files().map(|file| file.created_ms).collect();
    (*times.iter().min().unwrap(), *times.iter().max().unwrap())
}

async fn run(bin: &Path, seed: u64) -> (u64, u64) {
    let live = Live { dir: TempDir::new().unwrap(), bin: bin.to_owned() };
    let mut dice = Dice(seed);
    create(&live.path("app.db"), &mut dice);
    let mut child = live.replicate();
    let length = Duration::from_secs(number("CARLOS_LITESTREAM_SECONDS", 8));
    work(&live.path("app.db"), &mut dice, length);
    let stop = Command::new("kill").arg("-INT").arg(child.id().to_string()).status().unwrap();
    assert!(stop.success() && child.wait().unwrap().success(), "Litestream ended badly");
    assert!(live.assert_same(None).await);
    let (oldest, newest) = span(&live).await;
    let (mut same, mut gone) = (0, 0);
    for _ in 0..number("CARLOS_LITESTREAM_POINTS", 60) {
        let at = oldest + dice.roll((newest - oldest).unsigned_abs() + 1).cast_signed();
        if live.assert_same(Some(at)).await { same += 1 } else { gone += 1 }
    }
    (same, gone)
}

#[tokio::test]
async fn both_restore_the_same_bytes_at_every_moment() {
    let Some(bin) = std::env::var_os("CARLOS_LITESTREAM_BIN").map(PathBuf::from) else {
        // Not by a macro: the test harness keeps what those print to itself.
        let note = b"SKIPPED: CARLOS_LITESTREAM_BIN names no Litestream to compare with\n";
        std::io::stderr().write_all(note).unwrap();
        return;
    };
    for seed in [number("CARLOS_LITESTREAM_SEED", 1), 2, 11] {
        let (same, gone) = run(&bin, seed).await;
        eprintln!("seed {seed}: newest and {same} moments equal, {gone} before the history");
        assert!(same > 0);
    }
}
