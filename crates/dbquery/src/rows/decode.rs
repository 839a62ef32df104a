//! Two decoders over one grammar: [`Reader`] pulls rows from a whole answer without copying,
//! [`Decoder`] takes bytes as they arrive.

use super::{
    BLOB, END, INTEGER, MAGIC, MAX_COLUMNS, MAX_STREAM_BYTES, NULL, OwnedValue, REAL, ROW, TEXT,
    Value,
};

/// Why bytes are not a row stream. Never shown to a person as it is: DBF-13 is.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Malformed {
    /// More columns than a stream may have.
    #[error("{count} columns")]
    Columns {
        /// The count it named.
        count: u64,
    },
    /// The first four bytes are not a known version's.
    #[error("not a row stream of this version")]
    Magic,
    /// A column name that is not UTF-8.
    #[error("a column name is not UTF-8")]
    Name,
    /// A row mark that is neither row nor end.
    #[error("row mark {byte}")]
    Mark {
        /// The byte found.
        byte: u8,
    },
    /// The end names another number of rows than came.
    #[error("{said} rows announced, {seen} seen")]
    RowCount {
        /// Rows the end named.
        said: u64,
        /// Rows that came.
        seen: u64,
    },
    /// More bytes than any answer may have.
    #[error("longer than {MAX_STREAM_BYTES} bytes")]
    TooLong,
    /// Bytes after the end.
    #[error("bytes after the end")]
    Trailing,
    /// The stream stops before its end.
    #[error("the stream is cut off")]
    Truncated,
    /// A value type that does not exist.
    #[error("value type {byte}")]
    Type {
        /// The byte found.
        byte: u8,
    },
    /// A number that is not in its shortest form, or does not fit 64 bits.
    #[error("a length is not in its shortest form")]
    Varint,
}

/// Rows out of a whole answer, borrowed from it.
///
/// Reading to the end checks everything: the row count, and that nothing follows. Open a second
/// reader on the same bytes to go over the rows again.
#[derive(Clone, Debug)]
pub struct Reader<'a> {
    cursor: Cursor<'a>,
    columns: Vec<&'a str>,
    rows: u64,
    ended: bool,
}

impl<'a> Reader<'a> {
    /// Reads the head of the stream.
    pub fn open(stream: &'a [u8]) -> Result<Self, Malformed> {
        if stream.len() as u64 > MAX_STREAM_BYTES {
            return Err(Malformed::TooLong);
        }
        let mut cursor = Cursor { bytes: stream, at: 0 };
        let columns = cursor.head()?;
        Ok(Self { cursor, columns, rows: 0, ended: false })
    }

    /// The column names, in order; two may be equal.
    pub fn columns(&self) -> &[&'a str] {
        &self.columns
    }

    /// Rows read so far.
    pub fn rows(&self) -> u64 {
        self.rows
    }

    /// Puts the next row into `row`; false at the end of a whole stream.
    pub fn read_row(&mut self, row: &mut Vec<Value<'a>>) -> Result<bool, Malformed> {
        row.clear();
        if self.ended {
            return Ok(false);
        }
        match self.cursor.step(self.columns.len(), self.rows, row)? {
            Step::Row => self.rows += 1,
            Step::End => {
                self.ended = true;
                if self.cursor.at != self.cursor.bytes.len() {
                    return Err(Malformed::Trailing);
                }
            }
        }
        Ok(!self.ended)
    }
}

/// What the next bytes of a stream said.
#[derive(Clone, Debug, PartialEq)]
pub enum Event {
    /// The column names: always the first event.
    Columns(Vec<String>),
    /// One row.
    Row(Vec<OwnedValue>),
    /// The stream is whole: always the last event.
    End {
        /// Rows that came, checked against the stream's own count.
        rows: u64,
    },
}

/// Rows out of bytes that arrive in pieces. Holds at most one incomplete row.
#[derive(Debug, Default)]
pub struct Decoder {
    held: Vec<u8>,
    at: usize,
    /// Bytes that `held` must have before another look can succeed.
    wanted: usize,
    total: u64,
    columns: Option<usize>,
    rows: u64,
    ended: bool,
}

impl Decoder {
    /// A decoder at the start of a stream.
    pub fn new() -> Self {
        Self::default()
    }

    /// Takes the next bytes. Refuses bytes after the end and streams above the cap.
    pub fn feed(&mut self, bytes: &[u8]) -> Result<(), Malformed> {
        self.total = self.total.saturating_add(bytes.len() as u64);
        if self.total > MAX_STREAM_BYTES {
            return Err(Malformed::TooLong);
        }
        if self.ended && !bytes.is_empty() {
            return Err(Malformed::Trailing);
        }
        self.held.drain(..self.at);
        self.wanted = self.wanted.saturating_sub(self.at);
        self.at = 0;
        self.held.extend_from_slice(bytes);
        Ok(())
    }

    /// The next event that the bytes so far hold, or `None` when more are needed.
    pub fn next_event(&mut self) -> Result<Option<Event>, Malformed> {
        if self.ended || self.held.len() < self.wanted {
            return Ok(None);
        }
        let mut cursor = Cursor { bytes: &self.held, at: self.at };
        let event = match self.columns {
            None => cursor.head().map(|names| Event::columns(&names)),
            Some(columns) => cursor.event(columns, self.rows),
        };
        let at = cursor.at;
        match event {
            Ok(event) => self.accept(event, at).map(Some),
            Err(Stop::Malformed(malformed)) => Err(malformed),
            Err(Stop::Wanted(wanted)) => {
                self.wanted = wanted;
                Ok(None)
            }
        }
    }

    /// Says whether the stream came to its end.
    pub fn finish(self) -> Result<u64, Malformed> {
        if self.ended { Ok(self.rows) } else { Err(Malformed::Truncated) }
    }

    fn accept(&mut self, event: Event, at: usize) -> Result<Event, Malformed> {
        self.at = at;
        match &event {
            Event::Columns(names) => self.columns = Some(names.len()),
            Event::Row(_) => self.rows += 1,
            Event::End { .. } => {
                self.ended = true;
                if self.at != self.held.len() {
                    return Err(Malformed::Trailing);
                }
            }
        }
        Ok(event)
    }
}

impl Event {
    fn columns(names: &[&str]) -> Self {
        Self::Columns(names.iter().map(|name| (*name).to_owned()).collect())
    }
}

/// Why a look at the bytes ended without an item.
#[derive(Debug)]
enum Stop {
    Malformed(Malformed),
    /// At least this many bytes from the start are needed.
    Wanted(usize),
}

impl From<Malformed> for Stop {
    fn from(malformed: Malformed) -> Self {
        Self::Malformed(malformed)
    }
}

/// For a reader of a whole answer, wanting more bytes is being cut off.
impl From<Stop> for Malformed {
    fn from(stop: Stop) -> Self {
        match stop {
            Stop::Malformed(malformed) => malformed,
            Stop::Wanted(_) => Self::Truncated,
        }
    }
}

enum Step {
    Row,
    End,
}

#[derive(Clone, Debug)]
struct Cursor<'a> {
    bytes: &'a [u8],
    at: usize,
}

impl<'a> Cursor<'a> {
    fn head(&mut self) -> Result<Vec<&'a str>, Stop> {
        if self.take(MAGIC.len())? != MAGIC {
            return Err(Malformed::Magic.into());
        }
        let count = self.varint()?;
        if count > MAX_COLUMNS as u64 {
            return Err(Malformed::Columns { count }.into());
        }
        (0..count)
            .map(|_| Ok(std::str::from_utf8(self.sized()?).map_err(|_| Malformed::Name)?))
            .collect()
    }

    fn event(&mut self, columns: usize, rows: u64) -> Result<Event, Stop> {
        let mut row = Vec::new();
        Ok(match self.step(columns, rows, &mut row)? {
            Step::Row => Event::Row(row.into_iter().map(Value::into_owned).collect()),
            Step::End => Event::End { rows },
        })
    }

    fn step(&mut self, columns: usize, rows: u64, row: &mut Vec<Value<'a>>) -> Result<Step, Stop> {
        match self.byte()? {
            ROW => {
                for _ in 0..columns {
                    row.push(self.value()?);
                }
                Ok(Step::Row)
            }
            END => match self.varint()? {
                said if said == rows => Ok(Step::End),
                said => Err(Malformed::RowCount { said, seen: rows }.into()),
            },
            byte => Err(Malformed::Mark { byte }.into()),
        }
    }

    fn value(&mut self) -> Result<Value<'a>, Stop> {
        Ok(match self.byte()? {
            NULL => Value::Null,
            INTEGER => Value::Integer(i64::from_be_bytes(self.eight()?)),
            REAL => Value::Real(f64::from_bits(u64::from_be_bytes(self.eight()?))),
            TEXT => Value::Text(self.sized()?),
            BLOB => Value::Blob(self.sized()?),
            byte => return Err(Malformed::Type { byte }.into()),
        })
    }

    fn sized(&mut self) -> Result<&'a [u8], Stop> {
        let len = self.varint()?;
        if len > MAX_STREAM_BYTES {
            return Err(Malformed::TooLong.into());
        }
        self.take(len as usize)
    }

    fn varint(&mut self) -> Result<u64, Stop> {
        let mut number = 0u64;
        for shift in (0..64).step_by(7) {
            let byte = self.byte()?;
            let bits = u64::from(byte & 0x7f);
            // The tenth byte has room for one bit; a last byte of zero means a shorter form.
            if (shift == 63 && bits > 1) || (byte == 0 && shift > 0) {
                return Err(Malformed::Varint.into());
            }
            number |= bits << shift;
            if byte < 0x80 {
                return Ok(number);
            }
        }
        Err(Malformed::Varint.into())
    }

    fn eight(&mut self) -> Result<[u8; 8], Stop> {
        let bytes = self.take(8)?;
        Ok(bytes.try_into().expect("take(8) gives eight bytes"))
    }

    fn byte(&mut self) -> Result<u8, Stop> {
        Ok(self.take(1)?[0])
    }

    fn take(&mut self, len: usize) -> Result<&'a [u8], Stop> {
        let end = self.at.checked_add(len).ok_or(Malformed::TooLong)?;
        let taken = self.bytes.get(self.at..end).ok_or(Stop::Wanted(end))?;
        self.at = end;
        Ok(taken)
    }
}
