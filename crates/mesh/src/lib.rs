//! RouteMesh: nodes that find each other through a bucket and call each other's channels.
#![cfg_attr(test, allow(clippy::disallowed_methods, clippy::disallowed_macros))]
#![warn(missing_docs)]

pub mod packet;
pub mod store;

mod config;
mod core;
mod error;
mod handler;
mod monitor;
mod net;

// So that the derive macro's paths hold inside this crate too.
extern crate self as routemesh;

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
pub use monitor::PeerState;
pub use net::{Listener, Net, Stream, TcpNet};
pub use packet::{Body, BodyError, Json, Packet};
pub use routemesh_derive::Packet;
pub use store::{LocationStore, MemoryStore, StorePace};
