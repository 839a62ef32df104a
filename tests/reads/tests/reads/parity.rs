//! T6, the half inside the box: a forwarded answer is value by value what the same statement gives
//! on the source itself, and `--at` stops at the transaction that a restore of the same replica
//! stops at (db-forward §6, §11.4).

use std::path::Path;
use std::time::{Duration, Instant};

use carlos_dbquery::{Format, Limits, Stop, render, run};
use carlos_protocol::copy::Exit;
use carlos_protocol::time::{At, Millis};
use carlos_replica::{
    Layout, ReplicaReader as _, Resolution, RestoreOptions, StoreReplica, Target, plan,
    restore_to_file,
};
use carlos_tests_reads::{Asked, BoxPlan, Keeping, RunningBox, RunningConsole, Source, World};

/// A database that uses what people use.
const EVERYTHING: &str = "
    PRAGMA page_size = 1024;
    CREATE TABLE kinds (id INTEGER PRIMARY KEY, value);
    INSERT INTO kinds (value) VALUES
        (NULL), (0), (-9223372036854775808), (9223372036854775807), (0.1), (1e300), (-0.0),
        (9e999), (-9e999), (5e-324), (123456789.0), (''), ('plain'), (char(9) || 'tab' || char(9)),
        ('two' || char(10) || 'lines' || char(13)), ('back\\slash \\N \\x00'), ('naïve 日本 👍'),
        (CAST(x'ff00fe' AS TEXT)), (CAST(x'610062' AS TEXT)), (x''), (x'00ff7f80'),
        (zeroblob(5000)), (char(27) || '[31mred'), (char(0x202e) || 'reversed');
    CREATE TABLE times (id INTEGER PRIMARY KEY, at);
    INSERT INTO times (at) VALUES ('2026-10-22T09:00:00Z'), (1792659600), (2461335.875),
        ('2026-03-29 01:30:00'), (unixepoch('2026-10-25 01:30:00'));
    CREATE TABLE \"odd \"\"names\"\" \" (\"a\tb\", \"a\nb\", \"select\");
    INSERT INTO \"odd \"\"names\"\" \" VALUES (1, 2, 3);
    CREATE TABLE parent (id INTEGER PRIMARY KEY, name TEXT NOT NULL UNIQUE COLLATE NOCASE);
    CREATE TABLE child (id INTEGER PRIMARY KEY, parent REFERENCES parent, n INT AS (id * 2));
    INSERT INTO parent VALUES (1, 'Ann'), (2, 'bob');
    INSERT INTO child (id, parent) VALUES (10, 1), (11, 1), (12, 2);
    CREATE TABLE wide (k TEXT PRIMARY KEY, v) WITHOUT ROWID;
    INSERT INTO wide WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 400)
        SELECT printf('%05d', i), hex(zeroblob(i)) FROM n;
    CREATE VIRTUAL TABLE notes4 USING fts4(body);
    INSERT INTO notes4 (docid, body) VALUES (1, 'the quick brown fox'), (2, 'lazy dog');
    CREATE VIRTUAL TABLE notes5 USING fts5(body, tokenize = 'porter');
    INSERT INTO notes5 (rowid, body) VALUES (1, 'running foxes'), (2, 'sleeping dogs');
    CREATE VIRTUAL TABLE area USING rtree(id, x0, x1, y0, y1, +label TEXT);
    INSERT INTO area VALUES (1, 0, 10, 0, 10, 'home'), (2, 20, 30, 20, 30, 'away');
    CREATE TABLE docs (doc TEXT);
    INSERT INTO docs VALUES ('{\"a\":[1,2,{\"b\":\"x\"}]}');
    CREATE VIEW found AS SELECT rowid, highlight(notes5, 0, '<', '>') AS hit FROM notes5('run');
    CREATE VIEW far AS SELECT id, label FROM area WHERE x0 >= 15;
    CREATE VIEW inside AS SELECT j.fullkey, j.value FROM docs, json_tree(doc) j;
    ANALYZE;";

const STATEMENTS: [&str; 20] = [
    "SELECT id, value, typeof(value) FROM kinds ORDER BY id",
    "SELECT value, value, count(*) OVER () AS value FROM kinds ORDER BY id DESC",
    "SELECT quote(value), hex(value), length(value) FROM kinds ORDER BY id",
    "SELECT at, datetime(at), unixepoch(at), julianday(at) FROM times ORDER BY id",
    "SELECT datetime(at, 'unixepoch', 'localtime') FROM times WHERE typeof(at) = 'integer'",
    "SELECT * FROM \"odd \"\"names\"\" \"",
    "SELECT name, sum(n) FROM parent JOIN child ON parent = parent.id GROUP BY name ORDER BY 1",
    "SELECT name FROM parent WHERE name = 'BOB'",
    "SELECT k, v FROM wide ORDER BY k DESC",
    "SELECT docid, snippet(notes4) FROM notes4 WHERE notes4 MATCH 'quick OR lazy' ORDER BY 1",
    "SELECT rowid, bm25(notes5) FROM notes5 WHERE notes5 MATCH 'fox' ORDER BY rank",
    "SELECT * FROM found",
    "SELECT id, label, x0, y1 FROM area WHERE x0 > 15 AND y1 < 40",
    "SELECT * FROM far",
    "SELECT * FROM inside",
    "SELECT id, row_number() OVER (PARTITION BY parent ORDER BY id DESC) FROM child ORDER BY 1",
    "WITH RECURSIVE c(x) AS (SELECT 1 UNION ALL SELECT x * 2 FROM c WHERE x < 1e6) SELECT x FROM c",
    "SELECT name, type, sql FROM sqlite_schema ORDER BY name, type",
    "SELECT 1 AS nobody WHERE 0",
    "SELECT sqrt(2), pi(), 1 / 3.0, 0.1 + 0.2, 1e15 + 0.3, 2 << 40",
];

/// The statement's row stream on the file itself.
fn on_the_source(path: &Path, sql: &str) -> Vec<u8> {
    let start = Instant::now();
    let stop = Stop::new(move || start.elapsed());
    let mut stream = Vec::new();
    let ran = run(path, sql, &Limits::default(), &mut stream, &stop);
    ran.unwrap_or_else(|error| panic!("{sql}: {error}"));
    stream
}

fn printed(format: Format, stream: &[u8]) -> Vec<u8> {
    let mut out = Vec::new();
    render(format, stream, &mut out).unwrap();
    out
}

async fn everything() -> (World, Source, RunningConsole, RunningBox) {
    let world = World::bare(Keeping::Memory).await;
    let source = world.source(EVERYTHING).await;
    let console = world.console().await;
    let uk = world.start_box("uk-1").await;
    (world, source, console, uk)
}

async fn forwarded(world: &World, console: &RunningConsole, sql: &str) -> Vec<u8> {
    let finished = console.open(world, sql).await.finish().await;
    match finished.verified {
        Some(Ok(verified)) => verified.rows,
        _ => panic!("{sql}: {:?}", finished.result.map(|result| result.code)),
    }
}

#[tokio::test]
async fn t6_every_value_is_the_sources_own() {
    let (world, source, console, _uk) = everything().await;
    for pair in STATEMENTS.chunks(2) {
        let expected = [pair[0], pair[1]].map(|sql| on_the_source(&source.path, sql));
        let (first, second) = tokio::join!(
            forwarded(&world, &console, pair[0]),
            forwarded(&world, &console, pair[1]),
        );
        assert!([first, second] == expected, "{pair:?}");
    }
}

#[tokio::test]
async fn t6_every_format_prints_the_sources_own_bytes() {
    let (world, source, console, _uk) = everything().await;
    let formats = [("table", Format::Table), ("tsv", Format::Tsv), ("json", Format::Json)];
    for sql in &STATEMENTS[..2] {
        let stream = on_the_source(&source.path, sql);
        for (name, format) in formats {
            let ran = console.query_with(&world, &["--format", name, sql]).await;
            assert_eq!(ran.code, 0, "{}", ran.stderr);
            assert!(ran.stdout == printed(format, &stream), "{name}: {sql}");
        }
    }
}

/// Production's own waits, nothing shortened.
#[tokio::test]
async fn t6_with_productions_own_timings() {
    let world = World::new().await;
    let console =
        world.console_with(|config| config.timings = carlos_console::Timings::default()).await;
    let _uk = world.start_box("uk-1").await;
    console.query(&world, World::SQL).await.printed(World::TSV);
}

const COUNT: &str = "SELECT count(*) AS orders FROM orders";

/// A replica with a transaction every `step`, and the moments between them.
async fn history(world: &World, step: Duration) -> (Source, Vec<u64>) {
    let mut moments = vec![world.context.now_unix_ms()];
    world.context.sleep(step).await;
    let mut source = world.source(World::SHOP).await;
    for n in 10..14 {
        world.context.sleep(step).await;
        moments.push(world.context.now_unix_ms());
        world.context.sleep(step).await;
        source.change(&format!("INSERT INTO orders VALUES ({n}, 'later')")).await;
    }
    world.context.sleep(step).await;
    moments.push(world.context.now_unix_ms());
    (source, moments)
}

fn ask_at(world: &World, at_ms: u64) -> Asked {
    let mut asked = Asked::of(world, COUNT);
    asked.body.at = At::Time(Millis::new(at_ms));
    asked
}

#[tokio::test]
async fn t6_at_stops_at_each_transaction() {
    let world = World::bare(Keeping::Memory).await;
    let (_source, moments) = history(&world, Duration::from_millis(20)).await;
    let console = world.console().await;
    let _uk = world.start_box("uk-1").await;
    for (moment, orders) in moments[1..].iter().zip(3..) {
        let finished = ask_at(&world, *moment).post(&console).await.unwrap().finish().await;
        assert_eq!(finished.tsv(), format!("orders\n{orders}\n"), "at {moment}");
    }
    let at = Millis::new(moments[3]).to_string();
    console.query_with(&world, &["--at", &at, COUNT]).await.printed("orders\n5\n");
    let before = Millis::new(moments[0]).to_string();
    console.query_with(&world, &["--at", &before, COUNT]).await.ended(Exit::Replica, "DBL-4");
}

/// A store whose listings have whole seconds: a write in the target's own second is not read, here
/// as in an in-region restore.
#[tokio::test]
async fn t6_at_stops_where_a_restore_of_the_same_replica_stops() {
    let world = World::bare(Keeping::Memory).await;
    let (_source, moments) = history(&world, Duration::from_millis(180)).await;
    let console = world.console().await;
    let resolution = Resolution::Second;
    let _uk = world.start(BoxPlan { resolution, ..world.box_plan("uk-1") }).await;
    let mut answers = Vec::new();
    for moment in &moments {
        let finished = ask_at(&world, *moment).post(&console).await.unwrap().finish().await;
        let answer = finished.verified.map(|verified| verified.unwrap().rows);
        assert_eq!(answer, restored(&world, *moment).await, "at {moment}");
        answers.push(answer);
    }
    answers.dedup();
    assert!(answers.len() > 1, "every moment gave the same answer");
}

/// What a restore in the region finds at that time, if the replica reaches back to it.
async fn restored(world: &World, at_ms: u64) -> Option<Vec<u8>> {
    let prefix = format!("replicas/{}", world.place.host);
    let (store, resolution) = (world.data.clone(), Resolution::Second);
    let replica = StoreReplica::new(store, &prefix, Layout::Auto, resolution).unwrap();
    let target = Target::Before(i64::try_from(at_ms).unwrap());
    let plan = plan(&replica.listing().await.unwrap(), target, resolution).ok()?;
    let dir = tempfile::tempdir().unwrap();
    let out = dir.path().join("restored.db");
    let options = RestoreOptions { max_bytes: 1 << 30, durable: false };
    restore_to_file(&replica, plan, target, &out, options).await.unwrap();
    Some(on_the_source(&out, COUNT))
}
