//! Whether anybody could serve a read: refused up front only on complete evidence (db-forward
//! §7.1).

use std::collections::{BTreeMap, BTreeSet};

use bytes::Bytes;
use carlos_bucket::{Bucket, Purpose};
use carlos_protocol::{
    ids::{BoxName, Region, Revision},
    keys::{self, Key},
    limits,
    records::{ChainEntry, DB_READ_CAPABILITY, DB_READ_PARAMS_CAPABILITY, Edges, Status, VERSION},
};
use futures::{StreamExt, stream};

/// Boxes looked at for one answer. A deployment with more gets no refusal up front, which costs a
/// person two minutes and never an answer.
const MAX_BOXES: usize = 1_024;

/// Boxes read at once: a region's worth in one round trip, without a burst.
const BOXES_AT_ONCE: usize = 16;

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

/// Reads what every box says of itself and judges `region` by it.
pub(crate) async fn judge(bucket: &Bucket, region: &Region, needs: Needs) -> Verdict {
    match gather(bucket).await {
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

async fn gather(bucket: &Bucket) -> Result<Vec<Serving>, Gap> {
    let (edges, status) = futures::join!(
        bucket.list(keys::EDGES, None, Purpose::Claim),
        bucket.list(keys::STATUS, None, Purpose::Claim),
    );
    let mut heads = BTreeMap::new();
    let mut names = BTreeSet::new();
    for listed in edges.map_err(|_| Gap::Listing("edges files"))? {
        let Ok(Key::Edges(name, revision)) = Key::parse(&listed.key) else {
            return Err(Gap::ForeignKey(listed.key));
        };
        names.insert(name.clone());
        heads.insert(name, revision); // sorted: the last of a box is its highest
    }
    for listed in status.map_err(|_| Gap::Listing("status snapshots"))? {
        let Ok(Key::Status(name)) = Key::parse(&listed.key) else {
            return Err(Gap::ForeignKey(listed.key));
        };
        names.insert(name);
    }
    if names.len() > MAX_BOXES {
        return Err(Gap::TooMany);
    }
    read_all(bucket, names, &heads).await
}

async fn read_all(
    bucket: &Bucket,
    names: BTreeSet<BoxName>,
    heads: &BTreeMap<BoxName, Revision>,
) -> Result<Vec<Serving>, Gap> {
    let looks = names.into_iter().map(|name| {
        let head = heads.get(&name).copied();
        look(bucket, name, head)
    });
    let mut looks = stream::iter(looks).buffered(BOXES_AT_ONCE);
    let mut boxes = Vec::new();
    while let Some(found) = looks.next().await {
        boxes.extend(found?);
    }
    Ok(boxes)
}

/// Reads one box's two files. `None`: a box that is gone and left only an old status.
async fn look(
    bucket: &Bucket,
    name: BoxName,
    head: Option<Revision>,
) -> Result<Option<Serving>, Gap> {
    let status = status(bucket, &name).await.ok_or_else(|| Gap::Status(name.clone()))?;
    let fresh = is_fresh(&status, bucket.context().now_unix());
    let Some(head) = head else {
        return if fresh { Err(Gap::Edges(name)) } else { Ok(None) };
    };
    if status.edges_rev > head.number() {
        return Err(Gap::Behind(name));
    }
    let edges = edges(bucket, &name, head).await.ok_or_else(|| Gap::Edges(name.clone()))?;
    let capable = edges.serves(DB_READ_CAPABILITY);
    let binds = edges.serves(DB_READ_PARAMS_CAPABILITY);
    Ok(Some(Serving { region: edges.region, capable, binds, fresh }))
}

async fn status(bucket: &Bucket, name: &BoxName) -> Option<Status> {
    let bytes = object(bucket, &Key::Status(name.clone())).await?;
    let status = Status::from_bytes(&bytes).ok()?;
    (status.box_name == *name && status.v == VERSION).then_some(status)
}

async fn edges(bucket: &Bucket, name: &BoxName, head: Revision) -> Option<Edges> {
    let bytes = object(bucket, &Key::Edges(name.clone(), head)).await?;
    let edges = Edges::from_bytes(ChainEntry::from_bytes(&bytes).ok()?.content()).ok()?;
    (edges.box_name == *name && edges.v == VERSION).then_some(edges)
}

async fn object(bucket: &Bucket, key: &Key) -> Option<Bytes> {
    bucket.get(&key.to_path(), Purpose::Claim).await.ok().flatten()
}

/// Neither too old nor from a future that no clock skew explains.
fn is_fresh(status: &Status, now_unix: u64) -> bool {
    status.time_unix.abs_diff(now_unix) <= limits::STATUS_FRESH.as_secs()
}
