//! A real S3 server with one user for each role, and what the tests ask of it.
#![allow(clippy::disallowed_methods, clippy::disallowed_macros, clippy::unwrap_used, clippy::panic)]

pub mod admin;
pub mod busy;
pub mod deployment;
pub mod offers;
pub mod programs;
pub mod proxy;
pub mod server;
pub mod settings;
pub mod source;
pub mod toy;
pub mod wire;
pub mod workers;
pub mod world;

mod docker;
mod rgw;

pub use admin::Admin;
pub use deployment::Buckets;
pub use proxy::Proxy;
pub use server::{Choice, Kind, Server};
pub use world::World;
