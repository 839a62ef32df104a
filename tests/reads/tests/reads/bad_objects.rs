//! Garbage, truncated and later-version objects at every key that somebody reads. Each has a clear
//! answer, nothing panics, and the next read works: nothing is lost.

use std::sync::Arc;

use bytes::Bytes;
use carlos_box_agent::CrashPoint;
use carlos_bucket::hook::Side;
use carlos_bucket::layer::{Inner, Op};
use carlos_protocol::copy::Exit;
use carlos_protocol::ids::ReadId;
use carlos_protocol::keys::{self, Key, QueueEntry};
use carlos_protocol::limits::CHUNK_BYTES;
use carlos_protocol::records;
use carlos_protocol::request::ReadRequest;
use carlos_protocol::seal::SEAL_OVERHEAD;
use carlos_tests_reads::{Forger, Ran, RunningBox, RunningConsole, World};
use futures::TryStreamExt as _;
use object_store::path::Path;
use object_store::{ObjectStore as _, ObjectStoreExt as _};

/// What no reader of this protocol's JSON objects understands.
const BAD: [&[u8]; 5] = [
    b"",
    b"\xff\xfe\x00garbage",
    br#"{"v":2,"box":"uk-1","beam":"up"}"#,
    br#"{"box":"uk-1","boot":"b","nonce":"#,
    b"[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[",
];

async fn running() -> (Arc<World>, RunningConsole, RunningBox) {
    let world = Arc::new(World::new().await);
    let console = world.console().await;
    let uk = world.start_box("uk-1").await;
    (world, console, uk)
}

async fn works(world: &World, console: &RunningConsole) {
    console.query(world, World::SQL).await.printed(World::TSV);
}

#[tokio::test]
async fn bad_requests_are_passed_over() {
    let (world, console, uk) = running().await;
    let forger = Forger::of(&world);
    let request = ReadRequest::from(forger.request().await);
    let whole = forger.signed(&request);
    let cut = [whole.slice(..whole.len() / 2), whole.slice(1..)];
    let mut ids = Vec::new();
    for body in BAD.map(Bytes::from_static).into_iter().chain(cut) {
        let id = ReadId::mint(&mut world.context.entropy());
        forger.offer(&QueueEntry { id, ..request.queue_entry() }, body).await;
        ids.push(id);
    }
    works(&world, &console).await;
    for id in ids {
        assert_eq!(uk.view.ledger.count(Op::Create, &id.to_string()), 0);
    }
}

#[tokio::test]
async fn queue_entries_that_are_none_are_passed_over() {
    let (world, console, _uk) = running().await;
    let forger = Forger::of(&world);
    let request = ReadRequest::from(forger.request().await);
    let entry = request.queue_entry().to_string();
    let (folder, _) = entry.rsplit_once('/').unwrap();
    for name in ["x", "1-dbr_x", "-", "99999999999999999999999-dbr_", "%2e%2e", "a/b/c"] {
        forger.create_path(&format!("{folder}/{name}")).await;
    }
    works(&world, &console).await;
}

/// Asks while the box is held before one of its creates, where something bad is put first.
async fn preempted(
    (world, console, uk): &(Arc<World>, RunningConsole, RunningBox),
    part: &str,
    key: fn(ReadId) -> Key,
    bad: Vec<u8>,
) -> (Ran, ReadId) {
    let mut held = uk.view.hooks.pause(Side::Before, Op::Create, part);
    let asked = world.signed().await.len();
    let preempting = async {
        held.reached().await;
        let signed = world.signed().await;
        assert_eq!(signed.len(), asked + 1);
        let id = newest(world, uk).await;
        world.create(&key(id), bad).await;
        held.release();
        id
    };
    tokio::join!(console.query(world, World::SQL), preempting)
}

/// The read whose request the box examined last.
async fn newest(world: &World, uk: &RunningBox) -> ReadId {
    let examined = uk.view.ledger.of("/request.json");
    let ids = examined.iter().rev().filter_map(|entry| match Key::parse(&entry.key) {
        Ok(Key::Request(id)) => Some(id),
        _ => None,
    });
    for id in ids {
        if world.request(id).await.is_some() {
            return id;
        }
    }
    panic!("the box examined no genuine request");
}

#[tokio::test]
async fn a_bad_picked_ends_its_read() {
    let running = running().await;
    let (world, console, uk) = &running;
    for bad in BAD {
        let (ran, id) = preempted(&running, "/picked", Key::Picked, bad.to_vec()).await;
        ran.ended(Exit::Unfinished, "DBF-12");
        works(world, console).await;
        assert_eq!(uk.view.ledger.count(Op::Create, &format!("{id}/out")), 0);
        assert_eq!(uk.view.ledger.count(Op::Create, &format!("{id}/result")), 0);
    }
}

#[tokio::test]
async fn a_bad_chunk_ends_its_read() {
    let running = running().await;
    let sizes = [0, 1, SEAL_OVERHEAD - 1, SEAL_OVERHEAD + 9, SEAL_OVERHEAD + CHUNK_BYTES + 1];
    for size in sizes {
        let first = |id| Key::Chunk(id, 1);
        let (ran, _) = preempted(&running, "/out/00000001", first, vec![7; size]).await;
        ran.ended(Exit::Unfinished, "DBF-12");
    }
    works(&running.0, &running.1).await;
}

#[tokio::test]
async fn names_that_are_no_chunks_are_passed_over() {
    let (world, console, uk) = running().await;
    let strange = Arc::clone(&world);
    uk.view.hooks.on(Side::Before, Op::Create, "/out/00000001", 1, move |key| {
        let world = Arc::clone(&strange);
        async move {
            let folder = key.trim_end_matches("00000001");
            for name in ["0", "1", "00000000", "99999999", "x", "00000001.tmp"] {
                Forger::of(&world).create_path(&format!("{folder}{name}")).await;
            }
        }
    });
    works(&world, &console).await;
}

#[tokio::test]
async fn a_bad_result_ends_its_read() {
    let running = running().await;
    let boastful = br#"{"state":"done","code":"","box":"uk-1","last_seq":99999999,"#.to_vec();
    for bad in BAD.map(<[u8]>::to_vec).into_iter().chain([boastful]) {
        let (ran, _) = preempted(&running, "/result.json", Key::Result, bad).await;
        ran.ended(Exit::Unfinished, "DBF-12");
    }
    works(&running.0, &running.1).await;
}

/// What a chain's newest revision may turn out to be.
async fn spoil(world: &World, chain: &str, how: usize) {
    match how {
        0 => world.break_chain(chain, BAD[1]).await,
        1 => world.break_chain(chain, BAD[3]).await,
        2 => world.append(chain, br#"{"v":2,"beam":"up"}"#).await,
        _ => world.append(chain, br#"{"v":1}"#).await,
    }
}

#[tokio::test]
async fn a_bad_instance_record_is_said_and_can_be_repaired() {
    let (world, console, _uk) = running().await;
    let chain = keys::host_chain(&world.place.host);
    let good = records::encode(&world.operator.instance(&world.place.host).await.unwrap());
    for how in 0..4 {
        spoil(&world, &chain, how).await;
        console
            .query_with(&world, &["--instance", "shop.example.com", World::SQL])
            .await
            .ended(Exit::Unfinished, "DBL-2");
        world.append(&chain, &good).await;
    }
    works(&world, &console).await;
}

#[tokio::test]
async fn an_instance_record_that_goes_bad_under_a_read() {
    let (world, console, uk) = running().await;
    let chain = keys::host_chain(&world.place.host);
    let good = records::encode(&world.operator.instance(&world.place.host).await.unwrap());
    for how in 0..4 {
        let (spoiling, name) = (Arc::clone(&world), chain.clone());
        uk.gates.at(CrashPoint::WorkerReady, async move { spoil(&spoiling, &name, how).await });
        console.query(&world, World::SQL).await.ended(Exit::Changed, "DBF-15");
        world.append(&chain, &good).await;
    }
    works(&world, &console).await;
}

#[tokio::test]
async fn a_bad_account_record_is_said_and_can_be_repaired() {
    let (world, console, _uk) = running().await;
    let chain = keys::account_chain(&world.place.account);
    let good = records::encode(&world.operator.account(&world.place.account).await.unwrap());
    for how in 0..4 {
        spoil(&world, &chain, how).await;
        console.query(&world, World::SQL).await.ended(Exit::Unfinished, "DBL-2");
        world.append(&chain, &good).await;
    }
    works(&world, &console).await;
}

#[tokio::test]
async fn bad_evidence_about_boxes_is_no_evidence() {
    let (world, console, _uk) = running().await;
    works(&world, &console).await;
    for bad in BAD {
        put(&world.deployment, "control/status/uk-1", bad).await;
        works(&world, &console).await;
    }
    for how in 0..4 {
        spoil(&world, "control/edges/uk-1", how).await;
    }
    works(&world, &console).await;
}

#[tokio::test]
async fn strange_names_among_the_boxes_are_no_evidence() {
    let (world, console, _uk) = running().await;
    for name in ["control/edges/README", "control/status/UK", "control/edges/uk-9/1"] {
        put(&world.deployment, name, BAD[1]).await;
    }
    works(&world, &console).await;
}

#[tokio::test]
async fn a_bad_serial_and_a_bad_index_change_nothing() {
    let (world, console, _uk) = running().await;
    for bad in BAD {
        put(&world.deployment, "control/serial/uk", bad).await;
        put(&world.deployment, "apps/acme/shop/shop.example.com", bad).await;
    }
    put(&world.deployment, "apps/acme/shop/not a host", b"").await;
    works(&world, &console).await;
}

async fn put(store: &Inner, key: &str, body: &'static [u8]) {
    store.put(&Path::from(key), body.into()).await.unwrap();
}

#[tokio::test]
async fn a_replica_that_is_not_one() {
    let (world, console, _uk) = running().await;
    let files: Vec<_> = world.data.list(None).try_collect().await.unwrap();
    let [file] = &files[..] else { panic!("the shop's replica is one file: {files:?}") };
    let whole = world.data.get(&file.location).await.unwrap().bytes().await.unwrap();
    for (what, spoiled) in spoiled_files(&whole) {
        world.data.put(&file.location, spoiled.into()).await.unwrap();
        let ran = console.query(&world, World::SQL).await;
        assert_eq!(ran.code, i32::from(Exit::Replica.code()), "{what}: {}", ran.stderr);
        ran.ended(Exit::Replica, "DBL-6");
    }
    world.data.put(&file.location, whole.into()).await.unwrap();
    works(&world, &console).await;
}

fn spoiled_files(whole: &[u8]) -> Vec<(&'static str, Vec<u8>)> {
    let changed = |at: usize| {
        let mut bytes = whole.to_vec();
        bytes[at] ^= 1;
        bytes
    };
    vec![
        ("another version", changed(3)),
        ("a header of other transactions", changed(23)),
        ("a changed page", changed(whole.len() / 2)),
        ("a changed trailer", changed(whole.len() - 1)),
        ("cut in the pages", whole[..whole.len() / 2].to_vec()),
        ("cut in the trailer", whole[..whole.len() - 3].to_vec()),
        ("cut in the header", whole[..50].to_vec()),
        ("garbage", vec![b'x'; whole.len()]),
        ("more than a file", [whole, b"more"].concat()),
        ("nothing", Vec::new()),
    ]
}

#[tokio::test]
async fn strange_names_in_a_replica_are_passed_over() {
    let (world, console, _uk) = running().await;
    for name in ["0000/README", "0000/1-2.ltx", "x/y.ltx", "lock.json", "0000/0000.ltx.tmp"] {
        let key = Path::from(format!("replicas/shop.example.com/{name}"));
        world.data.put(&key, "garbage".into()).await.unwrap();
    }
    works(&world, &console).await;
}

#[tokio::test]
async fn an_instance_without_a_replica() {
    let world = World::bare(carlos_tests_reads::Keeping::Memory).await;
    let console = world.console().await;
    let _uk = world.start_box("uk-1").await;
    console.query(&world, World::SQL).await.ended(Exit::Replica, "DBL-3");
}
