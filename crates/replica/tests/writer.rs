//! Replicas written here, restored by the engine, from databases under change.
#![allow(clippy::disallowed_methods, clippy::disallowed_macros, clippy::unwrap_used)]

mod common;

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use carlos_replica::writer::{PageSource, ReplicaWriter, WriteError};
use carlos_replica::{Layout, ReplicaReader, Resolution, StoreReplica, Target, Txid, plan};
use common::restore;
use object_store::ObjectStore;
use object_store::memory::InMemory;
use proptest::prelude::*;
use rusqlite::Connection;
use tempfile::TempDir;

/// A whole database file in memory.
struct Bytes {
    page_size: u32,
    bytes: Vec<u8>,
}

impl Bytes {
    fn of(path: &Path) -> Self {
        let bytes = std::fs::read(path).unwrap();
        let stored = u16::from_be_bytes([bytes[16], bytes[17]]);
        Self { page_size: if stored == 1 { 65_536 } else { stored.into() }, bytes }
    }
}

impl PageSource for Bytes {
    fn page_size(&self) -> u32 {
        self.page_size
    }

    fn commit(&self) -> u32 {
        (self.bytes.len() / self.page_size as usize) as u32
    }

    fn read_page(&mut self, number: u32, page: &mut [u8]) -> io::Result<()> {
        let start = (number as usize - 1) * page.len();
        page.copy_from_slice(&self.bytes[start..start + page.len()]);
        Ok(())
    }
}

struct Bench {
    dir: TempDir,
    store: Arc<dyn ObjectStore>,
}

impl Bench {
    fn new() -> Self {
        Self { dir: TempDir::new().unwrap(), store: Arc::new(InMemory::new()) }
    }

    fn source(&self) -> PathBuf {
        self.dir.path().join("source.db")
    }

    fn database(&self, page_size: u32) -> Connection {
        let db = Connection::open(self.source()).unwrap();
        let setup =
            format!("PRAGMA page_size={page_size}; PRAGMA auto_vacuum=2; CREATE TABLE t(b);");
        db.execute_batch(&setup).unwrap();
        db
    }

    async fn writer(&self) -> ReplicaWriter {
        ReplicaWriter::open(self.store.clone(), "data/shop").await.unwrap()
    }

    fn replica(&self) -> StoreReplica {
        StoreReplica::new(self.store.clone(), "data/shop", Layout::Auto, Resolution::Full).unwrap()
    }

    async fn assert_restores_to(&self, target: Target, bytes: &[u8]) {
        let (database, _) = restore(&self.replica(), target, self.dir.path()).await.unwrap();
        assert!(std::fs::read(database).unwrap() == bytes, "{target:?} differs");
    }
}

fn change(db: &Connection, step: u8) {
    let sql = match step % 5 {
        0 => "INSERT INTO t SELECT randomblob(700) FROM generate_series(1, 40)",
        1 => "DELETE FROM t WHERE rowid % 3 = 0",
        2 => "UPDATE t SET b = randomblob(300) WHERE rowid % 5 = 1",
        3 => "VACUUM",
        _ => "PRAGMA incremental_vacuum(5)",
    };
    let sql = sql.replace(
        "FROM generate_series(1, 40)",
        "FROM (WITH RECURSIVE n(i) AS \
        (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 40) SELECT i FROM n)",
    );
    db.execute_batch(&sql).unwrap();
}

async fn every_state_is_restored(page_size: u32, steps: &[u8]) {
    let bench = Bench::new();
    let db = bench.database(page_size);
    let mut writer = bench.writer().await;
    let mut states: Vec<(Txid, Vec<u8>)> = Vec::new();
    for (at, step) in steps.iter().enumerate() {
        change(&db, *step);
        let mut source = Bytes::of(&bench.source());
        let now_ms = 1_000 * at as i64;
        if writer.sync(&mut source, now_ms).await.unwrap().is_some() {
            states.push((writer.txid(), source.bytes.clone()));
        }
        if step % 7 == 0 && writer.txid() > Txid::NONE {
            writer.snapshot(&mut source, now_ms).await.unwrap();
        }
    }
    for (txid, bytes) in &states {
        bench.assert_restores_to(Target::Txid(*txid), bytes).await;
    }
    bench.assert_restores_to(Target::Newest, &states.last().unwrap().1).await;
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(12))]

    #[test]
    fn any_workload_is_restored_byte_for_byte(
        shift in 0u32..8,
        steps in proptest::collection::vec(any::<u8>(), 1..12),
    ) {
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        runtime.block_on(every_state_is_restored(512 << shift, &steps));
    }
}

#[tokio::test]
async fn nothing_is_written_when_nothing_changed() {
    let bench = Bench::new();
    let db = bench.database(4096);
    let mut writer = bench.writer().await;
    let mut sync = async || {
        let mut source = Bytes::of(&bench.source());
        writer.sync(&mut source, 5).await.unwrap().map(|written| written.pages)
    };
    assert_eq!(sync().await, Some(Bytes::of(&bench.source()).commit()));
    assert_eq!(sync().await, None);
    db.execute_batch("INSERT INTO t VALUES (1)").unwrap();
    assert_eq!(sync().await, Some(2), "the table's leaf and page 1");
}

#[tokio::test]
async fn a_writer_goes_on_where_another_ended() {
    let bench = Bench::new();
    let db = bench.database(1024);
    let mut source = Bytes::of(&bench.source());
    bench.writer().await.sync(&mut source, 1).await.unwrap();
    db.execute_batch("INSERT INTO t VALUES (zeroblob(9000))").unwrap();
    let mut source = Bytes::of(&bench.source());
    let mut second = bench.writer().await;
    assert_eq!(second.txid(), Txid(1));
    let written = second.sync(&mut source, 2).await.unwrap().unwrap();
    assert_eq!(written.pages, source.commit(), "what had changed was not known");
    let listing = bench.replica().listing().await.unwrap();
    let plan = plan(&listing, Target::Newest, Resolution::Full).unwrap();
    assert_eq!((plan.txid(), plan.files().len()), (Txid(2), 2));
    bench.assert_restores_to(Target::Newest, &source.bytes).await;
}

#[tokio::test]
async fn large_files_are_stored_in_parts() {
    let bench = Bench::new();
    let db = bench.database(4096);
    db.execute_batch("INSERT INTO t VALUES (randomblob(20000000))").unwrap();
    let mut source = Bytes::of(&bench.source());
    let written = bench.writer().await.sync(&mut source, 1).await.unwrap().unwrap();
    assert!(written.file.size > 2 * (8 << 20));
    let listed = bench.replica().list(0).await.unwrap();
    assert_eq!(listed[0].size, written.file.size);
    bench.assert_restores_to(Target::Newest, &source.bytes).await;
}

#[tokio::test]
async fn sources_that_are_no_database_are_refused() {
    let bench = Bench::new();
    let mut writer = bench.writer().await;
    let mut empty = Bytes { page_size: 512, bytes: Vec::new() };
    assert!(matches!(writer.sync(&mut empty, 0).await, Err(WriteError::Empty)));
    let mut odd = Bytes { page_size: 1000, bytes: vec![0; 1000] };
    assert!(matches!(writer.sync(&mut odd, 0).await, Err(WriteError::PageSize(1000))));
    let mut source = Bytes { page_size: 512, bytes: vec![0; 512] };
    let early = writer.snapshot(&mut source, 0).await;
    assert!(matches!(early, Err(WriteError::NothingSynced)));
}
