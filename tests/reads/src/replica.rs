//! A real SQLite file and the replica that the product's own writer makes of it.

use std::io;
use std::path::PathBuf;

use carlos_bucket::Context;
use carlos_bucket::layer::Inner;
use carlos_replica::writer::{PageSource, ReplicaWriter};
use rusqlite::Connection;
use tempfile::TempDir;

/// A database and its replica under `<prefix>/<host>` of a data bucket.
pub struct Source {
    /// The file, whole after each commit: it is in rollback mode.
    pub path: PathBuf,
    /// For changes; what they do reaches the replica with [`Source::sync`].
    pub db: Connection,
    writer: ReplicaWriter,
    context: Context,
    _dir: TempDir,
}

impl Source {
    /// Makes a database with `schema`, replicated under `prefix` of `data`.
    pub async fn create(context: &Context, data: &Inner, prefix: &str, schema: &str) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("source.db");
        let db = Connection::open(&path).unwrap();
        db.execute_batch(schema).unwrap();
        let writer = ReplicaWriter::open(data.clone(), prefix).await.unwrap();
        let mut source = Self { path, db, writer, context: context.clone(), _dir: dir };
        source.sync().await;
        source
    }

    /// Replicates what has changed as the next transaction, and gives its number.
    pub async fn sync(&mut self) -> u64 {
        let mut pages = Pages(std::fs::read(&self.path).unwrap());
        let now_ms = i64::try_from(self.context.now_unix_ms()).unwrap();
        self.writer.sync(&mut pages, now_ms).await.unwrap();
        self.writer.txid().0
    }

    /// Changes the database and replicates it.
    pub async fn change(&mut self, sql: &str) -> u64 {
        self.db.execute_batch(sql).unwrap();
        self.sync().await
    }
}

struct Pages(Vec<u8>);

impl PageSource for Pages {
    fn page_size(&self) -> u32 {
        // Offset 16 of a database file; 1 stands for 65,536.
        match u16::from_be_bytes([self.0[16], self.0[17]]) {
            1 => 65_536,
            size => u32::from(size),
        }
    }

    fn commit(&self) -> u32 {
        u32::try_from(self.0.len()).unwrap() / self.page_size()
    }

    fn read_page(&mut self, number: u32, page: &mut [u8]) -> io::Result<()> {
        let start = (number as usize - 1) * page.len();
        page.copy_from_slice(&self.0[start..start + page.len()]);
        Ok(())
    }
}
