//! The four writes: what they leave when the request ends among them, and when one is not ours.
#![allow(clippy::disallowed_methods, clippy::unwrap_used, clippy::panic)]

mod common;

use std::{sync::Arc, time::Duration};

use carlos_bucket::{
    Context,
    fault::{Fault, FaultStore, Rule},
    hook::{HookStore, Side},
    layer::Op,
};
use carlos_console::{ConsoleConfig, Timings};
use common::{READS, Rig, SQL, quick, read_body, rig_with};
use object_store::memory::InMemory;

/// What a read left in the bucket, by the last part of each name.
async fn left(rig: &Rig) -> Vec<String> {
    let mut left: Vec<String> = Vec::new();
    for key in rig.keys("db-reads").await {
        let last = key.rsplit('/').next().unwrap().to_owned();
        left.push(if key.contains("/queue/") { "entry".into() } else { last });
    }
    left.extend(rig.keys("activity").await.iter().map(|_| "row".into()));
    left.extend(rig.keys("control/serial").await.iter().map(|_| "serial".into()));
    left.sort();
    left
}

/// Ends the request while the console's `op` on `part` is held, and says what is left afterwards.
async fn ended_at(side: Side, op: Op, part: &'static str) -> Vec<String> {
    let (store, hooks) = HookStore::wrap(Arc::new(InMemory::new()));
    let rig = Arc::new(rig_with(store, |config| config).await);
    let mut held = hooks.pause(side, op, part);
    let client = tokio::spawn({
        let rig = Arc::clone(&rig);
        async move { rig.post(READS, read_body(SQL).to_string()).await.status() }
    });
    held.reached().await;
    client.abort();
    // Long enough for the closed connection to be seen; nothing tells a client that it was.
    tokio::time::sleep(Duration::from_millis(400)).await;
    held.release();
    tokio::time::sleep(Duration::from_millis(500)).await;
    left(&rig).await
}

#[tokio::test]
async fn a_request_that_ends_before_request_json_leaves_at_most_the_row() {
    assert_eq!(ended_at(Side::Before, Op::List, "control/status").await, [""; 0]);
    assert_eq!(ended_at(Side::Before, Op::Create, "activity").await, ["row"]);
    assert_eq!(ended_at(Side::After, Op::Create, "activity").await, ["row"]);
}

#[tokio::test]
async fn a_request_that_ends_after_request_json_leaves_a_cancel_and_no_serial() {
    let request = ["cancel", "request.json", "row"];
    assert_eq!(ended_at(Side::Before, Op::Create, "request.json").await, request);
    assert_eq!(ended_at(Side::After, Op::Create, "request.json").await, request);
    let entry = ["cancel", "entry", "request.json", "row"];
    assert_eq!(ended_at(Side::Before, Op::Create, "queue").await, entry);
    assert_eq!(ended_at(Side::After, Op::Create, "queue").await, entry);
    assert_eq!(ended_at(Side::Before, Op::Replace, "control/serial").await, entry);
}

/// The answer to one read while `rule` is at work, and what is left afterwards.
async fn under(rule: Rule) -> (u16, String, Vec<String>) {
    let (store, faults) = FaultStore::wrap(Arc::new(InMemory::new()), &Context::system());
    let rig = rig_with(store, |config| {
        let timings = Timings { before_headers: Duration::from_secs(8), ..quick() };
        ConsoleConfig { timings, ..config }
    });
    let rig = rig.await;
    faults.add(rule);
    let answer = rig.post(READS, read_body(SQL).to_string()).await;
    let status = answer.status().as_u16();
    let code = match status {
        200 => {
            drop(answer);
            String::new()
        }
        _ => common::Answer::of(answer).await.code(),
    };
    tokio::time::sleep(Duration::from_millis(500)).await;
    (status, code, left(&rig).await)
}

#[tokio::test]
async fn a_row_that_cannot_be_written_refuses_the_read() {
    let rule = Rule::new(Op::Create, Fault::Refused(403)).on("activity").always();
    assert_eq!(under(rule).await, (503, "DBL-21".into(), vec![]));
}

#[tokio::test]
async fn a_lost_answer_is_read_back_and_the_read_goes_on() {
    for part in ["activity", "request.json", "queue"] {
        let rule = Rule::new(Op::Create, Fault::AnswerLost).on(part);
        let (status, _, left) = under(rule).await;
        assert_eq!(status, 200, "{part}");
        // The client of this test is gone by now, so the cancel is there too.
        assert_eq!(left, ["cancel", "entry", "request.json", "row", "serial"], "{part}");
    }
}

#[tokio::test]
async fn a_request_that_may_have_landed_is_refused_and_cancelled() {
    let rule = Rule::new(Op::Create, Fault::Refused(403)).on("request.json").always();
    assert_eq!(under(rule).await, (503, "DBL-2".into(), vec!["cancel".into(), "row".into()]));
    let rule = Rule::new(Op::Create, Fault::Refused(403)).on("queue").always();
    let left = ["cancel", "request.json", "row"].map(String::from).to_vec();
    assert_eq!(under(rule).await, (503, "DBL-2".into(), left));
}

#[tokio::test]
async fn a_listing_is_whole_or_none_when_the_bucket_does_not_answer() {
    let (store, faults) = FaultStore::wrap(Arc::new(InMemory::new()), &Context::system());
    let rig = rig_with(store, |config| config).await;
    faults.add(Rule::new(Op::Get, Fault::Refused(403)).on("hosts").always());
    let instances = rig.get("/api/cli/apps/acme/shop/instances").await;
    assert_eq!((instances.status.as_u16(), instances.code().as_str()), (503, "DBL-2"));
}

#[tokio::test]
async fn a_lost_bump_is_no_reason_to_refuse() {
    let rule = Rule::new(Op::Replace, Fault::Refused(403)).on("control/serial/uk").always();
    assert_eq!(under(rule).await.0, 200);
}

#[tokio::test]
async fn everything_before_the_headers_is_bounded() {
    let (store, faults) = FaultStore::wrap(Arc::new(InMemory::new()), &Context::system());
    let rig = rig_with(store, |config| {
        let timings = Timings { before_headers: Duration::from_millis(300), ..quick() };
        ConsoleConfig { timings, ..config }
    });
    let rig = rig.await;
    for part in ["accounts", "hosts", "control/edges"] {
        faults.clear();
        faults.add(Rule::new(Op::Get, Fault::Swallowed).on(part).always());
        let answer = rig.refused(&read_body(SQL)).await;
        assert_eq!((answer.status.as_u16(), answer.code().as_str()), (503, "DBL-2"), "{part}");
        assert_eq!(answer.json()["error"], "could not read the instance. Try again.");
    }
    faults.clear();
    faults.add(Rule::new(Op::Create, Fault::Swallowed).on("request.json").always());
    assert_eq!(rig.refused(&read_body(SQL)).await.code(), "DBL-2");
}
