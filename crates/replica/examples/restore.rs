//! Restores a replica in a directory to a database file:
//! `cargo run --release -p carlos-replica --example restore -- /path/to/replica out.db`
#![allow(clippy::disallowed_methods, clippy::disallowed_macros)]

use std::error::Error;
use std::path::Path;
use std::sync::Arc;

use carlos_replica::restore::plan_replica;
use carlos_replica::{Layout, Resolution, RestoreOptions, StoreReplica, Target, restore_to_file};
use object_store::local::LocalFileSystem;

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn Error>> {
    let arguments: Vec<_> = std::env::args().collect();
    let [_, replica, out] = &arguments[..] else {
        return Err("usage: restore REPLICA OUT".into());
    };
    let store = Arc::new(LocalFileSystem::new_with_prefix(replica)?);
    let replica = StoreReplica::new(store, "", Layout::Auto, Resolution::Full)?;
    let plan = plan_replica(&replica, Target::Newest).await?;
    let options = RestoreOptions { max_bytes: 64 << 30, durable: false };
    let out = Path::new(out);
    let (_, restored) = restore_to_file(&replica, plan, Target::Newest, out, options).await?;
    println!("transaction {}, {} pages", restored.txid, restored.pages);
    Ok(())
}
