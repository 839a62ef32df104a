//! Columns under each other, for a terminal.

use std::io::{self, Write};

use unicode_width::UnicodeWidthStr;

use super::escape::show;
use super::{RenderError, odd_real};
use crate::real::format_real;
use crate::rows::{Reader, Value};

/// Goes over the rows twice, once for the widths: memory stays at one cell.
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
        show(name.as_bytes(), &mut shown);
        let width = shown.width().min(MAX_WIDTH);
        Self { name: shown, width, numeric: true }
    }
}

fn measure(mut reader: Reader<'_>, columns: &mut [Column]) -> Result<(), RenderError> {
    let (mut row, mut cell) = (Vec::new(), String::new());
    while reader.read_row(&mut row)? {
        for (column, value) in columns.iter_mut().zip(&row) {
            column.numeric &= !matches!(value, Value::Text(_) | Value::Blob(_));
            if column.width < MAX_WIDTH {
                let width = cell_width(value, &mut cell);
                column.width = column.width.max(width.min(MAX_WIDTH));
            }
        }
    }
    Ok(())
}

/// A cell's width on the screen, or more than [`MAX_WIDTH`] for anything longer.
fn cell_width(value: &Value<'_>, cell: &mut String) -> usize {
    /// No text of this many bytes fits, whatever its characters: zero-width ones do not come in
    /// such crowds outside of mischief.
    const LONG: usize = 4 * 1024;
    if matches!(value, Value::Text(text) if text.len() > LONG) {
        return MAX_WIDTH + 1;
    }
    show_value(value, cell);
    cell.width()
}

fn write_head(columns: &[Column], out: &mut impl Write) -> io::Result<()> {
    for (index, column) in columns.iter().enumerate() {
        let width = column.name.width();
        write_cell(&column.name, width, column, is_last(index, columns), out)?;
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
            let width = cell_width(value, &mut cell);
            if width > MAX_WIDTH {
                show_value(value, &mut cell);
            }
            write_cell(&cell, width, column, is_last(index, columns), out)?;
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

fn write_cell(
    cell: &str,
    width: usize,
    column: &Column,
    last: bool,
    out: &mut impl Write,
) -> io::Result<()> {
    let pad = column.width.saturating_sub(width);
    match (column.numeric, last) {
        (true, true) => write!(out, "{:pad$}{cell}", ""),
        (true, false) => write!(out, "{:pad$}{cell}{GAP}", ""),
        // Nothing follows, so nothing is padded: no line ends in spaces of ours.
        (false, true) => out.write_all(cell.as_bytes()),
        (false, false) => write!(out, "{cell}{:pad$}{GAP}", ""),
    }
}

fn show_value(value: &Value<'_>, cell: &mut String) {
    cell.clear();
    match value {
        Value::Null => cell.push_str("NULL"),
        Value::Integer(integer) => cell.push_str(&integer.to_string()),
        Value::Real(real) => match format_real(*real) {
            Some(text) => cell.push_str(&text),
            None => cell.push_str(odd_real(*real)),
        },
        Value::Text(text) => show(text, cell),
        Value::Blob(blob) => show_blob(blob, cell),
    }
}

fn show_blob(blob: &[u8], cell: &mut String) {
    let shown = &blob[..blob.len().min(SHOWN_BLOB_BYTES)];
    cell.push_str("x'");
    shown.iter().for_each(|byte| cell.push_str(&format!("{byte:02x}")));
    if shown.len() < blob.len() {
        cell.push_str(&format!("...' ({} bytes)", blob.len()));
    } else {
        cell.push('\'');
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
