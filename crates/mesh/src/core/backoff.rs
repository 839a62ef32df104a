//! When to dial again (decision 13).

use std::time::Duration;

use carlos_protocol::Entropy;

/// The longest first wait.
const FIRST: Duration = Duration::from_millis(100);

/// The longest wait of all.
pub(crate) const LONGEST: Duration = Duration::from_secs(5);

/// The wait after so many failures in a row: full jitter below a bound that doubles, so that nodes
/// that lost one peer together do not return together.
pub(crate) fn wait(failures: u32, dice: &mut dyn Entropy) -> Duration {
    let bound = FIRST.saturating_mul(1 << failures.min(16)).min(LONGEST);
    let mut bytes = [0; 4];
    dice.fill(&mut bytes);
    bound.mul_f64(f64::from(u32::from_be_bytes(bytes)) / f64::from(u32::MAX))
}

#[cfg(test)]
mod tests {
    use super::super::testing::Dice;
    use super::*;

    #[test]
    fn waits_double_up_to_five_seconds() {
        let mut dice = Dice::new(3);
        for (failures, bound) in [(0, 100), (1, 200), (3, 800), (6, 5_000), (99, 5_000)] {
            let waits: Vec<u128> =
                (0..200).map(|_| wait(failures, &mut dice).as_millis()).collect();
            let (least, most) = (waits.iter().min(), waits.iter().max());
            assert!(most.is_some_and(|&most| most <= bound && most > bound * 8 / 10), "{most:?}");
            assert!(least.is_some_and(|&least| least < bound / 5), "{least:?}");
        }
    }
}
