//! A JSON array of objects for a program.

use std::collections::{HashMap, HashSet};
use std::io::{self, Write};

use base64::engine::general_purpose::STANDARD;
use base64::write::EncoderWriter;
use carlos_protocol::ids::Digest;

use super::escape::is_unsafe;
use super::{RenderError, odd_real};
use crate::real::format_real;
use crate::rows::{Reader, Value};

pub(super) fn render(mut reader: Reader<'_>, out: &mut impl Write) -> Result<u64, RenderError> {
    let names = distinct(reader.columns());
    let mut row = Vec::new();
    out.write_all(b"[")?;
    while reader.read_row(&mut row)? {
        out.write_all(if reader.rows() == 1 { b"\n" } else { b",\n" })?;
        write_object(&names, &row, out)?;
    }
    out.write_all(if reader.rows() == 0 { b"]\n" } else { b"\n]\n" })?;
    Ok(reader.rows())
}

/// An object a line, and a last line that no row looks like: no value of a row is an object with a
/// key `rows`.
pub(super) fn render_lines(
    mut reader: Reader<'_>,
    digest: Digest,
    out: &mut impl Write,
) -> Result<u64, RenderError> {
    let names = distinct(reader.columns());
    let mut row = Vec::new();
    while reader.read_row(&mut row)? {
        write_object(&names, &row, out)?;
        out.write_all(b"\n")?;
    }
    let rows = reader.rows();
    writeln!(out, "{{\"$end\":{{\"rows\":{rows},\"sha256\":\"{digest}\"}}}}")?;
    Ok(rows)
}

/// The names with a suffix where a name comes again, so that no value is lost to an equal key.
///
/// The first of each name keeps it; a later one takes the first of `name_2`, `name_3`, ... that
/// no column has.
fn distinct(columns: &[&str]) -> Vec<String> {
    let mut taken: HashSet<String> = columns.iter().map(|name| (*name).to_owned()).collect();
    let mut seen: HashMap<&str, u64> = HashMap::new();
    columns
        .iter()
        .map(|name| {
            let count = seen.entry(name).or_insert(0);
            *count += 1;
            let mut chosen = (*name).to_owned();
            while *count > 1 && !taken.insert(format!("{name}_{count}")) {
                *count += 1;
            }
            if *count > 1 {
                chosen.push_str(&format!("_{count}"));
            }
            chosen
        })
        .collect()
}

fn write_object(names: &[String], row: &[Value<'_>], out: &mut impl Write) -> io::Result<()> {
    out.write_all(b"{")?;
    for (column, (name, value)) in names.iter().zip(row).enumerate() {
        if column > 0 {
            out.write_all(b",")?;
        }
        write_string(name, out)?;
        out.write_all(b":")?;
        write_value(value, out)?;
    }
    out.write_all(b"}")
}

fn write_value(value: &Value<'_>, out: &mut impl Write) -> io::Result<()> {
    match value {
        Value::Null => out.write_all(b"null"),
        Value::Integer(integer) => write!(out, "{integer}"),
        Value::Real(real) => match format_real(*real) {
            Some(text) => out.write_all(text.as_bytes()),
            None => write!(out, "{{\"$real\":\"{}\"}}", odd_real(*real)),
        },
        Value::Text(text) => match std::str::from_utf8(text) {
            Ok(text) => write_string(text, out),
            Err(_) => write_base64("$text", text, out),
        },
        Value::Blob(blob) => write_base64("$blob", blob, out),
    }
}

fn write_base64(key: &str, bytes: &[u8], out: &mut impl Write) -> io::Result<()> {
    write!(out, "{{\"{key}\":\"")?;
    let mut encoder = EncoderWriter::new(&mut *out, &STANDARD);
    encoder.write_all(bytes)?;
    encoder.finish()?;
    drop(encoder);
    out.write_all(b"\"}")
}

/// A JSON string. What could drive a terminal is escaped, too: JSON is often looked at in one.
fn write_string(text: &str, out: &mut impl Write) -> io::Result<()> {
    out.write_all(b"\"")?;
    let mut plain = 0;
    for (at, character) in text.char_indices() {
        if character != '"' && character != '\\' && !is_unsafe(character) {
            continue;
        }
        out.write_all(&text.as_bytes()[plain..at])?;
        write_escape(character, out)?;
        plain = at + character.len_utf8();
    }
    out.write_all(&text.as_bytes()[plain..])?;
    out.write_all(b"\"")
}

fn write_escape(character: char, out: &mut impl Write) -> io::Result<()> {
    match character {
        '"' => out.write_all(b"\\\""),
        '\\' => out.write_all(b"\\\\"),
        '\n' => out.write_all(b"\\n"),
        '\r' => out.write_all(b"\\r"),
        '\t' => out.write_all(b"\\t"),
        other => {
            let mut units = [0u16; 2];
            other.encode_utf16(&mut units).iter().try_for_each(|unit| write!(out, "\\u{unit:04x}"))
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::render::Format;
    use crate::render::testing::{stream, text};

    #[test]
    fn every_type_has_its_form() {
        let rows: &[&[Value<'_>]] = &[
            &[Value::Null, Value::Integer(9_007_199_254_740_993), Value::Real(1.0)],
            &[Value::Text(b"\"\\\x1b\n"), Value::Blob(b"\0\xff"), Value::Real(f64::INFINITY)],
            &[Value::Text(b"\xff"), Value::Blob(b""), Value::Real(f64::NEG_INFINITY)],
        ];
        assert_eq!(
            text(Format::Json, &["a", "b", "c"], rows),
            "[\n{\"a\":null,\"b\":9007199254740993,\"c\":1.0},\n\
             {\"a\":\"\\\"\\\\\\u001b\\n\",\"b\":{\"$blob\":\"AP8=\"},\"c\":{\"$real\":\"inf\"}},\n\
             {\"a\":{\"$text\":\"/w==\"},\"b\":{\"$blob\":\"\"},\"c\":{\"$real\":\"-inf\"}}\n]\n"
        );
        assert_eq!(text(Format::Json, &["a"], &[]), "[]\n");
    }

    #[test]
    fn lines_end_with_the_count_and_digest_of_all() {
        let rows: &[&[Value<'_>]] = &[&[Value::Integer(1)], &[Value::Text(b"\n")]];
        let digest = Digest::of(&stream(&["$end"], rows));
        assert_eq!(
            text(Format::Ndjson, &["$end"], rows),
            format!(
                "{{\"$end\":1}}\n{{\"$end\":\"\\n\"}}\n\
                 {{\"$end\":{{\"rows\":2,\"sha256\":\"{digest}\"}}}}\n"
            )
        );
        assert!(text(Format::Ndjson, &["a"], &[]).starts_with("{\"$end\":{\"rows\":0,"));
    }

    #[test]
    fn equal_names_lose_nothing() {
        assert_eq!(distinct(&["a", "b", "a", "a_2", "a", ""]), ["a", "b", "a_3", "a_2", "a_4", ""]);
        let many = vec!["x"; 2_000];
        let names: HashSet<String> = distinct(&many).into_iter().collect();
        assert_eq!(names.len(), 2_000);
    }

    proptest! {
        #[test]
        fn a_json_reader_sees_the_same_text(
            value in any::<String>(), names in proptest::collection::vec(".{0,4}", 1..6),
        ) {
            let names: Vec<&str> = names.iter().map(String::as_str).collect();
            let row = vec![Value::Text(value.as_bytes()); names.len()];
            let json = text(Format::Json, &names, &[&row]);
            prop_assert!(!json.trim_end().chars().any(|c| c != '\n' && is_unsafe(c)));
            let parsed: Vec<serde_json::Map<String, serde_json::Value>> =
                serde_json::from_str(&json).unwrap();
            prop_assert_eq!(parsed[0].len(), names.len());
            prop_assert!(parsed[0].values().all(|v| v.as_str() == Some(&value)));
        }

        #[test]
        fn numbers_are_json_numbers(integer in any::<i64>(), bits in any::<u64>()) {
            let real = f64::from_bits(bits);
            let row = [Value::Integer(integer), Value::Real(real)];
            let json = text(Format::Json, &["i", "r"], &[&row]);
            let parsed: serde_json::Value = serde_json::from_str(&json).unwrap();
            prop_assert_eq!(parsed[0]["i"].as_i64(), Some(integer));
            prop_assert_eq!(parsed[0]["r"].is_number(), real.is_finite());
        }
    }
}
