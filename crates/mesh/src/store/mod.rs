//! The Location Store: where nodes find each other's descriptors (decisions 1 to 8).

use std::time::Duration;

use async_trait::async_trait;
use carlos_protocol::ids::Revision;
use carlos_protocol::mesh::{Descriptor, MeshName, PeerSight, Rid};
use thiserror::Error;

mod bucket;
mod memory;

pub use bucket::BucketStore;
pub use memory::MemoryStore;

/// The store gave no answer. Nothing follows from it: neither presence nor absence.
#[derive(Clone, Debug, Eq, Error, PartialEq)]
#[error("the location store: {0}")]
pub struct StoreError(pub String);

/// How a claim of a routing ID ended.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Claim {
    /// The routing ID is ours.
    Claimed,
    /// Another node has it: start-up ends, no second id is tried.
    Taken,
}

/// What a look at the serial says.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum News {
    /// Something was announced since the last look.
    Moved,
    /// Nothing, as far as the hint goes.
    Same,
}

/// When a node looks at the store and writes to it.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct StorePace {
    /// Between two looks at the serial while nothing happens.
    pub idle: Duration,
    /// Between two looks after a sign of work.
    pub active: Duration,
    /// How long a sign of work counts.
    pub linger: Duration,
    /// The longest time without a full list: finds what a lost hint hid.
    pub list: Duration,
    /// Between two announcements.
    pub renew: Duration,
    /// Between two publications of an unchanged descriptor: far below the rule of 3 days.
    pub republish: Duration,
}

impl StorePace {
    /// The default: 1.17 USD a node and month at S3 prices (decision 2).
    pub const STANDARD: Self = Self {
        idle: Duration::from_secs(2),
        active: Duration::from_millis(250),
        linger: Duration::from_secs(60),
        list: Duration::from_secs(60),
        renew: Duration::from_secs(60),
        republish: Duration::from_secs(24 * 60 * 60),
    };

    /// The serial every 10 s: 0.75 USD.
    pub const FRUGAL: Self = Self { idle: Duration::from_secs(10), ..Self::STANDARD };
}

/// Any Location Store: the bucket, or one of this process.
pub trait LocationStore: Send + Sync + 'static {
    /// One mesh of the store, for one node. Each node asks once.
    fn mesh(&self, mesh: &MeshName) -> Box<dyn MeshStore>;

    /// Whether only processes of this machine can read it: loopback endpoints are dialable then.
    fn is_local(&self) -> bool;

    /// When nodes look at it.
    fn pace(&self) -> StorePace;
}

/// One mesh as one node reads and writes it. Every method has a deadline of its own and may fail
/// with [`StoreError`], after which the same call again is safe.
#[async_trait]
pub trait MeshStore: Send + Sync {
    /// Creates revision 1 of a node, which claims its routing ID (decision 4).
    async fn claim(&mut self, descriptor: &Descriptor) -> Result<Claim, StoreError>;

    /// Writes a later revision. Revisions in between may be left out.
    async fn publish(&mut self, descriptor: &Descriptor) -> Result<(), StoreError>;

    /// Announces this minute that the node lives, with the newest revision that is published, and
    /// then moves the serial; a serial that does not move is no error (decision 5).
    async fn announce(
        &mut self,
        descriptor: &Descriptor,
        published: Revision,
        peers: &[PeerSight],
    ) -> Result<(), StoreError>;

    /// Looks for a hint of news.
    async fn poll(&mut self) -> Result<News, StoreError>;

    /// Every node that is announced in this minute or the last, by its newest announced revision:
    /// a whole and consistent list, or an error (decision 7).
    async fn list(&mut self) -> Result<Vec<Descriptor>, StoreError>;

    /// One node's newest descriptor, announced or not: for an acceptor that does not know its
    /// dialler (decision 10).
    async fn look_up(&mut self, rid: &Rid) -> Result<Option<Descriptor>, StoreError>;
}
