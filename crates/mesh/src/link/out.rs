//! Bytes on their way to the socket: small records in one buffer, large payloads as they are.

use std::collections::VecDeque;

use bytes::{Bytes, BytesMut};

/// Payloads from this size on are not copied: below it a copy is cheaper than one more entry in a
/// vectored write.
pub(super) const COPY_BELOW: usize = 4 * 1024;

/// A queue of bytes.
#[derive(Debug, Default)]
pub(super) struct Out {
    chunks: VecDeque<Bytes>,
    tail: BytesMut,
    bytes: usize,
}

impl Out {
    /// Bytes that wait.
    pub(super) fn len(&self) -> usize {
        self.bytes
    }

    /// Adds what `put` writes, and then `payload`.
    pub(super) fn push(&mut self, payload: &Bytes, put: impl FnOnce(&mut BytesMut)) {
        let before = self.tail.len();
        put(&mut self.tail);
        if payload.len() < COPY_BELOW {
            self.tail.extend_from_slice(payload);
            self.bytes += self.tail.len() - before;
            return;
        }
        self.bytes += self.tail.len() - before + payload.len();
        self.chunks.push_back(self.tail.split().freeze());
        self.chunks.push_back(payload.clone());
    }

    /// Gives the buffer back when nothing waits.
    pub(super) fn shrink(&mut self) {
        if self.bytes == 0 {
            *self = Self::default();
        }
    }

    /// Moves about `most` bytes to `into`, in order.
    pub(super) fn take(&mut self, most: usize, into: &mut VecDeque<Bytes>) {
        let mut taken = 0;
        while taken < most {
            let Some(chunk) = self.next_chunk(most - taken) else { break };
            taken += chunk.len();
            into.push_back(chunk);
        }
        self.bytes -= taken;
    }

    fn next_chunk(&mut self, most: usize) -> Option<Bytes> {
        if let Some(chunk) = self.chunks.pop_front() {
            return Some(chunk);
        }
        match self.tail.len() {
            0 => None,
            len => Some(self.tail.split_to(len.min(most)).freeze()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn order_and_count_hold_over_copies_and_references() {
        let mut out = Out::default();
        let large = Bytes::from(vec![7; COPY_BELOW]);
        out.push(&Bytes::from_static(b"b"), |tail| tail.extend_from_slice(b"a"));
        out.push(&large, |tail| tail.extend_from_slice(b"c"));
        out.push(&Bytes::new(), |tail| tail.extend_from_slice(b"d"));
        assert_eq!(out.len(), 4 + COPY_BELOW);
        let mut chunks = VecDeque::new();
        out.take(5, &mut chunks);
        out.take(usize::MAX, &mut chunks);
        let all: Vec<u8> = chunks.iter().flat_map(|chunk| chunk.to_vec()).collect();
        assert_eq!(all, [b"abc".as_slice(), &large, b"d"].concat());
        assert_eq!(out.len(), 0);
    }
}
