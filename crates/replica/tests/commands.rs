//! What stands behind `carlos replica plan` and `carlos replica restore`.
#![allow(clippy::disallowed_methods, clippy::disallowed_macros, clippy::unwrap_used)]

mod common;

use carlos_replica::cmd::{self, CmdError};
use carlos_replica::{PlanError, RestoreFailure};
use common::{Fixture, OPTIONS, sha256, unix_ms};

fn url(fixture: &Fixture) -> String {
    format!("file://{}", fixture.replica_dir().display())
}

#[tokio::test]
async fn a_plan_is_printed_as_recorded() {
    let fixture = Fixture::load("multi-level");
    let report = cmd::plan(&url(&fixture), None).await.unwrap();
    let json = serde_json::to_value(&report).unwrap();
    assert_eq!(json["txid"], "0x58");
    let sizes = json["files"].as_array().unwrap().iter().map(|file| file["size"].as_u64());
    assert!(sizes.into_iter().all(|size| size > Some(130)));
    let names: Vec<_> = report.files.iter().map(|file| (file.level, &*file.name)).collect();
    let plan = fixture.expected["plan"].as_array().unwrap();
    assert_eq!(names.len(), plan.len());
    for ((level, name), expected) in names.into_iter().zip(plan) {
        assert_eq!(
            (expected["level"].as_u64(), expected["name"].as_str()),
            (Some(level.into()), Some(name))
        );
    }
}

#[tokio::test]
async fn a_restore_reports_the_file_it_made() {
    let fixture = Fixture::load("page-8192");
    let out = fixture.dir.path().join("out.db");
    let report = cmd::restore(&url(&fixture), &out, None, OPTIONS).await.unwrap();
    assert_eq!(report.sha256, sha256(&out));
    assert_eq!(fixture.expected["newest"]["file_sha256"], report.sha256.as_str());
    assert_eq!(report.bytes, u64::from(report.pages) * 8192);
    let json = serde_json::to_string(&report).unwrap();
    let keys = ["txid", "pages", "page_size", "bytes", "sha256"].map(|key| json.find(key).unwrap());
    assert!(keys.is_sorted(), "{json}");
    let again = cmd::restore(&url(&fixture), &out, None, OPTIONS).await.unwrap_err();
    assert!(again.to_string().contains("already exists"), "{again}");
}

#[tokio::test]
async fn moments_reach_the_commands() {
    let fixture = Fixture::load("chain");
    let at = Some(unix_ms("2026-11-30T14:14:52.588Z"));
    assert_eq!(cmd::plan(&url(&fixture), at).await.unwrap().txid, "0x1");
    let gone = cmd::plan(&url(&fixture), Some(0)).await.unwrap_err();
    let CmdError::Restore(RestoreFailure::Plan(PlanError::HistoryGone { oldest_ms })) = gone else {
        unreachable!("{gone}");
    };
    assert_eq!(Some(oldest_ms), at);
}
