//! Targets for what `carlos-dbquery` reads of others: row streams.

use std::io;

use carlos_dbquery::rows::{Decoder, Event, Malformed, OwnedValue, Reader, Writer};
use carlos_dbquery::{Format, render};

type Table = (Vec<String>, Vec<Vec<OwnedValue>>);

/// Row streams: both decoders agree, and what they read has one encoding.
pub fn row_streams(data: &[u8]) {
    let pulled = pull(data);
    let pushed = push(data);
    assert_eq!(pulled.is_ok(), pushed.is_ok());
    if let Ok((names, rows)) = &pulled {
        assert_eq!(write(names, rows), data);
    }
    for format in [Format::Table, Format::Tsv, Format::Json] {
        let rendered = render(format, data, &mut io::sink());
        assert_eq!(rendered.is_ok(), pulled.is_ok());
    }
}

fn pull(data: &[u8]) -> Result<Table, Malformed> {
    let mut reader = Reader::open(data)?;
    let names = reader.columns().iter().map(|&name| name.to_owned()).collect();
    let (mut rows, mut row) = (Vec::new(), Vec::new());
    while reader.read_row(&mut row)? {
        rows.push(row.iter().map(|value| value.into_owned()).collect());
    }
    Ok((names, rows))
}

fn push(data: &[u8]) -> Result<Table, Malformed> {
    let mut decoder = Decoder::new();
    let (mut names, mut rows) = (Vec::new(), Vec::new());
    for piece in data.chunks(3) {
        decoder.feed(piece)?;
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

fn write(names: &[String], rows: &[Vec<OwnedValue>]) -> Vec<u8> {
    let mut stream = Vec::new();
    let names = names.iter().map(String::as_str);
    let mut writer = Writer::begin(&mut stream, u64::MAX, names).expect("no cap");
    for row in rows {
        let row: Vec<_> = row.iter().map(OwnedValue::as_value).collect();
        writer.row(&row).expect("no cap");
    }
    writer.finish().expect("no cap");
    stream
}
