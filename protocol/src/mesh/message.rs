//! Heads of messages and replies, and metadata (routemesh §7; channel messaging).

use bytes::{BufMut, BytesMut};
use thiserror::Error;

use super::record::{begin_message, begin_reply, put_part, put_reply_part};

/// The owner index of node-direct messages: above every channel index.
pub const OWNER_NODE: u16 = u16::MAX;

/// The longest metadata of a message, in bytes of its encoding.
pub const METADATA_BYTES: usize = 1_024;

/// Bytes of a correlation.
pub const CORRELATION_BYTES: usize = 8;

const REQUEST: u8 = 1;
const METADATA: u8 = 2;
const PARTED: u8 = 4;
const CONTENT_SHIFT: u8 = 4;
const CONTENT_RAW: u8 = 0;
const CONTENT_JSON: u8 = 1;
const CONTENT_NAMED: u8 = 2;
const MESSAGE_FLAGS: u8 = REQUEST | METADATA | PARTED | 3 << CONTENT_SHIFT;
const REPLY_FLAGS: u8 = PARTED | 3 << CONTENT_SHIFT;

/// What a payload's bytes are.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub enum Content<'a> {
    /// Bytes as they are.
    #[default]
    Raw,
    /// `application/json`.
    Json,
    /// Another content type, 1 to 255 bytes.
    Named(&'a str),
}

impl<'a> Content<'a> {
    /// The content type's text; `None` for raw bytes.
    pub fn as_str(&self) -> Option<&'a str> {
        match self {
            Self::Raw => None,
            Self::Json => Some("application/json"),
            Self::Named(text) => Some(text),
        }
    }

    fn code(self) -> u8 {
        let code = match self {
            Self::Raw => CONTENT_RAW,
            Self::Json => CONTENT_JSON,
            Self::Named(_) => CONTENT_NAMED,
        };
        code << CONTENT_SHIFT
    }

    fn size(self) -> usize {
        if let Self::Named(text) = self { 1 + text.len() } else { 0 }
    }

    fn put(self, out: &mut BytesMut) {
        if let Self::Named(text) = self {
            put_short(text, out);
        }
    }

    fn read(flags: u8, take: &mut Take<'a>) -> Option<Self> {
        match flags >> CONTENT_SHIFT & 3 {
            CONTENT_RAW => Some(Self::Raw),
            CONTENT_JSON => Some(Self::Json),
            CONTENT_NAMED => take.short_text().map(Self::Named),
            _ => None,
        }
    }
}

/// A request's part of a head.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Asked {
    /// Matches the reply; chosen by the asker, unique among its open requests of this link.
    pub correlation: u64,
    /// What is left of the asker's time, in milliseconds.
    pub budget_ms: u32,
}

/// A message that needs more than one record.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Parted {
    /// Names the message among those in transit on this link.
    pub stream: u32,
    /// Bytes of the whole payload.
    pub total: u64,
}

/// Everything of a message but its payload.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Head<'a> {
    /// The channel's index in the receiver's descriptor, or [`OWNER_NODE`].
    pub owner: u16,
    /// For a request, what the reply needs; `None` for a one-way message.
    pub asked: Option<Asked>,
    /// The packet name, 1 to 255 bytes.
    pub packet: &'a str,
    /// The content type.
    pub content: Content<'a>,
    /// Encoded [`Metadata`]; empty without any.
    pub metadata: &'a [u8],
    /// For a payload that does not fit this record.
    pub parted: Option<Parted>,
}

impl<'a> Head<'a> {
    /// Begins the record: the caller lets `payload` bytes follow, at most
    /// [`PART_BYTES`](super::PART_BYTES).
    pub fn put(&self, payload: usize, out: &mut BytesMut) {
        let body = self.size() + payload;
        out.reserve(body + 5);
        begin_message(body, out);
        out.put_u8(self.flags());
        out.put_u16(self.owner);
        if let Some(asked) = self.asked {
            out.put_u64(asked.correlation);
            out.put_u32(asked.budget_ms);
        }
        put_short(self.packet, out);
        self.content.put(out);
        if !self.metadata.is_empty() {
            out.put_u16(self.metadata.len() as u16);
            out.put_slice(self.metadata);
        }
        if let Some(parted) = self.parted {
            out.put_u32(parted.stream);
            out.put_u64(parted.total);
        }
    }

    /// Bytes of the record with so much payload, length field and all: what it costs of credit.
    pub fn record_bytes(&self, payload: usize) -> usize {
        5 + self.size() + payload
    }

    /// Bytes of the record of a further part: what it costs of credit.
    pub fn part_bytes(len: usize) -> usize {
        9 + len
    }

    /// Begins the record of a further part, of which the caller lets `len` bytes follow.
    pub fn put_part(stream: u32, len: usize, out: &mut BytesMut) {
        put_part(stream, len, out);
    }

    /// Bytes of the whole payload, of which `here` are in this record.
    pub fn total(&self, here: usize) -> u64 {
        self.parted.map_or(here as u64, |parted| parted.total)
    }

    fn flags(&self) -> u8 {
        let bit = |on: bool, flag: u8| if on { flag } else { 0 };
        bit(self.asked.is_some(), REQUEST)
            | bit(!self.metadata.is_empty(), METADATA)
            | bit(self.parted.is_some(), PARTED)
            | self.content.code()
    }

    fn size(&self) -> usize {
        let asked = if self.asked.is_some() { CORRELATION_BYTES + 4 } else { 0 };
        let metadata = if self.metadata.is_empty() { 0 } else { 2 + self.metadata.len() };
        let parted = if self.parted.is_some() { 12 } else { 0 };
        3 + asked + 1 + self.packet.len() + self.content.size() + metadata + parted
    }

    pub(super) fn read(take: &mut Take<'a>) -> Option<Self> {
        let flags = take.u8().filter(|flags| flags & !MESSAGE_FLAGS == 0)?;
        let owner = take.u16()?;
        let asked = match flags & REQUEST {
            0 => None,
            _ => Some(Asked { correlation: take.u64()?, budget_ms: take.u32()? }),
        };
        let packet = take.short_text()?;
        let content = Content::read(flags, take)?;
        let metadata = match flags & METADATA {
            0 => &[][..],
            _ => {
                let size = usize::from(take.u16()?);
                take.bytes(size).filter(|_| (1..=METADATA_BYTES).contains(&size))?
            }
        };
        let parted = match flags & PARTED {
            0 => None,
            _ => Some(Parted { stream: take.u32()?, total: take.u64()? }),
        };
        Some(Self { owner, asked, packet, content, metadata, parted })
    }
}

macro_rules! outcomes {
    ($($(#[$doc:meta])* $name:ident = $code:literal;)*) => {
        /// How a request ended at its target. The numbers are those of the wire.
        #[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
        pub enum Outcome {
            $($(#[$doc])* $name,)*
        }

        impl Outcome {
            /// Every outcome.
            pub const ALL: &[Self] = &[$(Self::$name),*];

            /// The number on the wire.
            pub fn code(self) -> u8 {
                match self { $(Self::$name => $code,)* }
            }

            /// The outcome of a number.
            pub fn from_code(code: u8) -> Option<Self> {
                match code { $($code => Some(Self::$name),)* _ => None }
            }
        }
    };
}

outcomes! {
    /// The payload is the reply.
    Done = 0;
    /// No handler for this packet. For every other outcome the payload is a text of at most 255
    /// bytes for a person.
    NoHandler = 1;
    /// The handler refused.
    Rejected = 2;
    /// The owner's mailbox had no room.
    Unavailable = 3;
    /// The node takes no more work.
    ShuttingDown = 4;
    /// The payload or the metadata could not be read.
    ProtocolError = 5;
    /// The time ran out before the handler ended.
    DeadlineExceeded = 6;
    /// The handler failed.
    Failed = 7;
}

/// Everything of a reply but its payload.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct ReplyHead<'a> {
    /// The request's correlation.
    pub correlation: u64,
    /// How the request ended.
    pub outcome: Outcome,
    /// The content type.
    pub content: Content<'a>,
    /// Bytes of the whole payload, when it does not fit this record.
    pub total: Option<u64>,
}

impl<'a> ReplyHead<'a> {
    /// Begins the record: the caller lets `payload` bytes follow.
    pub fn put(&self, payload: usize, out: &mut BytesMut) {
        let parted = if self.total.is_some() { 8 } else { 0 };
        let body = 2 + CORRELATION_BYTES + self.content.size() + parted + payload;
        out.reserve(body + 5);
        begin_reply(body, out);
        out.put_u8(if self.total.is_some() { PARTED } else { 0 } | self.content.code());
        out.put_u64(self.correlation);
        out.put_u8(self.outcome.code());
        self.content.put(out);
        if let Some(total) = self.total {
            out.put_u64(total);
        }
    }

    /// Begins the record of a further part, of which the caller lets `len` bytes follow.
    pub fn put_part(correlation: u64, len: usize, out: &mut BytesMut) {
        put_reply_part(correlation, len, out);
    }

    pub(super) fn read(take: &mut Take<'a>) -> Option<Self> {
        let flags = take.u8().filter(|flags| flags & !REPLY_FLAGS == 0)?;
        let correlation = take.u64()?;
        let outcome = Outcome::from_code(take.u8()?)?;
        let content = Content::read(flags, take)?;
        let total = match flags & PARTED {
            0 => None,
            _ => Some(take.u64()?),
        };
        Some(Self { correlation, outcome, content, total })
    }
}

/// Why metadata is refused.
#[derive(Clone, Copy, Debug, Eq, Error, PartialEq)]
pub enum MetadataError {
    /// More than [`METADATA_BYTES`].
    #[error("metadata of more than {METADATA_BYTES} bytes")]
    TooLong,
    /// An empty key, a NUL, or bytes that are no pairs.
    #[error("metadata that is no list of texts")]
    Form,
}

/// Small texts that travel beside a payload: encoded pairs of `u8 length, key, u16 length, value`,
/// sorted by key, each key once.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct Metadata(Vec<(String, String)>);

impl Metadata {
    /// None.
    pub fn new() -> Self {
        Self::default()
    }

    /// Sets a key; the last value of a key counts.
    ///
    /// # Errors
    /// [`MetadataError`]; nothing changes then.
    pub fn insert(&mut self, key: &str, value: &str) -> Result<(), MetadataError> {
        if !is_pair(key, value) {
            return Err(MetadataError::Form);
        }
        let place = self.0.binary_search_by(|(known, _)| known.as_str().cmp(key));
        let freed = place.map_or(0, |at| pair_size(&self.0[at].0, &self.0[at].1));
        if self.size() - freed + pair_size(key, value) > METADATA_BYTES {
            return Err(MetadataError::TooLong);
        }
        match place {
            Ok(at) => self.0[at].1 = value.to_owned(),
            Err(at) => self.0.insert(at, (key.to_owned(), value.to_owned())),
        }
        Ok(())
    }

    /// The value of a key.
    pub fn get(&self, key: &str) -> Option<&str> {
        let place = self.0.binary_search_by(|(known, _)| known.as_str().cmp(key)).ok()?;
        Some(&self.0[place].1)
    }

    /// All pairs, by key.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &str)> {
        self.0.iter().map(|(key, value)| (key.as_str(), value.as_str()))
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The encoding; empty for none.
    pub fn to_bytes(&self) -> Vec<u8> {
        let mut out = Vec::with_capacity(self.size());
        for (key, value) in &self.0 {
            out.put_u8(key.len() as u8);
            out.put_slice(key.as_bytes());
            out.put_u16(value.len() as u16);
            out.put_slice(value.as_bytes());
        }
        out
    }

    /// Reads an encoding. Keys out of order, or twice, are refused: there is one spelling.
    ///
    /// # Errors
    /// [`MetadataError`].
    pub fn from_bytes(bytes: &[u8]) -> Result<Self, MetadataError> {
        if bytes.len() > METADATA_BYTES {
            return Err(MetadataError::TooLong);
        }
        let (mut take, mut pairs) = (Take(bytes), Vec::new());
        while !take.0.is_empty() {
            let (key, value) = take.pair().ok_or(MetadataError::Form)?;
            pairs.push((key.to_owned(), value.to_owned()));
        }
        let sorted = pairs.is_sorted_by(|(a, _), (b, _)| a < b);
        if sorted { Ok(Self(pairs)) } else { Err(MetadataError::Form) }
    }

    fn size(&self) -> usize {
        self.0.iter().map(|(key, value)| pair_size(key, value)).sum()
    }
}

fn pair_size(key: &str, value: &str) -> usize {
    3 + key.len() + value.len()
}

fn is_pair(key: &str, value: &str) -> bool {
    (1..=255).contains(&key.len())
        && value.len() <= METADATA_BYTES
        && !key.contains('\0')
        && !value.contains('\0')
}

fn put_short(text: &str, out: &mut BytesMut) {
    debug_assert!((1..=255).contains(&text.len()), "checked where the text came in");
    out.put_u8(text.len() as u8);
    out.put_slice(text.as_bytes());
}

/// Takes numbers and texts off the front of bytes.
pub(super) struct Take<'a>(pub(super) &'a [u8]);

impl<'a> Take<'a> {
    pub(super) fn bytes(&mut self, count: usize) -> Option<&'a [u8]> {
        let (head, rest) = self.0.split_at_checked(count)?;
        self.0 = rest;
        Some(head)
    }

    fn array<const N: usize>(&mut self) -> Option<[u8; N]> {
        let (head, rest) = self.0.split_first_chunk()?;
        self.0 = rest;
        Some(*head)
    }

    fn u8(&mut self) -> Option<u8> {
        self.array().map(u8::from_be_bytes)
    }

    pub(super) fn u16(&mut self) -> Option<u16> {
        self.array().map(u16::from_be_bytes)
    }

    pub(super) fn u32(&mut self) -> Option<u32> {
        self.array().map(u32::from_be_bytes)
    }

    pub(super) fn u64(&mut self) -> Option<u64> {
        self.array().map(u64::from_be_bytes)
    }

    fn short_text(&mut self) -> Option<&'a str> {
        let size = usize::from(self.u8().filter(|&size| size > 0)?);
        std::str::from_utf8(self.bytes(size)?).ok()
    }

    fn pair(&mut self) -> Option<(&'a str, &'a str)> {
        let key = self.short_text()?;
        let size = usize::from(self.u16()?);
        let value = std::str::from_utf8(self.bytes(size)?).ok()?;
        is_pair(key, value).then_some((key, value))
    }
}

#[cfg(test)]
pub(super) mod tests {
    use proptest::prelude::*;

    use super::*;

    /// A head that owns its texts.
    #[derive(Clone, Debug)]
    pub(crate) struct OwnedHead {
        owner: u16,
        asked: Option<(u64, u32)>,
        packet: String,
        content: Option<String>,
        metadata: Vec<u8>,
        parted: Option<(u32, u64)>,
    }

    impl OwnedHead {
        pub(crate) fn borrow(&self) -> Head<'_> {
            let content = match self.content.as_deref() {
                None => Content::Raw,
                Some("json") => Content::Json,
                Some(text) => Content::Named(text),
            };
            Head {
                owner: self.owner,
                asked: self.asked.map(|(correlation, budget_ms)| Asked { correlation, budget_ms }),
                packet: &self.packet,
                content,
                metadata: &self.metadata,
                parted: self.parted.map(|(stream, total)| Parted { stream, total }),
            }
        }
    }

    pub(crate) fn arbitrary_head() -> impl Strategy<Value = OwnedHead> {
        let content = prop::option::of("json|[a-z/]{1,255}");
        let metadata = prop::collection::vec(any::<u8>(), 0..99);
        let parted: prop::option::OptionStrategy<(Any<u32>, Any<u64>)> =
            prop::option::of((any::<u32>(), any::<u64>()));
        (any::<u16>(), any::<Option<(u64, u32)>>(), "\\PC{1,60}", content, metadata, parted)
            .prop_map(|(owner, asked, packet, content, metadata, parted)| OwnedHead {
                owner,
                asked,
                packet,
                content,
                metadata,
                parted,
            })
    }

    type Any<T> = proptest::arbitrary::StrategyFor<T>;

    pub(crate) fn arbitrary_reply() -> impl Strategy<Value = ReplyHead<'static>> {
        let total = prop::option::of(100_u64..);
        let outcome = prop::sample::select(Outcome::ALL);
        (any::<u64>(), outcome, total).prop_map(|(correlation, outcome, total)| ReplyHead {
            correlation,
            outcome,
            content: Content::Json,
            total,
        })
    }

    #[test]
    fn metadata_keeps_the_last_value_and_its_bound() {
        let mut metadata = Metadata::new();
        metadata.insert("b", "1").expect("fits");
        metadata.insert("a", "2").expect("fits");
        metadata.insert("b", "3").expect("fits");
        assert_eq!(metadata.iter().collect::<Vec<_>>(), [("a", "2"), ("b", "3")]);
        assert_eq!(metadata.insert("c", &"x".repeat(1_011)), Err(MetadataError::TooLong));
        assert_eq!(metadata.insert("c", &"x".repeat(1_010)), Ok(()));
        assert_eq!(metadata.to_bytes().len(), METADATA_BYTES);
        for (key, value) in [("", "x"), ("a\0", ""), ("a", "\0")] {
            assert_eq!(metadata.insert(key, value), Err(MetadataError::Form));
        }
        assert_eq!(Metadata::from_bytes(&metadata.to_bytes()), Ok(metadata));
    }

    #[test]
    fn metadata_has_one_spelling() {
        for bad in [&b"\x01b\0\x01x\x01a\0\x01x"[..], b"\x01a\0\x01x\x01a\0\x01x", b"\x01", b"\0"] {
            assert_eq!(Metadata::from_bytes(bad), Err(MetadataError::Form), "{bad:?}");
        }
    }

    #[test]
    fn outcomes_have_one_number_each() {
        for &outcome in Outcome::ALL {
            assert_eq!(Outcome::from_code(outcome.code()), Some(outcome));
        }
    }

    proptest! {
        #[test]
        fn foreign_metadata_never_panics(bytes: Vec<u8>) {
            if let Ok(metadata) = Metadata::from_bytes(&bytes) {
                prop_assert_eq!(metadata.to_bytes(), bytes);
            }
        }
    }
}
