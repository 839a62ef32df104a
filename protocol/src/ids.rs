//! Validated names: who, where, which. Each has one grammar, one parser and one text.

use std::fmt;
use std::str::FromStr;

use data_encoding::{BASE32_NOPAD, Encoding, HEXLOWER, Specification};
use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};
use thiserror::Error;

use crate::{Entropy, Ulid, draw};

/// The text does not fit the grammar of the name asked for. The text is not repeated: foreign.
#[derive(Clone, Copy, Debug, Eq, Error, PartialEq)]
#[error("not a valid {kind}")]
pub struct IdError {
    /// What was expected, for example `region`.
    pub kind: &'static str,
}

/// The longest label, as DNS bounds it.
const LABEL_MAX: usize = 63;

/// The longest host name, as DNS bounds it.
const HOST_MAX: usize = 253;

/// Whether `text` is `[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?`.
fn is_label(text: &str) -> bool {
    let inner = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-';
    (1..=LABEL_MAX).contains(&text.len())
        && text.bytes().all(inner)
        && !text.starts_with('-')
        && !text.ends_with('-')
}

fn is_host(text: &str) -> bool {
    text.len() <= HOST_MAX && text.contains('.') && text.split('.').all(is_label)
}

/// A name that is text with a grammar: `parse`, `as_str`, Display, serde.
macro_rules! text_name {
    ($(#[$doc:meta])* $name:ident, $kind:literal, $accepts:expr) => {
        $(#[$doc])*
        #[derive(Clone, Debug, Deserialize, Eq, Hash, Ord, PartialEq, PartialOrd, Serialize)]
        #[serde(try_from = "String", into = "String")]
        pub struct $name(String);

        impl $name {
            /// Reads the name.
            ///
            /// # Errors
            /// [`IdError`] when the text does not fit the grammar.
            pub fn parse(text: &str) -> Result<Self, IdError> {
                let accepted = $accepts(text).then(|| Self(text.to_owned()));
                accepted.ok_or(IdError { kind: $kind })
            }

            /// The name's one text.
            pub fn as_str(&self) -> &str {
                &self.0
            }
        }

        string_conversions!($name);

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(self.as_str())
            }
        }

        impl From<$name> for String {
            fn from(name: $name) -> Self {
                name.0
            }
        }
    };
}

/// From text by the type's own `parse`.
macro_rules! string_conversions {
    ($name:ident) => {
        impl FromStr for $name {
            type Err = IdError;

            fn from_str(text: &str) -> Result<Self, IdError> {
                Self::parse(text)
            }
        }

        impl TryFrom<String> for $name {
            type Error = IdError;

            fn try_from(text: String) -> Result<Self, IdError> {
                Self::parse(&text)
            }
        }
    };
}
pub(crate) use string_conversions;

text_name!(
    /// A region, for example `uk`.
    Region, "region", is_label
);
text_name!(
    /// A box: one server that runs an agent.
    BoxName, "box name", is_label
);
text_name!(
    /// An account.
    Account, "account", is_label
);
text_name!(
    /// An app of an account.
    App, "app", is_label
);
text_name!(
    /// Who holds a set of bucket rights: `console`, or a box's name.
    Principal, "principal", is_label
);
text_name!(
    /// An instance's host: a lower-case DNS name with at least one dot.
    Host, "host", is_host
);
text_name!(
    /// One start of a box, as its kernel or its process names it.
    BootId, "boot id", is_label
);
text_name!(
    /// A feature a box can serve, for example `db-read-1`.
    Capability, "capability", is_label
);
text_name!(
    /// An instance's class, for example `sleeping`.
    Class, "class", is_label
);

impl From<&BoxName> for Principal {
    fn from(name: &BoxName) -> Self {
        Self(name.0.clone())
    }
}

/// RFC 4648 base32 in lower case without padding; bits beyond the last byte must be zero, so that
/// each value has one text.
pub(crate) fn base32() -> Encoding {
    let mut form: Specification = BASE32_NOPAD.specification();
    form.symbols.make_ascii_lowercase();
    form.encoding().expect("the lower-case alphabet has 32 different symbols")
}

/// Sixteen bytes as 26 base32 characters: the body of a read id and of a nonce.
fn write_16(bytes: &[u8; 16]) -> String {
    base32().encode(bytes)
}

fn read_16(text: &str) -> Option<[u8; 16]> {
    base32().decode(text.as_bytes()).ok()?.try_into().ok()
}

/// One forwarded read: `dbr_` and 26 base32 characters of 16 random bytes (db-forward §5.4).
#[derive(Clone, Copy, Debug, Deserialize, Eq, Hash, Ord, PartialEq, PartialOrd, Serialize)]
#[serde(try_from = "String", into = "String")]
pub struct ReadId([u8; 16]);

impl ReadId {
    /// What every read id begins with.
    pub const PREFIX: &'static str = "dbr_";

    /// Length of the text in bytes.
    pub const LEN: usize = 30;

    /// Draws a fresh id.
    pub fn mint(entropy: &mut dyn Entropy) -> Self {
        Self(draw(entropy))
    }

    /// The id of these bytes.
    pub fn from_bytes(bytes: [u8; 16]) -> Self {
        Self(bytes)
    }

    /// Reads the 30-byte text.
    ///
    /// # Errors
    /// [`IdError`] for any other text.
    pub fn parse(text: &str) -> Result<Self, IdError> {
        let body = text.strip_prefix(Self::PREFIX).and_then(read_16);
        body.map(Self).ok_or(IdError { kind: "read id" })
    }

    /// The id's one text.
    pub fn as_text(&self) -> String {
        format!("{}{}", Self::PREFIX, write_16(&self.0))
    }
}

/// Sixteen random bytes that make two writings of equal content differ.
#[derive(Clone, Copy, Debug, Deserialize, Eq, Hash, PartialEq, Serialize)]
#[serde(try_from = "String", into = "String")]
pub struct Nonce([u8; 16]);

impl Nonce {
    /// Draws a fresh nonce.
    pub fn mint(entropy: &mut dyn Entropy) -> Self {
        Self(draw(entropy))
    }

    /// Reads 26 base32 characters.
    ///
    /// # Errors
    /// [`IdError`] for any other text.
    pub fn parse(text: &str) -> Result<Self, IdError> {
        read_16(text).map(Self).ok_or(IdError { kind: "nonce" })
    }
}

/// A SHA-256 as 64 lower-case hex digits.
#[derive(Clone, Copy, Debug, Deserialize, Eq, Hash, Ord, PartialEq, PartialOrd, Serialize)]
#[serde(try_from = "String", into = "String")]
pub struct Digest([u8; 32]);

impl Digest {
    /// Hashes `bytes`.
    pub fn of(bytes: &[u8]) -> Self {
        Self(Sha256::digest(bytes).into())
    }

    /// A digest computed elsewhere.
    pub fn from_bytes(bytes: [u8; 32]) -> Self {
        Self(bytes)
    }

    /// The 32 bytes.
    pub fn as_bytes(&self) -> &[u8; 32] {
        &self.0
    }

    /// Reads 64 lower-case hex digits.
    ///
    /// # Errors
    /// [`IdError`] for any other text.
    pub fn parse(text: &str) -> Result<Self, IdError> {
        let bytes = HEXLOWER.decode(text.as_bytes()).ok().and_then(|b| b.try_into().ok());
        bytes.map(Self).ok_or(IdError { kind: "digest" })
    }

    /// The first 16 hex digits: what an audit row keeps of a statement (db-forward §9.3).
    pub fn prefix(&self) -> String {
        HEXLOWER.encode(&self.0[..8])
    }
}

/// Which life of a host's name an instance is: a host deleted and made again has another one, so
/// a read admitted for the old instance cannot see the new one (db-forward §8.2).
#[derive(Clone, Copy, Debug, Deserialize, Eq, Hash, PartialEq, Serialize)]
#[serde(transparent)]
pub struct Incarnation(Digest);

impl Incarnation {
    /// Computes the incarnation of a record.
    ///
    /// SHA-256 over a domain and four fields, each after its length, so that no two records can be
    /// spelled as the same bytes.
    pub fn of(account: &Account, app: &App, host: &Host, created_at: Ulid) -> Self {
        let created_at = created_at.to_string();
        let mut hash = Sha256::new_with_prefix(b"carlos-incarnation-v1\0");
        for field in [account.as_str(), app.as_str(), host.as_str(), &created_at] {
            let length = u32::try_from(field.len()).expect("names are below 254 bytes");
            hash.update(length.to_be_bytes());
            hash.update(field);
        }
        Self(Digest(hash.finalize().into()))
    }

    /// Reads 64 lower-case hex digits.
    ///
    /// # Errors
    /// [`IdError`] for any other text.
    pub fn parse(text: &str) -> Result<Self, IdError> {
        Digest::parse(text).map(Self).map_err(|_| IdError { kind: "incarnation" })
    }
}

/// A Litestream transaction id, written `0x` and 16 lower-case hex digits.
#[derive(
    Clone, Copy, Debug, Default, Deserialize, Eq, Hash, Ord, PartialEq, PartialOrd, Serialize,
)]
#[serde(try_from = "String", into = "String")]
pub struct Txid(pub u64);

impl Txid {
    /// Reads `0x` and 16 lower-case hex digits.
    ///
    /// # Errors
    /// [`IdError`] for any other text.
    pub fn parse(text: &str) -> Result<Self, IdError> {
        let bytes = text.strip_prefix("0x").and_then(|hex| HEXLOWER.decode(hex.as_bytes()).ok());
        let bytes = bytes.and_then(|bytes| bytes.try_into().ok()).map(u64::from_be_bytes);
        bytes.map(Self).ok_or(IdError { kind: "transaction id" })
    }
}

/// A ULID as JSON text, upper case, one spelling only.
pub mod ulid_text {
    use serde::de::Error as _;
    use serde::{Deserialize, Deserializer, Serializer};

    use super::IdError;
    use crate::Ulid;

    /// Reads the one spelling that is written: Crockford's alphabet has several readings of a
    /// character.
    ///
    /// # Errors
    /// [`IdError`] for any other text.
    pub fn parse(text: &str) -> Result<Ulid, IdError> {
        let ulid = Ulid::from_string(text).ok().filter(|ulid| ulid.to_string() == text);
        ulid.ok_or(IdError { kind: "ULID" })
    }

    /// Writes 26 characters.
    ///
    /// # Errors
    /// Those of the serializer.
    pub fn serialize<S: Serializer>(ulid: &Ulid, to: S) -> Result<S::Ok, S::Error> {
        to.serialize_str(&ulid.to_string())
    }

    /// Reads 26 characters.
    ///
    /// # Errors
    /// As [`parse`].
    pub fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<Ulid, D::Error> {
        parse(&String::deserialize(from)?).map_err(D::Error::custom)
    }
}

/// A revision of a chain, from 1; 20 digits in a key, so that key order is revision order.
#[derive(Clone, Copy, Debug, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub struct Revision(u64);

impl Revision {
    /// The revision that claims a chain.
    pub const FIRST: Self = Self(1);

    /// The revision of this number; there is no revision 0.
    pub fn new(number: u64) -> Option<Self> {
        (number > 0).then_some(Self(number))
    }

    /// The number, from 1.
    pub fn number(self) -> u64 {
        self.0
    }

    /// The revision after this one; saturates where no chain will ever be.
    #[must_use]
    pub fn next(self) -> Self {
        Self(self.0.saturating_add(1))
    }

    /// Reads 20 digits.
    ///
    /// # Errors
    /// [`IdError`] for any other text.
    pub fn parse(text: &str) -> Result<Self, IdError> {
        let error = IdError { kind: "revision" };
        fixed_decimal(text, 20).and_then(Self::new).ok_or(error)
    }
}

/// Reads a decimal of exactly `width` digits.
pub(crate) fn fixed_decimal(text: &str, width: usize) -> Option<u64> {
    let digits = text.len() == width && text.bytes().all(|byte| byte.is_ascii_digit());
    if digits { text.parse().ok() } else { None }
}

impl fmt::Display for ReadId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.as_text())
    }
}

impl fmt::Display for Nonce {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&write_16(&self.0))
    }
}

impl fmt::Display for Digest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&HEXLOWER.encode(&self.0))
    }
}

impl fmt::Display for Incarnation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl fmt::Display for Txid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:#018x}", self.0)
    }
}

impl fmt::Display for Revision {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:020}", self.0)
    }
}

macro_rules! display_conversions {
    ($($name:ident),*) => {$(
        string_conversions!($name);

        impl From<$name> for String {
            fn from(name: $name) -> Self {
                name.to_string()
            }
        }
    )*};
}

display_conversions!(ReadId, Nonce, Digest, Txid);

impl FromStr for Incarnation {
    type Err = IdError;

    fn from_str(text: &str) -> Result<Self, IdError> {
        Self::parse(text)
    }
}

impl FromStr for Revision {
    type Err = IdError;

    fn from_str(text: &str) -> Result<Self, IdError> {
        Self::parse(text)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::testing::Counter;

    #[test]
    fn labels_follow_dns() {
        let longest = "a".repeat(63);
        for good in ["a", "0", "uk", "carlos-flagship-uk", "a--b", &longest] {
            assert!(Region::parse(good).is_ok(), "{good}");
        }
        let too_long = "a".repeat(64);
        for bad in ["", "-a", "a-", "UK", "a_b", "a.b", "a/b", "é", "a\0", &too_long] {
            assert!(Region::parse(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn hosts_need_a_dot_and_whole_labels() {
        assert!(Host::parse("shop.example.com").is_ok());
        let longest = format!("{0}.{0}.{0}.{1}", "a".repeat(63), "a".repeat(61));
        assert_eq!(longest.len(), 253);
        assert!(Host::parse(&longest).is_ok());
        let bad = ["shop", ".shop.com", "shop.com.", "shop..com", "Shop.com", "a.b/c", "../a.b"];
        for host in bad {
            assert!(Host::parse(host).is_err(), "{host}");
        }
        assert!(Host::parse(&format!("{longest}a")).is_err());
    }

    #[test]
    fn a_read_id_has_one_text() {
        let id = ReadId::mint(&mut Counter(1));
        let text = id.to_string();
        assert_eq!(text.len(), ReadId::LEN);
        assert_eq!(ReadId::parse(&text), Ok(id));
        // 26 characters hold 130 bits: the last two must be zero.
        let zero = ReadId::from_bytes([0; 16]).to_string();
        assert!(ReadId::parse(&zero).is_ok());
        for bad in [zero.replace("aaaa", "aaab"), zero.to_uppercase(), format!("{zero}a")] {
            let last_bits = bad.len() == 30 && bad.ends_with('a');
            assert!(last_bits || ReadId::parse(&bad).is_err(), "{bad}");
        }
        let trailing = format!("{}b", &zero[..29]);
        assert!(ReadId::parse(&trailing).is_err());
    }

    #[test]
    fn field_borders_move_the_incarnation() {
        let of = |account, app| {
            let (account, app) = (Account::parse(account), App::parse(app));
            let host = Host::parse("shop.example.com").expect("host");
            Incarnation::of(&account.expect("a"), &app.expect("b"), &host, Ulid::nil())
        };
        assert_ne!(of("ab", "c"), of("a", "bc"));
    }

    #[test]
    fn transaction_ids_and_revisions_are_fixed_width() {
        assert_eq!(Txid(255).to_string(), "0x00000000000000ff");
        assert_eq!(Txid::parse("0x00000000000000ff"), Ok(Txid(255)));
        for bad in ["0xff", "00000000000000ff", "0x00000000000000FF", "0x0000000000000000ff"] {
            assert!(Txid::parse(bad).is_err(), "{bad}");
        }
        assert_eq!(Revision::FIRST.to_string(), "00000000000000000001");
        for bad in ["0", "00000000000000000000", "+0000000000000000001", "99999999999999999999"] {
            assert!(Revision::parse(bad).is_err(), "{bad}");
        }
        let last = Revision(u64::MAX);
        assert_eq!(Revision::parse(&last.to_string()), Ok(last));
        assert_eq!(last.next(), last);
    }

    proptest! {
        #[test]
        fn every_value_has_one_text(bytes: [u8; 16], digest: [u8; 32], number: u64) {
            let (id, nonce, digest) = (ReadId(bytes), Nonce(bytes), Digest(digest));
            prop_assert_eq!(ReadId::parse(&id.to_string()), Ok(id));
            prop_assert_eq!(Nonce::parse(&nonce.to_string()), Ok(nonce));
            prop_assert_eq!(Digest::parse(&digest.to_string()), Ok(digest));
            prop_assert_eq!(Txid::parse(&Txid(number).to_string()), Ok(Txid(number)));
        }

        #[test]
        fn any_id_read_is_written_back_the_same(text in "dbr_[a-z2-7]{26}") {
            if let Ok(id) = ReadId::parse(&text) {
                prop_assert_eq!(id.to_string(), text);
            }
        }
    }
}
