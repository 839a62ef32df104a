//! The builders. They collect and never fail: everything wrong is said at once, at the start.

use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use carlos_bucket::Context;
use carlos_protocol::mesh::ObjectRole;

use super::options::{CONCURRENCY, ManualPeer, Protection, REQUEST_TIMEOUT, RouterOptions, Trust};
use crate::handler::{HandlerError, MessageContext, MessageKind, Registration};
use crate::net::{Net, TcpNet};
use crate::packet::{Body, Packet};
use crate::store::LocationStore;

/// The weight of a server that sets none.
const DEFAULT_WEIGHT: i64 = 100;

/// The hosts that every node of this process listens at and is found at, unless it says otherwise.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct NetworkOptions {
    /// Where listeners bind.
    pub bind_host: String,
    /// What peers are told; `None` for the bind host, which must not be a wildcard then.
    pub advertise_host: Option<String>,
}

impl Default for NetworkOptions {
    fn default() -> Self {
        Self { bind_host: "127.0.0.1".to_owned(), advertise_host: None }
    }
}

/// Configures a [`MeshHost`](crate::MeshHost).
pub struct MeshHostBuilder {
    pub(crate) context: Context,
    pub(crate) net: Arc<dyn Net>,
    pub(crate) network: NetworkOptions,
    pub(crate) stores: Vec<Arc<dyn LocationStore>>,
    pub(crate) loopback_allowed: bool,
    pub(crate) request_timeout: Duration,
    pub(crate) meshes: Vec<RouteMeshBuilder>,
    /// Names this process uses on other topologies than a RouteMesh (routemesh §6).
    pub(crate) reserved: Vec<(String, &'static str)>,
}

impl MeshHostBuilder {
    pub(crate) fn new() -> Self {
        Self {
            context: Context::system(),
            net: Arc::new(TcpNet),
            network: NetworkOptions::default(),
            stores: Vec::new(),
            loopback_allowed: false,
            request_timeout: REQUEST_TIMEOUT,
            meshes: Vec::new(),
            reserved: Vec::new(),
        }
    }

    /// The hosts that every node of this process listens at and is found at.
    pub fn network(&mut self, network: NetworkOptions) -> &mut Self {
        self.network = network;
        self
    }

    /// Where nodes find each other. Without one, every peer is a manual one.
    pub fn store(&mut self, store: impl LocationStore) -> &mut Self {
        self.stores.push(Arc::new(store));
        self
    }

    /// Publishes loopback addresses in a store that other machines read: for tests of one machine
    /// against a real store (decision 20).
    pub fn allow_loopback(&mut self) -> &mut Self {
        self.loopback_allowed = true;
        self
    }

    /// How long a request may take in all, for nodes and calls that say nothing else.
    pub fn request_timeout(&mut self, timeout: Duration) -> &mut Self {
        self.request_timeout = timeout;
        self
    }

    /// The clock, randomness and network of the host: for simulations.
    pub fn environment(&mut self, context: Context, net: impl Net) -> &mut Self {
        self.context = context;
        self.net = Arc::new(net);
        self
    }

    /// Says that this process uses a channel name on another topology, which no RouteMesh of it
    /// may use then (routemesh §6).
    pub fn reserve_channel(&mut self, name: &str, topology: &'static str) -> &mut Self {
        self.reserved.push((name.to_owned(), topology));
        self
    }

    /// Registers this process as one node of a mesh.
    pub fn route_mesh(&mut self, name: &str) -> &mut RouteMeshBuilder {
        self.meshes.push(RouteMeshBuilder::new(name));
        self.meshes.last_mut().expect("one was just added")
    }
}

/// Where a node listens.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(crate) enum Listen {
    /// At this port of the bind host; 0 lets the system choose.
    Port(u16),
    /// At `host:port`.
    At(String),
}

/// Configures one node of a mesh.
pub struct RouteMeshBuilder {
    pub(crate) name: String,
    pub(crate) listen: Option<Listen>,
    pub(crate) bind_host: Option<String>,
    pub(crate) advertise_host: Option<String>,
    pub(crate) rid_prefix: Option<String>,
    pub(crate) rid: Option<Vec<u8>>,
    pub(crate) key_seed: Option<[u8; 32]>,
    pub(crate) role: ObjectRole,
    pub(crate) router: RouterOptions,
    pub(crate) request_timeout: Option<Duration>,
    pub(crate) protection: Protection,
    pub(crate) trust: Trust,
    pub(crate) accept_any: bool,
    pub(crate) peers: Vec<ManualPeer>,
    pub(crate) channels: Vec<ChannelConfig>,
    pub(crate) node_handlers: Vec<Registration>,
    pub(crate) node_concurrency: usize,
}

/// A channel as configured.
pub(crate) struct ChannelConfig {
    pub(crate) name: String,
    pub(crate) role: Option<Role>,
}

/// What a process is to a channel.
pub(crate) enum Role {
    Client,
    Server { weight: i64, concurrency: usize, handlers: Vec<Registration> },
}

impl RouteMeshBuilder {
    fn new(name: &str) -> Self {
        Self {
            name: name.to_owned(),
            listen: None,
            bind_host: None,
            advertise_host: None,
            rid_prefix: None,
            rid: None,
            key_seed: None,
            role: ObjectRole::None,
            router: RouterOptions::default(),
            request_timeout: None,
            protection: Protection::default(),
            trust: Trust::default(),
            accept_any: false,
            peers: Vec::new(),
            channels: Vec::new(),
            node_handlers: Vec::new(),
            node_concurrency: CONCURRENCY,
        }
    }

    /// Listens at a port of the bind host; 0 lets the system choose, which is the default.
    pub fn listen_port(&mut self, port: u16) -> &mut Self {
        self.listen = Some(Listen::Port(port));
        self
    }

    /// Listens at `host:port`.
    pub fn listen(&mut self, endpoint: &str) -> &mut Self {
        self.listen = Some(Listen::At(endpoint.to_owned()));
        self
    }

    /// The host to bind, for this node only.
    pub fn bind_host(&mut self, host: &str) -> &mut Self {
        self.bind_host = Some(host.to_owned());
        self
    }

    /// The host that peers are told, for this node only.
    pub fn advertise_host(&mut self, host: &str) -> &mut Self {
        self.advertise_host = Some(host.to_owned());
        self
    }

    /// The readable part of the routing ID; the rest is minted at the start.
    pub fn rid_prefix(&mut self, prefix: &str) -> &mut Self {
        self.rid_prefix = Some(prefix.to_owned());
        self
    }

    /// A fixed routing ID: only with manual peers and without an object role.
    pub fn rid(&mut self, rid: &[u8]) -> &mut Self {
        self.rid = Some(rid.to_vec());
        self
    }

    /// The secret half of the node's key, for manual topologies where peers know it beforehand.
    /// Without one, a key is made for this lifecycle and kept in memory.
    pub fn key_seed(&mut self, seed: [u8; 32]) -> &mut Self {
        self.key_seed = Some(seed);
        self
    }

    /// Settings of the router socket and the mailboxes.
    pub fn router(&mut self, router: RouterOptions) -> &mut Self {
        self.router = router;
        self
    }

    /// How long a request of this node may take in all.
    pub fn request_timeout(&mut self, timeout: Duration) -> &mut Self {
        self.request_timeout = Some(timeout);
        self
    }

    /// The object role, as far as topology needs it.
    pub fn object_role(&mut self, role: ObjectRole) -> &mut Self {
        self.role = role;
        self
    }

    /// No encryption and no proof of identity on this node's links.
    pub fn plaintext(&mut self) -> &mut Self {
        self.protection = Protection::Plaintext;
        self
    }

    /// Who may join.
    pub fn trust(&mut self, trust: Trust) -> &mut Self {
        self.trust = trust;
        self
    }

    /// Takes in any dialler whatever its key, where no store could confirm it: the accepting half
    /// of [`ManualPeer::any_identity`].
    pub fn accept_any_identity(&mut self) -> &mut Self {
        self.accept_any = true;
        self
    }

    /// A peer to connect to. More can be added and removed at runtime.
    pub fn peer(&mut self, peer: ManualPeer) -> &mut Self {
        self.peers.push(peer);
        self
    }

    /// A channel that shares this node's connections; choose a role next.
    pub fn channel(&mut self, name: &str) -> ChannelBuilder<'_> {
        self.channels.push(ChannelConfig { name: name.to_owned(), role: None });
        ChannelBuilder { channel: self.channels.last_mut().expect("one was just added") }
    }

    /// Handles one-way messages that name this node.
    pub fn on_node_send<P, F, Fut>(&mut self, handle: F) -> &mut Self
    where
        P: Packet,
        F: Fn(MessageContext, P) -> Fut + Send + Sync + 'static,
        Fut: Future<Output = Result<(), HandlerError>> + Send + 'static,
    {
        self.node_handlers.push(Registration::send(None, handle));
        self
    }

    /// Handles requests that name this node.
    pub fn on_node_request<P, R, F, Fut>(&mut self, handle: F) -> &mut Self
    where
        P: Packet,
        R: Body,
        F: Fn(MessageContext, P) -> Fut + Send + Sync + 'static,
        Fut: Future<Output = Result<R, HandlerError>> + Send + 'static,
    {
        self.node_handlers.push(Registration::request(None, handle));
        self
    }

    /// Node-direct handlers that run at once.
    pub fn node_concurrency(&mut self, handlers: usize) -> &mut Self {
        self.node_concurrency = handlers;
        self
    }
}

/// Chooses a channel's role.
#[must_use = "a channel without a role fails the start"]
pub struct ChannelBuilder<'a> {
    channel: &'a mut ChannelConfig,
}

impl<'a> ChannelBuilder<'a> {
    /// Only calls the channel: nothing is published, so there is nothing more to set.
    pub fn client(self) -> ClientBuilder {
        self.channel.role = Some(Role::Client);
        ClientBuilder
    }

    /// Serves the channel, and may call it.
    pub fn server(self) -> ServerBuilder<'a> {
        self.channel.role = Some(Role::Server {
            weight: DEFAULT_WEIGHT,
            concurrency: CONCURRENCY,
            handlers: Vec::new(),
        });
        ServerBuilder { channel: self.channel }
    }
}

/// A client role: it has neither handlers nor a weight (routemesh §3).
#[derive(Clone, Copy, Debug)]
pub struct ClientBuilder;

/// Configures a server role.
pub struct ServerBuilder<'a> {
    channel: &'a mut ChannelConfig,
}

impl ServerBuilder<'_> {
    /// The share of new selections, 0 to 10,000; 100 unless set. 0 keeps the membership.
    pub fn weight(self, weight: i64) -> Self {
        if let Some(Role::Server { weight: set, .. }) = &mut self.channel.role {
            *set = weight;
        }
        self
    }

    /// Handlers that run at once; 1 processes messages in order.
    pub fn concurrency(self, handlers: usize) -> Self {
        if let Some(Role::Server { concurrency, .. }) = &mut self.channel.role {
            *concurrency = handlers;
        }
        self
    }

    /// Handles one-way messages of a packet.
    pub fn on_send<P, F, Fut>(self, handle: F) -> Self
    where
        P: Packet,
        F: Fn(MessageContext, P) -> Fut + Send + Sync + 'static,
        Fut: Future<Output = Result<(), HandlerError>> + Send + 'static,
    {
        self.add(Registration::send(None, handle))
    }

    /// Handles requests of a packet.
    pub fn on_request<P, R, F, Fut>(self, handle: F) -> Self
    where
        P: Packet,
        R: Body,
        F: Fn(MessageContext, P) -> Fut + Send + Sync + 'static,
        Fut: Future<Output = Result<R, HandlerError>> + Send + 'static,
    {
        self.add(Registration::request(None, handle))
    }

    /// Handles requests of a packet under another name than the packet's own.
    pub fn on_request_named<P, R, F, Fut>(self, packet: &str, handle: F) -> Self
    where
        P: Packet,
        R: Body,
        F: Fn(MessageContext, P) -> Fut + Send + Sync + 'static,
        Fut: Future<Output = Result<R, HandlerError>> + Send + 'static,
    {
        self.add(Registration::request(Some(packet), handle))
    }

    /// Handles raw bytes under a packet name; for a one-way message the answer is dropped.
    pub fn on_raw<F, Fut>(self, kind: MessageKind, packet: &str, handle: F) -> Self
    where
        F: Fn(MessageContext, Bytes) -> Fut + Send + Sync + 'static,
        Fut: Future<Output = Result<Bytes, HandlerError>> + Send + 'static,
    {
        self.add(Registration::raw(kind, packet, handle))
    }

    fn add(self, registration: Registration) -> Self {
        if let Some(Role::Server { handlers, .. }) = &mut self.channel.role {
            handlers.push(registration);
        }
        self
    }
}
