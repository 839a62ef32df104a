//! The two halves of the guard.
//!
//! [`statement::check`] looks at the text and only makes good messages early. What holds is the
//! authorizer of [`authorize`](self): SQLite asks it about everything a statement would do while
//! the statement is compiled, and it says no to whatever is not on its lists.

mod authorize;
mod functions;

use carlos_protocol::statement;

pub(crate) use authorize::{Authorizer, Shadows};

/// Why a statement is not run. The sentence is for the person who typed it.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Refusal {
    /// What the authorizer denied.
    #[error("carlos db only reads, so this query is not run. {what}.")]
    NotAllowed {
        /// What the statement would do, with the name it would do it to.
        what: String,
    },
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
    /// What the text alone shows.
    #[error(transparent)]
    Text(#[from] statement::Refusal),
    /// A value that nothing takes, which is a mistyped name or a forgotten `?`.
    #[error("there is a value for {name}, and the query has no such parameter.")]
    UnusedValue {
        /// The name, or the position of the first value too many.
        name: String,
    },
}
