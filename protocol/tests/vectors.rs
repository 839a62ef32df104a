//! The code against vectors that `vectors/make.py` computed without it.
#![allow(clippy::disallowed_methods, clippy::disallowed_macros)]

use std::fmt::Debug;

use carlos_protocol::canon;
use carlos_protocol::envelope::{KeyFile, RootKeys, VerifyError, verify};
use carlos_protocol::frames::{Frame, FrameDecoder};
use carlos_protocol::ids::{Digest, Incarnation, Nonce, ReadId, Revision, Txid, ulid_text};
use carlos_protocol::keys::{Key, QueueEntry};
use carlos_protocol::lines::LineDecoder;
use carlos_protocol::picked::Picked;
use carlos_protocol::records::{self, AccountRecord, ChainEntry, Edges, HostRecord, Status};
use carlos_protocol::request::ReadRequest;
use carlos_protocol::result::ReadResult;
use carlos_protocol::seal::{Place, ReplyKey, Stream, open, seal};
use carlos_protocol::summary::Summary;
use carlos_protocol::time::{Day, Hour, Millis, Seconds};
use carlos_protocol::tokens::Token;
use carlos_protocol::{Entropy, limits};
use data_encoding::HEXLOWER;
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::Value;

/// A vector file as JSON.
macro_rules! vectors {
    ($file:literal) => {
        serde_json::from_str::<Value>(include_str!(concat!("../vectors/", $file))).expect($file)
    };
}

/// Hands out the given bytes in order, so that a vector's keys and nonces are used again.
struct Script(Vec<u8>);

impl Entropy for Script {
    fn fill(&mut self, out: &mut [u8]) {
        let rest = self.0.split_off(out.len());
        out.copy_from_slice(&self.0);
        self.0 = rest;
    }
}

fn text<'a>(value: &'a Value, field: &str) -> &'a str {
    value[field].as_str().expect(field)
}

fn number(value: &Value, field: &str) -> u64 {
    value[field].as_u64().expect(field)
}

fn bytes(value: &Value, field: &str) -> Vec<u8> {
    HEXLOWER.decode(text(value, field).as_bytes()).expect("hex")
}

fn list<'a>(value: &'a Value, field: &str) -> &'a [Value] {
    value[field].as_array().expect(field)
}

#[test]
fn read_ids_and_nonces() {
    let file = vectors!("ids.json");
    for case in list(&file, "read_ids") {
        let id = ReadId::from_bytes(bytes(case, "bytes").try_into().expect("16 bytes"));
        assert_eq!(id.to_string(), text(case, "text"));
        assert_eq!(ReadId::parse(text(case, "text")), Ok(id));
        assert_eq!(ReadId::mint(&mut Script(bytes(case, "bytes"))), id);
    }
    for case in list(&file, "nonces") {
        let nonce = Nonce::mint(&mut Script(bytes(case, "bytes")));
        assert_eq!(nonce.to_string(), text(case, "text"));
    }
    for refused in list(&file, "refused_read_ids") {
        let refused = refused.as_str().expect("text");
        assert!(ReadId::parse(refused).is_err(), "{refused}");
    }
}

#[test]
fn transaction_ids_tokens_and_the_incarnation() {
    let file = vectors!("ids.json");
    for case in list(&file, "txids") {
        let txid = Txid(text(case, "number").parse().expect("64 bits"));
        assert_eq!(txid.to_string(), text(case, "text"));
    }
    let token = Token::parse(text(&file["token"], "text")).expect("a token");
    assert_eq!(token.account().as_str(), text(&file["token"], "account"));
    assert_eq!(token.hash().to_string(), text(&file["token"], "sha256"));

    let record = &file["incarnation"];
    let created_at = ulid_text::parse(text(record, "created_at")).expect("a ULID");
    let incarnation = Incarnation::of(
        &text(record, "account").parse().expect("account"),
        &text(record, "app").parse().expect("app"),
        &text(record, "host").parse().expect("host"),
        created_at,
    );
    assert_eq!(incarnation.to_string(), text(record, "text"));
}

#[test]
fn times() {
    for case in list(&vectors!("ids.json"), "times") {
        let unix_ms = number(case, "unix_ms");
        let unix = unix_ms / 1000;
        assert_eq!(Millis::new(unix_ms).to_string(), text(case, "millis"));
        assert_eq!(Seconds::new(unix).to_string(), text(case, "seconds"));
        assert_eq!(Hour::of(unix).to_string(), text(case, "hour"));
        assert_eq!(Day::of(unix).to_string(), text(case, "day"));
    }
}

#[test]
fn keys() {
    let file = vectors!("keys.json");
    let id = ReadId::from_bytes(std::array::from_fn(|at| at as u8));
    let issued_at = Seconds::new(1_792_659_600);
    let region: carlos_protocol::ids::Region = "uk".parse().expect("label");
    let host: carlos_protocol::ids::Host = "shop.example.com".parse().expect("host");
    let account: carlos_protocol::ids::Account = "acme".parse().expect("label");
    let ulid = carlos_protocol::Ulid::from_parts(1_792_659_600_000, 1);
    let name: carlos_protocol::ids::BoxName = "uk-1".parse().expect("label");
    let first = Revision::FIRST;
    let built = [
        ("queue", Key::Queue(QueueEntry { region: region.clone(), issued_at, id })),
        ("request", Key::Request(id)),
        ("picked", Key::Picked(id)),
        ("chunk", Key::Chunk(id, 12)),
        ("result", Key::Result(id)),
        ("cancel", Key::Cancel(id)),
        ("serial", Key::Serial(region)),
        ("status", Key::Status(name.clone())),
        ("edges", Key::Edges(name, first)),
        ("app", Key::App(account.clone(), "shop".parse().expect("label"), host.clone())),
        ("host", Key::Host(host, first)),
        ("account", Key::Account(account.clone(), first)),
        ("activity", Key::Activity(account, Day::of(issued_at.unix()), ulid)),
        ("probe", Key::Probe("console".parse().expect("label"), ulid)),
    ];
    assert_eq!(built.len(), file.as_object().expect("an object").len());
    for (kind, key) in built {
        assert_eq!(key.to_path(), text(&file, kind));
        assert_eq!(Key::parse(text(&file, kind)), Ok(key));
    }
}

#[test]
fn sealing() {
    let file = vectors!("seal.json");
    let key = ReplyKey::generate(&mut Script(bytes(&file, "recipient_secret")));
    assert_eq!(key.public().to_string(), text(&file, "recipient_public"));
    let id = ReadId::parse(text(&file, "read_id")).expect("a read id");
    let drawn = [bytes(&file, "sender_secret"), bytes(&file, "nonce")].concat();
    for case in list(&file, "cases") {
        let stream = if number(case, "stream") == 1 { Stream::Rows } else { Stream::Summary };
        let last = case["last"].as_bool().expect("a flag");
        let place = Place { id, seq: number(case, "seq"), stream, last };
        let (plaintext, sealed) = (bytes(case, "plaintext"), bytes(case, "sealed"));
        assert_eq!(open(&key, &place, &sealed).as_ref(), Ok(&plaintext));
        let own = seal(&mut Script(drawn.clone()), &key.public(), &place, &plaintext);
        assert_eq!(own, sealed, "{}", text(case, "name"));
    }
}

fn roots(file: &Value) -> RootKeys {
    RootKeys::parse(text(file, "root_public")).expect("a public key")
}

#[test]
fn accepted_envelopes() {
    let file = vectors!("envelope.json");
    let root = KeyFile::from_json(text(&file, "root_key_file").as_bytes()).expect("a key file");
    assert_eq!(root.id().as_str(), text(&file, "root_key_id"));
    assert_eq!(root.public().to_string(), text(&file, "root_public"));
    let drawn = KeyFile::generate_root(&mut Script(bytes(&file, "root_secret")));
    assert_eq!(drawn.to_json().as_slice(), text(&file, "root_key_file").as_bytes());
    for case in list(&file, "accepted") {
        let envelope = text(case, "envelope").as_bytes();
        let request: ReadRequest = verify(&roots(&file), envelope).expect("accepted");
        assert_eq!(canon::encode(&request), text(case, "payload").as_bytes());
        // Ed25519 signatures are deterministic, so the whole object can be made again.
        assert_eq!(root.sign(&request).expect("a root key").to_bytes(), envelope);
    }
}

#[test]
fn refused_envelopes() {
    let file = vectors!("envelope.json");
    for case in list(&file, "refused") {
        let error = verify::<ReadRequest>(&roots(&file), text(case, "envelope").as_bytes());
        let error: VerifyError = error.expect_err("refused");
        assert_eq!(format!("{error:?}"), text(case, "error"));
    }
    let scoped = KeyFile::from_json(text(&file, "scoped_key_file").as_bytes()).expect("a key");
    assert_eq!(scoped.id().as_str(), text(&file, "scoped_key_id"));
    assert_eq!(scoped.to_json().as_slice(), text(&file, "scoped_key_file").as_bytes());
}

#[test]
fn awkward_strings_have_one_spelling() {
    for case in vectors!("strings.json").as_array().expect("a list") {
        let points = list(case, "codepoints").iter().map(|point| point.as_u64().expect("a point"));
        let points = points.map(|point| u32::try_from(point).expect("21 bits"));
        let string: String = points.map(|point| char::from_u32(point).expect("a char")).collect();
        let json = text(case, "json").as_bytes();
        assert_eq!(canon::encode(&string), json);
        assert_eq!(canon::decode::<String>(json, 1024), Ok(string));
    }
}

fn same<T: Serialize + DeserializeOwned + Debug>(file: &Value, field: &str) -> T {
    let json = text(file, field).as_bytes();
    let value = canon::decode(json, limits::RECORD_BYTES).expect(field);
    assert_eq!(canon::encode(&value), json, "{field}");
    value
}

#[test]
fn bodies() {
    let file = vectors!("bodies.json");
    same::<Picked>(&file, "picked");
    assert!(!same::<Summary>(&file, "summary").coarser);
    assert!(same::<Summary>(&file, "summary_coarser").coarser);
    same::<AccountRecord>(&file, "account");
    same::<Edges>(&file, "edges");
    same::<Status>(&file, "status");
    assert!(same::<ReadResult>(&file, "result").check().is_ok());
    assert!(same::<HostRecord>(&file, "host_moving").moving.is_some());
    let entry = same::<ChainEntry>(&file, "chain_entry");
    let record: HostRecord = records::decode(entry.content()).expect("a host record");
    assert_eq!(record, same::<HostRecord>(&file, "host"));
}

#[test]
fn response_lines() {
    let file = vectors!("bodies.json");
    for line in list(&file, "lines") {
        let line = format!("{}\n", line.as_str().expect("text"));
        let mut decoder = LineDecoder::new();
        decoder.feed(line.as_bytes());
        let read = decoder.next().expect("a whole line").expect("a known line");
        assert_eq!(read.to_bytes(), line.as_bytes());
        assert_eq!(decoder.finish(), Ok(()));
    }
}

#[test]
fn worker_frames() {
    for case in vectors!("frames.json").as_array().expect("a list") {
        let mut decoder = FrameDecoder::new();
        decoder.feed(&bytes(case, "hex"));
        let frame: Frame = decoder.next().expect("a whole frame").expect("a known frame");
        assert_eq!(frame.to_bytes().expect("small"), bytes(case, "hex"), "{}", text(case, "name"));
        assert!(decoder.is_empty());
    }
}

#[test]
fn the_row_streams_digest_is_the_summarys() {
    let (rows, bodies) = (vectors!("rows.json"), vectors!("bodies.json"));
    let summary = same::<Summary>(&bodies, "summary");
    let stream = bytes(&rows, "stream");
    assert_eq!(summary.sha256.0, Some(Digest::of(&stream)));
    assert_eq!(Digest::of(&stream).to_string(), text(&rows, "sha256"));
}

#[test]
fn the_documentation_states_the_limits() {
    let doc = include_str!("../../docs/protocol.md");
    let stated = [
        (limits::ENVELOPE_BYTES, "1,070,936 bytes"),
        (limits::READ_BODY_BYTES, "802,816 bytes"),
        (limits::LINE_BYTES, "349,912 bytes"),
        (limits::PLAN_FILES, "at most 20,000"),
        (limits::CAPABILITIES, "at most 64"),
        (usize::try_from(limits::MAX_CHUNKS).expect("small"), "above 4,096"),
    ];
    for (limit, words) in stated {
        let digits: String = words.chars().filter(char::is_ascii_digit).collect();
        assert_eq!(digits, limit.to_string());
        assert!(doc.contains(words), "{words}");
    }
}
