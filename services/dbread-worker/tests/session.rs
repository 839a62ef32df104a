//! The same session without a process: frames in, frames out, and a clock that the test owns.
#![allow(clippy::disallowed_methods, clippy::disallowed_macros)]
#![allow(clippy::unwrap_used, clippy::panic)]
#![cfg(target_os = "linux")]

mod support;

use std::io;
use std::sync::Arc;
use std::sync::LazyLock;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering;
use std::time::Duration;

use carlos_dbread_worker::life::Life;
use carlos_dbread_worker::life::Reason;
use carlos_dbread_worker::session::Next;
use carlos_dbread_worker::session::Session;
use carlos_dbread_worker::session::Sink;
use carlos_protocol::frames;
use carlos_protocol::frames::Frame;
use carlos_protocol::frames::FrameDecoder;
use carlos_protocol::frames::Hello;
use carlos_protocol::frames::Outcome;
use carlos_protocol::frames::Sandbox;
use carlos_protocol::limits;
use proptest::prelude::*;
use support::LIMITS;
use support::Replica;
use support::run;

#[derive(Default)]
struct Heard(Vec<Frame>);

impl Sink for Heard {
    fn send(&mut self, frame: Frame) -> io::Result<()> {
        self.0.push(frame);
        Ok(())
    }
}

/// A session in a directory of its own, what it said, and its clock in seconds.
struct Bench {
    session: Session,
    heard: Heard,
    life: Arc<Life>,
    seconds: Arc<AtomicU64>,
    _dir: tempfile::TempDir,
}

impl Bench {
    fn new() -> Self {
        let dir = tempfile::tempdir().unwrap();
        let seconds = Arc::new(AtomicU64::new(1000));
        let clock = Arc::clone(&seconds);
        let life = Life::new(move || Duration::from_secs(clock.load(Ordering::SeqCst)));
        let life = Arc::new(life);
        let session = Session::new(Arc::clone(&life), dir.path(), 1 << 30, Sandbox::default());
        Self { session, heard: Heard::default(), life, seconds, _dir: dir }
    }

    fn take(&mut self, frame: Frame) -> Next {
        self.session.on_frame(frame, &mut self.heard).unwrap()
    }

    /// Hello, the header, and all but the last `missing` bytes of `replica`.
    fn receive(&mut self, replica: &Replica, missing: usize) {
        self.take(Frame::Hello(Hello { v: frames::VERSION, sandbox: None }));
        self.take(Frame::Header(replica.header(LIMITS)));
        let arrived = &replica.bytes[..replica.bytes.len() - missing];
        assert_eq!(self.take(Frame::FileData(arrived.to_vec())), Next::Listen);
    }

    fn said_last(&self) -> &Frame {
        self.heard.0.last().unwrap()
    }

    fn limit(&self) -> (Duration, Outcome) {
        let limit = self.life.time_limit().unwrap();
        (limit.at - self.life.now(), limit.outcome)
    }
}

#[test]
fn every_phase_has_its_own_time() {
    let (mut bench, shop) = (Bench::new(), Replica::shop());
    assert_eq!(bench.limit(), (limits::OWNER_TIME, Outcome::Stopped));
    bench.receive(&shop, 1);
    let restore = Duration::from_millis(LIMITS.restore_ms);
    assert_eq!(bench.limit(), (restore, Outcome::RestoreTimeout));
    let last = shop.bytes[shop.bytes.len() - 1];
    bench.take(Frame::FileData(vec![last]));
    assert!(matches!(bench.said_last(), Frame::Ready(_)));
    assert_eq!(bench.limit(), (limits::OWNER_TIME, Outcome::Stopped));
    assert!(!bench.session.may_end());
    let over = bench.take(run("SELECT 1"));
    assert_eq!(over, Next::Over(Outcome::Done));
    assert_eq!(bench.limit().1, Outcome::Timeout);
    assert!(bench.session.may_end());
}

#[test]
fn the_integrity_check_has_what_the_restore_left_of_its_time() {
    let (mut bench, shop) = (Bench::new(), Replica::shop());
    bench.receive(&shop, 1);
    bench.seconds.fetch_add(LIMITS.restore_ms / 1000, Ordering::SeqCst);
    let last = shop.bytes[shop.bytes.len() - 1];
    let over = bench.take(Frame::FileData(vec![last]));
    assert_eq!(over, Next::Over(Outcome::RestoreTimeout));
}

#[test]
fn what_the_statement_reads_is_checked_on_the_restores_time() {
    let (mut bench, shop) = (Bench::new(), Replica::shop());
    bench.receive(&shop, 0);
    // However long the peer took with its own check in between.
    bench.seconds.fetch_add(LIMITS.restore_ms / 1000 + 1, Ordering::SeqCst);
    assert_eq!(bench.take(run("SELECT name FROM item")), Next::Over(Outcome::Done));
}

#[test]
fn a_cancel_between_frames_ends_the_read_at_the_next_one() {
    for (reason, outcome) in
        [(Reason::PeerLost, Outcome::Stopped), (Reason::TimeUp, Outcome::RestoreTimeout)]
    {
        let mut bench = Bench::new();
        bench.receive(&Replica::shop(), 1);
        bench.life.cancel(reason);
        assert_eq!(bench.take(Frame::FileData(vec![0])), Next::Over(outcome));
    }
}

#[test]
fn nothing_is_answered_after_the_status() {
    let mut bench = Bench::new();
    bench.receive(&Replica::shop(), 0);
    bench.take(Frame::Stop);
    let over = bench.take(run("SELECT 1"));
    assert_eq!(over, Next::Over(Outcome::BadInput));
    assert!(!bench.heard.0.iter().any(|frame| matches!(frame, Frame::Output(_))));
}

/// A whole conversation of the peer's, as bytes.
fn conversation(replica: &Replica) -> Vec<u8> {
    let frames = [
        Frame::Hello(Hello { v: frames::VERSION, sandbox: None }),
        Frame::Header(replica.header(LIMITS)),
        Frame::FileData(replica.bytes.clone()),
        run("SELECT * FROM item, note"),
    ];
    frames.iter().flat_map(|frame| frame.to_bytes().unwrap()).collect()
}

static WHOLE: LazyLock<Vec<u8>> = LazyLock::new(|| conversation(&Replica::shop()));

fn hold(bench: &mut Bench, bytes: &[u8]) -> Next {
    let mut decoder = FrameDecoder::new();
    decoder.feed(bytes);
    while let Some(frame) = decoder.next() {
        let next = match frame {
            Ok(frame) => bench.take(frame),
            Err(error) => bench.session.on_garbage(&error, &mut bench.heard).unwrap(),
        };
        if next != Next::Listen {
            return next;
        }
    }
    Next::Listen
}

#[test]
fn the_conversation_that_is_bent_below_is_whole() {
    let mut bench = Bench::new();
    assert_eq!(hold(&mut bench, &WHOLE), Next::Over(Outcome::Done));
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(128))]

    /// Whatever is bent, the session ends with exactly one status or waits for more, and a copy
    /// that is not the one the checksums promise is never asked anything.
    #[test]
    fn bent_bytes_get_one_status_at_most(
        bends in proptest::collection::vec((any::<prop::sample::Index>(), 1u8..), 1..4),
    ) {
        let mut bytes = WHOLE.clone();
        for (place, with) in bends {
            let len = bytes.len();
            bytes[place.index(len)] ^= with;
        }
        let mut bench = Bench::new();
        let next = hold(&mut bench, &bytes);
        let said = &bench.heard.0;
        let statuses = said.iter().filter(|frame| matches!(frame, Frame::Status(_))).count();
        prop_assert_eq!(statuses, usize::from(next != Next::Listen));
        let ready = said.iter().any(|frame| matches!(frame, Frame::Ready(_)));
        let output = said.iter().any(|frame| matches!(frame, Frame::Output(_)));
        prop_assert!(ready || !output);
    }
}
