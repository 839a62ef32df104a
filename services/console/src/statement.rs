//! What the console can say about a statement from its text alone.
//!
//! The console links no SQLite and never judges what a statement does; that is the worker's guard.
//! These checks keep what could not be run unchanged from being signed (db-forward §5.5 step 3).

use carlos_protocol::{limits::SQL_BYTES, params::Params};

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

/// Checks a statement and the values that go with it.
pub(crate) fn check(sql: &str, params: &Params) -> Result<(), StatementError> {
    if sql.len() > SQL_BYTES {
        return Err(StatementError::TooLong(sql.len()));
    }
    if sql.contains(char::REPLACEMENT_CHARACTER) || !params.are_sendable() {
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
    use carlos_protocol::params::{Param, ParamValue};

    use super::*;

    fn check(sql: &str) -> Result<(), StatementError> {
        super::check(sql, &Params::default())
    }

    #[test]
    fn each_text_has_its_answer() {
        assert_eq!(check("select 1"), Ok(()));
        assert_eq!(check(&"x".repeat(SQL_BYTES)), Ok(()));
        assert_eq!(check(&"x".repeat(SQL_BYTES + 1)), Err(StatementError::TooLong(SQL_BYTES + 1)));
        assert_eq!(check("select '\u{fffd}'"), Err(StatementError::Replaced));
        assert_eq!(check("select 1\0"), Err(StatementError::Nul));
        assert_eq!(check(" \n\t"), Err(StatementError::Empty));
        let value = ParamValue::Text("\u{fffd}".into());
        let params = Params::new(vec![Param::positional(value)]).unwrap();
        assert_eq!(super::check("select ?", &params), Err(StatementError::Replaced));
    }
}
