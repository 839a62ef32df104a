//! Whole reads through a real worker process: what it answers, and what it refuses.
#![cfg(target_os = "linux")]
#![allow(clippy::disallowed_methods, clippy::disallowed_macros)]
#![allow(clippy::unwrap_used, clippy::panic)]

mod support;

use carlos_dbread_worker::exit;
use carlos_protocol::frames;
use carlos_protocol::frames::Frame;
use carlos_protocol::frames::Hello;
use carlos_protocol::frames::Outcome;
use carlos_protocol::frames::Run;
use carlos_protocol::frames::WorkerLimits;
use carlos_protocol::ids::Digest;
use carlos_protocol::ids::Txid;
use carlos_protocol::params::Param;
use carlos_protocol::params::ParamValue;
use carlos_protocol::params::Params;
use support::LIMITS;
use support::Replica;
use support::TIME_MS;
use support::Worker;

fn scratch() -> tempfile::TempDir {
    tempfile::tempdir().unwrap()
}

#[test]
fn a_read_restores_and_answers() {
    let (dir, shop) = (scratch(), Replica::shop());
    let mut worker = Worker::holding(dir.path(), &shop, LIMITS);
    worker.run("SELECT id, name FROM item ORDER BY id");
    let (rows, status) = worker.answer();
    assert_eq!(status.outcome, Outcome::Done, "{}", status.message);
    assert_eq!((status.rows, status.bytes), (3, rows.len() as u64));
    assert_eq!(status.sha256, Digest::of(&rows));
    worker.expect_exit(exit::DONE);
}

#[test]
fn an_empty_answer_is_still_a_whole_row_stream() {
    let (dir, shop) = (scratch(), Replica::shop());
    let mut worker = Worker::holding(dir.path(), &shop, LIMITS);
    worker.run("SELECT name FROM item WHERE id > 9");
    let (rows, status) = worker.answer();
    assert_eq!((status.outcome, status.rows), (Outcome::Done, 0));
    assert!(rows.starts_with(b"CRS1"));
    worker.expect_exit(exit::DONE);
}

/// Everything SQLite may need inside the sandbox: full-text search, sorting, temporary trees.
#[test]
fn ordinary_sql_works_inside_the_sandbox() {
    let shop = Replica::shop();
    for sql in [
        "SELECT body FROM note WHERE note MATCH 'apple'",
        "WITH RECURSIVE n(x) AS (SELECT 1 UNION ALL SELECT x+1 FROM n WHERE x<100000) \
         SELECT count(DISTINCT x*7%1001), max(hex(x)) FROM n",
        "WITH RECURSIVE n(x) AS (SELECT 1 UNION ALL SELECT x+1 FROM n WHERE x<50000) \
         SELECT x FROM n ORDER BY hex(x) LIMIT 5",
        "SELECT random(), datetime('now', 'localtime'), json('{\"a\":1}'), sqrt(2)",
        "SELECT name, rank() OVER (ORDER BY name) FROM item",
        "SELECT * FROM dbstat",
    ] {
        let dir = scratch();
        let mut worker = Worker::holding(dir.path(), &shop, LIMITS);
        worker.run(sql);
        let (_, status) = worker.answer();
        assert_eq!(status.outcome, Outcome::Done, "{sql}: {}", status.message);
    }
}

#[test]
fn a_probe_is_hello_and_goodbye() {
    let dir = scratch();
    let mut worker = Worker::start(dir.path());
    worker.send(&Frame::Hello(Hello { v: frames::VERSION, sandbox: None }));
    let Frame::Hello(Hello { v, sandbox: Some(sandbox) }) = worker.hear() else { panic!() };
    assert_eq!(v, frames::VERSION);
    assert!(sandbox.seccomp && sandbox.no_new_privileges, "{sandbox:?}");
    worker.hang_up();
    worker.expect_exit(exit::DONE);
}

#[test]
fn another_version_gets_a_hello_and_nothing_else() {
    let dir = scratch();
    let mut worker = Worker::start(dir.path());
    worker.send(&Frame::Hello(Hello { v: frames::VERSION + 1, sandbox: None }));
    assert!(matches!(worker.hear(), Frame::Hello(Hello { v: frames::VERSION, .. })));
    worker.send(&Frame::Header(Replica::shop().header(LIMITS)));
    worker.expect_status(Outcome::BadInput);
    worker.expect_exit(exit::BROKEN_PROTOCOL);
}

#[test]
fn ready_names_what_is_held() {
    let (dir, shop) = (scratch(), Replica::shop());
    let mut worker = Worker::greeted(dir.path());
    worker.send(&Frame::Header(shop.header(LIMITS)));
    worker.send_file(&shop.bytes);
    let Frame::Ready(ready) = worker.hear() else { panic!() };
    assert_eq!((ready.txid, ready.page_size), (Txid(7), 4096));
    assert_eq!(ready.time.unix_ms(), u64::try_from(TIME_MS).unwrap());
    assert_eq!(worker.scratch_files(), ["database"]);
}

#[test]
fn stop_ends_a_read_in_every_state() {
    let (dir, shop) = (scratch(), Replica::shop());
    let mut waiting = Worker::greeted(dir.path());
    let mut receiving = Worker::greeted(dir.path());
    receiving.send(&Frame::Header(shop.header(LIMITS)));
    receiving.send_file(&shop.bytes[..500]);
    let mut holding = Worker::holding(dir.path(), &shop, LIMITS);
    for worker in [&mut waiting, &mut receiving, &mut holding] {
        worker.send(&Frame::Stop);
        worker.expect_status(Outcome::Stopped);
        worker.expect_exit(exit::DONE);
    }
}

#[test]
fn a_byte_too_many_is_refused() {
    let (dir, shop) = (scratch(), Replica::shop());
    let mut worker = Worker::greeted(dir.path());
    worker.send(&Frame::Header(shop.header(LIMITS)));
    let mut bytes = shop.bytes.clone();
    bytes.push(0);
    worker.write(&Frame::file_data(&bytes).unwrap());
    worker.expect_status(Outcome::BadInput);
    worker.expect_exit(exit::BROKEN_PROTOCOL);
    assert_eq!(worker.scratch_bytes(), 0);
}

#[test]
fn a_database_over_its_limit_is_refused_by_its_first_header() {
    let (dir, shop) = (scratch(), Replica::shop());
    let mut worker = Worker::greeted(dir.path());
    worker.send(&Frame::Header(shop.header(WorkerLimits { restored_bytes: 4096, ..LIMITS })));
    worker.send_file(&shop.bytes[..200]);
    worker.expect_status(Outcome::TooLarge);
    worker.expect_exit(exit::DONE);
}

#[test]
fn frames_out_of_place_are_refused() {
    let (dir, shop) = (scratch(), Replica::shop());
    let mut early = Worker::start(dir.path());
    early.run("SELECT 1");
    let mut late = Worker::holding(dir.path(), &shop, LIMITS);
    late.send_file(b"more");
    for worker in [&mut early, &mut late] {
        worker.expect_status(Outcome::BadInput);
        worker.expect_exit(exit::BROKEN_PROTOCOL);
    }
}

#[test]
fn bytes_that_are_no_frames_are_refused() {
    for garbage in [&b"GET / HTTP/1.1\r\n\r\n"[..], &[0, 0, 0, 0], &[0, 0, 0, 1, 99]] {
        let dir = scratch();
        let mut worker = Worker::start(dir.path());
        worker.write(garbage);
        worker.expect_status(Outcome::BadInput);
        worker.expect_exit(exit::BROKEN_PROTOCOL);
    }
}

#[test]
fn a_header_that_does_not_hold_is_refused() {
    let (dir, shop) = (scratch(), Replica::shop());
    let mut header = shop.header(LIMITS);
    header.files[0].name = "../../../etc/passwd".to_owned();
    let mut worker = Worker::greeted(dir.path());
    worker.send(&Frame::Header(header));
    worker.expect_status(Outcome::BadInput);
    worker.expect_exit(exit::BROKEN_PROTOCOL);
}

#[test]
fn a_connection_that_ends_within_a_header_is_a_lost_peer() {
    let (dir, shop) = (scratch(), Replica::shop());
    let mut worker = Worker::greeted(dir.path());
    let header = Frame::Header(shop.header(LIMITS)).to_bytes().unwrap();
    worker.write(&header[..header.len() / 2]);
    worker.hang_up();
    worker.expect_exit(exit::PEER_LOST);
}

#[test]
fn damage_in_a_file_and_damage_in_the_database_are_both_found() {
    let (dir, shop) = (scratch(), Replica::shop());
    let mut flipped = Replica::shop();
    let middle = flipped.bytes.len() / 2;
    flipped.bytes[middle] ^= 1;
    for replica in [flipped, damaged_tree()] {
        let mut worker = Worker::greeted(dir.path());
        worker.send(&Frame::Header(replica.header(LIMITS)));
        worker.send_file(&replica.bytes);
        let status = worker.expect_status(Outcome::CheckFailed);
        assert!(!status.message.contains("item"), "{}", status.message);
        worker.expect_exit(exit::DONE);
    }
    Worker::holding(dir.path(), &shop, LIMITS);
}

/// A replica whose checksums are all right, of a database whose table lies in ruins.
fn damaged_tree() -> Replica {
    let dir = scratch();
    let path = dir.path().join("ruin.db");
    let source = rusqlite::Connection::open(&path).unwrap();
    source.execute_batch("CREATE TABLE item (id INTEGER PRIMARY KEY, name TEXT);").unwrap();
    source.execute_batch("INSERT INTO item (name) VALUES ('apple'), ('pear');").unwrap();
    drop(source);
    let mut image = std::fs::read(&path).unwrap();
    for byte in &mut image[4096..4106] {
        *byte = 0xaa;
    }
    Replica::of_file(&image)
}

#[test]
fn sql_that_is_refused_or_fails_says_why() {
    let shop = Replica::shop();
    for sql in
        ["DELETE FROM item", "ATTACH '/etc/passwd' AS x", "SELECT nothing FROM item", "SELEC"]
    {
        let dir = scratch();
        let mut worker = Worker::holding(dir.path(), &shop, LIMITS);
        worker.run(sql);
        let status = worker.expect_status(Outcome::SqlError);
        assert!(!status.message.is_empty());
        worker.expect_exit(exit::DONE);
    }
}

#[test]
fn output_is_capped() {
    let (dir, shop) = (scratch(), Replica::shop());
    let limits = WorkerLimits { output_bytes: 1 << 20, ..LIMITS };
    let mut worker = Worker::holding(dir.path(), &shop, limits);
    worker.run(
        "WITH RECURSIVE n(x) AS (SELECT 1 UNION ALL SELECT x+1 FROM n) \
         SELECT hex(zeroblob(1000)) FROM n",
    );
    let (rows, status) = worker.answer();
    assert_eq!(status.outcome, Outcome::OutputCap);
    assert!(rows.len() <= 1 << 20);
    worker.expect_exit(exit::DONE);
}

#[test]
fn a_query_for_more_memory_than_there_is_gets_an_answer() {
    let shop = Replica::shop();
    for sql in [
        "SELECT hex(zeroblob(120000000)) || hex(zeroblob(120000000))",
        "SELECT zeroblob(120000000), zeroblob(120000000)",
        "WITH RECURSIVE n(x) AS (SELECT zeroblob(1000000) UNION ALL SELECT x || x'00' FROM n) \
         SELECT x FROM n ORDER BY x DESC",
    ] {
        let dir = scratch();
        let mut worker = Worker::holding(dir.path(), &shop, LIMITS);
        worker.run(sql);
        let (_, status) = worker.answer();
        let bounded = matches!(status.outcome, Outcome::SqlError | Outcome::OutputCap);
        assert!(bounded, "{sql}: {status:?}");
        worker.expect_exit(exit::DONE);
    }
}

#[test]
fn a_query_ends_at_its_limit() {
    let (dir, shop) = (scratch(), Replica::shop());
    let limits = WorkerLimits { query_ms: 300, ..LIMITS };
    let mut worker = Worker::holding(dir.path(), &shop, limits);
    worker.run(
        "WITH RECURSIVE n(x) AS (SELECT 1 UNION ALL SELECT x+1 FROM n) SELECT count(*) FROM n",
    );
    worker.expect_status(Outcome::Timeout);
    worker.expect_exit(exit::DONE);
}

#[test]
fn a_restore_ends_at_its_limit() {
    let (dir, shop) = (scratch(), Replica::shop());
    let limits = WorkerLimits { restore_ms: 300, ..LIMITS };
    let mut worker = Worker::greeted(dir.path());
    worker.send(&Frame::Header(shop.header(limits)));
    std::thread::sleep(std::time::Duration::from_millis(1500));
    worker.send_file(&shop.bytes[..100]);
    worker.expect_status(Outcome::RestoreTimeout);
    worker.expect_exit(exit::DONE);
}

/// An index over another column than it says: every page is in order, and an answer through it
/// would be wrong.
fn mismatched() -> Replica {
    Replica::of(
        "PRAGMA page_size=4096; CREATE TABLE good (a); INSERT INTO good VALUES (7);
         CREATE TABLE bad (a, b); INSERT INTO bad VALUES (1, 2); CREATE INDEX i ON bad (b);
         PRAGMA writable_schema = ON;
         UPDATE sqlite_schema SET sql = 'CREATE INDEX i ON bad (a)' WHERE name = 'i'",
    )
}

#[test]
fn nothing_is_answered_from_a_table_that_does_not_fit_its_index() {
    let (dir, replica) = (scratch(), mismatched());
    let mut worker = Worker::holding(dir.path(), &replica, LIMITS);
    worker.run("SELECT a FROM bad WHERE a = 1");
    worker.expect_status(Outcome::CheckFailed);
    worker.expect_exit(exit::DONE);
    let mut worker = Worker::holding(dir.path(), &replica, LIMITS);
    worker.run("SELECT a FROM good");
    assert_eq!(worker.answer().1.outcome, Outcome::Done);
    worker.expect_exit(exit::DONE);
}

#[test]
fn values_reach_the_statement() {
    let (dir, shop) = (scratch(), Replica::shop());
    let mut worker = Worker::holding(dir.path(), &shop, LIMITS);
    let value = Param::positional(ParamValue::Text("pear".to_owned()));
    let params = Params::new(vec![value]).unwrap();
    let sql = "SELECT id FROM item WHERE name = ?".to_owned();
    worker.send(&Frame::Run(Run { sql, params }));
    let (_, status) = worker.answer();
    assert_eq!((status.outcome, status.rows), (Outcome::Done, 1));
    worker.expect_exit(exit::DONE);
}
