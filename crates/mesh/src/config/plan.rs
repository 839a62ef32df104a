//! Validation: everything that can be known to be wrong before a socket is bound (routemesh §1 to
//! §6), each fact with its own error that names the item.

use std::collections::BTreeMap;
use std::fmt;
use std::net::{IpAddr, Ipv6Addr};
use std::sync::Arc;
use std::time::Duration;

use carlos_bucket::Context;
use carlos_protocol::mesh::{
    ChannelName, MeshName, ObjectRole, PacketName, Rid, RidPrefix, Weight,
};
use thiserror::Error;

use super::builder::{ChannelConfig, Listen, MeshHostBuilder, Role, RouteMeshBuilder};
use super::options::{ManualPeer, PeerIdentity, Protection, RouterOptions, TIMEOUT_MAX, Trust};
use crate::handler::{Handlers, Registration};
use crate::net::Net;
use crate::store::LocationStore;

/// One thing wrong with a configuration.
#[derive(Clone, Debug, Eq, Error, PartialEq)]
pub enum ConfigError {
    /// The mesh has two nodes in this process.
    #[error("mesh {0:?} is registered twice in this process")]
    DuplicateMesh(String),
    /// The channel has two send paths in this process.
    #[error("channel {channel:?} is registered on {first} and on {second}")]
    DuplicateChannel {
        /// The channel.
        channel: String,
        /// A topology that has it.
        first: String,
        /// Another, or the same again.
        second: String,
    },
    /// Neither client nor server was chosen.
    #[error("channel {0:?} has no role: choose client or server")]
    NoRole(String),
    /// Two handlers with one key.
    #[error("{scope} has two {kind} handlers for packet {packet:?}")]
    DuplicateHandler {
        /// The channel or node.
        scope: String,
        /// `send` or `request`.
        kind: &'static str,
        /// The packet.
        packet: String,
    },
    /// An object client with a handler for messages that name it (routemesh §4).
    #[error("mesh {0:?}: an object client takes no node-direct handler")]
    NodeHandlerOnObjectClient(String),
    /// A name with a length or a character that it may not have.
    #[error("{what} {text:?}: {reason}")]
    Name {
        /// What it names.
        what: &'static str,
        /// The text.
        text: String,
        /// What is allowed.
        reason: &'static str,
    },
    /// A weight outside 0 to 10,000.
    #[error("channel {channel:?}: weight {weight} is not within 0 to 10000")]
    Weight {
        /// The channel.
        channel: String,
        /// The weight.
        weight: i64,
    },
    /// A routing ID, or its prefix, that does not go with the rest.
    #[error("mesh {mesh:?}: {reason}")]
    Rid {
        /// The mesh.
        mesh: String,
        /// Why.
        reason: &'static str,
    },
    /// Two stores.
    #[error("two location stores are registered")]
    TwoStores,
    /// An endpoint nobody can use.
    #[error("mesh {mesh:?}: endpoint {endpoint:?}: {reason}")]
    Endpoint {
        /// The mesh.
        mesh: String,
        /// The endpoint.
        endpoint: String,
        /// Why.
        reason: &'static str,
    },
    /// A time that is zero, or longer than a socket option holds.
    #[error("{what} must be more than 0 and at most {} ms", TIMEOUT_MAX.as_millis())]
    Timeout {
        /// Which.
        what: &'static str,
    },
    /// A number that is zero.
    #[error("channel {0:?}: no handler would ever run")]
    NoConcurrency(String),
    /// Trust that the rest contradicts.
    #[error("mesh {mesh:?}: {reason}")]
    Trust {
        /// The mesh.
        mesh: String,
        /// Why.
        reason: &'static str,
    },
    /// Nothing is registered.
    #[error("no mesh is registered")]
    NoMesh,
}

/// Everything wrong with a configuration: never empty.
#[derive(Clone, Debug, Eq, Error, PartialEq)]
pub struct ConfigErrors(pub Vec<ConfigError>);

impl fmt::Display for ConfigErrors {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let texts: Vec<String> = self.0.iter().map(ToString::to_string).collect();
        f.write_str(&texts.join("; "))
    }
}

/// A configuration that holds.
pub(crate) struct HostPlan {
    pub(crate) context: Context,
    pub(crate) net: Arc<dyn Net>,
    pub(crate) store: Option<Arc<dyn LocationStore>>,
    pub(crate) nodes: Vec<NodePlan>,
}

/// One node of it.
pub(crate) struct NodePlan {
    pub(crate) mesh: MeshName,
    pub(crate) bind_host: String,
    pub(crate) port: u16,
    pub(crate) advertise_host: String,
    pub(crate) rid: RidPlan,
    pub(crate) key_seed: Option<[u8; 32]>,
    pub(crate) role: ObjectRole,
    pub(crate) router: RouterOptions,
    pub(crate) request_timeout: Duration,
    pub(crate) protection: Protection,
    pub(crate) trust: Trust,
    pub(crate) accept_any: bool,
    pub(crate) peers: Vec<ManualPeer>,
    /// Every channel of the node, by name.
    pub(crate) channels: BTreeMap<ChannelName, ChannelPlan>,
    pub(crate) node_handlers: Handlers,
    pub(crate) node_concurrency: usize,
}

/// Where a routing ID comes from.
pub(crate) enum RidPlan {
    /// Minted at the start.
    Automatic(RidPrefix),
    /// Configured.
    Fixed(Rid),
}

/// A channel's role; `None` for a client.
pub(crate) struct ChannelPlan {
    pub(crate) server: Option<ServerPlan>,
}

/// A server role.
pub(crate) struct ServerPlan {
    pub(crate) weight: Weight,
    pub(crate) concurrency: usize,
    pub(crate) handlers: Handlers,
}

impl MeshHostBuilder {
    /// Checks everything and turns it into a plan.
    pub(crate) fn plan(self) -> Result<HostPlan, ConfigErrors> {
        let mut errors = Vec::new();
        self.check_paths(&mut errors);
        if self.stores.len() > 1 {
            errors.push(ConfigError::TwoStores);
        }
        if self.meshes.is_empty() {
            errors.push(ConfigError::NoMesh);
        }
        check_timeout("the request timeout", self.request_timeout, &mut errors);
        let store = self.stores.into_iter().next();
        let (timeout, network) = (self.request_timeout, self.network);
        let rules = Rules {
            automatic: store.is_some(),
            loopback: self.loopback_allowed || store.as_ref().is_none_or(|store| store.is_local()),
            bind_host: network.bind_host,
            advertise_host: network.advertise_host,
            request_timeout: timeout,
        };
        let planned = self.meshes.into_iter().filter_map(|mesh| rules.plan(mesh, &mut errors));
        let nodes: Vec<NodePlan> = planned.collect();
        if errors.is_empty() {
            Ok(HostPlan { context: self.context, net: self.net, store, nodes })
        } else {
            Err(ConfigErrors(errors))
        }
    }

    /// One node for each mesh, and one send path for each channel name (routemesh §2, §6).
    fn check_paths(&self, errors: &mut Vec<ConfigError>) {
        let mut meshes: Vec<&str> = Vec::new();
        let mut paths: BTreeMap<&str, String> = BTreeMap::new();
        for (channel, topology) in &self.reserved {
            paths.insert(channel, (*topology).to_owned());
        }
        for mesh in &self.meshes {
            if meshes.contains(&mesh.name.as_str()) {
                errors.push(ConfigError::DuplicateMesh(mesh.name.clone()));
            }
            meshes.push(&mesh.name);
            for channel in &mesh.channels {
                let second = format!("mesh {:?}", mesh.name);
                if let Some(first) = paths.insert(&channel.name, second.clone()) {
                    let channel = channel.name.clone();
                    errors.push(ConfigError::DuplicateChannel { channel, first, second });
                }
            }
        }
    }
}

/// What every node of a process is checked against.
struct Rules {
    automatic: bool,
    loopback: bool,
    bind_host: String,
    advertise_host: Option<String>,
    request_timeout: Duration,
}

impl Rules {
    /// One node; `None` when something is wrong with it.
    fn plan(&self, mesh: RouteMeshBuilder, errors: &mut Vec<ConfigError>) -> Option<NodePlan> {
        let before = errors.len();
        let name = parse_name("mesh name", &mesh.name, MeshName::parse, errors);
        let rid = self.rid(&mesh, errors);
        let (bind_host, port) = self.listener(&mesh, errors);
        let advertise_host = self.advertised(&mesh, &bind_host, errors);
        self.check_node(&mesh, errors);
        let (name, rid) = (name?, rid?);
        let channels = mesh.channels.into_iter();
        let channels =
            channels.filter_map(|channel| plan_channel(&name, channel, errors)).collect();
        let scope = format!("mesh {name:?}");
        let node_handlers = plan_handlers(&scope, &name, None, mesh.node_handlers, errors);
        (errors.len() == before).then(|| NodePlan {
            mesh: name,
            bind_host,
            port,
            advertise_host,
            rid,
            key_seed: mesh.key_seed,
            role: mesh.role,
            router: mesh.router,
            request_timeout: mesh.request_timeout.unwrap_or(self.request_timeout),
            protection: mesh.protection,
            trust: mesh.trust,
            accept_any: mesh.accept_any,
            peers: mesh.peers,
            channels,
            node_handlers,
            node_concurrency: mesh.node_concurrency,
        })
    }

    /// A fixed routing ID goes with manual peers and no object role only (routemesh §8, X11).
    fn rid(&self, mesh: &RouteMeshBuilder, errors: &mut Vec<ConfigError>) -> Option<RidPlan> {
        let mut refuse = |reason| {
            errors.push(ConfigError::Rid { mesh: mesh.name.clone(), reason });
            None
        };
        match (&mesh.rid, &mesh.rid_prefix) {
            (Some(_), Some(_)) => refuse("a fixed routing ID takes no prefix"),
            (Some(_), None) if self.automatic => {
                refuse("a fixed routing ID goes with manual peers only, not with a store")
            }
            (Some(_), None) if mesh.role != ObjectRole::None => {
                refuse("a fixed routing ID goes with no object role")
            }
            (Some(rid), None) => match Rid::new(rid) {
                Ok(rid) => Some(RidPlan::Fixed(rid)),
                Err(_) => refuse("a routing ID has 1 to 255 bytes"),
            },
            (None, Some(prefix)) => match RidPrefix::parse(prefix) {
                Ok(prefix) => Some(RidPlan::Automatic(prefix)),
                Err(_) => refuse("a prefix has 1 to 64 characters of A-Z a-z 0-9 . _ -"),
            },
            (None, None) => Some(RidPlan::Automatic(RidPrefix::default())),
        }
    }

    fn listener(&self, mesh: &RouteMeshBuilder, errors: &mut Vec<ConfigError>) -> (String, u16) {
        let host = mesh.bind_host.as_ref().unwrap_or(&self.bind_host).clone();
        match &mesh.listen {
            None => (host, 0),
            Some(Listen::Port(port)) => (host, *port),
            Some(Listen::At(endpoint)) => match split_endpoint(endpoint) {
                Some((host, port)) => (host.to_owned(), port),
                None => {
                    errors.push(bad_endpoint(mesh, endpoint, "it is no host:port"));
                    (host, 0)
                }
            },
        }
    }

    /// What peers dial must be an address of one machine, and of this one only if they are on it.
    fn advertised(
        &self,
        mesh: &RouteMeshBuilder,
        bind_host: &str,
        errors: &mut Vec<ConfigError>,
    ) -> String {
        let told = mesh.advertise_host.as_ref().or(self.advertise_host.as_ref());
        let host = told.map_or(bind_host, String::as_str);
        if is_wildcard(host) {
            errors.push(bad_endpoint(mesh, host, "a wildcard needs an advertise host"));
        }
        if is_loopback(host) && !self.loopback {
            let reason = "a loopback address in a store that other machines read";
            errors.push(bad_endpoint(mesh, host, reason));
        }
        host.to_owned()
    }

    fn check_node(&self, mesh: &RouteMeshBuilder, errors: &mut Vec<ConfigError>) {
        if mesh.role == ObjectRole::Client && !mesh.node_handlers.is_empty() {
            errors.push(ConfigError::NodeHandlerOnObjectClient(mesh.name.clone()));
        }
        if mesh.node_concurrency == 0 {
            errors.push(ConfigError::NoConcurrency(mesh.name.clone()));
        }
        let router = &mesh.router;
        for (what, time) in [
            ("the request timeout", mesh.request_timeout),
            ("the send timeout", router.send_timeout),
            ("the receive timeout", router.receive_timeout),
        ] {
            time.into_iter().for_each(|time| check_timeout(what, time, errors));
        }
        if mesh.protection == Protection::Plaintext && mesh.trust != Trust::Bucket {
            let reason = "an authority needs keys, which plaintext links do not prove";
            errors.push(ConfigError::Trust { mesh: mesh.name.clone(), reason });
        }
        mesh.peers.iter().for_each(|peer| check_peer(mesh, peer, errors));
    }
}

fn check_peer(mesh: &RouteMeshBuilder, peer: &ManualPeer, errors: &mut Vec<ConfigError>) {
    if let Err(reason) = peer_fits(peer, mesh.protection) {
        errors.push(bad_endpoint(mesh, &peer.endpoint, reason));
    }
}

/// Whether a manual peer can be dialled: also asked for peers that are added at runtime.
pub(crate) fn peer_fits(peer: &ManualPeer, protection: Protection) -> Result<(), &'static str> {
    let Some((host, port)) = split_endpoint(&peer.endpoint) else {
        return Err("it is no host:port");
    };
    if is_wildcard(host) || port == 0 {
        return Err("nobody can dial a wildcard or port 0");
    }
    if peer.expected_rid.as_ref().is_some_and(|rid| Rid::new(rid).is_err()) {
        return Err("a routing ID has 1 to 255 bytes");
    }
    match (protection, &peer.identity) {
        (Protection::Plaintext, PeerIdentity::Key(_)) => Err("plaintext links prove no key"),
        _ => Ok(()),
    }
}

fn plan_channel(
    mesh: &MeshName,
    config: ChannelConfig,
    errors: &mut Vec<ConfigError>,
) -> Option<(ChannelName, ChannelPlan)> {
    let name = parse_name("channel name", &config.name, ChannelName::parse, errors)?;
    let server = match config.role {
        None => {
            errors.push(ConfigError::NoRole(config.name));
            return None;
        }
        Some(Role::Client) => None,
        Some(Role::Server { weight, concurrency, handlers }) => {
            let parsed = Weight::new(weight).ok();
            if parsed.is_none() {
                errors.push(ConfigError::Weight { channel: config.name.clone(), weight });
            }
            if concurrency == 0 {
                errors.push(ConfigError::NoConcurrency(config.name.clone()));
            }
            let scope = format!("channel {:?}", config.name);
            let handlers = plan_handlers(&scope, mesh, Some(&name), handlers, errors);
            Some(ServerPlan { weight: parsed?, concurrency, handlers })
        }
    };
    Some((name, ChannelPlan { server }))
}

fn plan_handlers(
    scope: &str,
    mesh: &MeshName,
    channel: Option<&ChannelName>,
    registrations: Vec<Registration>,
    errors: &mut Vec<ConfigError>,
) -> Handlers {
    let mut handlers = Handlers::default();
    for registration in registrations {
        let (kind, packet) = (registration.kind, registration.packet.clone());
        parse_name("packet name", &packet, PacketName::parse, errors);
        if !handlers.add(kind, registration.into_handler(mesh.clone(), channel.cloned())) {
            let (scope, kind) = (scope.to_owned(), kind.name());
            errors.push(ConfigError::DuplicateHandler { scope, kind, packet });
        }
    }
    handlers
}

fn parse_name<T, E>(
    what: &'static str,
    text: &str,
    parse: impl Fn(&str) -> Result<T, E>,
    errors: &mut Vec<ConfigError>,
) -> Option<T> {
    let parsed = parse(text).ok();
    if parsed.is_none() {
        let reason = "1 to 255 bytes without NUL";
        errors.push(ConfigError::Name { what, text: text.to_owned(), reason });
    }
    parsed
}

fn check_timeout(what: &'static str, time: Duration, errors: &mut Vec<ConfigError>) {
    if time.is_zero() || time > TIMEOUT_MAX {
        errors.push(ConfigError::Timeout { what });
    }
}

fn bad_endpoint(mesh: &RouteMeshBuilder, endpoint: &str, reason: &'static str) -> ConfigError {
    ConfigError::Endpoint { mesh: mesh.name.clone(), endpoint: endpoint.to_owned(), reason }
}

/// `host:port` or `[v6]:port`; the host without its brackets.
fn split_endpoint(endpoint: &str) -> Option<(&str, u16)> {
    let (host, port) = endpoint.rsplit_once(':')?;
    let inner = host.strip_prefix('[').and_then(|rest| rest.strip_suffix(']'));
    let host = match inner {
        Some(v6) => v6.parse::<Ipv6Addr>().ok().map(|_| v6)?,
        None => host,
    };
    let plain = !host.is_empty() && (inner.is_some() || !host.contains(':'));
    plain.then_some((host, port.parse().ok()?))
}

fn is_wildcard(host: &str) -> bool {
    matches!(host, "*" | "") || host.parse::<IpAddr>().is_ok_and(|ip| ip.is_unspecified())
}

fn is_loopback(host: &str) -> bool {
    host == "localhost" || host.parse::<IpAddr>().is_ok_and(|ip| ip.is_loopback())
}

/// `host:port` as a peer dials it.
pub(crate) fn endpoint(host: &str, port: u16) -> String {
    match host.parse::<Ipv6Addr>() {
        Ok(_) => format!("[{host}]:{port}"),
        Err(_) => format!("{host}:{port}"),
    }
}
