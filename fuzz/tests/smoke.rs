//! Every target over the same mutated inputs on every run.
#![allow(clippy::disallowed_methods, clippy::disallowed_macros)]

use carlos_dbquery::rows::Reader;
use carlos_fuzz::{TARGETS, seeds, smoke};
use carlos_protocol::limits;

/// Enough to reach each check of each decoder, few enough for every test run.
const RUNS: u64 = 500;

#[test]
fn no_target_breaks_on_mutated_seeds() {
    for target in TARGETS {
        let runs = smoke::run(target, 1, |runs| runs < RUNS);
        assert_eq!(runs.expect("keeps its promises"), RUNS, "{}", target.name);
    }
}

#[test]
fn the_independent_row_stream_is_read() {
    let vector = include_str!("../../protocol/vectors/rows.json");
    let vector: serde_json::Value = serde_json::from_str(vector).expect("JSON");
    let stream = vector["stream"].as_str().expect("hex");
    let stream = data_encoding::HEXLOWER.decode(stream.as_bytes()).expect("hex");
    let mut reader = Reader::open(&stream).expect("a stream");
    assert_eq!(reader.columns(), ["id", "na\u{ef}ve"]);
    let mut row = Vec::new();
    while reader.read_row(&mut row).expect("a row") {}
    assert_eq!(reader.rows(), 3);
}

#[test]
fn a_header_frame_names_every_file_of_a_plan() {
    const { assert!(carlos_replica::plan::MAX_PLAN_FILES <= limits::PLAN_FILES) }
}

#[test]
fn seeds_are_good_inputs() {
    assert!(
        seeds::ltx_files().iter().any(|file| carlos_ltx::decode_pages(file, |_, _| {}).is_ok())
    );
    let end = &seeds::ltx_ends()[0];
    assert_eq!(end[..7], [0, 0, 0, 0, 0, 0, 1], "the end of the pages, and page 1 of the index");
    assert!(seeds::row_streams().iter().any(|stream| Reader::open(stream).is_ok()));
    assert!(seeds::requests().len() >= 2);
    assert!(seeds::frames().len() >= 9);
}
