//! Connections and what is dialled (routemesh §8, decisions 9 to 13).

use std::time::Duration;

use carlos_protocol::Entropy;
use carlos_protocol::ids::Revision;
use carlos_protocol::mesh::{
    CAPABILITY, Descriptor, Expected, Generation, Hello, Identity, LinkId, NodeState, Reject, Rid,
    VERSION,
};

use super::admission::{self, Contest, Rival};
use super::backoff;
use super::directory::Applied;
use super::event::{Admission, Cause, ConnId, Effect, HANDSHAKE, PeerId, Target};
use super::liveness::{Due, Liveness};
use super::{Core, LOOK_UPS};

/// One thing to dial, and how that goes.
#[derive(Debug)]
pub(super) struct Dial {
    /// Not before this.
    next: Duration,
    /// In a row.
    failures: u32,
    pub(super) conn: Option<ConnId>,
    /// Who answered last.
    pub(super) peer: Option<Rid>,
    /// It was ready once: what may be dialled again while the store is away.
    was_ready: bool,
    /// The pair needs no link: never dialled again (routemesh §9).
    pub(super) not_required: bool,
}

impl Dial {
    pub(super) fn new(now: Duration) -> Self {
        Self {
            next: now,
            failures: 0,
            conn: None,
            peer: None,
            was_ready: false,
            not_required: false,
        }
    }

    fn is_idle(&self) -> bool {
        self.conn.is_none() && !self.not_required
    }
}

/// Whose dial a connection is.
#[derive(Clone, Debug)]
enum DialKey {
    Automatic(Rid),
    Manual(PeerId),
}

/// One connection.
#[derive(Debug)]
pub(super) struct Conn {
    dial: Option<DialKey>,
    expected: Expected,
    link: LinkId,
    peer: Option<Rid>,
    generation: Option<Generation>,
    started: Duration,
    stage: Stage,
    /// The revision that the peer has of us.
    pub(super) told: Option<Revision>,
}

#[derive(Debug)]
enum Stage {
    /// The peer has said nothing.
    Greeting,
    /// The peer's hello waits for the store.
    Parked(Box<Hello>, Option<Identity>),
    /// We took the peer in; it has not said the same.
    Admitted,
    /// Both did.
    Ready(Liveness),
}

impl Conn {
    fn new(now: Duration, link: LinkId, dial: Option<DialKey>, expected: Expected) -> Self {
        let (peer, generation, told) = (None, None, None);
        Self { dial, expected, link, peer, generation, started: now, stage: Stage::Greeting, told }
    }

    pub(super) fn peer(&self) -> Option<&Rid> {
        self.peer.as_ref()
    }

    pub(super) fn expected_rid(&self) -> Option<&Rid> {
        self.expected.rid.as_ref()
    }

    pub(super) fn is_ready(&self) -> bool {
        matches!(self.stage, Stage::Ready(_))
    }

    pub(super) fn next_wake(&self) -> Duration {
        match &self.stage {
            Stage::Ready(liveness) => liveness.next_wake(),
            _ => self.started + HANDSHAKE,
        }
    }

    pub(super) fn take_parked(&mut self) -> Option<(Box<Hello>, Option<Identity>)> {
        match std::mem::replace(&mut self.stage, Stage::Greeting) {
            Stage::Parked(hello, proven) => Some((hello, proven)),
            other => {
                self.stage = other;
                None
            }
        }
    }
}

impl Core {
    /// The peer introduced itself.
    pub(super) fn greeted(
        &mut self,
        now: Duration,
        conn: ConnId,
        hello: Hello,
        proven: Option<Identity>,
        dice: &mut dyn Entropy,
    ) {
        if matches!(conn, ConnId::Accepted(_)) {
            let fresh = || Conn::new(now, hello.link, None, Expected::default());
            self.conns.entry(conn).or_insert_with(fresh);
        }
        let Some(state) = self.conns.get(&conn) else { return };
        if !matches!(state.stage, Stage::Greeting) {
            return self.end(now, conn, Cause::Protocol, dice);
        }
        let policy = &self.settings.policy;
        let judged = admission::judge(&self.me, policy, &hello, &state.expected, proven);
        if let Err(reason) = judged {
            return self.turn_away(now, conn, &hello, reason, dice);
        }
        match self.confirm(conn, &hello, proven) {
            Confirmed::Yes => self.admit(now, conn, hello, dice),
            Confirmed::No(reason) => self.turn_away(now, conn, &hello, reason, dice),
            Confirmed::AskStore => self.park(now, conn, hello, proven, dice),
        }
    }

    /// Whether the descriptor in a hello is the node's own: by what is known, by the key that a
    /// manual peer must hold, or by the store (decision 10).
    fn confirm(&mut self, conn: ConnId, hello: &Hello, proven: Option<Identity>) -> Confirmed {
        let found = &hello.descriptor;
        let Some(known) = self.directory.get(&found.rid) else {
            let dialled = matches!(conn, ConnId::Dialled(_));
            let named = proven.is_some_and(|key| self.names_key(key));
            let believed = dialled || named || self.settings.accept_any;
            return match (believed, self.settings.automatic) {
                (true, _) => self.learn(found),
                (false, true) => Confirmed::AskStore,
                (false, false) if self.settings.policy.plaintext => self.learn(found),
                (false, false) => Confirmed::No(Reject::UnknownPeer),
            };
        };
        if known.descriptor.generation != found.generation {
            return self.confirm_restart(found);
        }
        if known.descriptor.state == NodeState::Stopped {
            return Confirmed::No(Reject::NotServing);
        }
        self.learn(found)
    }

    fn learn(&mut self, found: &Descriptor) -> Confirmed {
        match self.directory.apply(found) {
            Applied::Contradiction => Confirmed::No(Reject::InvalidDescriptor),
            Applied::New | Applied::Nothing => Confirmed::Yes,
        }
    }

    /// Another lifecycle of a routing ID: only of a manual peer, and only once the earlier link
    /// has ended (decision 12).
    fn confirm_restart(&mut self, found: &Descriptor) -> Confirmed {
        let meant = self.manual.values().any(|(target, dial)| {
            target.expected.rid.as_ref() == Some(&found.rid)
                || dial.peer.as_ref() == Some(&found.rid)
        });
        if !meant || self.links.contains_key(&found.rid) {
            return Confirmed::No(Reject::LifecycleGenerationStale);
        }
        self.directory.remove(&found.rid);
        self.dialled.remove(&found.rid);
        self.learn(found)
    }

    fn names_key(&self, key: Identity) -> bool {
        self.manual.values().any(|(target, _)| target.expected.identity == Some(key))
    }

    fn park(
        &mut self,
        now: Duration,
        conn: ConnId,
        hello: Hello,
        proven: Option<Identity>,
        dice: &mut dyn Entropy,
    ) {
        let rid = hello.descriptor.rid.clone();
        let asked = self.waiting_for(&rid).next().is_some();
        let open = self.conns.values().filter(|c| matches!(c.stage, Stage::Parked(..))).count();
        if !asked && open >= LOOK_UPS {
            return self.refuse(now, conn, Reject::ResourceLimit, dice);
        }
        if let Some(state) = self.conns.get_mut(&conn) {
            state.stage = Stage::Parked(Box::new(hello), proven);
        }
        if !asked {
            self.effects.push_back(Effect::LookUp(rid));
        }
    }

    /// Connections whose hello waits for the store's word on a node.
    pub(super) fn waiting_for(&self, rid: &Rid) -> impl Iterator<Item = ConnId> {
        self.conns.iter().filter_map(move |(&conn, state)| match &state.stage {
            Stage::Parked(hello, _) if hello.descriptor.rid == *rid => Some(conn),
            _ => None,
        })
    }

    fn admit(&mut self, now: Duration, conn: ConnId, hello: Hello, dice: &mut dyn Entropy) {
        let rid = hello.descriptor.rid.clone();
        let dialled = matches!(conn, ConnId::Dialled(_));
        if let Some(rival) = self.links.get(&rid).copied()
            && let Some(state) = self.conns.get(&rival)
        {
            let rival_of = Rival {
                link: state.link,
                dialled: matches!(rival, ConnId::Dialled(_)),
                same_generation: state.generation == Some(hello.descriptor.generation),
            };
            match admission::contest(&self.me.rid, &hello, dialled, rival_of) {
                Contest::Replace => self.end(now, rival, Cause::Replaced, dice),
                Contest::Refuse(reason) => {
                    self.note_peer(conn, &rid);
                    return self.refuse(now, conn, reason, dice);
                }
            }
            // The rival's end may have dropped a node that nobody lists.
            self.directory.apply(&hello.descriptor);
        }
        self.note_peer(conn, &rid);
        if !dialled {
            self.greet(conn);
        }
        if let Some(state) = self.conns.get_mut(&conn) {
            state.peer = Some(rid.clone());
            state.generation = Some(hello.descriptor.generation);
            state.stage = Stage::Admitted;
        }
        self.links.insert(rid, conn);
        let admission = Admission { window: hello.window, peer: hello.descriptor };
        self.effects.push_back(Effect::Admit(conn, Box::new(admission)));
        self.effects.push_back(Effect::Changed);
    }

    /// The dial that made a connection knows now who answers.
    fn note_peer(&mut self, conn: ConnId, rid: &Rid) {
        if let Some(dial) = self.dial_of(conn) {
            dial.peer = Some(rid.clone());
        }
    }

    fn dial_of(&mut self, conn: ConnId) -> Option<&mut Dial> {
        match self.conns.get(&conn)?.dial.clone()? {
            DialKey::Automatic(rid) => self.automatic.get_mut(&rid),
            DialKey::Manual(peer) => self.manual.get_mut(&peer).map(|(_, dial)| dial),
        }
    }

    fn greet(&mut self, conn: ConnId) {
        let Some(state) = self.conns.get(&conn) else { return };
        let hello = self.hello(state.link, None, Expected::default());
        if let Some(state) = self.conns.get_mut(&conn) {
            state.told = Some(hello.descriptor.revision);
        }
        self.effects.push_back(Effect::Greet(conn, Box::new(hello)));
    }

    fn hello(&self, link: LinkId, replaces: Option<LinkId>, expected: Expected) -> Hello {
        Hello {
            v: VERSION,
            capabilities: vec![CAPABILITY.to_owned()],
            mesh: self.me.mesh.clone(),
            link,
            replaces,
            expected,
            window: self.settings.window,
            descriptor: self.me.clone(),
        }
    }

    /// Refuses, with our own hello before, so that the peer knows who refuses.
    fn turn_away(
        &mut self,
        now: Duration,
        conn: ConnId,
        hello: &Hello,
        reason: Reject,
        dice: &mut dyn Entropy,
    ) {
        let rid = &hello.descriptor.rid;
        if reason == Reject::NotRequired {
            self.not_required.insert(rid.clone(), ());
            self.note_peer(conn, rid);
        }
        if matches!(conn, ConnId::Accepted(_)) && reason != Reject::TopologyMismatch {
            self.greet(conn);
        }
        self.refuse(now, conn, reason, dice);
    }

    pub(super) fn refuse(
        &mut self,
        now: Duration,
        conn: ConnId,
        reason: Reject,
        dice: &mut dyn Entropy,
    ) {
        self.effects.push_back(Effect::Reject(conn, reason));
        self.closed(now, conn, Cause::Refused(reason), dice);
    }

    /// The peer takes us in.
    pub(super) fn admitted(&mut self, now: Duration, conn: ConnId) {
        let revision = self.me.revision;
        let Some(state) = self.conns.get_mut(&conn) else { return };
        let (Stage::Admitted, Some(rid)) = (&state.stage, state.peer.clone()) else { return };
        state.stage = Stage::Ready(Liveness::new(now));
        let behind = state.told.replace(revision).is_some_and(|told| told < revision);
        self.dialled.remove(&rid);
        self.not_required.remove(&rid);
        if let Some(dial) = self.dial_of(conn) {
            dial.failures = 0;
            dial.was_ready = true;
        }
        self.effects.push_back(Effect::Ready(rid));
        if behind {
            self.effects.push_back(Effect::Update(conn, Box::new(self.me.clone())));
        }
        self.effects.push_back(Effect::Changed);
    }

    pub(super) fn acked(&mut self, now: Duration, conn: ConnId, id: u64) {
        if let Some(Stage::Ready(liveness)) = self.conns.get_mut(&conn).map(|c| &mut c.stage) {
            liveness.ack(now, id);
        }
    }

    /// Closes a connection from this side.
    pub(super) fn end(
        &mut self,
        now: Duration,
        conn: ConnId,
        cause: Cause,
        dice: &mut dyn Entropy,
    ) {
        self.effects.push_back(Effect::Close(conn, cause));
        self.closed(now, conn, cause, dice);
    }

    /// A connection is no more. What a later event says of it changes nothing.
    pub(super) fn closed(
        &mut self,
        now: Duration,
        conn: ConnId,
        cause: Cause,
        dice: &mut dyn Entropy,
    ) {
        let never = matches!(
            cause,
            Cause::Refused(Reject::NotRequired) | Cause::RefusedByPeer(Reject::NotRequired)
        );
        if let Some(dial) = self.dial_of(conn) {
            dial.conn = None;
            dial.not_required |= never;
            dial.next = now + backoff::wait(dial.failures, dice);
            dial.failures = dial.failures.saturating_add(1);
        }
        let Some(state) = self.conns.remove(&conn) else { return };
        self.effects.push_back(Effect::Changed);
        let Some(rid) = state.peer else { return };
        if self.links.get(&rid) == Some(&conn) {
            self.links.remove(&rid);
        }
        if state.dial.is_some() {
            self.dialled.insert(rid.clone(), state.link);
        }
        self.forget_unless_linked(&rid);
    }

    pub(super) fn tick_conns(&mut self, now: Duration, dice: &mut dyn Entropy) {
        let due = |(&conn, state): (&ConnId, &Conn)| (state.next_wake() <= now).then_some(conn);
        let due: Vec<ConnId> = self.conns.iter().filter_map(due).collect();
        for conn in due {
            let Some(state) = self.conns.get_mut(&conn) else { continue };
            match &mut state.stage {
                Stage::Ready(liveness) => match liveness.tick(now, dice) {
                    Due::Nothing => {}
                    Due::Probe(id) => self.effects.push_back(Effect::Probe(conn, id)),
                    Due::Lost => self.end(now, conn, Cause::Lost, dice),
                },
                _ => self.end(now, conn, Cause::Slow, dice),
            }
        }
    }

    /// When the things that may be dialled want to be.
    pub(super) fn dials_waiting(&self) -> impl Iterator<Item = Duration> {
        let automatic = self.automatic.iter().filter(|(rid, dial)| self.may_dial(Some(rid), dial));
        let manual = self.manual.values().filter(|(target, dial)| {
            dial.is_idle() && !self.is_linked(target.expected.rid.as_ref().or(dial.peer.as_ref()))
        });
        automatic.map(|(_, dial)| dial.next).chain(manual.map(|(_, dial)| dial.next))
    }

    /// While the store is away nothing new is dialled (decision 7).
    fn may_dial(&self, rid: Option<&Rid>, dial: &Dial) -> bool {
        let trusted = !self.directory.is_store_failing() || dial.was_ready;
        trusted && dial.is_idle() && !self.is_linked(rid)
    }

    fn is_linked(&self, rid: Option<&Rid>) -> bool {
        rid.is_some_and(|rid| self.links.contains_key(rid))
    }

    pub(super) fn dial_due(&mut self, now: Duration, dice: &mut dyn Entropy) {
        let automatic = self.automatic.iter().filter_map(|(rid, dial)| {
            let due = dial.next <= now && self.may_dial(Some(rid), dial);
            let known = self.directory.get(rid).filter(|_| due)?;
            let endpoint = known.descriptor.endpoint.clone();
            let expected = Expected::of(&known.descriptor);
            Some((DialKey::Automatic(rid.clone()), Target { endpoint, expected }))
        });
        let manual = self.manual.iter().filter_map(|(&peer, (target, dial))| {
            let target = self.with_descriptor(target);
            let rid = target.expected.rid.as_ref().or(dial.peer.as_ref());
            let due = dial.next <= now && dial.is_idle() && !self.is_linked(rid);
            due.then_some((DialKey::Manual(peer), target))
        });
        let due: Vec<(DialKey, Target)> = automatic.chain(manual).collect();
        due.into_iter().for_each(|(key, target)| self.dial(now, key, target, dice));
    }

    /// A manual endpoint that the store names too is dialled with all that the descriptor says:
    /// routing ID, lifecycle and key together (routemesh §8).
    fn with_descriptor(&self, target: &Target) -> Target {
        let listed = self
            .directory
            .iter()
            .find(|(_, known)| known.listed && known.descriptor.endpoint == target.endpoint);
        let Some((_, known)) = listed else { return target.clone() };
        let full = Expected::of(&known.descriptor);
        match target.expected.refuses(&known.descriptor) {
            None => Target { endpoint: target.endpoint.clone(), expected: full },
            Some(_) => target.clone(),
        }
    }

    fn dial(&mut self, now: Duration, key: DialKey, target: Target, dice: &mut dyn Entropy) {
        let conn = ConnId::Dialled(self.next_conn);
        self.next_conn += 1;
        let link = LinkId::mint(dice);
        let before = target.expected.rid.as_ref().and_then(|rid| self.dialled.get(rid)).copied();
        let hello = self.hello(link, before, target.expected.clone());
        let mut state = Conn::new(now, link, Some(key), target.expected.clone());
        state.told = Some(self.me.revision);
        self.conns.insert(conn, state);
        if let Some(dial) = self.dial_of(conn) {
            dial.conn = Some(conn);
        }
        self.effects.push_back(Effect::Dial(conn, target, Box::new(hello)));
    }
}

/// What is known about a descriptor in a hello.
enum Confirmed {
    Yes,
    No(Reject),
    AskStore,
}
