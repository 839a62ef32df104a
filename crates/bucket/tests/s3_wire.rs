//! What an S3 client of ours puts on the wire, seen by a server that only writes it down.
#![allow(clippy::disallowed_methods, clippy::unwrap_used, clippy::panic)]

use std::sync::{Arc, Mutex};

use carlos_bucket::layer::Inner;
use carlos_bucket::{Bucket, Context, Outcome, Purpose, StoreClock, open_store_with};
use object_store::path::Path;
use object_store::{Error, ObjectStoreExt, PutMode, PutOptions};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

/// A server that answers every request alike.
#[derive(Clone)]
struct Recorder {
    url: String,
    seen: Arc<Mutex<Vec<String>>>,
    /// Set by the answers, where there is one.
    clock: Option<StoreClock>,
}

impl Recorder {
    async fn start(answer: &'static str) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let recorder = Self { url, seen: Arc::default(), clock: None };
        let served = recorder.clone();
        tokio::spawn(async move {
            loop {
                let (socket, _) = listener.accept().await.unwrap();
                tokio::spawn(served.clone().serve(socket, answer));
            }
        });
        recorder
    }

    async fn serve(self, mut socket: TcpStream, answer: &'static str) {
        let mut bytes = Vec::new();
        while let Ok(1..) = socket.read_buf(&mut bytes).await {
            let text = String::from_utf8_lossy(&bytes).into_owned();
            let Some((head, body)) = text.split_once("\r\n\r\n") else { continue };
            if body.len() < content_length(head) {
                continue;
            }
            self.seen.lock().unwrap().push(head.to_lowercase());
            bytes.clear();
            socket.write_all(answer.as_bytes()).await.unwrap();
        }
    }

    fn store(&self, url: &str, more: &[(&str, &str)]) -> Inner {
        let own = [
            ("CARLOS_S3_ENDPOINT", self.url.as_str()),
            ("AWS_ACCESS_KEY_ID", "id"),
            ("AWS_SECRET_ACCESS_KEY", "hush"),
        ];
        let all: Vec<_> = own.iter().chain(more).collect();
        let var = |name: &str| all.iter().find(|(key, _)| *key == name).map(|(_, v)| (*v).into());
        open_store_with(url, var, self.clock.as_ref()).unwrap()
    }

    /// The heads of all requests so far, in lower case.
    fn seen(&self) -> Vec<String> {
        self.seen.lock().unwrap().clone()
    }
}

fn content_length(head: &str) -> usize {
    let head = head.to_lowercase();
    let found = head.lines().find_map(|line| line.strip_prefix("content-length: "));
    found.map_or(0, |length| length.parse().unwrap())
}

const OK: &str = "HTTP/1.1 200 OK\r\nETag: \"1\"\r\nContent-Length: 0\r\n\r\n";
const FAILED: &str = "HTTP/1.1 500 Internal Server Error\r\nContent-Length: 0\r\n\r\n";
const TAKEN: &str = "HTTP/1.1 409 Conflict\r\nContent-Length: 0\r\n\r\n";
const SLOW: &str = "HTTP/1.1 503 Slow Down\r\nContent-Length: 0\r\n\r\n";

fn create() -> PutOptions {
    PutOptions { mode: PutMode::Create, ..PutOptions::default() }
}

#[tokio::test]
async fn a_create_is_one_conditional_put_of_the_key_in_the_path() {
    let recorder = Recorder::start(OK).await;
    let store = recorder.store("s3://bucket/prefix", &[]);
    let key = Path::from("db-reads/x/picked");
    store.put_opts(&key, "body".into(), create()).await.unwrap();
    let seen = recorder.seen();
    let [put] = seen.as_slice() else { panic!("{seen:?}") };
    assert!(put.starts_with("put /bucket/prefix/db-reads/x/picked http/1.1\r\n"), "{put}");
    assert!(put.contains("if-none-match: *") && !put.contains("if-match"), "{put}");
    assert!(put.contains("/us-east-1/s3/aws4_request"), "{put}");
}

/// Many servers refuse or mistake checksum headers (aws-sdk-rust#1240).
#[tokio::test]
async fn checksums_are_sent_where_they_are_asked_for() {
    for (asked, sent) in [(&[][..], false), (&[("CARLOS_S3_CHECKSUM", "1")][..], true)] {
        let recorder = Recorder::start(OK).await;
        let store = recorder.store("s3://bucket", asked);
        store.put(&Path::from("control/serial/uk"), "body".into()).await.unwrap();
        let seen = recorder.seen().concat();
        let checksum = seen.contains("x-amz-checksum") || seen.contains("x-amz-sdk-checksum");
        assert_eq!(checksum, sent, "{seen}");
    }
}

/// A landed create that the library sends again comes back as somebody else's.
#[tokio::test]
async fn nothing_is_sent_twice_behind_our_back() {
    for answer in [FAILED, TAKEN, SLOW] {
        let recorder = Recorder::start(answer).await;
        let store = recorder.store("s3://bucket", &[]);
        let key = Path::from("db-reads/x/picked");
        store.put_opts(&key, "body".into(), create()).await.unwrap_err();
        assert_eq!(recorder.seen().len(), 1, "{answer}");
        store.get(&key).await.unwrap_err();
        assert_eq!(recorder.seen().len(), 2, "{answer}");
    }
}

#[tokio::test]
async fn statuses_are_told_apart() {
    let key = Path::from("k");
    let taken = Recorder::start(TAKEN).await.store("s3://bucket", &[]);
    let taken = taken.put_opts(&key, "body".into(), create()).await;
    assert!(matches!(taken, Err(Error::AlreadyExists { .. })), "{taken:?}");
    let slow = Recorder::start(SLOW).await.store("s3://bucket", &[]);
    let bucket = Bucket::new(slow, Context::system());
    let throttled = bucket.create("probe/x/1", "x".into(), Purpose::Poll).await;
    let Outcome::Unknown(cause) = throttled else { panic!("{throttled:?}") };
    assert_eq!(cause.to_string(), "the store asked for fewer requests");
}

/// A refusal tells the time as well as a success does.
#[tokio::test]
async fn every_answer_sets_the_store_s_clock() {
    let context = Context::system();
    let mut recorder = Recorder::start(DATED).await;
    let clock = StoreClock::new(context.clone());
    recorder.clock = Some(clock.clone());
    let store = recorder.store("s3://bucket", &[]);
    assert_eq!(clock.ahead(), None);
    store.get(&Path::from("k")).await.unwrap_err();
    let ahead = clock.ahead().unwrap();
    assert!((ahead - (context.now_unix().cast_signed() - DATED_UNIX)).abs() < 60, "{ahead}");
}

const DATED: &str = "HTTP/1.1 403 Forbidden\r\nDate: Fri, 09 Oct 2026 08:00:00 GMT\r\n\
                     Content-Length: 0\r\n\r\n";
const DATED_UNIX: i64 = 1_791_532_800;

/// A silent server holds nobody longer than the purpose allows.
#[tokio::test]
async fn silence_ends_with_the_purpose() {
    let recorder = Recorder::start("").await;
    let bucket = Bucket::new(recorder.store("s3://bucket", &[]), Context::system());
    let begun = bucket.context().monotonic();
    let end = bucket.create("probe/x/1", "x".into(), Purpose::Poll).await;
    assert!(matches!(end, Outcome::Unknown(_)), "{end:?}");
    let took = bucket.context().monotonic() - begun;
    assert!(took < 3 * Purpose::Poll.allowed(), "{took:?}");
}
