//! Cores that talk to each other through a list of effects: no clock, no sockets.

use std::collections::BTreeMap;
use std::time::Duration;

use carlos_protocol::mesh::{
    Descriptor, Expected, Generation, NodeState, ObjectRole, Reject, Rid, Weight,
};

use super::testing::{Dice, descriptor};
use super::*;
use crate::error::NoTarget;
use crate::monitor::PeerState;

const SECOND: Duration = Duration::from_secs(1);

/// Nodes by name, and the connections between them.
struct World {
    now: Duration,
    cores: BTreeMap<String, Core>,
    dice: Dice,
    /// Both ends of every connection, dialler first.
    wires: Vec<((String, ConnId), (String, ConnId))>,
    accepted: u64,
    /// Endpoints that do not answer.
    cut: Vec<String>,
    log: Vec<String>,
}

fn settings(automatic: bool) -> Settings {
    Settings {
        policy: Policy { plaintext: true, authority: None },
        automatic,
        accept_any: false,
        renew: 60 * SECOND,
        window: 1_000,
    }
}

impl World {
    fn new(nodes: Vec<Descriptor>, automatic: bool) -> Self {
        let core = |me: Descriptor| (me.rid.to_string(), Core::new(settings(automatic), me));
        Self {
            now: SECOND,
            cores: nodes.into_iter().map(core).collect(),
            dice: Dice::new(5),
            wires: Vec::new(),
            accepted: 0,
            cut: Vec::new(),
            log: Vec::new(),
        }
    }

    fn tell(&mut self, name: &str, event: Event) {
        let core = self.cores.get_mut(name).expect("a node");
        core.handle(self.now, event, &mut self.dice);
        self.settle();
    }

    /// Everybody sees everybody in the store.
    fn list(&mut self) {
        let all: Vec<Descriptor> = self.cores.values().map(|core| core.me().clone()).collect();
        let names: Vec<String> = self.cores.keys().cloned().collect();
        for name in names {
            self.tell(&name, Event::Listing(all.clone()));
        }
    }

    /// Lets time pass in steps of a tenth of a second.
    fn pass(&mut self, seconds: u64) {
        for _ in 0..seconds * 10 {
            self.now += SECOND / 10;
            for core in self.cores.values_mut() {
                core.tick(self.now, &mut self.dice);
            }
            self.settle();
        }
    }

    fn settle(&mut self) {
        loop {
            let next = self
                .cores
                .iter_mut()
                .find_map(|(name, core)| core.next_effect().map(|effect| (name.clone(), effect)));
            let Some((name, effect)) = next else { return };
            self.carry_out(&name, effect);
        }
    }

    fn carry_out(&mut self, name: &str, effect: Effect) {
        match effect {
            Effect::Dial(conn, target, hello) => self.dial(name, conn, &target, *hello),
            Effect::Greet(conn, hello) => {
                self.pass_on(name, conn, |conn| Event::Hello(conn, hello, None))
            }
            Effect::Admit(conn, _) => self.pass_on(name, conn, Event::Admitted),
            Effect::Reject(conn, reason) => {
                self.log.push(format!("{name} refuses {reason:?}"));
                self.hang_up(name, conn, Cause::RefusedByPeer(reason));
            }
            Effect::Close(conn, cause) => {
                self.log.push(format!("{name} closes {cause:?}"));
                self.hang_up(name, conn, Cause::Ended);
            }
            Effect::Probe(conn, id) => {
                if self.other(name, conn).is_some() {
                    self.deliver(name.to_owned(), Event::Ack(conn, id));
                }
            }
            Effect::Update(conn, node) => {
                self.pass_on(name, conn, |conn| Event::Update(conn, node))
            }
            Effect::LookUp(rid) => {
                let found = self.cores.get(&rid.to_string()).map(|core| core.me().clone());
                self.deliver(name.to_owned(), Event::Found(rid, found.map(Box::new)));
            }
            Effect::Ready(rid) => self.log.push(format!("{name} ready {rid}")),
            Effect::Publish | Effect::Changed => {}
        }
    }

    fn dial(
        &mut self,
        name: &str,
        conn: ConnId,
        target: &Target,
        hello: carlos_protocol::mesh::Hello,
    ) {
        self.log.push(format!("{name} dials {}", target.endpoint));
        let at = |core: &Core| core.me().endpoint == target.endpoint;
        let peer = self.cores.iter().find(|(_, core)| at(core)).map(|(name, _)| name.clone());
        let Some(peer) = peer.filter(|_| !self.cut.contains(&target.endpoint)) else {
            return self.deliver(name.to_owned(), Event::Closed(conn, Cause::Unreachable));
        };
        self.accepted += 1;
        let other = ConnId::Accepted(self.accepted);
        self.wires.push(((name.to_owned(), conn), (peer.clone(), other)));
        self.deliver(peer, Event::Hello(other, Box::new(hello), None));
    }

    fn other(&self, name: &str, conn: ConnId) -> Option<(String, ConnId)> {
        self.wires.iter().find_map(|(a, b)| {
            match (a.0 == name && a.1 == conn, b.0 == name && b.1 == conn) {
                (true, _) => Some(b.clone()),
                (_, true) => Some(a.clone()),
                _ => None,
            }
        })
    }

    fn pass_on(&mut self, name: &str, conn: ConnId, event: impl FnOnce(ConnId) -> Event) {
        if let Some((peer, other)) = self.other(name, conn) {
            self.deliver(peer, event(other));
        }
    }

    fn hang_up(&mut self, name: &str, conn: ConnId, cause: Cause) {
        let Some((peer, other)) = self.other(name, conn) else { return };
        self.wires.retain(|(a, b)| *a != (peer.clone(), other) && *b != (peer.clone(), other));
        self.deliver(peer, Event::Closed(other, cause));
    }

    fn deliver(&mut self, name: String, event: Event) {
        let core = self.cores.get_mut(&name).expect("a node");
        core.handle(self.now, event, &mut self.dice);
    }

    fn states(&self, name: &str) -> Vec<(String, PeerState)> {
        let peers = self.cores[name].peers();
        peers.into_iter().map(|peer| (peer.rid.to_string(), peer.state)).collect()
    }

    fn ready(&self, name: &str) -> usize {
        self.states(name).iter().filter(|(_, state)| *state == PeerState::Ready).count()
    }

    fn count(&self, text: &str) -> usize {
        self.log.iter().filter(|line| line.contains(text)).count()
    }
}

fn manual(to: &str) -> Target {
    Target { endpoint: format!("{to}.example:7001"), expected: Expected::default() }
}

#[test]
fn the_smaller_routing_id_dials() {
    let mut world = World::new(["a", "b", "c"].map(descriptor).into(), true);
    world.list();
    world.list();
    for name in ["a", "b", "c"] {
        assert_eq!(world.ready(name), 2, "{:?}", world.log);
    }
    assert_eq!((world.count("a dials"), world.count("b dials"), world.count("c dials")), (2, 1, 0));
    let view = world.cores["a"].channel(&"match".parse().expect("a name"));
    assert_eq!(view.candidates.len(), 3, "itself included");
}

#[test]
fn a_double_manual_dial_leaves_the_smaller_ones_link() {
    let mut world = World::new(["a", "b"].map(descriptor).into(), false);
    world.cut = vec!["a.example:7001".into(), "b.example:7001".into()];
    world.tell("a", Event::AddPeer(PeerId(1), manual("b")));
    world.tell("b", Event::AddPeer(PeerId(1), manual("a")));
    world.cut.clear();
    world.pass(10);
    assert_eq!((world.ready("a"), world.ready("b")), (1, 1));
    assert_eq!(world.wires.len(), 1, "{:?}", world.log);
    let dials = world.count("dials");
    world.pass(60);
    assert_eq!(world.count("dials"), dials);
}

#[test]
fn two_idle_object_clients_are_not_required_and_not_repeated() {
    let client = |name: &str| Descriptor {
        role: ObjectRole::Client,
        members: Vec::new(),
        ..descriptor(name)
    };
    let mut world = World::new(["a", "b"].map(client).into(), false);
    world.tell("a", Event::AddPeer(PeerId(1), manual("b")));
    world.pass(120);
    assert_eq!(world.states("a"), [("b".to_owned(), PeerState::NotRequired)]);
    assert_eq!(world.states("b"), [("a".to_owned(), PeerState::NotRequired)]);
    assert_eq!(world.count("dials"), 1, "{:?}", world.log);
    world.tell("a", Event::RemovePeer(PeerId(1)));
    world.tell("a", Event::AddPeer(PeerId(2), manual("b")));
    world.pass(60);
    assert_eq!(world.count("dials"), 2, "a new intent is one new attempt");
}

#[test]
fn a_pair_of_automatic_object_clients_is_never_dialled() {
    let client = |name: &str| Descriptor {
        role: ObjectRole::Client,
        members: Vec::new(),
        ..descriptor(name)
    };
    let mut world = World::new(["a", "b"].map(client).into(), true);
    world.list();
    world.list();
    world.pass(60);
    assert_eq!(world.count("dials"), 0);
    assert_eq!(world.states("a"), [("b".to_owned(), PeerState::NotRequired)]);
}

#[test]
fn a_weight_reaches_peers_and_keeps_the_link() {
    let mut world = World::new(["a", "b"].map(descriptor).into(), true);
    world.list();
    let channel: ChannelName = "match".parse().expect("a name");
    world.tell("b", Event::SetWeight(channel.clone(), Weight::ZERO));
    let view = world.cores["a"].channel(&channel);
    assert_eq!(view.candidates.len(), 1, "only itself is left");
    assert_eq!((world.count("dials"), world.count("closes")), (1, 0));
    world.tell("b", Event::SetState(NodeState::Draining));
    assert_eq!(world.states("a"), [("b".to_owned(), PeerState::Draining)]);
}

#[test]
fn a_silent_peer_is_closed_after_fifteen_seconds_and_dialled_again() {
    let mut world = World::new(["a", "b"].map(descriptor).into(), true);
    world.list();
    assert_eq!(world.ready("a"), 1);
    // Nothing arrives any more, and nobody is told.
    world.wires.clear();
    world.cut = vec!["b.example:7001".into()];
    world.pass(14);
    assert_eq!(world.ready("a"), 1);
    world.pass(2);
    assert_eq!(world.states("a"), [("b".to_owned(), PeerState::NotConnected)]);
    assert!(world.count("closes Lost") >= 1);
    world.cut.clear();
    world.pass(6);
    assert_eq!((world.ready("a"), world.ready("b")), (1, 1), "{:?}", world.log);
}

#[test]
fn a_half_open_link_does_not_hold_its_dialler_up() {
    let mut world = World::new(["a", "b"].map(descriptor).into(), true);
    world.list();
    // The dialler saw a reset that the acceptor did not.
    let ((_, conn), _) = world.wires.pop().expect("one link");
    world.tell("a", Event::Closed(conn, Cause::Ended));
    world.pass(1);
    assert_eq!(world.ready("a"), 1, "{:?}", world.log);
    assert_eq!(world.count("b closes Replaced"), 1);
}

#[test]
fn a_restarted_fixed_id_waits_for_the_end_of_its_old_link() {
    let mut world = World::new(["a", "b"].map(descriptor).into(), false);
    world.tell("a", Event::AddPeer(PeerId(1), manual("b")));
    assert_eq!(world.ready("a"), 1);
    // b is another process now, and a does not know yet.
    let mut again = descriptor("b");
    again.generation = Generation::new(8).expect("not zero");
    world.cores.insert("b".into(), Core::new(settings(false), again));
    world.tell("b", Event::AddPeer(PeerId(1), manual("a")));
    assert!(world.count("a refuses LifecycleGenerationStale") >= 1, "{:?}", world.log);
    world.wires.clear();
    world.pass(25);
    assert_eq!((world.ready("a"), world.ready("b")), (1, 1), "{:?}", world.log);
    assert_eq!(world.wires.len(), 1);
}

#[test]
fn an_unexpected_routing_id_fails_that_link_only() {
    let mut world = World::new(["a", "b", "c"].map(descriptor).into(), false);
    let mut wrong = manual("b");
    wrong.expected.rid = Some(Rid::parse("z").expect("an id"));
    world.tell("a", Event::AddPeer(PeerId(1), wrong));
    world.tell("a", Event::AddPeer(PeerId(2), manual("c")));
    world.pass(5);
    assert_eq!(world.ready("a"), 1);
    assert!(world.count("refuses IdentityMismatch") >= 1, "{:?}", world.log);
}

#[test]
fn an_unknown_dialler_is_looked_up_once() {
    let mut world = World::new(["a", "b"].map(descriptor).into(), true);
    let all: Vec<Descriptor> = world.cores.values().map(|core| core.me().clone()).collect();
    world.tell("a", Event::Listing(all));
    assert_eq!((world.ready("a"), world.ready("b")), (1, 1), "{:?}", world.log);
}

#[test]
fn an_outage_dials_nothing_new_and_keeps_what_is_ready() {
    let mut world = World::new(["a", "b", "c"].map(descriptor).into(), true);
    world.cut = vec!["c.example:7001".into()];
    world.list();
    world.list();
    assert_eq!(world.ready("a"), 1);
    for name in ["a", "b", "c"] {
        world.tell(name, Event::StoreFailed);
    }
    world.cut.clear();
    world.pass(60);
    assert_eq!(world.ready("a"), 1, "c was never ready");
    let ((dialler, conn), _) = world.wires[0].clone();
    world.hang_up(&dialler, conn, Cause::Ended);
    world.tell(&dialler, Event::Closed(conn, Cause::Ended));
    world.pass(6);
    assert_eq!(world.ready("a"), 1, "b was ready: it may be dialled");
    world.list();
    world.pass(6);
    assert_eq!(world.ready("a"), 2, "{:?}", world.log);
}

#[test]
fn reasons_why_nobody_is_there() {
    let mut world = World::new(["a", "b"].map(descriptor).into(), true);
    let channel: ChannelName = "match".parse().expect("a name");
    world.tell("a", Event::SetWeight(channel.clone(), Weight::ZERO));
    let nobody = |world: &World| world.cores["a"].channel(&channel).nobody;
    assert_eq!(nobody(&world), NoTarget::WeightZero);
    world.cut = vec!["b.example:7001".into()];
    world.list();
    assert_eq!(nobody(&world), NoTarget::NotReady);
    let none: ChannelName = "none".parse().expect("a name");
    assert_eq!(world.cores["a"].channel(&none).nobody, NoTarget::NotPublished);
    world.tell("b", Event::SetState(NodeState::Draining));
    world.list();
    assert_eq!(nobody(&world), NoTarget::Draining);
}

#[test]
fn a_stale_generation_is_refused() {
    let mut world = World::new(["a", "b"].map(descriptor).into(), true);
    world.list();
    let mut hello = super::testing::hello_of(&descriptor("b"));
    hello.descriptor.generation = Generation::new(9).expect("not zero");
    world.tell("a", Event::Hello(ConnId::Accepted(99), Box::new(hello), None));
    assert_eq!(world.count("a refuses LifecycleGenerationStale"), 1);
    assert_eq!(Reject::LifecycleGenerationStale.code(), 6);
    assert_eq!(world.ready("a"), 1);
}
