//! The host: all nodes of one process, from start to shutdown.

use std::collections::BTreeMap;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use carlos_bucket::Context;
use carlos_protocol::ids::Revision;
use carlos_protocol::mesh::{
    ChannelName, DESCRIPTOR_BYTES, Descriptor, Expected, Generation, Identity, Member, MeshName,
    NodeState, Rid, Weight,
};
use thiserror::Error;
use tokio::sync::{mpsc, watch};
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

use super::calls::{CallOptions, ChannelHandle};
use super::conn::Surroundings;
use super::locate::{Locator, Own};
use super::node::{Accepted, Node, accept_loop};
use super::shared::{Channel, Shared};
use crate::config::{
    ConfigErrors, HostPlan, ManualPeer, MeshHostBuilder, NodePlan, PeerIdentity, Protection,
    RidPlan, Trust, endpoint, peer_fits,
};
use crate::core::{Core, Event, PeerId, Policy, Settings, Target};
use crate::delivery::{Mailbox, Owner};
use crate::error::{CallError, NoTarget};
use crate::link::Requests;
use crate::monitor::MeshStatus;
use crate::net::{Keys, Listener, Net, TlsError};
use crate::packet::{Body, Packet};
use crate::store::{Claim, LocationStore, MeshStore, StoreError, StorePace};

/// Events that may wait for a node task: each connection has one at a time.
const EVENTS: usize = 1_024;

/// Look-ups that may wait for the store.
const LOOK_UPS: usize = 16;

/// Tries of a start to reach the store: an outage at the start is said, not waited out.
const CLAIM_TRIES: u32 = 5;

/// Between two of them.
const CLAIM_PAUSE: Duration = Duration::from_secs(1);

/// Between two looks whether handlers have ended, or targets have come.
const LOOK_EVERY: Duration = Duration::from_millis(10);

/// How long a shutdown may take unless it says otherwise.
pub const SHUTDOWN: Duration = Duration::from_secs(30);

/// Why a host does not start.
#[derive(Debug, Error)]
pub enum StartError {
    /// The configuration does not hold; no socket was bound.
    #[error(transparent)]
    Config(#[from] ConfigErrors),
    /// A listener is not bound.
    #[error("mesh {mesh}: {error}")]
    Bind {
        /// The mesh.
        mesh: MeshName,
        /// Why.
        error: io::Error,
    },
    /// The key is not usable.
    #[error("the node's key is not usable: {0}")]
    Key(String),
    /// Another node has the routing ID (routemesh §8).
    #[error("mesh {mesh}: the routing ID {rid} belongs to another node")]
    RidConflict {
        /// The mesh.
        mesh: MeshName,
        /// The routing ID.
        rid: Rid,
    },
    /// More channels than a descriptor holds.
    #[error("mesh {0}: the channels need more than {DESCRIPTOR_BYTES} bytes")]
    DescriptorTooLarge(MeshName),
    /// The store did not answer.
    #[error("mesh {mesh}: {error}")]
    Store {
        /// The mesh.
        mesh: MeshName,
        /// Why.
        error: StoreError,
    },
}

impl From<TlsError> for StartError {
    fn from(error: TlsError) -> Self {
        Self::Key(error.to_string())
    }
}

/// How a shutdown ended.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Shutdown {
    /// Every accepted message was handled.
    Stopped,
    /// The deadline passed first.
    ForceStopped,
}

/// All nodes of one process.
#[derive(Debug)]
pub struct MeshHost {
    ctx: Context,
    nodes: BTreeMap<MeshName, Running>,
    next_peer: AtomicU64,
}

#[derive(Debug)]
struct Running {
    shared: Arc<Shared>,
    protection: Protection,
    /// Ends the tasks that talk to peers and handlers.
    stop: CancellationToken,
    /// Ends the store task, which says goodbye.
    leave: CancellationToken,
    locator: tokio::sync::Mutex<Option<JoinHandle<()>>>,
}

impl MeshHostBuilder {
    /// Checks everything, binds, claims the routing IDs and reads the first lists.
    ///
    /// # Errors
    /// [`StartError`]; what was bound is closed again.
    pub async fn start(self) -> Result<MeshHost, StartError> {
        let plan = self.plan()?;
        let host = MeshHost {
            ctx: plan.context.clone(),
            nodes: BTreeMap::new(),
            next_peer: AtomicU64::new(0),
        };
        host.start_all(plan).await
    }
}

impl MeshHost {
    /// Begins to configure a host.
    pub fn builder() -> MeshHostBuilder {
        MeshHostBuilder::new()
    }

    async fn start_all(mut self, plan: HostPlan) -> Result<Self, StartError> {
        let HostPlan { context, net, store, nodes } = plan;
        for node in nodes {
            let mesh = node.mesh.clone();
            let started = start_node(&context, &net, store.as_deref(), node).await?;
            self.nodes.insert(mesh.clone(), started.0);
            for peer in started.1 {
                // Peers of the plan are checked already.
                let _ = self.add_peer(mesh.as_str(), peer).await;
            }
        }
        Ok(self)
    }

    /// This process's node of a mesh.
    fn node(&self, mesh: &str) -> Result<&Running, CallError> {
        let mesh = MeshName::parse(mesh).ok();
        let node = mesh.and_then(|mesh| self.nodes.get(&mesh));
        node.ok_or(CallError::NoTarget(NoTarget::NotRegistered))
    }

    /// The routing ID of this process's node.
    ///
    /// # Errors
    /// This process has no node of the mesh.
    pub fn rid(&self, mesh: &str) -> Result<Rid, CallError> {
        Ok(self.node(mesh)?.shared.rid.as_ref().clone())
    }

    /// Where peers reach this process's node.
    ///
    /// # Errors
    /// This process has no node of the mesh.
    pub fn endpoint(&self, mesh: &str) -> Result<String, CallError> {
        Ok(self.node(mesh)?.shared.endpoint.clone())
    }

    /// The key that this process's node proves; `None` on a plaintext mesh.
    ///
    /// # Errors
    /// This process has no node of the mesh.
    pub fn identity(&self, mesh: &str) -> Result<Option<Identity>, CallError> {
        Ok(self.node(mesh)?.shared.identity)
    }

    /// A channel of this process, whichever mesh carries it.
    ///
    /// # Errors
    /// The name is not registered here.
    pub fn channel(&self, name: &str) -> Result<ChannelHandle, CallError> {
        let name = ChannelName::parse(name).ok();
        let found = name.and_then(|name| {
            self.nodes.values().find_map(|node| {
                let channel = Arc::clone(node.shared.channels.get(&name)?);
                Some(ChannelHandle { shared: Arc::clone(&node.shared), channel })
            })
        });
        found.ok_or(CallError::NoTarget(NoTarget::NotRegistered))
    }

    /// Sends a one-way message to one server of a channel.
    ///
    /// # Errors
    /// [`CallError`].
    pub async fn send_to_channel<P: Packet>(
        &self,
        channel: &str,
        packet: &P,
    ) -> Result<(), CallError> {
        self.channel(channel)?.send(packet).await
    }

    /// Sends a request to one server of a channel and waits for its reply.
    ///
    /// # Errors
    /// [`CallError`].
    pub async fn request_to_channel<P: Packet, R: Body>(
        &self,
        channel: &str,
        packet: &P,
    ) -> Result<R, CallError> {
        self.channel(channel)?.request(packet).await
    }

    /// Sends a one-way message to a node.
    ///
    /// # Errors
    /// [`CallError`].
    pub async fn send_to_node<P: Packet>(
        &self,
        mesh: &str,
        rid: &Rid,
        packet: &P,
    ) -> Result<(), CallError> {
        self.node(mesh)?.shared.send_to_node(rid, packet, &CallOptions::default()).await
    }

    /// Sends a request to a node and waits for its reply.
    ///
    /// # Errors
    /// [`CallError`].
    pub async fn request_to_node<P: Packet, R: Body>(
        &self,
        mesh: &str,
        rid: &Rid,
        packet: &P,
        options: &CallOptions,
    ) -> Result<R, CallError> {
        self.node(mesh)?.shared.request_to_node(rid, packet, options).await
    }

    /// Changes the weight of a channel that this process serves (routemesh §5).
    ///
    /// # Errors
    /// A weight outside 0 to 10,000, or a channel that is not served here.
    pub async fn set_weight(&self, channel: &str, weight: i64) -> Result<(), CallError> {
        let handle = self.channel(channel)?;
        if !handle.channel.served {
            return Err(CallError::NotConfigured(format!("{channel:?} is not served here")));
        }
        let weight = Weight::new(weight)
            .map_err(|_| CallError::InvalidOperation("a weight is within 0 to 10000"))?;
        let event = Event::SetWeight(handle.channel.name.clone(), weight);
        tell(&handle.shared, event).await
    }

    /// Waits until so many servers of a channel can be selected.
    ///
    /// # Errors
    /// [`CallError::DeadlineExceeded`], or the name is not registered here.
    pub async fn wait_for_targets(
        &self,
        channel: &str,
        count: usize,
        time: Duration,
    ) -> Result<(), CallError> {
        let handle = self.channel(channel)?;
        let mut status = handle.shared.status.clone();
        let name = &handle.channel.name;
        let enough = |status: &MeshStatus| {
            let channel = status.channels.iter().find(|channel| channel.name == *name);
            channel.is_some_and(|channel| channel.ready_targets >= count)
        };
        let wait = status.wait_for(enough);
        match self.ctx.timeout(time, wait).await {
            Ok(Ok(_)) => Ok(()),
            Ok(Err(_)) => Err(CallError::ShuttingDown),
            Err(_) => Err(CallError::DeadlineExceeded),
        }
    }

    /// The mesh as this process sees it now.
    ///
    /// # Errors
    /// This process has no node of the mesh.
    pub fn status(&self, mesh: &str) -> Result<MeshStatus, CallError> {
        Ok(self.node(mesh)?.shared.status.borrow().clone())
    }

    /// The newest status of a mesh, again and again; a slow reader misses some and delays nobody.
    ///
    /// # Errors
    /// This process has no node of the mesh.
    pub fn watch(&self, mesh: &str) -> Result<watch::Receiver<MeshStatus>, CallError> {
        Ok(self.node(mesh)?.shared.status.clone())
    }

    /// Adds a manual peer; gives the number to remove it by.
    ///
    /// # Errors
    /// An endpoint nobody can dial, or no such mesh.
    pub async fn add_peer(&self, mesh: &str, peer: ManualPeer) -> Result<u64, CallError> {
        let node = self.node(mesh)?;
        peer_fits(&peer, node.protection).map_err(CallError::InvalidOperation)?;
        let rid = peer.expected_rid.as_deref().and_then(|rid| Rid::new(rid).ok());
        let identity = match peer.identity {
            PeerIdentity::Key(key) => Some(key),
            PeerIdentity::Any => None,
        };
        let expected = Expected { rid, generation: None, identity };
        let number = self.next_peer.fetch_add(1, Ordering::Relaxed);
        let target = Target { endpoint: peer.endpoint, expected };
        tell(&node.shared, Event::AddPeer(PeerId(number), target)).await?;
        Ok(number)
    }

    /// Removes a manual peer and closes its link.
    ///
    /// # Errors
    /// No such mesh.
    pub async fn remove_peer(&self, mesh: &str, peer: u64) -> Result<(), CallError> {
        tell(&self.node(mesh)?.shared, Event::RemovePeer(PeerId(peer))).await
    }

    /// Takes this process out of new selections; what was submitted, and what names this node,
    /// goes on (routemesh §10).
    pub async fn drain(&self) {
        for node in self.nodes.values() {
            let _ = tell(&node.shared, Event::SetState(NodeState::Draining)).await;
        }
    }

    /// Ends: takes no more work, finishes what was accepted, says so in the store, and closes.
    pub async fn shutdown(&self, deadline: Duration) -> Shutdown {
        self.drain().await;
        for node in self.nodes.values() {
            node.shared.ending.cancel();
            node.shared.owners.iter().for_each(|owner| owner.mailbox.seal());
        }
        let finished = self.ctx.timeout(deadline, self.finish()).await;
        for node in self.nodes.values() {
            node.stop.cancel();
            node.leave.cancel();
            node.shared.local.close(&CallError::ShuttingDown);
        }
        match finished {
            Ok(()) => Shutdown::Stopped,
            Err(_) => Shutdown::ForceStopped,
        }
    }

    async fn finish(&self) {
        while !self.nodes.values().all(Running::is_idle) {
            self.ctx.sleep(LOOK_EVERY).await;
        }
        for node in self.nodes.values() {
            let _ = tell(&node.shared, Event::SetState(NodeState::Stopped)).await;
            let mut status = node.shared.status.clone();
            let _ = status.wait_for(|status| status.state == NodeState::Stopped).await;
            node.leave.cancel();
            // Links end with what they hold; the store hears the last revision.
            node.stop.cancel();
            if let Some(locator) = node.locator.lock().await.take() {
                let _ = locator.await;
            }
        }
    }
}

impl Drop for MeshHost {
    fn drop(&mut self) {
        for node in self.nodes.values() {
            node.shared.ending.cancel();
            node.stop.cancel();
            node.leave.cancel();
        }
    }
}

impl Running {
    fn is_idle(&self) -> bool {
        self.shared.owners.iter().all(|owner| owner.mailbox.is_idle())
    }
}

/// The node task is gone only after the end.
async fn tell(shared: &Shared, event: Event) -> Result<(), CallError> {
    shared.events.send(event).await.map_err(|_| CallError::ShuttingDown)
}

/// A store that knows this node.
struct Joined {
    store: Box<dyn MeshStore>,
    pace: StorePace,
    listing: Vec<Descriptor>,
}

/// What comes out of binding: everything that names the node.
struct Bound {
    listener: Box<dyn Listener>,
    keys: Option<Keys>,
    me: Descriptor,
}

async fn start_node(
    ctx: &Context,
    net: &Arc<dyn Net>,
    store: Option<&dyn LocationStore>,
    mut plan: NodePlan,
) -> Result<(Running, Vec<ManualPeer>), StartError> {
    let bound = bind(ctx, net, &plan).await?;
    let joined = match store {
        Some(store) => Some(join(ctx, store, &bound.me).await?),
        None => None,
    };
    let peers = std::mem::take(&mut plan.peers);
    let listing = joined.as_ref().map(|joined| joined.listing.clone());
    let started = spawn_node(ctx, net, plan, bound, joined);
    if let Some(listing) = listing {
        let _ = tell(&started.shared, Event::Listing(listing)).await;
    }
    Ok((started, peers))
}

async fn bind(ctx: &Context, net: &Arc<dyn Net>, plan: &NodePlan) -> Result<Bound, StartError> {
    let keys = match plan.protection {
        Protection::Plaintext => None,
        Protection::Tls => {
            let mut seed = zeroize::Zeroizing::new([0; 32]);
            ctx.fill(&mut *seed);
            Some(Keys::new(plan.key_seed.as_ref().unwrap_or(&seed))?)
        }
    };
    let listener = net.bind(&plan.bind_host, plan.port).await;
    let listener = listener.map_err(|error| StartError::Bind { mesh: plan.mesh.clone(), error })?;
    let me = describe(ctx, plan, listener.port(), keys.as_ref().map(Keys::identity));
    if me.check().is_err() || me.to_bytes().len() > DESCRIPTOR_BYTES {
        return Err(StartError::DescriptorTooLarge(plan.mesh.clone()));
    }
    Ok(Bound { listener, keys, me })
}

fn describe(ctx: &Context, plan: &NodePlan, port: u16, identity: Option<Identity>) -> Descriptor {
    let servers = plan.channels.iter().filter_map(|(name, channel)| {
        let server = channel.server.as_ref()?;
        Some(Member { channel: name.clone(), weight: server.weight })
    });
    let mut dice = ctx.entropy();
    let vouch = match &plan.trust {
        Trust::Bucket => String::new(),
        Trust::Authority { vouch, .. } => vouch.clone(),
    };
    Descriptor {
        v: 1,
        mesh: plan.mesh.clone(),
        rid: match &plan.rid {
            RidPlan::Fixed(rid) => rid.clone(),
            RidPlan::Automatic(prefix) => Rid::mint(prefix, &mut dice),
        },
        generation: Generation::mint(&mut dice),
        revision: Revision::FIRST,
        endpoint: endpoint(&plan.advertise_host, port),
        identity,
        trust: plan.trust.profile(),
        vouch,
        role: plan.role,
        members: servers.collect(),
        state: NodeState::Serving,
    }
}

/// Claims the routing ID, announces it and reads the first list (decisions 4 and 20).
async fn join(
    ctx: &Context,
    store: &dyn LocationStore,
    me: &Descriptor,
) -> Result<Joined, StartError> {
    let failed = |error| StartError::Store { mesh: me.mesh.clone(), error };
    let mut mesh = store.mesh(&me.mesh);
    let mut tries = 1;
    loop {
        let claimed = match mesh.claim(me).await {
            Ok(Claim::Taken) => {
                let (mesh, rid) = (me.mesh.clone(), me.rid.clone());
                return Err(StartError::RidConflict { mesh, rid });
            }
            Ok(Claim::Claimed) => enter(mesh.as_mut(), me).await,
            Err(error) => Err(error),
        };
        match claimed {
            Ok(listing) => return Ok(Joined { store: mesh, pace: store.pace(), listing }),
            Err(error) if tries >= CLAIM_TRIES => return Err(failed(error)),
            Err(_) => ctx.sleep(CLAIM_PAUSE).await,
        }
        tries += 1;
    }
}

async fn enter(mesh: &mut dyn MeshStore, me: &Descriptor) -> Result<Vec<Descriptor>, StoreError> {
    mesh.announce(me, me.revision, &[]).await?;
    mesh.list().await
}

fn spawn_node(
    ctx: &Context,
    net: &Arc<dyn Net>,
    plan: NodePlan,
    bound: Bound,
    joined: Option<Joined>,
) -> Running {
    let Bound { listener, keys, me } = bound;
    let protection = plan.protection;
    let settings = settings(&plan, joined.as_ref());
    let (events, inbox) = mpsc::channel(EVENTS);
    let (status, watched) = watch::channel(first_status(&me));
    let shared = Arc::new(share(ctx, plan, &me, &events, watched));
    let around = Surroundings {
        ctx: ctx.clone(),
        net: Arc::clone(net),
        keys,
        owners: Arc::clone(&shared.owners),
        window: shared.router.receive_high_water_mark,
        events: events.clone(),
    };
    let (stop, leave) = (CancellationToken::new(), CancellationToken::new());
    let (own, own_seen) = watch::channel(Own { descriptor: me.clone(), peers: Vec::new() });
    let (lookups, lookups_seen) = mpsc::channel(LOOK_UPS);
    let automatic = joined.is_some();
    let locator = joined.map(|Joined { store, pace, .. }| {
        let (ctx, own, lookups) = (ctx.clone(), own_seen, lookups_seen);
        let locator = Locator { store, pace, ctx: ctx.clone(), own, events, lookups };
        ctx.spawn(locator.run(leave.clone()))
    });
    for owner in shared.owners.iter() {
        ctx.spawn(Arc::clone(owner).run(ctx.clone(), stop.clone()));
    }
    let (accepts, accepted): (mpsc::Sender<Accepted>, _) = mpsc::channel(EVENTS);
    ctx.spawn(accept_loop(listener, around.clone(), accepts, stop.clone()));
    let node = Node {
        shared: Arc::clone(&shared),
        core: Core::new(settings, me),
        around,
        events: inbox,
        accepted,
        own,
        lookups: automatic.then_some(lookups),
        status,
        conns: BTreeMap::new(),
        store_answers: true,
    };
    ctx.spawn(node.run(stop.clone()));
    Running { shared, protection, stop, leave, locator: tokio::sync::Mutex::new(locator) }
}

fn settings(plan: &NodePlan, joined: Option<&Joined>) -> Settings {
    let authority = match &plan.trust {
        Trust::Bucket => None,
        Trust::Authority { key, .. } => Some(*key),
    };
    let plaintext = plan.protection == Protection::Plaintext;
    Settings {
        policy: Policy { plaintext, authority },
        automatic: joined.is_some(),
        accept_any: plan.accept_any,
        renew: joined.map_or(StorePace::STANDARD.renew, |joined| joined.pace.renew),
        window: plan.router.receive_high_water_mark,
    }
}

fn first_status(me: &Descriptor) -> MeshStatus {
    MeshStatus {
        mesh: me.mesh.clone(),
        rid: me.rid.clone(),
        state: NodeState::Serving,
        store_answers: true,
        peers: Vec::new(),
        channels: Vec::new(),
        sequence: 0,
    }
}

fn share(
    ctx: &Context,
    plan: NodePlan,
    me: &Descriptor,
    events: &mpsc::Sender<Event>,
    status: watch::Receiver<MeshStatus>,
) -> Shared {
    let router = plan.router;
    let owner = |name: String, concurrency, handlers| {
        let mailbox = Mailbox::new(router.messages(), router.bytes());
        Arc::new(Owner { name, handlers, mailbox, concurrency, stats: Default::default() })
    };
    let (mut channels, mut owners) = (BTreeMap::new(), Vec::new());
    // By name, as the descriptor lists its memberships.
    for (name, channel) in plan.channels {
        let served = channel.server.is_some();
        if let Some(server) = channel.server {
            owners.push(owner(name.to_string(), server.concurrency, server.handlers));
        }
        channels.insert(name.clone(), Arc::new(Channel::new(name, served)));
    }
    owners.push(owner("node".to_owned(), plan.node_concurrency, plan.node_handlers));
    Shared {
        mesh: me.mesh.clone(),
        rid: Arc::new(me.rid.clone()),
        identity: me.identity,
        endpoint: me.endpoint.clone(),
        ctx: ctx.clone(),
        router,
        request_timeout: plan.request_timeout,
        channels,
        owners: owners.into(),
        peers: Default::default(),
        local: Arc::<Requests>::default(),
        events: events.clone(),
        status,
        ending: CancellationToken::new(),
    }
}
