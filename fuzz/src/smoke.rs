//! Runs a target over mutated seeds and catches what breaks.

use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};

use data_encoding::HEXLOWER;

use crate::Target;
use crate::mutate::Mutator;

/// An input that made a target panic.
pub struct Broken {
    /// The target.
    pub target: &'static str,
    /// The input, to be kept as a test of the decoder's crate.
    pub input: Vec<u8>,
}

impl fmt::Debug for Broken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} panics on the input {}", self.target, HEXLOWER.encode(&self.input))
    }
}

/// Runs the seeds themselves, then mutated inputs while `more` says so; gives the inputs run.
///
/// # Errors
/// The first input that panics.
pub fn run(target: &Target, seed: u64, mut more: impl FnMut(u64) -> bool) -> Result<u64, Broken> {
    let seeds = (target.seeds)();
    for input in &seeds {
        try_input(target, input)?;
    }
    let mut mutator = Mutator::new(seed);
    let mut runs = 0;
    while more(runs) {
        try_input(target, &mutator.input(&seeds))?;
        runs += 1;
    }
    Ok(runs)
}

fn try_input(target: &Target, input: &[u8]) -> Result<(), Broken> {
    let run = AssertUnwindSafe(|| (target.run)(input));
    catch_unwind(run).map_err(|_| Broken { target: target.name, input: input.to_vec() })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn panics_on_zero(data: &[u8]) {
        assert!(!data.contains(&0));
    }

    #[test]
    fn a_panic_is_found_and_its_input_given() {
        let seeds = || vec![b"nothing to see".to_vec()];
        let target = Target { name: "zero", run: panics_on_zero, seeds };
        let broken = run(&target, 1, |runs| runs < 10_000).expect_err("finds a zero byte");
        assert!(broken.input.contains(&0));
        assert_eq!(broken.target, "zero");
    }
}
