//! The harness of the named tests (db-forward §11.4): a real console on loopback, real agents whose
//! workers are the real worker program, replicas written from real SQLite files, and the real
//! `carlos` binary as what a person sees.
//!
//! A [`World`] is one deployment: its stores, its records, its people. Consoles and boxes are
//! started in it; each sees the stores through a [`View`] of its own, whose hooks, faults and
//! ledger belong to that process alone. A test that ends without a panic has also shown that
//! nothing under `db-reads/` was ever deleted or replaced.
#![allow(clippy::unwrap_used, clippy::panic, reason = "all of this is test code")]
#![allow(clippy::disallowed_methods, clippy::disallowed_macros, reason = "tests own the clock")]

mod boxes;
mod client;
mod console;
mod hostile;
mod logs;
mod player;
mod programs;
mod replica;
mod stores;
mod world;

pub use boxes::{BoxPlan, Gates, Listener, RunningBox};
pub use client::{Asked, Finished, Open, Ran, Refused};
pub use console::{RunningConsole, quick};
pub use hostile::{Forger, later_version};
pub use logs::Logs;
pub use player::Player;
pub use replica::Source;
pub use stores::{Entry, Ledger, View};
pub use world::{EMAIL, Keeping, OTHER_EMAIL, World, parse};
