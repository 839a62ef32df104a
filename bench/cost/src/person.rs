//! A person's read, as the CLI asks it: the list door, then the read itself.

use std::time::Duration;

use axum::body::Body;
use axum::http::{Request, Response, StatusCode, header};
use carlos_cli::client::{Answer, Lines, Place};
use carlos_protocol::api::{self, ReadBody};
use carlos_protocol::ids::ReadId;
use carlos_protocol::lines::Line;
use carlos_protocol::params::Params;
use carlos_protocol::request::OP_QUERY;
use carlos_protocol::seal::ReplyKey;
use carlos_protocol::time::At;
use tower::ServiceExt as _;

use crate::deployment::Deployment;

/// What a person saw of one read, on the monotonic clock.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Seen {
    pub(crate) id: ReadId,
    /// When they pressed return.
    pub(crate) asked: Duration,
    /// When the first sealed rows were there.
    pub(crate) first_row: Duration,
    /// When all of them were there and had checked out.
    pub(crate) answered: Duration,
}

/// One read from its first request to its rows. `None` when it had no answer.
pub(crate) async fn read(all: &Deployment, region: usize, number: usize) -> Option<Seen> {
    let Place { account, app, host } = all.place(region);
    let token = all.tokens[number % all.tokens.len()].reveal();
    let send = |method: &str, path: String, body: Vec<u8>| {
        let request = Request::builder().method(method).uri(path);
        let request = request.header(header::AUTHORIZATION, format!("Bearer {token}"));
        all.console.clone().oneshot(request.body(Body::from(body)).expect("a good request"))
    };
    let asked = all.ctx.monotonic();
    let Ok(_door) = send("GET", api::db_path(&account, &app, &host), Vec::new()).await;
    let key = ReplyKey::generate(&mut all.ctx.node(&format!("key {number}")).entropy());
    let body = ReadBody {
        op: OP_QUERY.to_owned(),
        sql: "SELECT id, item, price FROM orders".to_owned(),
        params: Params::default(),
        at: At::Newest,
        reply_key: key.public(),
    };
    let Ok(opened) = send("POST", api::reads_path(&account, &app, &host), body.to_bytes()).await;
    if opened.status() != StatusCode::OK {
        return None;
    }
    receive(all, asked, opened, &key).await
}

async fn receive(
    all: &Deployment,
    asked: Duration,
    opened: Response<Body>,
    key: &ReplyKey,
) -> Option<Seen> {
    let mut lines = Lines::new(opened.into_body().into_data_stream());
    let (mut answer, mut id, mut first_row) = (Answer::default(), None, None);
    while let Ok(Some(line)) = lines.next().await {
        match &line {
            Line::Admitted(admitted) => id = Some(*admitted),
            Line::Chunk { seq: 1, .. } => first_row = Some(all.ctx.monotonic()),
            _ => {}
        }
        let Some(result) = answer.take(line).ok()? else { continue };
        answer.verify(key, &result).ok()?;
        let answered = all.ctx.monotonic();
        return Some(Seen { id: id?, asked, first_row: first_row?, answered });
    }
    None
}
