//! The store as this product uses it: creates with four outcomes, bounded reads, whole listings.

use std::fmt;
use std::future::Future;
use std::str::FromStr;
use std::sync::Arc;

use bytes::Bytes;
use futures::stream::BoxStream;
use futures::{StreamExt, TryStreamExt};
use object_store::path::Path;
use object_store::{
    GetOptions, ObjectMeta, ObjectStore, ObjectStoreExt, PutMode, PutOptions, PutPayload,
};

use crate::Context;
use crate::brake::Brake;
use crate::counters::{Answer, Counters, Kind};
use crate::deadline::{Deadline, Purpose};
use crate::verdict::{Cause, ReadError, Verdict};

/// The largest object read or written: above a pull's chunk of 1 MiB with its seal, below what
/// would let one foreign object hurt.
pub const MAX_OBJECT: u64 = 2 * 1024 * 1024;

/// The most keys one listing returns: 100 pages. A day of reads in one region stays far below.
pub const MAX_LISTED: usize = 100_000;

/// Keys in one page of a LIST, which is what a store bills.
const PAGE: usize = 1_000;

/// How a create ended.
#[derive(Clone, Debug, PartialEq, Eq)]
#[must_use = "a create has four outcomes and each needs its own answer"]
pub enum Outcome {
    /// This call put the object there.
    Created,
    /// Byte-equal content was there, from an earlier attempt of ours. Content that two writers
    /// could share by chance must carry a nonce.
    AlreadyMine,
    /// Somebody else's content is there.
    TakenBy(Bytes),
    /// The deadline passed without knowing. The object may be there, or may still land; only
    /// another create of the same bytes under the same key is safe.
    Unknown(Cause),
}

impl Outcome {
    /// Whether the object is there with our bytes.
    pub fn is_ours(&self) -> bool {
        matches!(self, Self::Created | Self::AlreadyMine)
    }
}

/// One key of a listing.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Listed {
    /// The whole key.
    pub key: String,
    /// Bytes in the object.
    pub size: u64,
}

impl From<ObjectMeta> for Listed {
    fn from(meta: ObjectMeta) -> Self {
        Self { key: meta.location.into(), size: meta.size }
    }
}

/// A part of a listing: what one LIST returns.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Page {
    /// Up to 1,000 keys, sorted. Of a store that does not list in order they are any.
    pub listed: Vec<Listed>,
    /// Whether these are all there are.
    pub whole: bool,
}

/// What is directly under a folder.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Children {
    /// The folders, as whole keys without the closing slash, sorted.
    pub folders: Vec<String>,
    /// The objects, sorted.
    pub objects: Vec<Listed>,
}

impl Children {
    /// The folders' and objects' names behind `prefix`, the folder that was listed, as far as they
    /// are names of this kind.
    pub fn names<'a, T: FromStr>(&'a self, prefix: &'a str) -> impl Iterator<Item = T> + 'a {
        let objects = self.objects.iter().map(|listed| &listed.key);
        let names = self.folders.iter().chain(objects);
        names.filter_map(move |key| key.strip_prefix(prefix)?.parse().ok())
    }
}

/// A bucket with this process's clock, brake and counters. Clones share all three; make one per
/// process.
#[derive(Clone, Debug)]
pub struct Bucket {
    pub(crate) store: Arc<dyn ObjectStore>,
    pub(crate) ctx: Context,
    brake: Arc<Brake>,
    counters: Arc<Counters>,
    doubted: bool,
    gate: Option<Gate>,
}

/// Whether writes may still be sent.
#[derive(Clone)]
struct Gate(Arc<dyn Fn() -> bool + Send + Sync>);

impl fmt::Debug for Gate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Gate")
    }
}

impl Bucket {
    /// A bucket over `store`, whose own retries must be off for conditional puts.
    pub fn new(store: Arc<dyn ObjectStore>, ctx: Context) -> Self {
        let (brake, counters) = (Arc::default(), Arc::default());
        Self { store, ctx, brake, counters, doubted: false, gate: None }
    }

    /// Another store under the same brake and counters.
    pub fn beside(&self, store: Arc<dyn ObjectStore>) -> Self {
        Self { store, ..self.clone() }
    }

    /// A bucket that reads back even what the store says it created, for stores that are not known
    /// to keep the condition (minio#21603).
    pub fn doubted(self) -> Self {
        Self { doubted: true, ..self }
    }

    /// A bucket that sends a write only while `open` says so, asked at the last moment: behind the
    /// brake, which may hold a write back for seconds, and again before each repetition. A create
    /// of which nothing was sent ends as [`Cause::Withdrawn`].
    pub fn gated(self, open: impl Fn() -> bool + Send + Sync + 'static) -> Self {
        Self { gate: Some(Gate(Arc::new(open))), ..self }
    }

    /// The clock and randomness this bucket works with.
    pub fn context(&self) -> &Context {
        &self.ctx
    }

    /// Requests sent by this process.
    pub fn counters(&self) -> &Counters {
        &self.counters
    }

    /// The brake of this process.
    pub fn brake(&self) -> &Brake {
        &self.brake
    }

    /// The store underneath, for parts that keep to rules of their own.
    pub fn store(&self) -> &Arc<dyn ObjectStore> {
        &self.store
    }

    /// Puts `body` at `key` unless something is there. Repeats the same bytes under the same key
    /// until the purpose's deadline; reads back after every answer that is not a plain success.
    pub async fn create(&self, key: &str, body: Bytes, purpose: Purpose) -> Outcome {
        let path = match checked_path(key, &body) {
            Ok(path) => path,
            Err(cause) => return Outcome::Unknown(cause),
        };
        let mut deadline = Deadline::new(&self.ctx, purpose);
        let mut earlier = None;
        loop {
            let verdict = match self.create_once(&path, &body, &deadline).await {
                Ok(()) if !self.doubted => return Outcome::Created,
                Ok(()) => Verdict::Exists,
                // What was sent before may have landed, so this is not the whole story then.
                Err(Verdict::Final(Cause::Withdrawn)) => {
                    return Outcome::Unknown(earlier.unwrap_or(Cause::Withdrawn));
                }
                Err(Verdict::Final(cause)) => return Outcome::Unknown(cause),
                Err(verdict) => verdict,
            };
            let cause = match self.read_back(&path, &body, &deadline).await {
                Ok(Some(outcome)) => return outcome,
                Ok(None) => verdict.cause(),
                Err(Verdict::Final(cause)) => return Outcome::Unknown(cause),
                Err(unreadable) => unreadable.cause(),
            };
            if !deadline.pause().await {
                return Outcome::Unknown(cause);
            }
            earlier = Some(cause);
        }
    }

    /// The object at `key`, or `None` when there is none.
    pub async fn get(&self, key: &str, purpose: Purpose) -> Result<Option<Bytes>, ReadError> {
        let path = parse_key(key).map_err(|cause| Verdict::Final(cause).read_error())?;
        let mut deadline = Deadline::new(&self.ctx, purpose);
        loop {
            let verdict = match self.get_once(&path, None, &deadline).await {
                Ok((body, _)) => return Ok(Some(body)),
                Err(Verdict::Absent) => return Ok(None),
                Err(verdict) => verdict,
            };
            if !verdict.is_passing() || !deadline.pause().await {
                return Err(verdict.read_error());
            }
        }
    }

    /// Every key under the folder `prefix` that sorts after `start_after`, sorted. `start_after` is
    /// a whole key, or the beginning of one; it need not exist.
    pub async fn list(
        &self,
        prefix: &str,
        start_after: Option<&str>,
        purpose: Purpose,
    ) -> Result<Vec<Listed>, ReadError> {
        let all = self.list_most(prefix, start_after, MAX_LISTED + 1, purpose).await?;
        if all.whole { Ok(all.listed) } else { Err(ReadError::TooMany) }
    }

    /// [`Bucket::list`] of one request, however much there is.
    pub async fn page(
        &self,
        prefix: &str,
        start_after: Option<&str>,
        purpose: Purpose,
    ) -> Result<Page, ReadError> {
        self.list_most(prefix, start_after, PAGE, purpose).await
    }

    /// What is directly under the folder `prefix`: a LIST with a delimiter, whose cost grows with
    /// the folders and not with what is in them.
    pub async fn children(&self, prefix: &str, purpose: Purpose) -> Result<Children, ReadError> {
        let path = parse_key(prefix).map_err(|cause| Verdict::Final(cause).read_error())?;
        let mut deadline = Deadline::new(&self.ctx, purpose);
        loop {
            let verdict = match self.children_once(&path, &deadline).await {
                Ok(children) => return Ok(children),
                Err(verdict) => verdict,
            };
            if !verdict.is_passing() || !deadline.pause().await {
                return Err(verdict.read_error());
            }
        }
    }

    async fn list_most(
        &self,
        prefix: &str,
        start_after: Option<&str>,
        most: usize,
        purpose: Purpose,
    ) -> Result<Page, ReadError> {
        let (prefix, offset) =
            list_bounds(prefix, start_after).map_err(|cause| Verdict::Final(cause).read_error())?;
        let mut deadline = Deadline::new(&self.ctx, purpose);
        loop {
            let verdict = match self.list_once(&prefix, offset.as_ref(), most, &deadline).await {
                Ok(page) => return Ok(page),
                Err(verdict) => verdict,
            };
            if !verdict.is_passing() || !deadline.pause().await {
                return Err(verdict.read_error());
            }
        }
    }

    /// One conditional put.
    pub(crate) async fn create_once(
        &self,
        path: &Path,
        body: &Bytes,
        deadline: &Deadline<'_>,
    ) -> Result<(), Verdict> {
        let options = PutOptions { mode: PutMode::Create, ..PutOptions::default() };
        let put = self.store.put_opts(path, PutPayload::from(body.clone()), options);
        self.send(Kind::Create, deadline, put).await.map(drop)
    }

    /// One replacing put. Only serials and pulses come here.
    pub(crate) async fn replace_once(
        &self,
        path: &Path,
        body: &Bytes,
        deadline: &Deadline<'_>,
    ) -> Result<(), Verdict> {
        let put = self.store.put(path, PutPayload::from(body.clone()));
        self.send(Kind::Replace, deadline, put).await.map(drop)
    }

    /// One read with the object's tag; with `unless`, only when the tag differs from that one.
    pub(crate) async fn get_once(
        &self,
        path: &Path,
        unless: Option<&str>,
        deadline: &Deadline<'_>,
    ) -> Result<(Bytes, Option<String>), Verdict> {
        let options = GetOptions::new().with_if_none_match(unless);
        let read = async {
            let found = self.store.get_opts(path, options).await?;
            let tag = found.meta.e_tag.clone();
            match found.meta.size {
                size if size > MAX_OBJECT => Ok(Err(size)),
                _ => Ok(Ok((found.bytes().await?, tag))),
            }
        };
        self.send(Kind::Get, deadline, read).await?.map_err(Verdict::TooLarge)
    }

    async fn list_once(
        &self,
        prefix: &Path,
        offset: Option<&Path>,
        most: usize,
        deadline: &Deadline<'_>,
    ) -> Result<Page, Verdict> {
        let pages = match offset {
            Some(offset) => self.store.list_with_offset(Some(prefix), offset),
            None => self.store.list(Some(prefix)),
        };
        let found = self.send(Kind::List, deadline, collect(pages, most)).await?;
        self.count_pages(found.len());
        // Before the filter: a store that knows no offset begins at the beginning.
        let whole = found.len() < most;
        // No store's order is relied on: a directory lists in the order of its file system.
        let mut listed: Vec<Listed> = found
            .into_iter()
            .filter(|meta| offset.is_none_or(|offset| meta.location > *offset))
            .map(Listed::from)
            .collect();
        listed.sort_unstable();
        Ok(Page { listed, whole })
    }

    async fn children_once(
        &self,
        prefix: &Path,
        deadline: &Deadline<'_>,
    ) -> Result<Children, Verdict> {
        let listing = self.store.list_with_delimiter(Some(prefix));
        let found = self.send(Kind::List, deadline, listing).await?;
        let children = found.common_prefixes.len() + found.objects.len();
        self.count_pages(children);
        if children > MAX_LISTED {
            return Err(Verdict::TooMany);
        }
        let mut folders: Vec<String> =
            found.common_prefixes.into_iter().map(String::from).collect();
        let mut objects: Vec<Listed> = found.objects.into_iter().map(Listed::from).collect();
        folders.sort_unstable();
        objects.sort_unstable();
        Ok(Children { folders, objects })
    }

    /// The pages of a listing after its first one, which was counted as it was sent.
    fn count_pages(&self, listed: usize) {
        self.counters.further_pages((listed.saturating_sub(1) / PAGE) as u64);
    }

    /// What is at `path` after a create that did not plainly succeed. `None`: nothing, which proves
    /// nothing, since the put may still be on its way.
    async fn read_back(
        &self,
        path: &Path,
        body: &Bytes,
        deadline: &Deadline<'_>,
    ) -> Result<Option<Outcome>, Verdict> {
        match self.get_once(path, None, deadline).await {
            Ok((found, _)) if found == *body => Ok(Some(Outcome::AlreadyMine)),
            Ok((found, _)) => Ok(Some(Outcome::TakenBy(found))),
            Err(Verdict::Absent) => Ok(None),
            Err(verdict) => Err(verdict),
        }
    }

    fn may_send(&self, kind: Kind) -> bool {
        let writes = matches!(kind, Kind::Create | Kind::Replace);
        !writes || self.gate.as_ref().is_none_or(|gate| (gate.0)())
    }

    /// One request behind the brake, counted, cut at the attempt's limit, its answer sorted.
    async fn send<T>(
        &self,
        kind: Kind,
        deadline: &Deadline<'_>,
        request: impl Future<Output = object_store::Result<T>>,
    ) -> Result<T, Verdict> {
        if !self.brake.admit(&self.ctx, deadline.left()).await {
            return Err(Verdict::Throttled);
        }
        if !self.may_send(kind) {
            return Err(Verdict::Final(Cause::Withdrawn));
        }
        let allowed = deadline.attempt(kind);
        if allowed.is_zero() {
            // A request cut at once may land all the same; it is better not sent.
            return Err(Verdict::TimedOut);
        }
        self.counters.sent(kind);
        let Ok(answer) = self.ctx.timeout(allowed, request).await else {
            self.counters.note(kind, Answer::TimedOut);
            return Err(Verdict::TimedOut);
        };
        let answer = answer.map_err(|error| Verdict::of(&error));
        self.counters.note(kind, Answer::of(&answer));
        self.brake.record(&self.ctx, matches!(answer, Err(Verdict::Throttled)));
        answer
    }
}

/// Reads a listing to its end, or so many keys of it. The next page is not asked for before a key
/// of it is wanted.
async fn collect(
    pages: BoxStream<'static, object_store::Result<ObjectMeta>>,
    most: usize,
) -> object_store::Result<Vec<ObjectMeta>> {
    pages.take(most).try_collect().await
}

pub(crate) fn parse_key(key: &str) -> Result<Path, Cause> {
    Path::parse(key).map_err(|error| Cause::BadKey(error.to_string()))
}

fn checked_path(key: &str, body: &Bytes) -> Result<Path, Cause> {
    match body.len() as u64 {
        size if size > MAX_OBJECT => Err(Cause::TooLarge(size)),
        _ => parse_key(key),
    }
}

fn list_bounds(prefix: &str, after: Option<&str>) -> Result<(Path, Option<Path>), Cause> {
    Ok((parse_key(prefix)?, after.map(parse_key).transpose()?))
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicBool, Ordering};
    use std::time::Duration;

    use carlos_protocol::ids::Principal;
    use object_store::memory::InMemory;

    use super::*;
    use crate::fault::{Fault, FaultStore, Rule};
    use crate::hook::{HookStore, Side};
    use crate::layer::Op;

    fn faulty() -> (Bucket, FaultStore) {
        let ctx = Context::simulated(9, 0);
        let (store, faults) = FaultStore::wrap(Arc::new(InMemory::new()), &ctx);
        (Bucket::new(store, ctx), faults)
    }

    #[tokio::test(start_paused = true)]
    async fn a_healthy_create_is_one_request() {
        let (bucket, _) = faulty();
        let end = bucket.create("probe/a/1", "x".into(), Purpose::Claim).await;
        assert_eq!(end, Outcome::Created);
        let sent = bucket.counters().snapshot().map(|(kind, tally)| (kind.name(), tally.sent));
        assert_eq!(sent, [("create", 1), ("get", 0), ("list", 0), ("replace", 0)]);
    }

    /// The brake holds a create back for seconds; what closed meanwhile is not written.
    #[tokio::test(start_paused = true)]
    async fn a_gate_is_asked_behind_the_brake() {
        let (bucket, faults) = faulty();
        let open = Arc::new(AtomicBool::new(true));
        let gate = Arc::clone(&open);
        let gated = bucket.clone().gated(move || gate.load(Ordering::SeqCst));
        faults.add(Rule::new(Op::Create, Fault::Refused(503)).on("storm").always());
        let storm = bucket.create("probe/storm/1", "x".into(), Purpose::Claim).await;
        assert_eq!(storm, Outcome::Unknown(Cause::Throttled));
        assert!(bucket.brake().is_on());
        let ctx = bucket.context().clone();
        let closing = async {
            ctx.sleep(Duration::from_millis(1)).await;
            open.store(false, Ordering::SeqCst);
        };
        let create = gated.create("probe/a/1", "x".into(), Purpose::Claim);
        let (end, ()) = futures::join!(create, closing);
        assert_eq!(end, Outcome::Unknown(Cause::Withdrawn));
        assert_eq!(bucket.get("probe/a/1", Purpose::Claim).await, Ok(None));
    }

    #[tokio::test(start_paused = true)]
    async fn a_gate_that_closes_between_two_tries_leaves_the_first_one_s_fate_open() {
        let (bucket, faults) = faulty();
        let asked = Arc::new(AtomicBool::new(false));
        let gated = bucket.clone().gated(move || !asked.swap(true, Ordering::SeqCst));
        faults.add(Rule::new(Op::Create, Fault::LandsLate(Duration::from_secs(4))));
        let end = gated.create("probe/a/1", "x".into(), Purpose::Claim).await;
        assert_eq!(end, Outcome::Unknown(Cause::TimedOut));
    }

    #[tokio::test(start_paused = true)]
    async fn what_cannot_be_stored_is_not_sent() {
        let (bucket, _) = faulty();
        let large = Bytes::from(vec![0; MAX_OBJECT as usize + 1]);
        let end = bucket.create("probe/a/1", large, Purpose::Claim).await;
        assert_eq!(end, Outcome::Unknown(Cause::TooLarge(MAX_OBJECT + 1)));
        for key in ["probe//1", "probe/../1", "probe/a\u{0}b"] {
            let end = bucket.create(key, "x".into(), Purpose::Claim).await;
            assert!(matches!(end, Outcome::Unknown(Cause::BadKey(_))), "{key:?}: {end:?}");
            let read = bucket.get(key, Purpose::Claim).await;
            assert!(matches!(read, Err(ReadError::BadKey(_))), "{key:?}: {read:?}");
        }
        assert_eq!(bucket.counters().of(Kind::Create).sent, 0);
    }

    #[tokio::test(start_paused = true)]
    async fn a_foreign_object_that_is_too_large_is_not_read() {
        let (bucket, _) = faulty();
        let body = PutPayload::from(vec![0; MAX_OBJECT as usize + 1]);
        bucket.store().put(&Path::from("hosts/x/1"), body).await.expect("a memory store");
        let read = bucket.get("hosts/x/1", Purpose::Claim).await;
        assert_eq!(read, Err(ReadError::TooLarge(MAX_OBJECT + 1)));
        assert_eq!(bucket.counters().of(Kind::Get).sent, 1);
    }

    #[tokio::test(start_paused = true)]
    async fn reads_end_by_their_deadline_with_the_reason() {
        let (bucket, faults) = faulty();
        let reasons = [
            (Fault::Swallowed, ReadError::TimedOut),
            (Fault::Refused(503), ReadError::Throttled),
            (Fault::Refused(403), ReadError::Denied(String::new())),
            (Fault::Refused(500), ReadError::Store(String::new())),
        ];
        for (fault, expected) in reasons {
            faults.clear();
            faults.add(Rule::new(Op::Get, fault).always());
            let begun = bucket.context().monotonic();
            let error = bucket.get("hosts/x/1", Purpose::Claim).await.expect_err("it fails");
            let kind = std::mem::discriminant(&error);
            assert_eq!(kind, std::mem::discriminant(&expected), "{fault:?}: {error:?}");
            let took = bucket.context().monotonic() - begun;
            assert!(took <= Purpose::Claim.allowed() + Duration::from_millis(2), "{took:?}");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_last_attempt_that_lands_in_silence_is_still_found() {
        let (bucket, faults) = faulty();
        faults.add(Rule::new(Op::Create, Fault::Refused(500)).times(3));
        faults.add(Rule::new(Op::Create, Fault::DoneInSilence).always());
        let within = Purpose::Within(Duration::from_millis(900));
        let end = bucket.create("probe/a/1", "x".into(), within).await;
        assert_eq!(end, Outcome::AlreadyMine);
    }

    #[tokio::test(start_paused = true)]
    async fn no_time_means_no_request() {
        let (bucket, _) = faulty();
        let none = Purpose::Within(Duration::ZERO);
        let end = bucket.create("probe/a/1", "x".into(), none).await;
        assert_eq!(end, Outcome::Unknown(Cause::TimedOut));
        assert_eq!(bucket.get("probe/a/1", none).await, Err(ReadError::TimedOut));
        assert_eq!(bucket.counters().of(Kind::Create).sent, 0);
    }

    /// A store that replaces although it was asked not to: the loser's only evidence is the object.
    #[tokio::test(start_paused = true)]
    async fn a_doubted_success_is_read_back() {
        let (store, hooks) = HookStore::wrap(Arc::new(InMemory::new()));
        let replacing = Arc::clone(&store);
        hooks.on(Side::After, Op::Create, "picked", 2, move |key| {
            let store = Arc::clone(&replacing);
            async move {
                let put = store.put(&Path::from(key), "another's".into()).await;
                put.expect("a memory store");
            }
        });
        let bucket = Bucket::new(store, Context::simulated(1, 0));
        let trusting = bucket.create("db-reads/a/picked", "ours".into(), Purpose::Claim).await;
        assert_eq!(trusting, Outcome::Created);
        let doubting = bucket.doubted();
        let end = doubting.create("db-reads/b/picked", "ours".into(), Purpose::Claim).await;
        assert_eq!(end, Outcome::TakenBy("another's".into()));
    }

    #[tokio::test(start_paused = true)]
    async fn pages_are_counted_as_they_are_billed() {
        let (bucket, _) = faulty();
        for n in 0..2_001 {
            let path = Path::from(format!("probe/pages/{n}"));
            bucket.store().put(&path, "".into()).await.expect("a memory store");
        }
        let listed = bucket.list("probe/pages", None, Purpose::Sweep).await.expect("a listing");
        assert_eq!((listed.len(), bucket.counters().of(Kind::List).sent), (2_001, 3));
    }

    #[tokio::test(start_paused = true)]
    async fn a_page_is_one_request_and_says_whether_it_is_all() {
        let (bucket, _) = faulty();
        for n in 0..1_001 {
            let path = Path::from(format!("probe/pages/{n:04}"));
            bucket.store().put(&path, "".into()).await.expect("a memory store");
        }
        let first = bucket.page("probe/pages", None, Purpose::Sweep).await.expect("a page");
        assert_eq!((first.listed.len(), first.whole), (1_000, false));
        assert_eq!(bucket.counters().of(Kind::List).sent, 1);
        let after = Some("probe/pages/0999");
        let rest = bucket.page("probe/pages", after, Purpose::Sweep).await.expect("a page");
        assert_eq!((rest.listed.len(), rest.whole), (1, true));
    }

    #[tokio::test(start_paused = true)]
    async fn children_are_the_folders_and_objects_of_one_level() {
        let (bucket, faults) = faulty();
        let deep = (0..3_000).map(|n| format!("control/edges/b/{n}"));
        for key in ["control/edges/a/1", "control/edges/x", "control/edgesX/no"]
            .map(str::to_owned)
            .into_iter()
            .chain(deep)
        {
            bucket.store().put(&Path::from(key), "".into()).await.expect("a memory store");
        }
        let children = bucket.children("control/edges/", Purpose::Claim).await.expect("a listing");
        assert_eq!(children.folders, ["control/edges/a", "control/edges/b"]);
        let objects = [Listed { key: "control/edges/x".into(), size: 0 }];
        assert_eq!(children.objects, objects);
        let names: Vec<Principal> = children.names("control/edges/").collect();
        assert_eq!(names.iter().map(|name| name.as_str()).collect::<Vec<_>>(), ["a", "b", "x"]);
        assert_eq!(bucket.counters().of(Kind::List).sent, 1);
        let none = bucket.children("control/none", Purpose::Claim).await;
        assert_eq!(none, Ok(Children::default()));
        faults.add(Rule::new(Op::List, Fault::Refused(403)).on("control/edges").always());
        let denied = bucket.children("control/edges", Purpose::Claim).await;
        assert!(matches!(denied, Err(ReadError::Denied(_))), "{denied:?}");
    }

    #[tokio::test(start_paused = true)]
    async fn a_store_beside_shares_brake_and_counters() {
        let (bucket, _) = faulty();
        let other = bucket.beside(Arc::new(InMemory::new()));
        assert_eq!(other.get("hosts/x/1", Purpose::Claim).await, Ok(None));
        assert_eq!(bucket.counters().of(Kind::Get).sent, 1);
    }
}
