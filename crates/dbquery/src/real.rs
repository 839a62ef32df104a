//! Reals as text: SQLite's own `printf('%!.17g', x)`, digit for digit.
//!
//! Seventeen digits tell every double apart, and the `!` form drops them again where fewer digits
//! read back as the same double in most cases (0.1 prints as 0.1). The rule is SQLite's, not the
//! shortest form that Rust prints, so both are not mixed: this file does what SQLite 3.54 does,
//! with its 96-bit powers of ten, and a test compares the two over random doubles.

/// Text of a finite real as SQLite's `%!.17g` gives it; `None` for the infinities and NaN, which
/// each renderer writes in its own way.
pub fn format_real(real: f64) -> Option<String> {
    if !real.is_finite() {
        return None;
    }
    let decimal = Decimal::of(real.abs());
    let sign = if real < 0.0 { "-" } else { "" };
    Some(format!("{sign}{}", decimal.text()))
}

/// Significant digits, and where the point stands: `0.d1d2d3... * 10^point`.
struct Decimal {
    digits: Vec<u8>,
    point: i32,
}

/// Digits asked for by `%!.17g`.
const PRECISION: usize = 17;

impl Decimal {
    fn of(real: f64) -> Self {
        if real == 0.0 {
            return Self { digits: vec![0], point: 1 };
        }
        let (significand, exponent) = parts(real);
        let (number, power) = to_decimal(significand, exponent);
        let mut digits: Vec<u8> = number.to_string().bytes().map(|digit| digit - b'0').collect();
        let point = digits.len() as i32 + power;
        let mut decimal = if digits.len() > PRECISION {
            let keep = shorter(&digits, point, power, real).unwrap_or(PRECISION);
            round(digits, keep, point)
        } else {
            digits.truncate(PRECISION);
            Self { digits, point }
        };
        while decimal.digits.len() > 1 && decimal.digits.last() == Some(&0) {
            decimal.digits.pop();
        }
        decimal
    }

    /// Plain notation for exponents from -4 to 16, scientific outside, as `%g` decides; always
    /// with a point and a digit on each side of it, as `!` asks.
    fn text(&self) -> String {
        let exponent = self.point - 1;
        if !(-4..PRECISION as i32).contains(&exponent) {
            let sign = if exponent < 0 { '-' } else { '+' };
            return format!("{}e{sign}{:02}", pointed(&self.digits, 1), exponent.abs());
        }
        if self.point > 0 {
            return pointed(&self.digits, self.point as usize);
        }
        let zeros = "0".repeat(self.point.unsigned_abs() as usize);
        format!("0.{zeros}{}", ascii(&self.digits))
    }
}

/// The digits with a point after `whole` of them, filled up with zeros on either side of it.
fn pointed(digits: &[u8], whole: usize) -> String {
    let text = ascii(digits);
    if digits.len() > whole {
        return format!("{}.{}", &text[..whole], &text[whole..]);
    }
    format!("{text:0<whole$}.0")
}

fn ascii(digits: &[u8]) -> String {
    digits.iter().map(|digit| char::from(digit + b'0')).collect()
}

/// The significand with its top bit set, and the power of two that goes with it.
fn parts(real: f64) -> (u64, i32) {
    let bits = real.to_bits();
    let fraction = bits & ((1 << 52) - 1);
    match (bits >> 52) as i32 {
        0 => {
            let shift = fraction.leading_zeros();
            (fraction << shift, -1074 - shift as i32)
        }
        exponent => ((fraction << 11) | 1 << 63, exponent - 1086),
    }
}

/// Eighteen (now and then nineteen) digits and a power of ten for `significand * 2^exponent`.
fn to_decimal(significand: u64, exponent: i32) -> (u64, i32) {
    let power = 17 - pow2_to_10(exponent + 63);
    let (high, _) = power_of_ten(power);
    let product = (u128::from(significand) * u128::from(high)) >> 64;
    let scaled = product as u64 >> -(exponent + pow10_to_2(power) + 2);
    ((scaled + ((scaled << 1) & 2)) >> 1, -power)
}

/// How many digits are enough, when the long form ends in nines or zeros and the short one reads
/// back as the same double. The positions looked at are SQLite's.
fn shorter(digits: &[u8], point: i32, power: i32, real: f64) -> Option<usize> {
    let total = power + digits.len() as i32;
    let reads_back = |number: u64, len: usize| from_decimal(number, total - len as i32) == real;
    if digits[15] == 9 && digits[14] == 9 {
        let len = 14 - digits[..14].iter().rev().take_while(|digit| **digit == 9).count();
        let number = if len == 0 { 1 } else { number(&digits[..len]) + 1 };
        return reads_back(number, len).then_some(len + 1);
    }
    let zeros = digits[13..16] == [0, 0, 0];
    if point >= digits.len() as i32 || zeros {
        let len = 13 - digits[..13].iter().rev().take_while(|digit| **digit == 0).count();
        return reads_back(number(&digits[..len]), len).then_some(len + 1);
    }
    None
}

fn number(digits: &[u8]) -> u64 {
    digits.iter().fold(0, |number, digit| number * 10 + u64::from(*digit))
}

/// Keeps `keep` digits, rounding half up; a carry out of the first digit moves the point.
fn round(mut digits: Vec<u8>, keep: usize, point: i32) -> Decimal {
    let up = digits[keep] >= 5;
    digits.truncate(keep);
    if !up {
        return Decimal { digits, point };
    }
    match digits.iter().rposition(|digit| *digit != 9) {
        Some(at) => {
            digits[at] += 1;
            digits[at + 1..].fill(0);
            Decimal { digits, point }
        }
        None => Decimal { digits: vec![1], point: point + 1 },
    }
}

/// The double nearest to `number * 10^power`, as SQLite reads text.
fn from_decimal(number: u64, power: i32) -> f64 {
    if power < FIRST_POWER {
        return 0.0;
    }
    if power > LAST_POWER {
        return f64::INFINITY;
    }
    let width = 64 - number.leading_zeros() as i32;
    let mut exponent = 53 - width - pow10_to_2(power);
    if exponent > 1074 {
        if exponent >= 1130 {
            return 0.0;
        }
        exponent = 1074;
    }
    let shift = -(exponent - (64 - width) + pow10_to_2(power) + 3);
    let mut scaled = scale(number << (64 - width), power, shift);
    if scaled >= (1 << 55) - 2 {
        scaled = (scaled >> 1) | (scaled & 1);
        exponent -= 1;
    }
    assemble((scaled + 1 + ((scaled >> 2) & 1)) >> 2, exponent)
}

/// `number * 10^power` cut to the wanted width, its lowest bit set when anything was cut off.
fn scale(number: u64, power: i32, shift: i32) -> u64 {
    let (mut high, mut low) = power_of_ten(power);
    if low != 0 {
        high += 1;
        low = !low;
    }
    let product = u128::from(number) * u128::from(high);
    let (mut top, middle) = ((product >> 64) as u64, (product >> 32) as u32);
    let mut sticky = true;
    if top & ((1 << shift) - 1) == 0 {
        let less = ((u128::from(number) * u128::from(u64::from(low) << 32)) >> 96) as u32;
        sticky = middle.wrapping_sub(less) > 1;
        top -= u64::from(middle < less);
    }
    (top >> shift) | u64::from(sticky)
}

fn assemble(significand: u64, exponent: i32) -> f64 {
    const HIDDEN: u64 = 1 << 52;
    if exponent <= -972 {
        return f64::INFINITY;
    }
    if significand & HIDDEN == 0 {
        return f64::from_bits(significand);
    }
    f64::from_bits((significand & !HIDDEN) | ((1075 - exponent) as u64) << 52)
}

/// The top 96 bits of `10^power`, as 64 and 32.
fn power_of_ten(power: i32) -> (u64, u32) {
    if power == -1 {
        return (0xcccc_cccc_cccc_cccc, 0xcccc_cccc);
    }
    if (0..27).contains(&power) {
        return (small_power(power), 0);
    }
    let (high, low) = SCALE[(power.div_euclid(27) + 13) as usize];
    let rest = power.rem_euclid(27);
    if rest == 0 {
        return (high, low);
    }
    let base = u128::from(small_power(rest));
    let product = u128::from(high) * base + ((u128::from(low) * base) >> 32);
    let (top, middle) = ((product >> 64) as u64, (product >> 32) as u32);
    if top >> 63 == 1 {
        (top, middle)
    } else {
        (top << 1 | u64::from(middle >> 31), middle << 1 | 1)
    }
}

/// `10^power` for 0 to 26, shifted so that its top bit is bit 63. All of them fit 64 bits.
fn small_power(power: i32) -> u64 {
    let exact = 10u128.pow(power.unsigned_abs());
    (exact << exact.leading_zeros() >> 64) as u64
}

fn pow10_to_2(power: i32) -> i32 {
    (power * 108_853) >> 15
}

fn pow2_to_10(power: i32) -> i32 {
    (power * 78_913) >> 18
}

const FIRST_POWER: i32 = -348;
const LAST_POWER: i32 = 347;

/// The top 96 bits of `10^(27 * (index - 13))`, rounded as SQLite's generated table is.
const SCALE: [(u64, u32); 26] = [
    (0x8049_a4ac_0c58_11ae, 0x205b_896d),
    (0xcf42_894a_5dce_35ea, 0x5206_4cad),
    (0xa76c_5823_38ed_2621, 0xaf2a_f2b8),
    (0x873e_4f75_e222_4e68, 0x5a77_44a7),
    (0xda7f_5bf5_9096_6848, 0xaf39_a475),
    (0xb080_392c_c434_9dec, 0xbd8d_794e),
    (0x8e93_8662_882a_f53e, 0x547e_b47b),
    (0xe658_29b3_046b_0afa, 0x0cb4_a5a3),
    (0xba12_1a46_50e4_ddeb, 0x92f3_4d62),
    (0x964e_858c_91ba_2655, 0x3a6a_07f9),
    (0xf2d5_6790_ab41_c2a2, 0xfae2_7299),
    (0xc428_d05a_a475_1e4c, 0xaa97_e14c),
    (0x9e74_d1b7_91e0_7e48, 0x775e_a265),
    (0xcccc_cccc_cccc_cccc, 0xcccc_cccc),
    (0xcecb_8f27_f420_0f3a, 0x0000_0000),
    (0xa70c_3c40_a64e_6c51, 0x9990_90b6),
    (0x86f0_ac99_b4e8_dafd, 0x69a0_28bb),
    (0xda01_ee64_1a70_8de9, 0xe80e_6f48),
    (0xb01a_e745_b101_e9e4, 0x5ec0_5dd0),
    (0x8e41_ade9_fbeb_c27d, 0x1458_8f14),
    (0xe5d3_ef28_2a24_2e81, 0x8f16_68c9),
    (0xb9a7_4a06_37ce_2ee1, 0x6d95_3e2c),
    (0x95f8_3d0a_1fb6_9cd9, 0x4abd_af10),
    (0xf24a_01a7_3cf2_dccf, 0xbc63_3b39),
    (0xc3b8_3581_09e8_4f07, 0x0a86_2f81),
    (0x9e19_db92_b4e3_1ba9, 0x6c07_a2c2),
];

#[cfg(test)]
mod tests {
    use rusqlite::{Connection, Statement};

    use super::*;

    /// Doubles made from a counter by a mixing function: the same in every run.
    fn random_bits(counter: u64) -> u64 {
        let mut bits = counter.wrapping_mul(0x9e37_79b9_7f4a_7c15);
        bits = (bits ^ (bits >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        bits = (bits ^ (bits >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        bits ^ (bits >> 31)
    }

    fn assert_same(sqlite: &mut Statement<'_>, real: f64) {
        let Some(ours) = format_real(real) else { return };
        let theirs: String = sqlite.query_row([real], |row| row.get(0)).unwrap();
        assert_eq!(ours, theirs, "{:#x}", real.to_bits());
    }

    fn against_sqlite(reals: impl Iterator<Item = f64>) {
        let conn = Connection::open_in_memory().unwrap();
        let mut sqlite = conn.prepare("SELECT printf('%!.17g', ?1)").unwrap();
        reals.for_each(|real| assert_same(&mut sqlite, real));
    }

    #[test]
    fn well_known_reals_print_as_people_expect() {
        for (real, text) in [
            (0.1, "0.1"),
            (49.47, "49.47"),
            (1.0, "1.0"),
            (-2.5, "-2.5"),
            (-0.0, "0.0"),
            (1e300, "1.0e+300"),
            (1e15, "1000000000000000.0"),
            (0.0001, "0.0001"),
            (0.00001, "1.0e-05"),
            (f64::MIN_POSITIVE, "2.2250738585072014e-308"),
            (5e-324, "4.9406564584124654e-324"),
        ] {
            assert_eq!(format_real(real).unwrap(), text);
        }
        assert_eq!(format_real(f64::NAN), None);
        assert_eq!(format_real(f64::NEG_INFINITY), None);
    }

    #[test]
    fn random_doubles_print_as_sqlite_prints_them() {
        against_sqlite((0..300_000).map(|n| f64::from_bits(random_bits(n))));
    }

    #[test]
    fn denormals_print_as_sqlite_prints_them() {
        let small = (0..50_000).map(|n| f64::from_bits(random_bits(n) >> (12 + n % 52)));
        against_sqlite(small);
    }

    #[test]
    fn short_decimals_print_as_sqlite_prints_them() {
        // Integers as reals, money, and everything near them: where nines and zeros end a number.
        against_sqlite((0..200_000).flat_map(|n| {
            let bits = random_bits(n);
            let decimal = (bits >> 32) as f64 / 10f64.powi((bits % 12) as i32);
            let scaled = decimal * 10f64.powi((bits % 600) as i32 - 300);
            [decimal, scaled, decimal.next_up(), -scaled.next_down(), n as f64]
        }));
    }

    #[test]
    fn edges_print_as_sqlite_prints_them() {
        let powers = (-323..=308).map(|power| format!("1e{power}").parse::<f64>().unwrap());
        let twos = (-1074..=1023).map(|power| 2f64.powi(power));
        let edges: Vec<f64> = powers.chain(twos).collect();
        against_sqlite(edges.iter().flat_map(|real| [*real, real.next_up(), real.next_down()]));
        against_sqlite(
            [f64::MAX, f64::MIN, f64::EPSILON, 9e15, 9_007_199_254_740_993.0].into_iter(),
        );
    }
}
