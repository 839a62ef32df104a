//! The targets at a size that takes a second, and that each of them can be missed.
#![allow(clippy::unwrap_used, clippy::panic)]

use std::time::Duration;

use carlos_bench_cost::{
    Distance, IDLE_BOX, Load, PICKUP, Report, Size, json, markdown, missed, play, size,
};
use carlos_bucket::Pace;

/// One box in each region.
const BOXES: usize = 5;
const READS: usize = 60;

fn paced(load: Load, change: impl FnOnce(&mut Pace)) -> Report {
    let mut pace = Pace::default();
    change(&mut pace);
    play(Size { pace, ..size(BOXES, 1) }, load)
}

fn misses(report: &Report, what: &str) -> bool {
    missed(report).iter().any(|target| target.contains(what))
}

#[test]
fn an_idle_box_stays_below_its_price() {
    let report = play(size(BOXES, 1), Load::Idle);
    assert_eq!(missed(&report), [""; 0]);
    assert!(report.dollars_a_month_a_box() <= IDLE_BOX);
    let sent = report.sent.boxes();
    // Looks, sweeps and statuses, and nothing else: no object is read and none is created.
    assert_eq!((sent.create, sent.get), (0, 0), "{sent:?}");
    assert_eq!(report.sent.data.sum() + report.sent.console.sum(), 0);
    let sweeps = 3_600 / 30 + 8;
    assert!(sent.list <= (BOXES * sweeps) as u64, "{sent:?}");
}

#[test]
fn reads_are_picked_up_in_time_and_wake_no_other_region() {
    let report = play(size(BOXES, 1), Load::Reads(READS));
    assert_eq!(missed(&report), [""; 0]);
    assert_eq!((report.reads, report.unanswered), (READS, 0));
    for (distance, most) in PICKUP {
        let waits = &report.pickup[&distance];
        assert!(waits.count() >= 10 && waits.percentile(50) <= most, "{distance:?}: {waits:?}");
    }
}

/// All reads in Virginia: the other four boxes send what they send in an idle hour.
#[test]
fn boxes_of_other_regions_do_not_notice() {
    let idle = play(size(BOXES, 1), Load::Idle);
    let busy = play(size(BOXES, 1), Load::ReadsIn(1, READS));
    assert_eq!(busy.woken_elsewhere, 0);
    assert_eq!(busy.unanswered, 0);
    for (region, quiet) in idle.sent.regions.iter().enumerate() {
        let sent = &busy.sent.regions[region];
        let more = sent.sum().saturating_sub(quiet.sum());
        match region {
            1 => assert!(more > 1_000, "the box that works is awake: {more}"),
            // A poll or two, because the end of the hour falls elsewhere in the beat.
            _ => assert!(more <= quiet.sum() / 100, "region {region} sent {more} more"),
        }
    }
}

#[test]
fn a_box_that_looks_every_second_is_too_dear() {
    let report = paced(Load::Idle, |pace| pace.idle = Duration::from_secs(1));
    assert!(misses(&report, "USD a month"), "{:?}", missed(&report));
}

#[test]
fn a_box_that_does_not_quicken_picks_up_too_late() {
    let report = paced(Load::Reads(READS), |pace| pace.active = pace.idle);
    assert!(misses(&report, "pickups"), "{:?}", missed(&report));
    assert!(report.pickup[&Distance::SameRegion].percentile(50) > PICKUP[0].1);
}

#[test]
fn a_fleet_that_never_rests_is_noticed() {
    let report = paced(Load::ReadsIn(0, 6), |pace| pace.idle = Duration::from_millis(800));
    assert!(misses(&report, "quick looks"), "{:?}", missed(&report));
}

#[test]
fn equal_seeds_give_equal_reports() {
    let play = || json(&[play(size(2, 7), Load::Reads(6))]).to_string();
    assert_eq!(play(), play());
}

#[test]
fn the_tables_have_a_row_for_each_report() {
    let reports = [play(size(1, 1), Load::Idle), play(size(1, 1), Load::Reads(6))];
    let text = markdown(&reports);
    assert!(text.contains("| 1 | idle |") && text.contains("| 1 | 6 reads |"), "{text}");
    assert_eq!(text.matches("pickup, after a quiet time").count(), 1, "{text}");
    let value = json(&reports);
    assert!(value["reports"][1]["usd_a_month"].as_f64().unwrap() > 0.0, "{value:#}");
    assert_eq!(value["reports"][1]["answer"]["same-region"]["count"], 6);
}
