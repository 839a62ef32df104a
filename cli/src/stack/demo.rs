//! `carlos demo`: one forwarded read through everything, on a directory that is gone afterwards.

use std::net::{Ipv4Addr, SocketAddr};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use carlos_bucket::Context;
use carlos_dbquery::Format;
use carlos_protocol::ids::Region;
use carlos_protocol::lines::Line;
use carlos_protocol::params::Params;
use carlos_protocol::request::OP_QUERY;
use carlos_protocol::time::At;
use clap::Args;
use serde::Serialize;

use super::{Options, Stack, own_worker, sample};
use crate::client::{Client, Origin, Place, Token, Verified};
use crate::commands::reading::Reading;
use crate::commands::{query, services};
use crate::config::Login;
use crate::failure::Failure;
use crate::out;

/// Ask one forwarded query of a sample database, end to end on this machine.
///
/// A console in region ie, agents in ie and uk, and a local directory as the bucket. The query
/// goes from ie to the data in uk, and the rows come back sealed.
#[derive(Debug, Args)]
pub struct Demo {
    /// Print one JSON object with the counts and times instead of the rows.
    #[arg(long)]
    json: bool,
}

/// What `--json` prints.
#[derive(Debug, Serialize)]
struct Report {
    rows: u64,
    region: Region,
    #[serde(rename = "box")]
    box_name: String,
    read_id: String,
    chunks: u64,
    sealed_bytes: u64,
    timings_ms: Timings,
}

/// Milliseconds from sending the request to each line of the response.
#[derive(Debug, Serialize)]
struct Timings {
    admitted: u64,
    picked: u64,
    first_chunk: u64,
    result: u64,
}

/// What was seen of one response.
#[derive(Debug, Default)]
struct Seen {
    read_id: String,
    box_name: String,
    chunks: u64,
    sealed_bytes: u64,
    admitted: Duration,
    picked: Duration,
    first_chunk: Duration,
    result: Duration,
}

/// Runs the demo and removes everything it made.
pub(crate) async fn run(demo: Demo, context: Context) -> Result<(), Failure> {
    services::log_to_stderr("warn");
    let dir = tempfile::Builder::new()
        .prefix("carlos-demo-")
        .tempdir()
        .map_err(|error| Failure::unexpected(format!("no directory for the demo: {error}.")))?;
    let region = |name| Region::parse(name).expect("the constant is a label");
    let options = Options {
        dir: dir.path().to_path_buf(),
        db: None,
        regions: vec![region("ie"), region("uk")],
        listen: vec![SocketAddr::from((Ipv4Addr::LOCALHOST, 0))],
        worker: own_worker()?,
    };
    let stack = Stack::start(options, context.clone()).await?;
    let asked = ask(&stack, &context).await;
    stack.stop().await;
    let (verified, seen) = asked?;
    if demo.json {
        return report(&verified, seen, region("uk"));
    }
    timeline(&seen);
    let format = if out::stdout_is_terminal() { Format::Table } else { Format::Tsv };
    query::print(verified.rows, format, &context).await
}

/// The same client, requests and checks that `carlos db query` uses.
async fn ask(stack: &Stack, context: &Context) -> Result<(Verified, Seen), Failure> {
    let login =
        Login { origin: Origin::parse(&stack.url)?, token: Token::parse(stack.token.reveal())? };
    let client = Client::new(login, context.clone())?;
    let (account, app, host) = (stack.account.clone(), stack.app.clone(), stack.host.clone());
    let place = Place { account, app, host };
    let region = client.list_door(&place, OP_QUERY).await?;
    let (sent, seen) = (context.monotonic(), Mutex::new(Seen::default()));
    let watch = |line: &Line| {
        let after = context.monotonic().saturating_sub(sent);
        seen.lock().unwrap_or_else(PoisonError::into_inner).note(line, after);
    };
    let reading =
        Reading { client: &client, context, place: &place, region: &region, watch: &watch };
    let verified = reading.run(sample::QUERY.to_owned(), Params::default(), At::Newest).await?;
    Ok((verified, seen.into_inner().unwrap_or_else(PoisonError::into_inner)))
}

impl Seen {
    fn note(&mut self, line: &Line, after: Duration) {
        match line {
            Line::Admitted(id) => {
                self.read_id = id.to_string();
                self.admitted = after;
            }
            Line::Picked(name) => {
                self.box_name = name.to_string();
                self.picked = after;
            }
            Line::Chunk { data, .. } => {
                if self.chunks == 0 {
                    self.first_chunk = after;
                }
                self.chunks += 1;
                self.sealed_bytes += data.len() as u64;
            }
            Line::Wait(_) => {}
            Line::Result(_) => self.result = after,
        }
    }
}

fn report(verified: &Verified, seen: Seen, region: Region) -> Result<(), Failure> {
    let ms = |after: Duration| u64::try_from(after.as_millis()).unwrap_or(u64::MAX);
    let report = Report {
        rows: verified.summary.rows,
        region,
        box_name: seen.box_name,
        read_id: seen.read_id,
        chunks: seen.chunks,
        sealed_bytes: seen.sealed_bytes,
        timings_ms: Timings {
            admitted: ms(seen.admitted),
            picked: ms(seen.picked),
            first_chunk: ms(seen.first_chunk),
            result: ms(seen.result),
        },
    };
    out::lines([serde_json::to_string(&report).expect("plain fields serialise")])
}

fn timeline(seen: &Seen) {
    let Seen { read_id, box_name, chunks, sealed_bytes, .. } = seen;
    let rows = [
        (seen.admitted, format!("the console in ie admitted {read_id} and signed the request")),
        (seen.picked, format!("{box_name} in uk picked it and sent the replica to a worker")),
        (seen.first_chunk, format!("the first of {chunks} sealed chunks, {sealed_bytes} bytes")),
        (seen.result, "the result; every chunk opened and added up".to_owned()),
    ];
    out::say(&format!("asked: {}", sample::QUERY));
    for (after, what) in rows {
        out::say(&format!("{:>7} ms  {what}", after.as_millis()));
    }
}
