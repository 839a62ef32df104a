//! What a restore needs of a replica's store: listings, bytes from an offset, one header.

use async_trait::async_trait;
use bytes::Bytes;
use futures::StreamExt;
use futures::future::try_join_all;
use futures::stream::BoxStream;

use carlos_ltx::HEADER_LEN;

use crate::{LEVELS, Listing, PlannedFile, ReplicaFile};

/// A file's bytes as they arrive.
pub type ByteStream = BoxStream<'static, Result<Bytes, ReadError>>;

/// How often in a row a broken stream is taken up again where it ended. Providers drop streams
/// that idle; a store that fails this often without giving a byte has a lasting fault.
const MAX_RESUMES: u32 = 3;

/// Read-only access to one replica.
#[async_trait]
pub trait ReplicaReader: Send + Sync {
    /// How exact the listing's times are.
    fn resolution(&self) -> crate::Resolution;

    /// The files of one level, in any order. Names that are not LTX names are left out.
    async fn list(&self, level: u8) -> Result<Vec<ReplicaFile>, ReadError>;

    /// The file's bytes from `offset` on. [`ReadError::Changed`] when it is not there, or is no
    /// longer the file that was listed.
    async fn open(&self, file: &ReplicaFile, offset: u64) -> Result<ByteStream, ReadError>;

    /// The file's first 100 bytes, by one ranged read.
    async fn header(&self, file: &ReplicaFile) -> Result<[u8; HEADER_LEN], ReadError>;

    /// All levels, listed once each.
    async fn listing(&self) -> Result<Listing, ReadError> {
        let levels = try_join_all((0..LEVELS).map(|level| self.list(level))).await?;
        Ok(Listing::new(levels.into_iter().flatten()))
    }
}

/// Why a replica cannot be read.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ReadError {
    /// The moment for a new plan.
    #[error("{file} is gone or was replaced since it was listed")]
    Changed { file: PlannedFile },
    #[error("no permission to read {what}")]
    Denied { what: String, source: StoreError },
    #[error("this is a replica of Litestream 0.3 (generations); restore it with Litestream itself")]
    OldReplica,
    #[error("the store failed while reading {what}: {source}")]
    Store { what: String, source: StoreError },
    #[error("level {level} lists more than {limit} files")]
    TooManyFiles { level: u8, limit: usize },
    #[error("{file} ended after {have} of {} bytes", .file.size)]
    Unfinished { file: PlannedFile, have: u64 },
}

/// What the store's library said.
pub type StoreError = Box<dyn std::error::Error + Send + Sync>;

/// Reads one listed file from start to end, taking up a dropped or short stream where it ended.
/// Gives exactly the listed number of bytes or an error.
pub struct Fetch<'a> {
    reader: &'a dyn ReplicaReader,
    file: &'a ReplicaFile,
    offset: u64,
    stream: Option<ByteStream>,
    resumes: u32,
}

impl<'a> Fetch<'a> {
    /// Nothing is requested before the first [`Fetch::next`].
    #[must_use]
    pub fn new(reader: &'a dyn ReplicaReader, file: &'a ReplicaFile) -> Self {
        Self { reader, file, offset: 0, stream: None, resumes: 0 }
    }

    /// The next bytes; `None` after the last.
    ///
    /// # Errors
    /// [`ReadError::Changed`] at once; other failures after a few attempts that gave no byte.
    pub async fn next(&mut self) -> Result<Option<Bytes>, ReadError> {
        while self.offset < self.file.size {
            match self.try_next().await {
                Ok(Some(bytes)) => return self.accept(bytes).map(Some),
                Ok(None) => self.retry(None)?,
                Err(lasting @ (ReadError::Changed { .. } | ReadError::Denied { .. })) => {
                    return Err(lasting);
                }
                Err(failure) => self.retry(Some(failure))?,
            }
        }
        Ok(None)
    }

    async fn try_next(&mut self) -> Result<Option<Bytes>, ReadError> {
        if self.stream.is_none() {
            self.stream = Some(self.reader.open(self.file, self.offset).await?);
        }
        let stream = self.stream.as_mut().expect("just opened");
        stream.next().await.transpose()
    }

    fn accept(&mut self, bytes: Bytes) -> Result<Bytes, ReadError> {
        self.offset = self.offset.saturating_add(bytes.len() as u64);
        self.resumes = if bytes.is_empty() { self.resumes } else { 0 };
        if self.offset > self.file.size {
            return Err(ReadError::Changed { file: self.file.planned() });
        }
        Ok(bytes)
    }

    fn retry(&mut self, failure: Option<ReadError>) -> Result<(), ReadError> {
        self.stream = None;
        self.resumes += 1;
        if self.resumes <= MAX_RESUMES {
            return Ok(());
        }
        let unfinished = ReadError::Unfinished { file: self.file.planned(), have: self.offset };
        Err(failure.unwrap_or(unfinished))
    }
}
