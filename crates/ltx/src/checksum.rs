//! CRC-64/GO-ISO, the one checksum of the format, in its two uses.

use std::sync::LazyLock;

use crc_fast::{CrcParams, Digest};

/// Set in every stored checksum, so that zero can mean "none".
pub const CHECKSUM_FLAG: u64 = 1 << 63;

// Not one of crc-fast's named algorithms. The reflected form of 0x1b is Go's crc64.ISO table, and
// the last argument is the catalogue's value for "123456789".
static GO_ISO: LazyLock<CrcParams> = LazyLock::new(|| {
    CrcParams::new("CRC-64/GO-ISO", 64, 0x1b, !0, true, !0, 0xb909_56c7_75a4_1001)
});

/// The checksum of one page as it enters a database checksum: over its number and its bytes.
#[must_use]
pub fn page_checksum(number: u32, page: &[u8]) -> u64 {
    let mut crc = Crc::new();
    crc.update(&number.to_be_bytes());
    crc.update(page);
    crc.value()
}

/// A database checksum: the exclusive or of all its pages' checksums, the lock page left out.
#[derive(Debug, Clone, Copy, Default)]
pub struct DatabaseChecksum(u64);

impl DatabaseChecksum {
    /// Adds a page; adding the same page again takes it out.
    pub fn toggle(&mut self, number: u32, page: &[u8]) {
        self.0 ^= page_checksum(number, page);
    }

    /// The value as a trailer stores it.
    #[must_use]
    pub const fn value(self) -> u64 {
        self.0 | CHECKSUM_FLAG
    }
}

/// A checksum over bytes that come in pieces.
pub(crate) struct Crc(Digest);

impl Crc {
    pub(crate) fn new() -> Self {
        Self(Digest::new_with_params(*GO_ISO))
    }

    pub(crate) fn update(&mut self, bytes: &[u8]) {
        self.0.update(bytes);
    }

    /// The value as a file stores it.
    pub(crate) fn value(&self) -> u64 {
        self.0.finalize() | CHECKSUM_FLAG
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// The definition, one bit at a time.
    fn slow(bytes: &[u8]) -> u64 {
        let mut crc = !0u64;
        for byte in bytes {
            crc ^= u64::from(*byte);
            for _ in 0..8 {
                let low = crc & 1;
                crc = (crc >> 1) ^ (low * 0xd800_0000_0000_0000);
            }
        }
        !crc
    }

    #[test]
    fn the_check_value_is_the_catalogues() {
        assert_eq!(slow(b"123456789"), 0xb909_56c7_75a4_1001);
        let mut crc = Crc::new();
        crc.update(b"123456789");
        assert_eq!(crc.value(), 0xb909_56c7_75a4_1001 | CHECKSUM_FLAG);
    }

    proptest! {
        #[test]
        fn pieces_of_any_size_agree_with_the_definition(
            bytes in proptest::collection::vec(any::<u8>(), 0..2000),
            cut in 0usize..2000,
        ) {
            let cut = cut.min(bytes.len());
            let mut crc = Crc::new();
            crc.update(&bytes[..cut]);
            crc.update(&bytes[cut..]);
            prop_assert_eq!(crc.value(), slow(&bytes) | CHECKSUM_FLAG);
        }
    }
}
