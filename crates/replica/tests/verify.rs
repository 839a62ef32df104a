//! What `carlos replica verify` and `carlos replica ls` say about replicas of every kind.
#![allow(clippy::disallowed_methods, clippy::disallowed_macros, clippy::unwrap_used)]

mod common;

use std::path::Path;
use std::time::SystemTime;

use carlos_replica::ls::{LsReport, ls};
use carlos_replica::verify::{VerifyReport, verify};
use carlos_replica::{Layout, Resolution, Target};
use common::{Fixture, reader};

async fn verified(fixture: &Fixture) -> VerifyReport {
    verify(&fixture.reader()).await.unwrap()
}

async fn listed(fixture: &Fixture) -> LsReport {
    ls(&fixture.reader()).await.unwrap()
}

#[tokio::test]
async fn a_replica_is_sound_when_a_restore_succeeds() {
    let (mut sound, mut unsound) = (0, 0);
    for fixture in Fixture::all() {
        let report = verified(&fixture).await;
        let restored = fixture.restore(Target::Newest).await;
        let name = &fixture.name;
        assert_eq!(report.sound, restored.is_ok() && report.damaged.is_empty(), "{name}");
        if let Ok((_, restored)) = restored {
            let newest = report.newest.unwrap();
            assert_eq!(newest.txid, restored.txid.to_string(), "{name}");
            assert_eq!(report.problem, None, "{name}");
        } else {
            assert!(report.problem.is_some(), "{name}");
        }
        assert_eq!(report.vanished, 0, "{name}");
        if report.sound { sound += 1 } else { unsound += 1 }
    }
    assert_eq!((sound, unsound), (26, 18));
}

#[tokio::test]
async fn damage_is_named_file_by_file_and_older_states_stay() {
    let report = verified(&Fixture::load("corrupt-page-literal")).await;
    let [damage] = &report.damaged[..] else { unreachable!("{:?}", report.damaged) };
    assert_eq!((damage.level, &*damage.name), (0, "0000000000000005-0000000000000005.ltx"));
    assert!(damage.problem.contains("checksum mismatch"), "{}", damage.problem);
    assert!(report.problem.unwrap().starts_with("1 of the files"));
    assert_eq!(report.levels[0].restores.as_deref(), Some("0x4"));
    assert_eq!(report.newest, None, "0x6 and later are there and cannot be reached");
}

#[tokio::test]
async fn gaps_and_what_each_level_restores_are_said() {
    let covered = verified(&Fixture::load("gap-covered-by-l1")).await;
    assert!(covered.sound);
    let gap = &covered.levels[0].gaps[0];
    assert_eq!((&*gap.after, &*gap.next), ("0x1", "0x7"));
    let restores: Vec<_> = covered.levels.iter().map(|level| level.restores.clone()).collect();
    let expected = ["0x1", "0x8", "0x1"].map(|txid| Some(txid.to_owned()));
    assert_eq!(restores, expected);
    let broken = verified(&Fixture::load("gap-l0")).await;
    assert!(!broken.sound && broken.damaged.is_empty());
    assert!(broken.problem.unwrap().contains("lead up to 0x4"));
}

#[tokio::test]
async fn the_reachable_range_is_that_of_plans() {
    let fixture = Fixture::load("multi-level");
    let report = verified(&fixture).await;
    let oldest = report.oldest_ms.unwrap();
    assert!(fixture.plan(Target::Before(oldest)).await.is_ok());
    assert!(fixture.plan(Target::Before(oldest - 1)).await.is_err());
    let listed = listed(&fixture).await;
    assert_eq!((listed.newest, listed.oldest_ms), (report.newest, report.oldest_ms));
    assert_eq!((listed.files.len() as u64, listed.bytes), (report.files, report.bytes));
}

/// What stands under the prefix, and a part of what it is called.
const FOREIGN: [(&str, &[u8], &str); 9] = [
    ("db.age", b"age-encryption.org/v1\n-> X", "encrypted with age"),
    ("app.db", b"SQLite format 3\0...........", "a SQLite database"),
    ("app.db-wal", b"\x37\x7f\x06\x82........", "write-ahead log"),
    ("a.lz4", b"\x04\x22\x4d\x18........", "bare LZ4 frame"),
    ("b.zst", b"\x28\xb5\x2f\xfd........", "zstd"),
    ("c.gz", b"\x1f\x8b........", "gzip"),
    ("error.xml", b"<?xml version='1.0'?>", "HTML or XML"),
    ("nothing", b"", "it is empty"),
    ("0009/copy-of-0001.ltx", b"LTX1............", "an LTX file where no"),
];

#[tokio::test]
async fn what_is_not_a_replica_is_named_for_what_it_is() {
    let dir = tempfile::TempDir::new().unwrap();
    for (name, bytes, _) in FOREIGN {
        write(&dir.path().join(name), bytes);
    }
    write(&dir.path().join("lock.json"), b"{}");
    write(&dir.path().join("0000/x.ltx.tmp"), b"LTX1");
    let replica = reader(dir.path(), "", Layout::Auto, Resolution::Full);
    let report = ls(&replica).await.unwrap();
    assert!(report.files.is_empty() && report.layout.is_none() && report.newest.is_none());
    for (name, _, phrase) in FOREIGN {
        let found = report.others.iter().find(|others| others.example == name);
        assert!(found.is_some_and(|others| others.kind.contains(phrase)), "{name}: {report:?}");
    }
    let kinds: Vec<_> = report.others.iter().map(|others| &*others.kind).collect();
    assert!(kinds.contains(&"Litestream's lease") && kinds.contains(&"left over from an upload"));
    assert!(!verify(&replica).await.unwrap().sound);
}

#[tokio::test]
async fn old_replicas_and_other_formats_are_named() {
    let old = verified(&Fixture::load("v03-generations")).await;
    assert!(old.problem.unwrap().contains("Litestream 0.3"));
    for (name, phrase) in [
        ("old-header-flag-lz4", "format 1 (LiteFS"),
        ("unknown-magic", "magic LTX2"),
        ("unknown-header-flag", "unknown header flags 0x6"),
    ] {
        let report = verified(&Fixture::load(name)).await;
        assert!(report.damaged[0].problem.contains(phrase), "{name}: {:?}", report.damaged);
    }
}

/// A file of each kind in the place of a transaction file.
#[tokio::test]
async fn foreign_bytes_under_a_transaction_files_name_are_named() {
    for (_, bytes, phrase) in FOREIGN.iter().take(7) {
        let fixture = Fixture::load("tiny");
        let place = "ltx/0/0000000000000001-0000000000000001.ltx";
        write(&fixture.replica_dir().join(place), &[bytes, &[0; 100][..]].concat());
        let report = verified(&fixture).await;
        assert!(report.damaged[0].problem.contains(phrase), "{:?}", report.damaged);
    }
}

#[tokio::test]
async fn reset_times_are_counted_and_seen_through() {
    let fixture = Fixture::load("chain");
    let before = verified(&fixture).await;
    assert_eq!(before.times_reset, 0);
    for file in listed(&fixture).await.files {
        let path = fixture.replica_dir().join(format!("ltx/{}/{}", file.level, file.name));
        let file = std::fs::File::options().write(true).open(path).unwrap();
        file.set_modified(SystemTime::now()).unwrap();
    }
    let after = verified(&fixture).await;
    assert_eq!(after.times_reset, after.files);
    assert_eq!((after.oldest_ms, after.newest), (before.oldest_ms, before.newest));
}

fn write(path: &Path, bytes: &[u8]) {
    std::fs::create_dir_all(path.parent().unwrap()).unwrap();
    std::fs::write(path, bytes).unwrap();
}
