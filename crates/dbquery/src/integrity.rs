//! Whether a restored file is a sound database.

use std::path::Path;

use crate::runner::{Limits, QueryError, contain_panics};
use crate::session::{Session, bounded};
use crate::stop::Stop;

/// How much of the file is looked at.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum IntegrityMode {
    /// Every page, cell and row, and every index against its table (`integrity_check`).
    Full,
    /// The same without the indexes against their tables (`quick_check`): much faster.
    Quick,
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
    mode: IntegrityMode,
    limits: &Limits,
    stop: &Stop,
) -> Result<(), IntegrityError> {
    let found = contain_panics(|| messages(&Session::open(path, limits, stop)?, mode));
    match found {
        Ok(messages) if messages == ["ok"] => Ok(()),
        Ok(messages) => Err(IntegrityError::Damaged(bounded(messages.join("\n")))),
        // Damage that stops SQLite from looking further, a file that is no database among it.
        Err(QueryError::Sql(text)) => Err(IntegrityError::Damaged(text)),
        Err(error) => Err(IntegrityError::Stopped(error)),
    }
}

fn messages(session: &Session, mode: IntegrityMode) -> Result<Vec<String>, QueryError> {
    // Ten messages say enough, and SQLite stops looking after them.
    let sql = match mode {
        IntegrityMode::Full => "PRAGMA integrity_check(10)",
        IntegrityMode::Quick => "PRAGMA quick_check(10)",
    };
    let rows = session.conn().prepare(sql).and_then(|mut statement| {
        let text = |row: &rusqlite::Row<'_>| {
            let text = row.get_ref(0)?.as_bytes().map(String::from_utf8_lossy);
            Ok(text.map(|text| text.into_owned()).unwrap_or_default())
        };
        statement.query_map([], text)?.collect()
    });
    rows.map_err(|error| session.explain(&error))
}
