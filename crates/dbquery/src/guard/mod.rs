//! The two halves of the guard.
//!
//! [`check_query_sql`] looks at the text and only makes good messages early. What holds is the
//! authorizer of [`authorize`](self): SQLite asks it about everything a statement would do while
//! the statement is compiled, and it says no to whatever is not on its lists.

mod authorize;
mod functions;
mod pragmas;
mod text;

pub(crate) use authorize::{Authorizer, Shadows};
pub use text::{MAX_SQL_BYTES, check_query_bytes, check_query_sql};

/// Why a statement is not run. The sentence is for the person who typed it.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Refusal {
    /// A dot-command of the sqlite3 shell.
    #[error("{command} is a command of the sqlite3 shell, not SQL.")]
    DotCommand {
        /// The word with its dot, cut to a few characters.
        command: String,
    },
    /// No statement: nothing, white space, comments or semicolons.
    #[error("the query is empty.")]
    Empty,
    /// What the authorizer denied.
    #[error("carlos db only reads, so this query is not run. {what}.")]
    NotAllowed {
        /// What the statement would do, with the name it would do it to.
        what: String,
    },
    /// Bytes that are not UTF-8, or U+FFFD: JSON would rewrite them (DBF-32).
    #[error("the query holds bytes that are not UTF-8 text or the character U+FFFD.")]
    NotText,
    /// SQLite reads up to a NUL and would drop the rest silently.
    #[error("the query holds a NUL byte. remove it and run it again.")]
    Nul,
    /// A parameter with a name, and values by position: which is which would be a guess.
    #[error("the parameter {name} has a name. give its value by that name.")]
    NamedParameter {
        /// The parameter, as typed.
        name: String,
    },
    /// A parameter without a value: NULL would be a silent wrong answer.
    #[error("the query has a parameter ({name}), and carlos db has no value for it.")]
    Parameter {
        /// The first parameter, as typed.
        name: String,
    },
    /// More text than a request may carry.
    #[error("the query is {bytes} bytes long. carlos db takes at most 64 KB.")]
    TooLong {
        /// Its length.
        bytes: usize,
    },
    /// More than one statement.
    #[error("carlos db runs one statement at a time. remove everything after the first one.")]
    TwoStatements,
    /// A value that nothing takes, which is a mistyped name or a forgotten `?`.
    #[error("there is a value for {name}, and the query has no such parameter.")]
    UnusedValue {
        /// The name, or the position of the first value too many.
        name: String,
    },
    /// A statement that begins with a verb that cannot read.
    #[error("carlos db only reads, and {verb} does not.")]
    Verb {
        /// The verb, in upper case.
        verb: &'static str,
    },
}
