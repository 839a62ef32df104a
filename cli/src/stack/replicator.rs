//! Keeps a replica of one SQLite file up to date: a level-0 file within two seconds of a commit,
//! so that `--at` can name any of them.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use carlos_bucket::Context;
use carlos_replica::Txid;
use carlos_replica::writer::{ReplicaWriter, WriteError};
use object_store::ObjectStore;
use tokio_util::sync::CancellationToken;

use super::source::{Pages, Source, SourceError};

/// How often the source is asked whether it has changed. A commit is replicated within this and
/// the time of one copy, well under the two seconds that `carlos dev` promises.
const LOOK_EVERY: Duration = Duration::from_millis(500);

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
}

/// Replicates one file into one prefix of a region's data bucket.
pub(crate) struct Replicator {
    source: Source,
    writer: ReplicaWriter,
    copy: PathBuf,
    context: Context,
    since_snapshot: u64,
}

impl Replicator {
    /// Opens the source read-only and the replica to go on after what is there. The first
    /// [`Replicator::sync`] writes every page and a snapshot.
    pub(crate) async fn open(
        database: &Path,
        store: Arc<dyn ObjectStore>,
        prefix: &str,
        copy: PathBuf,
        context: Context,
    ) -> Result<Self, ReplicateError> {
        let source = Source::open(database)?;
        let writer = ReplicaWriter::open(store, prefix).await?;
        Ok(Self { source, writer, copy, context, since_snapshot: SNAPSHOT_EVERY })
    }

    /// Writes what has changed since the last call, if anything has.
    pub(crate) async fn sync(&mut self) -> Result<Option<Txid>, ReplicateError> {
        if !self.source.changed()? {
            return Ok(None);
        }
        let mut pages = self.source.copy_to(&self.copy)?;
        let written = self.write(&mut pages).await;
        if written.is_err() {
            // The source holds something that the replica does not: look again next time.
            self.source.forget();
        }
        Ok(written?)
    }

    async fn write(&mut self, pages: &mut Pages) -> Result<Option<Txid>, WriteError> {
        let now_ms = i64::try_from(self.context.now_unix_ms()).unwrap_or(i64::MAX);
        if self.writer.sync(pages, now_ms).await?.is_none() {
            return Ok(None);
        }
        self.since_snapshot += 1;
        if self.since_snapshot > SNAPSHOT_EVERY {
            self.writer.snapshot(pages, now_ms).await?;
            self.since_snapshot = 0;
        }
        Ok(Some(self.writer.txid()))
    }

    /// Follows the source until `shutdown`. A failure is reported and tried again: the source may
    /// be locked for a while, or its disk full.
    pub(crate) async fn follow(mut self, shutdown: CancellationToken) {
        loop {
            tokio::select! {
                biased;
                () = shutdown.cancelled() => return,
                () = self.context.sleep(LOOK_EVERY) => {}
            }
            match self.sync().await {
                Ok(Some(txid)) => tracing::debug!(%txid, "replicated"),
                Ok(None) => {}
                Err(error) => tracing::warn!(%error, "not replicated; trying again"),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use carlos_replica::{
        Layout, ReplicaReader as _, Resolution, RestoreOptions, StoreReplica, Target, plan,
        restore_to_file,
    };
    use object_store::memory::InMemory;
    use rusqlite::Connection;

    use super::*;

    async fn count(store: Arc<InMemory>, dir: &Path, name: &str) -> i64 {
        let replica = StoreReplica::new(store, "a", Layout::S3, Resolution::Full).unwrap();
        let out = dir.join(name);
        let listing = replica.listing().await.unwrap();
        let first = plan(&listing, Target::Newest, Resolution::Full).unwrap();
        let options = RestoreOptions { max_bytes: 1 << 20, durable: false };
        restore_to_file(&replica, first, Target::Newest, &out, options).await.unwrap();
        let flags = rusqlite::OpenFlags::SQLITE_OPEN_READ_WRITE;
        let db = Connection::open_with_flags(&out, flags).unwrap();
        db.query_row("SELECT count(*) FROM t", [], |row| row.get(0)).unwrap()
    }

    #[tokio::test]
    async fn every_commit_reaches_the_replica_and_no_more() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("a.db");
        let db = Connection::open(&path).unwrap();
        db.pragma_update(None, "journal_mode", "wal").unwrap();
        db.execute_batch("CREATE TABLE t (n INTEGER)").unwrap();
        let store = Arc::new(InMemory::new());
        let copy = dir.path().join("copy");
        let context = Context::system();
        let mut replicator =
            Replicator::open(&path, store.clone(), "a", copy.clone(), context.clone())
                .await
                .unwrap();
        assert_eq!(replicator.sync().await.unwrap(), Some(Txid::FIRST));
        assert_eq!(replicator.sync().await.unwrap(), None);
        db.execute("INSERT INTO t VALUES (1), (2)", []).unwrap();
        assert!(replicator.sync().await.unwrap().is_some());
        assert_eq!(count(store.clone(), dir.path(), "first").await, 2);
        drop(replicator);
        db.execute("INSERT INTO t VALUES (3)", []).unwrap();
        let mut again = Replicator::open(&path, store.clone(), "a", copy, context).await.unwrap();
        again.sync().await.unwrap();
        assert_eq!(count(store, dir.path(), "second").await, 3);
    }
}
