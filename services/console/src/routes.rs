//! The routes: what each asks, in which order, and what it answers.

use std::{sync::Arc, time::Duration};

use axum::{
    Json, Router,
    body::Body,
    extract::{Path, Request, State, rejection::PathRejection},
    http::{HeaderMap, HeaderName, HeaderValue, header},
    middleware::map_response_with_state,
    response::{IntoResponse, Response},
    routing::{get, post},
};
use carlos_bucket::Context;
use carlos_protocol::{
    api::ReadBody, limits::READ_BODY_BYTES, lines::CONTENT_TYPE, request::OP_QUERY, statement,
};
use http_body_util::{BodyExt, LengthLimitError, Limited};

use crate::{
    console::Console,
    evidence::{self, Needs, Verdict},
    gate::{Door, Person},
    reads::{LineBody, Order},
    refusal::Refusal,
};

/// Proxies of the nginx family keep a response back unless told (fault 23).
const ACCEL_BUFFERING: HeaderName = HeaderName::from_static("x-accel-buffering");

type Answer<T = Response> = Result<T, Refusal>;
type Names<T> = Result<Path<T>, PathRejection>;

/// Every route of the console.
pub(crate) fn router(console: Arc<Console>) -> Router {
    Router::new()
        // Without a token there is nothing to learn here but that it runs.
        .route("/", get(|| async { "carlos console\n" }))
        .route("/healthz", get(|| async { "ok\n" }))
        .route("/api/cli/apps", get(apps))
        .route("/api/cli/apps/{account}/{app}/instances", get(instances))
        .route("/api/cli/apps/{account}/{app}/db/{host}", get(list_door))
        .route("/api/cli/apps/{account}/{app}/db/{host}/reads", post(reads))
        .fallback(|| async { Refusal::NotFound })
        .layer(map_response_with_state(Arc::clone(&console), counted))
        .with_state(console)
}

async fn counted(State(console): State<Arc<Console>>, response: Response) -> Response {
    console.reads.metrics.responded(response.status());
    response
}

async fn apps(State(console): State<Arc<Console>>, headers: HeaderMap) -> Answer {
    let mut time = BeforeHeaders::new(&console);
    let apps = time.within(async {
        let person = console.person(&headers).await?;
        console.charge(&person)?;
        console.apps(&person).await
    });
    Ok(Json(apps.await?).into_response())
}

async fn instances(
    State(console): State<Arc<Console>>,
    names: Names<(String, String)>,
    headers: HeaderMap,
) -> Answer {
    let mut time = BeforeHeaders::new(&console);
    let instances = time.within(async {
        let person = console.person(&headers).await?;
        let Path((account, app)) = names.map_err(|_| Refusal::NotFound)?;
        console.instances(&person, &account, &app).await
    });
    Ok(Json(instances.await?).into_response())
}

/// Answers what an old client prints and a new one acts on (db-forward §5.5 step 1). There is no
/// in-region door yet, so an instance of the console's own region is answered in the same way.
async fn list_door(
    State(console): State<Arc<Console>>,
    names: Names<(String, String, String)>,
    headers: HeaderMap,
) -> Answer {
    let mut time = BeforeHeaders::new(&console);
    let record = time.within(async {
        let person = console.person(&headers).await?;
        let door = console.door(&person, names_of(names)?).await?;
        door.check_forwarding()?;
        capable(&console, &door, Needs::Reads).await?;
        Ok(door.record)
    });
    Err(Refusal::Forward(record.await?))
}

async fn reads(
    State(console): State<Arc<Console>>,
    names: Names<(String, String, String)>,
    request: Request,
) -> Answer {
    let mut time = BeforeHeaders::new(&console);
    let (head, body) = request.into_parts();
    let (person, door) = time
        .within(async {
            let person = console.person(&head.headers).await?;
            let door = console.door(&person, names_of(names)?).await?;
            Ok((person, door))
        })
        .await?;
    let signer = door.check_forwarding()?;
    let body = read_body(&console, &head.headers, body).await?;
    let order = order(&door, &person, &body)?;
    let needs = if order.params.is_empty() { Needs::Reads } else { Needs::Params };
    let opened = time.within(async {
        capable(&console, &door, needs).await?;
        let admitted = console.admission.admit(&person.email).ok_or(Refusal::TooManyOpen)?;
        Ok(console.reads.start(signer, order, admitted).await?)
    });
    Ok(streamed(opened.await?))
}

fn names_of(names: Names<(String, String, String)>) -> Answer<(String, String, String)> {
    names.map(|Path(names)| names).map_err(|_| Refusal::NotFound)
}

async fn capable(console: &Console, door: &Door, needs: Needs) -> Answer<()> {
    let record = &door.record;
    match evidence::judge(&console.bucket, &console.sightings, &record.region, needs).await {
        Verdict::Ask => Ok(()),
        Verdict::NoneCapable => Err(Refusal::NoneCapable(record.clone())),
        Verdict::NoneLive => Err(Refusal::NoneLive(record.clone())),
        Verdict::NoneBinds => Err(Refusal::NoneBinds(record.clone())),
    }
}

/// Reads the body only now, after the gate: nobody without a token makes the console hold one
/// (fault 24).
async fn read_body(console: &Console, headers: &HeaderMap, body: Body) -> Answer<Vec<u8>> {
    if headers.contains_key(header::CONTENT_ENCODING) {
        return Err(Refusal::Encoded);
    }
    let stated = headers.get(header::CONTENT_LENGTH).and_then(|length| length.to_str().ok());
    if stated
        .and_then(|length| length.parse::<u64>().ok())
        .is_some_and(|it| it > READ_BODY_BYTES as u64)
    {
        return Err(Refusal::BodyTooLarge);
    }
    let reading = Limited::new(body, READ_BODY_BYTES).collect();
    let read = console.context().timeout(console.timings.body, reading).await;
    match read.map_err(|_| Refusal::BodyTooSlow)? {
        Ok(read) => Ok(read.to_bytes().into()),
        Err(error) if error.is::<LengthLimitError>() => Err(Refusal::BodyTooLarge),
        Err(_) => Err(Refusal::BadRequest),
    }
}

fn order(door: &Door, person: &Person, body: &[u8]) -> Answer<Order> {
    let record = door.record.clone();
    let Ok(text) = std::str::from_utf8(body) else {
        return Err(Refusal::Statement(statement::Refusal::NotText, record));
    };
    let asked = ReadBody::from_bytes(text.as_bytes()).map_err(|_| Refusal::BadRequest)?;
    if asked.op != OP_QUERY {
        return Err(Refusal::UnknownOp(asked.op));
    }
    if let Err(refusal) = check_statement(&asked) {
        return Err(Refusal::Statement(refusal, record));
    }
    Ok(Order {
        record,
        sql: asked.sql,
        params: asked.params,
        at: asked.at,
        reply_key: asked.reply_key,
        by: person.email.clone(),
    })
}

/// The client's own check once more: nothing is signed for a client that left it out, and no
/// restore is spent on what no box would run (db-forward §5.5 step 3).
fn check_statement(asked: &ReadBody) -> Result<(), statement::Refusal> {
    statement::check(&asked.sql)?;
    if asked.params.are_sendable() { Ok(()) } else { Err(statement::Refusal::NotText) }
}

fn streamed(body: LineBody) -> Response {
    let headers = [
        (header::CONTENT_TYPE, HeaderValue::from_static(CONTENT_TYPE)),
        (header::CACHE_CONTROL, HeaderValue::from_static("no-store")),
        (ACCEL_BUFFERING, HeaderValue::from_static("no")),
    ];
    (headers, Body::from_stream(body)).into_response()
}

/// What is left of the time before the response headers. Reading the body has a limit of its own
/// and is not charged: that time is the client's (db-forward §5.5 step 6).
struct BeforeHeaders {
    context: Context,
    left: Duration,
}

impl BeforeHeaders {
    fn new(console: &Console) -> Self {
        Self { context: console.context().clone(), left: console.timings.before_headers }
    }

    async fn within<T>(&mut self, work: impl Future<Output = Answer<T>>) -> Answer<T> {
        let started = self.context.monotonic();
        let done = self.context.timeout(self.left, work).await;
        self.left = self.left.saturating_sub(self.context.monotonic() - started);
        done.unwrap_or(Err(Refusal::Unreadable))
    }
}
