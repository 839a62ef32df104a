//! The fixed 100 bytes that begin every LTX file.

use crate::{Foreign, LtxError, Part, Txid, TxidRange, Version};

/// Length of a header in bytes.
pub const HEADER_LEN: usize = 100;
/// The file states no database checksums. Litestream sets it on every file it writes.
pub const FLAG_NO_CHECKSUM: u32 = 0x2;
/// SQLite's smallest page size in bytes.
pub const MIN_PAGE_SIZE: u32 = 512;
/// SQLite's largest page size in bytes.
pub const MAX_PAGE_SIZE: u32 = 65_536;

/// Set by format 1 when its whole page block was one LZ4 frame.
const FLAG_FORMAT_1_LZ4: u32 = 0x1;
const MAGIC: [u8; 4] = *b"LTX1";
/// A page's number and flags in its frame's header, and one byte for each of the three numbers of
/// its entry in the index.
const PAGE_OVERHEAD: u64 = 6 + 3;
/// LZ4 makes at most this many bytes out of one: a byte of a length adds at most 255 to it.
const LZ4_RATIO: u32 = 255;
/// Where SQLite's lock byte lies; the page holding it is never written.
const LOCK_BYTE: u32 = 0x4000_0000;
/// Stored checksums have the top bit set, so that zero can mean "none".
const CHECKSUM_BIT: u64 = 1 << 63;

/// What a file says about itself before its first page. Integers are big-endian on disk.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Header {
    /// Zero or [`FLAG_NO_CHECKSUM`].
    pub flags: u32,
    /// Bytes per page, a power of two from 512 to 65536.
    pub page_size: u32,
    /// Size of the database after this file, in pages. Zero is legal here and means "deleted".
    pub commit: u32,
    /// The transactions in this file.
    pub range: TxidRange,
    /// Milliseconds since the Unix epoch: when the last transaction was synced.
    pub timestamp_ms: i64,
    /// Database checksum before this file, or zero.
    pub pre_apply: u64,
    /// Where in the source's WAL the transactions were, or zero.
    pub wal_offset: i64,
    /// Bytes of the source's WAL, or zero.
    pub wal_size: i64,
    /// Salts of the source's WAL, or zero.
    pub wal_salts: [u32; 2],
    /// The writing node of a LiteFS cluster, or zero.
    pub node_id: u64,
}

impl Header {
    /// A header as Litestream writes it: no database checksums, no WAL position.
    #[must_use]
    pub const fn new(page_size: u32, commit: u32, range: TxidRange, timestamp_ms: i64) -> Self {
        Self {
            flags: FLAG_NO_CHECKSUM,
            page_size,
            commit,
            range,
            timestamp_ms,
            pre_apply: 0,
            wal_offset: 0,
            wal_size: 0,
            wal_salts: [0; 2],
            node_id: 0,
        }
    }

    /// Reads the header that `bytes` begins with.
    ///
    /// # Errors
    /// Names what the bytes are when they are not LTX, and the first field that is not valid.
    pub fn decode(bytes: &[u8]) -> Result<Self, LtxError> {
        check_magic(bytes)?;
        let bytes = bytes
            .first_chunk::<HEADER_LEN>()
            .ok_or(LtxError::Truncated { part: Part::Header, bytes: bytes.len() as u64 })?;
        let (min, max) = (Txid(be64(bytes, 16)), Txid(be64(bytes, 24)));
        let header = Self {
            flags: be32(bytes, 4),
            page_size: be32(bytes, 8),
            commit: be32(bytes, 12),
            range: TxidRange::new(min, max).ok_or(LtxError::Range { min, max })?,
            timestamp_ms: be64(bytes, 32).cast_signed(),
            pre_apply: be64(bytes, 40),
            wal_offset: be64(bytes, 48).cast_signed(),
            wal_size: be64(bytes, 56).cast_signed(),
            wal_salts: [be32(bytes, 64), be32(bytes, 68)],
            node_id: be64(bytes, 72),
        };
        header.check()?;
        Ok(header)
    }

    /// The 100 bytes of this header; reserved bytes are zero.
    #[must_use]
    pub fn encode(&self) -> [u8; HEADER_LEN] {
        let mut out = [0; HEADER_LEN];
        let mut put = |at: usize, bytes: &[u8]| out[at..at + bytes.len()].copy_from_slice(bytes);
        put(0, &MAGIC);
        put(4, &self.flags.to_be_bytes());
        put(8, &self.page_size.to_be_bytes());
        put(12, &self.commit.to_be_bytes());
        put(16, &self.range.min().0.to_be_bytes());
        put(24, &self.range.max().0.to_be_bytes());
        put(32, &self.timestamp_ms.to_be_bytes());
        put(40, &self.pre_apply.to_be_bytes());
        put(48, &self.wal_offset.to_be_bytes());
        put(56, &self.wal_size.to_be_bytes());
        put(64, &self.wal_salts[0].to_be_bytes());
        put(68, &self.wal_salts[1].to_be_bytes());
        put(72, &self.node_id.to_be_bytes());
        out
    }

    /// Whether the file's pre- and post-apply checksums are meaningful.
    #[must_use]
    pub const fn tracks_checksums(&self) -> bool {
        self.flags & FLAG_NO_CHECKSUM == 0
    }

    /// The page that holds SQLite's lock byte, at this header's page size.
    #[must_use]
    pub const fn lock_page(&self) -> u32 {
        lock_page(self.page_size)
    }

    /// Bytes of the database after this file.
    #[must_use]
    pub const fn database_bytes(&self) -> u64 {
        self.commit as u64 * self.page_size as u64
    }

    /// Whether files of `bytes` bytes together can hold every page of a database of this size.
    /// Where they cannot, the page count is not true.
    ///
    /// Every page but the lock page is in some file, in the least room that the format has for it:
    /// a frame's header, its data, and its entry in the index. The bound is far below what real
    /// pages take, and above every sound file's count.
    #[must_use]
    pub const fn fits(&self, bytes: u64) -> bool {
        let page = PAGE_OVERHEAD + (self.page_size / LZ4_RATIO) as u64;
        let held = (self.commit as u64).saturating_sub(1);
        held * page <= bytes
    }

    /// The rules every valid header keeps; [`Header::decode`] and the encoder ask them.
    pub(crate) fn check(&self) -> Result<(), LtxError> {
        if self.flags & FLAG_FORMAT_1_LZ4 != 0 {
            return Err(LtxError::UnknownVersion(Version::Format1));
        }
        if self.flags & !FLAG_NO_CHECKSUM != 0 {
            return Err(LtxError::UnknownHeaderFlags(self.flags));
        }
        if !is_page_size(self.page_size) {
            return Err(LtxError::PageSize(self.page_size));
        }
        self.check_wal_position()?;
        self.check_pre_apply()
    }

    fn check_wal_position(&self) -> Result<(), LtxError> {
        let negative = self.wal_offset < 0 || self.wal_size < 0;
        let needs_offset = self.wal_size != 0 || self.wal_salts != [0; 2];
        if negative || (needs_offset && self.wal_offset == 0) {
            return Err(LtxError::WalPosition);
        }
        Ok(())
    }

    fn check_pre_apply(&self) -> Result<(), LtxError> {
        let must_be_none = self.range.is_snapshot() || !self.tracks_checksums();
        let fits =
            if must_be_none { self.pre_apply == 0 } else { self.pre_apply & CHECKSUM_BIT != 0 };
        fits.then_some(()).ok_or(LtxError::PreApplyChecksum(self.pre_apply))
    }
}

/// Whether SQLite allows this page size, in bytes.
#[must_use]
pub const fn is_page_size(size: u32) -> bool {
    size.is_power_of_two() && MIN_PAGE_SIZE <= size && size <= MAX_PAGE_SIZE
}

/// The page that holds byte 0x40000000 of a database: SQLite never stores anything there, no LTX
/// file carries it, and a restore writes zeros. `page_size` must be valid.
#[must_use]
pub const fn lock_page(page_size: u32) -> u32 {
    LOCK_BYTE / page_size + 1
}

fn check_magic(bytes: &[u8]) -> Result<(), LtxError> {
    match bytes.first_chunk::<4>() {
        Some(&MAGIC) => Ok(()),
        Some(&magic) if magic.starts_with(b"LTX") => {
            Err(LtxError::UnknownVersion(Version::Magic(magic)))
        }
        None if !bytes.is_empty() && MAGIC.starts_with(bytes) => {
            Err(LtxError::Truncated { part: Part::Header, bytes: bytes.len() as u64 })
        }
        _ => Err(LtxError::NotLtx(Foreign::sniff(bytes))),
    }
}

fn be32(bytes: &[u8; HEADER_LEN], at: usize) -> u32 {
    let field = bytes[at..].first_chunk().expect("fields lie inside the header");
    u32::from_be_bytes(*field)
}

fn be64(bytes: &[u8; HEADER_LEN], at: usize) -> u64 {
    let field = bytes[at..].first_chunk().expect("fields lie inside the header");
    u64::from_be_bytes(*field)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn sample() -> Header {
        Header::new(4096, 5, TxidRange::new(Txid(2), Txid(3)).unwrap(), 1_796_048_092_587)
    }

    #[test]
    fn lock_pages_are_where_sqlite_puts_them() {
        let expected = [(512, 2_097_153), (1024, 1_048_577), (4096, 262_145), (65_536, 16_385)];
        for (page_size, page) in expected {
            assert_eq!(lock_page(page_size), page);
        }
    }

    #[test]
    fn counts_at_the_ends_of_their_range_are_weighed_too() {
        let largest = Header { commit: u32::MAX, page_size: MAX_PAGE_SIZE, ..sample() };
        assert!(!largest.fits(1 << 40) && largest.fits(u64::MAX));
        assert!(Header { commit: 1, ..sample() }.fits(0), "it may be the lock page");
    }

    #[test]
    fn each_invalid_field_has_its_own_refusal() {
        let with = |change: fn(&mut Header)| {
            let mut header = sample();
            change(&mut header);
            Header::decode(&header.encode()).unwrap_err()
        };
        assert_eq!(with(|h| h.flags = 6), LtxError::UnknownHeaderFlags(6));
        assert_eq!(with(|h| h.flags = 3), LtxError::UnknownVersion(Version::Format1));
        assert_eq!(with(|h| h.page_size = 1000), LtxError::PageSize(1000));
        assert_eq!(with(|h| h.page_size = 1 << 17), LtxError::PageSize(1 << 17));
        assert_eq!(with(|h| h.wal_offset = -1), LtxError::WalPosition);
        assert_eq!(with(|h| h.wal_salts = [0, 1]), LtxError::WalPosition);
        assert_eq!(with(|h| h.pre_apply = 7), LtxError::PreApplyChecksum(7));
        assert_eq!(with(|h| h.flags = 0), LtxError::PreApplyChecksum(0));
    }

    #[test]
    fn ranges_and_magics_are_checked() {
        let mut bytes = sample().encode();
        bytes[23] = 9;
        let range = LtxError::Range { min: Txid(9), max: Txid(3) };
        assert_eq!(Header::decode(&bytes), Err(range));
        bytes[3] = b'2';
        let magic = LtxError::UnknownVersion(Version::Magic(*b"LTX2"));
        assert_eq!(Header::decode(&bytes), Err(magic));
        let short = LtxError::Truncated { part: Part::Header, bytes: 60 };
        assert_eq!(Header::decode(&sample().encode()[..60]), Err(short));
        assert_eq!(Header::decode(b""), Err(LtxError::NotLtx(Foreign::Empty)));
    }

    proptest! {
        #[test]
        fn whatever_decodes_encodes_to_the_same_fields(
            bytes in proptest::collection::vec(any::<u8>(), HEADER_LEN),
            shift in 0u32..8,
        ) {
            let mut bytes = bytes;
            bytes[..4].copy_from_slice(b"LTX1");
            bytes[4..8].copy_from_slice(&FLAG_NO_CHECKSUM.to_be_bytes());
            bytes[8..12].copy_from_slice(&(512u32 << shift).to_be_bytes());
            bytes[40..64].fill(0);
            bytes[48] = 0x01;
            if let Ok(header) = Header::decode(&bytes) {
                prop_assert_eq!(&header.encode()[..80], &bytes[..80]);
            }
        }
    }
}
