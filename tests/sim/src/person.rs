//! A person's read: the requests, and the checks, of the CLI.

use std::future::pending;
use std::sync::Arc;
use std::time::Duration;

use axum::body::Body;
use axum::http::{Request, Response, StatusCode, header};
use carlos_cli::client::{Answer, Lines, LinesError, Place};
use carlos_protocol::api::{self, ErrorBody, ReadBody};
use carlos_protocol::copy;
use carlos_protocol::ids::Region;
use carlos_protocol::limits::{CLIENT_TIME, PICKUP_WINDOW};
use carlos_protocol::lines::Line;
use carlos_protocol::params::Params;
use carlos_protocol::request::OP_QUERY;
use carlos_protocol::result::{ReadResult, State};
use carlos_protocol::seal::ReplyKey;
use carlos_protocol::time::At;
use http_body_util::BodyExt as _;
use tokio_util::sync::CancellationToken;

use crate::console::{Desk, Refused};
use crate::log::{Event, ReadStep};
use crate::rows::Statement;
use crate::world::World;

/// How a person behaves.
#[derive(Clone, Debug, Default)]
pub struct Manner {
    /// Presses Ctrl-C after this long.
    pub leaves_after: Option<Duration>,
    /// Stops reading for this long before each line.
    pub dawdles: Duration,
}

/// What a person sees in the end.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Seen {
    /// Rows that checked out.
    Rows(Vec<u8>),
    /// The sentence with this id, and nothing on stdout.
    Sentence(String),
    /// They had left.
    Left,
    /// What nobody may ever see.
    Wrong(String),
}

impl Seen {
    fn sentence(id: impl Into<String>) -> Self {
        Self::Sentence(id.into())
    }

    /// A short name for logs and tallies.
    pub fn name(&self) -> &str {
        match self {
            Self::Rows(_) => "rows",
            Self::Sentence(id) => id,
            Self::Left => "left",
            Self::Wrong(what) => what,
        }
    }
}

/// Who reads what.
#[derive(Clone, Debug)]
pub(crate) struct Ask {
    pub(crate) person: usize,
    pub(crate) statement: Statement,
    pub(crate) manner: Manner,
}

impl World {
    /// One read from its first request to what its person sees.
    pub async fn read(
        self: &Arc<Self>,
        desk: &Desk,
        person: usize,
        statement: Statement,
        manner: Manner,
    ) -> Seen {
        let ask = Ask { person, statement, manner };
        let number = ask.statement.number;
        self.log.add("person", Event::Read(number, ReadStep::Asked(person)));
        let seen = {
            let reading = Reading { world: self, desk, ask: &ask };
            tokio::select! {
                biased;
                () = leaving(self, ask.manner.leaves_after) => Seen::Left,
                seen = self.ctx.timeout(CLIENT_TIME, reading.run()) => {
                    seen.unwrap_or_else(|_| out_of_time(desk, &ask.manner))
                }
            }
        };
        self.log.add("person", Event::Read(number, ReadStep::Ended(seen.name().to_owned())));
        seen
    }
}

/// The client's own bound passed (db-forward §5.2), which a console that works never lets happen.
/// Whoever dawdles is behind by the lines that the response holds, and so sees its end later.
fn out_of_time(desk: &Desk, manner: &Manner) -> Seen {
    match desk.has_stalled() || !manner.dawdles.is_zero() {
        true => Seen::sentence("DBF-12"),
        false => Seen::Wrong("a read beyond the client's own time".into()),
    }
}

async fn leaving(world: &World, after: Option<Duration>) {
    match after {
        Some(after) => world.ctx.sleep(after).await,
        None => pending().await,
    }
}

struct Reading<'a> {
    world: &'a World,
    desk: &'a Desk,
    ask: &'a Ask,
}

impl Reading<'_> {
    async fn run(&self) -> Seen {
        self.open().await.unwrap_or_else(|seen| seen)
    }

    async fn open(&self) -> Result<Seen, Seen> {
        let Place { account, app, host } = &self.world.place;
        let door = self.request("GET", &api::db_path(account, app, host), Vec::new());
        let (door, _) = self.desk.send(door).await.map_err(|Refused| unreachable())?;
        let region = self.forwarded(door).await?;
        let node = self.world.ctx.node(&format!("reply key {}", self.ask.statement.number));
        let key = ReplyKey::generate(&mut node.entropy());
        let body = ReadBody {
            op: OP_QUERY.to_owned(),
            sql: self.ask.statement.sql(),
            params: Params::default(),
            at: At::Newest,
            reply_key: key.public(),
        };
        let post = self.request("POST", &api::reads_path(account, app, host), body.to_bytes());
        let opened = self.desk.send(post).await;
        let (response, down) = opened.map_err(|Refused| self.unfinished(&region))?;
        if response.status() != StatusCode::OK {
            return Err(refusal(response).await);
        }
        self.receive(response, down, &key, &region).await
    }

    fn request(&self, method: &str, path: &str, body: Vec<u8>) -> Request<Body> {
        let token = self.world.tokens[self.ask.person].reveal();
        let request = Request::builder().method(method).uri(path);
        let request = request.header(header::AUTHORIZATION, format!("Bearer {token}"));
        request.body(Body::from(body)).expect("a well-formed request")
    }

    /// The list door's forward marker (db-forward §5.5 step 1).
    async fn forwarded(&self, door: Response<Body>) -> Result<Region, Seen> {
        let bytes = door.into_body().collect().await.map_err(|_| unreachable())?.to_bytes();
        let body = ErrorBody::from_bytes(&bytes).map_err(|_| wrong("an answer that is none"))?;
        match body.forwards(OP_QUERY) {
            Some(region) => Ok(region.clone()),
            None => Err(Seen::sentence(body.code.unwrap_or_else(|| "DBL-1".to_owned()))),
        }
    }

    async fn receive(
        &self,
        response: Response<Body>,
        down: CancellationToken,
        key: &ReplyKey,
        region: &Region,
    ) -> Result<Seen, Seen> {
        let opened = self.world.ctx.monotonic();
        let mut lines = Lines::new(response.into_body().into_data_stream());
        let (mut answer, mut chunks) = (Answer::default(), 0);
        loop {
            self.world.ctx.sleep(self.ask.manner.dawdles).await;
            let next = tokio::select! {
                biased;
                () = down.cancelled() => return Err(self.unfinished(region)),
                next = lines.next() => next,
            };
            let line = match next {
                Ok(Some(line)) => line,
                Ok(None) | Err(LinesError::Cut) => {
                    let waited = self.world.ctx.monotonic() - opened;
                    return Err(self.ended(&answer, waited, region));
                }
                Err(LinesError::Garbage) => return Err(wrong("a line that is none")),
            };
            self.note(&line);
            chunks += u64::from(matches!(line, Line::Chunk { .. }));
            let result = answer.take(line).map_err(|error| wrong(&error.to_string()))?;
            if let Some(result) = result {
                return self.conclude(answer, chunks, key, &result, region);
            }
        }
    }

    fn note(&self, line: &Line) {
        let text = match line {
            Line::Admitted(id) => format!("admitted {id}"),
            Line::Picked(name) => format!("picked {name}"),
            Line::Chunk { seq, data } => format!("chunk {seq} of {} bytes", data.len()),
            Line::Wait(phase) => format!("wait {phase:?}"),
            Line::Result(result) => format!("result {:?} {}", result.state, result.code),
        };
        let step = ReadStep::Line(text);
        self.world.log.add("person", Event::Read(self.ask.statement.number, step));
    }

    /// db-forward §5.5 step 8.
    fn conclude(
        &self,
        answer: Answer,
        chunks: u64,
        key: &ReplyKey,
        result: &ReadResult,
        region: &Region,
    ) -> Result<Seen, Seen> {
        // A box that fails names the chunks it could confirm; more of them may have landed.
        if chunks < result.last_seq {
            return Err(wrong("a result line that came before its chunks"));
        }
        let failed = |error| wrong(&format!("an answer that does not check out: {error}"));
        if result.state == State::Done {
            let verified = answer.verify(key, result).map_err(failed)?;
            return Ok(Seen::Rows(verified.rows));
        }
        let summary = answer.summary(key, result).map_err(failed)?;
        let host = &self.world.place.host;
        let message = copy::of_result(result, Some(&summary), host, region);
        Ok(message.map_or_else(|| self.unfinished(region), |message| Seen::sentence(message.id())))
    }

    fn ended(&self, answer: &Answer, waited: Duration, region: &Region) -> Seen {
        if !answer.is_picked() && waited >= PICKUP_WINDOW {
            return Seen::sentence(copy::not_picked(region).id());
        }
        self.unfinished(region)
    }

    fn unfinished(&self, region: &Region) -> Seen {
        Seen::sentence(copy::unfinished(&self.world.place.host, region).id())
    }
}

async fn refusal(response: Response<Body>) -> Seen {
    let Ok(body) = response.into_body().collect().await else { return unreachable() };
    match ErrorBody::from_bytes(&body.to_bytes()) {
        Ok(body) => Seen::sentence(body.code.unwrap_or_else(|| "DBL-1".to_owned())),
        Err(_) => wrong("an answer that is none"),
    }
}

/// Nobody took the connection.
fn unreachable() -> Seen {
    Seen::sentence(copy::no_console("the console").id())
}

fn wrong(what: &str) -> Seen {
    Seen::Wrong(what.to_owned())
}
