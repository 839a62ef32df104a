//! The agent on a box: takes forwarded database reads from its region's queue and runs each one in
//! a worker (db-forward §5, §7, §8).
//!
//! The agent moves objects and plans from listings. It never opens SQLite and never decodes a
//! page: this crate's dependencies hold neither. What it reaches is in [`Ports`], what it is told
//! in [`AgentConfig`]; [`run`] is the same code in production, in `carlos dev` and in tests.
#![cfg_attr(test, allow(clippy::disallowed_methods, clippy::disallowed_macros))]

mod admission;
mod agent;
mod capability;
mod config;
mod crash;
mod disk;
mod elect;
mod environment;
mod metrics;
mod ports;
mod queue;
mod read;
mod replicas;
mod stop;
mod verify;
mod walls;
mod worker;

pub use admission::DiskFloors;
pub use agent::{AgentError, run};
pub use config::{AgentConfig, ConfigError, Draining};
pub use crash::{CrashHook, CrashPoint, NoCrash};
pub use disk::{DiskSpace, FolderDisk, Space};
pub use environment::{Environment, OpenFailure};
pub use ports::Ports;
pub use replicas::{Replicas, StoreReplicas};
pub use walls::{UnknownWall, Wall, Walls};
#[cfg(target_os = "linux")]
pub use worker::census::Census;
#[cfg(target_os = "linux")]
pub use worker::child::{ChildWorkerHost, WorkerCommand};
#[cfg(target_os = "linux")]
pub use worker::socket::SocketWorkerHost;
pub use worker::{CountUnknown, StartError, WorkerHost, WorkerLife, WorkerLink};
