//! The node task: feeds the core with events and carries its effects out.

use std::collections::BTreeMap;
use std::sync::atomic::Ordering;
use std::sync::{Arc, PoisonError};

use carlos_bucket::ContextEntropy;
use carlos_protocol::mesh::{PEERS_LISTED, PeerSight, Record, Rid};
use tokio::sync::{Semaphore, mpsc, watch};
use tokio_util::sync::CancellationToken;

use super::conn::{self, Command, Surroundings};
use super::locate::Own;
use super::shared::{Channel, Peer, Port, Shared};
use crate::core::{Candidate, Cause, ConnId, Core, Effect, Event};
use crate::delivery::Owner;
use crate::error::CallError;
use crate::link::Link;
use crate::monitor::{ChannelStatus, MeshStatus, PeerStatus};
use crate::net::Listener;

/// Commands that a connection may have before it: greet, admit, close.
const COMMANDS: usize = 8;

/// Connections that are still greeting: silent ones cost their place for five seconds.
const GREETINGS: usize = 256;

/// Events handled before effects are carried out.
const BATCH: usize = 64;

/// A connection that was accepted.
pub(crate) type Accepted = (ConnId, mpsc::Sender<Command>);

/// Everything of a node task.
pub(crate) struct Node {
    pub(crate) shared: Arc<Shared>,
    pub(crate) core: Core,
    pub(crate) around: Surroundings,
    pub(crate) events: mpsc::Receiver<Event>,
    pub(crate) accepted: mpsc::Receiver<Accepted>,
    pub(crate) own: watch::Sender<Own>,
    pub(crate) lookups: Option<mpsc::Sender<Rid>>,
    pub(crate) status: watch::Sender<MeshStatus>,
    pub(crate) conns: BTreeMap<ConnId, Handle>,
    pub(crate) store_answers: bool,
}

/// A connection as the node task holds it.
pub(crate) struct Handle {
    commands: mpsc::Sender<Command>,
    link: Option<Arc<Link>>,
}

impl Node {
    /// Runs until `stop`.
    pub(crate) async fn run(mut self, stop: CancellationToken) {
        let ctx = self.around.ctx.clone();
        let mut dice = ctx.entropy();
        self.refresh();
        loop {
            let now = ctx.monotonic();
            let wake = self.core.next_wake().map(|at| at.saturating_sub(now));
            let sleep = async {
                match wake {
                    Some(wait) => ctx.sleep(wait).await,
                    None => std::future::pending().await,
                }
            };
            let event = tokio::select! {
                biased;
                () = stop.cancelled() => break,
                event = self.events.recv() => event,
                () = sleep => None,
            };
            self.take_accepted();
            match event {
                Some(event) => self.take(event, &mut dice),
                None => self.core.tick(ctx.monotonic(), &mut dice),
            }
            self.take_more(&mut dice);
            self.carry_out();
        }
        self.close_all();
    }

    fn take_more(&mut self, dice: &mut ContextEntropy) {
        for _ in 0..BATCH {
            let Ok(event) = self.events.try_recv() else { return };
            self.take_accepted();
            self.take(event, dice);
        }
    }

    fn take_accepted(&mut self) {
        while let Ok((conn, commands)) = self.accepted.try_recv() {
            self.conns.insert(conn, Handle { commands, link: None });
        }
    }

    fn take(&mut self, event: Event, dice: &mut ContextEntropy) {
        match &event {
            Event::Closed(conn, cause) => {
                tracing::debug!(mesh = %self.shared.mesh, ?conn, ?cause, "connection closed");
                self.conns.remove(conn);
            }
            Event::Listing(_) => self.store_answers = true,
            Event::StoreFailed => self.store_answers = false,
            _ => {}
        }
        self.core.handle(self.around.ctx.monotonic(), event, dice);
    }

    fn carry_out(&mut self) {
        let mut changed = false;
        while let Some(effect) = self.core.next_effect() {
            match effect {
                Effect::Dial(conn, target, hello) => {
                    let (commands, inbox) = mpsc::channel(COMMANDS);
                    self.conns.insert(conn, Handle { commands, link: None });
                    let around = self.around.clone();
                    self.around.ctx.spawn(conn::dial(around, conn, target, hello, inbox));
                }
                Effect::Greet(conn, hello) => self.command(conn, Command::Greet(hello)),
                Effect::Admit(conn, admission) => {
                    let limit = self.shared.router.send_high_water_mark;
                    let link = Arc::new(Link::new(&admission.peer, admission.window, limit));
                    if let Some(handle) = self.conns.get_mut(&conn) {
                        handle.link = Some(Arc::clone(&link));
                    }
                    self.command(conn, Command::Admit(link));
                }
                Effect::Reject(conn, reason) => self.command(conn, Command::Reject(reason)),
                Effect::Ready(rid) => {
                    tracing::info!(mesh = %self.shared.mesh, peer = %rid, "peer ready");
                }
                Effect::Close(conn, cause) => self.close(conn, cause),
                Effect::Probe(conn, id) => self.control(conn, &Record::Probe(id)),
                Effect::Update(conn, node) => {
                    self.control(conn, &Record::Update(&node.to_bytes()));
                }
                Effect::Publish | Effect::Changed => changed = true,
                Effect::LookUp(rid) => self.look_up(rid),
            }
        }
        if changed {
            self.refresh();
        }
    }

    /// Without a store there is no answer; the connection's own time runs out.
    fn look_up(&self, rid: Rid) {
        if let Some(lookups) = &self.lookups
            && lookups.try_send(rid).is_err()
        {
            tracing::warn!("too many look-ups at once");
        }
    }

    /// A connection has room for all commands there are; one that is gone needs none.
    fn command(&self, conn: ConnId, command: Command) {
        if let Some(handle) = self.conns.get(&conn) {
            let _ = handle.commands.try_send(command);
        }
    }

    fn control(&self, conn: ConnId, record: &Record<'_>) {
        if let Some(link) = self.conns.get(&conn).and_then(|handle| handle.link.as_ref()) {
            link.lane.control(record);
        }
    }

    /// A link that ends in good order still sends what it holds; another ends at once.
    fn close(&self, conn: ConnId, cause: Cause) {
        let Some(handle) = self.conns.get(&conn) else { return };
        match (&handle.link, cause) {
            (Some(link), Cause::Stopped) => link.lane.close(),
            _ => self.command(conn, Command::Close),
        }
        if let Some(link) = &handle.link {
            link.requests.close(&CallError::Unavailable("the link was closed".into()));
        }
    }

    fn close_all(&self) {
        for handle in self.conns.values() {
            // Without its handle a link sends what it holds, and ends.
            match &handle.link {
                Some(link) => link.requests.close(&CallError::ShuttingDown),
                None => {
                    let _ = handle.commands.try_send(Command::Close);
                }
            }
        }
    }

    /// Swaps the tables that callers read, each at once.
    fn refresh(&self) {
        self.refresh_peers();
        let channels = self.shared.channels.values();
        let channels: Vec<ChannelStatus> =
            channels.map(|channel| self.refresh_channel(channel)).collect();
        let peers: Vec<PeerStatus> = self.peer_statuses();
        let sights = peers
            .iter()
            .take(PEERS_LISTED)
            .map(|peer| PeerSight { rid: peer.rid.clone(), state: peer.state.name().to_owned() });
        let own = Own { descriptor: self.core.me().clone(), peers: sights.collect() };
        self.own.send_replace(own);
        self.status.send_modify(|status| {
            status.state = self.core.me().state;
            status.store_answers = self.store_answers;
            status.peers = peers;
            status.channels = channels;
            status.sequence += 1;
        });
    }

    fn refresh_channel(&self, channel: &Arc<Channel>) -> ChannelStatus {
        let view = self.core.channel(&channel.name);
        let candidates = view.candidates.into_iter().filter_map(|(rid, weight, conn)| {
            let port = match conn {
                None => Port::Local(self.owner(channel)?),
                Some(conn) => self.remote_port(channel, &rid, conn)?,
            };
            Some(Candidate { rid, weight, port })
        });
        let candidates: Vec<Candidate<Port>> = candidates.collect();
        let ready_targets = candidates.len();
        let mut targets = channel.targets();
        targets.nobody = view.nobody;
        targets.selector.replace(candidates);
        ChannelStatus { name: channel.name.clone(), ready_targets }
    }

    fn owner(&self, channel: &Channel) -> Option<Arc<Owner>> {
        let index = self.core.me().member_index(&channel.name)?;
        self.shared.owners.get(usize::from(index)).cloned()
    }

    fn remote_port(&self, channel: &Channel, rid: &Rid, conn: ConnId) -> Option<Port> {
        let link = self.conns.get(&conn)?.link.clone()?;
        let index = self.core.descriptor(rid)?.member_index(&channel.name)?;
        Some(Port::Remote(link, index))
    }

    fn refresh_peers(&self) {
        let link_of = |conn: Option<ConnId>| self.conns.get(&conn?)?.link.clone();
        let views = self.core.peers().into_iter();
        let peers = views.map(|view| {
            let peer = Peer { state: view.state, role: view.role, link: link_of(view.conn) };
            (view.rid, peer)
        });
        let peers = peers.collect();
        *self.shared.peers.write().unwrap_or_else(PoisonError::into_inner) = peers;
    }

    fn peer_statuses(&self) -> Vec<PeerStatus> {
        let peers = self.shared.peers.read().unwrap_or_else(PoisonError::into_inner);
        let status = |(rid, peer): (&Rid, &Peer)| PeerStatus {
            rid: rid.clone(),
            state: peer.state,
            selected: peer.link.as_ref().map_or(0, |l| l.selected.load(Ordering::Relaxed)),
        };
        peers.iter().map(status).collect()
    }
}

/// Accepts connections until `stop`; silent ones block nobody.
pub(crate) async fn accept_loop(
    mut listener: Box<dyn Listener>,
    around: Surroundings,
    accepted: mpsc::Sender<Accepted>,
    stop: CancellationToken,
) {
    let greetings = Arc::new(Semaphore::new(GREETINGS));
    for number in 0.. {
        let next = async {
            let permit = Arc::clone(&greetings).acquire_owned().await;
            (listener.accept().await, permit)
        };
        let (stream, permit) = tokio::select! {
            biased;
            () = stop.cancelled() => return,
            next = next => next,
        };
        let (Ok(stream), Ok(permit)) = (stream, permit) else {
            // Out of descriptors, most likely: others must end first.
            around.ctx.sleep(std::time::Duration::from_millis(50)).await;
            continue;
        };
        let conn = ConnId::Accepted(number);
        let (commands, inbox) = mpsc::channel(COMMANDS);
        if accepted.send((conn, commands)).await.is_err() {
            return;
        }
        let task = conn::accept(around.clone(), conn, stream, inbox, permit);
        around.ctx.spawn(task);
    }
}
