//! A store within one process: for tests, examples and nodes that never leave it.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use async_trait::async_trait;
use carlos_protocol::ids::Revision;
use carlos_protocol::mesh::{Descriptor, MeshName, NodeState, PeerSight, Rid};

use super::{Claim, LocationStore, MeshStore, News, StoreError, StorePace};

/// Nodes that share a clone of this store find each other. A node that vanishes without a stop
/// stays listed: within one process the process itself is the lease.
#[derive(Clone, Debug, Default)]
pub struct MemoryStore {
    meshes: Arc<Mutex<BTreeMap<MeshName, Mesh>>>,
}

#[derive(Debug, Default)]
struct Mesh {
    nodes: BTreeMap<Rid, Node>,
    serial: u64,
}

#[derive(Debug)]
struct Node {
    descriptor: Descriptor,
    announced: bool,
}

impl MemoryStore {
    /// A store that nobody else sees.
    pub fn new() -> Self {
        Self::default()
    }
}

impl LocationStore for MemoryStore {
    fn mesh(&self, mesh: &MeshName) -> Box<dyn MeshStore> {
        let meshes = Arc::clone(&self.meshes);
        Box::new(Shared { meshes, mesh: mesh.clone(), seen: 0 })
    }

    fn is_local(&self) -> bool {
        true
    }

    /// A look costs nothing here.
    fn pace(&self) -> StorePace {
        let quick = Duration::from_millis(50);
        StorePace { idle: quick, active: quick, ..StorePace::STANDARD }
    }
}

struct Shared {
    meshes: Arc<Mutex<BTreeMap<MeshName, Mesh>>>,
    mesh: MeshName,
    seen: u64,
}

impl Shared {
    fn with<T>(&self, work: impl FnOnce(&mut Mesh) -> T) -> T {
        let mut meshes: MutexGuard<'_, _> =
            self.meshes.lock().unwrap_or_else(PoisonError::into_inner);
        work(meshes.entry(self.mesh.clone()).or_default())
    }
}

#[async_trait]
impl MeshStore for Shared {
    async fn claim(&mut self, descriptor: &Descriptor) -> Result<Claim, StoreError> {
        Ok(self.with(|mesh| match mesh.nodes.get(&descriptor.rid) {
            Some(node) if node.descriptor != *descriptor => Claim::Taken,
            _ => {
                let node = Node { descriptor: descriptor.clone(), announced: false };
                mesh.nodes.insert(descriptor.rid.clone(), node);
                Claim::Claimed
            }
        }))
    }

    async fn publish(&mut self, descriptor: &Descriptor) -> Result<(), StoreError> {
        self.with(|mesh| {
            let Some(node) = mesh.nodes.get_mut(&descriptor.rid) else {
                return Err(StoreError("published before it was claimed".into()));
            };
            if descriptor.revision > node.descriptor.revision {
                node.descriptor = descriptor.clone();
            }
            Ok(())
        })
    }

    async fn announce(
        &mut self,
        descriptor: &Descriptor,
        _published: Revision,
        _peers: &[PeerSight],
    ) -> Result<(), StoreError> {
        self.with(|mesh| {
            if let Some(node) = mesh.nodes.get_mut(&descriptor.rid) {
                node.announced = true;
            }
            mesh.serial += 1;
        });
        Ok(())
    }

    async fn poll(&mut self) -> Result<News, StoreError> {
        let serial = self.with(|mesh| mesh.serial);
        let moved = serial != self.seen;
        self.seen = serial;
        Ok(if moved { News::Moved } else { News::Same })
    }

    async fn list(&mut self) -> Result<Vec<Descriptor>, StoreError> {
        Ok(self.with(|mesh| {
            let living = mesh
                .nodes
                .values()
                .filter(|node| node.announced && node.descriptor.state != NodeState::Stopped);
            living.map(|node| node.descriptor.clone()).collect()
        }))
    }

    async fn look_up(&mut self, rid: &Rid) -> Result<Option<Descriptor>, StoreError> {
        Ok(self.with(|mesh| mesh.nodes.get(rid).map(|node| node.descriptor.clone())))
    }
}
