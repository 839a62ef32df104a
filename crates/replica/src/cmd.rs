//! What stands behind `carlos replica plan` and `carlos replica restore`: for people who can
//! reach a replica themselves.

use std::io::Read;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use object_store::local::LocalFileSystem;
use serde::Serialize;
use sha2::{Digest, Sha256};

use crate::apply::RestoreOptions;
use crate::plan::{Gap, Plan, ReplicaFile, Resolution, Target};
use crate::restore::{RestoreFailure, plan_replica, restore_to_file};
use crate::store::BadPrefix;
use crate::{Layout, ReplicaReader, StoreReplica};

/// The answer of `carlos replica plan`, in the order of its JSON.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct PlanReport {
    /// The transaction the plan reaches, as `0x1f`.
    pub txid: String,
    /// The files in the order they are applied.
    pub files: Vec<FileReport>,
    /// When the last file was made by the listing, in milliseconds since the Unix epoch.
    #[serde(skip)]
    pub time_ms: i64,
    /// A sentence when the moment asked for lies between the moments that are kept.
    #[serde(skip)]
    pub note: Option<String>,
}

/// One planned file.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct FileReport {
    /// 0 to 9.
    pub level: u8,
    /// `<min>-<max>.ltx`
    pub name: String,
    /// Bytes.
    pub size: u64,
}

/// The answer of `carlos replica restore`, in the order of its JSON.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct RestoreReport {
    /// The transaction the database holds, as `0x1f`.
    pub txid: String,
    /// Its size in pages.
    pub pages: u32,
    /// Bytes per page.
    pub page_size: u32,
    /// Its size in bytes.
    pub bytes: u64,
    /// SHA-256 of the whole file, in lower-case hex.
    pub sha256: String,
    /// When its last transaction was synced, in milliseconds since the Unix epoch.
    #[serde(skip)]
    pub time_ms: i64,
    /// As [`PlanReport::note`].
    #[serde(skip)]
    pub note: Option<String>,
}

/// Why a replica command has no answer.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum CmdError {
    #[error("{0:?} is not a replica URL; file:///path/to/replica and s3://bucket/prefix are")]
    BadUrl(String),
    #[error("replicas at {0}:// cannot be read; those at file:// and s3:// can")]
    UnknownScheme(String),
    #[error("{}: {source}", .path.display())]
    NoDirectory { path: PathBuf, source: std::io::Error },
    #[error(transparent)]
    BadPrefix(#[from] BadPrefix),
    #[error(transparent)]
    Store(#[from] object_store::Error),
    #[error(transparent)]
    Restore(#[from] RestoreFailure),
    #[error("reading back {}: {source}", .path.display())]
    ReadBack { path: PathBuf, source: std::io::Error },
}

/// The replica at `url`: `file:///path/to/replica`, in either layout, with the files' own times.
///
/// # Errors
/// When the URL is not one, or the directory is not there.
pub fn open_replica(url: &str) -> Result<StoreReplica, CmdError> {
    let bad = || CmdError::BadUrl(url.to_owned());
    let (scheme, rest) = url.split_once("://").ok_or_else(bad)?;
    if !scheme.eq_ignore_ascii_case("file") {
        return Err(CmdError::UnknownScheme(scheme.to_owned()));
    }
    let rest = rest.strip_prefix("localhost").unwrap_or(rest);
    let path = percent_decoded(rest).filter(|path| path.is_absolute()).ok_or_else(bad)?;
    if let Err(source) = std::fs::read_dir(&path) {
        return Err(CmdError::NoDirectory { path, source });
    }
    let store = Arc::new(LocalFileSystem::new_with_prefix(&path)?);
    Ok(StoreReplica::new(store, "", Layout::Auto, Resolution::Full)?)
}

/// `carlos replica plan URL [--at T]`: which files lead to the newest state, or to the state
/// before `at_ms`, in milliseconds since the Unix epoch. Reads no page.
///
/// # Errors
/// See [`CmdError`].
pub async fn plan(url: &str, at_ms: Option<i64>) -> Result<PlanReport, CmdError> {
    plan_from(&open_replica(url)?, at_ms).await
}

/// As [`plan`], from a replica that is already open.
///
/// # Errors
/// See [`CmdError`].
pub async fn plan_from(
    replica: &dyn ReplicaReader,
    at_ms: Option<i64>,
) -> Result<PlanReport, CmdError> {
    Ok(PlanReport::new(&plan_replica(replica, target(at_ms)).await?))
}

/// `carlos replica restore URL --out FILE [--at T]`: restores to `out`, which must not exist.
///
/// # Errors
/// See [`CmdError`]; no file is left at `out` then.
pub async fn restore(
    url: &str,
    out: &Path,
    at_ms: Option<i64>,
    options: RestoreOptions,
) -> Result<RestoreReport, CmdError> {
    let replica = open_replica(url)?;
    restore_from(&replica, out, at_ms, options).await
}

/// As [`restore`], from a replica that is already open.
///
/// # Errors
/// See [`CmdError`]; no file is left at `out` then.
pub async fn restore_from(
    replica: &dyn ReplicaReader,
    out: &Path,
    at_ms: Option<i64>,
    options: RestoreOptions,
) -> Result<RestoreReport, CmdError> {
    let target = target(at_ms);
    let first = plan_replica(replica, target).await?;
    let (plan, restored) = restore_to_file(replica, first, target, out, options).await?;
    let sha256 =
        file_sha256(out).map_err(|source| CmdError::ReadBack { path: out.to_owned(), source })?;
    Ok(RestoreReport {
        txid: restored.txid.to_string(),
        pages: restored.pages,
        page_size: restored.page_size,
        bytes: restored.bytes,
        sha256,
        time_ms: restored.time_ms,
        note: plan.coarser().map(coarser_note),
    })
}

impl PlanReport {
    /// The report of a plan.
    #[must_use]
    pub fn new(plan: &Plan) -> Self {
        Self {
            txid: plan.txid().to_string(),
            files: plan.files().iter().map(FileReport::new).collect(),
            time_ms: plan.time_ms(),
            note: plan.coarser().map(coarser_note),
        }
    }
}

impl FileReport {
    fn new(file: &ReplicaFile) -> Self {
        Self { level: file.level, name: file.range.name(), size: file.size }
    }
}

fn coarser_note(gap: Gap) -> String {
    format!(
        "the history is coarser at that time: this is transaction {}, the one kept before it",
        gap.have
    )
}

fn target(at_ms: Option<i64>) -> Target {
    at_ms.map_or(Target::Newest, Target::Before)
}

fn file_sha256(path: &Path) -> std::io::Result<String> {
    let mut file = std::fs::File::open(path)?;
    let mut digest = Sha256::new();
    let mut piece = vec![0; 256 << 10];
    loop {
        match file.read(&mut piece)? {
            0 => break,
            len => digest.update(&piece[..len]),
        }
    }
    Ok(digest.finalize().iter().map(|byte| format!("{byte:02x}")).collect())
}

/// `%20` and its like decoded; `None` when an escape is broken or the result is not UTF-8.
fn percent_decoded(text: &str) -> Option<PathBuf> {
    let mut out = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let Some((&byte, after)) = rest.split_first() {
        rest = after;
        if byte != b'%' {
            out.push(byte);
            continue;
        }
        let (digits, after) = rest.split_at_checked(2)?;
        let digits = std::str::from_utf8(digits).ok()?;
        if !digits.bytes().all(|digit| digit.is_ascii_hexdigit()) {
            return None;
        }
        out.push(u8::from_str_radix(digits, 16).ok()?);
        rest = after;
    }
    String::from_utf8(out).ok().map(PathBuf::from)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn urls_are_decoded_and_refused_by_name() {
        assert_eq!(percent_decoded("/a%20b/%C3%A9"), Some(PathBuf::from("/a b/é")));
        assert_eq!(percent_decoded("/a%2"), None);
        assert_eq!(percent_decoded("/a%+1"), None);
        assert!(matches!(open_replica("/plain/path"), Err(CmdError::BadUrl(_))));
        assert!(matches!(open_replica("file://host/x"), Err(CmdError::BadUrl(_))));
        assert!(matches!(open_replica("ftp://b/p"), Err(CmdError::UnknownScheme(_))));
        let missing = open_replica("file:///no/such/directory");
        assert!(matches!(missing, Err(CmdError::NoDirectory { .. })));
    }

    #[test]
    fn reports_have_the_documented_json() {
        let file = FileReport { level: 9, name: "x.ltx".into(), size: 3 };
        let report = PlanReport { txid: "0x1f".into(), files: vec![file], time_ms: 1, note: None };
        assert_eq!(
            serde_json::to_string(&report).unwrap(),
            r#"{"txid":"0x1f","files":[{"level":9,"name":"x.ltx","size":3}]}"#
        );
    }
}
