//! Answers as a console writes them, sealed to the key of whoever asked.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use carlos_dbquery::rows::{MAX_STREAM_BYTES, Value as Cell, Writer};
use carlos_protocol::Entropy;
use carlos_protocol::ids::{Digest, ReadId, Txid};
use carlos_protocol::seal::{self, Place, ReplyPublic};
use carlos_protocol::summary::{Sha256Text, Summary};
use carlos_protocol::time::Millis;
use serde_json::{Value, json};

/// The rows of the answers.
pub(crate) struct Shop;

impl Shop {
    pub(crate) const TSV: &'static str = "id\tname\n1\tapple\n2\tbanana\\tsplit\n3\t\\N\n";

    /// The row stream of [`Shop::TSV`].
    pub(crate) fn stream() -> Vec<u8> {
        let mut stream = Vec::new();
        let mut writer = Writer::begin(&mut stream, MAX_STREAM_BYTES, ["id", "name"]).unwrap();
        for (id, name) in [(1, Some("apple")), (2, Some("banana\tsplit")), (3, None)] {
            let name = name.map_or(Cell::Null, |name| Cell::Text(name.as_bytes()));
            writer.row(&[Cell::Integer(id), name]).unwrap();
        }
        writer.finish().unwrap();
        stream
    }
}

/// One answer, complete and honest until a test changes it.
pub(crate) struct Answer {
    pub(crate) id: ReadId,
    pub(crate) to: ReplyPublic,
    /// The row stream, cut into chunks.
    pub(crate) chunks: Vec<Vec<u8>>,
    pub(crate) state: &'static str,
    pub(crate) code: &'static str,
    pub(crate) summary: Summary,
    pub(crate) last_seq: u64,
}

impl Answer {
    /// The shop's rows in three chunks, for the request whose body is `request`.
    pub(crate) fn to(request: &Value) -> Self {
        let stream = Shop::stream();
        Self {
            id: ReadId::mint(&mut Dice(1)),
            to: ReplyPublic::parse(request["reply_key"].as_str().expect("a key")).expect("a key"),
            chunks: stream.chunks(stream.len().div_ceil(3)).map(<[u8]>::to_vec).collect(),
            state: "done",
            code: "",
            summary: summary_of(&stream, 3),
            last_seq: 3,
        }
    }

    /// A read that ended without rows.
    pub(crate) fn ended(request: &Value, state: &'static str, code: &'static str) -> Self {
        let rows = Vec::new();
        let summary = Summary {
            oldest: Some(Millis::new(1_790_000_000_000)),
            restored_bytes: 3 << 30,
            cap_bytes: 2 << 30,
            sql_error: "no such table: orders".to_owned(),
            ..Summary::default()
        };
        Self { chunks: rows, state, code, summary, last_seq: 0, ..Self::to(request) }
    }

    /// Every line of the response, without its line break.
    pub(crate) fn lines(&self) -> Vec<String> {
        let mut lines = vec![
            json!({"admitted": self.id.as_text()}).to_string(),
            json!({"wait": "queued"}).to_string(),
            json!({"picked": "uk-1"}).to_string(),
            json!({"wait": "reading"}).to_string(),
        ];
        let last = self.chunks.len() as u64;
        for (seq, plain) in (1..).zip(&self.chunks) {
            lines.push(chunk_line(seq, &self.sealed(seq, seq == last, plain)));
        }
        lines.push(self.result_line());
        lines
    }

    /// The whole response body.
    pub(crate) fn body(&self) -> Vec<u8> {
        join(&self.lines())
    }

    pub(crate) fn sealed(&self, seq: u64, last: bool, plain: &[u8]) -> Vec<u8> {
        seal::seal(&mut Dice(seq), &self.to, &Place::rows(self.id, seq, last), plain)
    }

    /// Written as text, field by field: the form a console of another build has to write as well.
    pub(crate) fn result_line(&self) -> String {
        let sealed = STANDARD.encode(self.summary.seal(&mut Dice(99), &self.to, self.id));
        let Self { state, code, last_seq, .. } = self;
        let times = r#""started":"2026-10-22T09:00:00Z","ended":"2026-10-22T09:00:09Z""#;
        format!(r#"{{"result":{{"state":"{state}","code":"{code}","box":"uk-1","#)
            + &format!(r#""last_seq":{last_seq},{times},"sealed":"{sealed}"}}}}"#)
    }
}

pub(crate) fn chunk_line(seq: u64, sealed: &[u8]) -> String {
    format!(r#"{{"chunk":{seq},"data":"{}"}}"#, STANDARD.encode(sealed))
}

pub(crate) fn join(lines: &[String]) -> Vec<u8> {
    lines.iter().flat_map(|line| [line.as_bytes(), b"\n"].concat()).collect()
}

pub(crate) fn summary_of(stream: &[u8], rows: u64) -> Summary {
    Summary {
        txid: Txid(0x2a),
        time: Some(Millis::new(1_792_659_600_250)),
        rows,
        bytes: stream.len() as u64,
        sha256: Sha256Text(Some(Digest::of(stream))),
        restored_bytes: 8192,
        ..Summary::default()
    }
}

/// Bytes that differ from seal to seal; nothing here has to be secret.
struct Dice(u64);

impl Entropy for Dice {
    fn fill(&mut self, out: &mut [u8]) {
        for byte in out {
            self.0 = self
                .0
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1_442_695_040_888_963_407);
            *byte = (self.0 >> 33) as u8;
        }
    }
}
