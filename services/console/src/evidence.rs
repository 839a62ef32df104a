//! Whether anybody could serve a read: refused up front only on complete evidence (db-forward
//! §7.1).

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::{Mutex, MutexGuard, PoisonError},
};

use bytes::Bytes;
use carlos_bucket::{Bucket, Chain, Children, Purpose};
use carlos_protocol::{
    ids::{BoxName, Principal, Region, Revision},
    keys::{self, Key},
    limits,
    records::{DB_READ_CAPABILITY, DB_READ_PARAMS_CAPABILITY, Edges, Status, VERSION},
};
use futures::{StreamExt, stream};

/// Boxes looked at for one answer. A deployment with more gets no refusal up front, which costs a
/// person two minutes and never an answer.
const MAX_BOXES: usize = 1_024;

/// Boxes read at once. A thousand boxes are then read in a second or two, and one read of a person
/// is far from what a prefix of S3 answers in a second, which is 5,500.
const BOXES_AT_ONCE: usize = 64;

/// What the evidence says about a region.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Verdict {
    /// Somebody may serve, or nobody knows: the pickup window decides.
    Ask,
    /// No box of the region publishes the capability and is not draining (DBF-1).
    NoneCapable,
    /// Capable boxes, none of them fresh (DBF-2).
    NoneLive,
    /// Fresh capable boxes, none of which would understand a request with parameters.
    NoneBinds,
}

/// What a read asks of its box.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Needs {
    /// A statement alone.
    Reads,
    /// A statement with values. A box of before them leaves such a request alone, so it never runs
    /// without its values; the refusal here spares the person the pickup window.
    Params,
}

/// Reads what boxes say of themselves and judges `region` by it.
///
/// One box that can serve decides: then the read is asked for, whatever is known of the others. A
/// refusal needs all of them. The box seen last is looked at first, because a person who waits
/// should not wait longer for each box that another region has.
pub(crate) async fn judge(
    bucket: &Bucket,
    sightings: &Sightings,
    region: &Region,
    needs: Needs,
) -> Verdict {
    if sightings.holds(bucket, region, needs).await {
        return Verdict::Ask;
    }
    match gather(bucket, sightings, |found| found.answers(region, needs)).await {
        Ok(boxes) => decide(&boxes, region, needs),
        Err(gap) => {
            tracing::info!(%gap, "evidence about boxes is incomplete, the read is asked for");
            Verdict::Ask
        }
    }
}

/// One box that has both files, and what they say.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Serving {
    region: Region,
    capable: bool,
    binds: bool,
    fresh: bool,
}

impl Serving {
    fn answers(&self, region: &Region, needs: Needs) -> bool {
        let able = self.region == *region && self.capable && self.fresh;
        able && (needs == Needs::Reads || self.binds)
    }
}

/// A box that could serve each region when it was looked at, where there was one.
#[derive(Debug, Default)]
pub(crate) struct Sightings(Mutex<BTreeMap<Region, Sighting>>);

/// Which edges file said so: it never changes, so that only its being the newest is to be seen.
#[derive(Clone, Debug)]
struct Sighting {
    name: BoxName,
    edges: Revision,
    binds: bool,
}

impl Sightings {
    fn remember(&self, found: &Serving, name: BoxName, edges: Revision) {
        // Regions come from boxes, whose number is bounded, and not from requests.
        if found.capable && found.fresh {
            let sighting = Sighting { name, edges, binds: found.binds };
            self.regions().insert(found.region.clone(), sighting);
        }
    }

    /// Whether the box seen last lives and still says what it said: two reads at once.
    async fn holds(&self, bucket: &Bucket, region: &Region, needs: Needs) -> bool {
        let Some(seen) = self.regions().get(region).cloned() else { return false };
        if needs == Needs::Params && !seen.binds {
            return false;
        }
        let next = Key::Edges(seen.name.clone(), seen.edges.next()).to_path();
        let looks = futures::join!(status(bucket, &seen.name), bucket.get(&next, Purpose::Claim));
        let (Some(status), Ok(None)) = looks else { return false };
        status.edges_rev == seen.edges.number() && is_fresh(&status, bucket.context().now_unix())
    }

    fn regions(&self) -> MutexGuard<'_, BTreeMap<Region, Sighting>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Why the evidence is incomplete.
#[derive(Debug, thiserror::Error)]
enum Gap {
    #[error("{0} could not be listed")]
    Listing(&'static str),
    #[error("{0} is no key of a box")]
    ForeignKey(String),
    #[error("more boxes than are looked at")]
    TooMany,
    #[error("{0}: the status is missing or unreadable")]
    Status(BoxName),
    #[error("{0}: the edges file is missing or unreadable")]
    Edges(BoxName),
    #[error("{0}: the status names a later edges file than the one read")]
    Behind(BoxName),
}

fn decide(boxes: &[Serving], region: &Region, needs: Needs) -> Verdict {
    let mut capable =
        boxes.iter().filter(|found| found.region == *region && found.capable).peekable();
    if capable.peek().is_none() {
        return Verdict::NoneCapable;
    }
    let mut live = capable.filter(|found| found.fresh).peekable();
    if live.peek().is_none() {
        return Verdict::NoneLive;
    }
    match needs == Needs::Reads || live.any(|found| found.binds) {
        true => Verdict::Ask,
        false => Verdict::NoneBinds,
    }
}

/// Every box, or the boxes up to the first that is `enough`.
async fn gather(
    bucket: &Bucket,
    sightings: &Sightings,
    enough: impl Fn(&Serving) -> bool,
) -> Result<Vec<Serving>, Gap> {
    let (edges, status) = futures::join!(
        bucket.children(keys::EDGES, Purpose::Claim),
        bucket.list(keys::STATUS, None, Purpose::Claim),
    );
    let chains = boxes_of(edges.map_err(|_| Gap::Listing("edges files"))?)?;
    let mut names = chains.clone();
    for listed in status.map_err(|_| Gap::Listing("status snapshots"))? {
        let Ok(Key::Status(name)) = Key::parse(&listed.key) else {
            return Err(Gap::ForeignKey(listed.key));
        };
        names.insert(name);
    }
    if names.len() > MAX_BOXES {
        return Err(Gap::TooMany);
    }
    let looks = names.into_iter().map(|name| {
        let has_edges = chains.contains(&name);
        look(bucket, sightings, name, has_edges)
    });
    let mut looks = stream::iter(looks).buffer_unordered(BOXES_AT_ONCE);
    let mut boxes = Vec::new();
    while let Some(found) = looks.next().await {
        let Some(found) = found? else { continue };
        let last = enough(&found);
        boxes.push(found);
        if last {
            break;
        }
    }
    Ok(boxes)
}

/// The boxes that have an edges chain. What is in the chains is not listed: they grow with every
/// change of a box, for ever.
fn boxes_of(edges: Children) -> Result<BTreeSet<BoxName>, Gap> {
    if let Some(object) = edges.objects.into_iter().next() {
        return Err(Gap::ForeignKey(object.key));
    }
    let name = |folder: String| match folder.strip_prefix(keys::EDGES).map(BoxName::parse) {
        Some(Ok(name)) => Ok(name),
        _ => Err(Gap::ForeignKey(folder)),
    };
    edges.folders.into_iter().map(name).collect()
}

/// Reads one box's two files. `None`: a box that is gone and left only an old status.
async fn look(
    bucket: &Bucket,
    sightings: &Sightings,
    name: BoxName,
    has_edges: bool,
) -> Result<Option<Serving>, Gap> {
    let status = status(bucket, &name).await.ok_or_else(|| Gap::Status(name.clone()))?;
    let fresh = is_fresh(&status, bucket.context().now_unix());
    if !has_edges {
        return if fresh { Err(Gap::Edges(name)) } else { Ok(None) };
    }
    let (edges, head) = edges(bucket, &name, status.edges_rev).await?;
    let capable = edges.serves(DB_READ_CAPABILITY);
    let binds = edges.serves(DB_READ_PARAMS_CAPABILITY);
    let found = Serving { region: edges.region, capable, binds, fresh };
    sightings.remember(&found, name, head);
    Ok(Some(found))
}

async fn status(bucket: &Bucket, name: &BoxName) -> Option<Status> {
    let bytes = object(bucket, &Key::Status(name.clone())).await?;
    let status = Status::from_bytes(&bytes).ok()?;
    (status.box_name == *name && status.v == VERSION).then_some(status)
}

/// The newest edges file, from the one that the status names on. A box writes its edges before
/// its status, so there is one request for what comes after it, and it finds nothing.
async fn edges(bucket: &Bucket, name: &BoxName, named: u64) -> Result<(Edges, Revision), Gap> {
    let unreadable = || Gap::Edges(name.clone());
    let chain = Chain::new(bucket.clone(), keys::edges_chain(name), Principal::from(name));
    if let Some(named) = Revision::new(named) {
        match chain.resume(named, Purpose::Claim).await {
            Ok(true) => {}
            Ok(false) => return Err(Gap::Behind(name.clone())),
            Err(_) => return Err(unreadable()),
        }
    }
    let head = chain.head(Purpose::Claim).await.ok().flatten().ok_or_else(unreadable)?;
    let edges = Edges::from_bytes(&head.content).map_err(|_| unreadable())?;
    let own = edges.box_name == *name && edges.v == VERSION;
    if own { Ok((edges, head.revision)) } else { Err(unreadable()) }
}

async fn object(bucket: &Bucket, key: &Key) -> Option<Bytes> {
    bucket.get(&key.to_path(), Purpose::Claim).await.ok().flatten()
}

/// Neither too old nor from a future that no clock skew explains.
fn is_fresh(status: &Status, now_unix: u64) -> bool {
    status.time_unix.abs_diff(now_unix) <= limits::STATUS_FRESH.as_secs()
}
