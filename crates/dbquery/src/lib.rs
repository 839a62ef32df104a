//! One guarded, read-only statement over one SQLite file (db-forward §8.3).
//!
//! - [`run`] opens a file that nothing else writes, runs one statement under the authorizer and
//!   the limits, and writes the answer as a [row stream](rows).
//! - [`integrity`] looks a restored file over before anything is answered from it, and [`read_by`]
//!   says which of its tables a query will read.
//! - [`render`] turns a whole row stream into a terminal table, TSV or JSON.
//!
//! The worker on a box and the client on a person's machine both call this, so an answer prints
//! the same on both sides. For that, `localtime` has to be UTC in both: whoever starts a process
//! that calls [`run`] sets `TZ=UTC` for it, and [`run`] refuses to work otherwise.

#![cfg_attr(test, allow(clippy::disallowed_methods, clippy::disallowed_macros))]

mod bind;
mod guard;
mod integrity;
mod real;
mod render;
pub mod rows;
mod runner;
mod session;
mod stop;

pub use guard::Refusal;
pub use integrity::{IntegrityError, IntegrityMode, integrity, read_by};
pub use real::format_real;
pub use render::{Format, RenderError, render};
pub use runner::{HEAP_BYTES, Limits, Query, QueryError, Ran, run};
pub use stop::Stop;
