//! The bucket as Location Store: descriptors in chains, one announcement a node and minute, a
//! serial as hint (decisions 1 to 7).

use std::collections::BTreeMap;

use async_trait::async_trait;
use bytes::Bytes;
use carlos_bucket::{Bucket, News as Hint, Outcome, Purpose, Serial, StoreClock};
use carlos_protocol::ids::Revision;
use carlos_protocol::mesh::{
    Descriptor, MeshKey, MeshName, NodeState, PeerSight, Presence, Rid, nodes_prefix,
    presence_prefix, serial_key,
};
use carlos_protocol::time::Seconds;
use futures::stream::{self, StreamExt};

use super::{Claim, LocationStore, MeshStore, News, StoreError, StorePace};

/// Descriptors read at once: a first list of a hundred nodes in a second, and no storm.
const READS_AT_ONCE: usize = 16;

/// A bucket in which the nodes of any number of meshes find each other.
#[derive(Clone, Debug)]
pub struct BucketStore {
    bucket: Bucket,
    clock: Option<StoreClock>,
    pace: StorePace,
    local: bool,
}

impl BucketStore {
    /// A bucket that other machines read, too. `clock` is the store's own (decision 6); without
    /// one, this machine's counts.
    pub fn new(bucket: Bucket, clock: Option<StoreClock>) -> Self {
        Self { bucket, clock, pace: StorePace::STANDARD, local: false }
    }

    /// A directory or memory store, which only this machine reads: loopback addresses are fine.
    #[must_use]
    pub fn local(self) -> Self {
        Self { local: true, ..self }
    }

    /// Another pace, for example [`StorePace::FRUGAL`].
    #[must_use]
    pub fn pace(self, pace: StorePace) -> Self {
        Self { pace, ..self }
    }
}

impl LocationStore for BucketStore {
    fn mesh(&self, mesh: &MeshName) -> Box<dyn MeshStore> {
        let serial = Serial::new(self.bucket.clone(), serial_key(mesh));
        Box::new(BucketMesh {
            bucket: self.bucket.clone(),
            clock: self.clock.clone(),
            mesh: mesh.clone(),
            serial,
            told: None,
            known: BTreeMap::new(),
        })
    }

    fn is_local(&self) -> bool {
        self.local
    }

    fn pace(&self) -> StorePace {
        self.pace
    }
}

struct BucketMesh {
    bucket: Bucket,
    clock: Option<StoreClock>,
    mesh: MeshName,
    serial: Serial,
    /// The newest revision of ours that the serial was moved for.
    told: Option<Revision>,
    /// Bodies of the last list.
    known: BTreeMap<(Rid, Revision), Descriptor>,
}

impl BucketMesh {
    /// Unix seconds by the store's clock, which writers and readers share.
    fn now(&self) -> u64 {
        let ahead = self.clock.as_ref().and_then(StoreClock::ahead).unwrap_or(0);
        self.bucket.context().now_unix().saturating_add_signed(-ahead)
    }

    async fn create(&self, key: &MeshKey, body: Vec<u8>) -> Result<Outcome, StoreError> {
        let outcome = self.bucket.create(&key.to_path(), Bytes::from(body), Purpose::Claim).await;
        match outcome {
            Outcome::Unknown(cause) => Err(StoreError(cause.to_string())),
            known => Ok(known),
        }
    }

    /// The newest announced revision of each node, in this minute and the last.
    async fn announced(&self) -> Result<BTreeMap<Rid, Revision>, StoreError> {
        let minute = self.now() / 60;
        let mut newest = BTreeMap::new();
        for minute in [minute.saturating_sub(1), minute] {
            let prefix = presence_prefix(&self.mesh, minute);
            let listed = self.bucket.list(&prefix, None, Purpose::Claim).await.map_err(failed)?;
            for entry in listed {
                if let Ok(MeshKey::Presence(_, _, rid, revision)) = MeshKey::parse(&entry.key) {
                    let known = newest.entry(rid).or_insert(revision);
                    *known = revision.max(*known);
                }
            }
        }
        Ok(newest)
    }

    /// One revision of a node; `None` for what is not there or no descriptor of that name: a
    /// foreign object must not hide the other nodes.
    async fn read(&self, rid: &Rid, revision: Revision) -> Result<Option<Descriptor>, StoreError> {
        let key = MeshKey::node(&self.mesh, rid, revision).to_path();
        let Some(body) = self.bucket.get(&key, Purpose::Claim).await.map_err(failed)? else {
            return Ok(None);
        };
        let node = Descriptor::from_bytes(&body)
            .ok()
            .filter(|node| node.mesh == self.mesh && node.rid == *rid && node.revision == revision);
        if node.is_none() {
            tracing::warn!(%key, "no descriptor of that name");
        }
        Ok(node)
    }

    async fn read_all(
        &self,
        newest: BTreeMap<Rid, Revision>,
    ) -> Result<Vec<Descriptor>, StoreError> {
        let reads = newest.into_iter().map(|named| async move {
            match self.known.get(&named) {
                Some(node) => Ok(Some(node.clone())),
                None => self.read(&named.0, named.1).await,
            }
        });
        let read: Vec<Result<Option<Descriptor>, StoreError>> =
            stream::iter(reads).buffered(READS_AT_ONCE).collect().await;
        read.into_iter().filter_map(Result::transpose).collect()
    }
}

#[async_trait]
impl MeshStore for BucketMesh {
    async fn claim(&mut self, descriptor: &Descriptor) -> Result<Claim, StoreError> {
        let key = MeshKey::node(&self.mesh, &descriptor.rid, descriptor.revision);
        let outcome = self.create(&key, descriptor.to_bytes()).await?;
        Ok(if outcome.is_ours() { Claim::Claimed } else { Claim::Taken })
    }

    async fn publish(&mut self, descriptor: &Descriptor) -> Result<(), StoreError> {
        let key = MeshKey::node(&self.mesh, &descriptor.rid, descriptor.revision);
        let outcome = self.create(&key, descriptor.to_bytes()).await?;
        if outcome.is_ours() {
            return Ok(());
        }
        Err(StoreError(format!("{} holds what this node did not write", key.to_path())))
    }

    async fn announce(
        &mut self,
        descriptor: &Descriptor,
        published: Revision,
        peers: &[PeerSight],
    ) -> Result<(), StoreError> {
        let now = self.now();
        let presence = Presence {
            v: 1,
            mesh: self.mesh.clone(),
            rid: descriptor.rid.clone(),
            generation: descriptor.generation,
            revision: published,
            at: Seconds::new(now),
            peers: peers.to_vec(),
        };
        let key = MeshKey::presence(&self.mesh, now / 60, &descriptor.rid, published);
        // Another body under this minute's name is an earlier announcement: as good.
        let _ = self.create(&key, presence.to_bytes()).await?;
        if self.told != Some(published) && self.serial.bump().await.is_ok() {
            self.told = Some(published);
        }
        Ok(())
    }

    async fn poll(&mut self) -> Result<News, StoreError> {
        match self.serial.poll().await.map_err(failed)? {
            Hint::Moved => Ok(News::Moved),
            Hint::Same => Ok(News::Same),
        }
    }

    async fn list(&mut self) -> Result<Vec<Descriptor>, StoreError> {
        let mut newest = self.announced().await?;
        // Somebody came or went meanwhile: once more, and then it counts (decision 7).
        if self.serial.poll().await.map_err(failed)? == Hint::Moved {
            newest = self.announced().await?;
        }
        let nodes = self.read_all(newest).await?;
        let entry = |node: &Descriptor| ((node.rid.clone(), node.revision), node.clone());
        self.known = nodes.iter().map(entry).collect();
        Ok(nodes.into_iter().filter(|node| node.state != NodeState::Stopped).collect())
    }

    async fn look_up(&mut self, rid: &Rid) -> Result<Option<Descriptor>, StoreError> {
        if !rid.is_key_safe() {
            return Ok(None);
        }
        let prefix = nodes_prefix(&self.mesh, rid);
        let listed = self.bucket.list(&prefix, None, Purpose::Claim).await.map_err(failed)?;
        let revision = listed.iter().filter_map(|entry| match MeshKey::parse(&entry.key) {
            Ok(MeshKey::Node(_, _, revision)) => Some(revision),
            _ => None,
        });
        match revision.max() {
            Some(revision) => self.read(rid, revision).await,
            None => Ok(None),
        }
    }
}

fn failed(error: carlos_bucket::ReadError) -> StoreError {
    StoreError(error.to_string())
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::time::Duration;

    use carlos_bucket::Context;
    use object_store::memory::InMemory;

    use super::*;
    use crate::core::testing::{descriptor, weighted};

    const MINUTE: Duration = Duration::from_secs(60);

    fn mesh(store: &Arc<InMemory>, ctx: &Context) -> Box<dyn MeshStore> {
        let bucket = Bucket::new(Arc::clone(store) as Arc<_>, ctx.clone());
        BucketStore::new(bucket, None).mesh(&descriptor("a").mesh)
    }

    async fn join(mesh: &mut dyn MeshStore, node: &Descriptor) {
        assert_eq!(mesh.claim(node).await, Ok(Claim::Claimed));
        mesh.announce(node, node.revision, &[]).await.expect("a healthy store");
    }

    fn names(listing: &[Descriptor]) -> Vec<String> {
        listing.iter().map(|node| node.rid.to_string()).collect()
    }

    #[tokio::test(start_paused = true)]
    async fn a_routing_id_is_claimed_once() {
        let (store, ctx) = (Arc::new(InMemory::new()), Context::simulated(1, 1_800_000_000_000));
        let (mut one, mut two) = (mesh(&store, &ctx), mesh(&store, &ctx));
        assert_eq!(one.claim(&descriptor("a")).await, Ok(Claim::Claimed));
        assert_eq!(one.claim(&descriptor("a")).await, Ok(Claim::Claimed), "the same bytes again");
        assert_eq!(two.claim(&weighted("a", 7, 1)).await, Ok(Claim::Taken));
    }

    #[tokio::test(start_paused = true)]
    async fn a_node_is_listed_while_it_is_announced() {
        let (store, ctx) = (Arc::new(InMemory::new()), Context::simulated(1, 1_800_000_000_000));
        let (mut one, mut two) = (mesh(&store, &ctx), mesh(&store, &ctx));
        assert_eq!(two.poll().await, Ok(News::Same));
        join(one.as_mut(), &descriptor("a")).await;
        assert_eq!(two.poll().await, Ok(News::Moved));
        join(two.as_mut(), &descriptor("b")).await;
        assert_eq!(two.list().await.map(|list| names(&list)), Ok(vec!["a".into(), "b".into()]));
        let newer = weighted("a", 5, 4);
        one.publish(&newer).await.expect("a healthy store");
        one.announce(&newer, newer.revision, &[]).await.expect("a healthy store");
        assert_eq!(two.list().await.expect("a healthy store")[0], newer, "holes are legal");
        ctx.sleep(2 * MINUTE).await;
        two.announce(&descriptor("b"), Revision::FIRST, &[]).await.expect("a healthy store");
        assert_eq!(two.list().await.map(|list| names(&list)), Ok(vec!["b".into()]));
        assert_eq!(two.look_up(&newer.rid).await, Ok(Some(newer)), "it is not forgotten");
    }

    #[tokio::test(start_paused = true)]
    async fn foreign_objects_hide_nobody() {
        let (store, ctx) = (Arc::new(InMemory::new()), Context::simulated(1, 1_800_000_000_000));
        let mut one = mesh(&store, &ctx);
        join(one.as_mut(), &descriptor("a")).await;
        let bucket = Bucket::new(Arc::clone(&store) as Arc<_>, ctx.clone());
        let mesh = descriptor("a").mesh;
        let rid: Rid = "z".parse().expect("an id");
        for key in [
            MeshKey::presence(&mesh, 30_000_000, &rid, Revision::FIRST).to_path(),
            MeshKey::node(&mesh, &rid, Revision::FIRST).to_path(),
            format!("{}garbage", presence_prefix(&mesh, 30_000_000)),
        ] {
            assert!(bucket.create(&key, "x".into(), Purpose::Claim).await.is_ours());
        }
        assert_eq!(one.list().await.map(|list| names(&list)), Ok(vec!["a".into()]));
        assert_eq!(one.look_up(&rid).await, Ok(None));
    }
}
