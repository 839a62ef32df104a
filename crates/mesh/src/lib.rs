#![doc = include_str!("../README.md")]
#![cfg_attr(test, allow(clippy::disallowed_methods, clippy::disallowed_macros))]
#![warn(missing_docs)]

pub mod packet;
pub mod store;

mod config;
mod core;
mod delivery;
mod error;
mod handler;
mod link;
mod monitor;
mod net;
mod runtime;

pub use bytes::Bytes;
pub use carlos_protocol::mesh::{
    ChannelName, Content, Generation, Identity, MeshName, Metadata, MetadataError, NodeState,
    ObjectRole, Rid, Weight,
};
pub use config::{
    CONCURRENCY, ChannelBuilder, ClientBuilder, ConfigError, ConfigErrors, HIGH_WATER_MARK,
    MAILBOX_BYTES, MAILBOX_MESSAGES, ManualPeer, MeshHostBuilder, NetworkOptions, PeerIdentity,
    Protection, REQUEST_TIMEOUT, RouteMeshBuilder, RouterOptions, SEND_TIMEOUT, ServerBuilder,
    TIMEOUT_MAX, Trust,
};
pub use error::{CallError, ErrorKind, NoTarget};
pub use handler::{HandlerError, MessageContext, MessageKind};
pub use monitor::{ChannelStatus, MeshStatus, PeerState, PeerStatus};
pub use net::{Listener, Net, Stream, TcpNet};
pub use packet::{Body, BodyError, Json, Packet};
pub use routemesh_derive::Packet;
pub use runtime::{CallOptions, ChannelHandle, MeshHost, Reply, SHUTDOWN, Shutdown, StartError};
pub use store::{BucketStore, LocationStore, MemoryStore, StorePace};
