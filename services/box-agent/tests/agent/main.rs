//! The agent's loop on virtual time, over a real bucket in memory. The worker is a unit stand-in
//! (see `workers`); everything else is the code of production.
#![allow(clippy::disallowed_methods, clippy::disallowed_macros)]
#![allow(clippy::panic, clippy::unwrap_used)]

mod bracket;
#[cfg(target_os = "linux")]
mod child;
mod election;
mod life;
mod metrics;
mod reads;
#[cfg(target_os = "linux")]
mod socket;
mod support;
mod workers;
