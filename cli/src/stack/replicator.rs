//! Keeps a replica of one SQLite file up to date: a level-0 file within two seconds of a commit,
//! so that `--at` can name any of them.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use carlos_bucket::Context;
use carlos_replica::restore::plan_replica;
use carlos_replica::writer::{PageSource as _, ReplicaWriter, WriteError};
use carlos_replica::{
    Layout, Resolution, RestoreFailure, RestoreOptions, StoreReplica, Target, Txid, restore_to_file,
};
use object_store::ObjectStore;
use tokio_util::sync::CancellationToken;

use super::source::{Pages, Source, SourceError};

/// How often the source is asked whether it has changed. A commit is replicated within this and
/// the time of one copy, well under the two seconds that `carlos dev` promises.
const LOOK_EVERY: Duration = Duration::from_millis(500);

/// After a copy that took so long, the source is left alone for this many times as long: a
/// database with a rollback journal is locked against its writers while it is copied.
const UNLOCKED_SHARE: u32 = 4;

/// Level-0 files between two snapshots. Nothing here compacts, so this bounds how many files a
/// restore has to read.
const SNAPSHOT_EVERY: u64 = 256;

/// Why the file is not replicated.
#[derive(Debug, thiserror::Error)]
pub enum ReplicateError {
    #[error(transparent)]
    Source(#[from] SourceError),
    #[error("the replica could not be written: {0}")]
    Write(#[from] WriteError),
    #[error("what an earlier run has replicated cannot be restored: {0}")]
    Earlier(#[from] RestoreFailure),
}

/// Replicates one file into one prefix of a region's data bucket.
pub(crate) struct Replicator {
    source: Source,
    writer: ReplicaWriter,
    copy: PathBuf,
    context: Context,
    since_snapshot: u64,
    /// How long the last copy took. The source is locked against writers for as long, unless it
    /// is in WAL mode.
    copying: Duration,
}

impl Replicator {
    /// Goes on with the replica under `prefix`, or begins there. What an earlier run left is
    /// restored once, so that only what has changed since is written.
    pub(crate) async fn open(
        source: Source,
        store: Arc<dyn ObjectStore>,
        prefix: &str,
        copy: PathBuf,
        context: Context,
    ) -> Result<Self, ReplicateError> {
        let mut writer = ReplicaWriter::open(store.clone(), prefix).await?;
        let mut since_snapshot = SNAPSHOT_EVERY;
        if writer.txid() != Txid::NONE {
            let mut restored = newest(store, prefix, &copy).await?;
            writer.remember(&mut restored)?;
            since_snapshot = 0;
        }
        let copying = Duration::ZERO;
        Ok(Self { source, writer, copy, context, since_snapshot, copying })
    }

    /// Writes what has changed since the last call, if anything has.
    pub(crate) async fn sync(&mut self) -> Result<Option<Txid>, ReplicateError> {
        if !self.source.changed()? {
            return Ok(None);
        }
        let started = self.context.monotonic();
        let mut pages = self.source.copy_to(&self.copy)?;
        self.copying = self.context.monotonic().saturating_sub(started);
        let written = self.write(&mut pages).await;
        if written.is_err() {
            // The source holds something that the replica does not: look again next time.
            self.source.forget();
        }
        Ok(written?)
    }

    async fn write(&mut self, pages: &mut Pages) -> Result<Option<Txid>, WriteError> {
        let now_ms = i64::try_from(self.context.now_unix_ms()).unwrap_or(i64::MAX);
        let before = self.writer.page_size();
        if self.writer.sync(pages, now_ms).await?.is_none() {
            return Ok(None);
        }
        self.since_snapshot += 1;
        // Files of two page sizes do not make one database: a restore must begin after the change.
        let reshaped = before.is_some_and(|before| before != pages.page_size());
        if reshaped || self.since_snapshot > SNAPSHOT_EVERY {
            self.writer.snapshot(pages, now_ms).await?;
            self.since_snapshot = 0;
        }
        Ok(Some(self.writer.txid()))
    }

    /// Follows the source until `shutdown`. A failure is told once and tried again: the source may
    /// be locked for a while, or its disk full.
    pub(crate) async fn follow(mut self, shutdown: CancellationToken) {
        let mut told = String::new();
        loop {
            let wait = LOOK_EVERY.max(self.copying * UNLOCKED_SHARE);
            tokio::select! {
                biased;
                () = shutdown.cancelled() => return,
                () = self.context.sleep(wait) => {}
            }
            let now = match self.sync().await {
                Ok(_) => String::new(),
                Err(error) => error.to_string(),
            };
            if now != told {
                match now.is_empty() {
                    true => tracing::warn!("replicated again"),
                    false => tracing::warn!("not replicated, trying again: {now}"),
                }
                told = now;
            }
        }
    }
}

/// Restores the newest state under `prefix` into `copy`.
async fn newest(
    store: Arc<dyn ObjectStore>,
    prefix: &str,
    copy: &Path,
) -> Result<Pages, ReplicateError> {
    let replica =
        StoreReplica::new(store, prefix, Layout::S3, Resolution::Full).map_err(WriteError::from)?;
    let first = plan_replica(&replica, Target::Newest).await?;
    Pages::discard(copy)?;
    let options = RestoreOptions { max_bytes: u64::MAX, durable: false };
    restore_to_file(&replica, first, Target::Newest, copy, options).await?;
    Ok(Pages::open(copy)?)
}

#[cfg(test)]
mod tests {
    use object_store::memory::InMemory;
    use rusqlite::Connection;

    use super::*;

    struct Bench {
        dir: tempfile::TempDir,
        db: Connection,
        store: Arc<InMemory>,
    }

    impl Bench {
        fn new() -> Self {
            let dir = tempfile::tempdir().unwrap();
            let db = Connection::open(dir.path().join("a.db")).unwrap();
            db.execute_batch("CREATE TABLE t (n INTEGER)").unwrap();
            Self { dir, db, store: Arc::default() }
        }

        async fn open(&self) -> Replicator {
            let source = Source::open(&self.dir.path().join("a.db")).unwrap();
            let (store, copy) = (self.store.clone(), self.dir.path().join("copy"));
            Replicator::open(source, store, "a", copy, Context::system()).await.unwrap()
        }

        fn run(&self, sql: &str) {
            self.db.execute_batch(sql).unwrap();
        }

        /// Rows of `t` in what the replica restores to.
        async fn rows(&self) -> i64 {
            let out = self.dir.path().join("restored");
            drop(newest(self.store.clone(), "a", &out).await.unwrap());
            let db = Connection::open(&out).unwrap();
            db.query_row("SELECT count(*) FROM t", [], |row| row.get(0)).unwrap()
        }
    }

    #[tokio::test]
    async fn every_commit_reaches_the_replica_and_no_more() {
        let bench = Bench::new();
        bench.run("PRAGMA journal_mode = wal");
        let mut replicator = bench.open().await;
        assert_eq!(replicator.sync().await.unwrap(), Some(Txid::FIRST));
        assert_eq!(replicator.sync().await.unwrap(), None);
        bench.run("INSERT INTO t VALUES (1), (2)");
        assert!(replicator.sync().await.unwrap().is_some());
        assert_eq!(bench.rows().await, 2);
    }

    #[tokio::test]
    async fn another_start_writes_only_what_has_changed() {
        let bench = Bench::new();
        bench.open().await.sync().await.unwrap();
        assert_eq!(bench.open().await.sync().await.unwrap(), None);
        bench.run("INSERT INTO t VALUES (3)");
        assert!(bench.open().await.sync().await.unwrap().is_some());
        assert_eq!(bench.rows().await, 1);
    }

    #[tokio::test]
    async fn a_change_of_page_size_leaves_a_replica_that_restores() {
        let bench = Bench::new();
        let mut replicator = bench.open().await;
        replicator.sync().await.unwrap();
        for (rows, size) in [(1, 1024), (2, 16384), (3, 4096)] {
            bench.run(&format!("INSERT INTO t VALUES (1); PRAGMA page_size = {size}; VACUUM"));
            replicator.sync().await.unwrap();
            assert_eq!(bench.rows().await, rows);
        }
        bench.run("INSERT INTO t VALUES (1)");
        replicator.sync().await.unwrap();
        assert_eq!(bench.rows().await, 4);
    }
}
