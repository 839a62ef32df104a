//! The records of a link: `u32 BE length | u8 kind | body`, the length covering kind and body.
//!
//! Bytes in, bytes out, and nothing is copied: what is read borrows from the caller's buffer, and
//! a payload is always the tail of its record, so that the caller may cut it off and keep it.

use bytes::{BufMut, BytesMut};
use thiserror::Error;

use super::handshake::Reject;
use super::message::{Head, ReplyHead, Take};

/// The longest record behind its length field: a part of a payload with the longest head.
pub const RECORD_BYTES: usize = PART_BYTES + HEAD_BYTES;

/// The most payload bytes of one record: records of two messages interleave at this grain, so it
/// bounds how long a small message waits behind a large one (decision 9).
pub const PART_BYTES: usize = 64 * 1024;

/// Room for the longest head: 255 bytes of name, 255 of content type, 1,024 of metadata, numbers.
pub const HEAD_BYTES: usize = 2 * 1024;

/// The most grants in one credit record: it stays far below [`RECORD_BYTES`].
pub const CREDITS_PER_RECORD: usize = 1_024;

/// Bytes of a length field.
const LENGTH_BYTES: usize = 4;

/// Bytes of one grant.
const GRANT_BYTES: usize = 6;

const HELLO: u8 = 1;
const ADMIT: u8 = 2;
const REJECT: u8 = 3;
const UPDATE: u8 = 4;
const PROBE: u8 = 5;
const ACK: u8 = 6;
const CREDIT: u8 = 7;
const MESSAGE: u8 = 16;
const PART: u8 = 17;
const REPLY: u8 = 18;
const REPLY_PART: u8 = 19;

/// One record. Control and completion records (all but [`Record::Message`] and [`Record::Part`])
/// need no credit and are always read.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum Record<'a> {
    /// The sender introduces itself: the bytes of a [`Hello`](super::Hello).
    Hello(&'a [u8]),
    /// The sender takes the other as a peer; application records may follow.
    Admit,
    /// The sender does not, and closes.
    Reject(Reject),
    /// A later revision of the sender's descriptor: its bytes.
    Update(&'a [u8]),
    /// Asks for an [`Record::Ack`] of the same number.
    Probe(u64),
    /// Answers a probe.
    Ack(u64),
    /// Bytes given back, for each owner.
    Credit(Vec<Credit>),
    /// A message, or the first part of one.
    Message(Head<'a>, &'a [u8]),
    /// A further part of a message: the stream its head named, and bytes.
    Part(u32, &'a [u8]),
    /// A reply, or the first part of one.
    Reply(ReplyHead<'a>, &'a [u8]),
    /// A further part of a reply: its correlation, and bytes.
    ReplyPart(u64, &'a [u8]),
}

/// Credit for application bytes of one owner of the receiver (decision 9).
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Credit {
    /// The channel's index in the granter's descriptor, or [`OWNER_NODE`](super::OWNER_NODE).
    pub owner: u16,
    /// Bytes given back.
    pub bytes: u32,
}

/// Why bytes are not records of this protocol. The link is of no further use then.
#[derive(Clone, Copy, Debug, Eq, Error, PartialEq)]
pub enum RecordError {
    /// A length that no record has.
    #[error("a record of {0} bytes, where 1 to {RECORD_BYTES} are allowed")]
    Length(u32),
    /// A kind this version does not know.
    #[error("unknown record kind {0}")]
    Kind(u8),
    /// A body that is not its kind's.
    #[error("the body of record kind {0} does not hold")]
    Body(u8),
}

/// Cuts records off the front of a buffer.
#[derive(Clone, Copy, Debug, Default)]
pub struct RecordDecoder;

impl RecordDecoder {
    /// The first record of `bytes` and the bytes it takes, or `None` until more have arrived. A
    /// length out of bounds is refused before its body is waited for.
    ///
    /// # Errors
    /// [`RecordError`].
    pub fn cut(bytes: &[u8]) -> Result<Option<(Record<'_>, usize)>, RecordError> {
        let Some(size) = Self::size(bytes)? else { return Ok(None) };
        let Some(body) = bytes.get(LENGTH_BYTES..size) else { return Ok(None) };
        let record = Record::read(body[0], &body[1..])?;
        Ok(Some((record, size)))
    }

    /// How many bytes of the front are whole records.
    ///
    /// # Errors
    /// [`RecordError::Length`].
    pub fn whole(bytes: &[u8]) -> Result<usize, RecordError> {
        let mut end = 0;
        while let Some(size) = Self::size(&bytes[end..])?
            && size <= bytes.len() - end
        {
            end += size;
        }
        Ok(end)
    }

    /// Bytes of the first record, its length field included.
    fn size(bytes: &[u8]) -> Result<Option<usize>, RecordError> {
        let Some(length) = bytes.first_chunk::<LENGTH_BYTES>() else { return Ok(None) };
        let length = u32::from_be_bytes(*length);
        let size = usize::try_from(length).ok().filter(|size| (1..=RECORD_BYTES).contains(size));
        size.map(|size| Some(LENGTH_BYTES + size)).ok_or(RecordError::Length(length))
    }
}

impl<'a> Record<'a> {
    fn read(kind: u8, body: &'a [u8]) -> Result<Self, RecordError> {
        let mut take = Take(body);
        let record = match kind {
            MESSAGE => Head::read(&mut take).map(|head| Self::Message(head, take.0)),
            REPLY => ReplyHead::read(&mut take).map(|head| Self::Reply(head, take.0)),
            PART => take.u32().map(|stream| Self::Part(stream, take.0)),
            REPLY_PART => take.u64().map(|correlation| Self::ReplyPart(correlation, take.0)),
            CREDIT => read_credits(body).map(Self::Credit),
            PROBE => whole_u64(body).map(Self::Probe),
            ACK => whole_u64(body).map(Self::Ack),
            HELLO => Some(Self::Hello(body)),
            UPDATE => Some(Self::Update(body)),
            ADMIT => body.is_empty().then_some(Self::Admit),
            REJECT => read_reject(body).map(Self::Reject),
            _ => return Err(RecordError::Kind(kind)),
        };
        record.filter(Self::payload_fits).ok_or(RecordError::Body(kind))
    }

    /// A part without a byte would be work that costs no credit.
    fn payload_fits(&self) -> bool {
        match self {
            Self::Message(head, payload) => {
                head.parted.is_none_or(|parted| (payload.len() as u64) < parted.total)
                    && payload.len() <= PART_BYTES
            }
            Self::Reply(head, payload) => {
                head.total.is_none_or(|total| (payload.len() as u64) < total)
                    && payload.len() <= PART_BYTES
            }
            Self::Part(_, part) | Self::ReplyPart(_, part) => {
                (1..=PART_BYTES).contains(&part.len())
            }
            _ => true,
        }
    }
}

/// Writes a record whole. Bodies of a hello or an update must fit a record, as those of checked
/// descriptors do.
pub fn put_record(record: &Record<'_>, out: &mut BytesMut) {
    match record {
        Record::Hello(body) => put(HELLO, body, out),
        Record::Update(body) => put(UPDATE, body, out),
        Record::Admit => put(ADMIT, &[], out),
        Record::Reject(reason) => put(REJECT, &[reason.code()], out),
        Record::Probe(id) => put(PROBE, &id.to_be_bytes(), out),
        Record::Ack(id) => put(ACK, &id.to_be_bytes(), out),
        Record::Credit(grants) => put_credits(grants, out),
        Record::Message(head, payload) => {
            head.put(payload.len(), out);
            out.put_slice(payload);
        }
        Record::Part(stream, part) => {
            put_part(*stream, part.len(), out);
            out.put_slice(part);
        }
        Record::Reply(head, payload) => {
            head.put(payload.len(), out);
            out.put_slice(payload);
        }
        Record::ReplyPart(correlation, part) => {
            put_reply_part(*correlation, part.len(), out);
            out.put_slice(part);
        }
    }
}

/// Begins a record of a further part: the caller lets `len` bytes follow.
pub(super) fn put_part(stream: u32, len: usize, out: &mut BytesMut) {
    begin(PART, 4 + len, out);
    out.put_u32(stream);
}

/// Begins a record of a reply's further part: the caller lets `len` bytes follow.
pub(super) fn put_reply_part(correlation: u64, len: usize, out: &mut BytesMut) {
    begin(REPLY_PART, 8 + len, out);
    out.put_u64(correlation);
}

pub(super) fn begin_message(body: usize, out: &mut BytesMut) {
    begin(MESSAGE, body, out);
}

pub(super) fn begin_reply(body: usize, out: &mut BytesMut) {
    begin(REPLY, body, out);
}

fn begin(kind: u8, body: usize, out: &mut BytesMut) {
    debug_assert!(body < RECORD_BYTES, "a record of {body} bytes");
    out.put_u32((body + 1) as u32);
    out.put_u8(kind);
}

fn put(kind: u8, body: &[u8], out: &mut BytesMut) {
    begin(kind, body.len(), out);
    out.put_slice(body);
}

fn put_credits(grants: &[Credit], out: &mut BytesMut) {
    for some in grants.chunks(CREDITS_PER_RECORD) {
        begin(CREDIT, some.len() * GRANT_BYTES, out);
        for grant in some {
            out.put_u16(grant.owner);
            out.put_u32(grant.bytes);
        }
    }
}

fn read_credits(body: &[u8]) -> Option<Vec<Credit>> {
    let count = body.len() / GRANT_BYTES;
    let whole = body.len().is_multiple_of(GRANT_BYTES) && (1..=CREDITS_PER_RECORD).contains(&count);
    let grant = |bytes: &[u8]| {
        let mut take = Take(bytes);
        Some(Credit { owner: take.u16()?, bytes: take.u32()? })
    };
    if whole { body.chunks(GRANT_BYTES).map(grant).collect() } else { None }
}

fn read_reject(body: &[u8]) -> Option<Reject> {
    let [code] = body else { return None };
    Reject::from_code(*code)
}

fn whole_u64(body: &[u8]) -> Option<u64> {
    body.try_into().ok().map(u64::from_be_bytes)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::super::message::tests::{arbitrary_head, arbitrary_reply};
    use super::*;

    fn encode(record: &Record<'_>) -> BytesMut {
        let mut out = BytesMut::new();
        put_record(record, &mut out);
        out
    }

    #[test]
    fn control_records_round_trip() {
        let grants = vec![Credit { owner: 1, bytes: 2 }, Credit { owner: u16::MAX, bytes: 9 }];
        for record in [
            Record::Hello(b"{}"),
            Record::Admit,
            Record::Reject(Reject::NotRequired),
            Record::Update(b"{}"),
            Record::Probe(7),
            Record::Ack(u64::MAX),
            Record::Credit(grants),
            Record::Part(3, b"x"),
            Record::ReplyPart(4, b"y"),
        ] {
            let bytes = encode(&record);
            assert_eq!(RecordDecoder::cut(&bytes), Ok(Some((record, bytes.len()))));
        }
    }

    #[test]
    fn what_is_no_record_is_refused() {
        let cut = |bytes: &[u8]| RecordDecoder::cut(bytes).map(|_| ()).expect_err("refused");
        assert_eq!(cut(&[0; 4]), RecordError::Length(0));
        assert_eq!(cut(&u32::MAX.to_be_bytes()), RecordError::Length(u32::MAX));
        for (kind, body) in [
            (ADMIT, &[0][..]),
            (REJECT, &[0]),
            (PROBE, &[0; 7]),
            (CREDIT, &[]),
            (CREDIT, &[0; 7]),
            (PART, &[0; 4]),
            (REPLY_PART, &[0; 8]),
            (MESSAGE, &[]),
        ] {
            let mut bytes = vec![0, 0, 0, 1 + body.len() as u8, kind];
            bytes.extend_from_slice(body);
            assert_eq!(cut(&bytes), RecordError::Body(kind), "{body:?}");
        }
        assert_eq!(cut(&[0, 0, 0, 1, 99]), RecordError::Kind(99));
    }

    #[test]
    fn the_longest_record_fits() {
        let bytes = encode(&Record::Part(1, &[7; PART_BYTES]));
        assert!(matches!(RecordDecoder::cut(&bytes), Ok(Some((Record::Part(1, _), _)))));
    }

    proptest! {
        #[test]
        fn messages_round_trip(head in arbitrary_head(), payload: Vec<u8>) {
            let head = head.borrow();
            let fits = head.parted.is_none_or(|parted| (payload.len() as u64) < parted.total);
            let record = Record::Message(head, &payload);
            let bytes = encode(&record);
            match fits {
                true => {
                    prop_assert_eq!(RecordDecoder::cut(&bytes), Ok(Some((record, bytes.len()))));
                }
                false => prop_assert_eq!(RecordDecoder::cut(&bytes), Err(RecordError::Body(16))),
            }
            for end in 0..bytes.len() {
                prop_assert_eq!(RecordDecoder::cut(&bytes[..end]), Ok(None));
            }
        }

        #[test]
        fn replies_round_trip(
            head in arbitrary_reply(), payload in prop::collection::vec(any::<u8>(), 0..99),
        ) {
            let record = Record::Reply(head, &payload);
            let bytes = encode(&record);
            prop_assert_eq!(RecordDecoder::cut(&bytes), Ok(Some((record, bytes.len()))));
        }

        #[test]
        fn what_is_read_is_written_back(
            kind in 0_u8..24, body in prop::collection::vec(any::<u8>(), 0..80),
        ) {
            let mut bytes = BytesMut::new();
            put(kind, &body, &mut bytes);
            if let Ok(Some((record, size))) = RecordDecoder::cut(&bytes) {
                prop_assert_eq!(size, bytes.len());
                prop_assert_eq!(encode(&record), bytes);
            }
        }
    }
}
