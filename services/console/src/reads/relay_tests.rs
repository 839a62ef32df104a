//! The relay on virtual time, with a test that plays the box by writing its objects.

use std::{sync::Arc, time::Duration};

use bytes::Bytes;
use carlos_bucket::{
    Bucket, Context, Purpose,
    hook::{HookStore, Side},
    layer::Op,
};
use carlos_protocol::{
    ids::{BootId, BoxName, Nonce, ReadId},
    keys::Key,
    limits::{CHUNK_BYTES, OUTPUT_BYTES},
    picked::Picked,
    result::{Code, ReadResult, State},
    seal::SEAL_OVERHEAD,
    time::Seconds,
};
use futures::StreamExt;
use object_store::{ObjectStore, memory::InMemory};
use serde_json::Value;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

use super::{
    pace::{self, Cut, Ending, LineBody},
    relay::Relay,
};
use crate::{admission::Admission, timings::Timings};

const START: u64 = 1_792_659_600;

struct Rig {
    context: Context,
    bucket: Bucket,
    id: ReadId,
    body: LineBody,
    shutdown: CancellationToken,
    ending: JoinHandle<Ending>,
}

fn rig() -> Rig {
    rig_over(Arc::new(InMemory::new()))
}

fn rig_over(store: Arc<dyn ObjectStore>) -> Rig {
    let context = Context::simulated(1, START * 1_000);
    let bucket = Bucket::new(store, context.clone());
    let id = ReadId::mint(&mut context.entropy());
    let shutdown = CancellationToken::new();
    let admitted = Admission::new(1, 1).admit("a@example.com").unwrap();
    let (pace, body) =
        pace::response(context.clone(), Timings::default(), shutdown.clone(), admitted);
    let relay = Relay::new(bucket.clone(), id, pace, context.monotonic());
    let ending = context.spawn(relay.run());
    Rig { context, bucket, id, body, shutdown, ending }
}

impl Rig {
    async fn write(&self, key: Key, body: impl Into<Bytes>) {
        let outcome = self.bucket.create(&key.to_path(), body.into(), Purpose::Claim).await;
        assert!(outcome.is_ours());
    }

    async fn pick(&self, deadline: u64) {
        let picked = Picked {
            box_name: BoxName::parse("box-uk").unwrap(),
            boot: BootId::parse("boot").unwrap(),
            nonce: Nonce::mint(&mut self.context.entropy()),
            deadline: Seconds::new(deadline),
        };
        self.write(Key::Picked(self.id), picked.to_bytes()).await;
    }

    async fn chunk(&self, seq: u64, size: usize) {
        self.write(Key::Chunk(self.id, seq), vec![seq as u8; size]).await;
    }

    async fn finish(&self, last_seq: u64) {
        self.write(Key::Result(self.id), result(last_seq).to_bytes()).await;
    }

    async fn line(&mut self) -> Result<Value, Cut> {
        let line = self.body.next().await.expect("the response goes on")?;
        assert_eq!(line.last(), Some(&b'\n'));
        Ok(serde_json::from_slice(&line).unwrap())
    }

    /// The next line that is not a wait line.
    async fn news(&mut self) -> Value {
        loop {
            let line = self.line().await.unwrap();
            if line.get("wait").is_none() {
                return line;
            }
        }
    }

    fn seconds(&self) -> u64 {
        self.context.now_unix() - START
    }

    async fn ends(mut self, ending: Ending, whole: bool) {
        let last = loop {
            match self.body.next().await {
                Some(Ok(_)) => {}
                last => break last,
            }
        };
        assert_eq!(last.is_none(), whole);
        assert_eq!(self.ending.await.unwrap(), ending);
    }
}

fn result(last_seq: u64) -> ReadResult {
    ReadResult {
        state: State::Done,
        code: Code::None,
        box_name: BoxName::parse("box-uk").unwrap(),
        last_seq,
        started: Seconds::new(START),
        ended: Seconds::new(START + 1),
        sealed: b"sealed".to_vec(),
    }
}

#[tokio::test(start_paused = true)]
async fn lines_come_in_order_and_the_result_is_last() {
    let mut rig = rig();
    rig.pick(START + 1_200).await;
    assert_eq!(rig.news().await["picked"], "box-uk");
    for seq in 1..=3 {
        rig.chunk(seq, SEAL_OVERHEAD + 10).await;
    }
    rig.finish(3).await;
    for seq in 1..=3 {
        assert_eq!(rig.news().await["chunk"], seq);
    }
    assert_eq!(rig.news().await["result"]["last_seq"], 3);
    rig.ends(Ending::Answered, true).await;
}

#[tokio::test(start_paused = true)]
async fn a_result_is_held_until_its_last_chunk_is_out() {
    let mut rig = rig();
    rig.pick(START + 1_200).await;
    rig.news().await;
    rig.chunk(1, SEAL_OVERHEAD).await;
    rig.chunk(3, SEAL_OVERHEAD).await;
    rig.finish(3).await;
    assert_eq!(rig.news().await["chunk"], 1);
    for _ in 0..4 {
        assert_eq!(rig.line().await.unwrap()["wait"], "streaming");
    }
    rig.chunk(2, SEAL_OVERHEAD).await;
    assert_eq!(rig.news().await["chunk"], 2);
    assert_eq!(rig.news().await["chunk"], 3);
    assert_eq!(rig.news().await["result"]["state"], "done");
    rig.ends(Ending::Answered, true).await;
}

#[tokio::test(start_paused = true)]
async fn a_result_whose_chunks_never_come_ends_without_it() {
    let mut rig = rig();
    rig.pick(START + 30).await;
    rig.finish(1).await;
    rig.news().await;
    rig.ends(Ending::Overdue, false).await;
}

/// The box commits its last chunk and its result while the console is at `op` on `part`; answers
/// how long the console then takes to say so.
async fn overtaken(side: Side, op: Op, part: &str) -> Duration {
    let inner: Arc<dyn ObjectStore> = Arc::new(InMemory::new());
    let (store, hooks) = HookStore::wrap(Arc::clone(&inner));
    let mut rig = rig_over(store);
    rig.pick(START + 1_200).await;
    rig.news().await;
    let mut held = hooks.pause(side, op, part);
    held.reached().await;
    let committed = rig.context.monotonic();
    rig.bucket = rig.bucket.beside(inner);
    rig.chunk(1, SEAL_OVERHEAD).await;
    rig.finish(1).await;
    held.release();
    assert_eq!(rig.news().await["chunk"], 1);
    assert_eq!(rig.news().await["result"]["last_seq"], 1);
    let took = rig.context.monotonic() - committed;
    rig.ends(Ending::Answered, true).await;
    took
}

#[tokio::test(start_paused = true)]
async fn t18_a_result_that_overtakes_the_listing_waits_for_its_chunks() {
    let looks = [(Op::Get, "result.json"), (Op::List, "/out")];
    for (op, part) in looks {
        for side in [Side::Before, Side::After] {
            let took = overtaken(side, op, part).await;
            assert!(took <= Duration::from_millis(1_100), "{side:?} {op:?}: {took:?}");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn t18_the_result_is_read_before_the_chunks_are_listed() {
    // Committed just before the result is read: the listing after it misses nothing, so the answer
    // is complete at once. A listing taken first would have missed the chunk.
    assert_eq!(overtaken(Side::Before, Op::Get, "result.json").await, Duration::ZERO);
}

#[tokio::test(start_paused = true)]
async fn chunks_beyond_the_result_are_never_written() {
    let mut rig = rig();
    rig.chunk(1, SEAL_OVERHEAD).await;
    rig.chunk(2, SEAL_OVERHEAD).await;
    rig.finish(1).await;
    rig.pick(START + 30).await;
    rig.news().await;
    assert_eq!(rig.news().await["chunk"], 1);
    assert_eq!(rig.news().await["result"]["last_seq"], 1);
    rig.ends(Ending::Answered, true).await;
}

#[tokio::test(start_paused = true)]
async fn silence_is_never_longer_than_fifteen_seconds() {
    let mut rig = rig();
    for turn in 1..=3 {
        assert_eq!(rig.line().await.unwrap()["wait"], "queued");
        assert_eq!(rig.seconds(), turn * 15);
    }
    rig.pick(START + 1_200).await;
    assert!(rig.line().await.unwrap().get("picked").is_some());
    let picked = rig.seconds();
    assert_eq!(rig.line().await.unwrap()["wait"], "reading");
    assert_eq!(rig.seconds() - picked, 15);
}

#[tokio::test(start_paused = true)]
async fn nobody_picks_and_the_response_ends_whole_after_two_minutes() {
    let rig = rig();
    let context = rig.context.clone();
    rig.ends(Ending::Unpicked, true).await;
    assert_eq!(context.now_unix() - START, 120);
}

#[tokio::test(start_paused = true)]
async fn an_owners_deadline_is_clamped_both_ways() {
    for (stated, waited) in [(u64::MAX, 21 * 60), (START - 500, 60), (START + 100, 160)] {
        let rig = rig();
        rig.pick(stated).await;
        let context = rig.context.clone();
        rig.ends(Ending::Overdue, false).await;
        assert_eq!(context.now_unix() - START, waited);
    }
}

#[tokio::test(start_paused = true)]
async fn no_request_is_held_longer_than_twenty_two_minutes() {
    let mut rig = rig();
    let context = rig.context.clone();
    while rig.seconds() < 105 {
        rig.line().await.unwrap();
    }
    rig.pick(START + 3_600).await;
    rig.ends(Ending::Overdue, false).await;
    assert_eq!(context.now_unix() - START, 22 * 60);
}

#[tokio::test(start_paused = true)]
async fn objects_outside_the_grammar_end_the_read() {
    let garbage = rig();
    garbage.write(Key::Picked(garbage.id), "{").await;
    garbage.ends(Ending::Malformed, false).await;

    let garbage = rig();
    garbage.pick(START + 60).await;
    garbage.write(Key::Result(garbage.id), vec![0xff; 100]).await;
    garbage.ends(Ending::Malformed, false).await;

    for size in [0, SEAL_OVERHEAD - 1, SEAL_OVERHEAD + CHUNK_BYTES + 1] {
        let garbage = rig();
        garbage.pick(START + 60).await;
        garbage.chunk(1, size).await;
        garbage.ends(Ending::Malformed, false).await;
    }
}

#[tokio::test(start_paused = true)]
async fn names_that_are_no_chunks_are_passed_over() {
    let mut rig = rig();
    rig.pick(START + 60).await;
    for name in ["1", "00000000", "99999999", "zzz"] {
        let key = format!("db-reads/{}/out/{name}", rig.id);
        assert!(rig.bucket.create(&key, "x".into(), Purpose::Claim).await.is_ours());
    }
    rig.chunk(1, SEAL_OVERHEAD).await;
    rig.finish(1).await;
    rig.news().await;
    assert_eq!(rig.news().await["chunk"], 1);
    rig.news().await;
    rig.ends(Ending::Answered, true).await;
}

#[tokio::test(start_paused = true)]
async fn more_output_than_the_cap_ends_the_read() {
    let mut rig = rig();
    rig.pick(START + 1_200).await;
    rig.news().await;
    let full = OUTPUT_BYTES / CHUNK_BYTES as u64;
    for seq in 1..=full {
        rig.chunk(seq, SEAL_OVERHEAD + CHUNK_BYTES).await;
        assert_eq!(rig.news().await["chunk"], seq);
    }
    rig.chunk(full + 1, SEAL_OVERHEAD + 1).await;
    rig.ends(Ending::Malformed, false).await;
}

#[tokio::test(start_paused = true)]
async fn a_dropped_body_ends_the_task_at_once() {
    let rig = rig();
    let context = rig.context.clone();
    context.sleep(Duration::from_millis(1_300)).await;
    drop(rig.body);
    assert_eq!(rig.ending.await.unwrap(), Ending::Closed);
    assert_eq!(context.now_unix_ms() - START * 1_000, 1_300);
}

#[tokio::test(start_paused = true)]
async fn a_reader_that_stalls_for_thirty_seconds_ends_the_request() {
    let rig = rig();
    rig.pick(START + 1_200).await;
    for seq in 1..=4 {
        rig.chunk(seq, SEAL_OVERHEAD).await;
    }
    assert_eq!(rig.ending.await.unwrap(), Ending::Stalled);
    assert!((30..33).contains(&(rig.context.now_unix() - START)));
    let lines: Vec<_> = rig.body.collect().await;
    assert!(lines.last().unwrap().is_err(), "a cut response must not look whole");
}

#[tokio::test(start_paused = true)]
async fn shutdown_ends_the_read_as_a_broken_transfer() {
    let rig = rig();
    rig.context.sleep(Duration::from_secs(3)).await;
    rig.shutdown.cancel();
    rig.ends(Ending::Shutdown, false).await;
}
