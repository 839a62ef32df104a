//! The client's half of the console's HTTP interface.

mod answer;
mod lines;
mod origin;

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use carlos_bucket::Context;
use carlos_protocol::api::{self, ErrorBody, ReadBody};
use carlos_protocol::copy;
use carlos_protocol::ids::{Account, App, Host, Region};
use carlos_protocol::lines::CONTENT_TYPE;
use futures::StreamExt as _;
use reqwest::{Method, RequestBuilder, Response, StatusCode};
use serde::de::DeserializeOwned;

pub use self::answer::{Answer, AnswerError, Verified};
pub use self::lines::{Lines, LinesError};
pub use self::origin::{Origin, Token};
use crate::config::Login;
use crate::exit::Exit;
use crate::failure::Failure;

/// Which instance of which app a request is about.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Place {
    pub account: Account,
    pub app: App,
    pub host: Host,
}

/// Talks to one console.
pub struct Client {
    http: reqwest::Client,
    login: Login,
    context: Context,
}

impl Client {
    /// Prepares connections; nothing is sent yet.
    ///
    /// # Errors
    /// When the system's certificates cannot be read.
    pub fn new(login: Login, context: Context) -> Result<Self, Failure> {
        // A second client in one process finds the provider installed, which is just as well.
        let _ = rustls::crypto::ring::default_provider().install_default();
        let mut builder = reqwest::Client::builder()
            .user_agent(concat!("carlos/", env!("CARGO_PKG_VERSION")))
            .redirect(reqwest::redirect::Policy::none())
            // A read is one request (db-forward §5.2): sending it again would be a second read.
            .retry(reqwest::retry::never())
            .connect_timeout(CONNECT_TIME)
            .tcp_keepalive(KEEPALIVE)
            // Whatever a resolver says, this name is this machine, or the token would leave it.
            .resolve_to_addrs("localhost", &LOCALHOST);
        if login.origin.is_plain() {
            // No proxy may see a token in clear text, and a bare machine needs no certificates.
            builder = builder.no_proxy().tls_certs_only([]);
        }
        let http = builder.build().map_err(|error| {
            Failure::unexpected("could not prepare a connection.").because(causes(&error))
        })?;
        Ok(Self { http, login, context })
    }

    /// The apps this person can read.
    pub async fn apps(&self) -> Result<api::Apps, Failure> {
        self.get_json(api::APPS_PATH).await
    }

    /// The instances of an app.
    pub async fn instances(&self, account: &Account, app: &App) -> Result<api::Instances, Failure> {
        self.get_json(&api::instances_path(account, app)).await
    }

    /// Asks the list door where this instance's `op` is to be forwarded (db-forward §5.5 step 1).
    ///
    /// # Errors
    /// Every answer without a forward marker for `op`, as its own sentence.
    pub async fn list_door(&self, place: &Place, op: &str) -> Result<Region, Failure> {
        let Place { account, app, host } = place;
        let answer = self.get(&api::db_path(account, app, host)).await?;
        if answer.status == StatusCode::CONFLICT
            && let Ok(body) = ErrorBody::from_bytes(&answer.body)
            && let Some(region) = body.forwards(op)
        {
            return Ok(region.clone());
        }
        Err(answer.refusal(&self.login.origin))
    }

    /// Sends the one request of a read (db-forward §5.5 step 2) and hands back the response whose
    /// body is the read.
    ///
    /// # Errors
    /// [`OpenError::Refused`] when the console said no, [`OpenError::Lost`] when it was asked and
    /// the connection broke before it said anything.
    pub async fn open_read(&self, place: &Place, body: &ReadBody) -> Result<Response, OpenError> {
        let Place { account, app, host } = place;
        let path = api::reads_path(account, app, host);
        let request = self
            .request(Method::POST, &path)
            .header("Content-Type", "application/json")
            .header("Accept", CONTENT_TYPE)
            .body(body.to_bytes());
        let response = request.send().await.map_err(|error| match error.is_connect() {
            true => OpenError::Refused(self.unreachable(&error)),
            false => OpenError::Lost,
        })?;
        if response.status() == StatusCode::OK {
            return Ok(response);
        }
        let answer = Answered::read(response).await.map_err(|()| OpenError::Lost)?;
        Err(OpenError::Refused(answer.refusal(&self.login.origin)))
    }

    async fn get_json<T: DeserializeOwned>(&self, path: &str) -> Result<T, Failure> {
        let answer = self.get(path).await?;
        if answer.status != StatusCode::OK {
            return Err(answer.refusal(&self.login.origin));
        }
        serde_json::from_slice(&answer.body).map_err(|_| answer.nonsense(&self.login.origin))
    }

    async fn get(&self, path: &str) -> Result<Answered, Failure> {
        let origin = &self.login.origin;
        let exchange = async {
            let request = self.request(Method::GET, path).header("Accept", "application/json");
            let response = request.send().await.map_err(|error| self.unreachable(&error))?;
            Answered::read(response).await.map_err(|()| copy::not_a_console(origin).into())
        };
        match self.context.timeout(ORDINARY_TIME, exchange).await {
            Ok(answer) => answer,
            Err(elapsed) => Err(Failure::from(copy::no_console(origin)).because(elapsed)),
        }
    }

    fn request(&self, method: Method, path: &str) -> RequestBuilder {
        self.http.request(method, self.login.origin.at(path)).bearer_auth(self.login.token.expose())
    }

    fn unreachable(&self, error: &reqwest::Error) -> Failure {
        Failure::from(copy::no_console(&self.login.origin)).because(causes(error))
    }
}

/// Why no read was opened.
#[derive(Debug)]
pub enum OpenError {
    Refused(Failure),
    Lost,
}

/// A whole answer of bounded size.
struct Answered {
    status: StatusCode,
    body: Bytes,
}

impl Answered {
    async fn read(response: Response) -> Result<Self, ()> {
        let status = response.status();
        let mut pieces = response.bytes_stream();
        let mut body = BytesMut::new();
        while let Some(piece) = pieces.next().await {
            body.extend_from_slice(&piece.map_err(|_| ())?);
            if body.len() > api::ANSWER_BYTES {
                return Err(());
            }
        }
        Ok(Self { status, body: body.freeze() })
    }

    /// The failure this answer means: the console's own sentence, or what its status says.
    fn refusal(&self, origin: &Origin) -> Failure {
        let Ok(refusal) = ErrorBody::from_bytes(&self.body) else {
            return self.nonsense(origin);
        };
        let row = refusal.code.as_deref().and_then(copy::by_id);
        Failure {
            exit: row.and_then(|row| row.exit).unwrap_or_else(|| by_status(self.status)),
            id: row.map(|row| row.id.to_owned()),
            sentence: refusal.error,
            cause: None,
        }
    }

    fn nonsense(&self, origin: &Origin) -> Failure {
        let status = self.status;
        if status.is_redirection() {
            return Failure::unexpected(format!(
                "{origin} points to another address. log in to that one.",
            ));
        }
        let failure = Failure::from(copy::not_a_console(origin)).because(status);
        Failure { exit: by_status(status), ..failure }
    }
}

/// The exit for an answer whose code, if any, is not in the copy table: the residency sentence has
/// none, because it is byte for byte what an older console says (db-forward §9.2).
fn by_status(status: StatusCode) -> Exit {
    match status {
        StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN | StatusCode::NOT_FOUND => Exit::NotFound,
        StatusCode::CONFLICT => Exit::NoServer,
        StatusCode::TOO_MANY_REQUESTS => Exit::Busy,
        _ => Exit::Unexpected,
    }
}

/// An error with what caused it. reqwest's own text repeats the address, so it is left out.
fn causes(error: &reqwest::Error) -> String {
    let mut causes = Vec::new();
    let mut next = std::error::Error::source(error);
    while let Some(cause) = next {
        causes.push(cause.to_string());
        next = cause.source();
    }
    if causes.is_empty() { "unknown cause".to_owned() } else { causes.join(": ") }
}

const LOCALHOST: [SocketAddr; 2] = [
    SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), 0),
    SocketAddr::new(IpAddr::V6(Ipv6Addr::LOCALHOST), 0),
];

/// A console that takes longer to accept a connection is not there.
const CONNECT_TIME: Duration = Duration::from_secs(10);

/// Finds a peer that vanished without a word; the console's own lines come every 15 s.
const KEEPALIVE: Duration = Duration::from_secs(15);

/// For everything but a read: these answer from a few objects.
const ORDINARY_TIME: Duration = Duration::from_secs(30);
