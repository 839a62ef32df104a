//! What every store under this product must do, as plain functions that any crate's tests can call
//! on a store of their own. They need no clean store, only fresh names, which they draw themselves.

use bytes::Bytes;
use carlos_protocol::ids::{Principal, ReadId, Region, Revision};
use carlos_protocol::keys::{QueueEntry, queue_prefix};
use carlos_protocol::time::{Hour, Seconds};
use futures::future::join_all;
use futures::{StreamExt, stream};

use crate::layer::Inner;
use crate::{Append, Bucket, Chain, Context, News, Outcome, Purpose, Queue, Serial};

/// A law that a store broke.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct Breach(pub String);

/// Ends the surrounding function with a [`Breach`] unless the condition holds.
macro_rules! ensure {
    ($holds:expr, $($why:tt)+) => {
        if !$holds {
            return Err($crate::conformance::Breach(format!($($why)+)));
        }
    };
}
pub(crate) use ensure;

/// One more than a page of a listing holds: whoever reads only the first page is found out.
const PAGE_AND_ONE: usize = 1_001;

/// Requests in flight while many objects are made.
const AT_ONCE: usize = 32;

/// Runs every law.
///
/// # Errors
/// The first law that does not hold.
pub async fn all(store: Inner, ctx: &Context) -> Result<(), Breach> {
    let bucket = Bucket::new(store, ctx.clone());
    a_create_happens_once(&bucket).await?;
    parallel_creates_have_one_winner(&bucket).await?;
    a_body_comes_back_exactly(&bucket).await?;
    absence_is_an_answer(&bucket).await?;
    a_listing_shows_its_folder(&bucket).await?;
    a_long_listing_is_whole(&bucket).await?;
    a_serial_is_news_when_bumped(&bucket).await?;
    a_chain_loses_no_append(&bucket).await?;
    a_chain_is_the_same_cold_and_warm(&bucket).await?;
    a_queue_shows_its_window(&bucket).await
}

/// The first create wins; the same bytes again are ours; other bytes find the name taken.
///
/// # Errors
/// [`Breach`]
pub async fn a_create_happens_once(bucket: &Bucket) -> Result<(), Breach> {
    let key = format!("{}/once", folder(bucket));
    let first = create(bucket, &key, "first").await;
    ensure!(first == Outcome::Created, "a free name: {first:?}");
    let same = create(bucket, &key, "first").await;
    ensure!(same == Outcome::AlreadyMine, "the same bytes again: {same:?}");
    let other = create(bucket, &key, "other").await;
    ensure!(other == Outcome::TakenBy("first".into()), "other bytes: {other:?}");
    expect_body(bucket, &key, "first").await
}

/// Of 32 writers at once, one creates and the rest are told whose bytes are there.
///
/// # Errors
/// [`Breach`]
pub async fn parallel_creates_have_one_winner(bucket: &Bucket) -> Result<(), Breach> {
    let key = format!("{}/race", folder(bucket));
    let bodies: Vec<String> = (0..AT_ONCE).map(|writer| format!("writer {writer}")).collect();
    let ends = join_all(bodies.iter().map(|body| create(bucket, &key, body))).await;
    let winners: Vec<&String> =
        bodies.iter().zip(&ends).filter(|(_, end)| end.is_ours()).map(|(body, _)| body).collect();
    let [winner] = winners.as_slice() else {
        return Err(Breach(format!("{} of {AT_ONCE} writers won", winners.len())));
    };
    let taken = Outcome::TakenBy(Bytes::from(winner.to_string()));
    let losers = ends.iter().filter(|end| **end == taken).count();
    ensure!(losers == AT_ONCE - 1, "{losers} losers were shown the winner's bytes");
    expect_body(bucket, &key, winner).await
}

/// Empty, binary and large bodies come back byte for byte.
///
/// # Errors
/// [`Breach`]
pub async fn a_body_comes_back_exactly(bucket: &Bucket) -> Result<(), Breach> {
    let mut large = vec![0; 300 * 1024];
    bucket.context().fill(&mut large);
    let folder = folder(bucket);
    for (name, body) in [("empty", Vec::new()), ("binary", vec![0, 255, 10, 13]), ("large", large)]
    {
        let (key, body) = (format!("{folder}/{name}"), Bytes::from(body));
        let end = bucket.create(&key, body.clone(), Purpose::Result).await;
        ensure!(end == Outcome::Created, "a {name} body: {end:?}");
        let read = bucket.get(&key, Purpose::Result).await;
        ensure!(read == Ok(Some(body)), "a {name} body is read differently");
    }
    Ok(())
}

/// A name that was never written reads as nothing, and an unused folder lists as empty.
///
/// # Errors
/// [`Breach`]
pub async fn absence_is_an_answer(bucket: &Bucket) -> Result<(), Breach> {
    let folder = folder(bucket);
    let read = bucket.get(&format!("{folder}/never"), Purpose::Claim).await;
    ensure!(read == Ok(None), "a name never written: {read:?}");
    let listed = bucket.list(&folder, None, Purpose::Sweep).await;
    ensure!(listed == Ok(Vec::new()), "a folder never used: {listed:?}");
    Ok(())
}

/// A listing is sorted, complete at once, and does not look into folders with a longer name; a
/// folder's own folders and objects are told apart.
///
/// # Errors
/// [`Breach`]
pub async fn a_listing_shows_its_folder(bucket: &Bucket) -> Result<(), Breach> {
    let folder = folder(bucket);
    for name in ["out/00000002", "out/00000010", "out/00000001", "outer/1", "out2"] {
        let end = create(bucket, &format!("{folder}/{name}"), name).await;
        ensure!(end == Outcome::Created, "{name}: {end:?}");
    }
    let names = list(bucket, &format!("{folder}/out/"), None).await?;
    let expected = ["00000001", "00000002", "00000010"].map(|n| format!("{folder}/out/{n}"));
    ensure!(names == expected, "{folder}/out/ lists as {names:?}");
    let after = format!("{folder}/out/00000002");
    let rest = list(bucket, &format!("{folder}/out/"), Some(&after)).await?;
    ensure!(rest == expected[2..], "after the second: {rest:?}");
    let children = bucket.children(&format!("{folder}/"), Purpose::Result).await;
    let children = children.map_err(|error| Breach(format!("folders of {folder}: {error}")))?;
    let folders = ["out", "outer"].map(|name| format!("{folder}/{name}"));
    ensure!(children.folders == folders, "the folders of {folder} are {:?}", children.folders);
    let objects: Vec<&str> = children.objects.iter().map(|listed| &*listed.key).collect();
    ensure!(objects == [format!("{folder}/out2")], "the objects of {folder} are {objects:?}");
    Ok(())
}

/// 1,001 objects are all listed, and from the middle exactly the later ones.
///
/// # Errors
/// [`Breach`]
pub async fn a_long_listing_is_whole(bucket: &Bucket) -> Result<(), Breach> {
    let folder = folder(bucket);
    let keys: Vec<String> = (0..PAGE_AND_ONE).map(|n| format!("{folder}/{n:08}")).collect();
    let ends: Vec<Outcome> = stream::iter(&keys)
        .map(|key| create(bucket, key, "x"))
        .buffer_unordered(AT_ONCE)
        .collect()
        .await;
    let created = ends.iter().filter(|end| **end == Outcome::Created).count();
    ensure!(created == PAGE_AND_ONE, "{created} of {PAGE_AND_ONE} creates succeeded");
    let listed = list(bucket, &folder, None).await?;
    ensure!(listed == keys, "{} of {PAGE_AND_ONE} keys listed in order", listed.len());
    let page = bucket.page(&folder, None, Purpose::Result).await;
    let page = page.map_err(|error| Breach(format!("a page of {folder}: {error}")))?;
    let (keys_in_page, whole) = (page.listed.len(), page.whole);
    ensure!(keys_in_page == PAGE_AND_ONE - 1 && !whole, "a page of {keys_in_page}, whole: {whole}");
    // A start that names no object, as the queue's does.
    let later = list(bucket, &folder, Some(&format!("{folder}/0000050"))).await?;
    ensure!(later == keys[500..], "{} of {} later keys", later.len(), PAGE_AND_ONE - 500);
    Ok(())
}

/// A serial is news once after each bump, by whichever clone it is bumped.
///
/// # Errors
/// [`Breach`]
pub async fn a_serial_is_news_when_bumped(bucket: &Bucket) -> Result<(), Breach> {
    let key = format!("control/serial/conformance-{}", fresh(bucket));
    let writer = Serial::new(bucket.clone(), key.clone());
    let mut reader = Serial::new(bucket.clone(), key);
    let mut seen = vec![reader.poll().await];
    for _ in 0..3 {
        writer.bump().await.map_err(|cause| Breach(format!("a bump: {cause}")))?;
        seen.extend([reader.poll().await, reader.poll().await]);
    }
    let (moved, same) = (Ok(News::Moved), Ok(News::Same));
    let expected = [&same, &moved, &same, &moved, &same, &moved, &same];
    ensure!(seen.iter().eq(expected), "polls around three bumps: {seen:?}");
    Ok(())
}

/// Four writers who each add one, ten times, end at forty.
///
/// # Errors
/// [`Breach`]
pub async fn a_chain_loses_no_append(bucket: &Bucket) -> Result<(), Breach> {
    const WRITERS: usize = 4;
    const EACH: usize = 10;
    let name = format!("{}/chain", folder(bucket));
    let writers = (0..WRITERS).map(|writer| add(bucket, &name, writer, EACH));
    join_all(writers).await.into_iter().collect::<Result<(), Breach>>()?;
    let total = head(&chain(bucket, &name, 9)).await?;
    ensure!(total == Some((40, "40".into())), "after forty additions: {total:?}");
    Ok(())
}

async fn add(bucket: &Bucket, name: &str, writer: usize, times: usize) -> Result<(), Breach> {
    let chain = chain(bucket, name, writer);
    for _ in 0..times {
        loop {
            let (at, count) = head(&chain).await?.unwrap_or_else(|| (0, "0".into()));
            let more = count.parse::<u64>().map_err(|_| Breach(format!("a count: {count}")))? + 1;
            let more = more.to_string();
            match chain.append(Revision::new(at), more.as_bytes(), Purpose::Result).await {
                Append::Written(_) => break,
                Append::Conflict(_) => {}
                other => return Err(Breach(format!("an addition: {other:?}"))),
            }
        }
    }
    Ok(())
}

/// A reader that comes fresh sees the head that a long-standing one sees; equal content writes
/// nothing; an outdated expectation is a conflict that shows the head.
///
/// # Errors
/// [`Breach`]
pub async fn a_chain_is_the_same_cold_and_warm(bucket: &Bucket) -> Result<(), Breach> {
    let name = format!("{}/chain", folder(bucket));
    let (writer, reader) = (chain(bucket, &name, 1), chain(bucket, &name, 2));
    ensure!(head(&reader).await?.is_none(), "a chain before its first revision has a head");
    for n in 0..20 {
        let end = append(&writer, n, &format!("[{n}]")).await;
        ensure!(Append::Written(revision(n + 1)?) == end, "revision {}: {end:?}", n + 1);
    }
    let expected = Some((20, "[19]".to_owned()));
    ensure!(head(&reader).await? == expected, "the warm reader is behind");
    ensure!(head(&chain(bucket, &name, 3)).await? == expected, "the cold reader is behind");
    let same = append(&reader, 20, "[19]").await;
    ensure!(same == Append::Unchanged(revision(20)?), "equal content: {same:?}");
    let late = append(&reader, 19, "[7]").await;
    ensure!(matches!(late, Append::Conflict(Some(_))), "an old expectation: {late:?}");
    ensure!(head(&reader).await? == expected, "a refused append was written");
    Ok(())
}

/// Entries inside the window are read, oldest first, across the turn of an hour; older ones,
/// foreign names and other regions are not.
///
/// # Errors
/// [`Breach`]
pub async fn a_queue_shows_its_window(bucket: &Bucket) -> Result<(), Breach> {
    let name = format!("r{}", fresh(bucket));
    let region = Region::parse(&name).map_err(|error| Breach(error.to_string()))?;
    let queue = Queue::new(bucket.clone(), region.clone());
    let now = bucket.context().now_unix();
    for age in [-3_600, -50, -1, 0, 30, 118, 140, 3_700_i64] {
        let issued_at = Seconds::new(now.saturating_add_signed(-age));
        let id = ReadId::mint(&mut bucket.context().entropy());
        let entry = QueueEntry { region: region.clone(), issued_at, id };
        let end = queue.add(&entry, Purpose::Result).await;
        ensure!(end == Outcome::Created, "an entry of age {age}: {end:?}");
    }
    let garbage = format!("{}zzz-not-an-entry", queue_prefix(&region, Hour::of(now)));
    let end = create(bucket, &garbage, "").await;
    ensure!(end == Outcome::Created, "a foreign name: {end:?}");
    let entries = queue.window().await.map_err(|error| Breach(error.to_string()))?;
    let ages: Vec<i64> = entries.iter().map(|entry| age(now, entry.issued_at)).collect();
    ensure!(ages == [118, 30, 0, -1, -50], "the window holds the ages {ages:?}");
    Ok(())
}

fn age(now: u64, issued_at: Seconds) -> i64 {
    now.cast_signed() - issued_at.unix().cast_signed()
}

/// A fresh folder under a prefix that the store's lifecycle empties.
fn folder(bucket: &Bucket) -> String {
    format!("probe/conformance/{}", fresh(bucket))
}

fn fresh(bucket: &Bucket) -> String {
    bucket.context().ulid().to_string().to_lowercase()
}

async fn create(bucket: &Bucket, key: &str, body: &str) -> Outcome {
    bucket.create(key, Bytes::copy_from_slice(body.as_bytes()), Purpose::Result).await
}

async fn expect_body(bucket: &Bucket, key: &str, body: &str) -> Result<(), Breach> {
    let read = bucket.get(key, Purpose::Result).await;
    ensure!(read == Ok(Some(Bytes::copy_from_slice(body.as_bytes()))), "{key} reads as {read:?}");
    Ok(())
}

async fn list(bucket: &Bucket, prefix: &str, after: Option<&str>) -> Result<Vec<String>, Breach> {
    let listed = bucket.list(prefix, after, Purpose::Result).await;
    let listed = listed.map_err(|error| Breach(format!("listing {prefix}: {error}")))?;
    Ok(listed.into_iter().map(|listed| listed.key).collect())
}

fn chain(bucket: &Bucket, name: &str, writer: usize) -> Chain {
    let by = Principal::parse(&format!("writer{writer}")).expect("a label");
    Chain::new(bucket.clone(), name, by)
}

async fn head(chain: &Chain) -> Result<Option<(u64, String)>, Breach> {
    let head = chain.head(Purpose::Result).await.map_err(|error| Breach(error.to_string()))?;
    Ok(head
        .map(|head| (head.revision.number(), String::from_utf8_lossy(&head.content).into_owned())))
}

async fn append(chain: &Chain, after: u64, content: &str) -> Append {
    chain.append(Revision::new(after), content.as_bytes(), Purpose::Result).await
}

fn revision(number: u64) -> Result<Revision, Breach> {
    Revision::new(number).ok_or_else(|| Breach("there is no revision 0".into()))
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use object_store::memory::InMemory;

    use super::*;
    use crate::fault::{Fault, FaultStore, Rule};
    use crate::layer::Op;
    use crate::shuffle::Shuffled;
    use crate::toys::{Liar, Lie};
    use crate::{WriteOnceGuard, file_url, open_store};

    /// Just after the turn of an hour, so that windows span two.
    const START_MS: u64 = 1_792_659_620_000;

    fn memory() -> Inner {
        Arc::new(InMemory::new())
    }

    #[tokio::test(start_paused = true)]
    async fn memory_conforms() {
        all(memory(), &Context::simulated(1, START_MS)).await.expect("a memory store conforms");
    }

    #[tokio::test(start_paused = true)]
    async fn a_shuffling_store_conforms() {
        let ctx = Context::simulated(2, START_MS);
        all(Shuffled::wrap(memory(), &ctx), &ctx).await.expect("order is not relied on");
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn a_directory_conforms() {
        let dir = tempfile::tempdir().expect("a directory");
        let store = open_store(&file_url(dir.path())).expect("a store");
        all(store, &Context::system()).await.expect("a directory conforms");
    }

    #[tokio::test(start_paused = true)]
    async fn a_shuffled_guarded_failing_store_conforms() {
        let ctx = Context::simulated(3, START_MS);
        let (guarded, guard) = WriteOnceGuard::wrap(memory());
        let (store, faults) = FaultStore::wrap(Shuffled::wrap(guarded, &ctx), &ctx);
        // Failures that change no law: one read in five, on either side.
        for op in [Op::Get, Op::List] {
            // A serial is looked at once and not again, so its polls are left alone.
            let others = |key: &str| !key.starts_with("control/serial/");
            faults.add(Rule::new(op, Fault::Refused(500)).filter(others).odds(0.1));
            faults.add(Rule::new(op, Fault::AnswerLost).filter(others).odds(0.1));
        }
        all(store, &ctx).await.expect("a store with failing reads conforms");
        assert!(faults.struck().len() > 20, "{:?}", faults.struck());
        assert!(guard.violations().is_empty());
    }

    #[tokio::test(start_paused = true)]
    async fn lying_stores_do_not_conform() {
        let ctx = Context::simulated(4, START_MS);
        let window = std::time::Duration::from_millis(20);
        for lie in [Lie::ChecksThenActs(window), Lie::IgnoresHeader, Lie::RefusesFreeNames] {
            let breach = all(Liar::wrap(memory(), &ctx, lie), &ctx).await;
            assert!(breach.is_err(), "{lie:?}");
        }
    }
}
