//! The row stream on its way out: cut into chunks, sealed, created, confirmed (db-forward §5.6).

use std::time::Duration;

use carlos_protocol::ids::Digest;
use carlos_protocol::limits::{CHUNK_BYTES, CHUNK_EVERY, OUTPUT_BYTES};
use sha2::{Digest as _, Sha256};
use thiserror::Error;

/// The worker sent more rows than a read may return.
#[derive(Clone, Copy, Debug, Error, PartialEq, Eq)]
#[error("the rows come to more than {OUTPUT_BYTES} bytes")]
pub(crate) struct OverCap;

/// What the whole row stream came to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Totals {
    pub(crate) bytes: u64,
    pub(crate) sha256: Digest,
}

/// Cuts the row stream into chunks of 256 KiB or 1 s, whichever comes first.
pub(crate) struct Chunker {
    buffer: Vec<u8>,
    oldest: Option<Duration>,
    bytes: u64,
    digest: Sha256,
}

impl Chunker {
    pub(crate) fn new() -> Self {
        Self {
            buffer: Vec::with_capacity(CHUNK_BYTES),
            oldest: None,
            bytes: 0,
            digest: Sha256::new(),
        }
    }

    /// Takes bytes that arrived at `now` and gives the chunks they filled.
    pub(crate) fn push(&mut self, now: Duration, bytes: &[u8]) -> Result<Vec<Vec<u8>>, OverCap> {
        self.bytes += bytes.len() as u64;
        if self.bytes > OUTPUT_BYTES {
            return Err(OverCap);
        }
        self.digest.update(bytes);
        self.buffer.extend_from_slice(bytes);
        let mut full = Vec::new();
        while self.buffer.len() >= CHUNK_BYTES {
            let rest = self.buffer.split_off(CHUNK_BYTES);
            full.push(std::mem::replace(&mut self.buffer, rest));
            self.oldest = None;
        }
        if !self.buffer.is_empty() {
            self.oldest.get_or_insert(now);
        }
        Ok(full)
    }

    /// When the bytes held must leave, if any are held.
    pub(crate) fn due(&self) -> Option<Duration> {
        self.oldest.map(|oldest| oldest + CHUNK_EVERY)
    }

    /// What is held, as a chunk that is not the last.
    pub(crate) fn take(&mut self) -> Option<Vec<u8>> {
        self.oldest.take().map(|_| std::mem::take(&mut self.buffer))
    }

    /// The last chunk, which may be empty, and the totals of the stream.
    pub(crate) fn finish(self) -> (Vec<u8>, Totals) {
        let sha256 = Digest::from_bytes(self.digest.finalize().into());
        (self.buffer, Totals { bytes: self.bytes, sha256 })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const AT: Duration = Duration::from_secs(100);

    #[test]
    fn a_stream_of_nothing_still_has_a_last_chunk() {
        let (last, totals) = Chunker::new().finish();
        assert!(last.is_empty());
        assert_eq!(totals.bytes, 0);
        assert!(totals.sha256.to_string().starts_with("e3b0c44298fc1c149afbf4c8996fb924"));
    }

    #[test]
    fn a_full_chunk_leaves_at_once_and_a_small_one_after_a_second() {
        let mut chunker = Chunker::new();
        assert_eq!(chunker.push(AT, &[1; CHUNK_BYTES]).expect("below the cap").len(), 1);
        assert_eq!(chunker.due(), None);
        assert!(chunker.push(AT, b"row").expect("below the cap").is_empty());
        assert!(chunker.push(AT + CHUNK_EVERY / 2, b"s").expect("below the cap").is_empty());
        assert_eq!(chunker.due(), Some(AT + CHUNK_EVERY));
        assert_eq!(chunker.take().as_deref(), Some(&b"rows"[..]));
        assert_eq!(chunker.due(), None);
        assert_eq!(chunker.take(), None);
    }

    #[test]
    fn the_cap_is_the_last_byte_that_fits() {
        let mut chunker = Chunker::new();
        let mebibyte = vec![0; 1 << 20];
        for _ in 0..64 {
            chunker.push(AT, &mebibyte).expect("64 MiB fit");
        }
        assert_eq!(chunker.push(AT, b"x"), Err(OverCap));
    }

    proptest::proptest! {
        // However the bytes arrive, the chunks joined are the stream, none but the last is over
        // or empty, and the totals are the stream's own.
        #[test]
        fn chunks_joined_are_the_stream(
            pieces in proptest::collection::vec((0_usize..300_000, 0_u64..2_000), 0..12),
        ) {
            let mut chunker = Chunker::new();
            let (mut sent, mut chunks, mut now) = (Vec::new(), Vec::new(), AT);
            for (index, (size, wait)) in pieces.into_iter().enumerate() {
                now += Duration::from_millis(wait);
                if chunker.due().is_some_and(|due| due <= now) {
                    chunks.extend(chunker.take());
                }
                let piece = vec![index as u8; size];
                chunks.extend(chunker.push(now, &piece).expect("below the cap"));
                sent.extend(piece);
            }
            proptest::prop_assert!(chunks.iter().all(|c| (1..=CHUNK_BYTES).contains(&c.len())));
            let (last, totals) = chunker.finish();
            chunks.push(last);
            proptest::prop_assert_eq!(totals.bytes, sent.len() as u64);
            proptest::prop_assert_eq!(totals.sha256, Digest::of(&sent));
            proptest::prop_assert!(chunks.concat() == sent);
        }
    }
}
