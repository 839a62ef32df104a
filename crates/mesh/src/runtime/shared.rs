//! What a node's tasks and its callers share: the tables that the node task swaps.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock};
use std::time::Duration;

use carlos_bucket::Context;
use carlos_protocol::mesh::{ChannelName, Identity, MeshName, ObjectRole, Rid};
use tokio::sync::{mpsc, watch};
use tokio_util::sync::CancellationToken;

use crate::config::RouterOptions;
use crate::core::{Event, Selector};
use crate::delivery::Owner;
use crate::error::NoTarget;
use crate::link::{Link, Requests};
use crate::monitor::{MeshStatus, PeerState};

/// One node as its callers see it.
#[derive(Debug)]
pub(crate) struct Shared {
    pub(crate) mesh: MeshName,
    pub(crate) rid: Arc<Rid>,
    pub(crate) identity: Option<Identity>,
    pub(crate) endpoint: String,
    pub(crate) ctx: Context,
    pub(crate) router: RouterOptions,
    pub(crate) request_timeout: Duration,
    /// Fixed after the start.
    pub(crate) channels: BTreeMap<ChannelName, Arc<Channel>>,
    /// In the order of the descriptor, node direct last.
    pub(crate) owners: Arc<[Arc<Owner>]>,
    pub(crate) peers: RwLock<BTreeMap<Rid, Peer>>,
    /// Requests of this node to itself.
    pub(crate) local: Arc<Requests>,
    pub(crate) events: mpsc::Sender<Event>,
    pub(crate) status: watch::Receiver<MeshStatus>,
    /// Set once this node takes no more calls.
    pub(crate) ending: CancellationToken,
}

/// A channel of this process.
#[derive(Debug)]
pub(crate) struct Channel {
    pub(crate) name: ChannelName,
    /// This process serves it.
    pub(crate) served: bool,
    pub(crate) targets: Mutex<Targets>,
}

/// Who can be selected for a channel now.
#[derive(Debug)]
pub(crate) struct Targets {
    pub(crate) selector: Selector<Port>,
    pub(crate) nobody: NoTarget,
}

/// Where a candidate's messages go.
#[derive(Clone, Debug)]
pub(crate) enum Port {
    /// Over a link, to this owner of the peer.
    Remote(Arc<Link>, u16),
    /// To this process, by the same way from the mailbox on.
    Local(Arc<Owner>),
}

/// A peer as node-direct calls see it.
#[derive(Clone, Debug)]
pub(crate) struct Peer {
    pub(crate) state: PeerState,
    pub(crate) role: Option<ObjectRole>,
    pub(crate) link: Option<Arc<Link>>,
}

impl Channel {
    pub(crate) fn new(name: ChannelName, served: bool) -> Self {
        let targets = Targets { selector: Selector::default(), nobody: NoTarget::NotPublished };
        Self { name, served, targets: Mutex::new(targets) }
    }

    pub(crate) fn targets(&self) -> MutexGuard<'_, Targets> {
        self.targets.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Shared {
    /// The owner of node-direct messages.
    pub(crate) fn node_owner(&self) -> &Arc<Owner> {
        self.owners.last().expect("node direct is always there")
    }

    pub(crate) fn peer(&self, rid: &Rid) -> Option<Peer> {
        self.peers.read().unwrap_or_else(PoisonError::into_inner).get(rid).cloned()
    }
}
