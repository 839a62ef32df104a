//! The source side of a replica: writes snapshots and increments as Litestream 0.5.17 does, in
//! the S3 layout. For `carlos dev`, which replicates a person's own database, and for tests.

use std::io;
use std::sync::Arc;

use object_store::path::Path;
use object_store::{MultipartUpload, ObjectStore, ObjectStoreExt};

use carlos_ltx::{EncodeError, Encoder, Encoding, Header, Txid, TxidRange};
use carlos_ltx::{is_page_size, lock_page, page_checksum};

use crate::plan::{PlanError, Resolution, Target, plan};
use crate::store::BadPrefix;
use crate::{Layout, PlannedFile, ReadError, ReplicaReader, SNAPSHOT_LEVEL, StoreReplica};

/// Files up to this size are stored by one request, larger ones in parts of it. S3 wants parts
/// of at least 5 MiB.
const PART: usize = 8 << 20;

/// A database at one moment. Every read must come from the same moment, so the caller holds a
/// read transaction or has a copy.
pub trait PageSource: Send {
    /// Bytes per page.
    fn page_size(&self) -> u32;

    /// The database's size in pages.
    fn commit(&self) -> u32;

    /// Reads page `number`, from 1, into exactly one page's worth of bytes.
    ///
    /// # Errors
    /// When the source cannot be read.
    fn read_page(&mut self, number: u32, page: &mut [u8]) -> io::Result<()>;
}

/// Writes one database's replica.
///
/// [`ReplicaWriter::sync`] writes a level-0 file with the pages that changed since the last
/// call, found by comparing each page's hash. Eight bytes of memory per page are kept for that.
pub struct ReplicaWriter {
    store: Arc<dyn ObjectStore>,
    prefix: Path,
    txid: Txid,
    /// What each page was at the last sync; `None` when that is not known.
    known: Option<Known>,
}

struct Known {
    page_size: u32,
    hashes: Vec<u64>,
}

/// A file that was written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Written {
    /// Where it stands, its transactions, its size.
    pub file: PlannedFile,
    /// How many pages it holds.
    pub pages: u32,
}

/// Why nothing was written. The replica is as it was.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum WriteError {
    #[error(transparent)]
    BadPrefix(#[from] BadPrefix),
    #[error("the source has no pages")]
    Empty,
    #[error("the source's page size {0} is none of SQLite's")]
    PageSize(u32),
    #[error("reading the source failed: {0}")]
    Source(#[from] io::Error),
    #[error("the existing replica cannot be continued: {0}")]
    Existing(#[from] PlanError),
    #[error("the existing replica cannot be listed: {0}")]
    List(#[from] ReadError),
    #[error("storing a file failed: {0}")]
    Store(#[from] object_store::Error),
    #[error("nothing was synced yet, so there is no transaction to take a snapshot of")]
    NothingSynced,
    #[error(transparent)]
    Encode(#[from] EncodeError),
}

impl ReplicaWriter {
    /// A writer that goes on after the newest transaction under `prefix`, or begins there. What
    /// the pages were then is not known, so the first sync writes them all.
    ///
    /// # Errors
    /// When what is there cannot be listed or is no whole replica.
    pub async fn open(store: Arc<dyn ObjectStore>, prefix: &str) -> Result<Self, WriteError> {
        let replica = StoreReplica::new(store.clone(), prefix, Layout::S3, Resolution::Full)?;
        let listing = replica.listing().await?;
        let txid = match plan(&listing, Target::Newest, Resolution::Full) {
            Ok(plan) => plan.txid(),
            Err(PlanError::NothingReplicated) => Txid::NONE,
            Err(broken) => return Err(broken.into()),
        };
        Ok(Self { store, prefix: replica.prefix().clone(), txid, known: None })
    }

    /// The last transaction written; [`Txid::NONE`] before the first.
    #[must_use]
    pub const fn txid(&self) -> Txid {
        self.txid
    }

    /// Bytes per page of what is known to be there.
    #[must_use]
    pub fn page_size(&self) -> Option<u32> {
        self.known.as_ref().map(|known| known.page_size)
    }

    /// Takes `restored`, the newest state of what is there, as what the pages were at the last
    /// sync. A writer that goes on with a replica writes only what has changed since.
    ///
    /// # Errors
    /// [`WriteError`] when it cannot be read or is no database.
    pub fn remember(&mut self, restored: &mut dyn PageSource) -> Result<(), WriteError> {
        let shape = Shape::of(restored)?;
        let hashes = hash_pages(restored, shape)?;
        self.known = Some(Known { page_size: shape.page_size, hashes });
        Ok(())
    }

    /// Writes the pages that changed as the next transaction, at level 0. The first one ever
    /// holds every page. `None` when nothing changed. `now_ms` is the file's time.
    ///
    /// # Errors
    /// See [`WriteError`]; the same changes are written by the next call.
    pub async fn sync(
        &mut self,
        source: &mut dyn PageSource,
        now_ms: i64,
    ) -> Result<Option<Written>, WriteError> {
        let txid = self.txid.next();
        let range = TxidRange::new(txid, txid).expect("the next transaction is at least 1");
        let shape = Shape::of(source)?;
        let hashes = hash_pages(source, shape)?;
        let changed = self.changed(shape, &hashes);
        if changed.is_empty() && self.same_size(shape, &hashes) {
            return Ok(None);
        }
        let header = Header::new(shape.page_size, shape.commit, range, now_ms);
        let written = self.write(0, header, source, &changed).await?;
        self.txid = txid;
        self.known = Some(Known { page_size: shape.page_size, hashes });
        Ok(Some(written))
    }

    /// Writes every page as a snapshot of the last synced transaction. `source` must still be
    /// what that sync saw.
    ///
    /// # Errors
    /// See [`WriteError`].
    pub async fn snapshot(
        &mut self,
        source: &mut dyn PageSource,
        now_ms: i64,
    ) -> Result<Written, WriteError> {
        let range = TxidRange::new(Txid::FIRST, self.txid).ok_or(WriteError::NothingSynced)?;
        let shape = Shape::of(source)?;
        let header = Header::new(shape.page_size, shape.commit, range, now_ms);
        let all: Vec<_> = shape.pages().collect();
        self.write(SNAPSHOT_LEVEL, header, source, &all).await
    }

    fn changed(&self, shape: Shape, hashes: &[u64]) -> Vec<u32> {
        let known = self.known.as_ref().filter(|known| known.page_size == shape.page_size);
        let before = known.map_or(&[][..], |known| &known.hashes);
        let differs = |page: &u32| {
            let at = *page as usize - 1;
            before.get(at) != Some(&hashes[at])
        };
        shape.pages().filter(differs).collect()
    }

    fn same_size(&self, shape: Shape, hashes: &[u64]) -> bool {
        self.known.as_ref().is_some_and(|known| {
            known.page_size == shape.page_size && known.hashes.len() == hashes.len()
        })
    }

    async fn write(
        &self,
        level: u8,
        header: Header,
        source: &mut dyn PageSource,
        pages: &[u32],
    ) -> Result<Written, WriteError> {
        let key = Layout::S3.key(&self.prefix, level, header.range);
        let mut upload = Upload::new(self.store.clone(), key);
        match encode(&mut upload, header, source, pages).await {
            Ok(()) => {
                let size = upload.finish().await?;
                let file = PlannedFile { level, range: header.range, size };
                Ok(Written { file, pages: pages.len() as u32 })
            }
            Err(failure) => {
                upload.abort().await;
                Err(failure)
            }
        }
    }
}

/// A source's page size and number of pages, both checked.
#[derive(Clone, Copy)]
struct Shape {
    page_size: u32,
    commit: u32,
}

impl Shape {
    fn of(source: &dyn PageSource) -> Result<Self, WriteError> {
        let (page_size, commit) = (source.page_size(), source.commit());
        if !is_page_size(page_size) {
            return Err(WriteError::PageSize(page_size));
        }
        if commit == 0 {
            return Err(WriteError::Empty);
        }
        Ok(Self { page_size, commit })
    }

    /// The numbers of all pages that a file can hold.
    fn pages(self) -> impl Iterator<Item = u32> {
        (1..=self.commit).filter(move |page| *page != lock_page(self.page_size))
    }
}

fn hash_pages(source: &mut dyn PageSource, shape: Shape) -> io::Result<Vec<u64>> {
    let mut page = vec![0; shape.page_size as usize];
    let mut hash = |number| {
        source.read_page(number, &mut page)?;
        Ok(page_checksum(number, &page))
    };
    let lock = lock_page(shape.page_size);
    (1..=shape.commit).map(|number| if number == lock { Ok(0) } else { hash(number) }).collect()
}

async fn encode(
    upload: &mut Upload,
    header: Header,
    source: &mut dyn PageSource,
    pages: &[u32],
) -> Result<(), WriteError> {
    let mut encoder = Encoder::new(header, Encoding::Block, &mut upload.pending)?;
    let mut page = vec![0; header.page_size as usize];
    for number in pages {
        source.read_page(*number, &mut page)?;
        encoder.page(*number, &page, &mut upload.pending)?;
        upload.send_full_parts().await?;
    }
    Ok(encoder.finish(0, &mut upload.pending)?)
}

/// An object on its way to the store. It appears whole, or not at all.
struct Upload {
    store: Arc<dyn ObjectStore>,
    key: Path,
    pending: Vec<u8>,
    sent: u64,
    parts: Option<Box<dyn MultipartUpload>>,
}

impl Upload {
    fn new(store: Arc<dyn ObjectStore>, key: Path) -> Self {
        Self { store, key, pending: Vec::new(), sent: 0, parts: None }
    }

    async fn send_full_parts(&mut self) -> object_store::Result<()> {
        while self.pending.len() >= PART {
            let rest = self.pending.split_off(PART);
            let part = std::mem::replace(&mut self.pending, rest);
            self.send(part).await?;
        }
        Ok(())
    }

    async fn send(&mut self, part: Vec<u8>) -> object_store::Result<()> {
        if self.parts.is_none() {
            self.parts = Some(self.store.put_multipart(&self.key).await?);
        }
        let parts = self.parts.as_mut().expect("just begun");
        self.sent += part.len() as u64;
        parts.put_part(part.into()).await
    }

    /// Stores what is left and gives the object's size.
    async fn finish(mut self) -> object_store::Result<u64> {
        let size = self.sent + self.pending.len() as u64;
        let last = std::mem::take(&mut self.pending);
        if self.parts.is_none() {
            self.store.put(&self.key, last.into()).await?;
            return Ok(size);
        }
        let sent = self.send(last).await;
        let parts = self.parts.as_mut().expect("parts were sent");
        let done = match sent {
            Ok(()) => parts.complete().await.map(|_| ()),
            Err(failure) => Err(failure),
        };
        if done.is_err() {
            self.abort().await;
        }
        done.map(|()| size)
    }

    /// Takes back the parts that were sent. A failure here leaves them to the store's own rule
    /// for uploads that never complete.
    async fn abort(&mut self) {
        if let Some(parts) = self.parts.as_mut() {
            let _ = parts.abort().await;
        }
    }
}
