//! What a console shows to `GET /metrics`.
#![allow(clippy::disallowed_methods, clippy::unwrap_used, clippy::panic)]

mod common;

use std::{sync::Arc, time::Duration};

use carlos_console::{ConsoleConfig, Metrics, serve_metrics};
use carlos_metrics::{Endpoint, Page};
use carlos_protocol::{ids::Region, keys::Key, seal::SEAL_OVERHEAD};
use common::{DOOR, EMAIL, Rig, SQL, configured, quick, rig};
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::{TcpListener, TcpStream},
};

/// A console, and what it counts. Nobody picks its reads for longer than a test has patience.
async fn counted() -> (Rig, Arc<Metrics>) {
    let metrics = Arc::<Metrics>::default();
    let shared = Arc::clone(&metrics);
    let timings = carlos_console::Timings { pickup: Duration::from_millis(300), ..quick() };
    let rig = configured(|config| ConsoleConfig { metrics: shared, timings, ..config }).await;
    (rig, metrics)
}

/// The page once it has this line.
async fn until(rig: &Rig, metrics: &Metrics, line: &str) -> String {
    for _ in 0..400 {
        let mut page = Page::default();
        metrics.write(&mut page, &rig.bucket);
        if page.text().lines().any(|found| found == line) {
            return page.text().to_owned();
        }
        rig.bucket.context().sleep(Duration::from_millis(10)).await;
    }
    let mut page = Page::default();
    metrics.write(&mut page, &rig.bucket);
    panic!("never {line}: {}", page.text());
}

#[tokio::test]
async fn reads_are_counted_by_how_they_end() {
    let (rig, metrics) = counted().await;
    until(&rig, &metrics, "carlos_console_open_reads 0").await;
    let mut open = rig.open().await;
    let id = open.admitted().await;
    until(&rig, &metrics, "carlos_console_open_reads 1").await;
    rig.pick(id).await;
    rig.write(&Key::Chunk(id, 1), vec![7; SEAL_OVERHEAD + 1]).await;
    rig.finish(id, 1).await;
    open.end().await;
    let answered = "carlos_console_reads_total{ending=\"answered\",state=\"done\",code=\"\"} 1";
    let page = until(&rig, &metrics, answered).await;
    assert!(page.contains("carlos_console_pickup_seconds_count 1\n"), "{page}");
    assert!(page.contains("carlos_console_first_chunk_seconds_count 1\n"), "{page}");
    let mut unpicked = rig.open().await;
    unpicked.admitted().await;
    unpicked.end().await;
    let line = "carlos_console_reads_total{ending=\"unpicked\",state=\"\",code=\"\"} 1";
    until(&rig, &metrics, line).await;
    until(&rig, &metrics, "carlos_console_open_reads 0").await;
}

#[tokio::test]
async fn responses_are_counted_by_status_and_nothing_names_anybody() {
    let (rig, metrics) = counted().await;
    rig.get(DOOR).await;
    rig.get("/api/cli/nothing").await;
    let page = until(&rig, &metrics, "carlos_console_responses_total{status=\"409\"} 1").await;
    assert!(page.contains("carlos_console_responses_total{status=\"404\"} 1\n"), "{page}");
    for secret in [EMAIL, SQL, "shop", "acme", rig.token.reveal()] {
        assert!(!page.contains(secret), "{secret}: {page}");
    }
}

#[tokio::test]
async fn the_page_is_not_on_the_consoles_own_listener() {
    let rig = rig().await;
    assert_eq!(rig.get("/metrics").await.status, 404);
}

#[tokio::test]
async fn the_page_is_served_where_the_configuration_says_and_a_taken_address_is_an_error() {
    let rig = rig().await;
    let free = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = free.local_addr().unwrap();
    let config = ConsoleConfig::new(Region::parse("ie").unwrap());
    let config = ConsoleConfig { metrics_at: Some(Endpoint { address }), ..config };
    assert!(serve_metrics(&config, &rig.bucket, &rig.shutdown).await.is_err());
    drop(free);
    serve_metrics(&config, &rig.bucket, &rig.shutdown).await.unwrap();
    let mut stream = TcpStream::connect(address).await.unwrap();
    stream.write_all(b"GET /metrics HTTP/1.1\r\n\r\n").await.unwrap();
    let mut page = String::new();
    stream.read_to_string(&mut page).await.unwrap();
    assert!(page.starts_with("HTTP/1.1 200 OK\r\n"), "{page}");
    assert!(page.contains("carlos_console_build_info{version="), "{page}");
}
