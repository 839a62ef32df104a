//! The named tests of forwarded reads (db-forward §11.4), one module for each.
#![allow(clippy::disallowed_methods, clippy::unwrap_used, clippy::panic)]

mod bad_objects;
mod parity;
mod people;
mod t12;
mod t15;
mod t16;
mod t18;
mod t4;
mod t8;
mod t9;
