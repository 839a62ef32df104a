//! The writer: SQLite's rows in, capped and hashed stream bytes out.

use std::fmt::Write as _;
use std::io::{self, Write};

use sha2::{Digest, Sha256};

use super::{BLOB, END, INTEGER, MAGIC, NULL, REAL, ROW, TEXT, Value};

/// Writes one stream to `sink`, and never more than `cap` bytes of it.
///
/// Bytes gather in a small buffer; [`Writer::flush`] hands them on early.
#[derive(Debug)]
pub struct Writer<W> {
    sink: W,
    pending: Vec<u8>,
    hash: Sha256,
    bytes: u64,
    rows: u64,
    cap: u64,
}

/// What a whole stream came to; the summary of db-forward §5.6 carries it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Totals {
    /// Rows in the stream.
    pub rows: u64,
    /// Bytes of the stream, magic and end included.
    pub bytes: u64,
    /// SHA-256 over those bytes.
    pub sha256: [u8; 32],
}

/// Why a stream stopped before its end.
#[derive(Debug, thiserror::Error)]
pub enum WriteError {
    /// The next row, with the end after it, would pass the cap.
    #[error("the result is larger than {cap} bytes")]
    Cap {
        /// The cap in bytes.
        cap: u64,
    },
    /// The sink refused bytes.
    #[error("writing the result failed: {0}")]
    Sink(#[from] io::Error),
}

/// Bytes held before the sink is called: big enough that small rows cost no call each, small
/// against the agent's 256 KiB chunk.
const PENDING_BYTES: usize = 32 * 1024;

impl<W: Write> Writer<W> {
    /// Starts a stream with its column names.
    pub fn begin<'n>(
        sink: W,
        cap: u64,
        names: impl IntoIterator<Item = &'n str>,
    ) -> Result<Self, WriteError> {
        let names: Vec<&str> = names.into_iter().collect();
        let mut writer =
            Self { sink, pending: Vec::new(), hash: Sha256::new(), bytes: 0, rows: 0, cap };
        let names_len: u64 = names.iter().map(|name| bytes_len(name.len())).sum();
        writer.admit(MAGIC.len() as u64 + varint_len(names.len() as u64) + names_len, 0)?;
        writer.put(&MAGIC)?;
        writer.put_varint(names.len() as u64)?;
        for name in names {
            writer.put_bytes(name.as_bytes())?;
        }
        Ok(writer)
    }

    /// Writes one row. The caller gives one value per column.
    pub fn row(&mut self, values: &[Value<'_>]) -> Result<(), WriteError> {
        let len = 1 + values.iter().map(value_len).sum::<u64>();
        self.admit(len, self.rows + 1)?;
        self.put(&[ROW])?;
        for value in values {
            self.put_value(value)?;
        }
        self.rows += 1;
        Ok(())
    }

    /// Hands everything written so far to the sink.
    pub fn flush(&mut self) -> Result<(), WriteError> {
        self.sink.write_all(&self.pending)?;
        self.pending.clear();
        self.sink.flush()?;
        Ok(())
    }

    /// Bytes of the stream so far, whether or not the sink has them.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Writes the end and hands over the totals.
    pub fn finish(mut self) -> Result<Totals, WriteError> {
        let rows = self.rows;
        self.put(&[END])?;
        self.put_varint(rows)?;
        self.flush()?;
        Ok(Totals { rows, bytes: self.bytes, sha256: self.hash.finalize().into() })
    }

    /// Refuses `len` more bytes unless they and the end of a stream of `rows` rows fit the cap, so
    /// that a stream which was begun can always be ended inside it.
    fn admit(&self, len: u64, rows: u64) -> Result<(), WriteError> {
        let end = 1 + varint_len(rows);
        let total = self.bytes.saturating_add(len).saturating_add(end);
        if total > self.cap { Err(WriteError::Cap { cap: self.cap }) } else { Ok(()) }
    }

    fn put_value(&mut self, value: &Value<'_>) -> Result<(), WriteError> {
        match value {
            Value::Null => self.put(&[NULL]),
            Value::Integer(integer) => self.put_fixed(INTEGER, integer.to_be_bytes()),
            Value::Real(real) => self.put_fixed(REAL, real.to_bits().to_be_bytes()),
            Value::Text(text) => self.put(&[TEXT]).and_then(|()| self.put_bytes(text)),
            Value::Blob(blob) => self.put(&[BLOB]).and_then(|()| self.put_bytes(blob)),
        }
    }

    fn put_fixed(&mut self, kind: u8, bytes: [u8; 8]) -> Result<(), WriteError> {
        self.put(&[kind])?;
        self.put(&bytes)
    }

    fn put_bytes(&mut self, bytes: &[u8]) -> Result<(), WriteError> {
        self.put_varint(bytes.len() as u64)?;
        self.put(bytes)
    }

    fn put_varint(&mut self, mut number: u64) -> Result<(), WriteError> {
        let mut encoded = [0u8; 10];
        let mut len = 0;
        while number >= 0x80 {
            encoded[len] = number as u8 | 0x80;
            number >>= 7;
            len += 1;
        }
        encoded[len] = number as u8;
        self.put(&encoded[..=len])
    }

    fn put(&mut self, bytes: &[u8]) -> Result<(), WriteError> {
        self.hash.update(bytes);
        self.bytes += bytes.len() as u64;
        if self.pending.len() + bytes.len() <= PENDING_BYTES {
            self.pending.extend_from_slice(bytes);
            return Ok(());
        }
        self.sink.write_all(&self.pending)?;
        self.pending.clear();
        if bytes.len() <= PENDING_BYTES {
            self.pending.extend_from_slice(bytes);
        } else {
            // A large value is handed on as it lies, so that no copy of it is held.
            self.sink.write_all(bytes)?;
        }
        Ok(())
    }
}

impl Totals {
    /// The digest as lower-case hex, as the summary writes it.
    pub fn sha256_hex(&self) -> String {
        self.sha256.iter().fold(String::with_capacity(64), |mut hex, byte| {
            let _ = write!(hex, "{byte:02x}");
            hex
        })
    }
}

fn value_len(value: &Value<'_>) -> u64 {
    1 + match value {
        Value::Null => 0,
        Value::Integer(_) | Value::Real(_) => 8,
        Value::Text(bytes) | Value::Blob(bytes) => bytes_len(bytes.len()),
    }
}

fn bytes_len(len: usize) -> u64 {
    varint_len(len as u64) + len as u64
}

fn varint_len(number: u64) -> u64 {
    u64::from((64 - (number | 1).leading_zeros()).div_ceil(7))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_length_is_as_long_as_its_encoding() {
        for number in [0, 1, 127, 128, 16_383, 16_384, u64::from(u32::MAX), u64::MAX] {
            let mut stream = Vec::new();
            let mut writer = Writer::begin(&mut stream, 100, []).unwrap();
            let before = writer.bytes();
            writer.put_varint(number).unwrap();
            assert_eq!(writer.bytes() - before, varint_len(number));
        }
    }

    #[test]
    fn a_stream_that_exactly_fits_is_whole() {
        let whole = |cap| {
            let mut writer = Writer::begin(Vec::new(), cap, ["a"])?;
            writer.row(&[Value::Text(b"xyz")])?;
            writer.finish()
        };
        let bytes = whole(1_000).unwrap().bytes;
        assert_eq!(whole(bytes).unwrap().bytes, bytes);
        assert!(matches!(whole(bytes - 1), Err(WriteError::Cap { .. })));
    }
}
