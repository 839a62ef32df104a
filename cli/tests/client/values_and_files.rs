//! `--param`, `--format csv|ndjson`, `--output` and the lines after the rows, by the binary.

use serde_json::json;

use crate::{Answer, Console, End, NOT_VERIFIED, Reply, Shop, query, run, summary_of};

fn honest() -> Console {
    Console::reading(|request| Reply::stream(Answer::to(request).body(), End::Clean))
}

/// A console whose answers say `change` of themselves.
fn answering(change: impl Fn(&mut Answer) + Send + Sync + 'static) -> Console {
    Console::reading(move |request| {
        let mut answer = Answer::to(request);
        change(&mut answer);
        Reply::stream(answer.body(), End::Clean)
    })
}

#[test]
fn values_are_sent_in_order_and_with_their_types() {
    let console = honest();
    let values = ["--param", "a'b", "--param-json", "-3", "--param-json", "null"];
    assert_eq!(query(&console, &values).code, 0);
    assert_eq!(query(&console, &["--param", ":who=@me=1"]).code, 0);
    assert_eq!(query(&console, &[]).code, 0);
    let seen = console.seen();
    let reads: Vec<_> = seen.iter().filter(|seen| seen.line.starts_with("POST")).collect();
    let positional = json!([{"value": {"text": "a'b"}}, {"value": {"int": -3}}, {"value": "null"}]);
    assert_eq!(reads[0].body["params"], positional);
    let named = json!([{"name": ":who", "value": {"text": "@me=1"}}]);
    assert_eq!(reads[1].body["params"], named);
    assert!(reads[2].body.get("params").is_none(), "the body of before there were any");
}

#[test]
fn values_that_cannot_be_sent_are_refused_before() {
    let console = honest();
    query(&console, &["--param", "@me"]).failed(2, "does not begin with a name");
    query(&console, &["--param-json", "yes"]).failed(2, "does not take yes");
    query(&console, &["--param", "1", "--param", ":a=2"]).failed(2, "by position or all by name");
    query(&console, &["--param", "\u{fffd}"]).failed(17, "cannot be sent to region uk");
    assert!(console.seen().iter().all(|seen| !seen.line.starts_with("POST")));
}

#[test]
fn rows_as_csv_and_as_lines() {
    let csv = query(&honest(), &["--format", "csv"]);
    let expected = "\"id\",\"name\"\r\n1,\"apple\"\r\n2,\"banana\tsplit\"\r\n3,\r\n";
    assert_eq!(String::from_utf8_lossy(&csv.stdout), expected);
    let lines = query(&honest(), &["--format", "ndjson"]).stdout;
    let lines = String::from_utf8(lines).unwrap();
    let last: serde_json::Value = serde_json::from_str(lines.lines().last().unwrap()).unwrap();
    let digest = summary_of(&Shop::stream(), 3).sha256.0.unwrap().to_string();
    assert_eq!(last, json!({"$end": {"rows": 3, "sha256": digest}}));
    assert_eq!(lines.lines().count(), 4);
}

#[test]
fn a_file_appears_only_when_all_of_it_checked_out() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("rows.tsv");
    let output = ["--output", path.to_str().unwrap()];
    let liar = answering(|answer| answer.summary.rows = 4);
    query(&liar, &output).failed(13, NOT_VERIFIED);
    assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 0);
    let ran = query(&honest(), &output);
    assert!(ran.code == 0 && ran.stdout.is_empty(), "{ran:?}");
    assert!(ran.stderr.contains("3 rows from a copy"), "{ran:?}");
    assert_eq!(std::fs::read_to_string(&path).unwrap(), Shop::TSV);
    let console = honest();
    query(&console, &output).failed(2, "exists already. --force replaces it.");
    assert!(console.seen().is_empty(), "nothing was asked for rows that have no place");
    let csv = ["--force", "--format", "csv"];
    assert_eq!(query(&honest(), &[&output[..], &csv].concat()).code, 0);
    assert!(std::fs::read_to_string(&path).unwrap().starts_with("\"id\""));
    query(&honest(), &["--force"]).failed(2, "--output");
}

#[test]
fn the_status_line_counts_and_says_when_the_copy_is_coarser() {
    assert!(!query(&honest(), &[]).stderr.contains("compacted"));
    let coarser = answering(|answer| answer.summary.coarser = true);
    let ran = query(&coarser, &["--at", "2026-10-22T09:00:00Z"]);
    let last = ran.stderr.lines().last().unwrap_or_default();
    assert!(last.starts_with("the replica keeps only compacted files"), "{ran:?}");
    let single = answering(|answer| {
        let stream = b"CRS1\x01\x01n\x01\x00\x00\x01".to_vec();
        answer.summary = summary_of(&stream, 1);
        answer.chunks = vec![stream];
        answer.last_seq = 1;
    });
    let ran = run(&single, &["db", "query", "acme/shop", "SELECT NULL AS n"]);
    assert!(ran.stderr.contains("\n1 row from a copy"), "{ran:?}");
}
