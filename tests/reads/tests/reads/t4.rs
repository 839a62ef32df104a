//! T4: forgery and replay (db-forward §5.9, §11.4).

use bytes::Bytes;
use carlos_bucket::hook::Side;
use carlos_bucket::layer::Op;
use carlos_protocol::copy::Exit;
use carlos_protocol::envelope::{KeyFile, KeyId};
use carlos_protocol::ids::ReadId;
use carlos_protocol::keys::{Key, QueueEntry, queue_prefix};
use carlos_protocol::request::ReadRequest;
use carlos_protocol::seal::ReplyKey;
use carlos_protocol::time::Hour;
use carlos_tests_reads::{Forger, Logs, Player, Ran, RunningBox, World, later_version, parse};

/// How much a box says of an entry that it does not serve.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Said {
    /// One warning.
    Once,
    /// Nothing: it is not for this version.
    Nothing,
}

/// Offers something to a box and lets a genuine read go by. The box has read the offer by then,
/// and has done nothing else about it.
async fn refused(said: Said, offer: impl AsyncFnOnce(&Forger<'_>) -> ReadId) {
    let logs = Logs::collect();
    let world = World::new().await;
    let console = world.console().await;
    let uk = world.start_box("uk-1").await;
    let id = offer(&Forger::of(&world)).await;
    console.query(&world, World::SQL).await.printed(World::TSV);
    assert!(uk.view.ledger.count(Op::Get, &format!("{id}/request.json")) > 0, "never examined");
    untouched(&world, &uk, id).await;
    let warned = logs.warnings(&id.to_string()).len();
    assert_eq!(warned, usize::from(said == Said::Once), "{}", logs.text());
}

/// Nothing was done for `id`: no look for a cancel, which comes before everything else.
async fn untouched(world: &World, uk: &RunningBox, id: ReadId) {
    let acted = |entry: &carlos_tests_reads::Entry| !entry.key.ends_with("request.json");
    let entries: Vec<_> = uk.view.ledger.of(&id.to_string()).into_iter().filter(acted).collect();
    assert_eq!(entries, []);
    assert_eq!(world.object(&Key::Picked(id)).await, None);
}

/// Offers an envelope under its own id and time.
async fn offered(forger: &Forger<'_>, request: &ReadRequest, envelope: Bytes) -> ReadId {
    forger.offer(&request.queue_entry(), envelope).await;
    request.id
}

async fn request(forger: &Forger<'_>) -> ReadRequest {
    forger.request().await.into()
}

fn with_key_id(envelope: &Bytes, from: &KeyId, to: &KeyId) -> Bytes {
    let text = std::str::from_utf8(envelope).unwrap();
    text.replace(from.as_str(), to.as_str()).into()
}

#[tokio::test]
async fn t4_unsigned() {
    refused(Said::Once, async |forger| {
        let request = request(forger).await;
        let plain = serde_json::to_vec(&request).unwrap();
        offered(forger, &request, plain.into()).await
    })
    .await;
}

#[tokio::test]
async fn t4_signed_by_nobody() {
    refused(Said::Once, async |forger| {
        let request = request(forger).await;
        let text = String::from_utf8(forger.signed(&request).into()).unwrap();
        let (head, _) = text.rsplit_once(r#""sig":""#).unwrap();
        let unsigned = format!(r#"{head}"sig":""}}"#);
        offered(forger, &request, unsigned.into()).await
    })
    .await;
}

#[tokio::test]
async fn t4_a_changed_payload_under_its_old_signature() {
    refused(Said::Once, async |forger| {
        let request = request(forger).await;
        let mut other = request.clone();
        other.sql = "SELECT 'mine'".to_owned();
        let payload = |envelope: Bytes| {
            let envelope: serde_json::Value = serde_json::from_slice(&envelope).unwrap();
            envelope["payload"].as_str().unwrap().to_owned()
        };
        let (old, new) = (payload(forger.signed(&request)), payload(forger.signed(&other)));
        let text = String::from_utf8(forger.signed(&request).into()).unwrap();
        offered(forger, &request, text.replace(&old, &new).into()).await
    })
    .await;
}

#[tokio::test]
async fn t4_wrong_key() {
    refused(Said::Once, async |forger| {
        let request = request(forger).await;
        let stranger = KeyFile::generate_root(&mut forger.world().context.entropy());
        let envelope = stranger.sign(&request).unwrap().to_bytes();
        offered(forger, &request, envelope.into()).await
    })
    .await;
}

#[tokio::test]
async fn t4_wrong_key_under_the_right_name() {
    refused(Said::Once, async |forger| {
        let request = request(forger).await;
        let stranger = KeyFile::generate_root(&mut forger.world().context.entropy());
        let envelope = stranger.sign(&request).unwrap().to_bytes().into();
        let named = with_key_id(&envelope, stranger.id(), forger.world().key.id());
        offered(forger, &request, named).await
    })
    .await;
}

#[tokio::test]
async fn t4_scoped_key() {
    refused(Said::Once, async |forger| {
        let (request, world) = (request(forger).await, forger.world());
        let entropy = &mut world.context.entropy();
        let scoped = world.key.generate_scoped(entropy, "release").unwrap();
        assert!(scoped.sign(&request).is_err(), "the protocol's own code does not even sign");
        let envelope = as_root(&scoped).sign(&request).unwrap().to_bytes().into();
        let named = with_key_id(&envelope, as_root(&scoped).id(), scoped.id());
        offered(forger, &request, named).await
    })
    .await;
}

/// The secret of a scoped key, passed off as a root key.
fn as_root(scoped: &KeyFile) -> KeyFile {
    let text: serde_json::Value = serde_json::from_slice(&scoped.to_json()).unwrap();
    let id = KeyId::of_root(scoped.public().as_bytes());
    let file = serde_json::json!({
        "kind": "root", "id": id.as_str(), "secret": text["secret"], "cert": null,
    });
    KeyFile::from_json(file.to_string().as_bytes()).unwrap()
}

#[tokio::test]
async fn t4_signed_for_another_purpose() {
    refused(Said::Once, async |forger| {
        let request = request(forger).await;
        let other = serde_json::to_string(&request).unwrap();
        let other = other.replace("carlos-db-read-v1", "carlos-restart-v1");
        let envelope = forger.signed_text(&other);
        offered(forger, &request, envelope).await
    })
    .await;
}

#[tokio::test]
async fn t4_moved_to_another_id() {
    refused(Said::Once, async |forger| {
        let request = request(forger).await;
        let id = ReadId::mint(&mut forger.world().context.entropy());
        let entry = QueueEntry { id, ..request.queue_entry() };
        forger.offer(&entry, forger.signed(&request)).await;
        id
    })
    .await;
}

#[tokio::test]
async fn t4_moved_to_another_region() {
    refused(Said::Once, async |forger| {
        let mut new = forger.request().await;
        new.region = parse("ie");
        let request = ReadRequest::from(new);
        let entry = QueueEntry { region: parse("uk"), ..request.queue_entry() };
        forger.offer(&entry, forger.signed(&request)).await;
        request.id
    })
    .await;
}

#[tokio::test]
async fn t4_a_queue_entry_with_another_time() {
    refused(Said::Once, async |forger| {
        let request = request(forger).await;
        let issued_at = forger.seconds_from_now(-5);
        let entry = QueueEntry { issued_at, ..request.queue_entry() };
        forger.offer(&entry, forger.signed(&request)).await;
        request.id
    })
    .await;
}

#[tokio::test]
async fn t4_a_stale_request_under_a_fresh_queue_entry() {
    refused(Said::Once, async |forger| {
        let mut new = forger.request().await;
        new.issued_at = forger.seconds_from_now(-90);
        let request = ReadRequest::from(new);
        let issued_at = forger.seconds_from_now(0);
        let entry = QueueEntry { issued_at, ..request.queue_entry() };
        forger.offer(&entry, forger.signed(&request)).await;
        request.id
    })
    .await;
}

#[tokio::test]
async fn t4_an_operation_of_a_later_version_is_skipped_in_silence() {
    refused(Said::Nothing, async |forger| {
        let mut new = forger.request().await;
        new.op = "pull".to_owned();
        let request = ReadRequest::from(new);
        offered(forger, &request, forger.signed(&request)).await
    })
    .await;
}

#[tokio::test]
async fn t4_a_later_version_is_skipped_in_silence() {
    refused(Said::Nothing, async |forger| {
        let request = request(forger).await;
        offered(forger, &request, later_version(forger, request.id)).await
    })
    .await;
}

/// Entries that a box does not even read the request of.
async fn passed_over(offer: impl AsyncFnOnce(&Forger<'_>) -> ReadId) {
    let world = World::new().await;
    let console = world.console().await;
    let uk = world.start_box("uk-1").await;
    let id = offer(&Forger::of(&world)).await;
    console.query(&world, World::SQL).await.printed(World::TSV);
    assert_eq!(uk.view.ledger.of(&id.to_string()), []);
    untouched(&world, &uk, id).await;
}

async fn issued(forger: &Forger<'_>, seconds: i64) -> ReadId {
    let mut new = forger.request().await;
    new.issued_at = forger.seconds_from_now(seconds);
    let request = ReadRequest::from(new);
    offered(forger, &request, forger.signed(&request)).await
}

#[tokio::test]
async fn t4_a_stale_request() {
    passed_over(async |forger| issued(forger, -65).await).await;
}

#[tokio::test]
async fn t4_a_request_from_the_future() {
    passed_over(async |forger| issued(forger, 90).await).await;
}

#[tokio::test]
async fn t4_a_queue_entry_in_another_hours_folder() {
    passed_over(async |forger| {
        let request = request(forger).await;
        let entry = request.queue_entry();
        forger.world().create(&Key::Request(request.id), forger.signed(&request)).await;
        let unix = entry.issued_at.unix();
        // A folder that the box lists, and a time that does not belong into it.
        let name = format!("{}-{}", unix - 3_600, request.id);
        forger.create_path(&format!("{}{name}", queue_prefix(&entry.region, Hour::of(unix)))).await;
        let other = Hour::of(unix - 3_600);
        let name = format!("{unix}-{}", request.id);
        forger.create_path(&format!("{}{name}", queue_prefix(&entry.region, other))).await;
        forger.bump().await;
        request.id
    })
    .await;
}

#[tokio::test]
async fn t4_a_forged_entry_for_a_genuine_request_does_not_decide_it() {
    let world = World::new().await;
    let uk = world.start_box("uk-1").await;
    let forger = Forger::of(&world);
    let request = request(&forger).await;
    let forged = QueueEntry { issued_at: forger.seconds_from_now(-3), ..request.queue_entry() };
    forger.offer(&forged, forger.signed(&request)).await;
    let examined = format!("{}/request.json", request.id);
    world
        .until("the forged entry is examined", async || {
            (uk.view.ledger.count(Op::Get, &examined) > 0).then_some(())
        })
        .await;
    forger.queue(&request.queue_entry()).await;
    world.appears(&Key::Result(request.id)).await;
}

#[tokio::test]
async fn t4_offered_again_to_the_same_agent() {
    let world = World::new().await;
    let console = world.console().await;
    let uk = world.start_box("uk-1").await;
    console.query(&world, World::SQL).await.printed(World::TSV);
    let id = world.signed().await[0].id;
    let before = world.objects_of(id).await;
    Forger::of(&world).bump().await;
    console.query(&world, World::SQL).await.printed(World::TSV);
    assert_eq!(world.objects_of(id).await, before);
    assert_eq!(uk.view.ledger.count(Op::Create, &format!("{id}/picked")), 1);
}

#[tokio::test]
async fn t4_offered_again_to_a_restarted_agent() {
    let world = World::new().await;
    let console = world.console().await;
    let first = world.start_box("uk-1").await;
    console.query(&world, World::SQL).await.printed(World::TSV);
    first.stop().await;
    let id = world.signed().await[0].id;
    let before = world.objects_of(id).await;
    let again = world.start_box("uk-1").await;
    // Its memory is empty and the envelope is in its window, so it stands for election and loses.
    let picked = format!("{id}/picked");
    let stood = async || {
        let tries = again.view.ledger.of(&picked);
        tries.iter().any(|entry| entry.op == Op::Create && !entry.good).then_some(())
    };
    world.until("the restarted agent stands for election", stood).await;
    console.query(&world, World::SQL).await.printed(World::TSV);
    assert_eq!(world.objects_of(id).await, before);
    assert_eq!(again.view.ledger.count(Op::Create, &format!("{id}/out")), 0);
}

/// Asks with the real client, and lets somebody who can write the bucket give the answer.
async fn answered(play: impl AsyncFnOnce(&World, Player)) -> Ran {
    let world = World::new().await;
    // A box that has not said anything yet: the console asks for the read and waits.
    world.operator.create_box(&parse("uk-1"), &parse("uk")).await.unwrap();
    let console = world.console_waiting(|timings| timings.grace = timings.output_poll).await;
    let playing = async {
        let id = world.asked().await.id;
        play(&world, Player::of(&world, id).await).await;
    };
    let (ran, ()) = tokio::join!(console.query(&world, World::SQL), playing);
    ran
}

#[tokio::test]
async fn t4_a_chunk_sealed_to_another_key() {
    let ran = answered(async |world, player| {
        player.pick().await;
        player.chunk(1).await;
        let stranger = ReplyKey::generate(&mut world.context.entropy()).public();
        let pieces = player.pieces();
        let strangers = player.with_reply_key(stranger);
        player.put_chunk(2, strangers.sealed(2, false, &pieces[1])).await;
        player.chunk(3).await;
        player.done(3).await;
    });
    ran.await.ended(Exit::BadAnswer, "DBF-13");
}

#[tokio::test]
async fn t4_a_chunk_reordered() {
    let ran = answered(async |_, player| {
        player.pick().await;
        let pieces = player.pieces();
        player.put_chunk(1, player.sealed(2, false, &pieces[1])).await;
        player.put_chunk(2, player.sealed(1, false, &pieces[0])).await;
        player.chunk(3).await;
        player.done(3).await;
    });
    ran.await.ended(Exit::BadAnswer, "DBF-13");
}

#[tokio::test]
async fn t4_a_chunk_of_another_read() {
    let ran = answered(async |world, player| {
        player.pick().await;
        let id = ReadId::mint(&mut world.context.entropy());
        let other = player.with_id(id);
        player.put_chunk(1, other.sealed(1, false, &player.pieces()[0])).await;
        player.chunk(2).await;
        player.chunk(3).await;
        player.done(3).await;
    });
    ran.await.ended(Exit::BadAnswer, "DBF-13");
}

#[tokio::test]
async fn t4_the_last_chunk_dropped() {
    let ran = answered(async |_, player| {
        player.pick().await;
        player.chunk(1).await;
        player.chunk(2).await;
        player.done(2).await;
    });
    ran.await.ended(Exit::BadAnswer, "DBF-13");
}

#[tokio::test]
async fn t4_a_chunk_added() {
    let ran = answered(async |_, player| {
        player.pick().await;
        let [first, second, third] = player.pieces();
        for (seq, plain) in (1..).zip([&first, &second, &third, &third]) {
            player.put_chunk(seq, player.sealed(seq, seq == 4, plain)).await;
        }
        player.done(4).await;
    });
    ran.await.ended(Exit::BadAnswer, "DBF-13");
}

/// What sealing does not buy (db-forward §5.6, codex 18): it proves who can read an answer and not
/// who wrote it. Whoever can write the deployment bucket can answer before the real box does.
#[tokio::test]
async fn t4_boundary_a_forged_answer_that_comes_first_is_accepted() {
    let world = World::new().await;
    let console = world.console().await;
    let uk = world.start_box("uk-1").await;
    let mut election = uk.view.hooks.pause(Side::Before, Op::Create, "/picked");
    let forging = async {
        election.reached().await;
        let player = Player::of(&world, world.asked().await.id).await;
        player.pick().await;
        for seq in 1..=3 {
            player.chunk(seq).await;
        }
        player.done(3).await;
        election.release();
        player.id
    };
    let (ran, id) = tokio::join!(console.query(&world, World::SQL), forging);
    ran.printed(Player::TSV);
    // The real box steps away and adds nothing to the forger's answer.
    console.query(&world, World::SQL).await.printed(World::TSV);
    assert_eq!(uk.view.ledger.count(Op::Create, &format!("{id}/out")), 0);
    assert_eq!(world.chunks(id).await, 3);
}
