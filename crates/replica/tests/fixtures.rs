//! Every fixture, against what the real Litestream does with it.
#![allow(clippy::disallowed_methods, clippy::disallowed_macros, clippy::unwrap_used)]

mod common;

use carlos_ltx::{LtxError, Part, Version};
use carlos_replica::plan::Gap;
use carlos_replica::{Layout, PlanError, ReadError, ReplicaReader, Resolution, RestoreError};
use carlos_replica::{RestoreFailure, Target, Txid, plan};
use common::{Fixture, count, is_intact, restore, sha256, unix_ms};

#[tokio::test]
async fn plans_and_restored_bytes_are_the_real_binarys() {
    let mut checked = 0;
    for fixture in Fixture::all().filter(|fixture| fixture.text("expect") == Some("ok")) {
        if fixture.expected["plan"].is_null() {
            continue;
        }
        check_plan(&fixture).await;
        let (database, restored) = fixture.restore(Target::Newest).await.unwrap();
        let newest = &fixture.expected["newest"];
        let name = &fixture.name;
        assert_eq!(newest["file_sha256"].as_str(), Some(&*sha256(&database)), "{name}");
        assert_eq!(newest["header_page_size"], restored.page_size, "{name}");
        assert_eq!(newest["file_bytes"], restored.bytes, "{name}");
        assert_eq!(fixture.text("txid"), Some(&*format!("{:016x}", restored.txid.0)), "{name}");
        assert!(is_intact(&database), "{name}");
        checked += 1;
    }
    assert_eq!(checked, 26);
}

async fn check_plan(fixture: &Fixture) {
    let plan = fixture.plan(Target::Newest).await.unwrap();
    let ours: Vec<_> =
        plan.files().iter().map(|file| (u64::from(file.level), file.range.name())).collect();
    let file = |file: &serde_json::Value| {
        (file["level"].as_u64().unwrap(), file["name"].as_str().unwrap().to_owned())
    };
    let theirs = fixture.expected["plan"].as_array().unwrap().iter().map(file);
    assert_eq!(ours, theirs.collect::<Vec<_>>(), "{}", fixture.name);
}

#[tokio::test]
async fn every_moment_gives_the_recorded_transaction_and_rows() {
    let mut checked = 0;
    for fixture in Fixture::all() {
        for point in fixture.points() {
            check_point(&fixture, point).await;
            checked += 1;
        }
    }
    assert_eq!(checked, 151);
}

async fn check_point(fixture: &Fixture, point: &serde_json::Value) {
    let time = unix_ms(point["timestamp"].as_str().unwrap());
    let place = format!("{} at {}", fixture.name, point["timestamp"]);
    let newest_ms = fixture.reader().listing().await.unwrap();
    let newest_ms = newest_ms.files().map(|file| file.created_ms).max().unwrap();
    let target = Target::Before(time);
    match (point["txid"].as_str(), point["rows"].as_i64()) {
        (Some(txid), rows) if !skips_a_gap(fixture, time) => {
            let (database, restored) = fixture.restore(target).await.expect(&place);
            assert_eq!(txid, format!("{:016x}", restored.txid.0), "{place}");
            let sql = fixture.text("count_sql").unwrap();
            assert_eq!(rows, Some(count(&database, sql)), "{place}");
        }
        // Litestream goes on in silence here; rows of before the gap are not that time's.
        (Some(_), _) => {
            let gap = Gap { have: Txid(4), next: Txid(6) };
            let refusal = fixture.plan(target).await.expect_err(&place);
            assert!(matches!(refusal, RestoreFailure::Plan(PlanError::Gap(g)) if g == gap));
        }
        // Litestream refuses moments after the newest file; here they mean the newest state.
        (None, _) if time > newest_ms => {
            let text = |failure: RestoreFailure| failure.to_string();
            let newest = fixture.plan(Target::Newest).await.map_err(text);
            assert_eq!(fixture.plan(target).await.map_err(text), newest, "{place}");
        }
        (None, _) => {
            let refusal = fixture.plan(target).await.expect_err(&place);
            assert!(matches!(refusal, RestoreFailure::Plan(PlanError::HistoryGone { .. })));
        }
    }
}

fn skips_a_gap(fixture: &Fixture, time_ms: i64) -> bool {
    let files = fixture.expected["files"].as_array().unwrap();
    let sixth = files
        .iter()
        .find(|file| file["name"] == "0000000000000006-0000000000000006.ltx" && file["level"] == 0);
    fixture.name == "gap-l0" && sixth.unwrap()["mtime_ms"].as_i64().unwrap() < time_ms
}

#[tokio::test]
async fn the_oldest_moment_named_is_one_that_works() {
    for name in ["multi-level", "chain", "snapshot-only"] {
        let fixture = Fixture::load(name);
        let refusal = fixture.plan(Target::Before(0)).await.unwrap_err();
        let RestoreFailure::Plan(PlanError::HistoryGone { oldest_ms }) = refusal else {
            unreachable!("{name}: {refusal}");
        };
        assert!(fixture.plan(Target::Before(oldest_ms)).await.is_ok(), "{name}");
        assert!(fixture.plan(Target::Before(oldest_ms - 1)).await.is_err(), "{name}");
    }
}

/// What the damage of TXID 5 must be called.
fn is_named(fixture: &str, cause: &LtxError) -> bool {
    match fixture {
        "corrupt-page" => matches!(cause, LtxError::Compression { page: 1, .. }),
        "old-header-flag-lz4" => *cause == LtxError::UnknownVersion(Version::Format1),
        "truncated-last-byte" | "truncated-trailer" => {
            matches!(cause, LtxError::Truncated { part: Part::Trailer, .. })
        }
        "truncated-mid-page" => matches!(cause, LtxError::Truncated { part: Part::PageBlock, .. }),
        "unknown-header-flag" => *cause == LtxError::UnknownHeaderFlags(6),
        "unknown-magic" => *cause == LtxError::UnknownVersion(Version::Magic(*b"LTX2")),
        _ => matches!(cause, LtxError::FileChecksum { .. }),
    }
}

#[tokio::test]
async fn damaged_files_are_refused_by_name_and_leave_nothing() {
    let mut checked = 0;
    for fixture in Fixture::all().filter(|fixture| fixture.text("expect") == Some("fail")) {
        if fixture.expected["plan"].is_null() || fixture.name == "checksum-tracked" {
            continue;
        }
        let refusal = fixture.restore(Target::Newest).await.unwrap_err();
        let name = fixture.name.as_str();
        match &refusal {
            RestoreFailure::Plan(PlanError::FileTooShort { size, .. }) => {
                assert!(name == "truncated-header" && *size == 60 || name == "zero-length");
            }
            RestoreFailure::Restore(RestoreError::Damaged { cause, .. }) => {
                assert!(is_named(name, cause), "{name}: {cause}");
            }
            other => unreachable!("{name}: {other}"),
        }
        assert_eq!(std::fs::read_dir(fixture.dir.path()).unwrap().count(), 1, "{name}");
        checked += 1;
    }
    assert_eq!(checked, 14);
}

#[tokio::test]
async fn placeholder_database_checksums_are_refused_as_such() {
    let refusal = Fixture::load("checksum-tracked").restore(Target::Newest).await.unwrap_err();
    assert!(
        matches!(
            refusal,
            RestoreFailure::Restore(
                RestoreError::ChecksumChain { .. } | RestoreError::DatabaseChecksum { .. }
            )
        ),
        "{refusal}"
    );
}

#[tokio::test]
async fn a_gap_names_both_ends() {
    let refusal = Fixture::load("gap-l0").plan(Target::Newest).await.unwrap_err();
    let text = refusal.to_string();
    assert!(text.contains("0x4") && text.contains("0x6"), "{text}");
}

#[tokio::test]
async fn an_empty_replica_and_an_old_one_are_told_apart() {
    let empty = Fixture::load("empty-replica").plan(Target::Newest).await.unwrap_err();
    assert!(matches!(empty, RestoreFailure::Plan(PlanError::NothingReplicated)));
    let old = Fixture::load("v03-generations").plan(Target::Newest).await.unwrap_err();
    assert!(matches!(old, RestoreFailure::Read(ReadError::OldReplica)));
}

#[tokio::test]
async fn an_old_replica_beside_a_new_one_does_not_hide_it() {
    let old = Fixture::load("v03-generations");
    let new = Fixture::load("tiny");
    common::copy_tree(&new.replica_dir().join("ltx"), &old.replica_dir().join("ltx"));
    assert_eq!(old.plan(Target::Newest).await.unwrap().txid(), Txid(1));
    assert!(old.reader().has_generations().await.unwrap());
}

#[tokio::test]
async fn the_s3_layout_answers_as_litestream_did() {
    let dir = tempfile::TempDir::new().unwrap();
    let source = common::fixtures().join("s3-layout");
    common::copy_tree(&source.join("objects"), dir.path());
    let text = std::fs::read_to_string(source.join("expected.json")).unwrap();
    let expected: serde_json::Value = serde_json::from_str(&text).unwrap();
    for object in expected["objects"].as_array().unwrap() {
        let path = dir.path().join(object["key"].as_str().unwrap());
        let listed = object["last_modified"].as_str().unwrap().trim_end_matches("+00:00");
        common::set_time(&path, unix_ms(listed).try_into().unwrap());
    }
    let prefix = expected["prefix"].as_str().unwrap();
    let reader = common::reader(dir.path(), prefix, Layout::S3, Resolution::Second);
    for point in expected["points"].as_array().unwrap() {
        let target = point["timestamp"].as_str();
        let target = target.map_or(Target::Newest, |text| Target::Before(unix_ms(text)));
        let (database, restored) = restore(&reader, target, dir.path()).await.unwrap();
        let txid = format!("{:016x}", restored.txid.0);
        assert_eq!(point["txid"].as_str(), Some(&*txid), "{point}");
        let rows = count(&database, expected["count_sql"].as_str().unwrap());
        assert_eq!(point["rows"].as_i64(), Some(rows), "{point}");
    }
}

#[tokio::test]
async fn a_target_is_truncated_to_its_second_where_listings_have_seconds() {
    let fixture = Fixture::load("same-second");
    let reader = fixture.reader();
    let listing = reader.listing().await.unwrap();
    let at = |text, resolution| {
        plan(&listing, Target::Before(unix_ms(text)), resolution).unwrap().txid()
    };
    // TXID 2 and 3 were made within 14:15:57.
    for text in ["2026-11-30T14:15:57.182Z", "2026-11-30T14:15:57.999Z"] {
        assert_eq!(at(text, Resolution::Second), Txid(1), "{text}");
    }
    assert_eq!(at("2026-11-30T14:15:58.001Z", Resolution::Second), Txid(3));
    assert_eq!(at("2026-11-30T14:15:57.182Z", Resolution::Full), Txid(2));
}
