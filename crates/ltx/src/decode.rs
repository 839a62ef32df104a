//! The streaming decoder: bytes in, in pieces of any size; pages out, in order.

use crate::checksum::{CHECKSUM_FLAG, Crc, DatabaseChecksum};
use crate::frame::{self, Extent};
use crate::index::{self, Entry, IndexDigest};
use crate::{HEADER_LEN, Header, LtxError, Part, Version};

const PAGE_HEAD_LEN: usize = 6;
/// Page number, flags and the size of an LZ4 block.
const BLOCK_HEAD_LEN: usize = 10;
/// Page flag: a size and an LZ4 block follow. Without it an LZ4 frame follows.
pub(crate) const PAGE_FLAG_BLOCK: u16 = 0x1;
/// What the index's closing zero is followed by: index length, post-apply and file checksum.
const TAIL_LEN: usize = 8 + 16;

/// Takes the pages of one file.
///
/// Pages are decompressed straight into memory that the sink owns, so a restore can collect
/// neighbouring pages in one buffer without copying them.
///
/// Nothing received may be used before [`Decoder::finish`] has returned: some damage shows only
/// in the checksum at the very end.
pub trait PageSink {
    /// What a refusal is reported as.
    type Error: From<LtxError>;

    /// The header, before any page. Size limits belong here.
    ///
    /// # Errors
    /// The sink's own refusal; the file is then refused.
    fn begin(&mut self, header: &Header) -> Result<(), Self::Error>;

    /// Where page `number` shall be decompressed: exactly one page long. The memory may hold
    /// anything before, and is filled when the next call comes.
    ///
    /// # Errors
    /// The sink's own refusal; the file is then refused.
    fn slot(&mut self, number: u32) -> Result<&mut [u8], Self::Error>;

    /// Page `number` now lies in the slot.
    ///
    /// # Errors
    /// The sink's own refusal; the file is then refused.
    fn page(&mut self, number: u32) -> Result<(), Self::Error> {
        let _ = number;
        Ok(())
    }
}

/// A file whose every byte was checked.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Verified {
    /// The file's header.
    pub header: Header,
    /// How many pages it holds.
    pub pages: u64,
    /// Database checksum after the file; zero unless [`Header::tracks_checksums`].
    pub post_apply: u64,
    /// Checksum of the whole file, as stored.
    pub file_checksum: u64,
    /// Length of the file.
    pub bytes: u64,
}

/// Decodes one LTX file from bytes that arrive in pieces of any size.
///
/// Whatever lies whole in a piece is read in place; only an item cut by the end of a piece is
/// kept, so at most about one page's stored bytes are held.
pub struct Decoder {
    stage: Stage,
    /// The beginning of an item whose rest has not arrived.
    pending: Vec<u8>,
    /// Length at which `pending` is looked at again.
    wanted: usize,
    /// Offset of the first byte not yet understood.
    position: u64,
    crc: Crc,
    header: Option<Header>,
    last_page: u32,
    seen: IndexDigest,
    indexed: IndexDigest,
    index_len: u64,
    database: DatabaseChecksum,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Stage {
    Header,
    Pages,
    Index,
    Tail,
    Done(Verified),
    Refused,
}

/// What looking at the next item led to.
enum Step {
    Took(usize),
    /// The item needs at least so many bytes, and never fewer than it has.
    Need(usize),
}

/// What is known of a page's extent.
enum Measured {
    Whole(Stored),
    AtLeast(usize),
}

/// Where a page's parts lie in its stored bytes.
struct Stored {
    /// Number and flags, and the size of a block: what the file checksum takes as stored.
    head: usize,
    len: usize,
    block: bool,
}

impl Decoder {
    /// A decoder at the start of a file.
    #[must_use]
    pub fn new() -> Self {
        Self {
            stage: Stage::Header,
            pending: Vec::new(),
            wanted: 0,
            position: 0,
            crc: Crc::new(),
            header: None,
            last_page: 0,
            seen: IndexDigest::default(),
            indexed: IndexDigest::default(),
            index_len: 0,
            database: DatabaseChecksum::default(),
        }
    }

    /// Takes the next bytes of the file, however many.
    ///
    /// # Errors
    /// The first rule the file breaks, or the sink's refusal. The decoder is of no use after.
    pub fn feed<S: PageSink>(&mut self, mut input: &[u8], sink: &mut S) -> Result<(), S::Error> {
        while !input.is_empty() {
            let used = if self.pending.is_empty() {
                self.read_input(input, sink)
            } else {
                self.read_pending(input, sink)
            };
            match used {
                Ok(used) => input = &input[used..],
                Err(refusal) => {
                    self.stage = Stage::Refused;
                    return Err(refusal);
                }
            }
        }
        Ok(())
    }

    /// Ends the file. Only now may what the sink received be trusted.
    ///
    /// # Errors
    /// [`LtxError::Truncated`] when the trailer has not been reached.
    pub fn finish(self) -> Result<Verified, LtxError> {
        let part = match self.stage {
            Stage::Done(verified) => return Ok(verified),
            Stage::Refused => return Err(LtxError::AlreadyRefused),
            // Names what the bytes are when they are too few even for a header.
            Stage::Header => {
                return Err(Header::decode(&self.pending).err().unwrap_or(LtxError::Truncated {
                    part: Part::Header,
                    bytes: self.pending.len() as u64,
                }));
            }
            Stage::Pages => Part::PageBlock,
            Stage::Index => Part::PageIndex,
            Stage::Tail => Part::Trailer,
        };
        Err(LtxError::Truncated { part, bytes: self.position + self.pending.len() as u64 })
    }

    /// The file's header once it has been read.
    #[must_use]
    pub const fn header(&self) -> Option<&Header> {
        self.header.as_ref()
    }

    fn read_input<S: PageSink>(&mut self, input: &[u8], sink: &mut S) -> Result<usize, S::Error> {
        match self.step(input, sink)? {
            Step::Took(len) => {
                self.position += len as u64;
                Ok(len)
            }
            Step::Need(wanted) => {
                self.wanted = wanted;
                self.pending.extend_from_slice(input);
                Ok(input.len())
            }
        }
    }

    fn read_pending<S: PageSink>(&mut self, input: &[u8], sink: &mut S) -> Result<usize, S::Error> {
        let missing = self.wanted - self.pending.len();
        let taken = missing.min(input.len());
        self.pending.extend_from_slice(&input[..taken]);
        if taken < missing {
            return Ok(taken);
        }
        let mut pending = std::mem::take(&mut self.pending);
        match self.step(&pending, sink)? {
            Step::Took(len) => {
                debug_assert_eq!(len, pending.len(), "an item is asked for to its exact end");
                self.position += len as u64;
                pending.drain(..len);
            }
            Step::Need(wanted) => self.wanted = wanted,
        }
        self.pending = pending;
        Ok(taken)
    }

    fn step<S: PageSink>(&mut self, bytes: &[u8], sink: &mut S) -> Result<Step, S::Error> {
        match self.stage {
            Stage::Header => self.read_header(bytes, sink),
            Stage::Pages => self.read_page(bytes, sink),
            Stage::Index => Ok(self.read_index(bytes)?),
            Stage::Tail => Ok(self.read_tail(bytes)?),
            Stage::Done(_) => Err(LtxError::TrailingBytes(self.position).into()),
            Stage::Refused => Err(LtxError::AlreadyRefused.into()),
        }
    }

    fn read_header<S: PageSink>(&mut self, bytes: &[u8], sink: &mut S) -> Result<Step, S::Error> {
        let Some(bytes) = bytes.first_chunk::<HEADER_LEN>() else {
            return Ok(Step::Need(HEADER_LEN));
        };
        let header = Header::decode(bytes)?;
        self.crc.update(bytes);
        sink.begin(&header)?;
        self.header = Some(header);
        self.stage = Stage::Pages;
        Ok(Step::Took(HEADER_LEN))
    }

    fn read_page<S: PageSink>(&mut self, bytes: &[u8], sink: &mut S) -> Result<Step, S::Error> {
        let Some(head) = bytes.first_chunk::<PAGE_HEAD_LEN>() else {
            return Ok(Step::Need(PAGE_HEAD_LEN));
        };
        let number = u32::from_be_bytes([head[0], head[1], head[2], head[3]]);
        let flags = u16::from_be_bytes([head[4], head[5]]);
        if number == 0 {
            self.end_pages(head, flags)?;
            return Ok(Step::Took(PAGE_HEAD_LEN));
        }
        let stored = match self.measure(number, flags, bytes)? {
            Measured::Whole(stored) => stored,
            Measured::AtLeast(wanted) => return Ok(Step::Need(wanted)),
        };
        self.check_order(number)?;
        self.take_page(number, &stored, bytes, sink)?;
        Ok(Step::Took(stored.len))
    }

    fn measure(&self, number: u32, flags: u16, bytes: &[u8]) -> Result<Measured, LtxError> {
        let page_size = self.known_header().page_size as usize;
        match flags {
            PAGE_FLAG_BLOCK => measure_block(number, bytes, page_size),
            0 => measure_frame(number, bytes, page_size),
            _ => match self.older_format(number, bytes) {
                Some(version) => Err(LtxError::UnknownVersion(version)),
                None => Err(LtxError::UnknownPageFlags { page: number, flags }),
            },
        }
    }

    /// Formats 1 and 2 have four-byte page headers, so page data stands where the flags are
    /// looked for. They have no version field; this is how they show.
    fn older_format(&self, number: u32, bytes: &[u8]) -> Option<Version> {
        let first = self.position == HEADER_LEN as u64;
        match bytes[4..6] {
            [0x04, 0x22] if first => Some(Version::Format2),
            [b'S', b'Q'] if first && number == 1 => Some(Version::Format1),
            _ => None,
        }
    }

    fn check_order(&self, number: u32) -> Result<(), LtxError> {
        let header = self.known_header();
        if number <= self.last_page {
            return Err(LtxError::PageOrder { page: number, after: self.last_page });
        }
        if number == header.lock_page() {
            return Err(LtxError::LockPage(number));
        }
        let due = self.next_in_snapshot();
        if header.range.is_snapshot() && number != due {
            return Err(LtxError::SnapshotHole(header.range, due));
        }
        Ok(())
    }

    fn take_page<S: PageSink>(
        &mut self,
        number: u32,
        stored: &Stored,
        bytes: &[u8],
        sink: &mut S,
    ) -> Result<(), S::Error> {
        let header = self.known_header();
        let counts = header.tracks_checksums() && header.range.is_snapshot();
        let within = number <= header.commit;
        let data = &bytes[stored.head..stored.len];
        let page = sink.slot(number)?;
        let read = if stored.block {
            frame::read_block(data, page)
        } else {
            frame::read_frame(data, page)
        };
        read.map_err(|reason| LtxError::Compression { page: number, reason })?;
        self.crc.update(&bytes[..stored.head]);
        self.crc.update(page);
        if counts && within {
            self.database.toggle(number, page);
        }
        self.last_page = number;
        self.seen.add(u64::from(number), self.position, stored.len as u64);
        sink.page(number)
    }

    fn end_pages(&mut self, head: &[u8], flags: u16) -> Result<(), LtxError> {
        if flags != 0 {
            return Err(LtxError::PageZero(flags));
        }
        let header = self.known_header();
        let due = self.next_in_snapshot();
        if header.range.is_snapshot() && due <= header.commit {
            return Err(LtxError::SnapshotHole(header.range, due));
        }
        self.crc.update(head);
        self.stage = Stage::Index;
        Ok(())
    }

    fn read_index(&mut self, bytes: &[u8]) -> Result<Step, LtxError> {
        let len = match index::read_entry(bytes).map_err(LtxError::Index)? {
            Entry::Page { page, offset, size, len } => {
                self.indexed.add(page, offset, size);
                len
            }
            Entry::End if !self.indexed.matches(&self.seen) => {
                return Err(LtxError::Index("other pages, offsets or sizes are listed"));
            }
            Entry::End => {
                self.stage = Stage::Tail;
                1
            }
            Entry::Partial => return Ok(Step::Need(bytes.len() + 1)),
        };
        if self.indexed.entries() > self.seen.entries() {
            return Err(LtxError::Index("more pages are listed than there are"));
        }
        self.crc.update(&bytes[..len]);
        self.index_len += len as u64;
        Ok(Step::Took(len))
    }

    fn read_tail(&mut self, bytes: &[u8]) -> Result<Step, LtxError> {
        let Some(tail) = bytes.first_chunk::<TAIL_LEN>() else {
            return Ok(Step::Need(TAIL_LEN));
        };
        let (covered, stored) = tail.split_at(TAIL_LEN - 8);
        self.crc.update(covered);
        let field = |at: usize| u64::from_be_bytes(*tail[at..].first_chunk().expect("in tail"));
        let (index_len, post_apply) = (field(0), field(8));
        let stored = u64::from_be_bytes(*stored.first_chunk().expect("eight bytes are left"));
        if index_len != self.index_len {
            return Err(LtxError::Index("its length field is wrong"));
        }
        let computed = self.crc.value();
        if computed != stored {
            return Err(LtxError::FileChecksum { computed, stored });
        }
        self.check_post_apply(post_apply)?;
        self.stage = Stage::Done(Verified {
            header: *self.known_header(),
            pages: self.seen.entries(),
            post_apply,
            file_checksum: stored,
            bytes: self.position + TAIL_LEN as u64,
        });
        Ok(Step::Took(TAIL_LEN))
    }

    /// A snapshot that tracks checksums is checked here, for it holds every page. For an
    /// increment only the database as a whole can tell, so that is left to the restore.
    fn check_post_apply(&self, stored: u64) -> Result<(), LtxError> {
        let header = self.known_header();
        if !header.tracks_checksums() {
            return if stored == 0 { Ok(()) } else { Err(LtxError::PostApplyChecksum(stored)) };
        }
        if stored & CHECKSUM_FLAG == 0 {
            return Err(LtxError::PostApplyChecksum(stored));
        }
        let computed = self.database.value();
        if header.range.is_snapshot() && computed != stored {
            return Err(LtxError::DatabaseChecksum { computed, stored });
        }
        Ok(())
    }

    /// The page a snapshot must bring next: all of them, the lock page left out.
    fn next_in_snapshot(&self) -> u32 {
        let next = self.last_page.saturating_add(1);
        if next == self.known_header().lock_page() { next + 1 } else { next }
    }

    const fn known_header(&self) -> &Header {
        self.header.as_ref().expect("every stage after the first has a header")
    }
}

impl Default for Decoder {
    fn default() -> Self {
        Self::new()
    }
}

/// Decodes a whole file that lies in memory, calling `each` with every page.
///
/// # Errors
/// As [`Decoder::feed`] and [`Decoder::finish`]; pages were already handed out by then.
pub fn decode_pages(bytes: &[u8], each: impl FnMut(u32, &[u8])) -> Result<Verified, LtxError> {
    let mut decoder = Decoder::new();
    decoder.feed(bytes, &mut EachPage { page: Vec::new(), each })?;
    decoder.finish()
}

/// A sink that lends its pages to a function.
struct EachPage<F> {
    page: Vec<u8>,
    each: F,
}

impl<F: FnMut(u32, &[u8])> PageSink for EachPage<F> {
    type Error = LtxError;

    fn begin(&mut self, header: &Header) -> Result<(), LtxError> {
        self.page.resize(header.page_size as usize, 0);
        Ok(())
    }

    fn slot(&mut self, _number: u32) -> Result<&mut [u8], LtxError> {
        Ok(&mut self.page)
    }

    fn page(&mut self, number: u32) -> Result<(), LtxError> {
        (self.each)(number, &self.page);
        Ok(())
    }
}

fn measure_block(number: u32, bytes: &[u8], page_size: usize) -> Result<Measured, LtxError> {
    let Some(size) = bytes.get(PAGE_HEAD_LEN..).and_then(|rest| rest.first_chunk()) else {
        return Ok(Measured::AtLeast(BLOCK_HEAD_LEN));
    };
    let size = u32::from_be_bytes(*size);
    if size as usize > frame::max_compressed(page_size) {
        return Err(LtxError::CompressedSize { page: number, size });
    }
    let len = BLOCK_HEAD_LEN + size as usize;
    if bytes.len() < len {
        return Ok(Measured::AtLeast(len));
    }
    Ok(Measured::Whole(Stored { head: BLOCK_HEAD_LEN, len, block: true }))
}

fn measure_frame(number: u32, bytes: &[u8], page_size: usize) -> Result<Measured, LtxError> {
    let head = PAGE_HEAD_LEN;
    match frame::measure(&bytes[head..], page_size) {
        Ok(Extent::Whole(len)) => {
            Ok(Measured::Whole(Stored { head, len: head + len, block: false }))
        }
        Ok(Extent::AtLeast(len)) => Ok(Measured::AtLeast(head + len)),
        Err(reason) => Err(LtxError::Compression { page: number, reason }),
    }
}
