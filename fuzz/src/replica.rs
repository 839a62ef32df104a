//! Targets for the decoders of `carlos-ltx` and `carlos-replica`.

use std::fs;
use std::sync::Arc;

use carlos_ltx::{
    Decoder, HEADER_LEN, Header, LtxError, PageSink, TxidRange, Verified, decode_pages,
};
use carlos_replica::plan::{Listing, Plan, ReplicaFile, Resolution, Target, plan};
use carlos_replica::restore::{plan_replica, restore_to_file};
use carlos_replica::verify::verify;
use carlos_replica::{Layout, PlannedFile, Restore, RestoreError, RestoreOptions, Restored};
use carlos_replica::{StoreReplica, Txid};
use futures::executor::block_on;
use object_store::ObjectStoreExt;
use object_store::memory::InMemory;
use object_store::path::Path;

/// The largest database a target restores: page sizes and counts are the input's to choose.
const OPTIONS: RestoreOptions = RestoreOptions { max_bytes: 1 << 20, durable: false };

/// The header of a file. Its reserved bytes are read over, so only the values must come back.
pub fn ltx_headers(data: &[u8]) {
    if let Ok(header) = Header::decode(data) {
        assert_eq!(Header::decode(&header.encode()), Ok(header));
    }
}

/// Names of files.
pub fn ltx_names(data: &[u8]) {
    if let Ok(name) = std::str::from_utf8(data)
        && let Some(range) = TxidRange::from_name(name)
    {
        assert_eq!(range.name(), name);
    }
}

/// Whole files, in one piece and in many.
pub fn ltx_files(data: &[u8]) {
    let mut pages = Vec::new();
    let whole = decode_pages(data, |number, page| pages.push((number, page.to_vec())));
    let mut sink = Pages::default();
    let pieces = in_pieces(data, &mut sink);
    assert_eq!(whole, pieces, "pieces do not change what a file says");
    if whole.is_ok() {
        assert_eq!(pages, sink.seen);
    }
}

fn in_pieces(data: &[u8], sink: &mut Pages) -> Result<Verified, LtxError> {
    let mut decoder = Decoder::new();
    for piece in data.chunks(7) {
        decoder.feed(piece, sink)?;
    }
    decoder.finish()
}

#[derive(Default)]
struct Pages {
    page: Vec<u8>,
    seen: Vec<(u32, Vec<u8>)>,
}

impl PageSink for Pages {
    type Error = LtxError;

    fn begin(&mut self, header: &Header) -> Result<(), LtxError> {
        self.page = vec![0; usize::try_from(header.page_size).expect("at most 64 KiB")];
        Ok(())
    }

    fn slot(&mut self, _: u32) -> Result<&mut [u8], LtxError> {
        Ok(&mut self.page)
    }

    fn page(&mut self, number: u32) -> Result<(), LtxError> {
        self.seen.push((number, self.page.clone()));
        Ok(())
    }
}

/// Bytes of one listed file in the input of [`plans`].
const ENTRY: usize = 6;

/// Listings: six bytes a file, after a head that names the target.
pub fn plans(data: &[u8]) {
    let Some((&[kind, at], entries)) = data.split_first_chunk::<2>() else { return };
    let listing = Listing::new(entries.chunks_exact(ENTRY).filter_map(listed));
    let target = match kind % 3 {
        0 => Target::Newest,
        1 => Target::Before(i64::from(at) * 500),
        _ => Target::Txid(Txid(u64::from(at % 32))),
    };
    let resolution = if kind & 0x80 == 0 { Resolution::Full } else { Resolution::Second };
    if let Ok(plan) = plan(&listing, target, resolution) {
        check_plan(&plan, &listing, target);
    }
}

fn listed(entry: &[u8]) -> Option<ReplicaFile> {
    let &[level, min, more, size, created, age] = entry else { return None };
    let min = u64::from(min % 32);
    let range = TxidRange::new(Txid(min), Txid(min + u64::from(more % 8)))?;
    Some(ReplicaFile {
        level: level % 11,
        range,
        size: u64::from(size) << (age % 4 * 8),
        created_ms: i64::from(created) * 500 + i64::from(age),
        tag: None,
    })
}

/// A plan begins with everything, leaves nothing out, always gets further, and keeps its target.
fn check_plan(plan: &Plan, listing: &Listing, target: Target) {
    let mut reached = Txid::NONE;
    for file in plan.files() {
        assert!(listing.files().any(|known| known == file), "made up: {file:?}");
        assert!(file.range.min() <= reached.next(), "a gap after {reached}");
        assert!(file.range.max() > reached, "no step forward after {reached}");
        assert!(file.size >= HEADER_LEN as u64);
        if let Target::Before(time) = target {
            assert!(file.created_ms < time, "not strictly before");
        }
        reached = file.range.max();
    }
    assert_eq!(plan.txid(), reached);
    if let Target::Txid(wanted) = target {
        assert_eq!(reached, wanted);
    }
}

/// What follows the pages of a good file: index, its length, checksums. Only one such end is
/// right.
pub fn ltx_ends(data: &[u8]) {
    let seeds = crate::seeds::ltx_files();
    let good = seeds.iter().find(|file| decode_pages(file, |_, _| {}).is_ok());
    let good = good.expect("a seed is a good file");
    let end = good.len() - crate::seeds::LTX_END;
    let file = [&good[..end], data].concat();
    assert_eq!(decode_pages(&file, |_, _| {}).is_ok(), data == &good[end..]);
}

/// Whole replicas: listing, plan, download, apply, and the check of every file.
///
/// The input is a list of files: level, first transaction, how many more, which seed the bytes
/// are of, and where one of them is changed to what.
pub fn replicas(data: &[u8]) {
    let store = Arc::new(InMemory::new());
    let seeds = crate::seeds::ltx_files();
    for entry in data.chunks_exact(7).take(12) {
        block_on(put(&store, &seeds, entry)).expect("memory takes everything");
    }
    let folder = tempfile::tempdir().expect("a scratch folder");
    let out = folder.path().join("restored.db");
    let replica = StoreReplica::new(store, "", Layout::S3, Resolution::Full).expect("no prefix");
    let at = data.first().map(|at| i64::from(*at) << 33);
    let target = at.filter(|at| *at % 3 == 0).map_or(Target::Newest, Target::Before);
    let restored = block_on(async {
        let plan = plan_replica(&replica, target).await?;
        restore_to_file(&replica, plan, target, &out, OPTIONS).await
    });
    let report = block_on(verify(&replica)).expect("memory can be read");
    match restored {
        Ok((plan, restored)) => {
            assert_eq!(plan.txid(), restored.txid);
            assert_eq!(fs::metadata(&out).expect("it is there").len(), restored.bytes);
        }
        Err(_) => {
            assert!(!out.exists(), "a failed restore leaves nothing");
            assert!(!report.sound || target != Target::Newest, "what is sound can be restored");
        }
    }
}

async fn put(store: &InMemory, seeds: &[Vec<u8>], entry: &[u8]) -> object_store::Result<()> {
    let &[level, min, more, seed, at, further, change] = entry else { return Ok(()) };
    let mut bytes = seeds[usize::from(seed) % seeds.len()].clone();
    let at = usize::from(u16::from_be_bytes([at, further])) % bytes.len();
    bytes[at] ^= change;
    let min = u64::from(min % 4) + 1;
    let max = min + u64::from(more % 3);
    let key = format!("{:04x}/{min:016x}-{max:016x}.ltx", level % 11);
    store.put(&Path::from(key), bytes.into()).await.map(|_| ())
}

/// A snapshot and an increment applied to a file. The cut between them is where the input's
/// second header magic lies, so that the seeds are good plans.
pub fn restores(data: &[u8]) {
    let folder = tempfile::tempdir().expect("a scratch folder");
    let out = folder.path().join("restored.db");
    match restore(data, &out) {
        Ok(restored) => {
            let size = fs::metadata(&out).expect("a finished restore leaves its file").len();
            assert_eq!(size, restored.bytes);
            assert_eq!(size, u64::from(restored.pages) * u64::from(restored.page_size));
        }
        Err(_) => assert!(!out.exists(), "a failed restore leaves nothing"),
    }
}

fn restore(data: &[u8], out: &std::path::Path) -> Result<Restored, RestoreError> {
    let cut = data.windows(4).skip(1).position(|window| window == b"LTX1");
    let cut = cut.map_or(data.len(), |at| at + 1);
    let sizes = [cut, data.len() - cut];
    let ranges = (1_u64..).map(Txid).zip(sizes).filter(|(_, size)| *size > 0);
    let files = ranges.map(|(txid, size)| {
        let range = TxidRange::new(txid, txid).expect("from 1");
        PlannedFile { level: 0, range, size: size as u64 }
    });
    let mut restore = Restore::create(out, files.collect(), OPTIONS)?;
    restore.feed(data)?;
    restore.finish()
}
