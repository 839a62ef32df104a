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

/// Revisions in one page of a LIST.
const STRIDE: u64 = 1_000;

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

    /// Begins at a revision that somebody names, so that [`Chain::head`] needs no listing. False
    /// when it is not there.
    ///
    /// # Errors
    /// The store gave no answer.
    pub async fn resume(&self, revision: Revision, purpose: Purpose) -> Result<bool, ReadError> {
        let body = self.bucket.get(&self.key(revision), purpose).await?;
        let found = body.map(|body| Found { revision, body });
        self.remember(found.as_ref());
        Ok(found.is_some())
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
            // An earlier append of ours that may still land would undo "unchanged" behind our
            // back; a revision of the same content takes its name away.
            Some(head) if head.content == content && !self.may_still_append(next) => {
                Append::Unchanged(head.revision)
            }
            _ => self.create(next, content, body, purpose).await,
        }
    }

    fn may_still_append(&self, next: Revision) -> bool {
        self.memory().pending.as_ref().is_some_and(|(revision, ..)| *revision == next)
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
        // The last number there is follows itself: somebody wrote it to be walked for ever.
        if head.is_some_and(|head| head.revision == revision) {
            return Ok(None);
        }
        let body = self.bucket.get(&self.key(revision), purpose).await?;
        Ok(body.map(|body| Found { revision, body }))
    }

    /// The highest revision that a listing shows after `head`.
    async fn listed(
        &self,
        head: Option<&Found>,
        purpose: Purpose,
    ) -> Result<Option<Found>, ReadError> {
        let known = head.map_or(0, |head| head.revision.number());
        for _ in 0..RELISTINGS {
            let highest = self.highest(known, purpose).await?;
            let Some(revision) = Revision::new(highest).filter(|_| highest > known) else {
                return Ok(None);
            };
            if let Some(body) = self.bucket.get(&self.key(revision), purpose).await? {
                return Ok(Some(Found { revision, body }));
            }
        }
        Err(ReadError::Store(format!("{} lists a revision that is not there", self.name)))
    }

    /// The number of the highest revision that listings show after `known`.
    ///
    /// One page tells for nearly every chain. Where it does not, pages are looked at in growing
    /// distances, and then between the last one with a revision and the first one without, so that
    /// a long history costs its logarithm. A page of a store that lists out of order only makes
    /// the steps smaller.
    async fn highest(&self, known: u64, purpose: Purpose) -> Result<u64, ReadError> {
        let (mut low, mut above, mut reach) = (known, None, 0);
        loop {
            let from = match above {
                None => low.saturating_add(reach),
                Some(above) => low + between(low, above),
            };
            let page = self.bucket.page(&self.name, Some(&self.place(from)), purpose).await?;
            match self.highest_of(&page.listed) {
                Some(found) if page.whole => return Ok(found),
                Some(found) => {
                    low = found;
                    reach = (reach * 2).max(STRIDE);
                }
                // A page of names that are no revisions hides what comes after it.
                None if !page.whole => return self.highest_of_all(low, purpose).await,
                None if from == low => return Ok(low),
                None => above = Some(from),
            }
        }
    }

    async fn highest_of_all(&self, known: u64, purpose: Purpose) -> Result<u64, ReadError> {
        let listed = self.bucket.list(&self.name, Some(&self.place(known)), purpose).await?;
        Ok(self.highest_of(&listed).unwrap_or(known))
    }

    fn highest_of(&self, listed: &[Listed]) -> Option<u64> {
        listed.iter().filter_map(|key| self.revision(key)).map(Revision::number).max()
    }

    /// The place of a revision among the keys, also of revision 0, which is before all others.
    fn place(&self, number: u64) -> String {
        format!("{}/{number:020}", self.name)
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

/// Half of a wide gap; nothing of one that a page covers.
fn between(low: u64, above: u64) -> u64 {
    let gap = above.saturating_sub(low);
    if gap > STRIDE { gap / 2 } else { 0 }
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

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use object_store::memory::InMemory;
    use object_store::path::Path;
    use object_store::{ObjectStore, ObjectStoreExt};

    use super::*;
    use crate::Kind;
    use crate::fault::{Fault, FaultStore, Rule};
    use crate::layer::Op;
    use crate::shuffle::Shuffled;

    const NAME: &str = "hosts/shop.example.com";

    fn faulty() -> (Bucket, FaultStore) {
        let ctx = Context::simulated(3, 0);
        let (store, faults) = FaultStore::wrap(Arc::new(InMemory::new()), &ctx);
        (Bucket::new(store, ctx), faults)
    }

    fn chain(bucket: &Bucket) -> Chain {
        Chain::new(bucket.clone(), NAME, Principal::parse("console").expect("a label"))
    }

    async fn write(chain: &Chain, times: u64) {
        for n in 0..times {
            let content = format!("[{n}]");
            let end = chain.append(Revision::new(n), content.as_bytes(), Purpose::Claim).await;
            assert_eq!(end, Append::Written(Revision::new(n + 1).expect("not zero")));
        }
    }

    fn revision(number: u64) -> Revision {
        Revision::new(number).expect("not zero")
    }

    #[tokio::test(start_paused = true)]
    async fn a_warm_head_costs_one_read_and_no_listing() {
        let (bucket, _) = faulty();
        let chain = chain(&bucket);
        write(&chain, 3).await;
        let before = (bucket.counters().of(Kind::Get).sent, bucket.counters().of(Kind::List).sent);
        chain.head(Purpose::Claim).await.expect("a healthy store").expect("a head");
        let after = (bucket.counters().of(Kind::Get).sent, bucket.counters().of(Kind::List).sent);
        assert_eq!((after.0 - before.0, after.1 - before.1), (1, 0));
    }

    #[tokio::test(start_paused = true)]
    async fn a_reader_far_behind_lists_instead_of_walking() {
        let (bucket, _) = faulty();
        let (writer, reader) = (chain(&bucket), chain(&bucket));
        write(&writer, 1).await;
        assert!(reader.head(Purpose::Claim).await.expect("a healthy store").is_some());
        for n in 1..500 {
            let content = n.to_string();
            let end = writer.append(Revision::new(n), content.as_bytes(), Purpose::Claim).await;
            assert!(matches!(end, Append::Written(_)));
        }
        let before = bucket.counters().of(Kind::Get).sent;
        let head = reader.head(Purpose::Claim).await.expect("a healthy store").expect("a head");
        assert_eq!(head.revision, revision(500));
        assert!(bucket.counters().of(Kind::Get).sent - before < 20);
    }

    async fn long(revisions: impl Iterator<Item = u64>, store: Arc<dyn ObjectStore>) -> Bucket {
        for number in revisions {
            let key = Path::from(format!("{NAME}/{number:020}"));
            store.put(&key, "".into()).await.expect("a memory store");
        }
        Bucket::new(store, Context::simulated(3, 0))
    }

    /// The number of the head of a chain whose revisions are empty, and the listings it took.
    async fn cold(bucket: &Bucket) -> (u64, u64) {
        let before = bucket.counters().of(Kind::List).sent;
        let head = chain(bucket).head(Purpose::Claim).await;
        let Err(ChainError::Malformed(head)) = head else { panic!("{head:?}") };
        (head.number(), bucket.counters().of(Kind::List).sent - before)
    }

    #[tokio::test(start_paused = true)]
    async fn a_cold_head_costs_the_logarithm_of_its_history() {
        for (revisions, most) in
            [(1, 1), (999, 1), (1_000, 3), (1_001, 4), (5_000, 8), (12_345, 12), (40_000, 16)]
        {
            let bucket = long(1..=revisions, Arc::new(InMemory::new())).await;
            let (head, listings) = cold(&bucket).await;
            assert_eq!(head, revisions);
            assert!(listings <= most, "{listings} listings for {revisions} revisions");
        }
        // The beginning has expired.
        let bucket = long(70_000..75_000, Arc::new(InMemory::new())).await;
        assert_eq!(cold(&bucket).await.0, 74_999);
    }

    #[tokio::test(start_paused = true)]
    async fn a_cold_head_needs_no_order_and_passes_foreign_names() {
        let ctx = Context::simulated(5, 0);
        let shuffled = Shuffled::wrap(Arc::new(InMemory::new()), &ctx);
        assert_eq!(cold(&long(1..=3_500, shuffled).await).await.0, 3_500);
        let bucket = long(1..=2_000, Arc::new(InMemory::new())).await;
        for n in 0..1_500 {
            let key = Path::from(format!("{NAME}/00000000000000001500.{n}"));
            bucket.store().put(&key, "".into()).await.expect("a memory store");
        }
        assert_eq!(cold(&bucket).await.0, 2_000);
    }

    #[tokio::test(start_paused = true)]
    async fn a_head_that_somebody_names_needs_no_listing() {
        let (bucket, _) = faulty();
        write(&chain(&bucket), 5).await;
        let (reader, before) = (chain(&bucket), bucket.counters().of(Kind::List).sent);
        assert_eq!(reader.resume(revision(6), Purpose::Claim).await, Ok(false));
        assert_eq!(reader.resume(revision(4), Purpose::Claim).await, Ok(true));
        let head = reader.head(Purpose::Claim).await.expect("a healthy store").expect("a head");
        assert_eq!(head.revision, revision(5));
        assert_eq!(bucket.counters().of(Kind::List).sent, before);
    }

    #[tokio::test(start_paused = true)]
    async fn garbage_at_the_head_is_said_and_can_be_passed() {
        let (bucket, _) = faulty();
        let chain = chain(&bucket);
        write(&chain, 1).await;
        let key = format!("{NAME}/{}", revision(2));
        let end = bucket.create(&key, "not an entry".into(), Purpose::Claim).await;
        assert_eq!(end, Outcome::Created);
        let head = chain.head(Purpose::Claim).await;
        assert_eq!(head, Err(ChainError::Malformed(revision(2))));
        let stale = chain.append(Some(revision(1)), b"[9]", Purpose::Claim).await;
        assert!(matches!(stale, Append::Unknown(_)), "{stale:?}");
        let past = chain.append(Some(revision(2)), b"[9]", Purpose::Claim).await;
        assert_eq!(past, Append::Written(revision(3)));
    }

    #[tokio::test(start_paused = true)]
    async fn the_last_number_of_all_ends_the_walk() {
        let (bucket, _) = faulty();
        let key = format!("{NAME}/{}", revision(u64::MAX));
        let end = bucket.create(&key, "not an entry".into(), Purpose::Claim).await;
        assert_eq!(end, Outcome::Created);
        let head = chain(&bucket).head(Purpose::Claim).await;
        assert_eq!(head, Err(ChainError::Malformed(revision(u64::MAX))));
        let end = chain(&bucket).append(Some(revision(u64::MAX)), b"[1]", Purpose::Claim).await;
        assert!(matches!(end, Append::Unknown(_)), "{end:?}");
    }

    #[tokio::test(start_paused = true)]
    async fn foreign_names_in_the_folder_are_passed_over() {
        let (bucket, _) = faulty();
        for name in ["zzz", "2", "00000000000000000009.tmp", "00000000000000000007/x"] {
            let key = format!("{NAME}/{name}");
            let end = bucket.create(&key, "x".into(), Purpose::Claim).await;
            assert_eq!(end, Outcome::Created);
        }
        assert_eq!(chain(&bucket).head(Purpose::Claim).await, Ok(None));
    }

    /// An append is given up while it is on its way, and its writer goes back to what the head
    /// says already. What lands afterwards must not be the last word.
    #[tokio::test(start_paused = true)]
    async fn an_append_on_its_way_does_not_outlive_unchanged() {
        let (bucket, faults) = faulty();
        let chain = chain(&bucket);
        write(&chain, 1).await;
        faults.add(Rule::new(Op::Create, Fault::LandsLate(Duration::from_secs(30))).times(5));
        faults.add(Rule::new(Op::Create, Fault::Swallowed).times(20));
        let unknown = chain.append(Some(revision(1)), b"[7]", Purpose::Claim).await;
        assert!(matches!(unknown, Append::Unknown(_)), "{unknown:?}");
        faults.clear();
        let back = chain.append(Some(revision(1)), b"[0]", Purpose::Claim).await;
        assert_eq!(back, Append::Written(revision(2)), "not unchanged: the other may land");
        bucket.context().sleep(Duration::from_secs(60)).await;
        let head = chain.head(Purpose::Claim).await.expect("a healthy store").expect("a head");
        assert_eq!((head.revision, &head.content[..]), (revision(2), &b"[0]"[..]));
        let same = chain.append(Some(revision(2)), b"[0]", Purpose::Claim).await;
        assert_eq!(same, Append::Unchanged(revision(2)));
    }

    #[tokio::test(start_paused = true)]
    async fn content_that_is_no_record_is_not_written() {
        let (bucket, _) = faulty();
        let end = chain(&bucket).append(None, b"not json", Purpose::Claim).await;
        assert!(matches!(end, Append::Unknown(Cause::BadBody(_))), "{end:?}");
        assert_eq!(bucket.counters().of(Kind::Create).sent, 0);
    }

    #[tokio::test(start_paused = true)]
    async fn a_revision_listed_and_gone_is_listed_again() {
        let (bucket, faults) = faulty();
        write(&chain(&bucket), 2).await;
        faults.add(Rule::new(Op::Get, Fault::Hidden));
        let head = chain(&bucket).head(Purpose::Claim).await.expect("the second look finds it");
        assert_eq!(head.map(|head| head.revision), Some(revision(2)));
        faults.add(Rule::new(Op::Get, Fault::Hidden).always());
        let gone = chain(&bucket).head(Purpose::Claim).await;
        assert!(matches!(gone, Err(ChainError::Read(_))), "{gone:?}");
    }
}
