//! The row stream: what a query's answer is between SQLite and a renderer.
//!
//! ```text
//! "CRS1"  varint columns  { varint length, name }*
//! { 0x01  { type, value }* }*          one per row, one value per column
//! 0x00  varint rows
//!
//! type 0 NULL  nothing            type 3 text  varint length, bytes (maybe not UTF-8)
//! type 1 i64   8 bytes, big-endian    type 4 blob  varint length, bytes
//! type 2 f64   8 bytes, big-endian bits
//! ```
//!
//! A varint is unsigned LEB128 in its shortest form, so one answer has one encoding. The 64 MiB
//! cap of db-forward §5.7 and the summary's SHA-256 are over exactly these bytes. Nothing here
//! knows SQLite: the person's CLI decodes with it, and so do fuzzers.

mod decode;
mod encode;

pub use decode::{Decoder, Event, Malformed, Reader};
pub use encode::{Totals, WriteError, Writer};

/// The first bytes of every stream; the digit is the version.
pub const MAGIC: [u8; 4] = *b"CRS1";

/// Most columns a stream may name: SQLite's own upper bound (`SQLITE_MAX_COLUMN` can be raised to
/// 32,767 and no further), so no real answer is refused and a forged count cannot cost memory.
pub const MAX_COLUMNS: usize = 32_767;

/// Most bytes of one stream, 64 MiB (db-forward §5.7): the answer that a CLI buffers whole.
pub const MAX_STREAM_BYTES: u64 = carlos_protocol::limits::OUTPUT_BYTES;

pub(crate) const ROW: u8 = 1;
pub(crate) const END: u8 = 0;

pub(crate) const NULL: u8 = 0;
pub(crate) const INTEGER: u8 = 1;
pub(crate) const REAL: u8 = 2;
pub(crate) const TEXT: u8 = 3;
pub(crate) const BLOB: u8 = 4;

/// One value of a row, exactly as SQLite holds it.
///
/// Text is bytes: SQLite stores text that is not UTF-8, or that holds NUL, and the stream keeps it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Value<'a> {
    /// SQL NULL.
    Null,
    /// A 64-bit integer.
    Integer(i64),
    /// A double. SQLite has no NaN, but a forged stream can hold one.
    Real(f64),
    /// Text as stored, converted to UTF-8 when the database is UTF-16.
    Text(&'a [u8]),
    /// A blob as stored.
    Blob(&'a [u8]),
}

impl Value<'_> {
    /// The value with its bytes copied, for a reader that outlives its input.
    pub fn into_owned(self) -> OwnedValue {
        match self {
            Self::Null => OwnedValue::Null,
            Self::Integer(integer) => OwnedValue::Integer(integer),
            Self::Real(real) => OwnedValue::Real(real),
            Self::Text(text) => OwnedValue::Text(text.to_vec()),
            Self::Blob(blob) => OwnedValue::Blob(blob.to_vec()),
        }
    }
}

/// [`Value`] that owns its bytes.
#[derive(Clone, Debug, PartialEq)]
pub enum OwnedValue {
    /// SQL NULL.
    Null,
    /// A 64-bit integer.
    Integer(i64),
    /// A double.
    Real(f64),
    /// Text bytes, maybe not UTF-8.
    Text(Vec<u8>),
    /// Blob bytes.
    Blob(Vec<u8>),
}

impl OwnedValue {
    /// The borrowed form.
    pub fn as_value(&self) -> Value<'_> {
        match self {
            Self::Null => Value::Null,
            Self::Integer(integer) => Value::Integer(*integer),
            Self::Real(real) => Value::Real(*real),
            Self::Text(text) => Value::Text(text),
            Self::Blob(blob) => Value::Blob(blob),
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// Rows of one shape, so that every generated table can be a stream.
    fn tables() -> impl Strategy<Value = (Vec<String>, Vec<Vec<OwnedValue>>)> {
        (0usize..5).prop_flat_map(|columns| {
            let names = proptest::collection::vec(".{0,12}", columns);
            let row = proptest::collection::vec(values(), columns);
            (names, proptest::collection::vec(row, 0..12))
        })
    }

    fn values() -> impl Strategy<Value = OwnedValue> {
        prop_oneof![
            Just(OwnedValue::Null),
            any::<i64>().prop_map(OwnedValue::Integer),
            any::<f64>()
                .prop_filter("NaN is equal to nothing", |real| !real.is_nan())
                .prop_map(OwnedValue::Real),
            proptest::collection::vec(any::<u8>(), 0..300).prop_map(OwnedValue::Text),
            proptest::collection::vec(any::<u8>(), 0..300).prop_map(OwnedValue::Blob),
        ]
    }

    fn encode(names: &[String], rows: &[Vec<OwnedValue>]) -> (Vec<u8>, Totals) {
        let mut stream = Vec::new();
        let names = names.iter().map(String::as_str);
        let mut writer = Writer::begin(&mut stream, MAX_STREAM_BYTES, names).unwrap();
        for row in rows {
            let row: Vec<Value<'_>> = row.iter().map(OwnedValue::as_value).collect();
            writer.row(&row).unwrap();
        }
        let totals = writer.finish().unwrap();
        (stream, totals)
    }

    fn pull(stream: &[u8]) -> Result<(Vec<String>, Vec<Vec<OwnedValue>>), Malformed> {
        let mut reader = Reader::open(stream)?;
        let names = reader.columns().iter().map(|name| (*name).to_owned()).collect();
        let mut rows = Vec::new();
        let mut row = Vec::new();
        while reader.read_row(&mut row)? {
            rows.push(row.iter().map(|value| value.into_owned()).collect());
        }
        Ok((names, rows))
    }

    fn push(stream: &[u8], piece: usize) -> Result<(Vec<String>, Vec<Vec<OwnedValue>>), Malformed> {
        let mut decoder = Decoder::new();
        let (mut names, mut rows) = (Vec::new(), Vec::new());
        for bytes in stream.chunks(piece) {
            decoder.feed(bytes)?;
            while let Some(event) = decoder.next_event()? {
                match event {
                    Event::Columns(columns) => names = columns,
                    Event::Row(row) => rows.push(row),
                    Event::End { .. } => {}
                }
            }
        }
        decoder.finish()?;
        Ok((names, rows))
    }

    proptest! {
        #[test]
        fn what_is_written_is_read_back((names, rows) in tables(), piece in 1usize..64) {
            let (stream, totals) = encode(&names, &rows);
            prop_assert_eq!(totals.bytes, stream.len() as u64);
            prop_assert_eq!(totals.rows, rows.len() as u64);
            prop_assert_eq!(pull(&stream).unwrap(), (names.clone(), rows.clone()));
            prop_assert_eq!(push(&stream, piece).unwrap(), (names, rows));
        }

        #[test]
        fn a_cut_stream_is_never_whole(
            (names, rows) in tables(), cut in any::<prop::sample::Index>(),
        ) {
            let (stream, _) = encode(&names, &rows);
            let cut = cut.index(stream.len());
            prop_assert!(pull(&stream[..cut]).is_err());
            prop_assert!(push(&stream[..cut], 7).is_err());
        }

        #[test]
        fn garbage_never_panics_and_both_decoders_agree(
            bytes in proptest::collection::vec(any::<u8>(), 0..200),
            with_magic in any::<bool>(),
        ) {
            let mut stream = if with_magic { MAGIC.to_vec() } else { Vec::new() };
            stream.extend(bytes);
            prop_assert_eq!(pull(&stream).is_ok(), push(&stream, 3).is_ok());
        }

        #[test]
        fn a_changed_byte_is_another_answer_or_an_error(
            (names, rows) in tables(), at in any::<prop::sample::Index>(), bit in 0u8..8,
        ) {
            let (mut stream, _) = encode(&names, &rows);
            let at = at.index(stream.len());
            stream[at] ^= 1 << bit;
            // One answer has one encoding: whatever still decodes re-encodes to the same bytes.
            if let Ok((names, rows)) = pull(&stream) {
                let again = encode(&names, &rows).0;
                prop_assert!(again == stream || rows_hold_nan(&rows));
            }
        }

        #[test]
        fn the_cap_is_never_passed((names, rows) in tables(), cap in 0u64..600) {
            let mut stream = Vec::new();
            let names: Vec<&str> = names.iter().map(String::as_str).collect();
            let whole = (|| {
                let mut writer = Writer::begin(&mut stream, cap, names)?;
                for row in &rows {
                    writer.row(&row.iter().map(OwnedValue::as_value).collect::<Vec<_>>())?;
                }
                writer.finish()
            })();
            prop_assert!(stream.len() as u64 <= cap);
            if let Ok(totals) = whole {
                prop_assert_eq!(totals.bytes, stream.len() as u64);
            }
        }
    }

    fn rows_hold_nan(rows: &[Vec<OwnedValue>]) -> bool {
        rows.iter().flatten().any(|v| matches!(v, OwnedValue::Real(real) if real.is_nan()))
    }

    #[test]
    fn a_fixed_stream_has_these_bytes() {
        let names = ["id".to_owned(), "\u{e9}".to_owned()];
        let rows = vec![vec![OwnedValue::Integer(-2), OwnedValue::Text(b"a\0\xff".to_vec())]];
        let (stream, totals) = encode(&names, &rows);
        let expected = b"CRS1\x02\x02id\x02\xc3\xa9\x01\x01\xff\xff\xff\xff\xff\xff\xff\xfe\
            \x03\x03a\0\xff\x00\x01";
        assert_eq!(stream, expected);
        assert_eq!(
            totals.sha256_hex(),
            "bd588a04dc0ae3f5819a355783a3a40b9f921e1d9039e608c8e575f957c50e11"
        );
    }

    #[test]
    fn long_varints_and_forged_counts_are_refused() {
        let cases: [(&[u8], Malformed); 7] = [
            (b"CRS2\x00\x00\x00", Malformed::Magic),
            (b"CRS1\x80\x00\x00\x00", Malformed::Varint),
            (b"CRS1\xff\xff\xff\xff\xff\xff\xff\xff\xff\x7f", Malformed::Varint),
            (b"CRS1\x80\x80\x02", Malformed::Columns { count: 32_768 }),
            (b"CRS1\x01\x01a\x01\x05", Malformed::Type { byte: 5 }),
            (b"CRS1\x00\x01\x00\x02", Malformed::RowCount { said: 2, seen: 1 }),
            (b"CRS1\x00\x00\x00\x00", Malformed::Trailing),
        ];
        for (stream, expected) in cases {
            assert_eq!(pull(stream).unwrap_err(), expected);
            assert_eq!(push(stream, 1).unwrap_err(), expected);
        }
    }
}
