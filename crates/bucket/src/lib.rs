//! Coordination through a bucket: objects that are created once and never replaced, revision
//! chains made of them, serials that hint at news, and the queue windows that carry it
//! (db-forward §5.3, §5.4, §5.8).
//!
//! Everything goes through [`Bucket`], a cheap clone over any `object_store` implementation and one
//! [`Context`] for clock and randomness. The store's own retries must be off for conditional puts
//! (`max_retries: 0`): a library that retries a landed create reports it as taken, and then nobody
//! knows whose object is there.
//!
//! ```
//! # use std::sync::Arc;
//! # use carlos_bucket::{Bucket, Context, Outcome, Purpose};
//! # let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build()?;
//! # runtime.block_on(async {
//! let store = Arc::new(object_store::memory::InMemory::new());
//! let bucket = Bucket::new(store, Context::system());
//! let first = bucket.create("probe/doc/1", "mine".into(), Purpose::Claim).await;
//! let again = bucket.create("probe/doc/1", "mine".into(), Purpose::Claim).await;
//! assert_eq!((first, again), (Outcome::Created, Outcome::AlreadyMine));
//! # });
//! # Ok::<(), std::io::Error>(())
//! ```
#![cfg_attr(test, allow(clippy::disallowed_methods, clippy::disallowed_macros))]
#![warn(missing_docs)]

pub mod chain;
pub mod conformance;
pub mod counted;
pub mod expire;
pub mod fault;
pub mod guard;
pub mod hook;
pub mod layer;
pub mod poller;
pub mod probe;
pub mod queue;
pub mod scenario;
pub mod serial;
pub mod shuffle;
pub mod toys;

mod brake;
mod bucket;
mod context;
mod counters;
mod deadline;
mod open;
mod verdict;

pub use brake::Brake;
pub use bucket::{Bucket, Children, Listed, MAX_LISTED, MAX_OBJECT, Outcome, Page};
pub use chain::{Append, Chain, ChainError, Head};
pub use context::{Context, ContextEntropy, Elapsed};
pub use counted::Counted;
pub use counters::{Answer, Counters, Kind, Tally};
pub use deadline::Purpose;
pub use guard::WriteOnceGuard;
pub use open::{
    Address, BucketSettings, OpenError, ProfileError, S3Error, SettingsError, StoreClock, file_url,
    open_existing, open_settings, open_store, open_store_with, s3_address,
};
pub use poller::{Pace, Poller};
pub use queue::{Alarm, Queue, QueueWatch};
pub use serial::{News, Pulse, Serial};
pub use verdict::{Cause, HttpStatus, ReadError};
