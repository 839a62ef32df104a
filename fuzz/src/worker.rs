//! The worker as a whole: the session between frames in and frames out, with a tenant's bytes.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use carlos_dbread_worker::life::Life;
use carlos_dbread_worker::session::{Next, Session, Sink};
use carlos_ltx::{Encoder, Encoding, Header as LtxHeader, TxidRange};
use carlos_protocol::frames::{self, Frame, FrameDecoder, Header, Hello, PlannedFile, Run};
use carlos_protocol::frames::{Sandbox, WorkerLimits};
use carlos_protocol::ids::Txid;
use carlos_protocol::params::Params;

/// Small, so that an input costs little; each bound is still met by some inputs.
const LIMITS: WorkerLimits = WorkerLimits {
    restored_bytes: 1 << 20,
    output_bytes: 64 << 10,
    restore_ms: 400,
    query_ms: 400,
    heap_bytes: 16 << 20,
};

/// The one file of a plan.
const FILE: &str = "0000000000000001-0000000000000007.ltx";

/// What an image is asked, one after the other: every table, every index, every module.
const STATEMENTS: [&str; 6] = [
    "SELECT * FROM t",
    "SELECT count(*), max(a) FROM t WHERE a > '3'",
    "SELECT * FROM v",
    "SELECT * FROM f WHERE f MATCH 'apple'",
    "SELECT * FROM r WHERE a > 0",
    "SELECT * FROM sqlite_schema",
];

/// A peer's bytes, whatever they are.
pub fn worker_conversations(data: &[u8]) {
    let mut decoder = FrameDecoder::new();
    decoder.feed(data);
    let mut bench = Bench::new();
    while let Some(frame) = decoder.next() {
        if bench.take(frame) != Next::Listen {
            break;
        }
    }
    bench.check();
}

/// A tenant's database file under good checksums; its first byte chooses the statement.
pub fn worker_images(data: &[u8]) {
    let Some((&choice, image)) = data.split_first() else { return };
    let Some(file) = packed(image) else { return };
    let statement = STATEMENTS[usize::from(choice) % STATEMENTS.len()];
    let mut bench = Bench::new();
    for frame in asked(&file, statement) {
        if bench.take(Ok(frame)) != Next::Listen {
            break;
        }
    }
    assert!(bench.over, "a whole conversation has an end");
    bench.check();
}

/// Conversations that are whole.
pub fn conversations() -> Vec<Vec<u8>> {
    let file = packed(&image()).expect("a database");
    let whole = |sql| -> Vec<u8> {
        let frames = asked(&file, sql);
        frames.iter().flat_map(|frame| frame.to_bytes().expect("small")).collect()
    };
    STATEMENTS.iter().map(|sql| whole(sql)).collect()
}

/// A sound database before each of the statements.
pub fn images() -> Vec<Vec<u8>> {
    let image = image();
    (0..6).map(|choice| [&[choice][..], &image].concat()).collect()
}

fn image() -> Vec<u8> {
    let mut source = rusqlite::Connection::open_in_memory().expect("memory");
    let made = source.execute_batch(
        "PRAGMA page_size=512; CREATE TABLE t(id INTEGER PRIMARY KEY, a CHECK (a <> ''), \
         b AS (a || 'x')); CREATE INDEX i ON t(a); CREATE VIEW v AS SELECT b, id FROM t; \
         CREATE TRIGGER g AFTER DELETE ON t BEGIN SELECT 1; END; \
         WITH RECURSIVE n(x) AS (SELECT 1 UNION ALL SELECT x+1 FROM n LIMIT 60) \
         INSERT INTO t(a) SELECT hex(x*7919) FROM n; INSERT INTO t(a) VALUES (hex(zeroblob(900))); \
         CREATE VIRTUAL TABLE f USING fts5(w); INSERT INTO f VALUES ('red apple'), ('pear'); \
         CREATE VIRTUAL TABLE r USING rtree(i, a, b); INSERT INTO r VALUES (1, 2, 3);",
    );
    made.expect("good SQL");
    source.serialize("main").expect("a database").to_vec()
}

/// The image as one snapshot file; none when no file can hold it.
fn packed(image: &[u8]) -> Option<Vec<u8>> {
    let size = u32::from(u16::from_be_bytes([*image.get(16)?, *image.get(17)?]));
    let pages = u32::try_from(image.len()).ok()?.checked_div(size)?;
    let range = TxidRange::from_name(FILE).expect("a name");
    let header = LtxHeader::new(size, pages, range, 1_792_659_600_000);
    let mut file = Vec::new();
    let mut encoder = Encoder::new(header, Encoding::Block, &mut file).ok()?;
    for (number, page) in (1..).zip(image.chunks_exact(size as usize)) {
        encoder.page(number, page, &mut file).ok()?;
    }
    encoder.finish(0, &mut file).ok()?;
    Some(file)
}

fn asked(file: &[u8], sql: &str) -> Vec<Frame> {
    let planned = PlannedFile { level: 9, name: FILE.to_owned(), size: file.len() as u64 };
    vec![
        Frame::Hello(Hello { v: frames::VERSION, sandbox: None }),
        Frame::Header(Header { files: vec![planned], target: Txid(7), limits: LIMITS }),
        Frame::FileData(file.to_vec()),
        Frame::Run(Run { sql: sql.to_owned(), params: Params::default() }),
    ]
}

/// A session in a directory of its own, and what it said.
struct Bench {
    session: Session,
    heard: Heard,
    over: bool,
    _dir: tempfile::TempDir,
}

#[derive(Default)]
struct Heard(Vec<Frame>);

impl Sink for Heard {
    fn send(&mut self, frame: Frame) -> io::Result<()> {
        self.0.push(frame);
        Ok(())
    }
}

impl Bench {
    /// Its clock moves a millisecond with each look, so that what never ends by itself ends alike
    /// on every machine.
    fn new() -> Self {
        let dir = tempfile::tempdir().expect("a directory");
        let looks = AtomicU64::new(0);
        let life = Life::new(move || Duration::from_millis(looks.fetch_add(1, Ordering::Relaxed)));
        let session = Session::new(Arc::new(life), dir.path(), 1 << 20, Sandbox::default());
        Self { session, heard: Heard::default(), over: false, _dir: dir }
    }

    fn take(&mut self, frame: Result<Frame, frames::FrameError>) -> Next {
        let next = match frame {
            Ok(frame) => self.session.on_frame(frame, &mut self.heard),
            Err(error) => self.session.on_garbage(&error, &mut self.heard),
        };
        let next = next.expect("the listener takes everything");
        self.over = next != Next::Listen;
        next
    }

    /// One status at the end and none before; no rows of a copy that was not ready.
    fn check(&self) {
        let said = &self.heard.0;
        let statuses = said.iter().filter(|frame| matches!(frame, Frame::Status(_))).count();
        assert_eq!(statuses, usize::from(self.over));
        let ready = said.iter().any(|frame| matches!(frame, Frame::Ready(_)));
        let output = said.iter().any(|frame| matches!(frame, Frame::Output(_)));
        assert!(ready || !output);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Mutations start from inputs that reach the end.
    #[test]
    fn every_statement_is_answered_from_the_sound_image() {
        let file = packed(&image()).expect("a database");
        for sql in STATEMENTS {
            let mut bench = Bench::new();
            for frame in asked(&file, sql) {
                bench.take(Ok(frame));
            }
            let Some(Frame::Status(status)) = bench.heard.0.last() else { panic!("{sql}") };
            assert_eq!(status.outcome, frames::Outcome::Done, "{sql}: {}", status.message);
            assert!(status.rows > 0, "{sql}");
        }
    }
}
