//! Columns under each other, for a terminal.

use std::fmt;
use std::io::{self, Write};

use unicode_width::UnicodeWidthStr;

use super::escape::{show, stream};
use super::{RenderError, odd_real};
use crate::real::format_real;
use crate::rows::{Reader, Value};

/// Goes over the rows twice, once for the widths: memory stays at one short cell.
pub(super) fn render(reader: Reader<'_>, out: &mut impl Write) -> Result<u64, RenderError> {
    let mut columns: Vec<Column> =
        reader.columns().iter().map(|name| Column::named(name)).collect();
    measure(reader.clone(), &mut columns)?;
    write_head(&columns, out)?;
    write_rows(reader, &columns, out)
}

/// Cells wider than this do not widen their column: one long text would pad every other row. They
/// are printed whole, and only their own line is out of step.
const MAX_WIDTH: usize = 60;

/// Blobs are for programs; a person sees this much of one, and its length.
const SHOWN_BLOB_BYTES: usize = 32;

struct Column {
    name: String,
    width: usize,
    /// Numbers only (or NULL): set to the right.
    numeric: bool,
}

impl Column {
    fn named(name: &str) -> Self {
        let mut shown = String::new();
        show_value(&Value::Text(name.as_bytes()), &mut shown);
        let width = shown.width().min(MAX_WIDTH);
        Self { name: shown, width, numeric: true }
    }
}

fn measure(mut reader: Reader<'_>, columns: &mut [Column]) -> Result<(), RenderError> {
    let (mut row, mut cell) = (Vec::new(), String::new());
    while reader.read_row(&mut row)? {
        for (column, value) in columns.iter_mut().zip(&row) {
            column.numeric &= !matches!(value, Value::Text(_) | Value::Blob(_));
            if column.width == MAX_WIDTH {
                continue;
            }
            let width = if long_text(value).is_some() {
                MAX_WIDTH
            } else {
                show_value(value, &mut cell);
                cell.width().min(MAX_WIDTH)
            };
            column.width = column.width.max(width);
        }
    }
    Ok(())
}

/// A text of so many bytes that it is wider than [`MAX_WIDTH`] whatever its characters:
/// zero-width ones do not come in such crowds outside of mischief.
fn long_text<'a>(value: &Value<'a>) -> Option<&'a [u8]> {
    const LONG: usize = 4 * 1024;
    match value {
        Value::Text(text) if text.len() > LONG => Some(text),
        _ => None,
    }
}

fn write_head(columns: &[Column], out: &mut impl Write) -> io::Result<()> {
    for (index, column) in columns.iter().enumerate() {
        write_cell(&column.name, column, is_last(index, columns), out)?;
    }
    out.write_all(b"\n")?;
    for (index, column) in columns.iter().enumerate() {
        let gap = if index == 0 { "" } else { GAP };
        write!(out, "{gap}{:-<1$}", "", column.width)?;
    }
    out.write_all(b"\n")
}

fn write_rows(
    mut reader: Reader<'_>,
    columns: &[Column],
    out: &mut impl Write,
) -> Result<u64, RenderError> {
    let (mut row, mut cell) = (Vec::new(), String::new());
    while reader.read_row(&mut row)? {
        for (index, (column, value)) in columns.iter().zip(&row).enumerate() {
            let last = is_last(index, columns);
            if let Some(text) = long_text(value) {
                stream(text, out)?;
                out.write_all(if last { b"" } else { GAP.as_bytes() })?;
                continue;
            }
            show_value(value, &mut cell);
            write_cell(&cell, column, last, out)?;
        }
        out.write_all(b"\n")?;
    }
    Ok(reader.rows())
}

/// Between two columns.
const GAP: &str = "  ";

fn is_last(index: usize, columns: &[Column]) -> bool {
    index + 1 == columns.len()
}

fn write_cell(cell: &str, column: &Column, last: bool, out: &mut impl Write) -> io::Result<()> {
    let pad = column.width.saturating_sub(cell.width());
    match (column.numeric, last) {
        (true, true) => write!(out, "{:pad$}{cell}", ""),
        (true, false) => write!(out, "{:pad$}{cell}{GAP}", ""),
        // Nothing follows, so nothing is padded: no line ends in spaces of ours.
        (false, true) => out.write_all(cell.as_bytes()),
        (false, false) => write!(out, "{cell}{:pad$}{GAP}", ""),
    }
}

/// Puts a value's text into `cell`.
fn show_value(value: &Value<'_>, cell: &mut String) {
    cell.clear();
    write_value(value, cell).expect("a String takes all text");
}

fn write_value(value: &Value<'_>, cell: &mut impl fmt::Write) -> fmt::Result {
    match value {
        Value::Null => cell.write_str("NULL"),
        Value::Integer(integer) => write!(cell, "{integer}"),
        Value::Real(real) => match format_real(*real) {
            Some(text) => cell.write_str(&text),
            None => cell.write_str(odd_real(*real)),
        },
        Value::Text(text) => show(text, cell),
        Value::Blob(blob) => write_blob(blob, cell),
    }
}

fn write_blob(blob: &[u8], cell: &mut impl fmt::Write) -> fmt::Result {
    let shown = &blob[..blob.len().min(SHOWN_BLOB_BYTES)];
    cell.write_str("x'")?;
    shown.iter().try_for_each(|byte| write!(cell, "{byte:02x}"))?;
    if shown.len() < blob.len() {
        write!(cell, "...' ({} bytes)", blob.len())
    } else {
        cell.write_str("'")
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::render::Format;
    use crate::render::escape::is_unsafe;
    use crate::render::testing::text;

    #[test]
    fn columns_stand_under_each_other() {
        let rows: &[&[Value<'_>]] = &[
            &[Value::Integer(1), Value::Text("\u{8a9e}".as_bytes()), Value::Real(1.5)],
            &[Value::Integer(-20), Value::Text(b"abc"), Value::Null],
        ];
        assert_eq!(
            text(Format::Table, &["id", "name", "x"], rows),
            " id  name     x\n---  ----  ----\n  1  \u{8a9e}     1.5\n-20  abc   NULL\n"
        );
    }

    #[test]
    fn long_cells_are_whole_and_do_not_widen_the_column() {
        let long = "x".repeat(5_000);
        let rows: &[&[Value<'_>]] = &[
            &[Value::Text(long.as_bytes()), Value::Text(b"end")],
            &[Value::Text(b"a"), Value::Null],
        ];
        let text = text(Format::Table, &["t", "u"], rows);
        assert!(text.contains(&format!("{long}  end\n")));
        assert!(text.lines().nth(1).unwrap().starts_with(&format!("{}  ", "-".repeat(60))));
    }

    #[test]
    fn a_long_blob_is_shown_by_its_head_and_length() {
        let rows: &[&[Value<'_>]] = &[&[Value::Blob(&[1; 40])], &[Value::Blob(&[2; 2])]];
        let text = text(Format::Table, &["b"], rows);
        assert!(text.contains(&format!("x'{}...' (40 bytes)\n", "01".repeat(32))));
        assert!(text.ends_with("x'0202'\n"));
    }

    proptest! {
        #[test]
        fn nothing_unsafe_reaches_the_terminal(
            bytes in proptest::collection::vec(any::<u8>(), 0..80), name in any::<String>(),
        ) {
            let row = [Value::Text(&bytes), Value::Blob(&bytes)];
            let text = text(Format::Table, &[&name, "b"], &[&row]);
            prop_assert_eq!(text.lines().count(), 3);
            prop_assert!(!text.chars().any(|c| c != '\n' && is_unsafe(c)));
        }
    }
}
