//! What the agent reaches the world through. Tests put real parts or scripted ones here; nothing
//! of an agent is global, so several run in one process.

use std::sync::Arc;

use carlos_bucket::Bucket;

use crate::crash::{CrashHook, NoCrash};
use crate::disk::DiskSpace;
use crate::replicas::Replicas;
use crate::worker::WorkerHost;

/// The agent's ports.
#[derive(Clone)]
pub struct Ports {
    /// The deployment bucket, with this process's clock and randomness.
    pub bucket: Bucket,
    /// The region's data bucket, narrowed to reading replicas. `None` when hibernation is not
    /// configured: the box then serves no reads (db-forward §7.1).
    pub replicas: Option<Arc<dyn Replicas>>,
    pub workers: Arc<dyn WorkerHost>,
    /// The file system that holds the workers' scratch.
    pub disk: Arc<dyn DiskSpace>,
    pub crash: Arc<dyn CrashHook>,
}

impl Ports {
    /// Ports without a crash hook.
    pub fn new(
        bucket: Bucket,
        replicas: Option<Arc<dyn Replicas>>,
        workers: Arc<dyn WorkerHost>,
        disk: Arc<dyn DiskSpace>,
    ) -> Self {
        Self { bucket, replicas, workers, disk, crash: Arc::new(NoCrash) }
    }
}
