//! Forwarded reads over real HTTP; the test plays the box by writing its objects.
#![allow(clippy::disallowed_methods, clippy::unwrap_used, clippy::panic)]

mod common;

use std::{sync::Arc, time::Duration};

use carlos_bucket::{WriteOnceGuard, file_url, open_store};
use carlos_console::ConsoleConfig;
use carlos_protocol::{ids::Digest, keys::Key, limits::CHUNK_BYTES, seal::SEAL_OVERHEAD};
use common::{EMAIL, End, Open, Rig, SQL, configured, quick, read_body, record, rig, rig_with};
use object_store::memory::InMemory;
use serde_json::Value;

#[tokio::test]
async fn a_read_goes_from_admitted_to_its_result() {
    let rig = rig().await;
    let mut open = rig.open().await;
    let id = open.admitted().await;
    assert_eq!(open.line().await.unwrap()["wait"], "queued");
    rig.pick(id).await;
    assert_eq!(open.news().await.unwrap()["picked"], "box-uk");
    rig.write(&Key::Chunk(id, 1), vec![7; SEAL_OVERHEAD + CHUNK_BYTES]).await;
    rig.write(&Key::Chunk(id, 2), vec![8; SEAL_OVERHEAD]).await;
    rig.finish(id, 2).await;
    assert_eq!(open.news().await.unwrap()["chunk"], 1);
    assert_eq!(open.news().await.unwrap()["chunk"], 2);
    let result = open.news().await.unwrap();
    assert_eq!(result["result"]["last_seq"], 2);
    assert_eq!(open.end().await, End::Whole);
    assert_eq!(rig.object(&Key::Cancel(id)).await, None, "an answered read needs no cancel");
}

#[tokio::test]
async fn the_response_is_made_for_streaming() {
    let rig = rig().await;
    let mut open = rig.open().await;
    open.admitted().await;
    assert_eq!(open.headers["content-type"], "application/x-ndjson");
    assert_eq!(open.headers["cache-control"], "no-store");
    assert_eq!(open.headers["x-accel-buffering"], "no");
    assert!(!open.headers.contains_key("content-length"));
    assert!(!open.headers.contains_key("content-encoding"));
}

#[tokio::test]
async fn the_request_says_what_was_admitted_and_the_row_says_it_without_the_statement() {
    let rig = rig().await;
    let mut open = rig.open().await;
    let id = open.admitted().await;
    let request = rig.signed(id).await;
    assert_eq!((request.sql.as_str(), request.by.as_str()), (SQL, EMAIL));
    assert_eq!(request.incarnation, record().incarnation());
    assert_eq!((request.host, request.region), (record().host, record().region));
    let rows = rig.keys("activity/acme").await;
    let row = rig.object(&Key::parse(&rows[0]).unwrap()).await.unwrap();
    let row: Value = serde_json::from_slice(&row).unwrap();
    let detail = row["detail"].as_str().unwrap();
    assert!(detail.contains(&format!("{} bytes", SQL.len())));
    assert!(detail.contains(&Digest::of(SQL.as_bytes()).prefix()));
    assert!(!row.to_string().contains("orders"));
    assert_eq!((rows.len(), row["by"].as_str()), (1, Some(EMAIL)));
}

#[tokio::test]
async fn the_queue_entry_names_the_request_and_the_serial_moves() {
    let rig = rig().await;
    let mut open = rig.open().await;
    let id = open.admitted().await;
    let entry = rig.signed(id).await.queue_entry();
    assert_eq!(rig.object(&Key::Queue(entry)).await.unwrap().len(), 0);
    assert!(rig.object(&Key::Serial(record().region)).await.is_some());
}

#[tokio::test]
async fn nobody_picks_and_the_response_ends_without_a_result() {
    let rig = configured(|config| {
        let timings = carlos_console::Timings { pickup: Duration::from_millis(200), ..quick() };
        ConsoleConfig { timings, ..config }
    })
    .await;
    let mut open = rig.open().await;
    let id = open.admitted().await;
    assert_eq!(open.end().await, End::Whole);
    rig.appears(&Key::Cancel(id)).await;
}

#[tokio::test]
async fn a_garbled_result_breaks_the_transfer() {
    let rig = rig().await;
    let mut open = rig.open().await;
    let id = open.admitted().await;
    rig.pick(id).await;
    rig.write(&Key::Result(id), "{\"state\":\"done\"}").await;
    assert_eq!(open.end().await, End::Broken);
    rig.appears(&Key::Cancel(id)).await;
}

/// Opens reads until the person's count is full.
async fn two_open(rig: &Rig) -> [(Open, carlos_protocol::ids::ReadId); 2] {
    let (mut first, mut second) = (rig.open().await, rig.open().await);
    let ids = (first.admitted().await, second.admitted().await);
    let busy = rig.refused(&read_body(SQL)).await;
    assert_eq!((busy.status.as_u16(), busy.code().as_str()), (429, "DBF-9"));
    assert_eq!(busy.headers["retry-after"], "60");
    [(first, ids.0), (second, ids.1)]
}

/// Waits until a third read is admitted, which a count that was never given back would refuse.
async fn admits_again(rig: &Rig) {
    for _ in 0..100 {
        let answer = rig.post(common::READS, read_body(SQL).to_string()).await;
        if answer.status() == 200 {
            return;
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    panic!("the counts never came back");
}

#[tokio::test]
async fn t15_clients_that_leave_before_pickup_free_their_counts() {
    let rig = rig().await;
    for (open, id) in two_open(&rig).await {
        drop(open);
        rig.appears(&Key::Cancel(id)).await;
    }
    admits_again(&rig).await;
}

#[tokio::test]
async fn t15_clients_that_leave_after_pickup_free_their_counts() {
    let rig = rig().await;
    for (mut open, id) in two_open(&rig).await {
        rig.pick(id).await;
        assert_eq!(open.news().await.unwrap()["picked"], "box-uk");
        drop(open);
        rig.appears(&Key::Cancel(id)).await;
    }
    admits_again(&rig).await;
}

#[tokio::test]
async fn t16_what_a_box_writes_after_the_end_changes_nothing() {
    let (store, guard) = WriteOnceGuard::wrap(Arc::new(InMemory::new()));
    let rig = rig_with(store, |config| config).await;
    let mut open = rig.open().await;
    let id = open.admitted().await;
    drop(open);
    rig.appears(&Key::Cancel(id)).await;
    let before = rig.keys("activity").await;
    rig.pick(id).await;
    rig.write(&Key::Chunk(id, 1), vec![1; SEAL_OVERHEAD]).await;
    rig.finish(id, 1).await;
    let own = rig.keys(&format!("db-reads/{id}")).await;
    tokio::time::sleep(Duration::from_millis(300)).await;
    assert_eq!(rig.keys(&format!("db-reads/{id}")).await, own);
    assert_eq!(rig.keys("activity").await, before);
    assert_eq!(guard.violations(), [""; 0]);
}

#[tokio::test]
async fn a_directory_is_a_bucket_too() {
    let folder = tempfile::tempdir().unwrap();
    let store = open_store(&file_url(folder.path())).unwrap();
    let rig = rig_with(store, |config| config).await;
    let mut open = rig.open().await;
    let id = open.admitted().await;
    rig.pick(id).await;
    rig.write(&Key::Chunk(id, 1), vec![7; SEAL_OVERHEAD]).await;
    rig.finish(id, 1).await;
    assert_eq!(open.news().await.unwrap()["picked"], "box-uk");
    assert_eq!(open.news().await.unwrap()["chunk"], 1);
    assert_eq!(open.news().await.unwrap()["result"]["state"], "done");
    assert_eq!(open.end().await, End::Whole);
}

#[tokio::test]
async fn the_console_bound_holds_over_persons() {
    let rig = configured(|config| ConsoleConfig { reads_in_all: 1, ..config });
    let rig = rig.await;
    let mut open = rig.open().await;
    open.admitted().await;
    assert_eq!(rig.refused(&read_body(SQL)).await.code(), "DBF-9");
}

#[tokio::test]
async fn shutdown_ends_open_reads_and_leaves_nothing_running() {
    let rig = rig().await;
    let mut open = rig.open().await;
    let id = open.admitted().await;
    rig.shutdown.cancel();
    assert_eq!(open.end().await, End::Broken);
    assert!(
        rig.object(&Key::Cancel(id)).await.is_some() || {
            rig.appears(&Key::Cancel(id)).await;
            true
        }
    );
    tokio::time::timeout(Duration::from_secs(2), rig.served).await.expect("run returns").unwrap();
}
