//! `carlos replica`: for people who can reach the files.

mod look;

use carlos_bucket::{Context, open_store};
use carlos_protocol::copy::Bytes;
use carlos_protocol::time::Millis;
use carlos_replica::cmd::{self, CmdError, FileReport, PlanReport, RestoreReport};
use carlos_replica::{
    Layout, PlanError, ReadError, Resolution, RestoreError, RestoreFailure, RestoreOptions,
    StoreReplica,
};

use crate::args::{ReplicaPlan, ReplicaRestore};
use crate::exit::Exit;
use crate::failure::Failure;
use crate::out;
use crate::when::parse_at;

pub(super) use look::{ls, verify};

pub(super) async fn plan(args: ReplicaPlan, context: Context) -> Result<(), Failure> {
    let at_ms = at_ms(args.at.as_deref(), &context)?;
    let report = cmd::plan_from(&open(&args.url)?, at_ms).await.map_err(failure)?;
    print_plan(&report, args.json)?;
    note(report.note.as_deref());
    Ok(())
}

pub(super) async fn restore(args: ReplicaRestore, context: Context) -> Result<(), Failure> {
    let at_ms = at_ms(args.at.as_deref(), &context)?;
    let restored = cmd::restore_from(&open(&args.url)?, &args.out, at_ms, OPTIONS).await;
    let report = restored.map_err(failure)?;
    if args.json {
        out::json(&report)?;
    } else {
        out::say(&summary(&args.out.display().to_string(), &report));
    }
    note(report.note.as_deref());
    Ok(())
}

fn open(url: &str) -> Result<StoreReplica, Failure> {
    if !url.starts_with("s3://") {
        return cmd::open_replica(url).map_err(failure);
    }
    let store = open_store(url).map_err(|error| Failure::usage(format!("{error}.")))?;
    // An S3 listing tells times in whole seconds (db-forward §3).
    let replica = StoreReplica::new(store, "", Layout::Auto, Resolution::Second);
    replica.map_err(|error| failure(error.into()))
}

fn print_plan(report: &PlanReport, as_json: bool) -> Result<(), Failure> {
    if as_json {
        return out::json(report);
    }
    let line = |file: &FileReport| format!("{}\t{}\t{}", file.level, file.name, file.size);
    out::lines(report.files.iter().map(line))?;
    let (txid, time) = (&report.txid, time(report.time_ms));
    let files = match report.files.len() {
        1 => "1 file leads".to_owned(),
        count => format!("{count} files lead"),
    };
    // Which is what `--at` compares with; the files' own headers are not read for a plan.
    out::say(&format!("{files} to transaction {txid}, listed at {time}."));
    Ok(())
}

fn summary(out: &str, report: &RestoreReport) -> String {
    let (bytes, time) = (Bytes(report.bytes), time(report.time_ms));
    format!("{out} holds transaction {} of {time}, {bytes}.", report.txid)
}

fn note(note: Option<&str>) {
    if let Some(note) = note {
        out::say(&format!("{note}."));
    }
}

fn at_ms(at: Option<&str>, context: &Context) -> Result<Option<i64>, Failure> {
    let Some(text) = at else { return Ok(None) };
    let at = parse_at(text, Millis::new(context.now_unix_ms()))?;
    Ok(Some(i64::try_from(at.unix_ms()).expect("the year 9999 fits")))
}

fn time(unix_ms: i64) -> Millis {
    Millis::new(u64::try_from(unix_ms).unwrap_or(0))
}

fn failure(error: CmdError) -> Failure {
    let exit = match &error {
        CmdError::BadUrl(_) | CmdError::UnknownScheme(_) | CmdError::BadPrefix(_) => Exit::Usage,
        CmdError::NoDirectory { .. } => Exit::NotFound,
        CmdError::Restore(RestoreFailure::Plan(PlanError::HistoryGone { oldest_ms })) => {
            let oldest = time(*oldest_ms);
            let sentence = format!("the replica reaches back to {oldest}. name a later time.");
            return Failure::new(Exit::Replica, sentence);
        }
        CmdError::Restore(failure) => restore_exit(failure),
        _ => Exit::Unexpected,
    };
    Failure::new(exit, format!("{error}."))
}

fn restore_exit(failure: &RestoreFailure) -> Exit {
    match failure {
        RestoreFailure::Read(ReadError::Denied { .. }) => Exit::NotFound,
        RestoreFailure::Read(ReadError::Store { .. }) => Exit::Unexpected,
        RestoreFailure::Restore(RestoreError::OutputExists { .. }) => Exit::Usage,
        RestoreFailure::Restore(RestoreError::Io(_)) => Exit::Unexpected,
        // What is left says something about the replica: a gap, damage, a change in mid-read.
        _ => Exit::Replica,
    }
}

/// The person chose the disk, and wants the file to be there after a power cut.
const OPTIONS: RestoreOptions = RestoreOptions { max_bytes: u64::MAX, durable: true };
