//! A proxy between one process and the S3 server: it counts what that process asks for, and does to
//! requests and answers what networks and servers do to them.
//!
//! Requests pass unchanged, the `Host` header included, so their signatures hold.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use carlos_bucket::Context;
use http::header::{CONNECTION, ETAG, HeaderValue, TRANSFER_ENCODING};
use http::{Request, Response, StatusCode, Uri};
use http_body_util::{BodyExt as _, Full};
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::{TokioExecutor, TokioIo};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::oneshot;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

use crate::wire::{Asked, Kind};

type Answer = Response<Full<Bytes>>;

/// What happens to a request.
#[derive(Clone, Debug)]
pub enum Fault {
    /// The server does it, and the client is told this status.
    DoneBut(u16),
    /// The server does it, and the client's connection breaks.
    DoneAndReset,
    /// The server hears nothing, and the client is told this status.
    Refused(u16),
    /// The server hears nothing, and the client's connection breaks.
    Reset,
    /// The client is told at once that it is done; the server hears of it when this is cancelled.
    LandsLate(CancellationToken),
    /// The request waits up to this long before it goes on.
    Delayed(Duration),
}

/// Which requests a fault strikes.
#[derive(Clone, Debug)]
pub struct Rule {
    kind: Kind,
    part: String,
    fault: Fault,
    left: usize,
    odds: f64,
}

impl Rule {
    /// The next request of this kind whose key holds `part`.
    pub fn new(kind: Kind, part: &str, fault: Fault) -> Self {
        Self { kind, part: part.to_owned(), fault, left: 1, odds: 1.0 }
    }

    /// Every such request instead of one.
    pub fn always(self) -> Self {
        Self { left: usize::MAX, ..self }
    }

    /// Every such request, each with this probability.
    pub fn odds(self, odds: f64) -> Self {
        Self { odds, ..self.always() }
    }
}

/// On which side of the server's work a request is held.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Side {
    /// The server has not heard of it.
    Before,
    /// The server has answered, and the client does not know.
    After,
}

/// One request and what became of it.
#[derive(Clone, Debug)]
pub struct Seen {
    pub asked: Asked,
    /// The server's own answer, if it was asked and has answered.
    pub done: Option<u16>,
    /// What the client was told, if anything.
    pub told: Option<u16>,
}

/// One request held at the proxy. Dropping it lets the request go on.
pub struct Held {
    came: oneshot::Receiver<()>,
    go: CancellationToken,
}

impl Held {
    /// Waits until the request is there.
    pub async fn reached(&mut self) {
        (&mut self.came).await.expect("the proxy outlives its holds");
    }

    /// Lets the request go on.
    pub fn release(self) {}
}

impl Drop for Held {
    fn drop(&mut self) {
        self.go.cancel();
    }
}

struct Hold {
    side: Side,
    kind: Kind,
    part: String,
    came: oneshot::Sender<()>,
    go: CancellationToken,
}

/// A proxy that runs until it is dropped.
pub struct Proxy {
    /// What the process takes for the server.
    pub endpoint: String,
    shared: Arc<Shared>,
    task: JoinHandle<()>,
}

struct Shared {
    upstream: String,
    client: Client<HttpConnector, Full<Bytes>>,
    context: Context,
    rules: Mutex<Vec<Rule>>,
    holds: Mutex<Vec<Hold>>,
    seen: Mutex<Vec<Seen>>,
}

impl Proxy {
    /// A proxy on a free port of the loopback address, before the server at `upstream`.
    pub async fn before(upstream: &str) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let endpoint = format!("http://{}", listener.local_addr().unwrap());
        let mut connector = HttpConnector::new();
        connector.set_nodelay(true);
        let shared = Arc::new(Shared {
            upstream: upstream.to_owned(),
            client: Client::builder(TokioExecutor::new()).set_host(false).build(connector),
            context: Context::system(),
            rules: Mutex::default(),
            holds: Mutex::default(),
            seen: Mutex::default(),
        });
        let task = tokio::spawn(Arc::clone(&shared).accept(listener));
        Self { endpoint, shared, task }
    }

    /// Adds a rule. The first that strikes a request decides.
    pub fn add(&self, rule: Rule) {
        lock(&self.shared.rules).push(rule);
    }

    /// Takes every rule away.
    pub fn heal(&self) {
        lock(&self.shared.rules).clear();
    }

    /// Holds the next request of this kind whose key holds `part`.
    pub fn hold(&self, side: Side, kind: Kind, part: &str) -> Held {
        let (came, reached) = oneshot::channel();
        let go = CancellationToken::new();
        let part = part.to_owned();
        lock(&self.shared.holds).push(Hold { side, kind, part, came, go: go.clone() });
        Held { came: reached, go }
    }

    /// Every finished request so far whose key holds `part`.
    pub fn seen(&self, part: &str) -> Vec<Seen> {
        let seen = lock(&self.shared.seen);
        seen.iter().filter(|seen| seen.asked.key.contains(part)).cloned().collect()
    }

    /// How many of those were of this kind.
    pub fn count(&self, kind: Kind, part: &str) -> usize {
        self.seen(part).iter().filter(|seen| seen.asked.kind == kind).count()
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// The client's connection is to break.
#[derive(Debug, thiserror::Error)]
#[error("the connection breaks here")]
struct Break;

impl Shared {
    async fn accept(self: Arc<Self>, listener: TcpListener) {
        let mut connections = tokio::task::JoinSet::new();
        while let Ok((stream, _)) = listener.accept().await {
            connections.spawn(Arc::clone(&self).serve(stream));
            while connections.try_join_next().is_some() {}
        }
    }

    async fn serve(self: Arc<Self>, stream: TcpStream) {
        // What breaks here breaks with a reset; a healthy connection is closed by the client.
        let _ = stream.set_zero_linger();
        let _ = stream.set_nodelay(true);
        let service = service_fn(move |request| Arc::clone(&self).handle(request));
        let http = hyper::server::conn::http1::Builder::new();
        let _ = http.serve_connection(TokioIo::new(stream), service).await;
    }

    async fn handle(self: Arc<Self>, request: Request<Incoming>) -> Result<Answer, Break> {
        let (head, body) = request.into_parts();
        let body = body.collect().await.map_err(|_| Break)?.to_bytes();
        let request = Request::from_parts(head, Full::new(body.clone()));
        let asked = Asked::of(request.method(), request.uri(), request.headers(), &body);
        let place = self.note(&asked);
        self.wait_at(Side::Before, &asked).await;
        let answer = match self.struck(&asked) {
            Some(fault) => Arc::clone(&self).spoil(fault, place, request).await,
            None => self.forward(place, request).await,
        };
        self.wait_at(Side::After, &asked).await;
        if let Ok(answer) = &answer {
            lock(&self.seen)[place].told = Some(answer.status().as_u16());
        }
        answer
    }

    async fn spoil(
        self: Arc<Self>,
        fault: Fault,
        place: usize,
        request: Request<Full<Bytes>>,
    ) -> Result<Answer, Break> {
        match fault {
            Fault::Refused(status) => Ok(plain(status)),
            Fault::Reset => Err(Break),
            Fault::DoneBut(status) => self.forward(place, request).await.map(|_| plain(status)),
            Fault::DoneAndReset => self.forward(place, request).await.and(Err(Break)),
            Fault::LandsLate(when) => {
                tokio::spawn(async move {
                    when.cancelled().await;
                    self.forward(place, request).await.map(drop)
                });
                let mut answer = plain(200);
                // A put's answer without a tag is no answer.
                answer.headers_mut().insert(ETAG, HeaderValue::from_static("\"late\""));
                Ok(answer)
            }
            Fault::Delayed(most) => {
                self.context.sleep(self.context.jitter(most)).await;
                self.forward(place, request).await
            }
        }
    }

    async fn forward(
        &self,
        place: usize,
        mut request: Request<Full<Bytes>>,
    ) -> Result<Answer, Break> {
        let path = request.uri().path_and_query().map_or("/", |path| path.as_str());
        *request.uri_mut() = format!("{}{path}", self.upstream).parse::<Uri>().unwrap();
        let answer = self.client.request(request).await.map_err(|_| Break)?;
        let (mut head, body) = answer.into_parts();
        let body = body.collect().await.map_err(|_| Break)?.to_bytes();
        lock(&self.seen)[place].done = Some(head.status.as_u16());
        // What follows is whole and of a known length.
        head.headers.remove(TRANSFER_ENCODING);
        head.headers.remove(CONNECTION);
        Ok(Response::from_parts(head, Full::new(body)))
    }

    fn note(&self, asked: &Asked) -> usize {
        let mut seen = lock(&self.seen);
        seen.push(Seen { asked: asked.clone(), done: None, told: None });
        seen.len() - 1
    }

    fn struck(&self, asked: &Asked) -> Option<Fault> {
        let mut rules = lock(&self.rules);
        let fits = |rule: &&mut Rule| {
            let meant = rule.kind == asked.kind && asked.key.contains(&rule.part);
            meant && rule.left > 0 && (rule.odds >= 1.0 || self.context.chance(rule.odds))
        };
        let rule = rules.iter_mut().find(fits)?;
        rule.left -= 1;
        Some(rule.fault.clone())
    }

    async fn wait_at(&self, side: Side, asked: &Asked) {
        let hold = {
            let mut holds = lock(&self.holds);
            let fits = |hold: &Hold| {
                hold.side == side && hold.kind == asked.kind && asked.key.contains(&hold.part)
            };
            holds.iter().position(fits).map(|at| holds.remove(at))
        };
        if let Some(Hold { came, go, .. }) = hold {
            let _ = came.send(());
            go.cancelled().await;
        }
    }
}

fn lock<T>(shared: &Mutex<T>) -> MutexGuard<'_, T> {
    shared.lock().unwrap_or_else(PoisonError::into_inner)
}

fn plain(status: u16) -> Answer {
    let mut answer = Response::new(Full::default());
    *answer.status_mut() = StatusCode::from_u16(status).unwrap();
    answer
}

#[cfg(test)]
mod tests {
    use carlos_bucket::{Bucket, Cause, Outcome, Purpose, open_store_with};
    use object_store::path::Path;
    use object_store::{ObjectStore, PutMode};

    use super::*;
    use crate::toy::{Manner, Toy};

    const KEY: &str = "db-reads/x/picked";

    /// A store, and a client's view of it through a proxy.
    struct Line {
        proxy: Proxy,
        near: Arc<dyn ObjectStore>,
        far: Bucket,
        _toy: Toy,
    }

    impl Line {
        async fn new() -> Self {
            let _ = rustls::crypto::ring::default_provider().install_default();
            let toy = Toy::start(Manner::Honest).await;
            let proxy = Proxy::before(&toy.endpoint).await;
            let open = |endpoint: &str| {
                let vars = toy.environment().into_iter();
                let vars: std::collections::BTreeMap<_, _> =
                    vars.chain([("CARLOS_S3_ENDPOINT".into(), endpoint.into())]).collect();
                open_store_with("s3://toy", |name| vars.get(name).cloned(), None).unwrap()
            };
            let (near, far) = (open(&proxy.endpoint), open(&toy.endpoint));
            Self { near, far: Bucket::new(far, Context::system()), proxy, _toy: toy }
        }

        async fn create(&self) -> Result<(), String> {
            let key = Path::from(KEY);
            let created = self.near.put_opts(&key, "mine".into(), PutMode::Create.into());
            created.await.map(drop).map_err(|error| error.to_string())
        }

        async fn is_there(&self) -> bool {
            self.far.get(KEY, Purpose::Claim).await.unwrap().is_some()
        }

        fn seen(&self) -> (Option<u16>, Option<u16>) {
            let seen = self.proxy.seen(KEY).pop().unwrap();
            assert_eq!(seen.asked.kind, Kind::Create);
            (seen.done, seen.told)
        }
    }

    #[tokio::test]
    async fn what_is_lost_is_the_answer_or_the_request() {
        for (fault, there, seen) in [
            (Fault::DoneBut(500), true, (Some(200), Some(500))),
            (Fault::DoneAndReset, true, (Some(200), None)),
            (Fault::Refused(409), false, (None, Some(409))),
            (Fault::Reset, false, (None, None)),
        ] {
            let line = Line::new().await;
            line.proxy.add(Rule::new(Kind::Create, "/picked", fault.clone()));
            line.create().await.expect_err("it was told of no success");
            assert_eq!((line.is_there().await, line.seen()), (there, seen), "{fault:?}");
            // One rule, one request.
            assert_eq!(line.create().await.is_ok(), !there, "{fault:?}");
        }
    }

    #[tokio::test]
    async fn a_late_landing_is_told_as_done() {
        let line = Line::new().await;
        let land = CancellationToken::new();
        line.proxy.add(Rule::new(Kind::Create, "/picked", Fault::LandsLate(land.clone())));
        line.create().await.unwrap();
        assert!(!line.is_there().await);
        land.cancel();
        while !line.is_there().await {
            tokio::task::yield_now().await;
        }
    }

    #[tokio::test]
    async fn a_request_is_held_on_either_side_of_the_server() {
        for (side, there) in [(Side::Before, false), (Side::After, true)] {
            let line = Line::new().await;
            let mut held = line.proxy.hold(side, Kind::Create, "/picked");
            let checking = async {
                held.reached().await;
                assert_eq!(line.is_there().await, there, "{side:?}");
                held.release();
            };
            let (created, ()) = tokio::join!(line.create(), checking);
            created.unwrap();
            assert!(line.is_there().await);
        }
    }

    #[tokio::test]
    async fn nothing_is_changed_without_a_rule() {
        let line = Line::new().await;
        let near = Bucket::new(Arc::clone(&line.near), Context::system());
        assert_eq!(near.create(KEY, "mine".into(), Purpose::Claim).await, Outcome::Created);
        let again = near.create(KEY, "other".into(), Purpose::Claim).await;
        assert_eq!(again, Outcome::TakenBy("mine".into()));
        let listed = near.list("db-reads", None, Purpose::Claim).await.unwrap();
        assert_eq!(listed.len(), 1);
        line.proxy.add(Rule::new(Kind::Create, "", Fault::Refused(403)));
        let denied = near.create("probe/x/1", "x".into(), Purpose::Claim).await;
        assert!(matches!(denied, Outcome::Unknown(Cause::Denied(_))), "{denied:?}");
    }
}
