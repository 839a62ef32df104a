//! A real console on loopback over a real bucket, and a client that sees every line as it comes.
#![allow(dead_code, reason = "each test file uses its own part")]

use std::{net::SocketAddr, sync::Arc, time::Duration};

use bytes::{Bytes, BytesMut};
use carlos_bucket::{Bucket, Context, Pulse, Purpose};
use carlos_console::{ConsoleConfig, Timings, run};
use carlos_protocol::{
    api::ReadBody,
    envelope::{KeyFile, RootKeys, verify},
    ids::{Account, App, BootId, BoxName, Host, Nonce, ReadId, Region, Revision},
    keys::{self, Key},
    params::Params,
    picked::Picked,
    records::{
        self, AccountRecord, AppIndex, ChainEntry, DB_READ_CAPABILITY, Edges, HostRecord, Member,
        Status, TokenRecord,
    },
    request::ReadRequest,
    result::{Code, ReadResult, State},
    seal::ReplyKey,
    time::{At, Seconds},
    tokens::{Token, TokenKind},
};
use http_body_util::{BodyExt, Full};
use hyper::{
    HeaderMap, Method, Request, Response, StatusCode,
    body::{Body, Incoming},
    client::conn::http1,
};
use hyper_util::rt::TokioIo;
use object_store::{ObjectStore, memory::InMemory};
use serde::Serialize;
use serde_json::{Value, json};
use tokio::{
    net::{TcpListener, TcpStream},
    task::JoinHandle,
};
use tokio_util::sync::CancellationToken;

pub(crate) const EMAIL: &str = "ann@example.com";
pub(crate) const DOOR: &str = "/api/cli/apps/acme/shop/db/shop.example.com";
pub(crate) const READS: &str = "/api/cli/apps/acme/shop/db/shop.example.com/reads";
pub(crate) const SQL: &str = "SELECT count(*) FROM orders";

/// Everything a person waits for, in tenths of the specification's seconds.
pub(crate) fn quick() -> Timings {
    Timings {
        picked_poll: Duration::from_millis(20),
        output_poll: Duration::from_millis(40),
        wait_line: Duration::from_millis(300),
        pickup: Duration::from_secs(3),
        grace: Duration::from_secs(1),
        shutdown: Duration::from_secs(3),
        ..Timings::default()
    }
}

pub(crate) struct Rig {
    pub(crate) address: SocketAddr,
    pub(crate) bucket: Bucket,
    pub(crate) shutdown: CancellationToken,
    pub(crate) served: JoinHandle<()>,
    pub(crate) token: Token,
    pub(crate) roots: RootKeys,
}

/// A console that forwards, with one account, one app, one instance in `uk` and one box there.
pub(crate) async fn rig() -> Rig {
    configured(|config| config).await
}

pub(crate) async fn configured(change: impl FnOnce(ConsoleConfig) -> ConsoleConfig) -> Rig {
    rig_with(Arc::new(InMemory::new()), change).await
}

pub(crate) async fn rig_with(
    store: Arc<dyn ObjectStore>,
    change: impl FnOnce(ConsoleConfig) -> ConsoleConfig,
) -> Rig {
    let bucket = Bucket::new(store, Context::system());
    let key = KeyFile::generate_root(&mut bucket.context().entropy());
    let roots = RootKeys::from_iter([key.public()]);
    let config = ConsoleConfig::new(Region::parse("ie").unwrap()).forwarding(key);
    let config = change(ConsoleConfig { timings: quick(), ..config });
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let (address, shutdown) = (listener.local_addr().unwrap(), CancellationToken::new());
    let served = tokio::spawn(run(config, bucket.clone(), listener, shutdown.clone()));
    let account = Account::parse("acme").unwrap();
    let entropy = &mut bucket.context().entropy();
    let token = Token::generate(entropy, TokenKind::Person, &account);
    let rig = Rig { address, bucket, shutdown, served, token, roots };
    rig.account("acme", 1, vec![member(EMAIL, &[(&rig.token, None)])]).await;
    rig.instance(&record()).await;
    rig.a_box("box-uk", "uk", &[DB_READ_CAPABILITY], false).await;
    rig
}

pub(crate) fn member(email: &str, tokens: &[(&Token, Option<u64>)]) -> Member {
    let record = |(token, expires): &(&Token, Option<u64>)| TokenRecord {
        kind: token.kind(),
        sha256: token.hash(),
        expires: expires.map(Seconds::new),
    };
    Member { email: email.into(), tokens: tokens.iter().map(record).collect(), also: vec![] }
}

pub(crate) fn record() -> HostRecord {
    HostRecord {
        v: records::VERSION,
        host: Host::parse("shop.example.com").unwrap(),
        account: Account::parse("acme").unwrap(),
        app: App::parse("shop").unwrap(),
        class: "sleeping".parse().unwrap(),
        region: Region::parse("uk").unwrap(),
        created_at: "01ARZ3NDEKTSV4RRFFQ69G5FAV".parse().unwrap(),
        moving: None,
        pooled: false,
        fleet: false,
        deleted: false,
    }
}

pub(crate) fn rev(number: u64) -> Revision {
    Revision::new(number).unwrap()
}

pub(crate) fn read_body(sql: &str) -> Value {
    let key = ReplyKey::generate(&mut Context::system().entropy());
    let (params, at, reply_key) = (Params::default(), At::Newest, key.public());
    let body = ReadBody { op: "query".into(), sql: sql.into(), params, at, reply_key };
    serde_json::from_slice(&body.to_bytes()).unwrap()
}

impl Rig {
    pub(crate) async fn write(&self, key: &Key, body: impl Into<Bytes>) {
        let outcome = self.bucket.create(&key.to_path(), body.into(), Purpose::Claim).await;
        assert!(outcome.is_ours(), "{key}: {outcome:?}");
    }

    pub(crate) async fn revision(&self, key: &Key, record: &impl Serialize) {
        let nonce = Nonce::mint(&mut self.bucket.context().entropy());
        let content = records::encode(record);
        let entry = ChainEntry::wrap("operator".parse().unwrap(), nonce, &content).unwrap();
        self.write(key, entry.to_bytes()).await;
    }

    pub(crate) async fn account(&self, account: &str, revision: u64, members: Vec<Member>) {
        let account = Account::parse(account).unwrap();
        let key = Key::Account(account.clone(), rev(revision));
        self.revision(&key, &AccountRecord { v: records::VERSION, account, members }).await;
    }

    pub(crate) async fn instance(&self, record: &HostRecord) {
        let index = Key::App(record.account.clone(), record.app.clone(), record.host.clone());
        self.write(&index, records::encode(&AppIndex {})).await;
        self.revision(&Key::Host(record.host.clone(), rev(1)), record).await;
    }

    pub(crate) async fn a_box(
        &self,
        name: &str,
        region: &str,
        capabilities: &[&str],
        draining: bool,
    ) {
        self.edges(name, region, capabilities, draining).await;
        self.status(name, region, self.bucket.context().now_unix()).await;
    }

    pub(crate) async fn edges(
        &self,
        name: &str,
        region: &str,
        capabilities: &[&str],
        draining: bool,
    ) {
        let edges = Edges {
            v: records::VERSION,
            box_name: BoxName::parse(name).unwrap(),
            region: Region::parse(region).unwrap(),
            capabilities: capabilities.iter().map(|name| name.parse().unwrap()).collect(),
            draining,
        };
        let earlier = self.keys(&keys::edges_chain(&edges.box_name)).await.len() as u64;
        self.revision(&Key::Edges(edges.box_name.clone(), rev(earlier + 1)), &edges).await;
    }

    pub(crate) async fn status(&self, name: &str, region: &str, time_unix: u64) {
        self.status_of(name, region, time_unix, 1).await;
    }

    pub(crate) async fn status_of(&self, name: &str, region: &str, time_unix: u64, edges_rev: u64) {
        let status = Status {
            v: records::VERSION,
            box_name: BoxName::parse(name).unwrap(),
            time_unix,
            edges_rev,
            region: Region::parse(region).unwrap(),
            capabilities: vec![],
            draining: false,
        };
        let key = Key::Status(status.box_name.clone()).to_path();
        Pulse::new(self.bucket.clone(), key).beat(records::encode(&status).into()).await.unwrap();
    }

    pub(crate) async fn send<B>(&self, request: Request<B>) -> Response<Incoming>
    where
        B: Body<Data = Bytes, Error: std::error::Error + Send + Sync> + Send + 'static,
    {
        let stream = TcpStream::connect(self.address).await.unwrap();
        let (mut sender, connection) = http1::handshake(TokioIo::new(stream)).await.unwrap();
        tokio::spawn(connection);
        let answer = sender.send_request(request).await.unwrap();
        // The connection lives as long as the response body.
        drop(sender);
        answer
    }

    pub(crate) fn request(
        &self,
        method: Method,
        path: &str,
        token: Option<&str>,
    ) -> Request<Full<Bytes>> {
        let mut request = Request::builder().method(method).uri(path).header("host", "console");
        if let Some(token) = token {
            request = request.header("authorization", format!("Bearer {token}"));
        }
        request.body(Full::default()).unwrap()
    }

    pub(crate) async fn get_as(&self, path: &str, token: Option<&str>) -> Answer {
        Answer::of(self.send(self.request(Method::GET, path, token)).await).await
    }

    pub(crate) async fn get(&self, path: &str) -> Answer {
        self.get_as(path, Some(self.token.reveal())).await
    }

    pub(crate) async fn post(&self, path: &str, body: impl Into<Bytes>) -> Response<Incoming> {
        let request = self.request(Method::POST, path, Some(self.token.reveal()));
        self.send(request.map(|_| Full::new(body.into()))).await
    }

    pub(crate) async fn refused(&self, body: &Value) -> Answer {
        Answer::of(self.post(READS, body.to_string()).await).await
    }

    pub(crate) async fn open(&self) -> Open {
        self.open_with(&read_body(SQL)).await
    }

    pub(crate) async fn open_with(&self, body: &Value) -> Open {
        let answer = self.post(READS, body.to_string()).await;
        assert_eq!(answer.status(), StatusCode::OK);
        Open { headers: answer.headers().clone(), body: answer.into_body(), rest: BytesMut::new() }
    }

    /// Plays the box: owns the read.
    pub(crate) async fn pick(&self, id: ReadId) {
        let context = self.bucket.context();
        let picked = Picked {
            box_name: BoxName::parse("box-uk").unwrap(),
            boot: BootId::parse("boot").unwrap(),
            nonce: Nonce::mint(&mut context.entropy()),
            deadline: Seconds::new(context.now_unix() + 1_200),
        };
        self.write(&Key::Picked(id), picked.to_bytes()).await;
    }

    pub(crate) async fn finish(&self, id: ReadId, last_seq: u64) {
        self.write(&Key::Result(id), result(last_seq).to_bytes()).await;
    }

    pub(crate) async fn object(&self, key: &Key) -> Option<Bytes> {
        self.bucket.get(&key.to_path(), Purpose::Claim).await.unwrap()
    }

    pub(crate) async fn signed(&self, id: ReadId) -> ReadRequest {
        let envelope = self.object(&Key::Request(id)).await.expect("the request is there");
        verify(&self.roots, &envelope).expect("the root key signed it")
    }

    pub(crate) async fn keys(&self, prefix: &str) -> Vec<String> {
        let listed = self.bucket.list(prefix, None, Purpose::Claim).await.unwrap();
        listed.into_iter().map(|listed| listed.key).collect()
    }

    /// Waits until `key` is there: what the console does after a request has no answer to wait for.
    pub(crate) async fn appears(&self, key: &Key) {
        for _ in 0..200 {
            if self.object(key).await.is_some() {
                return;
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        panic!("{key} never came");
    }
}

pub(crate) fn result(last_seq: u64) -> ReadResult {
    ReadResult {
        state: State::Done,
        code: Code::None,
        box_name: BoxName::parse("box-uk").unwrap(),
        last_seq,
        started: Seconds::new(1_792_659_600),
        ended: Seconds::new(1_792_659_601),
        sealed: b"sealed".to_vec(),
    }
}

#[derive(Debug)]
pub(crate) struct Answer {
    pub(crate) status: StatusCode,
    pub(crate) headers: HeaderMap,
    pub(crate) body: Bytes,
}

impl Answer {
    pub(crate) async fn of(answer: Response<Incoming>) -> Self {
        let (head, body) = answer.into_parts();
        let body = body.collect().await.unwrap().to_bytes();
        Self { status: head.status, headers: head.headers, body }
    }

    pub(crate) fn json(&self) -> Value {
        serde_json::from_slice(&self.body).unwrap_or(json!(null))
    }

    pub(crate) fn code(&self) -> String {
        self.json()["code"].as_str().unwrap_or_default().to_owned()
    }

    /// Everything but the date: what two answers that must not differ are compared by.
    pub(crate) fn shape(&self) -> (StatusCode, Vec<(String, String)>, Bytes) {
        let headers = self.headers.iter().filter(|(name, _)| *name != "date");
        let headers = headers.map(|(name, value)| (name.to_string(), format!("{value:?}")));
        (self.status, headers.collect(), self.body.clone())
    }
}

/// An open read, as its client sees it.
pub(crate) struct Open {
    pub(crate) headers: HeaderMap,
    pub(crate) body: Incoming,
    rest: BytesMut,
}

/// How a response ended for its reader.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum End {
    Broken,
    Whole,
}

impl Open {
    pub(crate) async fn line(&mut self) -> Result<Value, End> {
        loop {
            if let Some(end) = self.rest.iter().position(|byte| *byte == b'\n') {
                let line = self.rest.split_to(end + 1);
                return Ok(serde_json::from_slice(&line).unwrap());
            }
            match self.body.frame().await {
                Some(Ok(frame)) => self.rest.extend_from_slice(&frame.into_data().unwrap()),
                Some(Err(_)) => return Err(End::Broken),
                None => return Err(End::Whole),
            }
        }
    }

    pub(crate) async fn news(&mut self) -> Result<Value, End> {
        loop {
            let line = self.line().await?;
            if line.get("wait").is_none() {
                return Ok(line);
            }
        }
    }

    pub(crate) async fn admitted(&mut self) -> ReadId {
        let line = self.line().await.unwrap();
        ReadId::parse(line["admitted"].as_str().unwrap()).unwrap()
    }

    pub(crate) async fn end(mut self) -> End {
        loop {
            if let Err(end) = self.line().await {
                return end;
            }
        }
    }
}
