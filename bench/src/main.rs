//! One measured program per row of `bench/restore/run`, so that each has its own CPU time and
//! memory. Every one prints a JSON object and leaves nothing but what it was told to write.
#![allow(clippy::disallowed_methods, clippy::disallowed_macros)]

mod slow;
mod worker;

use std::error::Error;
use std::fs::File;
use std::io::Write;
use std::path::Path;
use std::sync::Arc;
use std::time::Instant;

use carlos_ltx::{Decoder, Header, LtxError, PageSink};
use carlos_replica::restore::plan_replica;
use carlos_replica::{Download, Layout, Plan, ReplicaReader, Resolution, RestoreOptions};
use carlos_replica::{StoreReplica, Target, restore_to_file};
use object_store::ObjectStore;
use object_store::local::LocalFileSystem;
use serde_json::{Value, json};

/// Room for every replica that the script makes.
pub(crate) const OPTIONS: RestoreOptions = RestoreOptions { max_bytes: 64 << 30, durable: false };
const PIECE: usize = 256 << 10;

type Outcome = Result<Value, Box<dyn Error>>;

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn Error>> {
    let arguments: Vec<_> = std::env::args().skip(1).collect();
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let start = Instant::now();
    let mut report = match arguments[..] {
        ["plan", replica] => plan(replica).await?,
        ["restore", replica, out] => restore(replica, out, false).await?,
        ["restore-durable", replica, out] => restore(replica, out, true).await?,
        ["read", replica] => read(replica).await?,
        ["decode", replica] => decode(replica).await?,
        ["write", bytes, out] => write(bytes.parse()?, out)?,
        ["slow", replica, out, mode] => slow::restore(replica, out, mode).await?,
        ["worker", replica, program, scratch] => worker::feed(replica, program, scratch).await?,
        _ => return Err("see bench/restore/run for the programs and their arguments".into()),
    };
    report["wall_s"] = json!(start.elapsed().as_secs_f64());
    report["rss_kib"] = json!(peak_kib());
    println!("{report}");
    Ok(())
}

pub(crate) fn replica(store: Arc<dyn ObjectStore>) -> Result<StoreReplica, Box<dyn Error>> {
    Ok(StoreReplica::new(store, "", Layout::File, Resolution::Full)?)
}

pub(crate) fn directory(path: &str) -> Result<StoreReplica, Box<dyn Error>> {
    replica(Arc::new(LocalFileSystem::new_with_prefix(path)?))
}

async fn newest(replica: &StoreReplica) -> Result<Plan, Box<dyn Error>> {
    Ok(plan_replica(replica, Target::Newest).await?)
}

async fn plan(path: &str) -> Outcome {
    let replica = directory(path)?;
    let plan = newest(&replica).await?;
    let levels: Vec<_> = plan.files().iter().map(|file| file.level).collect();
    let header = Header::decode(&replica.header(plan.last()).await?)?;
    Ok(json!({
        "levels": levels,
        "plan_bytes": plan.bytes(),
        "database_bytes": plan.restored_bytes(&header)?,
        "txid": plan.txid().to_string(),
    }))
}

async fn restore(path: &str, out: &str, durable: bool) -> Outcome {
    let replica = directory(path)?;
    let plan = newest(&replica).await?;
    let options = RestoreOptions { durable, ..OPTIONS };
    let out = Path::new(out);
    let (_, restored) = restore_to_file(&replica, plan, Target::Newest, out, options).await?;
    Ok(json!({"bytes": restored.bytes}))
}

async fn read(path: &str) -> Outcome {
    let replica = directory(path)?;
    let plan = newest(&replica).await?;
    let mut download = Download::new(&replica, plan.files());
    let mut bytes = 0;
    while let Some(piece) = download.next().await? {
        bytes += piece.len();
    }
    Ok(json!({"bytes": bytes}))
}

/// The floor: every planned byte read, decompressed and checked, and nothing written.
async fn decode(path: &str) -> Outcome {
    let replica = directory(path)?;
    let plan = newest(&replica).await?;
    let mut download = Download::new(&replica, plan.files());
    let mut sizes = plan.files().iter().map(|file| file.size);
    let (mut decoder, mut left) = (Decoder::new(), sizes.next().unwrap_or_default());
    let mut sink = Forgetful(Vec::new());
    let mut pages = 0;
    while let Some(piece) = download.next().await? {
        let mut piece = &piece[..];
        while !piece.is_empty() {
            let (now, later) = piece.split_at(piece.len().min(usize::try_from(left)?));
            decoder.feed(now, &mut sink)?;
            left -= now.len() as u64;
            piece = later;
            if left == 0 {
                pages += std::mem::take(&mut decoder).finish()?.pages;
                left = sizes.next().unwrap_or_default();
            }
        }
    }
    Ok(json!({"pages": pages}))
}

struct Forgetful(Vec<u8>);

impl PageSink for Forgetful {
    type Error = LtxError;

    fn begin(&mut self, header: &Header) -> Result<(), LtxError> {
        self.0.resize(header.page_size as usize, 0);
        Ok(())
    }

    fn slot(&mut self, _number: u32) -> Result<&mut [u8], LtxError> {
        Ok(&mut self.0)
    }
}

/// What writing a database of this size costs in any case.
fn write(bytes: u64, out: &str) -> Outcome {
    let mut file = File::create_new(out)?;
    let piece = vec![0x5a; PIECE];
    let mut left = bytes;
    while left > 0 {
        let len = usize::try_from(left)?.min(PIECE);
        file.write_all(&piece[..len])?;
        left -= len as u64;
    }
    Ok(json!({"bytes": bytes}))
}

/// The most memory this process ever held, by the kernel's count.
fn peak_kib() -> Option<u64> {
    let status = std::fs::read_to_string("/proc/self/status").ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"))?;
    line.trim().strip_suffix(" kB")?.parse().ok()
}
