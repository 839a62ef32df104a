//! RFC 4180 records for spreadsheets and loaders.

use std::io::{self, Write};

use super::{RenderError, odd_real, write_hex};
use crate::real::format_real;
use crate::rows::{Reader, Value};

/// Text is quoted and nothing else is, so that a reader that looks at the quotes can tell NULL from
/// an empty text, a blob from a text that spells one, and a number from its digits.
pub(super) fn render(mut reader: Reader<'_>, out: &mut impl Write) -> Result<u64, RenderError> {
    let names: Vec<Value<'_>> =
        reader.columns().iter().map(|name| Value::Text(name.as_bytes())).collect();
    write_record(&names, out)?;
    let mut row = Vec::new();
    while reader.read_row(&mut row)? {
        write_record(&row, out)?;
    }
    Ok(reader.rows())
}

fn write_record(row: &[Value<'_>], out: &mut impl Write) -> io::Result<()> {
    for (column, value) in row.iter().enumerate() {
        if column > 0 {
            out.write_all(b",")?;
        }
        write_value(value, out)?;
    }
    out.write_all(b"\r\n")
}

fn write_value(value: &Value<'_>, out: &mut impl Write) -> io::Result<()> {
    match value {
        Value::Null => Ok(()),
        Value::Integer(integer) => write!(out, "{integer}"),
        Value::Real(real) => match format_real(*real) {
            Some(text) => out.write_all(text.as_bytes()),
            None => out.write_all(odd_real(*real).as_bytes()),
        },
        Value::Text(text) => write_quoted(text, out),
        Value::Blob(blob) => {
            out.write_all(b"\\x")?;
            write_hex(blob, out)
        }
    }
}

fn write_quoted(text: &[u8], out: &mut impl Write) -> io::Result<()> {
    out.write_all(b"\"")?;
    for part in text.split_inclusive(|byte| *byte == b'"') {
        out.write_all(part)?;
        if part.ends_with(b"\"") {
            out.write_all(b"\"")?;
        }
    }
    out.write_all(b"\"")
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::render::testing::{stream, text};
    use crate::render::{Format, render as print};
    use crate::rows::OwnedValue;

    #[test]
    fn every_type_has_its_form() {
        let rows: &[&[Value<'_>]] = &[
            &[Value::Null, Value::Integer(i64::MIN), Value::Real(0.5)],
            &[Value::Text(b"\\x00"), Value::Blob(b"\0\xff"), Value::Real(f64::NEG_INFINITY)],
            &[Value::Text(b""), Value::Blob(b""), Value::Text(b"a,\"b\"\r\n")],
        ];
        assert_eq!(
            text(Format::Csv, &["a,b", "a\"b", "c"], rows),
            "\"a,b\",\"a\"\"b\",\"c\"\r\n,-9223372036854775808,0.5\r\n\
             \"\\x00\",\\x00ff,-inf\r\n\"\",\\x,\"a,\"\"b\"\"\r\n\"\r\n"
        );
    }

    /// A field as its bytes and whether it was quoted.
    type Field = (Vec<u8>, bool);

    /// A reader written from RFC 4180 alone.
    fn parse(mut csv: &[u8]) -> Vec<Vec<Field>> {
        let mut records = Vec::new();
        let mut record = Vec::new();
        while !csv.is_empty() {
            let (field, rest) = parse_field(csv);
            record.push(field);
            csv = match rest.strip_prefix(b",") {
                Some(rest) => rest,
                None => {
                    records.push(std::mem::take(&mut record));
                    rest.strip_prefix(b"\r\n").expect("a field ends its record")
                }
            };
        }
        records
    }

    fn parse_field(csv: &[u8]) -> (Field, &[u8]) {
        let Some(mut rest) = csv.strip_prefix(b"\"") else {
            let end = csv.iter().position(|byte| b",\r".contains(byte)).unwrap();
            return ((csv[..end].to_vec(), false), &csv[end..]);
        };
        let mut field = Vec::new();
        loop {
            let quote = rest.iter().position(|byte| *byte == b'"').unwrap();
            field.extend_from_slice(&rest[..quote]);
            rest = &rest[quote + 1..];
            match rest.strip_prefix(b"\"") {
                Some(more) => {
                    field.push(b'"');
                    rest = more;
                }
                None => return ((field, true), rest),
            }
        }
    }

    fn field(value: &OwnedValue) -> Field {
        let mut plain = Vec::new();
        match value {
            OwnedValue::Text(text) => return (text.clone(), true),
            other => write_value(&other.as_value(), &mut plain).unwrap(),
        }
        (plain, false)
    }

    fn value() -> impl Strategy<Value = OwnedValue> {
        prop_oneof![
            Just(OwnedValue::Null),
            any::<i64>().prop_map(OwnedValue::Integer),
            proptest::collection::vec(any::<u8>(), 0..40).prop_map(OwnedValue::Text),
            "[,\"\r\n\\\\x]{0,9}".prop_map(|text| OwnedValue::Text(text.into_bytes())),
            proptest::collection::vec(any::<u8>(), 0..9).prop_map(OwnedValue::Blob),
        ]
    }

    proptest! {
        #[test]
        fn a_reader_of_the_rfc_gets_every_value(
            row in proptest::collection::vec(value(), 1..5), name in any::<String>(),
        ) {
            let values: Vec<Value<'_>> = row.iter().map(OwnedValue::as_value).collect();
            let names = vec![name.as_str(); row.len()];
            let mut out = Vec::new();
            print(Format::Csv, &stream(&names, &[&values]), &mut out).unwrap();
            let records = parse(&out);
            prop_assert_eq!(records.len(), 2);
            let head = (name.clone().into_bytes(), true);
            prop_assert!(records[0].iter().all(|field| *field == head));
            prop_assert_eq!(&records[1], &row.iter().map(field).collect::<Vec<_>>());
        }
    }
}
