//! Names of meshes, channels, packets and nodes.

use std::fmt;
use std::str::FromStr;

use data_encoding::{BASE32_NOPAD, HEXLOWER};
use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};

use crate::ids::{IdError, string_conversions};
use crate::{Entropy, draw};

/// The longest name of a mesh, a channel or a packet, in bytes: one byte holds its length on a
/// link.
pub const NAME_BYTES: usize = 255;

/// The longest routing ID, in bytes, for the same reason.
pub const RID_BYTES: usize = 255;

/// The longest encoded name inside an object key: stores allow 1,024 bytes for a whole key, which
/// also holds a routing ID.
const KEY_NAME_CHARS: usize = 120;

/// The longest prefix of an automatic routing ID.
const PREFIX_CHARS: usize = 64;

/// Free text with a length: `parse`, `as_str`, Display, serde.
macro_rules! free_name {
    ($(#[$doc:meta])* $name:ident, $kind:literal) => {
        $(#[$doc])*
        #[derive(Clone, Debug, Deserialize, Eq, Hash, Ord, PartialEq, PartialOrd, Serialize)]
        #[serde(try_from = "String", into = "String")]
        pub struct $name(String);

        impl $name {
            /// Reads the name: 1 to [`NAME_BYTES`] bytes of UTF-8 without NUL.
            ///
            /// # Errors
            /// [`IdError`] for any other text.
            pub fn parse(text: &str) -> Result<Self, IdError> {
                let fits = (1..=NAME_BYTES).contains(&text.len()) && !text.contains('\0');
                fits.then(|| Self(text.to_owned())).ok_or(IdError { kind: $kind })
            }

            /// The name's text.
            pub fn as_str(&self) -> &str {
                &self.0
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(&self.0)
            }
        }

        impl From<$name> for String {
            fn from(name: $name) -> Self {
                name.0
            }
        }

        string_conversions!($name);
    };
}

free_name!(
    /// One group of nodes that connect to each other (routemesh §2).
    MeshName, "mesh name"
);
free_name!(
    /// The logical target of a channel message (routemesh §3).
    ChannelName, "channel name"
);
free_name!(
    /// What a handler is registered for, beside channel and message kind (routemesh §7).
    PacketName, "packet name"
);

impl MeshName {
    /// The name as one segment of an object key: lower-case base32, or base32 of the name's
    /// SHA-256 when that is longer than a key has room for.
    pub fn key_segment(&self) -> String {
        let plain = BASE32_NOPAD.encode(self.0.as_bytes());
        let text = match plain.len() {
            0..=KEY_NAME_CHARS => plain,
            _ => BASE32_NOPAD.encode(&Sha256::digest(self.0.as_bytes())),
        };
        text.to_ascii_lowercase()
    }
}

/// A routing ID: 1 to [`RID_BYTES`] opaque bytes that name a node within its mesh.
///
/// The order is the canonical one of the protocol: unsigned bytes from the left, a proper prefix
/// first (routemesh §8). The text form escapes every byte outside `[A-Za-z0-9._-]` as `%XX`.
#[derive(Clone, Deserialize, Eq, Hash, Ord, PartialEq, PartialOrd, Serialize)]
#[serde(try_from = "String", into = "String")]
pub struct Rid(Box<[u8]>);

impl Rid {
    /// The routing ID of these bytes.
    ///
    /// # Errors
    /// [`IdError`] for none or more than [`RID_BYTES`].
    pub fn new(bytes: &[u8]) -> Result<Self, IdError> {
        let fits = (1..=RID_BYTES).contains(&bytes.len());
        fits.then(|| Self(bytes.into())).ok_or(IdError { kind: "routing id" })
    }

    /// A fresh routing ID: the prefix and a random UUID, so that no two lifecycles share one.
    pub fn mint(prefix: &RidPrefix, entropy: &mut dyn Entropy) -> Self {
        let mut uuid: [u8; 16] = draw(entropy);
        // RFC 9562: version 4, variant 10.
        uuid[6] = uuid[6] & 0x0f | 0x40;
        uuid[8] = uuid[8] & 0x3f | 0x80;
        let hex = HEXLOWER.encode(&uuid);
        let groups = [&hex[..8], &hex[8..12], &hex[12..16], &hex[16..20], &hex[20..]];
        let text = format!("{}-{}", prefix.as_str(), groups.join("-"));
        Self(text.into_bytes().into())
    }

    /// Reads the text form; each routing ID has exactly one.
    ///
    /// # Errors
    /// [`IdError`] for a text that [`Rid`] would not write.
    pub fn parse(text: &str) -> Result<Self, IdError> {
        let rid = unescape(text).and_then(|bytes| Self::new(&bytes).ok());
        rid.filter(|rid| rid.to_string() == text).ok_or(IdError { kind: "routing id" })
    }

    /// The bytes.
    pub fn as_bytes(&self) -> &[u8] {
        &self.0
    }

    /// Whether the routing ID may stand in an object key: what [`Rid::mint`] makes may.
    pub fn is_key_safe(&self) -> bool {
        self.0.iter().copied().all(is_plain) && self.0.iter().any(|&byte| byte != b'.')
    }
}

fn is_plain(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || matches!(byte, b'.' | b'_' | b'-')
}

fn unescape(text: &str) -> Option<Vec<u8>> {
    let (mut bytes, mut rest) = (Vec::with_capacity(text.len()), text.as_bytes());
    while let Some((&first, tail)) = rest.split_first() {
        let (byte, tail) = match first {
            b'%' => (
                u8::from_str_radix(std::str::from_utf8(tail.get(..2)?).ok()?, 16).ok()?,
                &tail[2..],
            ),
            _ => (first, tail),
        };
        bytes.push(byte);
        rest = tail;
    }
    Some(bytes)
}

impl fmt::Display for Rid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|&byte| match is_plain(byte) {
            true => write!(f, "{}", char::from(byte)),
            false => write!(f, "%{byte:02X}"),
        })
    }
}

impl fmt::Debug for Rid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Rid({self})")
    }
}

impl From<Rid> for String {
    fn from(rid: Rid) -> Self {
        rid.to_string()
    }
}

string_conversions!(Rid);

/// The readable part of an automatic routing ID: `[A-Za-z0-9._-]`, 1 to 64 characters.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct RidPrefix(String);

impl RidPrefix {
    /// Reads a prefix.
    ///
    /// # Errors
    /// [`IdError`] for other characters or another length.
    pub fn parse(text: &str) -> Result<Self, IdError> {
        let fits = (1..=PREFIX_CHARS).contains(&text.len()) && text.bytes().all(is_plain);
        fits.then(|| Self(text.to_owned())).ok_or(IdError { kind: "routing id prefix" })
    }

    /// The prefix.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl Default for RidPrefix {
    fn default() -> Self {
        Self("mesh".to_owned())
    }
}

/// One lifecycle of a node: random, never zero, compared for equality only (routemesh §8).
#[derive(Clone, Copy, Deserialize, Eq, Hash, Ord, PartialEq, PartialOrd, Serialize)]
#[serde(try_from = "String", into = "String")]
pub struct Generation(u64);

impl Generation {
    /// A fresh generation.
    pub fn mint(entropy: &mut dyn Entropy) -> Self {
        Self(u64::from_be_bytes(draw(entropy)).max(1))
    }

    /// The generation of a number.
    ///
    /// # Errors
    /// [`IdError`] for zero.
    pub fn new(number: u64) -> Result<Self, IdError> {
        if number == 0 { Err(IdError { kind: "generation" }) } else { Ok(Self(number)) }
    }

    /// The number.
    pub fn number(self) -> u64 {
        self.0
    }

    /// Reads 16 lower-case hexadecimal digits.
    ///
    /// # Errors
    /// [`IdError`] for any other text, and for zero.
    pub fn parse(text: &str) -> Result<Self, IdError> {
        let bytes = HEXLOWER.decode(text.as_bytes()).ok().and_then(|bytes| bytes.try_into().ok());
        bytes.map(u64::from_be_bytes).ok_or(IdError { kind: "generation" }).and_then(Self::new)
    }
}

impl fmt::Display for Generation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:016x}", self.0)
    }
}

impl fmt::Debug for Generation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Generation({self})")
    }
}

impl From<Generation> for String {
    fn from(generation: Generation) -> Self {
        generation.to_string()
    }
}

string_conversions!(Generation);

/// A node's ed25519 public key, which its TLS end must prove to hold (decision 10).
#[derive(Clone, Copy, Deserialize, Eq, Hash, Ord, PartialEq, PartialOrd, Serialize)]
#[serde(try_from = "String", into = "String")]
pub struct Identity([u8; 32]);

impl Identity {
    /// The identity of a public key.
    pub fn new(public_key: [u8; 32]) -> Self {
        Self(public_key)
    }

    /// The public key.
    pub fn as_bytes(&self) -> &[u8; 32] {
        &self.0
    }

    /// Reads 64 lower-case hexadecimal digits.
    ///
    /// # Errors
    /// [`IdError`] for any other text.
    pub fn parse(text: &str) -> Result<Self, IdError> {
        let bytes = HEXLOWER.decode(text.as_bytes()).ok().and_then(|bytes| bytes.try_into().ok());
        bytes.map(Self).ok_or(IdError { kind: "node identity" })
    }
}

impl fmt::Display for Identity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&HEXLOWER.encode(&self.0))
    }
}

impl fmt::Debug for Identity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Identity({self})")
    }
}

impl From<Identity> for String {
    fn from(identity: Identity) -> Self {
        identity.to_string()
    }
}

string_conversions!(Identity);

/// The largest weight (routemesh §5).
pub const WEIGHT_MAX: u16 = 10_000;

/// The weight of a server that sets none.
pub const WEIGHT_DEFAULT: Weight = Weight(100);

/// A server's share of new selections: 0 keeps the membership and takes no new work.
#[derive(Clone, Copy, Debug, Deserialize, Eq, Hash, Ord, PartialEq, PartialOrd, Serialize)]
#[serde(try_from = "u16", into = "u16")]
pub struct Weight(u16);

impl Weight {
    /// No new selections.
    pub const ZERO: Self = Self(0);

    /// The weight of a number.
    ///
    /// # Errors
    /// [`IdError`] outside 0 to [`WEIGHT_MAX`].
    pub fn new(number: i64) -> Result<Self, IdError> {
        let weight = u16::try_from(number).ok().filter(|&number| number <= WEIGHT_MAX);
        weight.map(Self).ok_or(IdError { kind: "weight (0 to 10000)" })
    }

    /// The number.
    pub fn get(self) -> u16 {
        self.0
    }
}

impl Default for Weight {
    fn default() -> Self {
        WEIGHT_DEFAULT
    }
}

impl TryFrom<u16> for Weight {
    type Error = IdError;

    fn try_from(number: u16) -> Result<Self, IdError> {
        Self::new(number.into())
    }
}

impl From<Weight> for u16 {
    fn from(weight: Weight) -> Self {
        weight.0
    }
}

/// A descriptor's revision as a JSON number.
pub(super) mod revision_number {
    use serde::de::Error as _;
    use serde::{Deserialize, Deserializer, Serializer};

    use crate::ids::Revision;

    pub(in super::super) fn serialize<S: Serializer>(
        revision: &Revision,
        to: S,
    ) -> Result<S::Ok, S::Error> {
        to.serialize_u64(revision.number())
    }

    pub(in super::super) fn deserialize<'de, D: Deserializer<'de>>(
        from: D,
    ) -> Result<Revision, D::Error> {
        let number = u64::deserialize(from)?;
        Revision::new(number).ok_or_else(|| D::Error::custom("revisions count from 1"))
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::testing::Counter;

    #[test]
    fn minted_ids_are_prefixed_uuids() {
        let prefix = RidPrefix::parse("game.eu-1").expect("a prefix");
        let (one, two) = (Rid::mint(&prefix, &mut Counter(1)), Rid::mint(&prefix, &mut Counter(2)));
        let text = one.to_string();
        assert_ne!(one, two);
        assert_eq!(text.len(), "game.eu-1".len() + 37);
        assert_eq!((&text[..10], &text[24..25]), ("game.eu-1-", "4"));
        assert!(one.is_key_safe());
    }

    #[test]
    fn the_order_is_that_of_bytes() {
        let rid = |bytes: &[u8]| Rid::new(bytes).expect("short");
        assert!(rid(b"a") < rid(b"ab") && rid(b"ab") < rid(b"b") && rid(b"z") < rid(&[0xff]));
    }

    #[test]
    fn numbers_out_of_range_are_refused() {
        assert!(Weight::new(-1).is_err() && Weight::new(10_001).is_err());
        assert_eq!(Weight::new(10_000).map(Weight::get), Ok(10_000));
        assert!(Generation::new(0).is_err() && Generation::parse("0000000000000000").is_err());
        assert!(Rid::new(&[]).is_err() && Rid::new(&[0; 256]).is_err());
        for bad in ["", "a b", "ü", &"x".repeat(65)] {
            assert!(RidPrefix::parse(bad).is_err(), "{bad:?}");
        }
    }

    #[test]
    fn a_long_name_is_hashed_in_keys() {
        let short = MeshName::parse("game-mesh").expect("a name");
        assert_eq!(short.key_segment(), "m5qw2zjnnvsxg2a");
        let long = MeshName::parse(&"ü".repeat(100)).expect("a name");
        assert_eq!(long.key_segment().len(), 52);
        assert_eq!(MeshName::parse(&"x".repeat(75)).expect("a name").key_segment().len(), 120);
    }

    proptest! {
        #[test]
        fn routing_ids_have_one_text(bytes in prop::collection::vec(any::<u8>(), 1..=255)) {
            let rid = Rid::new(&bytes).expect("short");
            prop_assert_eq!(Rid::parse(&rid.to_string()), Ok(rid));
        }

        #[test]
        fn foreign_texts_never_panic(text in "[%a-fA-F0-9.ü]{0,12}") {
            if let Ok(rid) = Rid::parse(&text) {
                prop_assert_eq!(rid.to_string(), text);
            }
        }
    }
}
