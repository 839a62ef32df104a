//! The encoder: pages in, in order; the file's bytes out, as they come to be.

use crate::checksum::{CHECKSUM_FLAG, Crc};
use crate::decode::PAGE_FLAG_BLOCK;
use crate::frame;
use crate::index::put_uvarint;
use crate::{Header, LtxError, TxidRange};

/// How a page is compressed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Encoding {
    /// One LZ4 block with its size, as Litestream 0.5.16 and later write.
    #[default]
    Block,
    /// One LZ4 frame, as Litestream 0.5.0 to 0.5.15 wrote.
    Frame,
}

/// Why a file cannot be written as asked. Each is a mistake of the caller.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum EncodeError {
    #[error("the header is not valid: {0}")]
    Header(LtxError),
    #[error("page {page} follows page {after}")]
    PageOrder { page: u32, after: u32 },
    #[error("page {page} lies beyond the commit size {commit}")]
    BeyondCommit { page: u32, commit: u32 },
    #[error("page {0} is the lock page, which no file carries")]
    LockPage(u32),
    #[error("a page of {0} bytes does not have the page size")]
    PageSize(usize),
    #[error("a snapshot ({0}) must bring page {1} next")]
    SnapshotHole(TxidRange, u32),
    #[error("the post-apply checksum {0:#018x} does not fit the header")]
    PostApplyChecksum(u64),
}

/// Writes one LTX file. Bytes are appended to the vector each call is given, so the caller can
/// send them on while the file grows; only the page index is kept, about ten bytes a page.
pub struct Encoder {
    header: Header,
    encoding: Encoding,
    crc: Crc,
    position: u64,
    last_page: u32,
    index: Vec<u8>,
}

impl Encoder {
    /// Begins a file by appending its header to `out`.
    ///
    /// # Errors
    /// [`EncodeError::Header`] when a reader would refuse it.
    pub fn new(header: Header, encoding: Encoding, out: &mut Vec<u8>) -> Result<Self, EncodeError> {
        header.check().map_err(EncodeError::Header)?;
        let bytes = header.encode();
        let mut crc = Crc::new();
        crc.update(&bytes);
        out.extend_from_slice(&bytes);
        let position = bytes.len() as u64;
        Ok(Self { header, encoding, crc, position, last_page: 0, index: Vec::new() })
    }

    /// Appends one page. Numbers rise; a snapshot brings every page except the lock page.
    ///
    /// # Errors
    /// The rule the page would break; nothing is appended then.
    pub fn page(&mut self, number: u32, page: &[u8], out: &mut Vec<u8>) -> Result<(), EncodeError> {
        self.check_page(number, page)?;
        let start = out.len();
        let head = self.write_page(number, page, out);
        self.crc.update(&out[start..start + head]);
        self.crc.update(page);
        let len = (out.len() - start) as u64;
        put_uvarint(u64::from(number), &mut self.index);
        put_uvarint(self.position, &mut self.index);
        put_uvarint(len, &mut self.index);
        self.position += len;
        self.last_page = number;
        Ok(())
    }

    /// Ends the file by appending its index and trailer. `post_apply` is the database checksum
    /// after this file, zero unless the header tracks checksums.
    ///
    /// # Errors
    /// [`EncodeError::SnapshotHole`] when pages are missing, or a checksum that does not fit.
    pub fn finish(mut self, post_apply: u64, out: &mut Vec<u8>) -> Result<(), EncodeError> {
        let due = self.next_in_snapshot();
        if self.header.range.is_snapshot() && due <= self.header.commit {
            return Err(EncodeError::SnapshotHole(self.header.range, due));
        }
        let tracked = post_apply & CHECKSUM_FLAG != 0;
        if tracked != self.header.tracks_checksums() || (!tracked && post_apply != 0) {
            return Err(EncodeError::PostApplyChecksum(post_apply));
        }
        let start = out.len();
        out.extend_from_slice(&[0; 6]);
        self.index.push(0);
        out.extend_from_slice(&self.index);
        out.extend_from_slice(&(self.index.len() as u64).to_be_bytes());
        out.extend_from_slice(&post_apply.to_be_bytes());
        self.crc.update(&out[start..]);
        out.extend_from_slice(&self.crc.value().to_be_bytes());
        Ok(())
    }

    /// Appends the stored form of a page and says how long its head is.
    fn write_page(&self, number: u32, page: &[u8], out: &mut Vec<u8>) -> usize {
        let start = out.len();
        out.extend_from_slice(&number.to_be_bytes());
        match self.encoding {
            Encoding::Block => {
                let block = lz4_flex::block::compress(page);
                out.extend_from_slice(&PAGE_FLAG_BLOCK.to_be_bytes());
                out.extend_from_slice(&(block.len() as u32).to_be_bytes());
                let head = out.len() - start;
                out.extend_from_slice(&block);
                head
            }
            Encoding::Frame => {
                out.extend_from_slice(&0u16.to_be_bytes());
                let head = out.len() - start;
                frame::write_frame(page, out);
                head
            }
        }
    }

    fn check_page(&self, number: u32, page: &[u8]) -> Result<(), EncodeError> {
        let Header { commit, page_size, range, .. } = self.header;
        if page.len() != page_size as usize {
            return Err(EncodeError::PageSize(page.len()));
        }
        if number <= self.last_page {
            return Err(EncodeError::PageOrder { page: number, after: self.last_page });
        }
        if number > commit {
            return Err(EncodeError::BeyondCommit { page: number, commit });
        }
        if number == self.header.lock_page() {
            return Err(EncodeError::LockPage(number));
        }
        let due = self.next_in_snapshot();
        if range.is_snapshot() && number != due {
            return Err(EncodeError::SnapshotHole(range, due));
        }
        Ok(())
    }

    const fn next_in_snapshot(&self) -> u32 {
        let next = self.last_page.saturating_add(1);
        if next == self.header.lock_page() { next + 1 } else { next }
    }
}
