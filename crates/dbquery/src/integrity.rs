//! Whether a restored file is a sound database.

use std::collections::BTreeSet;
use std::path::Path;

use carlos_protocol::statement;

use crate::guard::Refusal;
use crate::runner::{Limits, Query, QueryError, contain_panics, prepare};
use crate::session::{Session, bounded};
use crate::stop::Stop;

/// How much of the file is looked at.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum IntegrityMode {
    /// Every page, cell and row, and every index against its table (`integrity_check`).
    Full,
    /// The same without the indexes against their tables (`quick_check`): several times faster.
    Quick,
    /// Every row of these tables, and every index of theirs against them: with [`Self::Quick`]
    /// before, all that a query of these tables depends on.
    Tables(BTreeSet<String>),
}

/// Why a file is not known to be sound.
#[derive(Debug, thiserror::Error)]
pub enum IntegrityError {
    /// SQLite found damage; its first messages, one a line, at most 4 KiB.
    #[error("the database is damaged: {0}")]
    Damaged(String),
    /// The check itself did not come to its end.
    #[error(transparent)]
    Stopped(QueryError),
}

/// Checks the file at `path`, under the same guards, clock and stop as a query.
///
/// Only [`Limits::time`] and [`Limits::heap`] count here.
pub fn integrity(
    path: &Path,
    mode: &IntegrityMode,
    limits: &Limits,
    stop: &Stop,
) -> Result<(), IntegrityError> {
    let found = contain_panics(|| {
        let session = Session::open(path, limits, stop)?;
        mode.pragmas().try_fold(Vec::new(), |mut found, sql| {
            found.extend(messages(&session, &sql)?);
            Ok(found)
        })
    });
    match found {
        Ok(messages) if messages.is_empty() => Ok(()),
        Ok(messages) => Err(IntegrityError::Damaged(bounded(messages.join("\n")))),
        // Damage that stops SQLite from looking further, a file that is no database among it.
        Err(QueryError::Sql(text)) => Err(IntegrityError::Damaged(text)),
        Err(error) => Err(IntegrityError::Stopped(error)),
    }
}

/// What has to be in order beside [`IntegrityMode::Quick`] before this query may be answered.
///
/// Compiles the query under the guard, with its values, and so refuses all that [`crate::run`]
/// refuses before it runs. A virtual table reads tables of its own that no one names: a query of
/// one depends on everything.
///
/// # Errors
/// Those of [`crate::run`].
pub fn read_by<'q>(
    path: &Path,
    query: impl Into<Query<'q>>,
    limits: &Limits,
    stop: &Stop,
) -> Result<IntegrityMode, QueryError> {
    let query = query.into();
    statement::check(query.sql).map_err(Refusal::from)?;
    contain_panics(|| {
        let session = Session::open(path, limits, stop)?;
        prepare(&session, query)?;
        let Some(mut read) = session.authorizer().tables() else { return Ok(IntegrityMode::Full) };
        let (tables, virtual_tables) = tables(&session)?;
        if !read.is_disjoint(&virtual_tables) {
            return Ok(IntegrityMode::Full);
        }
        // Left out: views, whose tables are named too, table functions, and the schema itself.
        read.retain(|name| tables.contains(name));
        Ok(IntegrityMode::Tables(read))
    })
}

/// The names of all tables in lower case: those with pages, and those without.
fn tables(session: &Session) -> Result<(BTreeSet<String>, BTreeSet<String>), QueryError> {
    const TABLES: &str = "SELECT name, coalesce(rootpage, 0) = 0 FROM main.sqlite_schema \
        WHERE type = 'table'";
    let names = session.conn().prepare(TABLES).and_then(|mut statement| {
        let row = |row: &rusqlite::Row<'_>| {
            let name = row.get_ref(0)?.as_bytes().map(String::from_utf8_lossy);
            let name = name.map(|name| name.to_ascii_lowercase()).unwrap_or_default();
            Ok((name, row.get::<_, bool>(1)?))
        };
        statement.query_map([], row)?.collect::<rusqlite::Result<Vec<_>>>()
    });
    let names = names.map_err(|error| session.explain(&error))?;
    let (virtual_tables, tables): (Vec<_>, Vec<_>) =
        names.into_iter().partition(|(_, is_virtual)| *is_virtual);
    let set = |names: Vec<(String, bool)>| names.into_iter().map(|(name, _)| name).collect();
    Ok((set(tables), set(virtual_tables)))
}

impl IntegrityMode {
    /// Ten messages say enough, and SQLite stops looking after them.
    fn pragmas(&self) -> Box<dyn Iterator<Item = String> + '_> {
        let whole = |name| Box::new(std::iter::once(format!("PRAGMA {name}(10)")));
        match self {
            Self::Full => whole("integrity_check"),
            Self::Quick => whole("quick_check"),
            Self::Tables(tables) => Box::new(tables.iter().map(|table| {
                let table = table.replace('\'', "''");
                format!("PRAGMA integrity_check('{table}')")
            })),
        }
    }
}

/// As many as a whole check is asked for.
const MESSAGES: usize = 10;

/// What a check found. "ok" is what SQLite says of nothing.
fn messages(session: &Session, sql: &str) -> Result<Vec<String>, QueryError> {
    let rows = session.conn().prepare(sql).and_then(|mut statement| {
        let text = |row: &rusqlite::Row<'_>| {
            let text = row.get_ref(0)?.as_bytes().map(String::from_utf8_lossy);
            Ok(text.map(|text| text.into_owned()).unwrap_or_default())
        };
        statement.query_map([], text)?.take(MESSAGES).collect::<rusqlite::Result<Vec<_>>>()
    });
    let mut found = rows.map_err(|error| session.explain(&error))?;
    if found == ["ok"] {
        found.clear();
    }
    Ok(found)
}
