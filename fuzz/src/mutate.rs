//! Changes to good inputs, drawn from a seed: equal seeds make equal inputs.

use rand::{RngExt as _, SeedableRng as _};
use rand_chacha::ChaCha8Rng;

/// The longest input that grows out of mutations: inputs stay fast to run.
const MAX_LEN: usize = 64 * 1024;

/// The most changes to one input. Few: many changes at once rarely get past the first check.
const MAX_CHANGES: u32 = 5;

/// Bytes that sit on borders: of signs, of varints, of text.
const BORDERS: [u8; 12] = [0, 1, 0x7f, 0x80, 0xff, b'"', b'\\', b'{', b'}', b'\n', b'0', b'-'];

/// Makes inputs.
pub struct Mutator {
    rng: ChaCha8Rng,
}

impl Mutator {
    /// A mutator whose inputs are those of `seed`.
    pub fn new(seed: u64) -> Self {
        Self { rng: ChaCha8Rng::seed_from_u64(seed) }
    }

    /// An input: one of `seeds`, changed a little.
    pub fn input(&mut self, seeds: &[Vec<u8>]) -> Vec<u8> {
        let mut input = self.pick(seeds);
        for _ in 0..self.rng.random_range(1..=MAX_CHANGES) {
            self.change(&mut input, seeds);
        }
        input.truncate(MAX_LEN);
        input
    }

    fn change(&mut self, input: &mut Vec<u8>, seeds: &[Vec<u8>]) {
        match self.rng.random_range(0..9) {
            0 => self.with_byte(input, |byte, random| byte ^ (1 << (random & 7))),
            1 => self.with_byte(input, |_, random| random),
            2 => self.with_byte(input, |_, random| BORDERS[usize::from(random) % BORDERS.len()]),
            3 => {
                self.with_byte(input, |byte, random| byte.wrapping_add(random % 9).wrapping_sub(4))
            }
            4 => drop(input.drain(self.range(input.len()))),
            5 => self.copy_within(input),
            6 => self.splice(input, seeds),
            7 => input.truncate(self.rng.random_range(0..=input.len())),
            _ => self.big_number(input),
        }
    }

    /// Replaces a byte by a function of itself and a random one.
    fn with_byte(&mut self, input: &mut [u8], new: impl Fn(u8, u8) -> u8) {
        let random = self.rng.random_range(0..=u8::MAX);
        if !input.is_empty() {
            let at = self.rng.random_range(0..input.len());
            input[at] = new(input[at], random);
        }
    }

    /// Repeats a part of the input at another place.
    fn copy_within(&mut self, input: &mut Vec<u8>) {
        let part = input[self.range(input.len())].to_vec();
        let at = self.rng.random_range(0..=input.len());
        input.splice(at..at, part);
    }

    /// Puts a part of another seed in the place of a part of this input.
    fn splice(&mut self, input: &mut Vec<u8>, seeds: &[Vec<u8>]) {
        let other = self.pick(seeds);
        let part = other[self.range(other.len())].to_vec();
        let replaced = self.range(input.len());
        input.splice(replaced, part);
    }

    /// Writes a large number over a place where a length may lie.
    fn big_number(&mut self, input: &mut [u8]) {
        let number = u32::MAX >> self.rng.random_range(0..32);
        if let Some(last) = input.len().checked_sub(4) {
            let at = self.rng.random_range(0..=last);
            input[at..at + 4].copy_from_slice(&number.to_be_bytes());
        }
    }

    fn pick(&mut self, seeds: &[Vec<u8>]) -> Vec<u8> {
        let at = self.rng.random_range(0..seeds.len().max(1));
        seeds.get(at).cloned().unwrap_or_default()
    }

    /// A part of something this long; short parts are likelier.
    fn range(&mut self, len: usize) -> std::ops::Range<usize> {
        let start = self.rng.random_range(0..=len);
        let longest = (len - start) >> self.rng.random_range(0..6);
        start..start + self.rng.random_range(0..=longest)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn equal_seeds_make_equal_inputs() {
        let seeds = vec![b"some seed".to_vec(), b"another".to_vec()];
        let inputs = |seed| {
            let mut mutator = Mutator::new(seed);
            (0..100).map(|_| mutator.input(&seeds)).collect::<Vec<_>>()
        };
        assert_eq!(inputs(1), inputs(1));
        assert_ne!(inputs(1), inputs(2));
    }

    #[test]
    fn no_seed_at_all_is_an_empty_one() {
        let mut mutator = Mutator::new(1);
        (0..1000).for_each(|_| drop(mutator.input(&[])));
    }
}
