//! The row stream's way out: cut into frames.

use std::io;
use std::io::Write;

use carlos_protocol::frames::Frame;

use super::Sink;

/// Bytes of the row stream in one frame. A quarter of the agent's chunk, so that a chunk is never
/// held up by much, and few enough frames for 64 MiB.
const OUTPUT_FRAME_BYTES: usize = 64 * 1024;

/// Collects writes and sends them on as [`Frame::Output`].
pub(super) struct Outlet<'a> {
    sink: &'a mut dyn Sink,
    buffer: Vec<u8>,
}

impl<'a> Outlet<'a> {
    pub(super) fn new(sink: &'a mut dyn Sink) -> Self {
        Self { sink, buffer: Vec::new() }
    }
}

impl Write for Outlet<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let taken = bytes.len().min(OUTPUT_FRAME_BYTES - self.buffer.len());
        self.buffer.extend_from_slice(&bytes[..taken]);
        if self.buffer.len() == OUTPUT_FRAME_BYTES {
            self.flush()?;
        }
        Ok(taken)
    }

    fn flush(&mut self) -> io::Result<()> {
        if self.buffer.is_empty() {
            return Ok(());
        }
        self.sink.send(Frame::Output(std::mem::take(&mut self.buffer)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Default)]
    struct Heard(Vec<usize>);

    impl Sink for Heard {
        fn send(&mut self, frame: Frame) -> io::Result<()> {
            let Frame::Output(bytes) = frame else { panic!("{frame:?}") };
            self.0.push(bytes.len());
            Ok(())
        }
    }

    #[test]
    fn large_and_small_writes_leave_in_bounded_frames() {
        let mut heard = Heard::default();
        let mut outlet = Outlet::new(&mut heard);
        outlet.write_all(b"head").unwrap();
        outlet.write_all(&vec![0; 2 * OUTPUT_FRAME_BYTES]).unwrap();
        outlet.flush().unwrap();
        outlet.flush().unwrap();
        assert_eq!(heard.0, [OUTPUT_FRAME_BYTES, OUTPUT_FRAME_BYTES, 4]);
    }
}
