//! Does this bucket keep the promises that everything here stands on? Asked at start and by
//! `doctor`. Many stores accept the conditional header and ignore it; a product that trusts them
//! runs every read twice.
//!
//! The answer has three values. A store that failed or stayed silent during the probe has not been
//! caught lying, and saying so would send an operator after the wrong fault.

use bytes::Bytes;
use futures::future::join_all;
use object_store::path::Path;

use crate::bucket::{Bucket, parse_key};
use crate::deadline::{Deadline, Purpose};
use crate::verdict::Verdict;

/// Parallel creates of one fresh key: enough that a window between check and act lets two through
/// nearly every time, few enough for any store's rate limit.
const RACERS: usize = 32;

/// How often a run that could not tell is repeated with a fresh key.
const RUNS: usize = 3;

/// How often one free name is asked for alone, before its refusal counts as a lie: a 409 of the
/// race before may still echo.
const ASKS: usize = 3;

/// What the probe found.
#[derive(Clone, Debug, PartialEq, Eq)]
#[must_use = "a process must not run on a bucket that lies"]
pub enum Probed {
    /// Every promise was kept.
    Keeps(Report),
    /// A promise was broken; nothing may run on this bucket.
    Lies(Broken),
    /// Runs ended with requests whose fate is unknown. The reason of the last.
    CouldNotTell(String),
}

impl Probed {
    /// The stable code for logs, exit messages and `doctor`.
    pub const fn code(&self) -> &'static str {
        match self {
            Self::Keeps(_) => "bucket-ok",
            Self::Lies(broken) => broken.code(),
            Self::CouldNotTell(_) => "bucket-could-not-tell",
        }
    }
}

/// What else was seen on a bucket that keeps its promises.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Report {
    /// Whether reads give tags and honour them. Without, polling reads whole serials.
    pub conditional_reads: bool,
}

/// The promise a bucket broke.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Broken {
    /// More than one of the parallel creates won.
    #[error("{0} of {RACERS} parallel creates of one key succeeded")]
    ManyWinners(usize),
    /// A name that is free was refused.
    #[error("a name that is free was refused as taken")]
    FreeNameRefused,
    /// A create of a name that is taken succeeded.
    #[error("a second create of one key succeeded")]
    SecondCreateAccepted,
    /// What was written is not what is read.
    #[error("an object read right after its create is missing or different")]
    ReadAfterWrite,
    /// A listing leaves out an object that exists.
    #[error("a listing right after a create leaves the object out")]
    ListAfterWrite,
}

impl Broken {
    /// The stable code.
    pub const fn code(&self) -> &'static str {
        match self {
            Self::ManyWinners(_) => "bucket-many-winners",
            Self::FreeNameRefused => "bucket-refuses-free-names",
            Self::SecondCreateAccepted => "bucket-ignores-condition",
            Self::ReadAfterWrite => "bucket-read-after-write",
            Self::ListAfterWrite => "bucket-list-after-write",
        }
    }
}

/// Why one run ended early.
enum Stop {
    Lie(Broken),
    Unclear(String),
}

/// Probes the bucket under `probe/<principal>/`, whose objects the store's lifecycle removes.
pub async fn probe(bucket: &Bucket, principal: &str) -> Probed {
    let mut last = String::new();
    for _ in 0..RUNS {
        match run(bucket, principal).await {
            Ok(report) => return Probed::Keeps(report),
            Err(Stop::Lie(broken)) => return Probed::Lies(broken),
            Err(Stop::Unclear(reason)) => last = reason,
        }
    }
    Probed::CouldNotTell(last)
}

async fn run(bucket: &Bucket, principal: &str) -> Result<Report, Stop> {
    let folder = format!("probe/{principal}");
    let key = format!("{folder}/{}", bucket.ctx.ulid());
    let path = parse_key(&key).map_err(|cause| Stop::Unclear(cause.to_string()))?;
    let winner = race(bucket, &path).await?;
    let tag = read_after_write(bucket, &path, &winner).await?;
    refuses_second(bucket, &path).await?;
    read_after_write(bucket, &path, &winner).await?;
    list_after_write(bucket, &folder, &key).await?;
    Ok(Report { conditional_reads: honours(bucket, &path, tag).await? })
}

/// 32 parallel creates with bodies of their own; the winner's body.
async fn race(bucket: &Bucket, path: &Path) -> Result<Bytes, Stop> {
    let bodies: Vec<Bytes> = (0..RACERS).map(|racer| format!("racer {racer}").into()).collect();
    let answers = join_all(bodies.iter().map(|body| create(bucket, path, body))).await;
    let won: Vec<&Bytes> =
        bodies.iter().zip(&answers).filter(|(_, answer)| answer.is_ok()).map(|(b, _)| b).collect();
    if won.len() > 1 {
        // Two successes are a lie whatever the others' fate.
        return Err(Stop::Lie(Broken::ManyWinners(won.len())));
    }
    if let Some(unclear) = answers.iter().find_map(|answer| unclear(answer.as_ref().err()?)) {
        return Err(unclear);
    }
    match won.first() {
        Some(body) => Ok(Bytes::clone(body)),
        None => nobody_won(bucket, path).await,
    }
}

/// Every racer was told "taken". If the name is free, ask for one alone: refusing that is a lie.
async fn nobody_won(bucket: &Bucket, path: &Path) -> Result<Bytes, Stop> {
    for _ in 0..ASKS {
        match get(bucket, path, None).await {
            Ok(_) => return Err(Stop::Unclear("an object without a winner".into())),
            Err(Verdict::Absent) => {}
            Err(verdict) => return Err(Stop::Unclear(verdict.cause().to_string())),
        }
        let alone = Bytes::from_static(b"alone");
        match create(bucket, path, &alone).await {
            Ok(()) => return Ok(alone),
            Err(Verdict::Exists) => {}
            Err(verdict) => return Err(Stop::Unclear(verdict.cause().to_string())),
        }
    }
    Err(Stop::Lie(Broken::FreeNameRefused))
}

async fn read_after_write(
    bucket: &Bucket,
    path: &Path,
    body: &Bytes,
) -> Result<Option<String>, Stop> {
    match get(bucket, path, None).await {
        Ok((found, tag)) if found == *body => Ok(tag),
        Ok(_) | Err(Verdict::Absent) => Err(Stop::Lie(Broken::ReadAfterWrite)),
        Err(verdict) => Err(Stop::Unclear(verdict.cause().to_string())),
    }
}

async fn refuses_second(bucket: &Bucket, path: &Path) -> Result<(), Stop> {
    match create(bucket, path, &Bytes::from_static(b"second")).await {
        Ok(()) => Err(Stop::Lie(Broken::SecondCreateAccepted)),
        Err(Verdict::Exists) => Ok(()),
        Err(verdict) => Err(Stop::Unclear(verdict.cause().to_string())),
    }
}

async fn list_after_write(bucket: &Bucket, folder: &str, key: &str) -> Result<(), Stop> {
    match bucket.list(folder, None, Purpose::Sweep).await {
        Ok(listed) if listed.iter().any(|found| found.key == key) => Ok(()),
        Ok(_) => Err(Stop::Lie(Broken::ListAfterWrite)),
        Err(error) => Err(Stop::Unclear(error.to_string())),
    }
}

async fn honours(bucket: &Bucket, path: &Path, tag: Option<String>) -> Result<bool, Stop> {
    let Some(tag) = tag else {
        return Ok(false);
    };
    match get(bucket, path, Some(&tag)).await {
        Err(Verdict::NotModified) => Ok(true),
        Ok(_) => Ok(false),
        Err(verdict) => Err(Stop::Unclear(verdict.cause().to_string())),
    }
}

/// One create, without the loop that would hide what the store said.
async fn create(bucket: &Bucket, path: &Path, body: &Bytes) -> Result<(), Verdict> {
    bucket.create_once(path, body, &Deadline::new(&bucket.ctx, Purpose::Result)).await
}

async fn get(
    bucket: &Bucket,
    path: &Path,
    unless: Option<&str>,
) -> Result<(Bytes, Option<String>), Verdict> {
    bucket.get_once(path, unless, &Deadline::new(&bucket.ctx, Purpose::Result)).await
}

/// A racer's answer other than success and refusal.
fn unclear(verdict: &Verdict) -> Option<Stop> {
    match verdict {
        Verdict::Exists => None,
        other => Some(Stop::Unclear(other.clone().cause().to_string())),
    }
}
