//! A history that a listing needs several answers for.

use carlos_ltx::{Encoder, Encoding, Header, TxidRange};
use carlos_replica::restore::{plan_replica, restore_to_file};
use carlos_replica::{Layout, Resolution, RestoreOptions, StoreReplica, Target, Txid};
use carlos_tests_minio::Server;
use carlos_tests_minio::deployment::plain_bucket;
use futures::{StreamExt, stream};
use object_store::ObjectStoreExt;
use object_store::path::Path;

/// More than four of a listing's pages, which hold a thousand keys.
const FILES: u64 = 5_000;
/// Puts under way at once.
const AT_ONCE: usize = 32;
const PAGE: u32 = 512;

/// A database of one page that says which transaction wrote it.
fn page(txid: u64) -> Vec<u8> {
    let mut page = vec![0; PAGE as usize];
    page[..18].copy_from_slice(b"SQLite format 3\0\x02\0");
    page[31] = 1;
    page[100..108].copy_from_slice(&txid.to_be_bytes());
    page
}

fn file(txid: u64) -> (Path, Vec<u8>) {
    let range = TxidRange::new(Txid(txid), Txid(txid)).expect("from 1");
    let mut bytes = Vec::new();
    let header = Header::new(PAGE, 1, range, 1_796_048_092_000);
    let mut encoder = Encoder::new(header, Encoding::Block, &mut bytes).expect("a good header");
    encoder.page(1, &page(txid), &mut bytes).expect("the only page");
    encoder.finish(0, &mut bytes).expect("whole");
    (Path::from(format!("shop/0000/{}", range.name())), bytes)
}

pub(crate) async fn test(server: &'static Server) {
    let bucket = plain_bucket(server).await;
    let store = server.store("operator", &bucket);
    let put = async |txid| {
        let (key, bytes) = file(txid);
        store.put(&key, bytes.into()).await.expect("stored");
    };
    stream::iter(1..=FILES).for_each_concurrent(AT_ONCE, put).await;
    let replica = StoreReplica::new(store.clone(), "shop", Layout::Auto, Resolution::Second);
    let replica = replica.expect("a prefix");
    let plan = plan_replica(&replica, Target::Newest).await.expect("a chain without gaps");
    assert_eq!(plan.files().len() as u64, FILES);
    let dir = tempfile::tempdir().expect("a directory");
    let out = dir.path().join("shop.db");
    let options = RestoreOptions { max_bytes: 1 << 20, durable: false };
    let restored = restore_to_file(&replica, plan, Target::Newest, &out, options).await;
    assert_eq!(restored.expect("restored").1.txid, Txid(FILES));
    assert_eq!(std::fs::read(&out).expect("readable"), page(FILES));
}
