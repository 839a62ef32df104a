//! `carlos db query`.

use std::io::{self, Write};
use std::time::Duration;

use carlos_bucket::Context;
use carlos_dbquery::{Format, RenderError};
use carlos_protocol::copy::{self, Message, Rows};
use carlos_protocol::ids::Host;
use carlos_protocol::request::OP_QUERY;
use carlos_protocol::summary::Summary;
use carlos_protocol::time::{At, Millis};

use super::reading::Reading;
use super::{choose, client, params, sql};
use crate::args::Query;
use crate::client::Verified;
use crate::failure::Failure;
use crate::out;
use crate::output::OutputFile;
use crate::when::parse_at;

/// Answers one query, or says why not. Nothing reaches stdout before everything has checked out.
pub(super) async fn query(args: Query, context: Context) -> Result<(), Failure> {
    let at = match &args.at {
        None => At::Newest,
        Some(text) => At::Time(parse_at(text, Millis::new(context.now_unix_ms()))?),
    };
    let format = args.format.map_or_else(default_format, Format::from);
    let timeout = args.timeout;
    let output = args.output.as_deref().map(|path| OutputFile::at(path, args.force)).transpose()?;
    let reading = read(args, at, &context);
    let (host, verified) = match timeout {
        None => reading.await?,
        Some(limit) => context.timeout(limit, reading).await.map_err(|_| gave_up(limit))??,
    };
    match &output {
        None => print(verified.rows, format, &context).await?,
        // On this thread on purpose: Ctrl-C waits the moment that the file takes to be whole, so
        // that nothing half written is left beside it.
        Some(output) => output.write(|file| render(format, &verified.rows, file))?,
    }
    out::say(status(&host, &verified.summary).as_str());
    if verified.summary.coarser {
        out::say(copy::coarser_copy().as_str());
    }
    Ok(())
}

async fn read(args: Query, at: At, context: &Context) -> Result<(Host, Verified), Failure> {
    let reading_sql = context.spawn_blocking(move || (sql::read(&args), args));
    let (sql, args) = reading_sql.await.expect("reading the SQL does not panic");
    let sql = sql?;
    sql::check(&sql)?;
    let params = params::read(&args.params)?;
    let client = client(context.clone())?;
    let place = choose::place(&client, &args.app, args.instance.as_deref()).await?;
    let region = &client.list_door(&place, OP_QUERY).await?;
    let sql = sql::as_json_text(sql).ok_or_else(|| copy::not_sendable(region))?;
    let reading = Reading { client: &client, context, place: &place, region, watch: &|_| () };
    let params = params.sendable(region)?;
    let verified = reading.run(sql, params, at).await?;
    Ok((place.host, verified))
}

/// Prints on a thread of its own, so that Ctrl-C still works while a pager holds the rows back.
pub(crate) async fn print(rows: Vec<u8>, format: Format, context: &Context) -> Result<(), Failure> {
    let printing =
        context.spawn_blocking(move || out::data(|stdout| render(format, &rows, stdout)));
    printing.await.expect("printing does not panic")
}

fn render(format: Format, rows: &[u8], stdout: &mut dyn Write) -> io::Result<()> {
    match carlos_dbquery::render(format, rows, stdout) {
        Ok(_) => Ok(()),
        Err(RenderError::Output(error)) => Err(error),
        Err(RenderError::Malformed(error)) => Err(io::Error::other(error)),
    }
}

/// Which copy the rows come from.
fn status(host: &Host, summary: &Summary) -> Message {
    let time = summary.time.map_or_else(|| "an unknown time".to_owned(), |time| time.to_string());
    // As `carlos replica` prints it: short, without the wire's leading zeros.
    copy::query_status(Rows(summary.rows), host, time, format_args!("{:#x}", summary.txid.0))
}

fn default_format() -> Format {
    if out::stdout_is_terminal() { Format::Table } else { Format::Tsv }
}

fn gave_up(limit: Duration) -> Failure {
    copy::own_timeout(format!("{limit:?}")).into()
}
