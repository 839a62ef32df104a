//! Whether a peer's hello is welcome: one function, its checks in a fixed order (routemesh §8).

use carlos_protocol::mesh::{
    CAPABILITY, Descriptor, Expected, Hello, Identity, LinkId, NodeState, Reject, Rid, VERSION,
    connection_needed,
};

/// What a node holds every hello against.
#[derive(Clone, Debug)]
pub(crate) struct Policy {
    /// Links prove no keys.
    pub(crate) plaintext: bool,
    /// The key that must have countersigned every descriptor.
    pub(crate) authority: Option<Identity>,
}

/// Judges everything but what other links and descriptors of the peer say. `expected` is what this
/// end dialled for; `proven` the key that the other end of the link holds.
///
/// # Errors
/// The first reason against it.
pub(crate) fn judge(
    me: &Descriptor,
    policy: &Policy,
    hello: &Hello,
    expected: &Expected,
    proven: Option<Identity>,
) -> Result<(), Reject> {
    let peer = &hello.descriptor;
    check(hello.v == VERSION, Reject::ProtocolVersionUnsupported)?;
    check(hello.mesh == me.mesh && peer.mesh == me.mesh, Reject::TopologyMismatch)?;
    let able = hello.capabilities.iter().any(|name| name == CAPABILITY);
    check(able, Reject::CapabilityMismatch)?;
    check(peer.rid != me.rid, Reject::IdentityMismatch)?;
    judge_keys(me, policy, peer, proven)?;
    expected.refuses(peer).map_or(Ok(()), Err)?;
    // The peer means somebody else: a node before this one at this address, or with this name.
    hello.expected.refuses(me).map_or(Ok(()), Err)?;
    check(me.state == NodeState::Serving, Reject::NotServing)?;
    check(peer.state != NodeState::Stopped, Reject::NotServing)?;
    check(connection_needed(me, peer), Reject::NotRequired)
}

/// The key in the descriptor is the one proven on the link, and both trust alike (decision 10).
fn judge_keys(
    me: &Descriptor,
    policy: &Policy,
    peer: &Descriptor,
    proven: Option<Identity>,
) -> Result<(), Reject> {
    let mismatch = Reject::SecurityIdentityMismatch;
    check(peer.identity == proven && proven.is_none() == policy.plaintext, mismatch)?;
    check(peer.trust == me.trust, mismatch)?;
    let vouched = policy.authority.is_none_or(|key| peer.is_vouched_by(&key));
    check(vouched, mismatch)
}

fn check(holds: bool, reason: Reject) -> Result<(), Reject> {
    if holds { Ok(()) } else { Err(reason) }
}

/// A link of the same pair that is already admitted.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Rival {
    pub(crate) link: LinkId,
    /// This end dialled it.
    pub(crate) dialled: bool,
    /// It belongs to the same lifecycle of the peer.
    pub(crate) same_generation: bool,
}

/// What becomes of a new link beside a rival.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Contest {
    /// The rival is closed and the new one admitted.
    Replace,
    /// The new one is refused.
    Refuse(Reject),
}

/// Decides between a new link and its rival, at both ends alike (decisions 11 and 12). `dialled`
/// says whether this end dialled the new link.
pub(crate) fn contest(me: &Rid, hello: &Hello, dialled: bool, rival: Rival) -> Contest {
    if !rival.same_generation {
        return Contest::Refuse(Reject::LifecycleGenerationStale);
    }
    // Whoever dialled a link knows when it is gone.
    let replaced = !dialled && !rival.dialled && hello.replaces == Some(rival.link);
    let smaller_is_me = *me < hello.descriptor.rid;
    let by_smaller = dialled == smaller_is_me;
    match (replaced, dialled == rival.dialled, by_smaller) {
        (true, _, _) | (_, false, true) => Contest::Replace,
        _ => Contest::Refuse(Reject::DuplicateConnection),
    }
}

#[cfg(test)]
mod tests {
    use super::super::testing::{descriptor, hello_of};
    use super::*;

    const PLAIN: Policy = Policy { plaintext: true, authority: None };

    fn judged(change: fn(&mut Hello)) -> Result<(), Reject> {
        let mut hello = hello_of(&descriptor("b"));
        change(&mut hello);
        judge(&descriptor("a"), &PLAIN, &hello, &Expected::default(), None)
    }

    #[test]
    fn each_check_has_its_reason() {
        assert_eq!(judged(|_| ()), Ok(()));
        for (change, reason) in [
            ((|h| h.v = 2) as fn(&mut Hello), Reject::ProtocolVersionUnsupported),
            (|h| h.mesh = "x".parse().expect("a name"), Reject::TopologyMismatch),
            (|h| h.descriptor.mesh = "x".parse().expect("a name"), Reject::TopologyMismatch),
            (|h| h.capabilities.clear(), Reject::CapabilityMismatch),
            (|h| h.descriptor.rid = "a".parse().expect("an id"), Reject::IdentityMismatch),
            (
                |h| h.descriptor.identity = Some(Identity::new([1; 32])),
                Reject::SecurityIdentityMismatch,
            ),
            (|h| h.descriptor.trust = "other".into(), Reject::SecurityIdentityMismatch),
            (|h| h.expected.rid = Some("z".parse().expect("an id")), Reject::IdentityMismatch),
            (|h| h.descriptor.state = NodeState::Stopped, Reject::NotServing),
        ] {
            assert_eq!(judged(change), Err(reason));
        }
    }

    #[test]
    fn a_key_counts_only_when_proven() {
        let secure = Policy { plaintext: false, authority: None };
        let key = Identity::new([1; 32]);
        let mut peer = descriptor("b");
        let judge_with = |peer: &Descriptor, proven| {
            judge(&descriptor("a"), &secure, &hello_of(peer), &Expected::default(), proven)
        };
        assert_eq!(judge_with(&peer, None), Err(Reject::SecurityIdentityMismatch));
        peer.identity = Some(key);
        assert_eq!(judge_with(&peer, Some(key)), Ok(()));
        let other = Some(Identity::new([2; 32]));
        assert_eq!(judge_with(&peer, other), Err(Reject::SecurityIdentityMismatch));
    }

    #[test]
    fn an_authority_refuses_what_it_did_not_sign() {
        let policy = Policy { plaintext: false, authority: Some(Identity::new([9; 32])) };
        let key = Identity::new([1; 32]);
        let mut peer = descriptor("b");
        peer.identity = Some(key);
        let judged =
            judge(&descriptor("a"), &policy, &hello_of(&peer), &Expected::default(), Some(key));
        assert_eq!(judged, Err(Reject::SecurityIdentityMismatch));
    }

    #[test]
    fn a_draining_node_takes_no_new_links() {
        let mut me = descriptor("a");
        me.state = NodeState::Draining;
        let hello = hello_of(&descriptor("b"));
        let judged = judge(&me, &PLAIN, &hello, &Expected::default(), None);
        assert_eq!(judged, Err(Reject::NotServing));
    }

    #[test]
    fn both_ends_keep_the_same_link_of_a_double_dial() {
        let (a, b) = (descriptor("a"), descriptor("b"));
        let rival = |dialled| Rival { link: LinkId::new(1), dialled, same_generation: true };
        // At a: its own dial stands, b's arrives; and the other way round.
        let refused = Contest::Refuse(Reject::DuplicateConnection);
        assert_eq!(contest(&a.rid, &hello_of(&b), false, rival(true)), refused);
        assert_eq!(contest(&a.rid, &hello_of(&b), true, rival(false)), Contest::Replace);
        // At b, the same two links.
        assert_eq!(contest(&b.rid, &hello_of(&a), false, rival(true)), Contest::Replace);
        assert_eq!(contest(&b.rid, &hello_of(&a), true, rival(false)), refused);
    }

    #[test]
    fn a_dialler_replaces_its_own_link_and_no_other() {
        let (a, mut hello) = (descriptor("a"), hello_of(&descriptor("b")));
        let rival = Rival { link: LinkId::new(1), dialled: false, same_generation: true };
        let refused = Contest::Refuse(Reject::DuplicateConnection);
        assert_eq!(contest(&a.rid, &hello, false, rival), refused);
        hello.replaces = Some(LinkId::new(1));
        assert_eq!(contest(&a.rid, &hello, false, rival), Contest::Replace);
        let mine = Rival { dialled: true, ..rival };
        assert_eq!(contest(&a.rid, &hello, false, mine), refused);
        let stale = Rival { same_generation: false, ..rival };
        let refused = Contest::Refuse(Reject::LifecycleGenerationStale);
        assert_eq!(contest(&a.rid, &hello, false, stale), refused);
    }
}
