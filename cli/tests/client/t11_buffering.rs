//! T11: whatever is wrong with an answer, stdout stays empty and the exit code says so
//! (db-forward §11.4).

use std::sync::{Arc, Mutex};

use crate::{
    Answer, Console, End, NOT_VERIFIED, Ran, Reply, Shop, chunk_line, join, query, summary_of,
};
use carlos_protocol::limits::{LINE_BYTES, MAX_CHUNKS};

const UNFINISHED: &str = "the read of shop.example.com's database in region uk did not finish, so \
                          nothing was printed. try again.";

/// Asks once, with an answer that `spoil` has had its way with.
fn spoiled(spoil: impl Fn(&Answer) -> Vec<String> + Send + Sync + 'static) -> Ran {
    spoiled_body(move |answer| join(&spoil(answer)))
}

fn spoiled_body(spoil: impl Fn(&Answer) -> Vec<u8> + Send + Sync + 'static) -> Ran {
    let read = move |request: &_| Reply::stream(spoil(&Answer::to(request)), End::Clean);
    query(&Console::reading(read), &[])
}

/// Asks with an answer whose fields are changed before it is sealed.
fn changed(change: impl Fn(&mut Answer) + Send + Sync + 'static) -> Ran {
    let read = move |request: &_| {
        let mut answer = Answer::to(request);
        change(&mut answer);
        Reply::stream(answer.body(), End::Clean)
    };
    query(&Console::reading(read), &[])
}

const CHUNK_1: usize = 4;
const CHUNK_3: usize = 6;
const RESULT: usize = 7;

#[test]
fn t11_a_whole_answer_prints_its_rows_and_then_the_status() {
    let ran = spoiled(Answer::lines);
    assert_eq!(ran.code, 0, "{ran:?}");
    assert_eq!(String::from_utf8_lossy(&ran.stdout), Shop::TSV);
    assert!(
        ran.stderr.contains("reading a copy of shop.example.com's database in region uk."),
        "{ran:?}"
    );
    let status = ran.stderr.lines().last().unwrap_or_default();
    assert!(status.ends_with("transaction 0x2a."), "{status}");
    assert!(status.contains("2026-10-22T09:00:00"), "{status}");
}

#[test]
fn t11_a_dropped_last_chunk() {
    spoiled(|answer| without(answer.lines(), CHUNK_3)).failed(13, NOT_VERIFIED);
    // The result of a liar names only what is there; the last flag inside the seal still differs.
    changed(|answer| {
        answer.chunks.pop();
        answer.last_seq = 2;
    })
    .failed(13, NOT_VERIFIED);
    spoiled(|answer| {
        let mut lines = without(answer.lines(), CHUNK_3);
        let short = Answer { last_seq: 2, chunks: Vec::new(), ..copy(answer) };
        lines[RESULT - 1] = short.result_line();
        lines
    })
    .failed(13, NOT_VERIFIED);
}

#[test]
fn t11_a_bad_chunk() {
    for flip in [0, 4, 70, 90, 100] {
        spoiled(move |answer| {
            let mut lines = answer.lines();
            let mut sealed = answer.sealed(3, true, &answer.chunks[2]);
            sealed[flip] ^= 1;
            lines[CHUNK_3] = chunk_line(3, &sealed);
            lines
        })
        .failed(13, NOT_VERIFIED);
    }
}

#[test]
fn t11_a_chunk_labelled_as_last_or_not() {
    for (seq, last) in [(1, true), (3, false)] {
        spoiled(move |answer| {
            let mut lines = answer.lines();
            let plain = &answer.chunks[seq as usize - 1];
            lines[CHUNK_1 + seq as usize - 1] = chunk_line(seq, &answer.sealed(seq, last, plain));
            lines
        })
        .failed(13, NOT_VERIFIED);
    }
}

#[test]
fn t11_reordered_repeated_and_missing_chunks() {
    for order in [[5, 4, 6], [4, 6, 5], [4, 4, 6], [4, 5, 5], [5, 6, 6]] {
        spoiled(move |answer| {
            let lines = answer.lines();
            let chunks = order.map(|line: usize| lines[line].clone());
            [&lines[..CHUNK_1], &chunks, &lines[RESULT..]].concat()
        })
        .failed(13, NOT_VERIFIED);
    }
    spoiled(|answer| without(answer.lines(), CHUNK_1)).failed(13, NOT_VERIFIED);
}

#[test]
fn t11_two_chunks_under_each_others_numbers() {
    spoiled(|answer| {
        let mut lines = answer.lines();
        lines[CHUNK_1] = chunk_line(1, &answer.sealed(2, false, &answer.chunks[1]));
        lines[CHUNK_1 + 1] = chunk_line(2, &answer.sealed(1, false, &answer.chunks[0]));
        lines
    })
    .failed(13, NOT_VERIFIED);
}

#[test]
fn t11_a_chunk_sealed_to_another_key() {
    spoiled(|answer| {
        let mut lines = answer.lines();
        let stranger = carlos_protocol::seal::ReplyKey::generate(&mut Fixed).public();
        let other = Answer { to: stranger, ..copy(answer) };
        lines[CHUNK_3] = chunk_line(3, &other.sealed(3, true, &answer.chunks[2]));
        lines
    })
    .failed(13, NOT_VERIFIED);
}

#[test]
fn t11_a_summary_of_other_rows() {
    changed(|answer| answer.summary = summary_of(b"other bytes", 3)).failed(13, NOT_VERIFIED);
    changed(|answer| answer.summary.rows = 2).failed(13, NOT_VERIFIED);
    changed(|answer| answer.summary.bytes += 1).failed(13, NOT_VERIFIED);
    changed(|answer| answer.summary.sha256 = Default::default()).failed(13, NOT_VERIFIED);
    let mut same_length = Shop::stream();
    same_length[0] ^= 1;
    changed(move |answer| answer.summary.sha256 = summary_of(&same_length, 3).sha256)
        .failed(13, NOT_VERIFIED);
}

#[test]
fn t11_bytes_that_are_no_row_stream() {
    let whole = Shop::stream();
    let more = [whole.as_slice(), b"x"].concat();
    for stream in [whole[..whole.len() - 1].to_vec(), more, Vec::new(), b"id\n1\n".to_vec()] {
        changed(move |answer| {
            answer.summary = summary_of(&stream, 3);
            answer.chunks = vec![stream.clone()];
            answer.last_seq = 1;
        })
        .failed(13, NOT_VERIFIED);
    }
}

#[test]
fn t11_a_result_that_names_other_chunks() {
    for last_seq in [0, 1, 2, 4, MAX_CHUNKS, u64::MAX] {
        changed(move |answer| answer.last_seq = last_seq).failed(13, NOT_VERIFIED);
    }
}

#[test]
fn t11_garbage_in_place_of_a_line() {
    let garbage = [
        "",
        "{}",
        "null",
        "rows: 3",
        "{\"chunk\":1}",
        "{\"chunk\":1,\"data\":\"not base64!\"}",
        "{\"chunk\":-1,\"data\":\"\"}",
        "{\"wait\":\"queued\",\"result\":{}}",
        "<html><body>502 Bad Gateway</body></html>",
        "\u{1b}[2J",
    ];
    for line in garbage {
        for at in [0, CHUNK_1, RESULT] {
            let ran = spoiled(move |answer| {
                let mut lines = answer.lines();
                lines.insert(at, line.to_owned());
                lines
            });
            ran.failed(13, NOT_VERIFIED);
        }
    }
}

#[test]
fn t11_lines_longer_than_any_honest_one() {
    let long = || "x".repeat(LINE_BYTES * 4);
    for at in [0, RESULT] {
        spoiled(move |answer| {
            let mut lines = answer.lines();
            lines.insert(at, long());
            lines
        })
        .failed(13, NOT_VERIFIED);
    }
    // A line that never ends is given up on long before it fills the memory.
    spoiled_body(|_| vec![b'{'; 8 << 20]).failed(13, NOT_VERIFIED);
}

#[test]
fn t11_lines_out_of_their_order() {
    for (from, to) in [(0, 1), (2, 0), (CHUNK_1, 1), (RESULT, 0)] {
        spoiled(move |answer| {
            let mut lines = answer.lines();
            let line = lines.remove(from);
            lines.insert(to, line);
            lines
        })
        .failed(13, NOT_VERIFIED);
    }
}

#[test]
fn t11_an_answer_that_ends_without_a_result() {
    for end in [End::Clean, End::Cut] {
        let read = move |request: &_| {
            let lines = without(Answer::to(request).lines(), RESULT);
            Reply::stream(join(&lines), end)
        };
        query(&Console::reading(read), &[]).failed(12, UNFINISHED);
    }
}

/// Cuts one answer after each line, and at each of its last 200 bytes. A cut ndjson body looks
/// complete at every line break; only the result line says that it is.
#[test]
fn t11_an_answer_cut_anywhere() {
    let cut_at = Arc::new(Mutex::new((0, End::Clean)));
    let shared = Arc::clone(&cut_at);
    let console = Console::reading(move |request| {
        let (at, end) = *shared.lock().unwrap();
        let body = Answer::to(request).body();
        Reply::stream(body[..at].to_vec(), end)
    });
    for (index, at) in cuts().into_iter().enumerate() {
        let end = if index % 2 == 0 { End::Clean } else { End::Cut };
        *cut_at.lock().unwrap() = (at, end);
        query(&console, &[]).failed(12, UNFINISHED);
    }
}

/// Every length has the same body up to the randomness of the seals, which does not change sizes.
fn cuts() -> Vec<usize> {
    let key = carlos_protocol::seal::ReplyKey::generate(&mut Fixed).public();
    let body = Answer::to(&serde_json::json!({"reply_key": key.to_string()})).body();
    let after_lines =
        body.iter().enumerate().filter(|(_, byte)| **byte == b'\n').map(|(at, _)| at + 1);
    let mut cuts: Vec<usize> = after_lines.chain(body.len() - 200..body.len()).collect();
    cuts.retain(|at| *at < body.len());
    cuts.push(0);
    cuts.sort_unstable();
    cuts.dedup();
    assert!(cuts.len() > 205, "{} cuts", cuts.len());
    cuts
}

#[test]
fn t11_a_failed_read_prints_no_rows_even_with_chunks() {
    changed(|answer| {
        answer.state = "failed";
        answer.code = "output-cap";
    })
    .failed(15, "the result was cut off at 64 MB.");
}

fn without(mut lines: Vec<String>, at: usize) -> Vec<String> {
    lines.remove(at);
    lines
}

fn copy(answer: &Answer) -> Answer {
    Answer { chunks: answer.chunks.clone(), summary: answer.summary.clone(), ..*answer }
}

struct Fixed;

impl carlos_protocol::Entropy for Fixed {
    fn fill(&mut self, out: &mut [u8]) {
        out.fill(7);
    }
}
