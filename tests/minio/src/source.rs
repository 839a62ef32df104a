//! A SQLite database and its replica in a bucket, by the product's own writer.

use std::io;
use std::path::PathBuf;

use carlos_bucket::Context;
use carlos_bucket::layer::Inner;
use carlos_replica::writer::{PageSource, ReplicaWriter};
use rusqlite::Connection;
use tempfile::TempDir;

/// A database that is replicated when told to.
pub struct Source {
    pub path: PathBuf,
    pub db: Connection,
    writer: ReplicaWriter,
    _dir: TempDir,
}

impl Source {
    /// A database made by `schema`, replicated under `prefix` of `data`.
    pub async fn create(data: Inner, prefix: &str, schema: &str) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("source.db");
        let db = Connection::open(&path).unwrap();
        db.execute_batch(schema).unwrap();
        let writer = ReplicaWriter::open(data, prefix).await.unwrap();
        let mut source = Self { path, db, writer, _dir: dir };
        source.sync().await;
        source
    }

    /// Replicates what has changed.
    pub async fn sync(&mut self) {
        let mut pages = Pages(std::fs::read(&self.path).unwrap());
        let now_ms = i64::try_from(Context::system().now_unix_ms()).unwrap();
        self.writer.sync(&mut pages, now_ms).await.unwrap();
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
