//! What the rest of the node reads of the core: targets of channels, states of peers.

use std::collections::BTreeMap;

use carlos_protocol::mesh::{
    ChannelName, Descriptor, NodeState, ObjectRole, Rid, connection_needed,
};

use super::Core;
use super::event::ConnId;
use super::links::Conn;
use crate::error::NoTarget;
use crate::monitor::PeerState;

/// Who can be selected for a channel now.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(crate) struct ChannelView {
    /// Candidates with their weights; no connection means this node itself.
    pub(crate) candidates: Vec<(Rid, u16, Option<ConnId>)>,
    /// Why there are none, when there are none (decision 17).
    pub(crate) nobody: NoTarget,
}

/// One peer.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(crate) struct PeerView {
    pub(crate) rid: Rid,
    pub(crate) state: PeerState,
    pub(crate) role: Option<ObjectRole>,
    /// The connection that carries messages.
    pub(crate) conn: Option<ConnId>,
}

impl Core {
    /// The targets of a channel. This node counts like any other (routemesh §4).
    pub(crate) fn channel(&self, channel: &ChannelName) -> ChannelView {
        let mut candidates = Vec::new();
        let mut best = NoTarget::NotPublished;
        let mut consider = |node: &Descriptor, reach: Option<Option<ConnId>>| {
            let weight = node.selectable_weight(channel);
            let reason = match (node.member_index(channel), weight, reach) {
                (None, ..) => return,
                (Some(_), 1.., Some(conn)) => {
                    candidates.push((node.rid.clone(), weight, conn));
                    return;
                }
                (Some(_), 1.., None) => NoTarget::NotReady,
                (Some(index), 0, _) if node.members[usize::from(index)].weight.get() == 0 => {
                    NoTarget::WeightZero
                }
                (Some(_), 0, _) => NoTarget::Draining,
            };
            best = best.max_by_hope(reason);
        };
        consider(&self.me, Some(None));
        for (rid, known) in self.directory.iter() {
            let conn = self.ready(rid).map(Some);
            if conn.is_some() || known.listed {
                consider(&known.descriptor, conn);
            }
        }
        ChannelView { candidates, nobody: best }
    }

    /// Every peer that is known, by routing ID.
    pub(crate) fn peers(&self) -> Vec<PeerView> {
        let mut peers: BTreeMap<Rid, PeerView> = BTreeMap::new();
        for (rid, known) in self.directory.iter() {
            let conn = self.ready(rid);
            let node = &known.descriptor;
            let state = match conn {
                Some(_) if node.state == NodeState::Draining => PeerState::Draining,
                Some(_) => PeerState::Ready,
                None if !connection_needed(&self.me, node) => PeerState::NotRequired,
                None if self.is_connecting(rid) => PeerState::Connecting,
                None => PeerState::NotConnected,
            };
            let role = Some(node.role);
            peers.insert(rid.clone(), PeerView { rid: rid.clone(), state, role, conn });
        }
        let expected = self
            .manual
            .values()
            .filter_map(|(target, dial)| dial.peer.as_ref().or(target.expected.rid.as_ref()));
        for rid in expected.chain(self.not_required.keys()) {
            peers.entry(rid.clone()).or_insert_with(|| PeerView {
                rid: rid.clone(),
                state: self.unknown_state(rid),
                role: None,
                conn: None,
            });
        }
        peers.into_values().collect()
    }

    fn unknown_state(&self, rid: &Rid) -> PeerState {
        match (self.not_required.contains_key(rid), self.is_connecting(rid)) {
            (true, _) => PeerState::NotRequired,
            (false, true) => PeerState::Connecting,
            (false, false) => PeerState::NotConnected,
        }
    }

    fn is_connecting(&self, rid: &Rid) -> bool {
        let of_peer = |conn: &Conn| conn.expected_rid() == Some(rid) || conn.peer() == Some(rid);
        self.conns.values().any(|conn| !conn.is_ready() && of_peer(conn))
    }

    fn ready(&self, rid: &Rid) -> Option<ConnId> {
        let conn = *self.links.get(rid)?;
        self.conns.get(&conn).is_some_and(Conn::is_ready).then_some(conn)
    }
}

impl NoTarget {
    /// Of two reasons the one nearer to a target: a caller who reads it knows what is missing.
    fn max_by_hope(self, other: Self) -> Self {
        if other.hope() > self.hope() { other } else { self }
    }

    fn hope(self) -> u8 {
        match self {
            Self::NotRegistered | Self::NotPublished | Self::ObjectClient => 0,
            Self::WeightZero => 1,
            Self::Draining => 2,
            Self::NotReady => 3,
        }
    }
}
