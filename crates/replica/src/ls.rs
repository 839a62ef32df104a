//! What stands behind `carlos replica ls`: everything under the prefix, from listings alone.

use serde::Serialize;

use crate::plan::{Resolution, Target, plan};
use crate::survey::{Others, Survey};
use crate::{Layout, Listing, ReadError, ReplicaFile, ReplicaReader, StoreReplica};

/// The answer of `carlos replica ls`, in the order of its JSON. Times are milliseconds since the
/// Unix epoch, by the listing.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct LsReport {
    /// `s3` or `file`; `None` when there is no transaction file.
    pub layout: Option<&'static str>,
    /// Transaction files, from level 0 on.
    pub files: Vec<LsFile>,
    /// Their bytes.
    pub bytes: u64,
    /// The newest state that can be restored.
    pub newest: Option<Moment>,
    /// The earliest time that can be asked for.
    pub oldest_ms: Option<i64>,
    /// All other objects.
    pub others: Vec<Others>,
}

/// One transaction file.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct LsFile {
    /// 0 to 9.
    pub level: u8,
    /// `<min>-<max>.ltx`
    pub name: String,
    /// Bytes.
    pub size: u64,
    /// When it was made.
    pub time_ms: i64,
}

/// A state of the database.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Moment {
    /// Its last transaction, as `0x1f`.
    pub txid: String,
    /// When that was made.
    pub time_ms: i64,
}

/// Lists the replica, and what else there is.
///
/// # Errors
/// As every listing.
pub async fn ls(replica: &StoreReplica) -> Result<LsReport, ReadError> {
    Ok(LsReport::new(&replica.survey().await?, replica.resolution()))
}

impl LsReport {
    /// The report of a survey.
    #[must_use]
    pub fn new(survey: &Survey, resolution: Resolution) -> Self {
        let listing = &survey.listing;
        Self {
            layout: survey.layout.map(layout_name),
            files: listing.files().map(LsFile::new).collect(),
            bytes: bytes(listing),
            newest: newest(listing),
            oldest_ms: listing.oldest_ms(resolution),
            others: survey.others.clone(),
        }
    }
}

impl LsFile {
    fn new(file: &ReplicaFile) -> Self {
        let ReplicaFile { level, range, size, created_ms, .. } = file;
        Self { level: *level, name: range.name(), size: *size, time_ms: *created_ms }
    }
}

pub(crate) const fn layout_name(layout: Layout) -> &'static str {
    match layout {
        Layout::File => "file",
        Layout::Auto | Layout::S3 => "s3",
    }
}

pub(crate) fn bytes(listing: &Listing) -> u64 {
    listing.files().fold(0, |sum, file| sum.saturating_add(file.size))
}

pub(crate) fn newest(listing: &Listing) -> Option<Moment> {
    let plan = plan(listing, Target::Newest, Resolution::Full).ok()?;
    Some(Moment { txid: plan.txid().to_string(), time_ms: plan.time_ms() })
}
