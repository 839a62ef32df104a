//! Transaction numbers, and the file names made of them.

use std::fmt;

/// A transaction number of a replica: one sync of the source database, counted from 1.
///
/// Shown as `0x1f`; in file names it is sixteen lower-case hex digits.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Txid(pub u64);

impl Txid {
    /// "Nothing reached yet"; no file begins here.
    pub const NONE: Self = Self(0);
    /// The first transaction, which holds the whole database.
    pub const FIRST: Self = Self(1);

    /// The transaction after this one. Saturates, so that a hostile listing cannot overflow.
    #[must_use]
    pub const fn next(self) -> Self {
        Self(self.0.saturating_add(1))
    }
}

impl fmt::Display for Txid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:#x}", self.0)
    }
}

/// The transactions that one file covers, both ends included. `1 <= min <= max` always holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct TxidRange {
    min: Txid,
    max: Txid,
}

/// `<16 hex>-<16 hex>.ltx`
const NAME_LEN: usize = 16 + 1 + 16 + 4;

impl TxidRange {
    /// A range, or `None` when it does not hold `1 <= min <= max`.
    #[must_use]
    pub fn new(min: Txid, max: Txid) -> Option<Self> {
        (min >= Txid::FIRST && min <= max).then_some(Self { min, max })
    }

    /// The range that a file name states. `None` for every name that Litestream itself would
    /// not write: upper-case digits, missing padding, other endings.
    #[must_use]
    pub fn from_name(name: &str) -> Option<Self> {
        if name.len() != NAME_LEN {
            return None;
        }
        let (min, max) = name.strip_suffix(".ltx")?.split_once('-')?;
        Self::new(parse_txid(min)?, parse_txid(max)?)
    }

    /// The file name of this range. Names sort as their ranges do.
    #[must_use]
    pub fn name(self) -> String {
        format!("{:016x}-{:016x}.ltx", self.min.0, self.max.0)
    }

    /// First transaction.
    #[must_use]
    pub const fn min(self) -> Txid {
        self.min
    }

    /// Last transaction.
    #[must_use]
    pub const fn max(self) -> Txid {
        self.max
    }

    /// Whether a file of this range must hold every page of the database.
    #[must_use]
    pub fn is_snapshot(self) -> bool {
        self.min == Txid::FIRST
    }
}

impl fmt::Display for TxidRange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}..={}", self.min, self.max)
    }
}

fn parse_txid(digits: &str) -> Option<Txid> {
    let hex = |b: u8| b.is_ascii_digit() || (b'a'..=b'f').contains(&b);
    if digits.len() != 16 || !digits.bytes().all(hex) {
        return None;
    }
    u64::from_str_radix(digits, 16).ok().map(Txid)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn names_that_litestream_would_not_write_are_not_names() {
        let no = [
            "3-3.ltx",
            "000000000000000A-000000000000000A.ltx",
            "0000000000000009-0000000000000009.ltx.bak",
            "0000000000000009-0000000000000009.tmp",
            "0000000000000009_0000000000000009.ltx",
            "0000000000000002-0000000000000001.ltx",
            "0000000000000000-0000000000000001.ltx",
            "+000000000000001-0000000000000001.ltx",
            "",
        ];
        for name in no {
            assert_eq!(TxidRange::from_name(name), None, "{name}");
        }
    }

    proptest! {
        #[test]
        fn names_round_trip_and_sort_as_ranges(a in 1u64.., b in 1u64.., c in 1u64.., d in 1u64..) {
            let one = TxidRange::new(Txid(a.min(b)), Txid(a.max(b))).unwrap();
            let two = TxidRange::new(Txid(c.min(d)), Txid(c.max(d))).unwrap();
            prop_assert_eq!(TxidRange::from_name(&one.name()), Some(one));
            prop_assert_eq!(one.name().cmp(&two.name()), one.cmp(&two));
        }

        #[test]
        fn any_text_is_a_range_only_if_it_is_that_ranges_name(text in "[0-9a-fA-F.ltx-]{0,40}") {
            if let Some(range) = TxidRange::from_name(&text) {
                prop_assert_eq!(range.name(), text);
            }
        }
    }
}
