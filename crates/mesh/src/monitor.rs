//! What a node shows of itself: states, counts, and nothing internal (routemesh §5, §9).

use carlos_protocol::mesh::{ChannelName, MeshName, NodeState, Rid};

/// A peer's state as monitoring shows it. `NotRequired` is a normal omission and no failure.
#[derive(Clone, Copy, Debug, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub enum PeerState {
    /// A connection is being made.
    Connecting,
    /// Messages flow.
    Ready,
    /// Messages flow, and the peer takes no new selections.
    Draining,
    /// A connection is needed and there is none.
    NotConnected,
    /// The pair needs none.
    NotRequired,
}

impl PeerState {
    /// The state in announcements and metrics.
    pub fn name(self) -> &'static str {
        match self {
            Self::Connecting => "connecting",
            Self::Ready => "ready",
            Self::Draining => "draining",
            Self::NotConnected => "not-connected",
            Self::NotRequired => "not-required",
        }
    }

    /// Whether messages flow.
    pub fn is_connected(self) -> bool {
        matches!(self, Self::Ready | Self::Draining)
    }
}

/// One peer of a mesh.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct PeerStatus {
    /// Its routing ID: the only name that is shown.
    pub rid: Rid,
    /// Its state.
    pub state: PeerState,
    /// Selections that ended at it over the present link.
    pub selected: u64,
}

/// One channel of a mesh in this process.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct ChannelStatus {
    /// The channel.
    pub name: ChannelName,
    /// Servers that can be selected now, this node included.
    pub ready_targets: usize,
}

/// A node's mesh at one moment.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct MeshStatus {
    /// The mesh.
    pub mesh: MeshName,
    /// This node.
    pub rid: Rid,
    /// Where this node is in its life.
    pub state: NodeState,
    /// The location store answered last time; true without one.
    pub store_answers: bool,
    /// Every peer that is known, by routing ID.
    pub peers: Vec<PeerStatus>,
    /// Every channel of this process, by name.
    pub channels: Vec<ChannelStatus>,
    /// Grows with each status of this node.
    pub sequence: u64,
}

impl MeshStatus {
    /// Peers to which messages flow.
    pub fn ready_peers(&self) -> usize {
        self.peers.iter().filter(|peer| peer.state.is_connected()).count()
    }

    /// Whether the node takes new work.
    pub fn is_ready(&self) -> bool {
        self.state == NodeState::Serving
    }
}
