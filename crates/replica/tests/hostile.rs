//! Replicas that were damaged or made up, through the whole restore: listing, plan, download and
//! apply. Whatever comes in, the outcome is an error that leaves nothing, or the very database.
#![allow(clippy::disallowed_methods, clippy::disallowed_macros, clippy::unwrap_used)]

mod common;

use std::path::PathBuf;
use std::sync::Arc;

use carlos_ltx::{Encoder, Encoding, Header, Txid, TxidRange};
use carlos_replica::restore::plan_replica;
use carlos_replica::verify::verify;
use carlos_replica::{Layout, PlanError, Resolution, Restore, RestoreError, RestoreFailure};
use carlos_replica::{PlannedFile, RestoreOptions, StoreReplica, Target, restore_to_file};
use object_store::memory::InMemory;
use object_store::path::Path;
use object_store::{ObjectStore, ObjectStoreExt};
use tempfile::TempDir;

const PAGE: usize = 512;
/// No test here has a larger database, and no damage may make one.
const OPTIONS: RestoreOptions = RestoreOptions { max_bytes: 1 << 20, durable: false };

/// A page of text, or of noise that LZ4 cannot shorten; page 1 begins a database of three pages.
fn page(number: u32, version: u64, commit: u32) -> Vec<u8> {
    let noise = |at: usize| (at as u32 * number).wrapping_mul(0x9e37_79b9).to_be_bytes()[1];
    let mut page: Vec<u8> =
        (0..PAGE).map(|at| if at < 300 { version as u8 } else { noise(at) }).collect();
    if number == 1 {
        page[..16].copy_from_slice(b"SQLite format 3\0");
        page[16..18].copy_from_slice(&(PAGE as u16).to_be_bytes());
        page[28..32].copy_from_slice(&commit.to_be_bytes());
    }
    page
}

fn ltx(encoding: Encoding, txid: u64, commit: u32, pages: &[u32]) -> Vec<u8> {
    let range = TxidRange::new(Txid(txid), Txid(txid)).unwrap();
    let header = Header::new(PAGE as u32, commit, range, txid as i64 * 1000);
    let mut bytes = Vec::new();
    let mut encoder = Encoder::new(header, encoding, &mut bytes).unwrap();
    for number in pages {
        encoder.page(*number, &page(*number, txid, commit), &mut bytes).unwrap();
    }
    encoder.finish(0, &mut bytes).unwrap();
    bytes
}

struct Bench {
    dir: TempDir,
    store: Arc<InMemory>,
}

impl Bench {
    fn new() -> Self {
        Self { dir: TempDir::new().unwrap(), store: Arc::default() }
    }

    async fn put(&self, txid: u64, bytes: Vec<u8>) {
        let key = format!("p/0000/{txid:016x}-{txid:016x}.ltx");
        self.store.put(&Path::parse(key).unwrap(), bytes.into()).await.unwrap();
    }

    fn replica(&self) -> StoreReplica {
        let store: Arc<dyn ObjectStore> = self.store.clone();
        StoreReplica::new(store, "p", Layout::S3, Resolution::Full).unwrap()
    }

    fn out(&self) -> PathBuf {
        self.dir.path().join("out.db")
    }

    /// The database, after which there is none again.
    async fn restore(&self) -> Result<Vec<u8>, RestoreFailure> {
        let replica = self.replica();
        let plan = plan_replica(&replica, Target::Newest).await?;
        let restored = restore_to_file(&replica, plan, Target::Newest, &self.out(), OPTIONS).await;
        if restored.is_err() {
            assert_eq!(std::fs::read_dir(self.dir.path()).unwrap().count(), 0, "nothing is left");
        }
        restored?;
        let database = std::fs::read(self.out()).unwrap();
        std::fs::remove_file(self.out()).unwrap();
        Ok(database)
    }
}

/// Three small files: a snapshot in each encoding, and an increment upon the first.
fn small_files() -> [(u64, Vec<u8>); 3] {
    [
        (1, ltx(Encoding::Block, 1, 3, &[1, 2, 3])),
        (1, ltx(Encoding::Frame, 1, 3, &[1, 2, 3])),
        (2, ltx(Encoding::Block, 2, 3, &[1, 3])),
    ]
}

async fn with(txid: u64, bytes: &[u8]) -> Bench {
    let bench = Bench::new();
    bench.put(1, ltx(Encoding::Block, 1, 3, &[1, 2, 3])).await;
    bench.put(txid, bytes.to_vec()).await;
    bench
}

#[tokio::test]
async fn no_truncation_of_a_file_is_taken_for_it() {
    let mut tried = 0;
    for (txid, whole) in small_files() {
        let bench = with(txid, &whole).await;
        bench.restore().await.unwrap();
        for len in 0..whole.len() {
            bench.put(txid, whole[..len].to_vec()).await;
            bench.restore().await.unwrap_err();
            assert!(!verify(&bench.replica()).await.unwrap().sound, "{len} bytes");
            tried += 1;
        }
        bench.put(txid, [&whole[..], &[0]].concat()).await;
        bench.restore().await.unwrap_err();
    }
    assert!(tried > 2000, "{tried}");
}

#[tokio::test]
async fn no_flipped_byte_changes_a_row() {
    let (mut refused, mut harmless) = (0, 0);
    for (txid, whole) in small_files() {
        let bench = with(txid, &whole).await;
        let right = bench.restore().await.unwrap();
        for at in 0..whole.len() {
            for mask in [0x01, 0x10, 0x80, 0xff] {
                let mut flipped = whole.clone();
                flipped[at] ^= mask;
                bench.put(txid, flipped).await;
                match bench.restore().await {
                    // Some bits of a compressed page decide nothing.
                    Ok(database) => {
                        assert!(database == right, "byte {at} ^ {mask:#x}");
                        harmless += 1;
                    }
                    Err(_) => refused += 1,
                }
            }
        }
    }
    assert!(refused > 9_000 && harmless < refused / 50, "{refused} refused, {harmless} harmless");
    assert_memory_is_bounded();
}

/// Numbers that a file states, at their ends: position, bytes, and what they claim.
const EXTREMES: [(usize, &[u8], &str); 11] = [
    (8, &[0, 1, 0, 0], "pages of 64 KiB"),
    (8, &[0xff; 4], "a page size of 4 GiB"),
    (12, &[0xff; 4], "4 G pages"),
    (12, &[0; 4], "no page"),
    (16, &[0xff; 16], "the last transaction there can be"),
    (24, &[0xff; 8], "all transactions there can be"),
    (32, &[0x7f, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff], "the end of time"),
    (32, &[0x80, 0, 0, 0, 0, 0, 0, 0], "the beginning of time"),
    (100, &[0xff; 4], "page 4 G"),
    (106, &[0xff; 4], "a compressed page of 4 GiB"),
    (106, &[0; 4], "a compressed page of nothing"),
];

#[tokio::test]
async fn extreme_numbers_are_refused() {
    for (txid, whole) in small_files() {
        let bench = with(txid, &whole).await;
        for (at, claim, what) in EXTREMES {
            let mut claiming = whole.clone();
            claiming[at..at + claim.len()].copy_from_slice(claim);
            bench.put(txid, claiming).await;
            bench.restore().await.expect_err(what);
        }
    }
    assert_memory_is_bounded();
}

#[tokio::test]
async fn extreme_indexes_are_refused() {
    let (txid, whole) = &small_files()[0];
    let tail = whole.len() - 24;
    let bench = with(*txid, whole).await;
    let varint = |last: u8| [&[0xff; 9][..], &[last]].concat();
    let endless = [0xff; 5000].to_vec();
    for index in [varint(1), varint(0x7f), endless, vec![0x80, 0], vec![1, 0x80, 0x80, 0]] {
        let start = whole.len() - 24 - usize::from(whole[tail + 7]);
        let changed = [&whole[..start], &index[..], &whole[tail..]].concat();
        bench.put(*txid, changed).await;
        bench.restore().await.unwrap_err();
    }
    for claim in [u64::MAX, 0, 1 << 63] {
        let mut changed = whole.clone();
        changed[tail..tail + 8].copy_from_slice(&claim.to_be_bytes());
        bench.put(*txid, changed).await;
        bench.restore().await.unwrap_err();
    }
}

#[test]
fn a_planned_size_beyond_all_bytes_is_only_unfinished() {
    let dir = TempDir::new().unwrap();
    let range = TxidRange::new(Txid(1), Txid(u64::MAX)).unwrap();
    let planned = vec![PlannedFile { level: 9, range, size: u64::MAX }];
    let restore = Restore::create(&dir.path().join("out.db"), planned, OPTIONS).unwrap();
    let unfinished = restore.finish().unwrap_err();
    assert!(matches!(unfinished, RestoreError::Unfinished { missing: u64::MAX, .. }));
}

/// Ten thousand planned files: each rewrites a page, and the last ones win.
#[tokio::test]
async fn ten_thousand_planned_files_are_applied() {
    let bench = Bench::new();
    bench.put(1, ltx(Encoding::Block, 1, 3, &[1, 2, 3])).await;
    for txid in 2..=10_000 {
        bench.put(txid, ltx(Encoding::Block, txid, 3, &[2 + (txid % 2) as u32])).await;
    }
    let plan = plan_replica(&bench.replica(), Target::Newest).await.unwrap();
    assert_eq!(plan.files().len(), 10_000);
    let database = bench.restore().await.unwrap();
    assert_eq!(database[PAGE..2 * PAGE], page(2, 10_000, 3));
    assert_eq!(database[2 * PAGE..], page(3, 9_999, 3));
    // Two more than a plan may have, and then the listing itself is refused.
    for txid in 10_001..=20_001 {
        bench.put(txid, ltx(Encoding::Block, txid, 3, &[2])).await;
    }
    let refused = bench.restore().await.unwrap_err();
    let too_many = RestoreFailure::Plan(PlanError::TooManyFiles { files: 20_001 });
    assert_eq!(refused.to_string(), too_many.to_string());
    assert_memory_is_bounded();
}

/// The tests of this file share a process; what they hold at most is far below what the claims
/// above would take.
fn assert_memory_is_bounded() {
    let Ok(status) = std::fs::read_to_string("/proc/self/status") else { return };
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).unwrap();
    let kib: u64 = line.trim().trim_end_matches(" kB").parse().unwrap();
    assert!(kib < 256 << 10, "{kib} KiB");
}
