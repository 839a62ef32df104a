//! Good inputs: the protocol's test vectors, and files and streams written by the real encoders.

use carlos_dbquery::rows::{Value as Cell, Writer};
use carlos_ltx::{Encoder, Encoding, Header, Txid, TxidRange};
use carlos_protocol::Entropy;
use carlos_protocol::envelope::KeyFile;
use carlos_protocol::ids::{Account, ReadId};
use carlos_protocol::seal::{Place, ReplyKey, seal};
use carlos_protocol::tokens::{Token, TokenKind};
use data_encoding::HEXLOWER;
use serde_json::Value;

pub use crate::worker::{conversations, images};

/// Draws the same bytes each time, so that targets and seeds share keys.
pub struct Fixed;

impl Entropy for Fixed {
    fn fill(&mut self, out: &mut [u8]) {
        out.fill(0x42);
    }
}

/// The bytes of every text in a vector file.
fn texts(json: &str) -> Vec<Vec<u8>> {
    let file: Value = serde_json::from_str(json).expect("a vector file is JSON");
    let mut found = Vec::new();
    collect(&file, &mut found);
    found
}

fn collect(value: &Value, found: &mut Vec<Vec<u8>>) {
    match value {
        Value::String(text) => found.push(text.clone().into_bytes()),
        Value::Array(items) => items.iter().for_each(|item| collect(item, found)),
        Value::Object(fields) => fields.values().for_each(|field| collect(field, found)),
        _ => {}
    }
}

/// The bytes of every hex text in a vector file.
fn unhexed(json: &str) -> Vec<Vec<u8>> {
    texts(json).iter().filter_map(|text| HEXLOWER.decode(text).ok()).collect()
}

/// Records, markers, results and summaries.
pub fn bodies() -> Vec<Vec<u8>> {
    texts(include_str!("../../protocol/vectors/bodies.json"))
}

/// Names, bodies and records of a mesh.
pub fn mesh() -> Vec<Vec<u8>> {
    let file = include_str!("../../protocol/vectors/mesh.json");
    let metadata = b"\x04room\x00\x0242".to_vec();
    [texts(file), unhexed(file), vec![metadata]].concat()
}

/// Bodies of the HTTP doors.
pub fn api() -> Vec<Vec<u8>> {
    let reply_key = ReplyKey::generate(&mut Fixed).public();
    let read = format!(r#"{{"op":"query","sql":"SELECT 1","at":"","reply_key":"{reply_key}"}}"#);
    let forward = r#"{"error":"x","forward":1,"region":"uk","forward_ops":["query"]}"#;
    let apps = r#"{"apps":[{"account":"acme","app":"shop"}]}"#;
    let one = r#"{"instances":[{"host":"shop.example.com","region":"uk","class":"sleeping"}]}"#;
    [&read, forward, apps, one].map(|text| text.as_bytes().to_vec()).to_vec()
}

/// Envelopes, accepted elsewhere: the fuzzer's root key is another one.
pub fn envelopes() -> Vec<Vec<u8>> {
    texts(include_str!("../../protocol/vectors/envelope.json"))
}

/// Payloads of requests.
pub fn requests() -> Vec<Vec<u8>> {
    envelopes().into_iter().filter(|text| text.starts_with(b"{\"purpose\"")).collect()
}

/// Files of private keys, and texts of public ones.
pub fn key_files() -> Vec<Vec<u8>> {
    let root = KeyFile::generate_root(&mut Fixed);
    let scoped = root.generate_scoped(&mut Fixed, "release").expect("a root key certifies");
    let reply = ReplyKey::generate(&mut Fixed).public();
    vec![
        root.to_json().to_vec(),
        scoped.to_json().to_vec(),
        root.public().to_string().into_bytes(),
        reply.to_string().into_bytes(),
    ]
}

/// Names of objects.
pub fn keys() -> Vec<Vec<u8>> {
    texts(include_str!("../../protocol/vectors/keys.json"))
}

/// A whole response, and its lines.
pub fn lines() -> Vec<Vec<u8>> {
    let mut lines: Vec<Vec<u8>> = bodies();
    lines.iter_mut().for_each(|line| line.push(b'\n'));
    lines.push(lines.concat());
    lines
}

/// Ids, tokens, times, file names.
pub fn names() -> Vec<Vec<u8>> {
    let account = Account::parse("acme").expect("a label");
    let token = Token::generate(&mut Fixed, TokenKind::Service, &account);
    let mut names = texts(include_str!("../../protocol/vectors/ids.json"));
    names.push(token.reveal().as_bytes().to_vec());
    names.push(b"2026-10-22T11:00:00.123456789+02:00".to_vec());
    names.push(b"0000000000000001-000000000000002a.ltx".to_vec());
    names.push(b"rk_0123456789abcdef".to_vec());
    names.push(b"00000000000000000042".to_vec());
    names.push("\u{1b}[2J \u{202e}".as_bytes().to_vec());
    names
}

/// Sealed bytes that open for the target's key.
pub fn sealed() -> Vec<Vec<u8>> {
    let key = ReplyKey::generate(&mut Fixed).public();
    let place = Place::rows(ReadId::from_bytes([7; 16]), 1, true);
    vec![seal(&mut Fixed, &key, &place, b"rows"), seal(&mut Fixed, &key, &place, b"")]
}

/// A whole conversation, and its frames.
pub fn frames() -> Vec<Vec<u8>> {
    let mut frames = unhexed(include_str!("../../protocol/vectors/frames.json"));
    frames.push(frames.concat());
    frames
}

/// Row streams.
pub fn row_streams() -> Vec<Vec<u8>> {
    let mut streams = unhexed(include_str!("../../protocol/vectors/rows.json"));
    let mut stream = Vec::new();
    let mut writer = Writer::begin(&mut stream, u64::MAX, ["a", "a", "b"]).expect("no cap");
    let blob = [0, 159, 146, 150];
    let rows = [
        [Cell::Null, Cell::Integer(i64::MIN), Cell::Real(f64::INFINITY)],
        [Cell::Text(b"tab\there\\ \"\x1b[0m"), Cell::Text(&blob), Cell::Blob(&blob)],
    ];
    rows.iter().for_each(|row| writer.row(row).expect("no cap"));
    writer.finish().expect("no cap");
    streams.push(stream);
    streams
}

/// Statements that pass, and some that do not.
pub fn statements() -> Vec<Vec<u8>> {
    let statements = [
        "SELECT count(*) FROM orders",
        "WITH t(x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM t WHERE x < 9) SELECT * FROM t;",
        "-- why\nSELECT /* not; this */ ';', \"a;b\", [c;d], `e` -- end",
        "PRAGMA table_info('orders')",
        "SELECT 1; SELECT 2",
        ".tables",
        "EXPLAIN QUERY PLAN VALUES (x'00')",
        "PRAGMA main.[journal_mode] = off",
        "SELECT $ns::name(;), :b, ?3",
    ];
    statements.map(|statement| statement.as_bytes().to_vec()).to_vec()
}

/// LTX files of both page encodings: snapshots, increments, and a snapshot with its increment.
pub fn ltx_files() -> Vec<Vec<u8>> {
    let mut files = Vec::new();
    for encoding in [Encoding::Block, Encoding::Frame] {
        let snapshot = ltx_file(encoding, 1, &[1, 2, 3]);
        let increment = ltx_file(encoding, 2, &[2]);
        files.push([snapshot.as_slice(), &increment].concat());
        files.push(snapshot);
        files.push(increment);
    }
    files
}

/// Bytes of an [`ltx_files`] file with three pages after its pages: six zeros, an index of three
/// entries and a zero, its length, two checksums.
pub const LTX_END: usize = 6 + LTX_INDEX + 8 + 16;
/// Three entries of a page number, an offset and a size, and the closing zero.
const LTX_INDEX: usize = 15;

/// The good end of a file, which the target of that name joins to the file's beginning.
pub fn ltx_ends() -> Vec<Vec<u8>> {
    let good = ltx_file(Encoding::Block, 1, &[1, 2, 3]);
    vec![good[good.len() - LTX_END..].to_vec()]
}

/// Replicas of a few files, seven bytes a file.
pub fn replicas() -> Vec<Vec<u8>> {
    let snapshot = [0, 0, 0, 1, 0, 0, 0];
    let increment = [0, 1, 0, 2, 0, 0, 0];
    let frames = [9, 0, 0, 4, 0, 0, 0];
    let flipped = [0, 1, 0, 5, 0, 40, 1];
    vec![
        [snapshot, increment].concat(),
        [snapshot, increment, frames].concat(),
        [frames, flipped].concat(),
        frames.to_vec(),
    ]
}

/// A file of one transaction for a database of three pages of 512 bytes.
fn ltx_file(encoding: Encoding, txid: u64, pages: &[u32]) -> Vec<u8> {
    let range = TxidRange::new(Txid(txid), Txid(txid)).expect("from 1");
    let header = Header::new(512, 3, range, 1_792_659_600_000);
    let mut file = Vec::new();
    let mut encoder = Encoder::new(header, encoding, &mut file).expect("a good header");
    for &number in pages {
        encoder.page(number, &page(number), &mut file).expect("in order");
    }
    encoder.finish(0, &mut file).expect("complete");
    file
}

/// Half repetition and half noise, so that compression has both to do.
fn page(number: u32) -> Vec<u8> {
    let noise =
        (0..256_u32).map(|at| at.wrapping_mul(number).wrapping_mul(0x9e37_79b9).to_be_bytes()[1]);
    let mut page = vec![0; 256];
    page.extend(noise);
    if number == 1 {
        page[..16].copy_from_slice(b"SQLite format 3\0");
        page[16..18].copy_from_slice(&512_u16.to_be_bytes());
        page[28..32].copy_from_slice(&3_u32.to_be_bytes());
    }
    page
}

/// Listings for the planner, six bytes a file.
pub fn listings() -> Vec<Vec<u8>> {
    let snapshot = [9, 1, 3, 200, 10, 0];
    let compacted = [1, 5, 2, 200, 12, 0];
    let newest = [0, 8, 0, 200, 14, 0];
    [[0, 0], [1, 13], [2, 8], [0x81, 14]]
        .iter()
        .map(|head| [&head[..], &snapshot, &compacted, &newest].concat())
        .collect()
}
