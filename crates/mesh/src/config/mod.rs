//! What the application configures, and its validation before any socket is bound
//! (routemesh §1 to §6).

mod builder;
mod options;
mod plan;

pub use builder::{
    ChannelBuilder, ClientBuilder, MeshHostBuilder, NetworkOptions, RouteMeshBuilder, ServerBuilder,
};
pub use options::{
    CONCURRENCY, HIGH_WATER_MARK, MAILBOX_BYTES, MAILBOX_MESSAGES, ManualPeer, PeerIdentity,
    Protection, REQUEST_TIMEOUT, RouterOptions, SEND_TIMEOUT, TIMEOUT_MAX, Trust,
};
pub use plan::{ConfigError, ConfigErrors};

pub(crate) use plan::{HostPlan, NodePlan, RidPlan, endpoint, peer_fits};
