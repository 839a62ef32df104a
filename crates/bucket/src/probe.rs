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

/// How often one name is asked for alone, before what the store says of it counts: a 409 of the
/// race before may still echo, and a store that replaces now and then did so once.
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
        return Err(Stop::Lie(many_won(bucket, path, won.len()).await));
    }
    if let Some(unclear) = answers.iter().find_map(|answer| unclear(answer.as_ref().err()?)) {
        return Err(unclear);
    }
    match won.first() {
        Some(body) => Ok(Bytes::clone(body)),
        None => nobody_won(bucket, path).await,
    }
}

/// Whether the store has a window between its check and its act, or does not check at all. What
/// helps differs: the one is the server's, the other often the bucket's own versioning.
async fn many_won(bucket: &Bucket, path: &Path, winners: usize) -> Broken {
    for _ in 0..ASKS {
        match create(bucket, path, &Bytes::from_static(b"late")).await {
            Ok(()) => {}
            Err(_) => return Broken::ManyWinners(winners),
        }
    }
    Broken::SecondCreateAccepted
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

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::time::Duration;

    use object_store::memory::InMemory;

    use super::*;
    use crate::fault::{Fault, FaultStore, Rule};
    use crate::layer::{Inner, Op};
    use crate::toys::{Liar, Lie};
    use crate::{Context, file_url, open_store};

    fn memory() -> Inner {
        Arc::new(InMemory::new())
    }

    async fn probe_liar(seed: u64, lie: Lie) -> Probed {
        let ctx = Context::simulated(seed, 0);
        let store = Liar::wrap(memory(), &ctx, lie);
        probe(&Bucket::new(store, ctx), "box1").await
    }

    fn faulty(seed: u64) -> (Bucket, FaultStore) {
        let ctx = Context::simulated(seed, 0);
        let (store, faults) = FaultStore::wrap(memory(), &ctx);
        (Bucket::new(store, ctx), faults)
    }

    #[tokio::test(start_paused = true)]
    async fn honest_stores_keep_their_promises() {
        let kept = Probed::Keeps(Report { conditional_reads: true });
        let memory = Bucket::new(memory(), Context::simulated(1, 0));
        assert_eq!(probe(&memory, "box1").await, kept);
        let dir = tempfile::tempdir().expect("a directory");
        let store = open_store(&file_url(dir.path())).expect("a store");
        assert_eq!(probe(&Bucket::new(store, Context::system()), "box1").await, kept);
    }

    #[tokio::test(start_paused = true)]
    async fn a_window_between_check_and_act_is_found() {
        let lie = Lie::ChecksThenActs(Duration::from_millis(5));
        let mut found = 0;
        for seed in 0..100 {
            found += usize::from(probe_liar(seed, lie).await.code() == "bucket-many-winners");
        }
        assert!(found >= 99, "{found} of 100");
    }

    #[tokio::test(start_paused = true)]
    async fn an_ignored_condition_is_found() {
        let probed = probe_liar(1, Lie::IgnoresHeader).await;
        assert_eq!(probed, Probed::Lies(Broken::SecondCreateAccepted));
        assert_eq!(probed.code(), "bucket-ignores-condition");
    }

    #[tokio::test(start_paused = true)]
    async fn a_refused_free_name_is_found() {
        let probed = probe_liar(1, Lie::RefusesFreeNames).await;
        assert_eq!(probed, Probed::Lies(Broken::FreeNameRefused));
        assert_eq!(probed.code(), "bucket-refuses-free-names");
    }

    #[tokio::test(start_paused = true)]
    async fn a_store_that_replaces_now_and_then_is_found_often() {
        let mut found = 0;
        for seed in 0..100 {
            found += usize::from(matches!(
                probe_liar(seed, Lie::SometimesReplaces(0.05)).await,
                Probed::Lies(_)
            ));
        }
        // One create in twenty lies, and a probe makes 33: it is missed less than once in five.
        assert!(found > 75, "{found} of 100");
    }

    #[tokio::test(start_paused = true)]
    async fn an_object_missing_from_reads_is_found() {
        let (bucket, faults) = faulty(1);
        faults.add(Rule::new(Op::Get, Fault::Hidden));
        assert_eq!(probe(&bucket, "box1").await, Probed::Lies(Broken::ReadAfterWrite));
    }

    #[tokio::test(start_paused = true)]
    async fn an_object_missing_from_listings_is_found() {
        let (bucket, faults) = faulty(1);
        faults.add(Rule::new(Op::List, Fault::Hidden).always());
        assert_eq!(probe(&bucket, "box1").await, Probed::Lies(Broken::ListAfterWrite));
    }

    #[tokio::test(start_paused = true)]
    async fn a_conflict_for_every_racer_is_no_lie() {
        let (bucket, faults) = faulty(1);
        faults.add(Rule::new(Op::Create, Fault::Conflict).times(33));
        assert!(matches!(probe(&bucket, "box1").await, Probed::Keeps(_)));
    }

    #[tokio::test(start_paused = true)]
    async fn failures_are_never_called_lies() {
        let unclear = [Fault::Refused(500), Fault::Refused(403), Fault::AnswerLost];
        let silent = [Fault::Swallowed, Fault::DoneInSilence, Fault::DoneBut(503)];
        for (seed, fault) in unclear.into_iter().chain(silent).enumerate() {
            let (bucket, faults) = faulty(seed as u64);
            faults.add(Rule::new(Op::Create, fault).odds(0.5));
            let probed = probe(&bucket, "box1").await;
            assert_eq!(probed.code(), "bucket-could-not-tell", "{fault:?}: {probed:?}");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_failure_in_one_run_is_forgotten_by_the_next() {
        let (bucket, faults) = faulty(1);
        faults.add(Rule::new(Op::Create, Fault::AnswerLost));
        faults.add(Rule::new(Op::List, Fault::Refused(403)));
        assert!(matches!(probe(&bucket, "box1").await, Probed::Keeps(_)));
    }
}
