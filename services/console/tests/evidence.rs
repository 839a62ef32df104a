//! T14: only complete evidence refuses a read up front (db-forward §7.1).
#![allow(clippy::disallowed_methods, clippy::unwrap_used, clippy::panic)]

mod common;

use std::sync::Arc;

use carlos_bucket::{
    Context, Kind,
    fault::{Fault, FaultStore, Rule},
    layer::Op,
};
use carlos_protocol::{
    keys::Key,
    records::{self, DB_READ_CAPABILITY, DB_READ_PARAMS_CAPABILITY, Edges},
};
use common::{DOOR, READS, Rig, SQL, read_body, rev, rig, rig_with};
use object_store::memory::InMemory;
use serde_json::json;

/// The code of a refusal, or nothing for an open read.
async fn answer(rig: &Rig) -> Option<String> {
    let answer = rig.post(READS, read_body(SQL).to_string()).await;
    match answer.status().as_u16() {
        200 => None,
        _ => Some(common::Answer::of(answer).await.code()),
    }
}

/// A region without a capable box, by complete evidence.
async fn none_capable() -> Rig {
    let rig = rig().await;
    rig.edges("box-uk", "uk", &[], false).await;
    rig
}

#[tokio::test]
async fn complete_evidence_without_a_capable_box_is_dbf_1() {
    let rig = none_capable().await;
    assert_eq!(answer(&rig).await.as_deref(), Some("DBF-1"));
    assert_eq!(rig.get(DOOR).await.code(), "DBF-1");
    assert!(rig.keys("db-reads").await.is_empty() && rig.keys("activity").await.is_empty());
}

#[tokio::test]
async fn a_draining_box_and_a_box_elsewhere_do_not_count() {
    let rig = none_capable().await;
    rig.a_box("box-uk-2", "uk", &[DB_READ_CAPABILITY], true).await;
    rig.a_box("box-us", "us", &[DB_READ_CAPABILITY], false).await;
    assert_eq!(answer(&rig).await.as_deref(), Some("DBF-1"));
    rig.a_box("box-uk-3", "uk", &["else", DB_READ_CAPABILITY], false).await;
    assert_eq!(answer(&rig).await, None);
}

#[tokio::test]
async fn capable_boxes_that_are_silent_are_dbf_2() {
    let rig = rig().await;
    let now = rig.bucket.context().now_unix();
    for stale in [now - 151, now + 200] {
        rig.status("box-uk", "uk", stale).await;
        assert_eq!(answer(&rig).await.as_deref(), Some("DBF-2"));
    }
    rig.status("box-uk", "uk", now - 140).await;
    assert_eq!(answer(&rig).await, None);
}

#[tokio::test]
async fn values_go_only_where_a_live_box_takes_them() {
    let rig = rig().await;
    let mut body = read_body("SELECT :id");
    body["params"] = json!([{"name": ":id", "value": {"int": 7}}]);
    assert_eq!(rig.refused(&body).await.code(), "DBL-38");
    assert!(rig.keys("db-reads").await.is_empty() && rig.keys("activity").await.is_empty());
    rig.a_box("box-us", "us", &[DB_READ_CAPABILITY, DB_READ_PARAMS_CAPABILITY], false).await;
    assert_eq!(rig.refused(&body).await.code(), "DBL-38");
    assert_eq!(answer(&rig).await, None, "a query without values is not held up");
    rig.a_box("box-uk-2", "uk", &[DB_READ_CAPABILITY, DB_READ_PARAMS_CAPABILITY], false).await;
    let id = rig.open_with(&body).await.admitted().await;
    let signed = serde_json::to_value(rig.signed(id).await).unwrap();
    assert_eq!(signed["params"], body["params"]);
}

#[tokio::test]
async fn t14_status_snapshots_that_cannot_be_loaded_admit() {
    let context = Context::system();
    let (store, faults) = FaultStore::wrap(Arc::new(InMemory::new()), &context);
    let rig = rig_with(store, |config| config).await;
    rig.edges("box-uk", "uk", &[], false).await;
    assert_eq!(answer(&rig).await.as_deref(), Some("DBF-1"));
    faults.add(Rule::new(Op::List, Fault::Refused(403)).on("control/status").always());
    assert_eq!(answer(&rig).await, None);
    faults.clear();
    faults.add(Rule::new(Op::Get, Fault::Refused(403)).on("control/status").always());
    assert_eq!(answer(&rig).await, None);
}

#[tokio::test]
async fn t14_one_missing_snapshot_admits() {
    let rig = none_capable().await;
    rig.edges("box-us", "us", &[], false).await;
    assert_eq!(answer(&rig).await, None);
}

#[tokio::test]
async fn t14_an_unreadable_edges_file_admits() {
    for garbage in ["", "{}", "not json"] {
        let rig = none_capable().await;
        rig.status("box-us", "us", 0).await;
        rig.write(&Key::Edges("box-us".parse().unwrap(), rev(1)), garbage).await;
        assert_eq!(answer(&rig).await, None, "{garbage:?}");
    }
}

#[tokio::test]
async fn t14_an_edges_file_that_cannot_be_loaded_admits() {
    let context = Context::system();
    let (store, faults) = FaultStore::wrap(Arc::new(InMemory::new()), &context);
    let rig = rig_with(store, |config| config).await;
    rig.edges("box-uk", "uk", &[], false).await;
    for op in [Op::List, Op::Get] {
        assert_eq!(answer(&rig).await.as_deref(), Some("DBF-1"));
        faults.add(Rule::new(op, Fault::Refused(403)).on("control/edges").always());
        assert_eq!(answer(&rig).await, None, "{op:?}");
        faults.clear();
    }
}

#[tokio::test]
async fn t14_an_unreadable_status_snapshot_admits() {
    for garbage in ["", "{}", "not json"] {
        let rig = none_capable().await;
        rig.edges("box-us", "us", &[], false).await;
        rig.write(&Key::Status("box-us".parse().unwrap()), garbage).await;
        assert_eq!(answer(&rig).await, None, "{garbage:?}");
    }
}

/// The second refusal gives way to a gap as the first does, wherever the broken box stands.
#[tokio::test]
async fn t14_incomplete_evidence_wins_over_dbf_2_as_well() {
    let rig = rig().await;
    let now = rig.bucket.context().now_unix();
    rig.status("box-uk", "uk", now - 151).await;
    assert_eq!(answer(&rig).await.as_deref(), Some("DBF-2"));
    // A fresh snapshot without edges, then with edges that say nothing, then complete.
    rig.status("box-us", "us", now).await;
    assert_eq!(answer(&rig).await, None);
    rig.write(&Key::Edges("box-us".parse().unwrap(), rev(1)), "").await;
    assert_eq!(answer(&rig).await, None);
    rig.edges("box-us", "us", &[], false).await;
    assert_eq!(answer(&rig).await.as_deref(), Some("DBF-2"));
}

#[tokio::test]
async fn t14_a_fresh_snapshot_beside_no_edges_file_admits() {
    let rig = none_capable().await;
    rig.status("box-us", "us", rig.bucket.context().now_unix()).await;
    assert_eq!(answer(&rig).await, None);
    // The box is gone for good: an old snapshot without an edges file is no gap.
    rig.status("box-us", "us", 0).await;
    assert_eq!(answer(&rig).await.as_deref(), Some("DBF-1"));
}

#[tokio::test]
async fn files_that_speak_of_another_box_are_a_gap() {
    let rig = none_capable().await;
    rig.status("box-us", "us", 0).await;
    let own = rig.object(&Key::Edges("box-uk".parse().unwrap(), rev(1))).await.unwrap();
    rig.write(&Key::Edges("box-us".parse().unwrap(), rev(1)), own).await;
    assert_eq!(answer(&rig).await, None);
}

#[tokio::test]
async fn a_snapshot_that_names_later_edges_is_a_gap() {
    let rig = rig().await;
    rig.edges("box-us", "us", &[], false).await;
    rig.status("box-us", "us", 0).await;
    rig.edges("box-uk", "uk", &[], false).await;
    assert_eq!(answer(&rig).await.as_deref(), Some("DBF-1"));
    rig.status_of("box-us", "us", 0, 2).await;
    assert_eq!(answer(&rig).await, None);
}

/// The listings and reads that one look at the evidence takes.
async fn cost(rig: &Rig) -> [u64; 2] {
    let sent = || [Kind::List, Kind::Get].map(|kind| rig.bucket.counters().of(kind).sent);
    let before = sent();
    rig.get(DOOR).await;
    let after = sent();
    [after[0] - before[0], after[1] - before[1]]
}

/// A box that could serve in every second revision, and cannot in the last.
async fn flapped(rig: &Rig, revisions: u64) {
    let name: carlos_protocol::ids::BoxName = "box-uk".parse().unwrap();
    for number in 3..=revisions {
        let capable = (number % 2 == 1).then(|| DB_READ_CAPABILITY.parse().unwrap());
        let edges = Edges {
            v: records::VERSION,
            box_name: name.clone(),
            region: "uk".parse().unwrap(),
            capabilities: capable.into_iter().collect(),
            draining: false,
        };
        rig.revision(&Key::Edges(name.clone(), rev(number)), &edges).await;
    }
}

#[tokio::test]
async fn a_box_of_5_000_edges_revisions_costs_what_any_box_costs() {
    let rig = none_capable().await;
    rig.status_of("box-uk", "uk", rig.bucket.context().now_unix(), 2).await;
    rig.get(DOOR).await;
    let young = cost(&rig).await;
    assert_eq!(young[0], 2, "the boxes that have edges, and those that have a status");
    flapped(&rig, 5_000).await;
    rig.status_of("box-uk", "uk", rig.bucket.context().now_unix(), 5_000).await;
    assert_eq!(rig.get(DOOR).await.code(), "DBF-1");
    assert_eq!(cost(&rig).await, young);
    // It changed once more and died before its next status.
    let before = rig.keys("control/edges").await.len();
    rig.edges("box-uk", "uk", &[DB_READ_CAPABILITY], false).await;
    assert_eq!(before, 5_000);
    assert_eq!(answer(&rig).await, None);
    // It started anew and could not read its own chain yet: its status names no revision.
    rig.status_of("box-uk", "uk", rig.bucket.context().now_unix(), 0).await;
    let [listings, reads] = cost(&rig).await;
    // Two reads more, because this box was seen to serve just before.
    assert!(listings <= 2 + 8 && reads <= young[1] + 3, "{listings} listings, {reads} reads");
}

#[tokio::test]
async fn a_box_that_was_seen_to_serve_is_looked_at_first() {
    let rig = rig().await;
    for number in 0..100 {
        rig.a_box(&format!("box-us-{number}"), "us", &[DB_READ_CAPABILITY], false).await;
    }
    rig.get(DOOR).await;
    let warm = cost(&rig).await;
    assert_eq!(warm[0], 0, "nothing is listed while the box seen last still serves");
    assert!(warm[1] <= 8, "{warm:?}: the gate's records, the box's status, no newer edges");
    // It drains, and dies before it can say so in its status.
    rig.edges("box-uk", "uk", &[DB_READ_CAPABILITY], true).await;
    assert_eq!(answer(&rig).await.as_deref(), Some("DBF-1"));
    // Another box of the region comes up.
    rig.a_box("box-uk-2", "uk", &[DB_READ_CAPABILITY], false).await;
    assert_eq!(answer(&rig).await, None);
    assert_eq!(cost(&rig).await[0], 0);
    // It falls silent.
    rig.status_of("box-uk-2", "uk", rig.bucket.context().now_unix() - 200, 1).await;
    assert_eq!(answer(&rig).await.as_deref(), Some("DBF-2"));
}
