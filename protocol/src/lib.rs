//! Every byte that leaves a process: ids, keys, envelopes, sealing, records, lines, frames, copy
//! and limits.
//!
//! Bytes in, bytes out. Nothing here owns a clock, a socket or a source of randomness: functions
//! take the time as a number and randomness through [`Entropy`]. The layouts and their test
//! vectors are described in `docs/protocol.md`.
#![cfg_attr(test, allow(clippy::disallowed_methods, clippy::disallowed_macros))]
#![warn(missing_docs)]

pub mod api;
pub mod canon;
pub mod copy;
pub mod envelope;
pub mod frames;
pub mod ids;
pub mod keys;
pub mod limits;
pub mod lines;
pub mod mesh;
pub mod params;
pub mod picked;
pub mod records;
pub mod request;
pub mod result;
pub mod seal;
pub mod statement;
pub mod summary;
pub mod time;
pub mod tokens;

mod base64_text;
mod redacted;

pub use ulid::Ulid;

/// A source of uniform, unpredictable bytes.
///
/// Ids, nonces and keys are drawn from it, so an implementation used outside tests must be a
/// cryptographic generator.
pub trait Entropy {
    /// Overwrites the whole of `out` with fresh bytes.
    fn fill(&mut self, out: &mut [u8]);
}

impl<E: Entropy + ?Sized> Entropy for &mut E {
    fn fill(&mut self, out: &mut [u8]) {
        (**self).fill(out);
    }
}

/// Draws a fixed number of bytes.
pub(crate) fn draw<const N: usize>(entropy: &mut dyn Entropy) -> [u8; N] {
    let mut bytes = [0; N];
    entropy.fill(&mut bytes);
    bytes
}

#[cfg(test)]
pub(crate) mod testing {
    use crate::Entropy;

    /// A linear congruential sequence: equal seeds draw equal bytes.
    pub(crate) struct Counter(pub(crate) u64);

    impl Entropy for Counter {
        // Knuth's MMIX constants.
        fn fill(&mut self, out: &mut [u8]) {
            for chunk in out.chunks_mut(8) {
                self.0 =
                    self.0.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(0x1405_7b7e_f767_814f);
                chunk.copy_from_slice(&self.0.to_be_bytes()[..chunk.len()]);
            }
        }
    }
}
