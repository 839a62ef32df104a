//! What these keys can do beside what they are for. Nothing is changed: it reads and lists, and
//! creates only below `probe/`, where everything goes within a day.

use carlos_bucket::layer::Inner;
use carlos_bucket::{Bucket, Cause, Context, Outcome, Purpose};
use carlos_protocol::ids::{ReadId, Region};
use carlos_protocol::keys::{Key, QueueEntry};
use carlos_protocol::time::{Day, Seconds};
use futures::TryStreamExt as _;
use object_store::path::Path;
use object_store::{Error, ObjectMeta, ObjectStoreExt as _};

use super::Patient;
use super::finding::Finding;
use crate::admin::grants::{Act, Place, Right, Role};

/// A name that nobody has: its objects are another principal's, and are not there.
const SOMEBODY_ELSE: &str = "nobody-of-this-name";

/// How a request ended.
#[derive(Clone, Debug, PartialEq, Eq)]
enum End {
    /// It was done.
    Done,
    /// Nothing was there, which these keys were told.
    Absent,
    /// It was refused.
    Refused,
    /// There was no answer, or one of no use.
    Unclear(String),
}

/// Whether the keys' rights are those of their role, no more and no less.
pub(super) async fn rights(patient: &Patient) -> Vec<Finding> {
    let mut found = Vec::new();
    if patient.holder.role != Role::Operator {
        found.extend(own_bucket(patient).await);
    }
    for (region, data) in &patient.data {
        found.extend(data_bucket(patient, region, data).await);
    }
    let tried = patient.holder.role != Role::Operator || !patient.data.is_empty();
    if found.is_empty() && tried {
        let said = format!("these keys can do what {} may, and no more.", patient.holder.name);
        found.push(Finding::new("reach-ok", "", said));
    }
    found
}

async fn own_bucket(patient: &Patient) -> Vec<Finding> {
    let rights: Vec<Right> = patient.holder.rights();
    let may = |key: &str| {
        let reads = rights.iter().filter(|right| right.act == Act::Read);
        reads.filter(|right| right.place == Place::Deployment).any(|right| right.covers(key))
    };
    let mut found = Vec::new();
    let mut named = Vec::new();
    for key in samples(patient.bucket.context()).into_iter().chain(own_samples(&rights)) {
        let end = read(&patient.bucket, &key).await;
        match (may(&key), end) {
            (true, End::Done | End::Absent) | (false, End::Refused) => {}
            (true, End::Refused) => found.push(too_short("read", &key)),
            (false, End::Done) => found.push(too_far("read", &key)),
            (false, End::Absent) => match one_below(patient.bucket.store(), &key).await {
                Some(there) if !may(&there) => match read(&patient.bucket, &there).await {
                    End::Done => found.push(too_far("read", &there)),
                    _ => named.push(top(&key)),
                },
                _ => named.push(top(&key)),
            },
            (_, End::Unclear(said)) => found.push(unclear(&key, &said)),
        }
    }
    named.dedup();
    if !named.is_empty() {
        let said = "these keys are told which names are there, without a right to the objects.";
        found.push(Finding::new("reach-names", named.join(", "), said));
    }
    found.extend(another_s_probe(patient).await);
    found
}

/// Creates where only somebody else may: the one forbidden write that can be tried without harm.
async fn another_s_probe(patient: &Patient) -> Option<Finding> {
    let key = format!("probe/{SOMEBODY_ELSE}/{}", patient.bucket.context().ulid());
    match patient.bucket.create(&key, "tried by the doctor".into(), Purpose::Claim).await {
        Outcome::Created | Outcome::AlreadyMine | Outcome::TakenBy(_) => {
            Some(too_far("create", &format!("probe/{SOMEBODY_ELSE}/")))
        }
        Outcome::Unknown(Cause::Denied(_)) => None,
        Outcome::Unknown(cause) => Some(unclear(&key, &cause.to_string())),
    }
}

/// db-forward §5.3, J5: nobody reads another region's bucket.
async fn data_bucket(patient: &Patient, region: &Region, data: &Bucket) -> Vec<Finding> {
    let may = match &patient.holder.role {
        Role::Console(own) | Role::Agent(own) => own == region,
        // An operator's rights on data are granted apart, or not at all.
        Role::Operator => return Vec::new(),
        Role::MeshNode(_) | Role::Router(_) => false,
    };
    let place = format!("data bucket of {region}");
    let listed = listing(data).await;
    let key = format!("{SOMEBODY_ELSE}/{}", data.context().ulid());
    let got = read(data, &key).await;
    let judge = |act: &str, end: End| match (may, end) {
        (true, End::Done | End::Absent) | (false, End::Refused) => None,
        (true, End::Refused) => Some(too_short(act, &place)),
        // A name that is free and said to be: whoever may not read is refused that too.
        (false, End::Done | End::Absent) => Some(too_far(act, &place)),
        (_, End::Unclear(said)) => Some(unclear(&place, &said)),
    };
    [judge("list", listed), judge("read", got)].into_iter().flatten().collect()
}

fn too_far(act: &str, what: &str) -> Finding {
    Finding::new("reach-too-far", what, format!("these keys can {act} it, and must not."))
}

fn too_short(act: &str, what: &str) -> Finding {
    Finding::new("reach-too-short", what, format!("these keys cannot {act} it, and have to."))
}

fn unclear(what: &str, said: &str) -> Finding {
    Finding::new("reach-could-not-tell", what, format!("{said}."))
}

async fn read(bucket: &Bucket, key: &str) -> End {
    let path = Path::from(key);
    // Not more than the answer's beginning: an object may be large and is not of interest.
    let got = bucket.store().get(&path);
    within(bucket, async { got.await.map(drop) }).await
}

async fn listing(bucket: &Bucket) -> End {
    let mut listed = bucket.store().list(None);
    within(bucket, async { listed.try_next().await.map(drop) }).await
}

async fn within(bucket: &Bucket, request: impl Future<Output = Result<(), Error>>) -> End {
    match bucket.context().timeout(Purpose::Claim.allowed(), request).await {
        Err(_) => End::Unclear("no answer in time".into()),
        Ok(Ok(())) => End::Done,
        Ok(Err(Error::NotFound { .. })) => End::Absent,
        Ok(Err(Error::PermissionDenied { .. } | Error::Unauthenticated { .. })) => End::Refused,
        Ok(Err(error)) => End::Unclear(error.to_string()),
    }
}

/// An object that is there, under the same top-level prefix, if these keys are shown one.
async fn one_below(store: &Inner, key: &str) -> Option<String> {
    let prefix = top(key);
    // Without a prefix of its own: a server that compares it would refuse, and has done so.
    let mut listed = store.list_with_offset(None, &Path::from(prefix.as_str()));
    let meta: ObjectMeta = listed.try_next().await.ok()??;
    let found = meta.location.to_string();
    found.starts_with(&prefix).then_some(found)
}

/// `control/edges/` of `control/edges/box/1`, and `hosts/` of `hosts/x/1`.
fn top(key: &str) -> String {
    let parts = if key.starts_with("control/") { 2 } else { 1 };
    key.split_inclusive('/').take(parts).collect()
}

/// A name within each right to read, which is free as well.
fn own_samples(rights: &[Right]) -> impl Iterator<Item = String> {
    let own = rights.iter().filter(|one| one.place == Place::Deployment && one.act == Act::Read);
    own.map(|right| right.keys.replace('*', SOMEBODY_ELSE))
}

/// A name of every kind, which nobody has.
fn samples(ctx: &Context) -> Vec<String> {
    let (ulid, now) = (ctx.ulid(), Seconds::new(ctx.now_unix()));
    let first = carlos_protocol::ids::Revision::FIRST;
    let id = ReadId::mint(&mut ctx.entropy());
    let account = || SOMEBODY_ELSE.parse().expect("a label");
    let host = || format!("{SOMEBODY_ELSE}.invalid").parse().expect("a host");
    let name = || SOMEBODY_ELSE.parse().expect("a label");
    let region = || SOMEBODY_ELSE.parse().expect("a label");
    let keys = [
        Key::Account(account(), first),
        Key::Activity(account(), Day::of(now.unix()), ulid),
        Key::App(account(), SOMEBODY_ELSE.parse().expect("a label"), host()),
        Key::Edges(name(), first),
        Key::Serial(region()),
        Key::Status(name()),
        Key::Request(id),
        Key::Queue(QueueEntry { region: region(), issued_at: now, id }),
        Key::Host(host(), first),
        Key::Probe(SOMEBODY_ELSE.parse().expect("a label"), ulid),
    ];
    let others = ["mesh/nodes/", "presence/mesh/", "router/"]
        .map(|prefix| format!("{prefix}{SOMEBODY_ELSE}/{SOMEBODY_ELSE}/{first}"));
    keys.iter().map(Key::to_path).chain(others).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_kind_of_name_is_tried() {
        let samples = samples(&Context::system());
        let tops: Vec<_> = samples.iter().map(|key| top(key)).collect();
        for prefix in ["accounts/", "activity/", "apps/", "control/edges/", "control/serial/"] {
            assert!(tops.iter().any(|top| top == prefix), "{prefix}");
        }
        for prefix in ["control/status/", "db-reads/", "hosts/", "mesh/", "probe/", "router/"] {
            assert!(tops.iter().any(|top| top == prefix), "{prefix}");
        }
    }
}
