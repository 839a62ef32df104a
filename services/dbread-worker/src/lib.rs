//! The sandboxed process that decodes a tenant's pages and runs a member's SQL.
//!
//! It is started with a connection as its standard input, owns one scratch directory, reaches
//! nothing else, and ends with its connection (db-forward §8.3).
#![cfg_attr(test, allow(clippy::disallowed_methods, clippy::disallowed_macros))]

#[cfg(target_os = "linux")]
pub mod clock;
pub mod exit;
#[cfg(target_os = "linux")]
pub mod gate;
pub mod life;
#[cfg(target_os = "linux")]
pub mod options;
#[cfg(target_os = "linux")]
pub mod sandbox;
#[cfg(target_os = "linux")]
pub mod scratch;
#[cfg(target_os = "linux")]
pub mod watcher;
