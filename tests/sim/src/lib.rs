//! A deployment on virtual time, from one seed: the real console, real agents with in-process
//! workers that restore real copies, a store that fails as real ones do, and people who check
//! answers as the CLI does.
//!
//! Everything that happens goes into one [`Log`]; the same seed gives the same log. [`check`] holds
//! a finished log against the invariants of db-forward §5.3. What runs here is production's code,
//! except where a process ends at its operating system: sockets are tower calls and pipes in
//! memory, a kill is a process that no longer reaches its store, and the worker has no walls.
#![allow(clippy::unwrap_used, clippy::panic, reason = "all of this is test code")]
#![allow(clippy::disallowed_methods, clippy::disallowed_macros, reason = "tests own the clock")]

pub mod check;
pub mod scenario;
pub mod schedule;

mod boxes;
mod console;
mod log;
mod person;
mod rows;
mod wire;
mod worker;
mod world;

pub use boxes::{Machine, Stop};
pub use console::Desk;
pub use log::{Entry, Event, Log, ReadStep, Step};
pub use person::{Manner, Seen};
pub use rows::{Expected, Kind, Statement};
pub use wire::{Line, Power};
pub use worker::{Habits, InProcessWorkers};
pub use world::{World, run};
