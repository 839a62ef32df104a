//! Replicas that were copied after they were written, so that listings say when the copy was made.
#![allow(clippy::disallowed_methods, clippy::disallowed_macros, clippy::unwrap_used)]

mod common;

use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

use carlos_replica::cmd::{self, CmdError};
use carlos_replica::plan::{PlanError, ReplicaFile, Target};
use carlos_replica::restore::plan_replica;
use carlos_replica::times::RESET_AFTER_MS;
use carlos_replica::{ByteStream, HEADER_LEN, Header, Listing, ReadError, ReplicaReader};
use carlos_replica::{Resolution, RestoreFailure, Txid, TxidRange, listing_for, plan};
use common::{Fixture, OPTIONS, count, unix_ms};
use proptest::prelude::*;

const SECOND: i64 = 1000;
const DAY: i64 = 86_400 * SECOND;

/// A listing with headers behind it, and nothing else.
#[derive(Default)]
struct Headers {
    files: Vec<(ReplicaFile, i64)>,
    reads: AtomicUsize,
    listings: AtomicUsize,
    /// Vanishes when its header is read.
    vanishes: Mutex<Option<TxidRange>>,
}

impl Headers {
    fn add(&mut self, level: u8, min: u64, max: u64, written_ms: i64) {
        let range = TxidRange::new(Txid(min), Txid(max)).unwrap();
        let created_ms = written_ms + SECOND;
        self.files
            .push((ReplicaFile { level, range, size: 200, created_ms, tag: None }, written_ms));
    }

    /// Gives everything written by then the time of a copy.
    fn copied_at(mut self, copy_ms: i64) -> Self {
        for (file, _) in self.files.iter_mut().filter(|(_, written)| *written < copy_ms) {
            file.created_ms = copy_ms;
        }
        self
    }

    /// The rule as it is stated, asking every file.
    fn by_the_letter(&self) -> Listing {
        Listing::new(self.files.iter().map(|(file, written_ms)| {
            let is_reset = file.created_ms > written_ms + RESET_AFTER_MS;
            let created_ms = if is_reset { *written_ms } else { file.created_ms };
            ReplicaFile { created_ms, ..file.clone() }
        }))
    }

    fn reads(&self) -> usize {
        self.reads.swap(0, Ordering::Relaxed)
    }
}

#[async_trait::async_trait]
impl ReplicaReader for Headers {
    fn resolution(&self) -> Resolution {
        Resolution::Second
    }

    async fn list(&self, level: u8) -> Result<Vec<ReplicaFile>, ReadError> {
        self.listings.fetch_add(1, Ordering::Relaxed);
        let files = self.files.iter().filter(|(file, _)| file.level == level);
        Ok(files.map(|(file, _)| file.clone()).collect())
    }

    async fn open(&self, file: &ReplicaFile, _offset: u64) -> Result<ByteStream, ReadError> {
        Err(ReadError::Changed { file: file.planned() })
    }

    async fn header(&self, file: &ReplicaFile) -> Result<[u8; HEADER_LEN], ReadError> {
        self.reads.fetch_add(1, Ordering::Relaxed);
        if self.vanishes.lock().unwrap().take_if(|range| *range == file.range).is_some() {
            return Err(ReadError::Changed { file: file.planned() });
        }
        let (_, written_ms) = self.files.iter().find(|(known, _)| known == file).unwrap();
        Ok(Header::new(4096, 5, file.range, *written_ms).encode())
    }
}

/// What Litestream would have left: level 0 every `every` ms from time 0, compacted by tens and
/// hundreds, and a snapshot after each thousand, some time later.
fn history(transactions: u64, every: i64, snapshot_later: i64) -> Headers {
    let mut replica = Headers::default();
    let time = |txid: u64| txid as i64 * every;
    for txid in 1..=transactions {
        replica.add(0, txid, txid, time(txid));
        for (level, width) in [(1, 10), (2, 100)] {
            if txid % width == 0 {
                replica.add(level, txid + 1 - width, txid, time(txid));
            }
        }
        if txid % 1000 == 0 || txid == 1 {
            replica.add(9, 1, txid, time(txid) + snapshot_later);
        }
    }
    replica
}

#[tokio::test]
async fn ten_thousand_files_need_at_most_forty_headers() {
    let replica = history(9_000, 10 * SECOND, 0).copied_at(2 * DAY);
    assert!(replica.files.len() >= 9_990);
    for target in (1..90_000).step_by(977).map(|seconds| Target::Before(seconds * SECOND)) {
        let listing = listing_for(&replica, target).await.unwrap();
        let reads = replica.reads();
        assert!(reads <= 40, "{reads} headers for {target:?}");
        let expected = plan(&replica.by_the_letter(), target, Resolution::Second);
        let txid = expected.map(|plan| plan.txid());
        assert_eq!(plan(&listing, target, Resolution::Second).map(|p| p.txid()), txid);
    }
}

/// Every level as full as the next: the shape that asks most.
#[tokio::test]
async fn ten_full_levels_need_at_most_forty_headers() {
    let mut replica = Headers::default();
    for level in 0..10 {
        for n in 1..=1000 {
            let min = if level == 9 { 1 } else { n };
            replica.add(level, min, n, n as i64 * 60 * SECOND);
        }
    }
    let replica = replica.copied_at(3 * DAY);
    for minute in (1..1000).step_by(31) {
        listing_for(&replica, Target::Before(minute * 60 * SECOND)).await.unwrap();
        let reads = replica.reads();
        assert!(reads <= 40, "{reads} headers for minute {minute}");
    }
}

#[tokio::test]
async fn a_replica_in_its_place_costs_one_header_a_level() {
    let replica = history(3_000, 10 * SECOND, 0);
    let target = Target::Before(20_000 * SECOND);
    let listing = listing_for(&replica, target).await.unwrap();
    assert_eq!(listing, replica.listing().await.unwrap(), "nothing is corrected");
    assert_eq!(replica.reads(), 4);
    listing_for(&replica, Target::Newest).await.unwrap();
    listing_for(&replica, Target::Before(2 * DAY)).await.unwrap();
    assert_eq!(replica.reads(), 0, "nothing needs a look");
}

#[tokio::test]
async fn a_moment_before_the_history_names_its_true_beginning() {
    let replica = history(1_000, 10 * SECOND, 0).copied_at(2 * DAY);
    let gone = plan_replica(&replica, Target::Before(5 * SECOND)).await.unwrap_err();
    let RestoreFailure::Plan(PlanError::HistoryGone { oldest_ms }) = gone else {
        unreachable!("{gone}");
    };
    // The first sync was at 10 s; listings have whole seconds.
    assert_eq!(oldest_ms, 11 * SECOND);
    assert!(plan_replica(&replica, Target::Before(oldest_ms)).await.is_ok());
}

#[tokio::test]
async fn a_file_that_vanishes_under_the_search_leads_to_a_new_listing() {
    let replica = history(100, 10 * SECOND, 0).copied_at(2 * DAY);
    let first = TxidRange::new(Txid(1), Txid(1)).unwrap();
    *replica.vanishes.lock().unwrap() = Some(first);
    let target = Target::Before(500 * SECOND);
    assert_eq!(plan_replica(&replica, target).await.unwrap().txid(), Txid(49));
    assert_eq!(replica.listings.load(Ordering::Relaxed), 20, "ten levels, twice");
}

/// A whole replica in S3's layout, copied: every object is from now.
#[tokio::test]
async fn a_copied_replica_answers_as_before_the_copy() {
    let dir = tempfile::TempDir::new().unwrap();
    let source = common::fixtures().join("s3-layout");
    common::copy_tree(&source.join("objects"), dir.path());
    let text = std::fs::read_to_string(source.join("expected.json")).unwrap();
    let expected: serde_json::Value = serde_json::from_str(&text).unwrap();
    let prefix = expected["prefix"].as_str().unwrap();
    let layout = carlos_replica::Layout::S3;
    let reader = common::reader(dir.path(), prefix, layout, Resolution::Second);
    let mut checked = 0;
    for point in expected["points"].as_array().unwrap() {
        let Some(at) = point["timestamp"].as_str() else { continue };
        let out = dir.path().join(format!("{checked}.db"));
        let report = cmd::restore_from(&reader, &out, Some(unix_ms(at)), OPTIONS).await.unwrap();
        let rows = count(&out, expected["count_sql"].as_str().unwrap());
        let txid = u64::from_str_radix(point["txid"].as_str().unwrap(), 16).unwrap();
        assert_eq!(report.txid, format!("{txid:#x}"), "{point}");
        assert_eq!(point["rows"].as_i64(), Some(rows), "{point}");
        assert!(report.time_ms < unix_ms(at), "the time of the copy that was read is said");
        checked += 1;
    }
    assert!(checked > 2);
}

/// `cp -r` in place of a backup tool that keeps times.
#[tokio::test]
async fn a_copied_directory_is_understood_too() {
    let fixture = Fixture::load("chain");
    let copy = tempfile::TempDir::new().unwrap();
    common::copy_tree(&fixture.replica_dir(), copy.path());
    let url = format!("file://{}", copy.path().display());
    let at = Some(unix_ms("2026-11-30T14:14:52.588Z"));
    assert_eq!(cmd::plan(&url, at).await.unwrap().txid, "0x1");
    let gone = cmd::plan(&url, Some(0)).await.unwrap_err();
    let CmdError::Restore(RestoreFailure::Plan(PlanError::HistoryGone { oldest_ms })) = gone else {
        unreachable!("{gone}");
    };
    assert_eq!(Some(oldest_ms), at);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]

    #[test]
    fn few_headers_say_what_all_of_them_would(
        transactions in 1u64..400,
        every in 1i64..400,
        snapshot_later in 0i64..4000,
        copy in 0i64..200_000,
        at in 0i64..200_000,
    ) {
        let replica = history(transactions, every * SECOND, snapshot_later * SECOND);
        let replica = replica.copied_at(copy * SECOND);
        let target = Target::Before(at * SECOND);
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        let listing = runtime.block_on(listing_for(&replica, target)).unwrap();
        let expected = replica.by_the_letter();
        prop_assert!(replica.reads() <= 40);
        let before = |listing: &Listing| -> Vec<_> {
            let files = listing.files().filter(|file| file.created_ms < at * SECOND);
            files.map(ReplicaFile::planned).collect()
        };
        prop_assert_eq!(before(&listing), before(&expected));
        let txid = |listing| plan(listing, target, Resolution::Second).map(|plan| plan.txid());
        prop_assert_eq!(txid(&listing), txid(&expected));
    }
}
