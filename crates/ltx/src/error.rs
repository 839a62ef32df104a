//! Why a file is not accepted. Every refusal says what was found, not only that something was.

use std::fmt;

use crate::{Txid, TxidRange};

/// Why bytes were refused as an LTX file.
///
/// Offsets are bytes from the start of the file.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum LtxError {
    #[error("not an LTX file: {0}")]
    NotLtx(Foreign),
    #[error("written by an LTX version this program does not read: {0}")]
    UnknownVersion(Version),
    #[error("unknown header flags {0:#x}")]
    UnknownHeaderFlags(u32),
    #[error("page {page} has unknown flags {flags:#x}")]
    UnknownPageFlags { page: u32, flags: u16 },
    #[error("the file ends in its {part}, after {bytes} bytes")]
    Truncated { part: Part, bytes: u64 },
    #[error("bytes follow the trailer at offset {0}")]
    TrailingBytes(u64),
    #[error("page size {0} is not a power of two from 512 to 65536")]
    PageSize(u32),
    #[error("transaction range {min}..={max} is not valid")]
    Range { min: Txid, max: Txid },
    #[error("the WAL position of the header is not valid")]
    WalPosition,
    #[error("the pre-apply checksum {0:#018x} does not fit the header")]
    PreApplyChecksum(u64),
    #[error("the post-apply checksum {0:#018x} does not fit the header")]
    PostApplyChecksum(u64),
    #[error("page {page} follows page {after}")]
    PageOrder { page: u32, after: u32 },
    #[error("the end mark of the page block has flags {0:#x}")]
    PageZero(u16),
    #[error("page {0} is the lock page, which no file carries")]
    LockPage(u32),
    #[error("a snapshot ({0}) lacks page {1}")]
    SnapshotHole(TxidRange, u32),
    #[error("page {page} claims {size} compressed bytes, more than a page can need")]
    CompressedSize { page: u32, size: u32 },
    #[error("page {page} does not decompress: {reason}")]
    Compression { page: u32, reason: &'static str },
    #[error("the page index does not match the pages: {0}")]
    Index(&'static str),
    #[error("file checksum mismatch: computed {computed:#018x}, stored {stored:#018x}")]
    FileChecksum { computed: u64, stored: u64 },
    #[error("database checksum mismatch: computed {computed:#018x}, stored {stored:#018x}")]
    DatabaseChecksum { computed: u64, stored: u64 },
    #[error("the file was already refused")]
    AlreadyRefused,
}

/// What bytes that do not begin an LTX file look like.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Foreign {
    AgeEncrypted,
    Empty,
    Gzip,
    Lz4Frame,
    Markup,
    SqliteDatabase,
    SqliteWal,
    Unknown([u8; 4]),
    Zstd,
}

/// LTX variants that are recognised but not read. None of them has a version field; each shows
/// itself by a flag or by what stands where a page header should be.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Version {
    /// LiteFS and the Litestream 0.5.0 betas.
    Format1,
    /// The Litestream 0.5.0 test releases.
    Format2,
    /// A magic of the LTX family other than `LTX1`.
    Magic([u8; 4]),
}

/// The four parts of a file, in order.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Part {
    Header,
    PageBlock,
    PageIndex,
    Trailer,
}

impl Foreign {
    /// Names what `start`, the beginning of a file, is instead of LTX.
    #[must_use]
    pub fn sniff(start: &[u8]) -> Self {
        const KINDS: [(&[u8], Foreign); 8] = [
            (b"age-encryption.org/", Foreign::AgeEncrypted),
            (b"SQLite format 3\0", Foreign::SqliteDatabase),
            (&[0x37, 0x7f, 0x06, 0x82], Foreign::SqliteWal),
            (&[0x37, 0x7f, 0x06, 0x83], Foreign::SqliteWal),
            (&[0x04, 0x22, 0x4d, 0x18], Foreign::Lz4Frame),
            (&[0x28, 0xb5, 0x2f, 0xfd], Foreign::Zstd),
            (&[0x1f, 0x8b], Foreign::Gzip),
            (b"<", Foreign::Markup),
        ];
        if start.is_empty() {
            return Self::Empty;
        }
        let known = KINDS.into_iter().find(|(magic, _)| start.starts_with(magic));
        known.map_or_else(|| Self::unknown(start), |(_, kind)| kind)
    }

    fn unknown(start: &[u8]) -> Self {
        let mut first = [0; 4];
        let len = start.len().min(4);
        first[..len].copy_from_slice(&start[..len]);
        Self::Unknown(first)
    }
}

impl fmt::Display for Foreign {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::AgeEncrypted => f.write_str("it is encrypted with age"),
            Self::Empty => f.write_str("it is empty"),
            Self::Gzip => f.write_str("it is gzip data"),
            Self::Lz4Frame => f.write_str("it is a bare LZ4 frame, as Litestream 0.3 wrote"),
            Self::Markup => f.write_str("it is HTML or XML, perhaps a store's error page"),
            Self::SqliteDatabase => f.write_str("it is a SQLite database"),
            Self::SqliteWal => f.write_str("it is a SQLite write-ahead log"),
            Self::Unknown([a, b, c, d]) => {
                write!(f, "it begins with bytes {a:02x} {b:02x} {c:02x} {d:02x}")
            }
            Self::Zstd => f.write_str("it is zstd data"),
        }
    }
}

impl fmt::Display for Version {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Format1 => f.write_str("format 1 (LiteFS, Litestream 0.5.0 beta)"),
            Self::Format2 => f.write_str("format 2 (Litestream 0.5.0 test releases)"),
            Self::Magic(magic) => write!(f, "magic {}", magic.escape_ascii()),
        }
    }
}

impl fmt::Display for Part {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Header => "header",
            Self::PageBlock => "page block",
            Self::PageIndex => "page index",
            Self::Trailer => "trailer",
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn foreign_files_are_named() {
        assert_eq!(Foreign::sniff(b""), Foreign::Empty);
        assert_eq!(Foreign::sniff(b"age-encryption.org/v1\n-> X"), Foreign::AgeEncrypted);
        assert_eq!(Foreign::sniff(b"SQLite format 3\0...."), Foreign::SqliteDatabase);
        assert_eq!(Foreign::sniff(b"<?xml"), Foreign::Markup);
        assert_eq!(Foreign::sniff(b"\x01"), Foreign::Unknown([1, 0, 0, 0]));
    }
}
