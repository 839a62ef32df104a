//! Revision chains: `<name>/<20 digits>`, each revision created once, the highest the truth. A
//! record changes by appending, so no update is ever lost and the history stays.

use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use bytes::Bytes;
use carlos_protocol::ids::{Nonce, Principal, Revision};
use carlos_protocol::records::ChainEntry;

use crate::Context;
use crate::bucket::{Bucket, Listed, Outcome};
use crate::deadline::Purpose;
use crate::verdict::{Cause, ReadError};

/// Successors asked for by GET before a listing is cheaper: twelve GETs cost one LIST.
const SUCCESSORS: usize = 12;

/// How often a revision that was listed and is gone on read leads to another listing
/// (slatedb#1215).
const RELISTINGS: usize = 3;

/// The current revision of a chain.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Head {
    /// Its number.
    pub revision: Revision,
    /// Who wrote it, by their own word.
    pub by: Principal,
    /// The record: canonical JSON.
    pub content: Bytes,
}

/// Why a chain has no usable head.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ChainError {
    /// The store gave no answer.
    #[error(transparent)]
    Read(#[from] ReadError),
    /// The highest revision is not an entry of this protocol. [`Chain::append`] can go past it.
    #[error("revision {} is not readable", .0.number())]
    Malformed(Revision),
}

/// How an append ended.
#[derive(Clone, Debug, PartialEq, Eq)]
#[must_use = "an append may have lost its race"]
pub enum Append {
    /// Our content is this revision.
    Written(Revision),
    /// The head, which is this revision, has this content already; nothing was written.
    Unchanged(Revision),
    /// The head is not the expected one. Look at it and decide again.
    Conflict(Option<Head>),
    /// Not known. The same append again is safe: it repeats the same bytes and finds itself.
    Unknown(Cause),
}

/// One chain as one writer or reader sees it. Clones share the cached head.
#[derive(Clone)]
pub struct Chain {
    bucket: Bucket,
    name: String,
    by: Principal,
    memory: Arc<Mutex<Memory>>,
}

#[derive(Default)]
struct Memory {
    head: Option<Found>,
    /// An append whose fate is not known: its revision, content and exact bytes.
    pending: Option<(Revision, Bytes, Bytes)>,
}

#[derive(Clone)]
struct Found {
    revision: Revision,
    body: Bytes,
}

impl Chain {
    /// The chain `name` (`hosts/<host>`), written as `by`.
    pub fn new(bucket: Bucket, name: impl Into<String>, by: Principal) -> Self {
        Self { bucket, name: name.into(), by, memory: Arc::default() }
    }

    /// The current revision, or `None` for a chain that was never begun. Warm: the cached revision
    /// and its successors by GET. Cold: a listing, and then successors all the same, since a
    /// listing proves no absence.
    ///
    /// # Errors
    /// [`ChainError`]; never an older revision in place of one that cannot be read.
    pub async fn head(&self, purpose: Purpose) -> Result<Option<Head>, ChainError> {
        self.find(purpose).await?.map(Found::decode).transpose()
    }

    /// Appends `content` (canonical JSON) if the head is still `expected`.
    pub async fn append(
        &self,
        expected: Option<Revision>,
        content: &[u8],
        purpose: Purpose,
    ) -> Append {
        let next = expected.map_or(Revision::FIRST, Revision::next);
        let body = match self.body(next, content) {
            Ok(body) => body,
            Err(cause) => return Append::Unknown(cause),
        };
        let head = match self.find(purpose).await {
            Ok(head) => head,
            Err(error) => return Append::Unknown(Cause::Store(error.to_string())),
        };
        if head.as_ref().is_some_and(|head| head.revision == next && head.body == body) {
            return self.written(next, body);
        }
        if head.as_ref().map(|head| head.revision) != expected {
            return conflict(head);
        }
        match head.and_then(|head| head.decode().ok()) {
            Some(head) if head.content == content => Append::Unchanged(head.revision),
            _ => self.create(next, content, body, purpose).await,
        }
    }

    async fn create(
        &self,
        next: Revision,
        content: &[u8],
        body: Bytes,
        purpose: Purpose,
    ) -> Append {
        match self.bucket.create(&self.key(next), body.clone(), purpose).await {
            Outcome::Created | Outcome::AlreadyMine => self.written(next, body),
            Outcome::TakenBy(_) => match self.find(purpose).await {
                Ok(head) => conflict(head),
                Err(error) => Append::Unknown(Cause::Store(error.to_string())),
            },
            Outcome::Unknown(cause) => {
                self.memory().pending = Some((next, Bytes::copy_from_slice(content), body));
                Append::Unknown(cause)
            }
        }
    }

    fn written(&self, revision: Revision, body: Bytes) -> Append {
        *self.memory() = Memory { head: Some(Found { revision, body }), pending: None };
        Append::Written(revision)
    }

    /// The bytes to write: those of the same append before, if its fate is not known yet.
    fn body(&self, next: Revision, content: &[u8]) -> Result<Bytes, Cause> {
        if let Some((revision, before, body)) = &self.memory().pending
            && *revision == next
            && *before == content
        {
            return Ok(body.clone());
        }
        let nonce = Nonce::mint(&mut self.context().entropy());
        let entry = ChainEntry::wrap(self.by.clone(), nonce, content)
            .map_err(|error| Cause::BadBody(error.to_string()))?;
        Ok(entry.to_bytes().into())
    }

    async fn find(&self, purpose: Purpose) -> Result<Option<Found>, ReadError> {
        let cached = self.memory().head.clone();
        let mut head = match cached {
            Some(head) => Some(head),
            None => self.listed(None, purpose).await?,
        };
        let mut steps = 0;
        while let Some(next) = self.successor(head.as_ref(), purpose).await? {
            steps += 1;
            let jump = match steps % SUCCESSORS {
                0 => self.listed(Some(&next), purpose).await?,
                _ => None,
            };
            head = Some(jump.unwrap_or(next));
        }
        self.remember(head.as_ref());
        Ok(head)
    }

    async fn successor(
        &self,
        head: Option<&Found>,
        purpose: Purpose,
    ) -> Result<Option<Found>, ReadError> {
        let revision = head.map_or(Revision::FIRST, |head| head.revision.next());
        let body = self.bucket.get(&self.key(revision), purpose).await?;
        Ok(body.map(|body| Found { revision, body }))
    }

    /// The highest revision that a listing shows after `head`.
    async fn listed(
        &self,
        head: Option<&Found>,
        purpose: Purpose,
    ) -> Result<Option<Found>, ReadError> {
        let after = head.map(|head| self.key(head.revision));
        for _ in 0..RELISTINGS {
            let listed = self.bucket.list(&self.name, after.as_deref(), purpose).await?;
            let Some(revision) = listed.iter().filter_map(|key| self.revision(key)).max() else {
                return Ok(None);
            };
            if let Some(body) = self.bucket.get(&self.key(revision), purpose).await? {
                return Ok(Some(Found { revision, body }));
            }
        }
        Err(ReadError::Store(format!("{} lists a revision that is not there", self.name)))
    }

    fn revision(&self, listed: &Listed) -> Option<Revision> {
        let name = listed.key.strip_prefix(&self.name)?.strip_prefix('/')?;
        Revision::parse(name).ok()
    }

    /// Another task of ours may have gone further meanwhile.
    fn remember(&self, head: Option<&Found>) {
        let mut memory = self.memory();
        let known = memory.head.as_ref().map(|known| known.revision);
        if head.map(|head| head.revision) > known {
            memory.head = head.cloned();
        }
    }

    fn key(&self, revision: Revision) -> String {
        format!("{}/{revision}", self.name)
    }

    fn context(&self) -> &Context {
        self.bucket.context()
    }

    fn memory(&self) -> MutexGuard<'_, Memory> {
        self.memory.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Found {
    fn decode(self) -> Result<Head, ChainError> {
        let Ok(entry) = ChainEntry::from_bytes(&self.body) else {
            return Err(ChainError::Malformed(self.revision));
        };
        let content = Bytes::copy_from_slice(entry.content());
        Ok(Head { revision: self.revision, by: entry.by, content })
    }
}

fn conflict(head: Option<Found>) -> Append {
    match head.map(Found::decode).transpose() {
        Ok(head) => Append::Conflict(head),
        Err(error) => Append::Unknown(Cause::Store(error.to_string())),
    }
}

impl fmt::Debug for Chain {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Contents may hold token hashes.
        f.debug_struct("Chain").field("name", &self.name).finish_non_exhaustive()
    }
}
