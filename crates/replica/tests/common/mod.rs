//! Fixtures in a temporary copy with their recorded file times, and what was recorded of them.
#![allow(dead_code)]

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use carlos_replica::{Layout, Plan, ReplicaReader, Resolution, Restored, StoreReplica, Target};
use carlos_replica::{RestoreFailure, RestoreOptions, plan, restore_to_file};
use object_store::local::LocalFileSystem;
use serde_json::Value;
use sha2::{Digest, Sha256};
use tempfile::TempDir;

pub(crate) const OPTIONS: RestoreOptions = RestoreOptions { max_bytes: 2 << 30, durable: false };

/// One fixture, copied to where its files have their times.
pub(crate) struct Fixture {
    pub(crate) name: String,
    pub(crate) expected: Value,
    pub(crate) dir: TempDir,
}

impl Fixture {
    pub(crate) fn load(name: &str) -> Self {
        let source = fixtures().join(name);
        let text = fs::read_to_string(source.join("expected.json")).unwrap();
        let expected: Value = serde_json::from_str(&text).unwrap();
        let dir = TempDir::new().unwrap();
        copy_tree(&source.join("replica"), &dir.path().join("replica"));
        let fixture = Self { name: name.to_owned(), expected, dir };
        fixture.set_times();
        fixture
    }

    /// All fixtures that hold a file replica.
    pub(crate) fn all() -> impl Iterator<Item = Self> {
        let mut names: Vec<_> = fs::read_dir(fixtures())
            .unwrap()
            .map(|entry| entry.unwrap().file_name().into_string().unwrap())
            .filter(|name| !["s3-layout", "lock-page", "README.md"].contains(&name.as_str()))
            .collect();
        names.sort();
        names.into_iter().map(|name| Self::load(&name))
    }

    pub(crate) fn replica_dir(&self) -> PathBuf {
        self.dir.path().join("replica")
    }

    pub(crate) fn reader(&self) -> StoreReplica {
        reader(&self.replica_dir(), "", Layout::Auto, Resolution::Full)
    }

    pub(crate) async fn plan(&self, target: Target) -> Result<Plan, RestoreFailure> {
        let reader = self.reader();
        Ok(plan(&reader.listing().await?, target, reader.resolution())?)
    }

    /// Restores and gives the database's path.
    pub(crate) async fn restore(
        &self,
        target: Target,
    ) -> Result<(PathBuf, Restored), RestoreFailure> {
        restore(&self.reader(), target, self.dir.path()).await
    }

    pub(crate) fn text(&self, field: &str) -> Option<&str> {
        self.expected[field].as_str()
    }

    pub(crate) fn points(&self) -> &[Value] {
        self.expected["points"].as_array().map_or(&[], Vec::as_slice)
    }

    fn set_times(&self) {
        for file in self.expected["files"].as_array().into_iter().flatten() {
            let level = file["level"].as_u64().unwrap().to_string();
            let name = file["name"].as_str().unwrap();
            let path = self.replica_dir().join("ltx").join(level).join(name);
            if path.exists() {
                set_time(&path, file["mtime_ms"].as_u64().unwrap());
            }
        }
    }
}

pub(crate) fn fixtures() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures")
}

pub(crate) fn reader(
    dir: &Path,
    prefix: &str,
    layout: Layout,
    resolution: Resolution,
) -> StoreReplica {
    let store = Arc::new(LocalFileSystem::new_with_prefix(dir).unwrap());
    StoreReplica::new(store, prefix, layout, resolution).unwrap()
}

/// Restores into `dir` under a fresh name.
pub(crate) async fn restore(
    reader: &dyn ReplicaReader,
    target: Target,
    dir: &Path,
) -> Result<(PathBuf, Restored), RestoreFailure> {
    let out = (0..).map(|n| dir.join(format!("out-{n}.db"))).find(|path| !path.exists()).unwrap();
    let first = plan(&reader.listing().await?, target, reader.resolution())?;
    let (_, restored) = restore_to_file(reader, first, target, &out, OPTIONS).await?;
    Ok((out, restored))
}

pub(crate) fn set_time(path: &Path, unix_ms: u64) {
    let time = SystemTime::UNIX_EPOCH + Duration::from_millis(unix_ms);
    File::options().write(true).open(path).unwrap().set_modified(time).unwrap();
}

/// Copies what is there; a missing source is an empty directory that a checkout lost.
pub(crate) fn copy_tree(from: &Path, to: &Path) {
    fs::create_dir_all(to).unwrap();
    let Ok(entries) = fs::read_dir(from) else {
        return;
    };
    for entry in entries {
        let path = entry.unwrap().path();
        let target = to.join(path.file_name().unwrap());
        if path.is_dir() {
            copy_tree(&path, &target);
        } else {
            fs::copy(&path, &target).unwrap();
        }
    }
}

pub(crate) fn sha256(path: &Path) -> String {
    let mut digest = Sha256::new();
    std::io::copy(&mut File::open(path).unwrap(), &mut HashWriter(&mut digest)).unwrap();
    data_encoding::HEXLOWER.encode(&digest.finalize())
}

struct HashWriter<'a>(&'a mut Sha256);

impl std::io::Write for HashWriter<'_> {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.0.update(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

/// What `sql`, which yields one number, yields on a restored database.
pub(crate) fn count(database: &Path, sql: &str) -> i64 {
    use rusqlite::OpenFlags;
    let flags = OpenFlags::SQLITE_OPEN_READ_ONLY | OpenFlags::SQLITE_OPEN_URI;
    let uri = format!("file:{}?immutable=1", database.display());
    let db = rusqlite::Connection::open_with_flags(uri, flags).unwrap();
    db.query_row(sql, [], |row| row.get(0)).unwrap()
}

/// Whether SQLite finds nothing wrong with a restored database.
pub(crate) fn is_intact(database: &Path) -> bool {
    count(database, "SELECT count(*) FROM pragma_integrity_check WHERE integrity_check = 'ok'") == 1
}

/// `2026-11-30T14:14:52.587Z` in milliseconds since the Unix epoch.
pub(crate) fn unix_ms(text: &str) -> i64 {
    let number = |range: std::ops::Range<usize>| text[range].parse::<i64>().unwrap();
    let (year, month, day) = (number(0..4), number(5..7), number(8..10));
    // Days from the civil date, with March as the first month.
    let (y, m) = if month > 2 { (year, month - 3) } else { (year - 1, month + 9) };
    let days = 365 * y + y / 4 - y / 100 + y / 400 + (153 * m + 2) / 5 + day - 1 - 719_468;
    let seconds = days * 86_400 + number(11..13) * 3600 + number(14..16) * 60 + number(17..19);
    let fraction = text[19..].trim_end_matches('Z').trim_start_matches('.');
    seconds * 1000 + format!("{fraction:0<3}")[..3].parse::<i64>().unwrap()
}
