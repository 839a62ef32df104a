//! A hostile tenant: files and statements that mean harm, each against a real worker process.
//!
//! Every case ends with one of its codes within its limits, the process stays below the memory of
//! its unit (db-forward §8.3) and exits by itself, and the next read works.
#![cfg(target_os = "linux")]
#![allow(clippy::disallowed_methods, clippy::disallowed_macros)]
#![allow(clippy::unwrap_used, clippy::panic)]

mod images;
mod peak;
mod schemas;
mod statements;
#[path = "../support/mod.rs"]
mod support;

use std::process::ExitStatus;
use std::time::Duration;
use std::time::Instant;

use carlos_dbread_worker::exit;
use carlos_protocol::frames::Frame;
use carlos_protocol::frames::Outcome;
use carlos_protocol::frames::WorkerLimits;
use peak::Peak;
use support::LIMITS;
use support::Replica;
use support::Worker;

/// `MemoryMax=` of the unit (db-forward §8.3).
const UNIT_MEMORY: u64 = 512 << 20;
/// Short, so that what never ends by itself costs the suite little.
const QUERY_MS: u64 = 1_500;
/// A statement's limit, the 5 s in which a worker is gone (db-forward §5.7), and a slow machine.
const PATIENCE: Duration = Duration::from_secs(30);

/// One act of harm and the answers that are right for it.
pub(crate) struct Case {
    name: &'static str,
    replica: Replica,
    sql: String,
    right: &'static [Outcome],
}

impl Case {
    pub(crate) fn new(
        name: &'static str,
        replica: Replica,
        sql: impl Into<String>,
        right: &'static [Outcome],
    ) -> Self {
        Self { name, replica, sql: sql.into(), right }
    }

    /// Runs the case and, on the same scratch, an honest read after it. Says what was wrong.
    fn run(&self) -> Vec<String> {
        let dir = tempfile::tempdir().unwrap();
        let start = Instant::now();
        let mut worker = Worker::greeted(dir.path());
        let peak = Peak::of(worker.child.id());
        let (outcome, message) = self.ask(&mut worker);
        let (status, _) = worker.end(PATIENCE);
        let used = peak.most();
        println!(
            "{:<44} {outcome:<14?} {:>4} MiB {:>6} ms  {}",
            self.name,
            used >> 20,
            start.elapsed().as_millis(),
            message.lines().next().unwrap_or_default(),
        );
        next_read_works(dir.path());
        let faults = [
            (!self.right.contains(&outcome)).then_some("its answer"),
            (!ends_well(status, outcome)).then_some("its exit"),
            (used >= UNIT_MEMORY).then_some("its memory"),
            (start.elapsed() >= PATIENCE).then_some("its time"),
        ];
        faults.into_iter().flatten().map(|fault| format!("{}: {fault}", self.name)).collect()
    }

    /// The answer: of the restore when that is where it ends, else of the statement.
    fn ask(&self, worker: &mut Worker) -> (Outcome, String) {
        let limits = WorkerLimits { query_ms: QUERY_MS, ..LIMITS };
        worker.send(&Frame::Header(self.replica.header(limits)));
        worker.send_file(&self.replica.bytes);
        match worker.hear() {
            Frame::Ready(_) => {}
            Frame::Status(status) => return (status.outcome, status.message),
            other => panic!("{}: {other:?}", self.name),
        }
        worker.run(&self.sql);
        loop {
            match worker.hear() {
                Frame::Output(_) => {}
                Frame::Status(status) => return (status.outcome, status.message),
                other => panic!("{}: {other:?}", self.name),
            }
        }
    }
}

/// A statement inside one call of SQLite's, where it looks at no limit, is ended with its process.
fn ends_well(status: ExitStatus, outcome: Outcome) -> bool {
    let forced = status.code() == Some(exit::OVERTIME_FORCED.into());
    status.code() == Some(exit::DONE.into()) || (forced && outcome == Outcome::Timeout)
}

fn next_read_works(scratch: &std::path::Path) {
    let mut worker = Worker::holding(scratch, &Replica::shop(), LIMITS);
    worker.run("SELECT name FROM item");
    let (_, status) = worker.answer();
    assert_eq!((status.outcome, status.rows), (Outcome::Done, 3), "{}", status.message);
    worker.expect_exit(exit::DONE);
}

fn run_all(cases: &[Case]) {
    assert!(!cases.is_empty());
    let faults: Vec<_> = cases.iter().flat_map(Case::run).collect();
    assert!(faults.is_empty(), "{faults:#?}");
}

#[test]
fn statements_that_ask_for_the_world() {
    run_all(&statements::cases());
}

#[test]
fn schemas_that_lie_in_wait() {
    run_all(&schemas::cases());
}

#[test]
fn images_that_are_no_trees() {
    run_all(&images::cases());
}

/// The measure itself: a worker that holds 100 MB is seen to hold them.
#[test]
fn what_a_worker_takes_is_seen() {
    let dir = tempfile::tempdir().unwrap();
    let mut worker = Worker::holding(dir.path(), &Replica::shop(), LIMITS);
    let peak = Peak::of(worker.child.id());
    worker.run("SELECT length(hex(zeroblob(50000000)))");
    let (_, status) = worker.answer();
    assert_eq!(status.outcome, Outcome::Done, "{}", status.message);
    worker.expect_exit(exit::DONE);
    assert!(peak.most() > 100 << 20, "{}", peak.most());
}
