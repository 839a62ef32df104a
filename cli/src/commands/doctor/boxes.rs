//! The boxes by what they say of themselves, and the regions that need one (db-forward §7.1).

use std::collections::{BTreeMap, BTreeSet};

use carlos_bucket::{Bucket, Chain, Purpose, ReadError};
use carlos_protocol::ids::{BoxName, Host, Region};
use carlos_protocol::keys::{self, Key};
use carlos_protocol::limits::STATUS_FRESH;
use carlos_protocol::records::{
    self, DB_READ_CAPABILITY, DB_READ_PARAMS_CAPABILITY, Edges, HostRecord, Status, VERSION,
};
use futures::{StreamExt as _, stream};

use super::Patient;
use super::finding::Finding;

/// Boxes and hosts read at once: enough for a quick look, no burst.
const AT_ONCE: usize = 16;

/// Instances whose region is looked up; a larger deployment has some of each region among them.
const HOSTS: usize = 256;

/// One box's two files.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Seen {
    name: BoxName,
    edges: File<Edges>,
    status: File<Status>,
}

/// What is there of a file.
#[derive(Clone, Debug, PartialEq, Eq)]
enum File<T> {
    Absent,
    Unreadable,
    There(T),
}

/// What the records and pulses of the deployment say.
pub(super) struct Deployment {
    boxes: Vec<Seen>,
    hosts: BTreeMap<Region, usize>,
}

impl Deployment {
    /// Every region that has a box or an instance.
    pub(super) fn regions(&self) -> BTreeSet<Region> {
        let of_boxes = self.boxes.iter().filter_map(|seen| match &seen.edges {
            File::There(edges) => Some(edges.region.clone()),
            _ => None,
        });
        of_boxes.chain(self.hosts.keys().cloned()).collect()
    }
}

/// Reads every box and the regions of instances.
pub(super) async fn gather(patient: &Patient) -> Result<Deployment, ReadError> {
    let bucket = &patient.bucket;
    let mut names = BTreeSet::new();
    for prefix in [keys::EDGES, keys::STATUS] {
        names.extend(bucket.children(prefix, Purpose::Sweep).await?.names::<BoxName>(prefix));
    }
    let looks = names.into_iter().map(|name| look(patient, name));
    let boxes = stream::iter(looks).buffered(AT_ONCE).collect().await;
    Ok(Deployment { boxes, hosts: hosts(patient).await? })
}

async fn look(patient: &Patient, name: BoxName) -> Seen {
    let edges = head(patient, &keys::edges_chain(&name)).await;
    let status =
        match patient.bucket.get(&Key::Status(name.clone()).to_path(), Purpose::Claim).await {
            Ok(None) => File::Absent,
            Ok(Some(bytes)) => match Status::from_bytes(&bytes) {
                Ok(status) if status.v == VERSION && status.box_name == name => File::There(status),
                _ => File::Unreadable,
            },
            Err(_) => File::Unreadable,
        };
    let edges = match edges {
        File::There(edges) => match Edges::from_bytes(&edges) {
            Ok(edges) if edges.v == VERSION && edges.box_name == name => File::There(edges),
            _ => File::Unreadable,
        },
        File::Absent => File::Absent,
        File::Unreadable => File::Unreadable,
    };
    Seen { name, edges, status }
}

/// The content of a chain's head.
async fn head(patient: &Patient, chain: &str) -> File<bytes::Bytes> {
    let chain = Chain::new(patient.bucket.clone(), chain, patient.holder.name.clone());
    match chain.head(Purpose::Claim).await {
        Ok(Some(head)) => File::There(head.content),
        Ok(None) => File::Absent,
        Err(_) => File::Unreadable,
    }
}

/// How many live instances each region has, of the first [`HOSTS`].
async fn hosts(patient: &Patient) -> Result<BTreeMap<Region, usize>, ReadError> {
    let children = patient.bucket.children(keys::HOSTS, Purpose::Sweep).await?;
    let names: Vec<Host> = children.names(keys::HOSTS).take(HOSTS).collect();
    let looks = names.into_iter().map(|host| async move {
        match head(patient, &keys::host_chain(&host)).await {
            File::There(bytes) => records::decode::<HostRecord>(&bytes).ok(),
            _ => None,
        }
    });
    let mut regions = BTreeMap::new();
    let mut looks = stream::iter(looks).buffered(AT_ONCE);
    while let Some(record) = looks.next().await {
        if let Some(record) = record.filter(|record| !record.deleted) {
            *regions.entry(record.region).or_default() += 1;
        }
    }
    Ok(regions)
}

/// What is wrong with the boxes, at this time.
pub(super) fn judge(deployment: &Deployment, bucket: &Bucket) -> Vec<Finding> {
    let now = bucket.context().now_unix();
    let mut found: Vec<Finding> =
        deployment.boxes.iter().filter_map(|seen| judge_box(seen, now)).collect();
    for (region, count) in &deployment.hosts {
        if !deployment.boxes.iter().any(|seen| serves(seen, region, now)) {
            let said = format!("{count} instances, and no live box that reads them.");
            found.push(Finding::new("region-not-served", region, said));
        }
    }
    if found.is_empty() {
        let said = match deployment.boxes.len() {
            0 => "no box is known, and no instance that needs one.".to_owned(),
            count => format!("all {count} boxes live and serve."),
        };
        found.push(Finding::new("boxes-ok", "", said));
    }
    found
}

fn serves(seen: &Seen, region: &Region, now: u64) -> bool {
    let (File::There(edges), File::There(status)) = (&seen.edges, &seen.status) else {
        return false;
    };
    edges.region == *region && edges.serves(DB_READ_CAPABILITY) && is_fresh(status, now)
}

fn is_fresh(status: &Status, now: u64) -> bool {
    status.time_unix.abs_diff(now) <= STATUS_FRESH.as_secs()
}

fn judge_box(seen: &Seen, now: u64) -> Option<Finding> {
    let finding = |code, said: String| Some(Finding::new(code, &seen.name, said));
    let (edges, status) = match (&seen.edges, &seen.status) {
        (File::Unreadable, _) | (_, File::Unreadable) => {
            return finding("box-unreadable", "its files are not of this version.".into());
        }
        (_, File::Absent) => return finding("box-not-seen", "it has never run.".into()),
        (File::Absent, File::There(_)) => {
            let said = "it has a pulse and no edges file: it was removed, or runs as another box.";
            return finding("box-unreadable", said.into());
        }
        (File::There(edges), File::There(status)) => (edges, status),
    };
    if !is_fresh(status, now) {
        let said = match now.checked_sub(status.time_unix) {
            Some(age) => format!("its last pulse is {age} s old; it comes every minute."),
            None => format!("its pulse is from {} s ahead of now.", status.time_unix - now),
        };
        return finding("box-stale", said);
    }
    if edges.draining {
        return finding("box-not-serving", "it drains: it takes no new reads.".into());
    }
    if !edges.serves(DB_READ_CAPABILITY) {
        let said = "it lives and offers no reads: its log says why.";
        return finding("box-not-serving", said.into());
    }
    (!edges.serves(DB_READ_PARAMS_CAPABILITY)).then(|| {
        let said = "its version takes no values for parameters: queries with --param fail there.";
        Finding::new("box-not-serving", &seen.name, said)
    })
}

#[cfg(test)]
mod tests {
    use carlos_protocol::ids::Capability;

    use super::*;

    const NOW: u64 = 1_790_000_000;

    fn capable(names: &[&str]) -> Vec<Capability> {
        names.iter().map(|name| Capability::parse(name).expect("a label")).collect()
    }

    fn seen(age: u64, capabilities: &[&str], draining: bool) -> Seen {
        let (name, region): (BoxName, Region) =
            ("box-uk".parse().expect("a label"), "uk".parse().expect("a label"));
        let (v, capabilities) = (VERSION, capable(capabilities));
        let edges = Edges {
            v,
            box_name: name.clone(),
            region: region.clone(),
            capabilities: capabilities.clone(),
            draining,
        };
        let time_unix = NOW - age;
        let status = Status {
            v,
            box_name: name.clone(),
            time_unix,
            edges_rev: 1,
            region,
            capabilities,
            draining,
        };
        Seen { name, edges: File::There(edges), status: File::There(status) }
    }

    const BOTH: [&str; 2] = [DB_READ_CAPABILITY, DB_READ_PARAMS_CAPABILITY];

    fn code(seen: &Seen) -> Option<&'static str> {
        judge_box(seen, NOW).map(|finding| finding.code)
    }

    #[test]
    fn a_box_is_judged_by_its_two_files() {
        assert_eq!(code(&seen(10, &BOTH, false)), None);
        assert_eq!(code(&seen(151, &BOTH, false)), Some("box-stale"));
        assert_eq!(code(&seen(10, &BOTH, true)), Some("box-not-serving"));
        assert_eq!(code(&seen(10, &[], false)), Some("box-not-serving"));
        assert_eq!(code(&seen(10, &BOTH[..1], false)), Some("box-not-serving"));
        let never = Seen { status: File::Absent, ..seen(10, &BOTH, false) };
        assert_eq!(code(&never), Some("box-not-seen"));
        let other = Seen { status: File::Unreadable, ..seen(10, &BOTH, false) };
        assert_eq!(code(&other), Some("box-unreadable"));
        let removed = Seen { edges: File::Absent, ..seen(10, &BOTH, false) };
        assert_eq!(code(&removed), Some("box-unreadable"));
    }

    #[test]
    fn a_region_with_instances_needs_a_live_box() {
        let uk: Region = "uk".parse().expect("a label");
        assert!(serves(&seen(10, &BOTH, false), &uk, NOW));
        for without in [seen(200, &BOTH, false), seen(10, &BOTH, true), seen(10, &[], false)] {
            assert!(!serves(&without, &uk, NOW));
        }
        assert!(!serves(&seen(10, &BOTH, false), &"ie".parse().expect("a label"), NOW));
    }
}
