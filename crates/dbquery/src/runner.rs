//! One statement over one file, guarded, bounded, and out as a row stream.

use std::io::{self, Write};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;
use std::time::Duration;

use carlos_protocol::limits::{OUTPUT_BYTES, QUERY_TIME};
use carlos_protocol::params::Param;
use carlos_protocol::statement;
use rusqlite::fallible_iterator::FallibleIterator;
use rusqlite::types::ValueRef;
use rusqlite::{Batch, Row, Statement};

use crate::bind::bind;
use crate::guard::Refusal;
use crate::rows::{Totals, Value, WriteError, Writer};
use crate::session::Session;
use crate::stop::Stop;

/// What one query may use.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Bytes of the row stream (db-forward §5.7, 64 MiB).
    pub output: u64,
    /// Wall clock from the opening of the file (db-forward §5.7, 5 minutes).
    pub time: Duration,
    /// Bytes that SQLite may allocate, sorts and temporary tables included. The limit is the
    /// process's: a later, larger one does not raise it again.
    pub heap: u64,
}

impl Default for Limits {
    fn default() -> Self {
        Self { output: OUTPUT_BYTES, time: QUERY_TIME, heap: HEAP_BYTES }
    }
}

/// Half of the worker's `MemoryMax=512M` (db-forward §8.3): the rest is the process itself, the
/// copy of a value on its way out, and the pages the kernel caches for the file.
pub const HEAP_BYTES: u64 = 256 * 1024 * 1024;

/// A statement and the values of its parameters. Plain text is one without any.
#[derive(Clone, Copy, Debug)]
pub struct Query<'q> {
    /// One statement.
    pub sql: &'q str,
    /// All by position or all by name; every parameter has one, and none is left over.
    pub params: &'q [Param],
}

impl<'q> From<&'q str> for Query<'q> {
    fn from(sql: &'q str) -> Self {
        Self { sql, params: &[] }
    }
}

/// What a query came to. The digest and the byte count are over the row stream.
pub type Ran = Totals;

/// Why a query has no whole answer.
#[derive(Debug, thiserror::Error)]
pub enum QueryError {
    /// [`Stop::cancel`] was called.
    #[error("the query was cancelled")]
    Cancelled,
    /// SQLite ran out of the memory it may use.
    #[error("the query needs more memory than it may use. narrow it and run it again.")]
    Memory,
    /// The answer is larger than [`Limits::output`].
    #[error("the result is larger than it may be")]
    OutputCap,
    /// The guard does not run this.
    #[error(transparent)]
    Refused(#[from] Refusal),
    /// The file could not be opened, or this process is not fit to run a query.
    #[error("the database could not be opened: {0}")]
    Setup(String),
    /// The sink took no more.
    #[error("the result could not be written: {0}")]
    Sink(#[source] io::Error),
    /// SQLite's own error text.
    #[error("{0}")]
    Sql(String),
    /// [`Limits::time`] passed.
    #[error("the query ran too long and was stopped")]
    Timeout,
}

/// Runs one reading statement on the database file at `path` and writes its row stream to `sink`.
///
/// The file must be whole and must not change meanwhile: it is opened `immutable`. Nothing on the
/// disk is written. On an error the sink may hold the beginning of a stream, which no decoder takes
/// for a whole one.
///
/// The clock and the stop are looked at between SQLite's instructions and between rows. One call of
/// `instr` or `LIKE` on texts of many megabytes is one instruction and can take minutes, and a sink
/// can block: the process that runs a tenant's SQL ends itself some seconds after the deadline.
pub fn run<'q>(
    path: &Path,
    query: impl Into<Query<'q>>,
    limits: &Limits,
    sink: &mut dyn Write,
    stop: &Stop,
) -> Result<Ran, QueryError> {
    let query = query.into();
    statement::check(query.sql).map_err(Refusal::from)?;
    contain_panics(|| {
        let session = Session::open(path, limits, stop)?;
        let mut statement = prepare(&session, query)?;
        stream(&session, &mut statement, limits.output, sink)
    })
}

/// Compiles a query and makes sure that it is one statement, reads only, and lacks nothing.
pub(crate) fn prepare<'s>(
    session: &'s Session,
    query: Query<'_>,
) -> Result<Statement<'s>, QueryError> {
    let mut batch = Batch::new(session.conn(), query.sql);
    let first = batch.next().map_err(|error| session.explain(&error))?;
    let mut compiled = first.ok_or(Refusal::Text(statement::Refusal::Empty))?;
    // One step at a time: rusqlite's own check compiles all statements of a text, one inside the
    // other, and 64 KB of them would overflow the stack.
    if !matches!(batch.next(), Ok(None)) {
        return Err(Refusal::Text(statement::Refusal::TwoStatements).into());
    }
    if !compiled.readonly() {
        return Err(Refusal::NotAllowed { what: "it writes".to_owned() }.into());
    }
    bind(session, &mut compiled, query.params)?;
    Ok(compiled)
}

/// A row that has waited this long for company leaves: the agent makes a chunk at least once a
/// second, and a slow query should show there.
const FLUSH_EVERY: Duration = Duration::from_millis(250);

fn stream(
    session: &Session,
    statement: &mut Statement<'_>,
    cap: u64,
    sink: &mut dyn Write,
) -> Result<Ran, QueryError> {
    let columns = statement.column_count();
    let names: Vec<String> = statement.column_names().map(str::to_owned).collect();
    let mut writer = Writer::begin(sink, cap, names.iter().map(String::as_str))?;
    let mut flushed = session.now();
    let mut rows = statement.raw_query();
    while let Some(row) = rows.next().map_err(|error| session.explain(&error))? {
        writer.row(&values(row, columns)?)?;
        session.check()?;
        if session.now().saturating_sub(flushed) >= FLUSH_EVERY {
            writer.flush()?;
            flushed = session.now();
        }
    }
    Ok(writer.finish()?)
}

fn values<'r>(row: &'r Row<'_>, columns: usize) -> Result<Vec<Value<'r>>, QueryError> {
    let value = |index| match row.get_ref(index) {
        Ok(ValueRef::Null) => Ok(Value::Null),
        Ok(ValueRef::Integer(integer)) => Ok(Value::Integer(integer)),
        Ok(ValueRef::Real(real)) => Ok(Value::Real(real)),
        Ok(ValueRef::Text(text)) => Ok(Value::Text(text)),
        Ok(ValueRef::Blob(blob)) => Ok(Value::Blob(blob)),
        Err(error) => Err(QueryError::Sql(error.to_string())),
    };
    (0..columns).map(value).collect()
}

impl From<WriteError> for QueryError {
    fn from(error: WriteError) -> Self {
        match error {
            WriteError::Cap { .. } => Self::OutputCap,
            WriteError::Sink(error) => Self::Sink(error),
        }
    }
}

/// rusqlite asserts where SQLite answers "out of memory" with a null pointer, and where a name is
/// not UTF-8. Both depend on the tenant's bytes, so both become answers here.
pub(crate) fn contain_panics<T>(
    work: impl FnOnce() -> Result<T, QueryError>,
) -> Result<T, QueryError> {
    catch_unwind(AssertUnwindSafe(work)).unwrap_or_else(|panic| {
        let message = panic.downcast_ref::<String>().map(String::as_str);
        let message = message.or_else(|| panic.downcast_ref::<&str>().copied()).unwrap_or_default();
        if message.contains("UTF-8") || message.contains("utf8") {
            Err(QueryError::Sql("a name in the database is not UTF-8 text".to_owned()))
        } else {
            Err(QueryError::Memory)
        }
    })
}

#[cfg(test)]
mod tests {
    use proptest::collection::vec;
    use proptest::prelude::*;
    use proptest::sample::select;
    use rusqlite::Connection;
    use tempfile::TempDir;

    use super::*;

    const PIECES: [&str; 40] = [
        ";",
        "'",
        "\"",
        "`",
        "[",
        "]",
        "--",
        "\n",
        "/*",
        "*/",
        "(",
        ")",
        ",",
        ".",
        "=",
        " ",
        " ",
        " ",
        "SELECT",
        "1",
        "SELECT 1",
        "a",
        "t",
        "FROM t",
        "$a",
        "::",
        ":b",
        "@",
        "\u{e9}",
        "\u{feff}",
        "WITH a AS (SELECT 1)",
        "WITH \"drop\"(x) AS (VALUES (1))",
        "AS",
        "END",
        "REPLACE",
        "DELETE FROM t",
        "PRAGMA",
        "table_info",
        "journal_mode",
        "EXPLAIN ",
    ];

    fn database() -> (TempDir, std::path::PathBuf) {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("t.db");
        Connection::open(&path).unwrap().execute_batch("CREATE TABLE t (a)").unwrap();
        (dir, path)
    }

    fn compiles(session: &Session, sql: &str) -> bool {
        let mut batch = Batch::new(session.conn(), sql);
        let Ok(Some(first)) = batch.next() else { return false };
        matches!(batch.next(), Ok(None)) && first.readonly()
    }

    /// The text check comes first, and has no say of its own: it only ever refuses what SQLite and
    /// the authorizer refuse.
    #[test]
    fn what_the_text_check_refuses_does_not_compile() {
        let (_dir, path) = database();
        let stop = Stop::new(|| Duration::ZERO);
        let session = Session::open(&path, &Limits::default(), &stop).unwrap();
        let config = ProptestConfig::with_cases(4_000);
        proptest!(config, |(pieces in vec(select(&PIECES[..]), 1..9))| {
            let sql = pieces.concat();
            let refused = statement::check(&sql).is_err();
            prop_assert!(!(refused && compiles(&session, &sql)), "{}", sql);
        });
    }
}
