//! Targets for the decoders of `carlos-protocol`.

use std::str::FromStr;
use std::sync::LazyLock;

use carlos_protocol::api::{Apps, ErrorBody, Instances, ReadBody};
use carlos_protocol::canon;
use carlos_protocol::copy;
use carlos_protocol::envelope::{self, KeyFile, Payload, PublicKey, RootKeys};
use carlos_protocol::frames::{Frame, FrameDecoder, FrameError};
use carlos_protocol::ids::{self, ReadId};
use carlos_protocol::keys::Key;
use carlos_protocol::limits::{LINE_BYTES, RECORD_BYTES, SUMMARY_BYTES};
use carlos_protocol::lines::{Line, LineDecoder, LineError};
use carlos_protocol::picked::Picked;
use carlos_protocol::records::{
    self, AccountRecord, Activity, ChainEntry, Edges, HostRecord, Status,
};
use carlos_protocol::request::ReadRequest;
use carlos_protocol::result::ReadResult;
use carlos_protocol::seal::{self, Place, ReplyKey, ReplyPublic};
use carlos_protocol::statement;
use carlos_protocol::summary::Summary;
use carlos_protocol::time::{self, At, Day, Hour, Millis, Seconds};
use carlos_protocol::tokens::Token;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

use crate::seeds::Fixed;

static ROOT: LazyLock<KeyFile> = LazyLock::new(|| KeyFile::generate_root(&mut Fixed));
static ROOTS: LazyLock<RootKeys> = LazyLock::new(|| [ROOT.public()].into_iter().collect());
static REPLY: LazyLock<ReplyKey> = LazyLock::new(|| ReplyKey::generate(&mut Fixed));

/// What is read must be written back to the same bytes.
fn canonical<T: Serialize + DeserializeOwned>(data: &[u8], max: usize) -> Option<T> {
    let value: T = canon::decode(data, max).ok()?;
    assert_eq!(canon::encode(&value), data);
    Some(value)
}

/// A text that is read must be written back as it was.
fn one_text<T: FromStr + ToString>(text: &str) {
    if let Ok(value) = text.parse::<T>() {
        assert_eq!(value.to_string(), text);
    }
}

/// Account records, and looking for a token in one.
pub fn accounts(data: &[u8]) {
    if let Some(record) = canonical::<AccountRecord>(data, RECORD_BYTES) {
        let token = Token::generate(
            &mut Fixed,
            carlos_protocol::tokens::TokenKind::Person,
            &record.account,
        );
        let _ = record.holder(&token, 0);
    }
}

/// The bodies of the HTTP doors.
pub fn api(data: &[u8]) {
    if let Ok(body) = ReadBody::from_bytes(data) {
        assert_eq!(ReadBody::from_bytes(&body.to_bytes()), Ok(body));
    }
    if let Ok(body) = ErrorBody::from_bytes(data) {
        let _ = body.forwards("query");
        assert_eq!(ErrorBody::from_bytes(&body.to_bytes()), Ok(body));
    }
    let _ = canon::decode_loose::<Apps>(data, RECORD_BYTES);
    let _ = canon::decode_loose::<Instances>(data, RECORD_BYTES);
}

/// What boxes publish.
pub fn boxes(data: &[u8]) {
    if let Ok(edges) = Edges::from_bytes(data) {
        assert_eq!(records::encode(&edges), data);
    }
    if let Ok(status) = Status::from_bytes(data) {
        assert_eq!(records::encode(&status), data);
    }
}

/// Revisions of chains.
pub fn chain_entries(data: &[u8]) {
    if let Ok(entry) = ChainEntry::from_bytes(data) {
        assert_eq!(entry.to_bytes(), data);
        let again = ChainEntry::wrap(entry.by.clone(), entry.nonce, entry.content());
        assert_eq!(again.expect("was wrapped before").to_bytes(), data);
        hosts(entry.content());
    }
}

/// Envelopes as they lie in the bucket.
pub fn envelopes(data: &[u8]) {
    let verified = envelope::verify::<ReadRequest>(&ROOTS, data);
    assert!(verified.is_err(), "nobody but the holder of the secret signs");
    if let Ok(envelope) = envelope::Envelope::from_bytes(data) {
        assert_eq!(envelope.to_bytes(), data);
    }
}

/// Frames between agent and worker, whole and byte by byte.
pub fn frames(data: &[u8]) {
    let whole = cut_frames([data]);
    assert_eq!(whole, cut_frames(data.chunks(1)));
    let mut written = Vec::new();
    for frame in whole.iter().map_while(|frame| frame.as_ref().ok()) {
        written.extend(frame.to_bytes().expect("it came from a frame"));
    }
    assert!(data.starts_with(&written), "what is read is written back the same");
}

fn cut_frames<'a>(pieces: impl IntoIterator<Item = &'a [u8]>) -> Vec<Result<Frame, FrameError>> {
    let (mut decoder, mut frames) = (FrameDecoder::new(), Vec::new());
    for piece in pieces {
        decoder.feed(piece);
        frames.extend(std::iter::from_fn(|| decoder.next()));
    }
    frames
}

/// Host records and activity rows.
pub fn hosts(data: &[u8]) {
    if let Some(record) = canonical::<HostRecord>(data, RECORD_BYTES) {
        let _ = (records::class_refusal(&record), record.incarnation());
    }
    canonical::<Activity>(data, RECORD_BYTES);
}

/// Private keys' files and public keys' texts.
pub fn key_files(data: &[u8]) {
    if let Ok(key) = KeyFile::from_json(data) {
        let text = key.to_json();
        assert_eq!(KeyFile::from_json(&text).expect("its own text").to_json(), text);
    }
    if let Ok(text) = std::str::from_utf8(data) {
        one_text::<PublicKey>(text);
        let _ = (RootKeys::parse(text), ReplyPublic::parse(text));
    }
}

/// Names of objects.
pub fn keys(data: &[u8]) {
    if let Ok(path) = std::str::from_utf8(data)
        && let Ok(key) = Key::parse(path)
    {
        assert_eq!(key.to_path(), path);
    }
}

/// Responses of a read, whole and byte by byte.
pub fn lines(data: &[u8]) {
    let whole = cut_lines([data]);
    assert_eq!(whole, cut_lines(data.chunks(1)));
    for line in whole.into_iter().flatten() {
        let bytes = line.to_bytes();
        assert!(bytes.len() <= LINE_BYTES + 1);
        assert_eq!(cut_lines([&bytes[..]]), [Ok(line)]);
    }
}

fn cut_lines<'a>(pieces: impl IntoIterator<Item = &'a [u8]>) -> Vec<Result<Line, LineError>> {
    let (mut decoder, mut lines) = (LineDecoder::new(), Vec::new());
    for piece in pieces {
        decoder.feed(piece);
        lines.extend(std::iter::from_fn(|| decoder.next()));
    }
    lines
}

/// `picked`.
pub fn markers(data: &[u8]) {
    if let Ok(picked) = Picked::from_bytes(data) {
        assert_eq!(picked.to_bytes(), data);
        assert!(picked.clamped_deadline(1_000).unix() >= 1_000);
    }
}

/// Every validated name.
pub fn names(data: &[u8]) {
    let Ok(text) = std::str::from_utf8(data) else { return };
    one_text::<ids::Account>(text);
    one_text::<ids::BootId>(text);
    one_text::<ids::Host>(text);
    one_text::<ids::ReadId>(text);
    one_text::<ids::Nonce>(text);
    one_text::<ids::Digest>(text);
    one_text::<ids::Incarnation>(text);
    one_text::<ids::Txid>(text);
    one_text::<ids::Revision>(text);
    if let Ok(ulid) = ids::ulid_text::parse(text) {
        assert_eq!(ulid.to_string(), text);
    }
    if let Ok(id) = envelope::KeyId::parse(text) {
        assert_eq!(id.as_str(), text);
    }
}

/// Any JSON as a root-signed payload: gets behind the signature.
#[derive(Deserialize, Serialize)]
#[serde(transparent)]
struct Signed(Box<RawValue>);

impl Payload for Signed {
    const PURPOSE: &'static str = "";
    const VERSION: u32 = 0;
}

/// Payloads of requests, with a signature that fits.
pub fn requests(data: &[u8]) {
    let Ok(payload) = serde_json::from_slice::<Signed>(data) else { return };
    let payload_text = payload.0.get().to_owned();
    let Ok(envelope) = ROOT.sign(&payload) else { return };
    let verified = envelope::verify::<ReadRequest>(&ROOTS, &envelope.to_bytes());
    let Ok(request) = verified else { return };
    assert_eq!(canon::encode(&request), payload_text.as_bytes());
    let entry = request.queue_entry();
    let now = request.issued_at.unix();
    let _ = request.check(&entry.id, &entry.region, now, &entry);
    statements(request.sql.as_bytes());
    keys(Key::Queue(entry).to_path().as_bytes());
}

/// `result.json`.
pub fn results(data: &[u8]) {
    if let Ok(result) = ReadResult::from_bytes(data) {
        assert_eq!(result.to_bytes(), data);
        let _ = Summary::open(&REPLY, ReadId::from_bytes([7; 16]), &result);
        printable(copy::of_result(&result, None, "shop.example.com", "uk"));
    }
}

/// Sealed bytes for a key whose holder looks at them. The seed opens; nothing else does.
pub fn sealed(data: &[u8]) {
    let place = Place::rows(ReadId::from_bytes([7; 16]), 1, true);
    if let Ok(plaintext) = seal::open(&REPLY, &place, data) {
        assert_eq!(seal::seal(&mut Fixed, &REPLY.public(), &place, &plaintext), data);
    }
}

/// Sentences with foreign arguments.
pub fn sentences(data: &[u8]) {
    let text = String::from_utf8_lossy(data);
    printable(Some(copy::sql_error(&text)));
    printable(Some(copy::no_capable_box(&text, &text)));
}

fn printable(message: Option<copy::Message>) {
    let text = message.map_or_else(String::new, |message| message.to_string());
    assert!(!text.chars().any(copy::is_driving));
}

/// The text half of the guard: it refuses with a printable sentence, or passes the text on.
pub fn statements(data: &[u8]) {
    match statement::check_bytes(data) {
        Ok(sql) => assert_eq!(sql.as_bytes(), data),
        Err(refusal) => printable(Some(copy::of_statement(&refusal))),
    }
}

/// Opened summaries.
pub fn summaries(data: &[u8]) {
    canonical::<Summary>(data, SUMMARY_BYTES);
}

/// Times, those of people included.
pub fn times(data: &[u8]) {
    let Ok(text) = std::str::from_utf8(data) else { return };
    one_text::<Seconds>(text);
    one_text::<Millis>(text);
    one_text::<At>(text);
    one_text::<Hour>(text);
    one_text::<Day>(text);
    if let Ok(time) = time::parse_rfc3339(text) {
        assert_eq!(time.to_string().parse(), Ok(time));
    }
}

/// Bearer tokens.
pub fn tokens(data: &[u8]) {
    if let Ok(text) = std::str::from_utf8(data)
        && let Ok(token) = Token::parse(text)
    {
        assert_eq!(token.reveal(), text);
        let shown = format!("Token({}{}, secret)", &text[..4], token.account());
        assert_eq!(format!("{token:?}"), shown);
    }
}
