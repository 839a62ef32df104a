//! What the console can say about a statement from its text alone.
//!
//! The console links no SQLite and never judges what a statement does; that is the worker's guard.
//! These checks keep what could not be run unchanged from being signed (db-forward §5.5 step 3).

use carlos_protocol::limits::SQL_BYTES;

/// A statement that is not sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum StatementError {
    /// Nothing but white space.
    Empty,
    /// A NUL byte: SQLite would stop reading there.
    Nul,
    /// U+FFFD, which is what decoding makes of bytes that are not UTF-8 (DBF-32).
    Replaced,
    /// More than [`SQL_BYTES`]; holds how many.
    TooLong(usize),
}

pub(crate) fn check(sql: &str) -> Result<(), StatementError> {
    if sql.len() > SQL_BYTES {
        return Err(StatementError::TooLong(sql.len()));
    }
    if sql.contains(char::REPLACEMENT_CHARACTER) {
        return Err(StatementError::Replaced);
    }
    if sql.contains('\0') {
        return Err(StatementError::Nul);
    }
    match sql.trim().is_empty() {
        true => Err(StatementError::Empty),
        false => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_text_has_its_answer() {
        assert_eq!(check("select 1"), Ok(()));
        assert_eq!(check(&"x".repeat(SQL_BYTES)), Ok(()));
        assert_eq!(check(&"x".repeat(SQL_BYTES + 1)), Err(StatementError::TooLong(SQL_BYTES + 1)));
        assert_eq!(check("select '\u{fffd}'"), Err(StatementError::Replaced));
        assert_eq!(check("select 1\0"), Err(StatementError::Nul));
        assert_eq!(check(" \n\t"), Err(StatementError::Empty));
    }
}
