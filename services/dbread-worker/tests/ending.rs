//! How a worker ends when it is left alone, stuck, or killed (db-forward §8.3, §5.7).
#![cfg(target_os = "linux")]
#![allow(clippy::disallowed_methods, clippy::disallowed_macros)]
#![allow(clippy::unwrap_used, clippy::panic)]

mod support;

use std::time::Duration;
use std::time::Instant;

use carlos_dbread_worker::exit;
use carlos_dbread_worker::scratch::Swept;
use carlos_dbread_worker::scratch::sweep;
use carlos_dbread_worker::watcher::GRACE;
use carlos_protocol::frames::Frame;
use carlos_protocol::frames::Outcome;
use carlos_protocol::frames::WorkerLimits;
use support::LIMITS;
use support::Replica;
use support::Worker;

/// A query that looks at the clock all the time, and one whose single instruction compares for
/// minutes without a look.
const BUSY: &str =
    "WITH RECURSIVE n(x) AS (SELECT 1 UNION ALL SELECT x+1 FROM n) SELECT count(*) FROM n";
const STUCK: &str = "SELECT instr(replace(hex(zeroblob(15000000)), '0', 'a'), \
     replace(hex(zeroblob(4000000)), '0', 'a') || 'b')";

/// Ends and signals are seen late on a loaded machine.
const SLACK: Duration = Duration::from_secs(3);

/// Time for a query to be well under way.
const UNDER_WAY: Duration = Duration::from_millis(1500);

fn scratch() -> tempfile::TempDir {
    tempfile::tempdir().unwrap()
}

#[test]
fn t12_a_peer_lost_in_a_restore_ends_the_worker_at_once() {
    let (dir, shop) = (scratch(), Replica::shop());
    let mut worker = Worker::greeted(dir.path());
    worker.send(&Frame::Header(shop.header(LIMITS)));
    worker.send_file(&shop.bytes[..shop.bytes.len() / 2]);
    worker.hang_up();
    let (status, after) = worker.end(GRACE + SLACK);
    assert_eq!(status.code(), Some(exit::PEER_LOST.into()));
    assert!(after < SLACK, "{after:?}");
    assert_eq!(worker.scratch_bytes(), 0, "no copy is left");
}

/// The last byte is sent, so the worker applies, finishes and checks; none of it waits for input.
#[test]
fn t12_a_peer_lost_after_the_download_ends_the_worker_in_time() {
    let large = Replica::of(
        "PRAGMA page_size=4096; CREATE TABLE note (id INTEGER PRIMARY KEY, body BLOB);
         WITH RECURSIVE n(x) AS (SELECT 1 UNION ALL SELECT x+1 FROM n WHERE x < 4000)
         INSERT INTO note SELECT x, randomblob(4000) FROM n;",
    );
    let dir = scratch();
    let mut worker = Worker::greeted(dir.path());
    worker.send(&Frame::Header(large.header(LIMITS)));
    worker.send_file(&large.bytes);
    worker.hang_up();
    let (status, after) = worker.end(GRACE + SLACK);
    assert!(after < GRACE + SLACK, "{after:?}");
    let codes = [exit::PEER_LOST, exit::PEER_LOST_FORCED].map(|code| Some(code.into()));
    assert!(codes.contains(&status.code()), "{status}");
}

#[test]
fn t12_a_peer_lost_in_a_query_ends_the_worker_at_once() {
    let (dir, shop) = (scratch(), Replica::shop());
    let mut worker = Worker::holding(dir.path(), &shop, LIMITS);
    worker.run(BUSY);
    std::thread::sleep(UNDER_WAY);
    worker.hang_up();
    let (status, after) = worker.end(GRACE + SLACK);
    assert_eq!(status.code(), Some(exit::PEER_LOST.into()));
    assert!(after < SLACK, "{after:?}");
}

#[test]
fn t12_a_peer_lost_while_the_worker_writes_ends_it_at_once() {
    let (dir, shop) = (scratch(), Replica::shop());
    let mut worker = Worker::holding(dir.path(), &shop, LIMITS);
    worker.run(
        "WITH RECURSIVE n(x) AS (SELECT 1 UNION ALL SELECT x+1 FROM n) \
         SELECT hex(zeroblob(10000)) FROM n",
    );
    // Nobody reads: the connection is full, and the worker waits in a write.
    std::thread::sleep(UNDER_WAY);
    worker.hang_up();
    let (status, after) = worker.end(GRACE + SLACK);
    assert_eq!(status.code(), Some(exit::PEER_LOST.into()));
    assert!(after < SLACK, "{after:?}");
}

#[test]
fn t12_a_stuck_worker_ends_within_its_grace_of_losing_its_peer() {
    let (dir, shop) = (scratch(), Replica::shop());
    let mut worker = Worker::holding(dir.path(), &shop, LIMITS);
    worker.run(STUCK);
    std::thread::sleep(UNDER_WAY);
    worker.hang_up();
    let (status, after) = worker.end(GRACE + SLACK);
    assert_eq!(status.code(), Some(exit::PEER_LOST_FORCED.into()));
    assert!(after >= GRACE - Duration::from_secs(1), "it was not stuck: {after:?}");
}

#[test]
fn a_stuck_query_over_its_limit_is_ended_with_a_status() {
    let (dir, shop) = (scratch(), Replica::shop());
    let limits = WorkerLimits { query_ms: 500, ..LIMITS };
    let mut worker = Worker::holding(dir.path(), &shop, limits);
    let started = Instant::now();
    worker.run(STUCK);
    worker.expect_status(Outcome::Timeout);
    worker.expect_exit(exit::OVERTIME_FORCED);
    // One instruction that looks at no clock costs the limit, the grace and the watcher's look.
    let most = Duration::from_millis(500) + GRACE + Duration::from_millis(500) + SLACK;
    assert!(started.elapsed() < most, "{:?}", started.elapsed());
}

#[test]
fn a_peer_that_falls_silent_is_not_waited_for_beyond_the_limit() {
    let (dir, shop) = (scratch(), Replica::shop());
    let mut worker = Worker::greeted(dir.path());
    worker.send(&Frame::Header(shop.header(WorkerLimits { restore_ms: 300, ..LIMITS })));
    worker.expect_status(Outcome::RestoreTimeout);
    worker.expect_exit(exit::OVERTIME_FORCED);
}

#[test]
fn t12_what_a_killed_worker_leaves_is_swept_and_a_living_ones_is_not() {
    let (dir, shop) = (scratch(), Replica::shop());
    let mut dead = Worker::holding(dir.path(), &shop, LIMITS);
    let alive = Worker::holding(dir.path(), &shop, LIMITS);
    assert_eq!(sweep(dir.path()).unwrap(), Swept { alive: 2, ..Swept::default() });
    dead.child.kill().unwrap();
    dead.child.wait().unwrap();
    assert_eq!(alive.scratch_files().len(), 2, "both copies are there");
    let swept = sweep(dir.path()).unwrap();
    assert_eq!(swept, Swept { removed: 1, alive: 1, stuck: 0 });
    assert_eq!(alive.scratch_files(), ["database"]);
}
