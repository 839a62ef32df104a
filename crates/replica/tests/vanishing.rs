//! A replica that changes or stutters while it is read.
#![allow(clippy::disallowed_methods, clippy::disallowed_macros, clippy::unwrap_used)]

mod common;

use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};

use bytes::Bytes;
use carlos_replica::{ByteStream, HEADER_LEN, ReadError, ReplicaFile, ReplicaReader, Resolution};
use carlos_replica::{RestoreFailure, StoreReplica, Target, Txid};
use common::{Fixture, copy_tree, restore, sha256};
use futures::{StreamExt, TryStreamExt, stream};

/// Passes everything on, and does something of its own when a file is opened.
struct Meddling<F> {
    inner: StoreReplica,
    opened: AtomicUsize,
    read: AtomicU64,
    before_open: F,
    /// Every stream breaks after this many bytes.
    breaks_after: Option<usize>,
}

impl<F: Fn(&ReplicaFile)> Meddling<F> {
    fn new(fixture: &Fixture, before_open: F) -> Self {
        let (opened, read) = (AtomicUsize::new(0), AtomicU64::new(0));
        Self { inner: fixture.reader(), opened, read, before_open, breaks_after: None }
    }
}

#[async_trait::async_trait]
impl<F: Fn(&ReplicaFile) + Send + Sync> ReplicaReader for Meddling<F> {
    fn resolution(&self) -> Resolution {
        self.inner.resolution()
    }

    async fn list(&self, level: u8) -> Result<Vec<ReplicaFile>, ReadError> {
        self.inner.list(level).await
    }

    async fn listing(&self) -> Result<carlos_replica::Listing, ReadError> {
        self.inner.listing().await
    }

    async fn open(&self, file: &ReplicaFile, offset: u64) -> Result<ByteStream, ReadError> {
        self.opened.fetch_add(1, Ordering::Relaxed);
        (self.before_open)(file);
        let stream = self.inner.open(file, offset).await?;
        let Some(limit) = self.breaks_after else {
            return Ok(stream);
        };
        let start: Vec<Bytes> = stream.try_collect().await?;
        let start = Bytes::from(start.concat());
        let start = start.slice(..limit.min(start.len()));
        self.read.fetch_add(start.len() as u64, Ordering::Relaxed);
        let cut = ReadError::Store { what: file.range.name(), source: "reset".into() };
        // Half of the streams end in silence, half with an error.
        let loud = offset.checked_div(limit as u64).is_none_or(|nth| nth % 2 == 0);
        let end = loud.then_some(Err(cut));
        Ok(stream::iter([Ok(start)].into_iter().chain(end)).boxed())
    }

    async fn header(&self, file: &ReplicaFile) -> Result<[u8; HEADER_LEN], ReadError> {
        self.inner.header(file).await
    }
}

fn is_level_0(file: &ReplicaFile, txid: u64) -> bool {
    file.level == 0 && file.range.max() == Txid(txid)
}

fn level0(fixture: &Fixture, txid: u64) -> PathBuf {
    fixture.replica_dir().join(format!("ltx/0/{txid:016x}-{txid:016x}.ltx"))
}

/// Level 0 of `gap-covered-by-l1` as it was before retention removed 2 to 6.
fn before_retention() -> Fixture {
    let fixture = Fixture::load("gap-covered-by-l1");
    let whole = Fixture::load("no-snapshot");
    for txid in 2..=6 {
        std::fs::copy(level0(&whole, txid), level0(&fixture, txid)).unwrap();
    }
    fixture
}

/// Moves level 1 away, so that the first plan uses level 0.
fn hide_level_1(fixture: &Fixture) -> impl Fn() + use<> {
    let shown = fixture.replica_dir().join("ltx/1");
    let hidden = fixture.dir.path().join("level-1");
    std::fs::rename(&shown, &hidden).unwrap();
    move || {
        if hidden.exists() {
            std::fs::rename(&hidden, &shown).unwrap();
        }
    }
}

#[tokio::test]
async fn a_file_that_retention_removed_leads_to_one_new_plan() {
    let fixture = before_retention();
    let show_level_1 = hide_level_1(&fixture);
    let gone = level0(&fixture, 5);
    let reader = Meddling::new(&fixture, move |file| {
        if is_level_0(file, 3) {
            std::fs::remove_file(&gone).unwrap();
            show_level_1();
        }
    });
    let (database, restored) = restore(&reader, Target::Newest, fixture.dir.path()).await.unwrap();
    assert_eq!(restored.txid, Txid(8));
    let expected = fixture.expected["newest"]["file_sha256"].as_str();
    assert_eq!(expected, Some(&*sha256(&database)));
}

#[tokio::test]
async fn files_that_vanish_twice_end_the_read() {
    let fixture = before_retention();
    let show_level_1 = hide_level_1(&fixture);
    let level_0_gone = level0(&fixture, 5);
    let level_1 = fixture.replica_dir().join("ltx/1");
    let reader = Meddling::new(&fixture, move |file| {
        if is_level_0(file, 3) {
            std::fs::remove_file(&level_0_gone).unwrap();
            show_level_1();
        }
        if file.level == 1 && level_1.exists() {
            std::fs::remove_dir_all(&level_1).unwrap();
        }
    });
    let ended = restore(&reader, Target::Newest, fixture.dir.path()).await.unwrap_err();
    assert!(matches!(ended, RestoreFailure::ChangedTwice), "{ended}");
    assert_eq!(std::fs::read_dir(fixture.dir.path()).unwrap().count(), 1, "only the replica");
}

#[tokio::test]
async fn a_new_plan_may_not_reach_less_than_the_first() {
    let fixture = Fixture::load("chain");
    let last = level0(&fixture, 10);
    let reader = Meddling::new(&fixture, move |file| {
        if is_level_0(file, 2) {
            std::fs::remove_file(&last).unwrap();
        }
    });
    let ended = restore(&reader, Target::Newest, fixture.dir.path()).await.unwrap_err();
    assert!(matches!(ended, RestoreFailure::ChangedTwice), "{ended}");
}

#[tokio::test]
async fn a_replaced_file_leads_to_a_new_plan_too() {
    let fixture = Fixture::load("snapshot-only");
    let snapshot = fixture.replica_dir().join("ltx/9/0000000000000001-0000000000000004.ltx");
    let longer = Fixture::load("chain");
    let replaced = AtomicBool::new(false);
    let reader = Meddling::new(&fixture, |_| {
        if !replaced.swap(true, Ordering::Relaxed) {
            std::fs::remove_file(&snapshot).unwrap();
            copy_tree(&longer.replica_dir(), &fixture.replica_dir());
        }
    });
    let (_, restored) = restore(&reader, Target::Newest, fixture.dir.path()).await.unwrap();
    assert_eq!(restored.txid, Txid(10));
}

#[tokio::test]
async fn dropped_and_short_streams_are_taken_up_where_they_ended() {
    let fixture = Fixture::load("features");
    let mut reader = Meddling::new(&fixture, |_| {});
    reader.breaks_after = Some(700);
    let (database, _) = restore(&reader, Target::Newest, fixture.dir.path()).await.unwrap();
    let expected = fixture.expected["newest"]["file_sha256"].as_str();
    assert_eq!(expected, Some(&*sha256(&database)));
    let plan = fixture.plan(Target::Newest).await.unwrap();
    assert_eq!(reader.read.load(Ordering::Relaxed), plan.bytes(), "no byte is read twice");
}

#[tokio::test]
async fn a_stream_that_gives_nothing_is_given_up() {
    let fixture = Fixture::load("tiny");
    let mut reader = Meddling::new(&fixture, |_| {});
    reader.breaks_after = Some(0);
    let ended = restore(&reader, Target::Newest, fixture.dir.path()).await.unwrap_err();
    assert!(matches!(ended, RestoreFailure::Read(ReadError::Store { .. })), "{ended}");
    assert_eq!(reader.opened.load(Ordering::Relaxed), 4);
}
