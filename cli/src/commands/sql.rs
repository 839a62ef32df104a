//! The SQL of a query: where it comes from, and what is refused before anything is sent.

use std::ffi::OsStr;
use std::fs::File;
use std::io::{self, Read};
use std::path::Path;

use carlos_protocol::copy;
use carlos_protocol::limits::SQL_BYTES;
use carlos_protocol::statement::{self, Refusal};

use crate::args::Query;
use crate::failure::Failure;

/// The statement as typed, which need not be text.
pub(super) fn read(args: &Query) -> Result<Vec<u8>, Failure> {
    match (&args.file, &args.sql) {
        (Some(path), _) => read_file(path),
        (None, Some(sql)) if sql == OsStr::new("-") => bounded("stdin", io::stdin().lock()),
        (None, Some(sql)) => Ok(sql.as_encoded_bytes().to_vec()),
        (None, None) => Err(Failure::usage("there is no SQL to run.")),
    }
}

/// Refuses what no server would run, with the message the server would give.
pub(super) fn check(sql: &[u8]) -> Result<(), Failure> {
    match statement::check_bytes(sql) {
        // The sentence for this one names the region, which is not known yet.
        Ok(_) | Err(Refusal::NotText) => Ok(()),
        Err(refusal) => Err(copy::of_statement(&refusal).into()),
    }
}

/// The statement as text that JSON carries unchanged, or `None` (db-forward §10, DBF-32).
pub(super) fn as_json_text(sql: Vec<u8>) -> Option<String> {
    String::from_utf8(sql).ok().filter(|text| !text.contains(char::REPLACEMENT_CHARACTER))
}

fn read_file(path: &Path) -> Result<Vec<u8>, Failure> {
    let name = path.display().to_string();
    let file = File::open(path).map_err(|error| unreadable(&name, &error))?;
    bounded(&name, file)
}

/// Reads no more than may be sent, whatever the source holds.
fn bounded(name: &str, source: impl Read) -> Result<Vec<u8>, Failure> {
    let mut sql = Vec::new();
    let most = SQL_BYTES as u64 + 1;
    source.take(most).read_to_end(&mut sql).map_err(|error| unreadable(name, &error))?;
    if sql.len() > SQL_BYTES {
        let limit = copy::Bytes(SQL_BYTES as u64);
        let reason = format!("the query is longer than the {limit} that carlos db takes.");
        return Err(copy::sql_refused(reason).into());
    }
    Ok(sql)
}

fn unreadable(name: &str, error: &io::Error) -> Failure {
    Failure::usage(format!("could not read the SQL from {name}.")).because(error)
}
