//! Clients that send too much, too little, too slowly or nonsense.
#![allow(clippy::disallowed_methods, clippy::unwrap_used, clippy::panic)]

mod common;

use std::{
    convert::Infallible,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::{Duration, Instant},
};

use bytes::Bytes;
use carlos_console::{ConsoleConfig, Timings};
use carlos_protocol::limits::{READ_BODY_BYTES, SQL_BYTES};
use common::{Answer, READS, Rig, SQL, configured, quick, read_body, rig};
use futures::stream;
use http_body_util::StreamBody;
use hyper::{Method, body::Frame};
use serde_json::{Value, json};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpStream,
};

async fn refused(rig: &Rig, change: impl FnOnce(&mut Value)) -> (u16, String) {
    let mut body = read_body(SQL);
    change(&mut body);
    let answer = rig.refused(&body).await;
    (answer.status.as_u16(), answer.code())
}

async fn posted(rig: &Rig, body: impl Into<Bytes>) -> (u16, String) {
    let answer = Answer::of(rig.post(READS, body).await).await;
    (answer.status.as_u16(), answer.code())
}

#[tokio::test]
async fn bodies_that_are_no_read_are_refused() {
    let rig = rig().await;
    for body in ["", "{", "[]", "null", "{}", "{\"op\":\"query\"}"] {
        assert_eq!(posted(&rig, body).await, (400, "DBL-16".into()), "{body}");
    }
    let extra = refused(&rig, |body| body["prefix"] = json!("../other")).await;
    assert_eq!(extra, (400, "DBL-16".into()));
    for key in ["", "AAAA", &"A".repeat(88)] {
        let bad = refused(&rig, |body| body["reply_key"] = json!(key)).await;
        assert_eq!(bad, (400, "DBL-16".into()), "{key}");
    }
    let naive = refused(&rig, |body| body["at"] = json!("2026-10-07 14:00:00")).await;
    assert_eq!(naive, (400, "DBL-16".into()));
    assert_eq!(refused(&rig, |body| body["op"] = json!("pull")).await, (400, "DBL-35".into()));
    assert!(rig.keys("db-reads").await.is_empty() && rig.keys("activity").await.is_empty());
}

#[tokio::test]
async fn statements_that_json_would_rewrite_are_refused() {
    let rig = rig().await;
    let replaced = refused(&rig, |body| body["sql"] = json!("select '\u{fffd}'")).await;
    assert_eq!(replaced, (400, "DBF-32".into()));
    let mut bytes = read_body("select '@'").to_string().into_bytes();
    let at = bytes.iter().position(|byte| *byte == b'@').unwrap();
    bytes[at] = 0xff;
    assert_eq!(posted(&rig, bytes).await, (400, "DBF-32".into()));
    let surrogate = read_body("select '@'").to_string().replace('@', "\\ud800");
    assert_eq!(posted(&rig, surrogate).await, (400, "DBL-16".into()));
}

#[tokio::test]
async fn statements_over_their_bound_are_refused_and_the_longest_passes() {
    let rig = rig().await;
    let long = refused(&rig, |body| body["sql"] = json!("x".repeat(SQL_BYTES + 1))).await;
    assert_eq!(long, (400, "DBL-15".into()));
    assert_eq!(refused(&rig, |body| body["sql"] = json!(" ")).await, (400, "DBL-33".into()));
    assert_eq!(refused(&rig, |body| body["sql"] = json!("a\0")).await, (400, "DBL-33".into()));
    let longest = read_body(&"\u{1}".repeat(SQL_BYTES)).to_string();
    assert!(longest.len() > SQL_BYTES * 5);
    assert_eq!(rig.post(READS, longest).await.status(), 200);
}

#[tokio::test]
async fn statements_that_are_not_one_read_are_refused() {
    let rig = rig().await;
    for sql in ["select 1; select 2", "delete from t", "attach 'x' as y", "pragma query_only = 0"] {
        assert_eq!(refused(&rig, |body| body["sql"] = json!(sql)).await, (400, "DBL-33".into()));
    }
    let value = refused(&rig, |body| {
        body["sql"] = json!("select ?");
        body["params"] = json!([{ "value": { "text": "\u{fffd}" } }]);
    });
    assert_eq!(value.await, (400, "DBF-32".into()));
    assert!(rig.keys("db-reads").await.is_empty() && rig.keys("activity").await.is_empty());
}

#[tokio::test]
async fn a_compressed_body_is_never_inflated() {
    let rig = rig().await;
    let mut request = rig.request(Method::POST, READS, Some(rig.token.reveal()));
    request.headers_mut().insert("content-encoding", "gzip".parse().unwrap());
    assert_eq!(rig.send(request).await.status(), 415);
}

/// A body of 1 GiB whose sender counts what was taken from it.
fn gibibyte(
    sent: &Arc<AtomicUsize>,
) -> impl hyper::body::Body<Data = Bytes, Error = Infallible> + use<> {
    let sent = Arc::clone(sent);
    let piece = Bytes::from(vec![b' '; 1024 * 1024]);
    StreamBody::new(stream::iter((0..1024).map(move |_| {
        sent.fetch_add(piece.len(), Ordering::Relaxed);
        Ok(Frame::data(piece.clone()))
    })))
}

#[tokio::test]
async fn a_gibibyte_is_refused_early() {
    let rig = rig().await;
    let sent = Arc::new(AtomicUsize::new(0));
    let request = rig.request(Method::POST, READS, Some(rig.token.reveal()));
    let answer = Answer::of(rig.send(request.map(|_| gibibyte(&sent))).await).await;
    assert_eq!((answer.status.as_u16(), answer.code().as_str()), (413, "DBL-14"));
    assert!(sent.load(Ordering::Relaxed) < 64 * 1024 * 1024);
}

#[tokio::test]
async fn a_stated_length_is_refused_before_a_byte_of_it() {
    let rig = rig().await;
    let length = READ_BODY_BYTES + 1;
    let answer = raw_post(&rig, rig.token.reveal(), length, "").await;
    assert!(answer.starts_with("HTTP/1.1 413 "), "{answer}");
    let answer = raw_post(&rig, "cpt_acme_nothing", length, "").await;
    assert!(answer.starts_with("HTTP/1.1 401 "), "{answer}");
}

#[tokio::test]
async fn a_body_that_trickles_is_given_up() {
    let rig = configured(|config| {
        let timings = Timings { body: Duration::from_millis(200), ..quick() };
        ConsoleConfig { timings, ..config }
    });
    let rig = rig.await;
    let answer = raw_post(&rig, rig.token.reveal(), 100, "{\"op\"").await;
    assert!(answer.starts_with("HTTP/1.1 408 "), "{answer}");
}

/// Sends a head and the beginning of a body, then waits for the answer.
async fn raw_post(rig: &Rig, token: &str, length: usize, body: &str) -> String {
    let mut stream = TcpStream::connect(rig.address).await.unwrap();
    let request = format!(
        "POST {READS} HTTP/1.1\r\nhost: console\r\nauthorization: Bearer {token}\r\n\
         content-length: {length}\r\n\r\n{body}"
    );
    stream.write_all(request.as_bytes()).await.unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).await.unwrap();
    answer
}

#[tokio::test]
async fn silent_connections_shut_nobody_out() {
    let rig = configured(|config| ConsoleConfig { max_connections: 8, ..config }).await;
    let mut silent = Vec::new();
    for _ in 0..100 {
        silent.push(TcpStream::connect(rig.address).await.unwrap());
    }
    let began = Instant::now();
    assert_eq!(rig.get_as("/healthz", None).await.status, 200);
    assert!(began.elapsed() < Duration::from_millis(500));
}

#[tokio::test]
async fn an_open_read_survives_a_flood_of_connections() {
    let rig = configured(|config| ConsoleConfig { max_connections: 4, ..config }).await;
    let mut open = rig.open().await;
    let id = open.admitted().await;
    for _ in 0..50 {
        TcpStream::connect(rig.address).await.unwrap();
    }
    rig.pick(id).await;
    assert_eq!(open.news().await.unwrap()["picked"], "box-uk");
}

#[tokio::test]
async fn headers_that_never_end_are_given_up() {
    let rig = configured(|config| {
        let timings = Timings { headers: Duration::from_millis(200), ..quick() };
        ConsoleConfig { timings, ..config }
    });
    let mut stream = TcpStream::connect(rig.await.address).await.unwrap();
    stream.write_all(b"GET / HTTP/1.1\r\nhost: c").await.unwrap();
    let mut answer = Vec::new();
    let read = stream.read_to_end(&mut answer);
    tokio::time::timeout(Duration::from_secs(2), read).await.expect("closed").unwrap();
}

#[tokio::test]
async fn a_reader_that_never_reads_frees_its_count() {
    let rig = configured(|config| {
        let timings = Timings { write_stall: Duration::from_millis(300), ..quick() };
        ConsoleConfig { reads_in_all: 1, timings, ..config }
    });
    let rig = rig.await;
    let mut open = rig.open().await;
    let id = open.admitted().await;
    rig.pick(id).await;
    for seq in 1..=64 {
        let chunk = vec![0; carlos_protocol::limits::CHUNK_BYTES];
        rig.write(&carlos_protocol::keys::Key::Chunk(id, seq), chunk).await;
    }
    rig.appears(&carlos_protocol::keys::Key::Cancel(id)).await;
    tokio::time::sleep(Duration::from_millis(500)).await;
    assert_eq!(rig.post(READS, read_body(SQL).to_string()).await.status(), 200);
    drop(open);
}
