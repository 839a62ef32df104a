//! Tab-separated lines for a pipe.

use std::io::Write;

use super::{RenderError, odd_real, write_hex};
use crate::real::format_real;
use crate::rows::{Reader, Value};

pub(super) fn render(mut reader: Reader<'_>, out: &mut impl Write) -> Result<u64, RenderError> {
    let names: Vec<Value<'_>> =
        reader.columns().iter().map(|name| Value::Text(name.as_bytes())).collect();
    write_line(&names, out)?;
    let mut row = Vec::new();
    while reader.read_row(&mut row)? {
        write_line(&row, out)?;
    }
    Ok(reader.rows())
}

fn write_line(row: &[Value<'_>], out: &mut impl Write) -> std::io::Result<()> {
    for (column, value) in row.iter().enumerate() {
        if column > 0 {
            out.write_all(b"\t")?;
        }
        write_value(value, out)?;
    }
    out.write_all(b"\n")
}

fn write_value(value: &Value<'_>, out: &mut impl Write) -> std::io::Result<()> {
    match value {
        Value::Null => out.write_all(b"\\N"),
        Value::Integer(integer) => write!(out, "{integer}"),
        Value::Real(real) => match format_real(*real) {
            Some(text) => out.write_all(text.as_bytes()),
            None => out.write_all(odd_real(*real).as_bytes()),
        },
        Value::Text(text) => write_text(text, out),
        Value::Blob(blob) => {
            out.write_all(b"\\x")?;
            write_hex(blob, out)
        }
    }
}

fn write_text(text: &[u8], out: &mut impl Write) -> std::io::Result<()> {
    for part in text.split_inclusive(|byte| escape(*byte).is_some()) {
        match part.split_last().and_then(|(last, rest)| Some((escape(*last)?, rest))) {
            Some((escaped, rest)) => {
                out.write_all(rest)?;
                out.write_all(escaped)?;
            }
            None => out.write_all(part)?,
        }
    }
    Ok(())
}

fn escape(byte: u8) -> Option<&'static [u8]> {
    match byte {
        b'\t' => Some(b"\\t"),
        b'\n' => Some(b"\\n"),
        b'\r' => Some(b"\\r"),
        b'\\' => Some(b"\\\\"),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::render::testing::{stream, text};
    use crate::render::{Format, render as print};

    #[test]
    fn every_type_has_its_form() {
        let rows: &[&[Value<'_>]] = &[
            &[Value::Null, Value::Integer(i64::MIN), Value::Real(0.5)],
            &[Value::Text(b"\\N\t\r\n"), Value::Blob(b"\0\xff"), Value::Real(f64::NEG_INFINITY)],
            &[Value::Text(b""), Value::Blob(b""), Value::Real(f64::INFINITY)],
        ];
        assert_eq!(
            text(Format::Tsv, &["a\tb", "a\tb", "c"], rows),
            "a\\tb\ta\\tb\tc\n\\N\t-9223372036854775808\t0.5\n\
             \\\\N\\t\\r\\n\t\\x00ff\t-inf\n\t\\x\tinf\n"
        );
    }

    /// The inverse of [`write_text`], written from the format's description.
    fn unescape(text: &[u8]) -> Vec<u8> {
        let mut bytes = text.iter();
        let mut plain = Vec::new();
        while let Some(byte) = bytes.next() {
            plain.push(match byte {
                b'\\' => match bytes.next().unwrap() {
                    b't' => b'\t',
                    b'n' => b'\n',
                    b'r' => b'\r',
                    b'\\' => b'\\',
                    other => panic!("unknown escape {other}"),
                },
                plain => *plain,
            });
        }
        plain
    }

    proptest! {
        #[test]
        fn text_comes_back(texts in proptest::collection::vec(
            proptest::collection::vec(any::<u8>(), 0..40), 1..5),
        ) {
            let row: Vec<Value<'_>> = texts.iter().map(|text| Value::Text(text)).collect();
            let names = vec!["x"; row.len()];
            let mut out = Vec::new();
            print(Format::Tsv, &stream(&names, &[&row]), &mut out).unwrap();
            let lines: Vec<&[u8]> = out.split(|byte| *byte == b'\n').collect();
            prop_assert_eq!(lines.len(), 3);
            let back: Vec<Vec<u8>> =
                lines[1].split(|byte| *byte == b'\t').map(unescape).collect();
            prop_assert_eq!(back, texts);
        }
    }
}
