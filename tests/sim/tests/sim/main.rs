//! The simulation: determinism first, then the election, then whole schedules.
#![allow(clippy::disallowed_methods, clippy::disallowed_macros)]
#![allow(clippy::panic, clippy::unwrap_used)]

mod crashes;
mod leaving;
mod meta;
mod schedules;
mod t5;
