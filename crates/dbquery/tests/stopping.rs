//! Clocks, cancels, caps: each ends the statement it belongs to, and no other.

#![allow(clippy::unwrap_used, clippy::panic, clippy::disallowed_methods)]

mod common;

use std::io::{self, Write};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use carlos_dbquery::rows::{Decoder, Malformed};
use carlos_dbquery::{IntegrityError, IntegrityMode, Limits, QueryError, Stop, integrity, run};
use common::{Fixture, query, stop};

const ENDLESS: &str = "WITH RECURSIVE c(x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM c) \
    SELECT count(*) FROM c";
const ENDLESS_ROWS: &str = "WITH RECURSIVE c(x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM c) \
    SELECT x FROM c";

fn limited(time: Duration) -> Limits {
    Limits { time, ..Limits::default() }
}

#[test]
fn an_endless_query_ends_in_time_and_the_next_one_answers() {
    let fixture = Fixture::new();
    for sql in [ENDLESS, ENDLESS_ROWS] {
        let started = Instant::now();
        let limits = limited(Duration::from_millis(200));
        assert!(matches!(query(&fixture.db, sql, &limits, &stop()), Err(QueryError::Timeout)));
        let took = started.elapsed();
        assert!(took >= Duration::from_millis(200) && took < Duration::from_secs(5), "{took:?}");
        assert_eq!(fixture.rows("SELECT count(*) FROM parent"), ["2"]);
    }
}

#[test]
fn a_cancel_from_another_thread_ends_it_soon() {
    let fixture = Fixture::new();
    let stop = stop();
    let other = stop.clone();
    std::thread::scope(|scope| {
        scope.spawn(move || {
            std::thread::sleep(Duration::from_millis(100));
            other.cancel();
        });
        let started = Instant::now();
        let ended = query(&fixture.db, ENDLESS, &Limits::default(), &stop);
        assert!(matches!(ended, Err(QueryError::Cancelled)));
        assert!(started.elapsed() < Duration::from_secs(5));
    });
    let again = query(&fixture.db, "SELECT 1", &Limits::default(), &stop);
    assert!(matches!(again, Err(QueryError::Cancelled)), "a cancelled stop runs nothing more");
    let checked = integrity(&fixture.db, &IntegrityMode::Full, &Limits::default(), &stop);
    assert!(matches!(checked, Err(IntegrityError::Stopped(QueryError::Cancelled))));
}

#[test]
fn a_late_cancel_hits_no_other_statement() {
    let fixture = Fixture::new();
    let old = stop();
    query(&fixture.db, "SELECT 1", &Limits::default(), &old).unwrap();
    let done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !done.load(Ordering::SeqCst) {
                old.cancel();
            }
        });
        for _ in 0..100 {
            let counted = fixture.rows(
                "WITH RECURSIVE c(x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM c WHERE x < 20000) \
                 SELECT count(*) FROM c",
            );
            assert_eq!(counted, ["20000"]);
        }
        done.store(true, Ordering::SeqCst);
    });
}

#[test]
fn a_clock_that_stands_still_needs_no_thread() {
    // The deadline is looked at from inside SQLite: a clock that jumps is seen at once.
    let fixture = Fixture::new();
    let looks = std::sync::atomic::AtomicU64::new(0);
    let stop = Stop::new(move || Duration::from_secs(looks.fetch_add(1, Ordering::SeqCst)));
    let ended = query(&fixture.db, ENDLESS, &limited(Duration::from_secs(1_000)), &stop);
    assert!(matches!(ended, Err(QueryError::Timeout)));
}

#[test]
fn the_integrity_check_has_a_clock_too() {
    let fixture = Fixture::new();
    let limits = limited(Duration::ZERO);
    let checked = integrity(&fixture.db, &IntegrityMode::Full, &limits, &stop());
    assert!(matches!(checked, Err(IntegrityError::Stopped(QueryError::Timeout))));
}

#[test]
fn the_cap_holds_to_the_byte_and_leaves_no_whole_stream() {
    let fixture = Fixture::new();
    let sql = "SELECT value FROM kinds ORDER BY id";
    let (whole, _) = fixture.query(sql).unwrap();
    for cap in [0, 10, whole.len() as u64 - 1] {
        let limits = Limits { output: cap, ..Limits::default() };
        let mut stream = Vec::new();
        let ended = run(&fixture.db, sql, &limits, &mut stream, &stop());
        assert!(matches!(ended, Err(QueryError::OutputCap)), "{cap}");
        assert!(stream.len() as u64 <= cap);
        let mut decoder = Decoder::new();
        decoder.feed(&stream).unwrap();
        while decoder.next_event().unwrap().is_some() {}
        assert_eq!(decoder.finish(), Err(Malformed::Truncated));
    }
    let limits = Limits { output: whole.len() as u64, ..Limits::default() };
    assert_eq!(query(&fixture.db, sql, &limits, &stop()).unwrap().0, whole);
    let endless = query(&fixture.db, ENDLESS_ROWS, &limits, &stop());
    assert!(matches!(endless, Err(QueryError::OutputCap)));
}

/// A peer that goes away after some bytes.
struct Gone(usize);

impl Write for Gone {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0 = self.0.checked_sub(bytes.len()).ok_or(io::ErrorKind::BrokenPipe)?;
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[test]
fn a_sink_that_fails_ends_the_query() {
    let fixture = Fixture::new();
    let ended = run(&fixture.db, ENDLESS_ROWS, &Limits::default(), &mut Gone(100_000), &stop());
    let Err(QueryError::Sink(error)) = ended else { panic!("{ended:?}") };
    assert_eq!(error.kind(), io::ErrorKind::BrokenPipe);
}

#[test]
fn rows_of_a_slow_query_leave_before_its_end() {
    /// Counts the times it is flushed.
    struct Flushes(usize);
    impl Write for Flushes {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            Ok(bytes.len())
        }
        fn flush(&mut self) -> io::Result<()> {
            self.0 += 1;
            Ok(())
        }
    }
    let fixture = Fixture::new();
    let looks = std::sync::atomic::AtomicU64::new(0);
    let stop = Stop::new(move || Duration::from_millis(100 * looks.fetch_add(1, Ordering::SeqCst)));
    let mut sink = Flushes(0);
    run(&fixture.db, "SELECT * FROM kinds", &Limits::default(), &mut sink, &stop).unwrap();
    assert!(sink.0 > 3, "{}", sink.0);
}
