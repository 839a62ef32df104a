//! Everything a node decides about its peers, without a clock, a socket or a task.
//!
//! [`Core`] takes [`Event`]s and gives [`Effect`]s. Times are those of the context's monotonic
//! clock, randomness comes in as dice, collections are ordered: one seed gives one run.

mod admission;
mod backoff;
mod directory;
mod event;
mod links;
mod liveness;
mod selector;
#[cfg(test)]
pub(crate) mod testing;
#[cfg(test)]
mod tests;
mod view;

use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

use carlos_protocol::Entropy;
use carlos_protocol::mesh::{
    ChannelName, Descriptor, LinkId, NodeState, Reject, Rid, Weight, connection_needed,
};

pub(crate) use admission::Policy;
pub(crate) use event::{Cause, ConnId, Effect, Event, HANDSHAKE, PeerId, Target};
pub(crate) use selector::{Candidate, Pick, Selector};

use directory::{Applied, Directory};
use links::{Conn, Dial};

/// Look-ups of unknown diallers at once: each costs the store two requests (decision 10).
const LOOK_UPS: usize = 16;

/// How a node treats its peers.
#[derive(Clone, Debug)]
pub(crate) struct Settings {
    pub(crate) policy: Policy,
    /// Peers come from a store.
    pub(crate) automatic: bool,
    /// Any key is welcome where no store could confirm it.
    pub(crate) accept_any: bool,
    /// Between two announcements of a node.
    pub(crate) renew: Duration,
    /// The credit granted to a peer at the start.
    pub(crate) window: u64,
}

/// One node's view of its mesh.
#[derive(Debug)]
pub(crate) struct Core {
    settings: Settings,
    me: Descriptor,
    directory: Directory,
    /// What is dialled because the store names it.
    automatic: BTreeMap<Rid, Dial>,
    /// What is dialled because the application names it.
    manual: BTreeMap<PeerId, (Target, Dial)>,
    conns: BTreeMap<ConnId, Conn>,
    /// The admitted or ready connection of each peer.
    links: BTreeMap<Rid, ConnId>,
    /// The last link that this node dialled to a peer, until another is ready.
    dialled: BTreeMap<Rid, LinkId>,
    /// Peers that need no link, as a handshake found.
    not_required: BTreeMap<Rid, ()>,
    next_conn: u64,
    effects: VecDeque<Effect>,
}

impl Core {
    /// A node that begins to look for peers.
    pub(crate) fn new(settings: Settings, me: Descriptor) -> Self {
        Self {
            settings,
            me,
            directory: Directory::default(),
            automatic: BTreeMap::new(),
            manual: BTreeMap::new(),
            conns: BTreeMap::new(),
            links: BTreeMap::new(),
            dialled: BTreeMap::new(),
            not_required: BTreeMap::new(),
            next_conn: 0,
            effects: VecDeque::new(),
        }
    }

    /// This node's newest descriptor.
    pub(crate) fn me(&self) -> &Descriptor {
        &self.me
    }

    /// The newest descriptor of another node.
    pub(crate) fn descriptor(&self, rid: &Rid) -> Option<&Descriptor> {
        self.directory.get(rid).map(|known| &known.descriptor)
    }

    /// The next thing to do, in the order it was decided.
    pub(crate) fn next_effect(&mut self) -> Option<Effect> {
        self.effects.pop_front()
    }

    /// Takes what happened.
    pub(crate) fn handle(&mut self, now: Duration, event: Event, dice: &mut dyn Entropy) {
        match event {
            Event::Listing(listing) => self.listed(now, &listing),
            Event::StoreFailed => self.directory.store_failed(),
            Event::Found(rid, descriptor) => self.found(now, &rid, descriptor, dice),
            Event::Hello(conn, hello, proven) => self.greeted(now, conn, *hello, proven, dice),
            Event::Admitted(conn) => self.admitted(now, conn),
            Event::Update(conn, descriptor) => self.updated(now, conn, &descriptor, dice),
            Event::Ack(conn, id) => self.acked(now, conn, id),
            Event::Closed(conn, cause) => self.closed(now, conn, cause, dice),
            Event::AddPeer(peer, target) => {
                self.manual.insert(peer, (target, Dial::new(now)));
                self.effects.push_back(Effect::Changed);
            }
            Event::RemovePeer(peer) => self.remove_peer(peer),
            Event::SetWeight(channel, weight) => self.set_weight(&channel, weight),
            Event::SetState(state) => self.set_state(state),
        }
        self.tick(now, dice);
    }

    /// Does what is due.
    pub(crate) fn tick(&mut self, now: Duration, dice: &mut dyn Entropy) {
        self.tick_conns(now, dice);
        if self.me.state == NodeState::Serving {
            self.dial_due(now, dice);
        }
    }

    /// When to tick next.
    pub(crate) fn next_wake(&self) -> Option<Duration> {
        let conns = self.conns.values().map(Conn::next_wake);
        let dials = match self.me.state {
            NodeState::Serving => self.dials_waiting().min(),
            _ => None,
        };
        conns.chain(dials).min()
    }

    fn listed(&mut self, now: Duration, listing: &[Descriptor]) {
        let others: Vec<Descriptor> =
            listing.iter().filter(|node| self.belongs(node)).cloned().collect();
        let gone = self.directory.apply_listing(now, 2 * self.settings.renew, &others);
        for rid in gone {
            self.automatic.remove(&rid);
            self.forget_unless_linked(&rid);
        }
        self.plan_automatic(now);
        self.effects.push_back(Effect::Changed);
    }

    fn belongs(&self, node: &Descriptor) -> bool {
        let trusted = node.trust == self.me.trust
            && self.settings.policy.authority.is_none_or(|key| node.is_vouched_by(&key));
        node.mesh == self.me.mesh && node.rid != self.me.rid && trusted
    }

    /// Of each needed pair, the smaller routing ID dials (routemesh §8).
    fn plan_automatic(&mut self, now: Duration) {
        for (rid, known) in self.directory.iter() {
            let living = known.listed && known.descriptor.state != NodeState::Stopped;
            let needed = connection_needed(&self.me, &known.descriptor);
            if living && needed && self.me.rid < *rid {
                self.automatic.entry(rid.clone()).or_insert_with(|| Dial::new(now));
            }
        }
    }

    /// A node that is neither listed nor connected is nobody.
    fn forget_unless_linked(&mut self, rid: &Rid) {
        let listed = self.directory.get(rid).is_some_and(|known| known.listed);
        if !listed && !self.links.contains_key(rid) {
            self.directory.remove(rid);
            self.dialled.remove(rid);
        }
    }

    fn updated(
        &mut self,
        now: Duration,
        conn: ConnId,
        descriptor: &Descriptor,
        dice: &mut dyn Entropy,
    ) {
        let Some(rid) = self.conns.get(&conn).and_then(Conn::peer) else { return };
        if *rid != descriptor.rid || self.directory.apply(descriptor) == Applied::Contradiction {
            self.end(now, conn, Cause::Protocol, dice);
            return;
        }
        self.effects.push_back(Effect::Changed);
    }

    fn set_weight(&mut self, channel: &ChannelName, weight: Weight) {
        let Some(index) = self.me.member_index(channel) else { return };
        self.me.members[usize::from(index)].weight = weight;
        self.republish();
    }

    fn set_state(&mut self, state: NodeState) {
        if self.me.state != state {
            self.me.state = state;
            self.republish();
        }
    }

    /// Revision, store, peers, then the own table (routemesh §8).
    fn republish(&mut self) {
        self.me.revision = self.me.revision.next();
        self.effects.push_back(Effect::Publish);
        for (&conn, state) in self.conns.iter_mut().filter(|(_, state)| state.is_ready()) {
            state.told = Some(self.me.revision);
            self.effects.push_back(Effect::Update(conn, Box::new(self.me.clone())));
        }
        self.effects.push_back(Effect::Changed);
    }

    fn remove_peer(&mut self, peer: PeerId) {
        let Some((_, dial)) = self.manual.remove(&peer) else { return };
        let linked = dial.peer.as_ref().and_then(|rid| self.links.get(rid)).copied();
        for conn in dial.conn.into_iter().chain(linked) {
            self.effects.push_back(Effect::Close(conn, Cause::Stopped));
        }
        if let Some(rid) = dial.peer {
            self.not_required.remove(&rid);
        }
        self.effects.push_back(Effect::Changed);
    }

    /// The store answered for a dialler that nobody knew.
    fn found(
        &mut self,
        now: Duration,
        rid: &Rid,
        descriptor: Option<Box<Descriptor>>,
        dice: &mut dyn Entropy,
    ) {
        if let Some(descriptor) = descriptor.filter(|found| self.belongs(found)) {
            self.directory.apply(&descriptor);
        }
        let waiting: Vec<ConnId> = self.waiting_for(rid).collect();
        for conn in waiting {
            let Some((hello, proven)) = self.conns.get_mut(&conn).and_then(Conn::take_parked)
            else {
                continue;
            };
            match self.directory.get(rid) {
                Some(_) => self.greeted(now, conn, *hello, proven, dice),
                None => self.refuse(now, conn, Reject::UnknownPeer, dice),
            }
        }
        self.forget_unless_linked(rid);
    }
}
