//! Stores that lie, over HTTP: an S3 server of a few requests whose put-if-absent is, in one way or
//! another, none. Each is a way in which a product was seen to fail.

use std::collections::BTreeMap;
use std::convert::Infallible;
use std::fmt::Write as _;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use bytes::Bytes;
use carlos_bucket::Context;
use http::header::{ETAG, IF_NONE_MATCH, LAST_MODIFIED};
use http::{Request, Response, StatusCode};
use http_body_util::{BodyExt as _, Full};
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use tokio::net::{TcpListener, TcpStream};
use tokio::task::{JoinHandle, JoinSet};

use crate::wire::{Asked, Kind};

/// The time of everything: nothing here depends on it.
const DATE: &str = "Fri, 09 Oct 2026 08:00:00 GMT";
const LISTED_DATE: &str = "2026-10-09T08:00:00.000Z";

/// How the store treats put-if-absent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Manner {
    /// It keeps it, which shows that the rest of this server will do.
    Honest,
    /// Looks first and writes this much later.
    ChecksThenActs(Duration),
    /// Accepts the header and replaces.
    IgnoresCondition,
    /// Answers 412 for a name that is free.
    RefusesFreeNames,
}

/// A server that runs until it is dropped.
pub struct Toy {
    pub endpoint: String,
    task: JoinHandle<()>,
}

impl Toy {
    /// A server on a free port of the loopback address. It takes any keys and any bucket.
    pub async fn start(manner: Manner) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let endpoint = format!("http://{}", listener.local_addr().unwrap());
        let (context, objects) = (Context::system(), Mutex::default());
        let store = Arc::new(Store { manner, context, objects, tags: AtomicU64::new(0) });
        let task = tokio::spawn(store.accept(listener));
        Self { endpoint, task }
    }

    /// The variables under which programs take it for their server.
    pub fn environment(&self) -> Vec<(String, String)> {
        let pairs = [
            ("CARLOS_BUCKET", "s3://toy"),
            ("CARLOS_S3_ENDPOINT", &self.endpoint),
            ("CARLOS_S3_REGION", "us-east-1"),
            ("AWS_ACCESS_KEY_ID", "anybody"),
            ("AWS_SECRET_ACCESS_KEY", "anything"),
        ];
        pairs.map(|(name, value)| (name.to_owned(), value.to_owned())).to_vec()
    }
}

impl Drop for Toy {
    fn drop(&mut self) {
        self.task.abort();
    }
}

struct Store {
    manner: Manner,
    context: Context,
    objects: Mutex<BTreeMap<String, Object>>,
    tags: AtomicU64,
}

#[derive(Clone)]
struct Object {
    tag: String,
    body: Bytes,
}

type Answer = Response<Full<Bytes>>;

impl Store {
    async fn accept(self: Arc<Self>, listener: TcpListener) {
        let mut connections = JoinSet::new();
        while let Ok((stream, _)) = listener.accept().await {
            connections.spawn(Arc::clone(&self).serve(stream));
            while connections.try_join_next().is_some() {}
        }
    }

    async fn serve(self: Arc<Self>, stream: TcpStream) {
        let service = service_fn(move |request| {
            let store = Arc::clone(&self);
            async move { Ok::<_, Infallible>(store.handle(request).await) }
        });
        let http = hyper::server::conn::http1::Builder::new();
        let _ = http.serve_connection(TokioIo::new(stream), service).await;
    }

    async fn handle(&self, request: Request<Incoming>) -> Answer {
        let (head, body) = request.into_parts();
        let Ok(body) = body.collect().await else { return answer(400) };
        let body = body.to_bytes();
        let asked = Asked::of(&head.method, &head.uri, &head.headers, &body);
        match asked.kind {
            Kind::Create => self.create(asked.key, body).await,
            Kind::Replace => self.put(asked.key, body),
            Kind::Get => {
                let unless = head.headers.get(IF_NONE_MATCH).and_then(|tag| tag.to_str().ok());
                self.get(&asked.key, unless)
            }
            Kind::List => self.list(&asked),
            Kind::Delete => answer(405),
        }
    }

    async fn create(&self, key: String, body: Bytes) -> Answer {
        match self.manner {
            Manner::Honest => self.put_if_free(key, body),
            Manner::IgnoresCondition => self.put(key, body),
            Manner::RefusesFreeNames => answer(412),
            Manner::ChecksThenActs(window) => {
                if self.objects.lock().unwrap().contains_key(&key) {
                    return answer(412);
                }
                self.context.sleep(window).await;
                self.put(key, body)
            }
        }
    }

    fn put_if_free(&self, key: String, body: Bytes) -> Answer {
        let object = self.object(body);
        let mut objects = self.objects.lock().unwrap();
        if objects.contains_key(&key) {
            return answer(412);
        }
        tagged(200, &objects.entry(key).or_insert(object).tag)
    }

    fn put(&self, key: String, body: Bytes) -> Answer {
        let object = self.object(body);
        let done = tagged(200, &object.tag);
        self.objects.lock().unwrap().insert(key, object);
        done
    }

    fn object(&self, body: Bytes) -> Object {
        let tag = format!("\"{}\"", self.tags.fetch_add(1, Ordering::Relaxed));
        Object { tag, body }
    }

    fn get(&self, key: &str, unless: Option<&str>) -> Answer {
        let Some(object) = self.objects.lock().unwrap().get(key).cloned() else {
            return with_body(answer(404), "<Error><Code>NoSuchKey</Code></Error>");
        };
        if unless == Some(&object.tag) {
            return answer(304);
        }
        with_body(tagged(200, &object.tag), object.body)
    }

    fn list(&self, asked: &Asked) -> Answer {
        let objects = self.objects.lock().unwrap();
        let listed = objects.iter().filter(|(key, _)| key.starts_with(&asked.key));
        let mut text = String::from("<ListBucketResult><IsTruncated>false</IsTruncated>");
        for (key, object) in listed.filter(|(key, _)| **key > asked.after) {
            let (tag, size) = (&object.tag, object.body.len());
            let _ = write!(
                text,
                "<Contents><Key>{key}</Key><LastModified>{LISTED_DATE}</LastModified>\
                 <ETag>{tag}</ETag><Size>{size}</Size></Contents>"
            );
        }
        with_body(answer(200), text + "</ListBucketResult>")
    }
}

fn answer(status: u16) -> Answer {
    let mut answer = Response::new(Full::default());
    *answer.status_mut() = StatusCode::from_u16(status).unwrap();
    answer.headers_mut().insert(LAST_MODIFIED, DATE.parse().unwrap());
    answer
}

fn tagged(status: u16, tag: &str) -> Answer {
    let mut answer = answer(status);
    answer.headers_mut().insert(ETAG, tag.parse().unwrap());
    answer
}

fn with_body(answer: Answer, body: impl Into<Bytes>) -> Answer {
    answer.map(|_| Full::new(body.into()))
}
