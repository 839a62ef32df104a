//! The region's data bucket, narrowed to reading one instance's replica (db-forward §8.2).

pub(crate) mod timed;

use std::sync::Arc;

use carlos_bucket::{Counted, Counters};
use carlos_protocol::ids::Host;
use carlos_replica::store::BadPrefix;
use carlos_replica::{Layout, ReplicaReader, Resolution, StoreReplica};
use object_store::ObjectStore;

/// Gives the replica of a host. Nothing of a request but the host, which two checks have held
/// against the record, chooses what is read.
pub trait Replicas: Send + Sync {
    /// # Errors
    /// [`BadPrefix`] when the configured prefix and the host make no usable one.
    fn replica(&self, host: &Host) -> Result<Box<dyn ReplicaReader>, BadPrefix>;

    /// The requests that this took, where they are counted.
    fn requests(&self) -> Option<&Counters> {
        None
    }
}

/// Replicas under `<prefix>/<host>` of one store.
#[derive(Clone, Debug)]
pub struct StoreReplicas {
    store: Counted,
    prefix: String,
    layout: Layout,
    resolution: Resolution,
}

impl StoreReplicas {
    /// `prefix` is the box's own (`CARLOS_HIBERNATE_PREFIX`), empty for the store's root;
    /// `resolution` is how exact the store's listing times are.
    pub fn new(store: Arc<dyn ObjectStore>, prefix: &str, resolution: Resolution) -> Self {
        let store = Counted::new(store);
        Self { store, prefix: prefix.to_owned(), layout: Layout::Auto, resolution }
    }
}

impl Replicas for StoreReplicas {
    fn replica(&self, host: &Host) -> Result<Box<dyn ReplicaReader>, BadPrefix> {
        let prefix = format!("{}/{host}", self.prefix);
        let store = Arc::new(self.store.clone());
        let replica = StoreReplica::new(store, &prefix, self.layout, self.resolution)?;
        Ok(Box::new(replica))
    }

    fn requests(&self) -> Option<&Counters> {
        Some(self.store.counters())
    }
}
