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
//!
//! The restored bytes are those of Litestream's own `restore`; tests compare thousands of moments
//! with the real program. What a listing or a file claims bounds nothing here: plans, memory and
//! the restored size have limits of their own.
//!
//! # Examples
//!
//! A replica is written, listed, and restored as it was before its last change:
//!
//! ```
//! # #[cfg(all(feature = "plan", feature = "apply"))] {
//! use std::sync::Arc;
//!
//! use carlos_replica::restore::{plan_replica, restore_to_file};
//! use carlos_replica::writer::{PageSource, ReplicaWriter};
//! use carlos_replica::{Layout, Resolution, RestoreOptions, StoreReplica, Target, Txid};
//!
//! /// A database of one page.
//! struct OnePage([u8; 512]);
//!
//! impl PageSource for OnePage {
//!     fn page_size(&self) -> u32 {
//!         512
//!     }
//!     fn commit(&self) -> u32 {
//!         1
//!     }
//!     fn read_page(&mut self, _number: u32, page: &mut [u8]) -> std::io::Result<()> {
//!         page.copy_from_slice(&self.0);
//!         Ok(())
//!     }
//! }
//!
//! # let runtime = tokio::runtime::Builder::new_current_thread().build()?;
//! # runtime.block_on(async {
//! let mut database = OnePage([0; 512]);
//! database.0[..18].copy_from_slice(b"SQLite format 3\0\x02\0");
//! database.0[31] = 1;
//! let store = Arc::new(object_store::memory::InMemory::new());
//! let mut writer = ReplicaWriter::open(store.clone(), "backups/shop").await?;
//! writer.sync(&mut database, 1_796_048_092_000).await?;
//! database.0[100] = 0x5a;
//! writer.sync(&mut database, 1_796_048_093_000).await?;
//!
//! let replica = StoreReplica::new(store, "backups/shop", Layout::Auto, Resolution::Full)?;
//! let plan = plan_replica(&replica, Target::Txid(Txid(1))).await?;
//! let options = RestoreOptions { max_bytes: 1 << 30, durable: false };
//! # let folder = tempfile::tempdir()?;
//! # let out = folder.path().join("shop.db");
//! let target = Target::Txid(Txid(1));
//! let (_, restored) = restore_to_file(&replica, plan, target, &out, options).await?;
//! assert_eq!((restored.txid, restored.bytes), (Txid(1), 512));
//! assert_eq!(std::fs::read(&out)?[100], 0);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! # })?;
//! # }
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! `examples/restore.rs` restores a directory's replica from the command line.
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
