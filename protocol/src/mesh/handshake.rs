//! The first record of each end of a link, and the reasons to end it there (routemesh §8).

use serde::{Deserialize, Serialize};
use thiserror::Error;

use super::descriptor::{Descriptor, DescriptorError};
use super::names::{Generation, Identity, MeshName, Rid};
use super::record::RECORD_BYTES;
use crate::canon::{self, CanonError};
use crate::{Entropy, draw};

/// The version of the link protocol.
pub const VERSION: u32 = 1;

/// What both ends must offer.
pub const CAPABILITY: &str = "routemesh-1";

/// The most capabilities a hello names.
const CAPABILITIES: usize = 32;

/// One physical link, named by the end that dialled it: random, so that two never share one.
#[derive(Clone, Copy, Debug, Deserialize, Eq, Hash, Ord, PartialEq, PartialOrd, Serialize)]
pub struct LinkId(u64);

impl LinkId {
    /// A fresh id.
    pub fn mint(entropy: &mut dyn Entropy) -> Self {
        Self(u64::from_be_bytes(draw(entropy)))
    }

    /// The id of a number.
    pub fn new(number: u64) -> Self {
        Self(number)
    }
}

/// Whom the sender of a hello means to reach. From a descriptor all three travel together
/// (routemesh §8); a manual peer may name none.
#[derive(Clone, Debug, Default, Deserialize, Eq, PartialEq, Serialize)]
#[serde(deny_unknown_fields)]
pub struct Expected {
    /// The routing ID.
    pub rid: Option<Rid>,
    /// The lifecycle.
    pub generation: Option<Generation>,
    /// The key.
    pub identity: Option<Identity>,
}

impl Expected {
    /// What a descriptor promises.
    pub fn of(descriptor: &Descriptor) -> Self {
        Self {
            rid: Some(descriptor.rid.clone()),
            generation: Some(descriptor.generation),
            identity: descriptor.identity,
        }
    }

    /// The reason why `found` is somebody else.
    pub fn refuses(&self, found: &Descriptor) -> Option<Reject> {
        if self.rid.as_ref().is_some_and(|rid| *rid != found.rid) {
            return Some(Reject::IdentityMismatch);
        }
        if self.identity.is_some() && self.identity != found.identity {
            return Some(Reject::SecurityIdentityMismatch);
        }
        let stale = self.generation.is_some_and(|generation| generation != found.generation);
        stale.then_some(Reject::LifecycleGenerationStale)
    }
}

/// What each end says first.
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize)]
#[serde(deny_unknown_fields)]
pub struct Hello {
    /// The version of the link protocol: [`VERSION`].
    pub v: u32,
    /// What the sender can do; holds [`CAPABILITY`].
    pub capabilities: Vec<String>,
    /// The mesh, before anything else of the descriptor counts.
    pub mesh: MeshName,
    /// The link's id; the acceptor repeats the dialler's.
    pub link: LinkId,
    /// The earlier link that this one takes the place of, from its dialler (decision 11).
    pub replaces: Option<LinkId>,
    /// Whom the sender means to reach.
    pub expected: Expected,
    /// The bytes of credit that the sender grants at the start: its receive high-water mark.
    pub window: u64,
    /// The sender.
    pub descriptor: Descriptor,
}

/// Why bytes are no hello.
#[derive(Clone, Copy, Debug, Eq, Error, PartialEq)]
pub enum HelloError {
    /// Not the canonical JSON of one.
    #[error(transparent)]
    Form(#[from] CanonError),
    /// Its descriptor does not hold.
    #[error(transparent)]
    Descriptor(#[from] DescriptorError),
    /// More capabilities than a hello holds.
    #[error("more than {CAPABILITIES} capabilities")]
    Capabilities,
}

impl Hello {
    /// The canonical bytes.
    pub fn to_bytes(&self) -> Vec<u8> {
        canon::encode(self)
    }

    /// Reads a hello. Whether it is welcome is another question.
    ///
    /// # Errors
    /// [`HelloError`].
    pub fn from_bytes(bytes: &[u8]) -> Result<Self, HelloError> {
        let hello: Self = canon::decode(bytes, RECORD_BYTES)?;
        if hello.capabilities.len() > CAPABILITIES {
            return Err(HelloError::Capabilities);
        }
        hello.descriptor.check()?;
        Ok(hello)
    }
}

macro_rules! rejects {
    ($($(#[$doc:meta])* $name:ident = $code:literal, $text:literal;)*) => {
        /// Why a link is not admitted. The numbers are those of the wire.
        #[derive(Clone, Copy, Debug, Eq, Error, Hash, PartialEq)]
        pub enum Reject {
            $($(#[$doc])* #[error($text)] $name,)*
        }

        impl Reject {
            /// Every reason.
            pub const ALL: &[Self] = &[$(Self::$name),*];

            /// The number on the wire.
            pub fn code(self) -> u8 {
                match self { $(Self::$name => $code,)* }
            }

            /// The reason of a number.
            pub fn from_code(code: u8) -> Option<Self> {
                match code { $($code => Some(Self::$name),)* _ => None }
            }
        }
    };
}

rejects! {
    /// Another version of the link protocol.
    ProtocolVersionUnsupported = 1, "the protocol version is not supported";
    /// Another mesh.
    TopologyMismatch = 2, "the peer belongs to another mesh";
    /// Another routing ID than expected, or one's own.
    IdentityMismatch = 3, "the peer is not the node expected";
    /// Another key than expected, or another trust profile.
    SecurityIdentityMismatch = 4, "the peer's key or trust profile is not the one expected";
    /// The channel set differs within a lifecycle.
    ChannelMismatch = 5, "the peer's channels changed within one lifecycle";
    /// Another lifecycle than the one that is expected or still connected.
    LifecycleGenerationStale = 6, "the peer's lifecycle is not the one expected";
    /// An older revision than the one known.
    DescriptorRevisionStale = 7, "the peer's descriptor is older than the one known";
    /// A required capability is missing.
    CapabilityMismatch = 8, "the peer lacks a required capability";
    /// The node is not open yet, or no more.
    NotServing = 9, "the node is not open for peers";
    /// Another link of the same pair stays.
    DuplicateConnection = 10, "another link of this pair stays";
    /// The descriptor contradicts itself, the link, or what is known.
    InvalidDescriptor = 11, "the descriptor does not hold";
    /// Too many links or handshakes at once.
    ResourceLimit = 12, "the node has no room for another link";
    /// Both are object clients that serve no channel: no failure, and not to be repeated.
    NotRequired = 13, "this pair needs no link";
    /// The acceptor could not confirm the dialler's descriptor.
    UnknownPeer = 14, "the peer's descriptor is not in the store";
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::super::descriptor::tests::descriptor;
    use super::*;

    fn hello() -> Hello {
        Hello {
            v: VERSION,
            capabilities: vec![CAPABILITY.to_owned()],
            mesh: descriptor().mesh,
            link: LinkId::new(5),
            replaces: Some(LinkId::new(4)),
            expected: Expected::of(&descriptor()),
            window: 4_096_000,
            descriptor: descriptor(),
        }
    }

    #[test]
    fn a_hello_round_trips() {
        assert_eq!(Hello::from_bytes(&hello().to_bytes()), Ok(hello()));
        let mut bad = hello();
        bad.descriptor.endpoint = "0.0.0.0:1".to_owned();
        assert!(matches!(Hello::from_bytes(&bad.to_bytes()), Err(HelloError::Descriptor(_))));
        let many = Hello { capabilities: vec!["x".to_owned(); 33], ..hello() };
        assert_eq!(Hello::from_bytes(&many.to_bytes()), Err(HelloError::Capabilities));
    }

    #[test]
    fn each_expectation_has_its_own_refusal() {
        let expected = Expected::of(&descriptor());
        let found = |change: fn(&mut Descriptor)| {
            let mut other = descriptor();
            change(&mut other);
            expected.refuses(&other)
        };
        assert_eq!(found(|_| ()), None);
        assert_eq!(
            found(|d| d.rid = Rid::parse("x").expect("an id")),
            Some(Reject::IdentityMismatch)
        );
        assert_eq!(found(|d| d.identity = None), Some(Reject::SecurityIdentityMismatch));
        assert_eq!(
            found(|d| d.generation = Generation::new(8).expect("not zero")),
            Some(Reject::LifecycleGenerationStale)
        );
        assert_eq!(Expected::default().refuses(&descriptor()), None);
    }

    #[test]
    fn reasons_have_one_number_each() {
        for &reason in Reject::ALL {
            assert_eq!(Reject::from_code(reason.code()), Some(reason));
        }
        assert_eq!(Reject::from_code(0), None);
    }

    proptest! {
        #[test]
        fn foreign_bytes_never_panic(bytes: Vec<u8>) {
            let _ = Hello::from_bytes(&bytes);
        }
    }
}
