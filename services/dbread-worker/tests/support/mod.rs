//! A replica of one small database, and a worker process to send it to.
#![allow(dead_code, reason = "each test file uses its part")]

use std::io::ErrorKind;
use std::io::Read;
use std::io::Write;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::path::PathBuf;
use std::process::Child;
use std::process::Command;
use std::process::ExitStatus;
use std::process::Stdio;
use std::time::Duration;
use std::time::Instant;

use carlos_ltx::Encoder;
use carlos_ltx::Encoding;
use carlos_ltx::TxidRange;
use carlos_protocol::frames;
use carlos_protocol::frames::Frame;
use carlos_protocol::frames::FrameDecoder;
use carlos_protocol::frames::Header;
use carlos_protocol::frames::Hello;
use carlos_protocol::frames::Outcome;
use carlos_protocol::frames::PlannedFile;
use carlos_protocol::frames::Run;
use carlos_protocol::frames::Status;
use carlos_protocol::frames::WorkerLimits;
use carlos_protocol::ids::Txid;
use carlos_protocol::params::Params;

/// A statement without parameters.
pub(crate) fn run(sql: &str) -> Frame {
    Frame::Run(Run { sql: sql.to_owned(), params: Params::default() })
}

/// When the replica's one transaction was written.
pub(crate) const TIME_MS: i64 = 1_790_000_000_250;

/// What the tests ask of a worker.
pub(crate) const LIMITS: WorkerLimits = WorkerLimits {
    restored_bytes: 64 << 20,
    output_bytes: 64 << 20,
    restore_ms: 60_000,
    query_ms: 60_000,
    heap_bytes: 256 << 20,
};

/// One snapshot file, as the agent would stream it.
pub(crate) struct Replica {
    pub(crate) name: String,
    pub(crate) txid: u64,
    pub(crate) bytes: Vec<u8>,
    pub(crate) pages: u32,
}

impl Replica {
    /// A snapshot of a database that `sql` makes.
    pub(crate) fn of(sql: &str) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("source.db");
        let source = rusqlite::Connection::open(&path).unwrap();
        source.execute_batch(sql).unwrap();
        drop(source);
        Self::of_file(&std::fs::read(path).unwrap())
    }

    /// A snapshot of the database file `image`.
    pub(crate) fn of_file(image: &[u8]) -> Self {
        let page_size = u32::from(u16::from_be_bytes([image[16], image[17]]));
        let pages = u32::try_from(image.len()).unwrap() / page_size;
        let name = "0000000000000001-0000000000000007.ltx".to_owned();
        let range = TxidRange::from_name(&name).unwrap();
        let header = carlos_ltx::Header::new(page_size, pages, range, TIME_MS);
        let mut bytes = Vec::new();
        let mut encoder = Encoder::new(header, Encoding::Block, &mut bytes).unwrap();
        for (number, page) in (1..).zip(image.chunks(page_size as usize)) {
            encoder.page(number, page, &mut bytes).unwrap();
        }
        encoder.finish(0, &mut bytes).unwrap();
        Self { name, txid: 7, bytes, pages }
    }

    pub(crate) fn shop() -> Self {
        Self::of(
            "PRAGMA page_size=4096; CREATE TABLE item (id INTEGER PRIMARY KEY, name TEXT);
             INSERT INTO item (name) VALUES ('apple'), (NULL), ('pear'); \
             CREATE VIRTUAL TABLE note USING fts5(body); INSERT INTO note VALUES ('red apple');",
        )
    }

    pub(crate) fn header(&self, limits: WorkerLimits) -> Header {
        let size = self.bytes.len() as u64;
        let file = PlannedFile { level: 9, name: self.name.clone(), size };
        Header { files: vec![file], target: Txid(self.txid), limits }
    }
}

/// A worker process and the agent's end of its connection.
pub(crate) struct Worker {
    pub(crate) child: Child,
    pub(crate) connection: Option<UnixStream>,
    decoder: FrameDecoder,
    scratch: PathBuf,
}

impl Worker {
    pub(crate) fn start(scratch: &Path) -> Self {
        let (ours, theirs) = UnixStream::pair().unwrap();
        let uid = rustix::process::getuid().as_raw().to_string();
        let child = Command::new(env!("CARGO_BIN_EXE_carlos-dbread-worker"))
            .args(["--peer-user", &uid, "--scratch"])
            .arg(scratch)
            .env("TZ", "UTC")
            .stdin(Stdio::from(OwnedFd::from(theirs)))
            .spawn()
            .unwrap();
        ours.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
        let decoder = FrameDecoder::new();
        Self { child, connection: Some(ours), decoder, scratch: scratch.to_owned() }
    }

    /// A worker that has said hello.
    pub(crate) fn greeted(scratch: &Path) -> Self {
        let mut worker = Self::start(scratch);
        worker.send(&Frame::Hello(Hello { v: frames::VERSION, sandbox: None }));
        let Frame::Hello(_) = worker.hear() else { panic!("no hello") };
        worker
    }

    /// A worker that holds `replica`.
    pub(crate) fn holding(scratch: &Path, replica: &Replica, limits: WorkerLimits) -> Self {
        let mut worker = Self::greeted(scratch);
        worker.send(&Frame::Header(replica.header(limits)));
        worker.send_file(&replica.bytes);
        let Frame::Ready(ready) = worker.hear() else { panic!("not ready") };
        assert_eq!((ready.txid, ready.pages), (Txid(replica.txid), replica.pages));
        worker
    }

    pub(crate) fn send(&self, frame: &Frame) {
        self.write(&frame.to_bytes().unwrap());
    }

    pub(crate) fn send_file(&self, bytes: &[u8]) {
        for piece in bytes.chunks(1000) {
            self.write(&Frame::file_data(piece).unwrap());
        }
    }

    pub(crate) fn run(&self, sql: &str) {
        self.send(&run(sql));
    }

    /// Writes bytes that may be no frame. A worker that has ended takes none: what it said before
    /// is what counts.
    pub(crate) fn write(&self, bytes: &[u8]) {
        let _ = self.connection.as_ref().unwrap().write_all(bytes);
    }

    pub(crate) fn hear(&mut self) -> Frame {
        self.hear_or_end().expect("the worker says something before it ends")
    }

    pub(crate) fn hear_or_end(&mut self) -> Option<Frame> {
        let mut buffer = vec![0; 64 * 1024];
        loop {
            if let Some(frame) = self.decoder.next() {
                return Some(frame.unwrap());
            }
            match self.connection.as_ref().unwrap().read(&mut buffer) {
                Ok(0) => return None,
                Ok(len) => self.decoder.feed(&buffer[..len]),
                Err(error) if error.kind() == ErrorKind::ConnectionReset => return None,
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => panic!("the worker is silent: {error}"),
            }
        }
    }

    /// Collects the row stream up to the status.
    pub(crate) fn answer(&mut self) -> (Vec<u8>, Status) {
        let mut rows = Vec::new();
        loop {
            match self.hear() {
                Frame::Output(bytes) => rows.extend_from_slice(&bytes),
                Frame::Status(status) => return (rows, status),
                other => panic!("{other:?}"),
            }
        }
    }

    pub(crate) fn expect_status(&mut self, outcome: Outcome) -> Status {
        let (rows, status) = self.answer();
        assert_eq!(status.outcome, outcome, "{}", status.message);
        assert!(rows.is_empty() || outcome == Outcome::OutputCap);
        status
    }

    pub(crate) fn hang_up(&mut self) {
        self.connection = None;
    }

    /// Waits for the process's end, and says how long that took.
    pub(crate) fn end(&mut self, patience: Duration) -> (ExitStatus, Duration) {
        let start = Instant::now();
        loop {
            if let Some(status) = self.child.try_wait().unwrap() {
                return (status, start.elapsed());
            }
            assert!(start.elapsed() < patience, "the worker still runs after {patience:?}");
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    pub(crate) fn expect_exit(&mut self, code: u8) {
        let (status, _) = self.end(Duration::from_secs(20));
        assert_eq!(status.code(), Some(code.into()), "{status}");
    }

    /// What lies in the worker's scratch directory, the lock apart.
    pub(crate) fn scratch_files(&self) -> Vec<String> {
        let mut names = Vec::new();
        for dir in std::fs::read_dir(&self.scratch).unwrap() {
            for file in std::fs::read_dir(dir.unwrap().path()).unwrap() {
                names.push(file.unwrap().file_name().into_string().unwrap());
            }
        }
        names.retain(|name| name != "lock");
        names
    }
}

impl Worker {
    /// Bytes of the copies that lie in the scratch root.
    pub(crate) fn scratch_bytes(&self) -> u64 {
        let dirs = std::fs::read_dir(&self.scratch).unwrap();
        dirs.map(|dir| dir.unwrap().path().join("database").metadata().unwrap().len()).sum()
    }
}

impl Drop for Worker {
    fn drop(&mut self) {
        // A test that failed must leave no worker behind.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
