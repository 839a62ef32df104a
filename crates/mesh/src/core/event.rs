//! What happens to a node, and what it wants done.

use std::time::Duration;

use carlos_protocol::mesh::{
    ChannelName, Descriptor, Expected, Hello, Identity, NodeState, Reject, Rid, Weight,
};

/// One physical connection of this process.
#[derive(Clone, Copy, Debug, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub(crate) enum ConnId {
    /// This end dialled; numbered by the core.
    Dialled(u64),
    /// The other end dialled; numbered by the accept loop.
    Accepted(u64),
}

/// A manual peer, numbered in the order of its addition.
#[derive(Clone, Copy, Debug, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub(crate) struct PeerId(pub(crate) u64);

/// Why a connection ended.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Cause {
    /// The other end closed, or the network failed.
    Ended,
    /// No connection came about.
    Unreachable,
    /// The handshake took too long.
    Slow,
    /// No answer to probes.
    Lost,
    /// Bytes that are not this protocol's.
    Protocol,
    /// Another link of the pair took its place.
    Replaced,
    /// This end refused.
    Refused(Reject),
    /// The other end refused.
    RefusedByPeer(Reject),
    /// This node is ending, or the peer was removed.
    Stopped,
}

/// What happens to a node.
#[derive(Debug)]
pub(crate) enum Event {
    /// A whole list of the living nodes of the mesh.
    Listing(Vec<Descriptor>),
    /// The store gave no list.
    StoreFailed,
    /// The answer to [`Effect::LookUp`]; `None` also when the store did not answer.
    Found(Rid, Option<Box<Descriptor>>),
    /// The other end introduced itself; with the key it proved.
    Hello(ConnId, Box<Hello>, Option<Identity>),
    /// The other end takes us in.
    Admitted(ConnId),
    /// A later revision of the other end's descriptor.
    Update(ConnId, Box<Descriptor>),
    /// An answer to a probe.
    Ack(ConnId, u64),
    /// A connection ended, or never came about.
    Closed(ConnId, Cause),
    /// The application names a peer.
    AddPeer(PeerId, Target),
    /// And takes it back.
    RemovePeer(PeerId),
    /// A new weight of a channel of ours.
    SetWeight(ChannelName, Weight),
    /// This node's state changes: draining, stopped.
    SetState(NodeState),
}

/// Where and whom to dial.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(crate) struct Target {
    pub(crate) endpoint: String,
    pub(crate) expected: Expected,
}

/// What a node wants done.
#[derive(Debug)]
pub(crate) enum Effect {
    /// Connect, prove who we are, and say this hello.
    Dial(ConnId, Target, Box<Hello>),
    /// Answer the other end's hello with ours.
    Greet(ConnId, Box<Hello>),
    /// Say that we take the other end in; its hello told the window and the channels.
    Admit(ConnId, Box<Admission>),
    /// Say why not, and close.
    Reject(ConnId, Reject),
    /// The link is admitted both ways: application records may flow.
    Ready(Rid),
    /// Close.
    Close(ConnId, Cause),
    /// Ask for an answer.
    Probe(ConnId, u64),
    /// Tell the peer our newest descriptor.
    Update(ConnId, Box<Descriptor>),
    /// Tell the store our newest descriptor.
    Publish,
    /// Read a node's newest descriptor and answer with [`Event::Found`].
    LookUp(Rid),
    /// What [`Core::channels`](super::Core::channels) and `peers` say has changed.
    Changed,
}

/// What a link needs to know of the peer it carries messages to.
#[derive(Clone, Debug)]
pub(crate) struct Admission {
    pub(crate) peer: Descriptor,
    /// Bytes of credit at the start.
    pub(crate) window: u64,
}

/// How long connecting, proving and greeting may take together.
pub(crate) const HANDSHAKE: Duration = Duration::from_secs(5);
