//! Every byte of RouteMesh: names, object keys, descriptors, announcements, the handshake and the
//! records of a link (routemesh §2, §8).
//!
//! A link is one byte stream between two nodes. Both ends begin with a [`Hello`], answer it with
//! an admission or a [`Reject`], and then exchange [`Record`]s: a length, a kind and a body. The
//! layout of each is in `docs/routemesh.md`.

mod descriptor;
mod handshake;
mod keys;
mod message;
mod names;
mod presence;
mod record;

pub use descriptor::{
    DESCRIPTOR_BYTES, Descriptor, DescriptorError, Member, NodeState, ObjectRole, connection_needed,
};
pub use handshake::{CAPABILITY, Expected, Hello, HelloError, LinkId, Reject, VERSION};
pub use keys::{MeshKey, nodes_prefix, presence_prefix, serial_key};
pub use message::{
    Asked, CORRELATION_BYTES, Content, Head, METADATA_BYTES, Metadata, MetadataError, OWNER_NODE,
    Outcome, Parted, ReplyHead,
};
pub use names::{
    ChannelName, Generation, Identity, MeshName, NAME_BYTES, PacketName, RID_BYTES, Rid, RidPrefix,
    WEIGHT_DEFAULT, WEIGHT_MAX, Weight,
};
pub use presence::{PEERS_LISTED, PeerSight, Presence, PresenceError};
pub use record::{
    CREDITS_PER_RECORD, Credit, HEAD_BYTES, PART_BYTES, RECORD_BYTES, Record, RecordDecoder,
    RecordError, put_record,
};
