//! Reading Litestream replicas: what is there, which files lead to a moment, and the database
//! they restore to.
//!
//! | module | what it does | feature |
//! |---|---|---|
//! | [`mod@plan`] | from a listing and a target to the list of files to apply; pure | `plan` |
//! | [`store`] | listings and file bytes from an object store, both layouts | `plan` |
//! | [`times`] | listing times that a copy of the replica has reset | `plan` |
//! | [`apply`] | from the planned files' bytes to a database file | `apply` |
//! | [`restore`] | the three together, with one new plan when a file vanishes | both |
//! | [`survey`], [`ls`] | everything under a prefix, named for what it is | `plan` |
//! | [`verify`] | every byte of every file, checked | both |
//! | [`cmd`] | what `carlos replica` prints | both |
//! | [`writer`] | writes a replica from a page source | both |
//!
//! A process with only `plan` cannot decode a page (db-forward §8.1): it reads listings, the
//! 100-byte header of a file, and bytes that it passes on.
#![cfg_attr(test, allow(clippy::disallowed_methods, clippy::disallowed_macros))]

#[cfg(feature = "plan")]
mod download;
mod file;

#[cfg(feature = "apply")]
pub mod apply;
#[cfg(all(feature = "plan", feature = "apply"))]
pub mod cmd;
#[cfg(feature = "plan")]
mod layout;
#[cfg(feature = "plan")]
pub mod ls;
#[cfg(feature = "plan")]
pub mod plan;
#[cfg(feature = "plan")]
pub mod reader;
#[cfg(all(feature = "plan", feature = "apply"))]
pub mod restore;
#[cfg(feature = "plan")]
pub mod store;
#[cfg(feature = "plan")]
pub mod survey;
#[cfg(feature = "plan")]
pub mod times;
#[cfg(all(feature = "plan", feature = "apply"))]
pub mod verify;
#[cfg(all(feature = "plan", feature = "apply"))]
pub mod writer;

pub use carlos_ltx::{HEADER_LEN, Header, Txid, TxidRange};
pub use file::{LEVELS, PlannedFile, SNAPSHOT_LEVEL};

#[cfg(feature = "apply")]
pub use apply::{Restore, RestoreError, RestoreOptions, Restored};
#[cfg(feature = "plan")]
pub use download::Download;
#[cfg(feature = "plan")]
pub use layout::Layout;
#[cfg(feature = "plan")]
pub use plan::{Listing, Plan, PlanError, ReplicaFile, Rereading, Resolution, Target, plan};
#[cfg(feature = "plan")]
pub use reader::{ByteStream, Fetch, ReadError, ReplicaReader};
#[cfg(all(feature = "plan", feature = "apply"))]
pub use restore::{RestoreFailure, restore_to_file};
#[cfg(feature = "plan")]
pub use store::StoreReplica;
#[cfg(feature = "plan")]
pub use times::listing_for;
