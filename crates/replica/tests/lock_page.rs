//! A database that reaches past the lock page: just over 1 GiB, nearly all of it zeros.
#![allow(clippy::disallowed_methods, clippy::disallowed_macros, clippy::unwrap_used)]

mod common;

use std::fs::File;
use std::io::{BufReader, Read, Seek, SeekFrom};
use std::path::Path;

use carlos_replica::{Layout, Resolution, Target};
use common::{count, fixtures, reader, restore, sha256};

fn unpack(archive: &Path, to: &Path) {
    let mut tar = Vec::new();
    let mut compressed = BufReader::new(File::open(archive).unwrap());
    lzma_rs::xz_decompress(&mut compressed, &mut tar).unwrap();
    tar::Archive::new(&tar[..]).unpack(to).unwrap();
}

#[tokio::test]
async fn the_lock_page_is_zeros_and_every_other_page_is_right() {
    let dir = tempfile::TempDir::new().unwrap();
    unpack(&fixtures().join("lock-page/replica.tar.xz"), dir.path());
    let text = std::fs::read_to_string(fixtures().join("lock-page/expected.json")).unwrap();
    let expected: serde_json::Value = serde_json::from_str(&text).unwrap();
    let replica = reader(&dir.path().join("replica"), "", Layout::File, Resolution::Full);
    let (database, restored) = restore(&replica, Target::Newest, dir.path()).await.unwrap();
    assert_eq!(expected["newest"]["file_bytes"], restored.bytes);
    let mut lock_page = vec![1; 65_536];
    let mut file = File::open(&database).unwrap();
    file.seek(SeekFrom::Start(0x4000_0000)).unwrap();
    // This database ends before the lock page's end or holds it whole; both are in its length.
    let held = file.read(&mut lock_page).unwrap();
    assert!(lock_page[..held].iter().all(|byte| *byte == 0));
    assert_eq!(expected["newest"]["file_sha256"].as_str(), Some(&*sha256(&database)));
    assert_eq!(count(&database, "SELECT count(*) FROM t"), 35);
}
