//! The contract tests of routemesh §13, through the public surface only.
#![allow(clippy::disallowed_methods, clippy::disallowed_macros, clippy::panic)]

mod delivery;
mod peers;
mod registration;
mod selection;
mod support;
mod talk;
