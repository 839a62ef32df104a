//! The database being put together, page by page, across files.

use std::io;

use carlos_ltx::{CHECKSUM_FLAG, DatabaseChecksum, Header, LtxError, PageSink, Txid, Verified};

use super::output::Output;
use super::pages::PageSet;
use super::{RestoreError, RestoreOptions, Restored};
use crate::PlannedFile;

/// Neighbouring pages are written together up to this many bytes. A multiple of every page size.
const BATCH: usize = 256 << 10;
/// Length of the part of page 1 that is SQLite's own header.
const SQLITE_HEADER: usize = 100;
const SQLITE_MAGIC: &[u8; 16] = b"SQLite format 3\0";

/// Refused by the format, or by the restore.
pub(super) enum SheetError {
    Ltx(LtxError),
    Restore(RestoreError),
}

impl From<LtxError> for SheetError {
    fn from(cause: LtxError) -> Self {
        Self::Ltx(cause)
    }
}

impl From<RestoreError> for SheetError {
    fn from(refusal: RestoreError) -> Self {
        Self::Restore(refusal)
    }
}

impl From<io::Error> for SheetError {
    fn from(failure: io::Error) -> Self {
        Self::Restore(failure.into())
    }
}

pub(super) struct Sheet {
    output: Output,
    options: RestoreOptions,
    /// Bytes of all planned files.
    planned: u64,
    /// The file whose pages come now.
    file: PlannedFile,
    /// The header of the latest file; the last one's commit is the final size.
    header: Option<Header>,
    /// The latest file's database checksum, when it had one.
    post_apply: Option<u64>,
    present: PageSet,
    batch: Batch,
    /// Where a page goes that the database does not have.
    unused: Vec<u8>,
}

/// A run of neighbouring pages that is not written yet.
#[derive(Default)]
struct Batch {
    bytes: Vec<u8>,
    first: u32,
    pages: u32,
}

impl Sheet {
    pub(super) fn new(
        output: Output,
        first: PlannedFile,
        planned: u64,
        options: RestoreOptions,
    ) -> Self {
        Self {
            output,
            options,
            file: first,
            planned,
            header: None,
            post_apply: None,
            present: PageSet::default(),
            batch: Batch::default(),
            unused: Vec::new(),
        }
    }

    /// Names the file whose header comes next.
    pub(super) fn expect(&mut self, file: PlannedFile) {
        self.file = file;
    }

    /// The file was read to its end and every checksum of it is right.
    pub(super) fn end(&mut self, verified: &Verified) {
        self.post_apply = verified.header.tracks_checksums().then_some(verified.post_apply);
    }

    pub(super) fn finish(mut self) -> Result<Restored, RestoreError> {
        self.flush()?;
        let header = self.header.ok_or(RestoreError::NothingPlanned)?;
        self.check_complete(&header)?;
        // Whatever no file carries reads as zeros: the lock page.
        self.output.set_len(header.database_bytes())?;
        self.check_page_one(&header)?;
        self.check_database_checksum(&header)?;
        self.output.keep(self.options.durable)?;
        Ok(Restored {
            txid: header.range.max(),
            pages: header.commit,
            page_size: header.page_size,
            bytes: header.database_bytes(),
            time_ms: header.timestamp_ms,
        })
    }

    fn check_header(&self, header: &Header) -> Result<(), RestoreError> {
        let file = self.file;
        if header.range != file.range {
            return Err(RestoreError::NameDiffers { file, header: header.range });
        }
        if header.commit == 0 {
            return Err(RestoreError::ZeroCommit { file });
        }
        let (bytes, limit) = (header.database_bytes(), self.options.max_bytes);
        if bytes > limit && !header.fits(self.planned) {
            return Err(RestoreError::PageCount { file, pages: header.commit });
        }
        if bytes > limit {
            return Err(RestoreError::TooLarge { file, bytes, limit });
        }
        let reached = self.header.map_or(Txid::NONE, |before| before.range.max());
        if header.range.min() > reached.next() || header.range.max() <= reached {
            return Err(RestoreError::NotInSequence { file, reached });
        }
        self.header.map_or(Ok(()), |before| self.check_against(header, &before))
    }

    fn check_against(&self, header: &Header, before: &Header) -> Result<(), RestoreError> {
        let file = self.file;
        if header.page_size != before.page_size {
            let (page_size, before) = (header.page_size, before.page_size);
            return Err(RestoreError::PageSizeDiffers { file, page_size, before });
        }
        // Where ranges overlap, the state before this file is not the state after the last.
        let adjacent = header.range.min() == before.range.max().next();
        let broken = self.post_apply.is_some_and(|post| post != header.pre_apply);
        if header.tracks_checksums() && adjacent && broken {
            return Err(RestoreError::ChecksumChain { file });
        }
        Ok(())
    }

    /// Every page must have come from a file that was applied since the database last grew to
    /// hold it; otherwise zeros or old content would stand in its place.
    fn check_complete(&self, header: &Header) -> Result<(), RestoreError> {
        let hole = self.present.first_hole(header);
        hole.map_or(Ok(()), |page| Err(RestoreError::Hole { page }))
    }

    fn check_page_one(&mut self, header: &Header) -> Result<(), RestoreError> {
        let mut start = [0; SQLITE_HEADER];
        self.output.read_at(0, &mut start)?;
        let stored = u16::from_be_bytes([start[16], start[17]]);
        // SQLite writes 65536, which does not fit, as 1.
        let page_size = if stored == 1 { 65_536 } else { u32::from(stored) };
        let pages = u32::from_be_bytes([start[28], start[29], start[30], start[31]]);
        if !start.starts_with(SQLITE_MAGIC) {
            return Err(RestoreError::PageOne("it does not begin as a database does"));
        }
        if page_size != header.page_size {
            return Err(RestoreError::PageOne("it states another page size"));
        }
        if pages != header.commit {
            return Err(RestoreError::PageOne("it states another number of pages"));
        }
        Ok(())
    }

    /// Only files of other writers than Litestream have this checksum, so the extra pass over
    /// the result costs ordinary restores nothing.
    fn check_database_checksum(&mut self, header: &Header) -> Result<(), RestoreError> {
        let Some(stored) = self.post_apply else {
            return Ok(());
        };
        let mut checksum = DatabaseChecksum::default();
        let mut page = vec![0; header.page_size as usize];
        for number in (1..=header.commit).filter(|number| *number != header.lock_page()) {
            self.output.read_at(offset(number, page.len()), &mut page)?;
            checksum.toggle(number, &page);
        }
        let computed = checksum.value();
        if computed != stored | CHECKSUM_FLAG {
            return Err(RestoreError::DatabaseChecksum { computed, stored });
        }
        Ok(())
    }

    fn flush(&mut self) -> io::Result<()> {
        let Batch { bytes, first, pages } = &mut self.batch;
        if *pages > 0 {
            let page_size = self.unused.len();
            let run = &bytes[..*pages as usize * page_size];
            self.output.write_at(offset(*first, page_size), run)?;
            *pages = 0;
        }
        Ok(())
    }
}

impl PageSink for Sheet {
    type Error = SheetError;

    fn begin(&mut self, header: &Header) -> Result<(), SheetError> {
        self.check_header(header)?;
        self.flush()?;
        if self.header.is_none() {
            self.batch.bytes = vec![0; BATCH];
            self.unused = vec![0; header.page_size as usize];
        }
        if self.header.is_some_and(|before| header.commit < before.commit) {
            // A later file may grow the database again, and must then bring these pages itself.
            self.present.truncate(header.commit);
            self.output.set_len(header.database_bytes())?;
        }
        self.header = Some(*header);
        Ok(())
    }

    fn slot(&mut self, number: u32) -> Result<&mut [u8], SheetError> {
        let page_size = self.unused.len();
        if number > self.commit() {
            return Ok(&mut self.unused);
        }
        let full = (self.batch.pages as usize + 1) * page_size > BATCH;
        if full || number != self.batch.first.wrapping_add(self.batch.pages) {
            self.flush()?;
        }
        if self.batch.pages == 0 {
            self.batch.first = number;
        }
        let start = self.batch.pages as usize * page_size;
        Ok(&mut self.batch.bytes[start..start + page_size])
    }

    fn page(&mut self, number: u32) -> Result<(), SheetError> {
        // Litestream can leave pages above the commit in a file after a shrink; they are not
        // part of the database.
        if number <= self.commit() {
            self.present.insert(number);
            self.batch.pages += 1;
        }
        Ok(())
    }
}

impl Sheet {
    fn commit(&self) -> u32 {
        self.header.map_or(0, |header| header.commit)
    }
}

/// Where a page begins in the file.
const fn offset(page: u32, page_size: usize) -> u64 {
    (page as u64 - 1) * page_size as u64
}
