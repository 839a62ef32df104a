//! An agent that lies: what it announces to a real worker and what it sends are two things.

use std::io::{Read as _, Write as _};
use std::os::unix::net::UnixStream;

use carlos_protocol::frames::{
    self, Frame, FrameDecoder, Header, Hello, PlannedFile, WorkerLimits,
};
use carlos_protocol::ids::Txid;

/// Sends the snapshot in `file` with `extra` bytes behind it, under a bound of `restored_bytes`,
/// and prints the worker's last word.
pub(crate) fn send(socket: &str, file: &str, extra: usize, restored_bytes: u64) {
    let mut snapshot = std::fs::read(file).unwrap();
    let mut connection = UnixStream::connect(socket).unwrap();
    let header = header(snapshot.len() as u64, restored_bytes);
    snapshot.resize(snapshot.len() + extra, 0);
    say(&mut connection, &Frame::Hello(Hello { v: frames::VERSION, sandbox: None }));
    say(&mut connection, &Frame::Header(header));
    say(&mut connection, &Frame::FileData(snapshot));
    println!("{:?}", last_word(&mut connection));
}

fn header(size: u64, restored_bytes: u64) -> Header {
    let name = "0000000000000001-0000000000000001.ltx".to_owned();
    let limits = WorkerLimits {
        restored_bytes,
        output_bytes: 1 << 20,
        restore_ms: 10_000,
        query_ms: 10_000,
        heap_bytes: 1 << 24,
    };
    Header { files: vec![PlannedFile { level: 9, name, size }], target: Txid(1), limits }
}

/// A worker that has had enough may have closed its end; what it said first is still there.
fn say(connection: &mut UnixStream, frame: &Frame) {
    let _ = connection.write_all(&frame.to_bytes().unwrap());
}

/// The first frame after its hello that says how it stands.
fn last_word(connection: &mut UnixStream) -> Option<Frame> {
    let mut decoder = FrameDecoder::new();
    let mut buffer = vec![0; 1 << 16];
    loop {
        while let Some(frame) = decoder.next() {
            match frame.unwrap() {
                Frame::Hello(_) => {}
                frame => return Some(frame),
            }
        }
        match connection.read(&mut buffer) {
            Ok(0) | Err(_) => return None,
            Ok(count) => decoder.feed(&buffer[..count]),
        }
    }
}
