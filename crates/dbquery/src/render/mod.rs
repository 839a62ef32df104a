//! A whole row stream as text: for eyes, for a pipe, for a program.

mod csv;
mod escape;
mod json;
mod table;
mod tsv;

use std::io::{self, BufWriter, Write};

use carlos_protocol::ids::Digest;

use crate::rows::{Malformed, Reader};

/// How rows are printed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Format {
    /// Columns under each other for a terminal. What could drive the terminal is shown escaped.
    Table,
    /// A header and a line per row, values between tabs, exact and reversible:
    /// NULL is `\N`, a blob `\x` and hex; tab, newline, carriage return and backslash in names and
    /// text are `\t`, `\n`, `\r` and `\\`. Every other byte of a text is as stored.
    Tsv,
    /// One JSON array of objects, a line per row. Blobs are `{"$blob":"base64"}`, text that is not
    /// UTF-8 `{"$text":"base64"}`, reals without a number `{"$real":"inf"}`; integers keep all
    /// their digits; a column name that comes again gets a suffix (`a`, `a_2`).
    Json,
    /// RFC 4180: a header, records that end in CRLF. Text is quoted and nothing else is: NULL is
    /// an empty field and the empty text `""`, a blob is `\x` and hex. Text is as stored, also
    /// where it is not UTF-8.
    Csv,
    /// An object a line as in [`Format::Json`], then `{"$end":{"rows":2,"sha256":"..."}}` with the
    /// digest of the row stream: a file without that line is not whole.
    Ndjson,
}

/// Why a stream was not printed.
#[derive(Debug, thiserror::Error)]
pub enum RenderError {
    /// The bytes are not a whole row stream. Some rows may have been printed before that showed:
    /// check the stream (digest and length) before printing it.
    #[error("the answer is not a row stream: {0}")]
    Malformed(#[from] Malformed),
    /// The output took no more.
    #[error(transparent)]
    Output(#[from] io::Error),
}

/// Prints `stream` to `out` and says how many rows it had. Memory does not grow with the rows.
pub fn render(format: Format, stream: &[u8], out: &mut dyn Write) -> Result<u64, RenderError> {
    let mut out = BufWriter::with_capacity(OUT_BYTES, out);
    let reader = Reader::open(stream)?;
    let rows = match format {
        Format::Table => table::render(reader, &mut out),
        Format::Tsv => tsv::render(reader, &mut out),
        Format::Json => json::render(reader, &mut out),
        Format::Csv => csv::render(reader, &mut out),
        Format::Ndjson => json::render_lines(reader, Digest::of(stream), &mut out),
    }?;
    out.flush()?;
    Ok(rows)
}

/// One system call for a screenful.
const OUT_BYTES: usize = 64 * 1024;

/// What every format calls a real that is no number.
fn odd_real(real: f64) -> &'static str {
    match real {
        _ if real.is_nan() => "nan",
        _ if real > 0.0 => "inf",
        _ => "-inf",
    }
}

fn write_hex(bytes: &[u8], out: &mut dyn Write) -> io::Result<()> {
    bytes.iter().try_for_each(|byte| write!(out, "{byte:02x}"))
}

#[cfg(test)]
pub(crate) mod testing {
    use super::*;
    use crate::rows::{MAX_STREAM_BYTES, Value, Writer};

    /// A stream of these rows.
    pub(crate) fn stream(names: &[&str], rows: &[&[Value<'_>]]) -> Vec<u8> {
        let mut stream = Vec::new();
        let mut writer =
            Writer::begin(&mut stream, MAX_STREAM_BYTES, names.iter().copied()).unwrap();
        for row in rows {
            writer.row(row).unwrap();
        }
        writer.finish().unwrap();
        stream
    }

    /// These rows as text of a format.
    pub(crate) fn text(format: Format, names: &[&str], rows: &[&[Value<'_>]]) -> String {
        let mut out = Vec::new();
        render(format, &stream(names, rows), &mut out).unwrap();
        String::from_utf8(out).unwrap()
    }
}
