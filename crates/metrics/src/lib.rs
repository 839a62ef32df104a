//! What a service counts, as Prometheus reads it.
//!
//! A service keeps its numbers in atomics of its own ([`Counts`], [`Histogram`]) and writes them
//! into a [`Page`] when somebody asks. [`Exporter`] answers `GET /metrics` on an address that is
//! not the service's own: numbers are for operators, and the console's listener is for everybody.
#![cfg_attr(test, allow(clippy::disallowed_methods, clippy::disallowed_macros))]
#![warn(missing_docs)]

mod bucket;
mod counts;
mod endpoint;
mod exporter;
mod histogram;
mod page;

pub use bucket::write_bucket;
pub use counts::Counts;
pub use endpoint::{ALLOW_REMOTE, Endpoint, EndpointError, LISTEN};
pub use exporter::Exporter;
pub use histogram::Histogram;
pub use page::{Kind, Page};
