//! What a node publishes about itself (routemesh §2, §4).

use ed25519_dalek::{Signature, VerifyingKey};
use serde::{Deserialize, Serialize};
use thiserror::Error;

use super::names::{ChannelName, Generation, Identity, MeshName, Rid, Weight, revision_number};
use crate::base64_text;
use crate::canon::{self, CanonError};
use crate::ids::Revision;

/// The largest descriptor, in bytes of canonical JSON: it travels in a hello, which is one record
/// of a link. About 200 channels with the longest names; a node with more fails at its start.
pub const DESCRIPTOR_BYTES: usize = 60 * 1024;

/// The longest endpoint: a host name and a port.
const ENDPOINT_BYTES: usize = 270;

/// The longest text of a trust profile: `authority:` and a key.
const TRUST_BYTES: usize = 128;

/// Which objects a node hosts: only what topology needs of it (routemesh §4).
#[derive(Clone, Copy, Debug, Default, Deserialize, Eq, PartialEq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum ObjectRole {
    /// No object runtime.
    #[default]
    None,
    /// Starts object calls and hosts none.
    Client,
    /// Hosts objects, and starts calls.
    Server,
}

/// Where a node is in its life.
#[derive(Clone, Copy, Debug, Default, Deserialize, Eq, PartialEq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum NodeState {
    /// Takes new work.
    #[default]
    Serving,
    /// Finishes what it accepted and is in no new selection.
    Draining,
    /// Gone in good order: its last revision.
    Stopped,
}

/// One published server membership.
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize)]
#[serde(deny_unknown_fields)]
pub struct Member {
    /// The channel served.
    pub channel: ChannelName,
    /// Its share of new selections.
    pub weight: Weight,
}

/// One revision of what a node says about itself. Of one generation, only `revision`, weights and
/// `state` ever differ.
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize)]
#[serde(deny_unknown_fields)]
pub struct Descriptor {
    /// Always 1.
    pub v: u32,
    /// The mesh.
    pub mesh: MeshName,
    /// The node.
    pub rid: Rid,
    /// Its lifecycle.
    pub generation: Generation,
    /// Counts from 1 within the lifecycle.
    #[serde(with = "revision_number")]
    pub revision: Revision,
    /// Where peers connect: `host:port`, neither a wildcard nor port 0.
    pub endpoint: String,
    /// The key that its end of a link proves; `None` on a plaintext mesh.
    pub identity: Option<Identity>,
    /// The trust profile: `bucket`, or `authority:<key>`. Profiles that differ never connect.
    pub trust: String,
    /// The authority's signature, in base64, over [`Descriptor::vouched_bytes`]; empty without one.
    pub vouch: String,
    /// Its object role.
    pub role: ObjectRole,
    /// Its server memberships, sorted by name; an index into this list names a channel on a link.
    pub members: Vec<Member>,
    /// Where it is in its life.
    pub state: NodeState,
}

/// Why bytes are no descriptor.
#[derive(Clone, Copy, Debug, Eq, Error, PartialEq)]
pub enum DescriptorError {
    /// Not the canonical JSON of one.
    #[error(transparent)]
    Form(#[from] CanonError),
    /// A version this build does not know.
    #[error("descriptor version {0}")]
    Version(u32),
    /// Memberships that are not sorted, or not unique.
    #[error("server memberships are not sorted and unique")]
    Order,
    /// An endpoint nobody can dial.
    #[error("the endpoint is no host and port")]
    Endpoint,
    /// A text longer than its bound.
    #[error("a text of the descriptor exceeds its bound")]
    TooLong,
}

impl Descriptor {
    /// The canonical bytes.
    pub fn to_bytes(&self) -> Vec<u8> {
        canon::encode(self)
    }

    /// Reads a descriptor and checks what its form does not say.
    ///
    /// # Errors
    /// [`DescriptorError`].
    pub fn from_bytes(bytes: &[u8]) -> Result<Self, DescriptorError> {
        let descriptor: Self = canon::decode(bytes, DESCRIPTOR_BYTES)?;
        descriptor.check()?;
        Ok(descriptor)
    }

    /// Checks what the JSON form does not say.
    ///
    /// # Errors
    /// [`DescriptorError`].
    pub fn check(&self) -> Result<(), DescriptorError> {
        if self.v != 1 {
            return Err(DescriptorError::Version(self.v));
        }
        if self.trust.len() > TRUST_BYTES || self.vouch.len() > TRUST_BYTES {
            return Err(DescriptorError::TooLong);
        }
        if !self.members.is_sorted_by(|a, b| a.channel < b.channel) {
            return Err(DescriptorError::Order);
        }
        if is_endpoint(&self.endpoint) { Ok(()) } else { Err(DescriptorError::Endpoint) }
    }

    /// What an authority signs: everything that may not change within the lifecycle.
    pub fn vouched_bytes(&self) -> Vec<u8> {
        let members = self.members.iter().map(|member| member.channel.as_str());
        let members: Vec<&str> = members.collect();
        let fixed = (&self.mesh, &self.rid, self.generation, &self.endpoint, self.identity);
        let signed = ("carlos-mesh-descriptor-v1", fixed, &self.trust, self.role, members);
        canon::encode(&signed)
    }

    /// Whether the authority `key` countersigned this node's fixed values.
    pub fn is_vouched_by(&self, key: &Identity) -> bool {
        let signature = base64_text::decode_array(&self.vouch).map(Signature::from);
        let key = VerifyingKey::from_bytes(key.as_bytes()).ok();
        let signed = key.zip(signature);
        signed.is_some_and(|(key, vouch)| key.verify_strict(&self.vouched_bytes(), &vouch).is_ok())
    }

    /// Whether `other` may be a later revision of the same lifecycle (routemesh §8).
    pub fn is_same_life(&self, other: &Self) -> bool {
        self.vouched_bytes() == other.vouched_bytes() && self.vouch == other.vouch
    }

    /// The index that names a channel of this node on a link.
    pub fn member_index(&self, channel: &ChannelName) -> Option<u16> {
        let index = self.members.binary_search_by(|member| member.channel.cmp(channel)).ok()?;
        u16::try_from(index).ok()
    }

    /// The weight that counts for new selections of a channel: zero when draining or not a member.
    pub fn selectable_weight(&self, channel: &ChannelName) -> u16 {
        match (self.state, self.member_index(channel)) {
            (NodeState::Serving, Some(index)) => self.members[usize::from(index)].weight.get(),
            _ => 0,
        }
    }
}

/// Whether two nodes must be connected: all pairs, but for two object clients of which neither
/// serves a channel; a membership of weight 0 counts (routemesh §4, §8).
pub fn connection_needed(one: &Descriptor, other: &Descriptor) -> bool {
    let idle = |node: &Descriptor| node.role == ObjectRole::Client && node.members.is_empty();
    !(idle(one) && idle(other))
}

/// `host:port`, `[v6]:port`: dialable from elsewhere, so neither a wildcard nor port 0.
fn is_endpoint(text: &str) -> bool {
    let Some((host, port)) = text.rsplit_once(':') else { return false };
    let port_fits = port.parse::<u16>().is_ok_and(|n| n > 0 && n.to_string() == port);
    let v6 = host.strip_prefix('[').and_then(|rest| rest.strip_suffix(']'));
    let host_fits = match v6 {
        Some(inner) => inner.parse::<std::net::Ipv6Addr>().is_ok_and(|ip| !ip.is_unspecified()),
        None => is_host(host),
    };
    text.len() <= ENDPOINT_BYTES && port_fits && host_fits
}

fn is_host(host: &str) -> bool {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'.' | b'_');
    !host.is_empty() && host.bytes().all(plain) && host != "0.0.0.0"
}

#[cfg(test)]
pub(crate) mod tests {
    use ed25519_dalek::{Signer, SigningKey};
    use proptest::prelude::*;

    use super::*;

    pub(crate) fn descriptor() -> Descriptor {
        let member = |name: &str| Member {
            channel: ChannelName::parse(name).expect("a name"),
            weight: Weight::default(),
        };
        Descriptor {
            v: 1,
            mesh: MeshName::parse("game-mesh").expect("a name"),
            rid: Rid::parse("node-a").expect("an id"),
            generation: Generation::new(7).expect("not zero"),
            revision: Revision::FIRST,
            endpoint: "10.0.0.1:7001".to_owned(),
            identity: Some(Identity::new([3; 32])),
            trust: "bucket".to_owned(),
            vouch: String::new(),
            role: ObjectRole::None,
            members: vec![member("chat"), member("match")],
            state: NodeState::Serving,
        }
    }

    #[test]
    fn a_descriptor_round_trips() {
        let bytes = descriptor().to_bytes();
        assert_eq!(Descriptor::from_bytes(&bytes), Ok(descriptor()));
    }

    #[test]
    fn what_nobody_may_publish_is_refused() {
        let refused = |change: fn(&mut Descriptor)| {
            let mut bad = descriptor();
            change(&mut bad);
            Descriptor::from_bytes(&bad.to_bytes()).expect_err("refused")
        };
        assert_eq!(refused(|d| d.v = 2), DescriptorError::Version(2));
        assert_eq!(refused(|d| d.members.reverse()), DescriptorError::Order);
        assert_eq!(refused(|d| d.members[1] = d.members[0].clone()), DescriptorError::Order);
        assert_eq!(refused(|d| d.trust = "x".repeat(129)), DescriptorError::TooLong);
        for endpoint in ["0.0.0.0:1", "[::]:1", "a:0", "a", "a b:1", ":1", "a:01", "[x]:1"] {
            let mut bad = descriptor();
            bad.endpoint = endpoint.to_owned();
            assert_eq!(bad.check(), Err(DescriptorError::Endpoint), "{endpoint}");
        }
    }

    #[test]
    fn a_life_keeps_all_but_weights_state_and_revision() {
        let (first, mut later) = (descriptor(), descriptor());
        later.revision = later.revision.next();
        later.members[0].weight = Weight::ZERO;
        later.state = NodeState::Draining;
        assert!(first.is_same_life(&later));
        later.members.pop();
        assert!(!first.is_same_life(&later));
    }

    #[test]
    fn an_authority_vouches_for_what_does_not_change() {
        let authority = SigningKey::from_bytes(&[5; 32]);
        let key = Identity::new(authority.verifying_key().to_bytes());
        let mut node = descriptor();
        assert!(!node.is_vouched_by(&key));
        let vouch = authority.sign(&node.vouched_bytes());
        node.vouch = base64_text::encode(&vouch.to_bytes());
        node.members[0].weight = Weight::ZERO;
        node.revision = node.revision.next();
        assert!(node.is_vouched_by(&key));
        assert!(!node.is_vouched_by(&Identity::new([6; 32])));
        node.endpoint = "10.0.0.2:7001".to_owned();
        assert!(!node.is_vouched_by(&key));
    }

    #[test]
    fn draining_and_absent_weigh_nothing() {
        let mut node = descriptor();
        let (chat, none) = (ChannelName::parse("chat"), ChannelName::parse("none"));
        let (chat, none) = (chat.expect("a name"), none.expect("a name"));
        assert_eq!((node.selectable_weight(&chat), node.selectable_weight(&none)), (100, 0));
        node.state = NodeState::Draining;
        assert_eq!(node.selectable_weight(&chat), 0);
    }

    #[test]
    fn only_two_idle_object_clients_need_no_connection() {
        let node = |role, serves| {
            let members = if serves { descriptor().members } else { Vec::new() };
            Descriptor { role, members, ..descriptor() }
        };
        let client = node(ObjectRole::Client, false);
        assert!(!connection_needed(&client, &client));
        for other in [
            node(ObjectRole::None, false),
            node(ObjectRole::Server, false),
            node(ObjectRole::Client, true),
        ] {
            assert!(connection_needed(&client, &other) && connection_needed(&other, &client));
        }
    }

    proptest! {
        #[test]
        fn foreign_bytes_never_panic(bytes: Vec<u8>) {
            let _ = Descriptor::from_bytes(&bytes);
        }
    }
}
