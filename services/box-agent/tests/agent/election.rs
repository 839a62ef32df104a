//! Who owns a read: several agents, lost answers, forgeries (db-forward §5.3 J3, §5.9).

use std::sync::Arc;
use std::time::Duration;

use carlos_bucket::WriteOnceGuard;
use carlos_bucket::fault::{Fault, FaultStore, Rule};
use carlos_bucket::layer::Op;
use carlos_protocol::envelope::KeyFile;
use carlos_protocol::ids::{Nonce, ReadId};
use carlos_protocol::keys::{Key, QueueEntry};
use carlos_protocol::picked::Picked;
use carlos_protocol::request::{NewRequest, ReadRequest};
use carlos_protocol::result::{Code, State};
use carlos_protocol::seal::ReplyKey;
use carlos_protocol::time::Seconds;

use crate::support::{Running, World};
use crate::workers::Script;

async fn agent_with_faults(world: &World, name: &str, rules: Vec<Rule>) -> (Running, FaultStore) {
    let (store, faults) = FaultStore::wrap(Arc::clone(&world.store), &world.ctx);
    let workers = world.workers(Script::default());
    let ports = world.ports_over(name, Arc::clone(&workers), store);
    let running = world.start(world.config(name), ports, workers).await;
    for rule in rules {
        faults.add(rule);
    }
    (running, faults)
}

fn runs(agents: &[Running]) -> usize {
    agents.iter().map(|agent| agent.workers.seen.statements().len()).sum()
}

#[tokio::test(start_paused = true)]
async fn two_boxes_run_each_read_once() {
    let world = World::new().await;
    let (store, guard) = WriteOnceGuard::wrap(Arc::clone(&world.store));
    let mut agents = Vec::new();
    for name in ["box-1", "box-2"] {
        let workers = world.workers(Script::default());
        let ports = world.ports_over(name, Arc::clone(&workers), Arc::clone(&store));
        agents.push(world.start(world.config(name), ports, workers).await);
    }
    for number in 0..40 {
        let asked = world.ask(&format!("SELECT {number}")).await;
        world.rows(&asked).await;
    }
    assert_eq!(runs(&agents), 40);
    assert!(agents.iter().all(|agent| !agent.workers.seen.statements().is_empty()));
    assert_eq!(guard.violations(), Vec::<String>::new());
}

#[tokio::test(start_paused = true)]
async fn a_lost_answer_to_picked_is_read_back_and_the_read_runs() {
    for fault in [Fault::DoneBut(500), Fault::AnswerLost, Fault::DoneInSilence] {
        let world = World::new().await;
        let rules = vec![Rule::new(Op::Create, fault).on("/picked").times(3)];
        let (agent, _faults) = agent_with_faults(&world, "box-1", rules).await;
        let asked = world.ask("SELECT 1").await;
        world.rows(&asked).await;
        assert_eq!(agent.workers.seen.statements().len(), 1, "{fault:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_create_that_failed_because_another_owns_steps_away() {
    for fault in [Fault::Refused(500), Fault::Conflict, Fault::Swallowed] {
        let world = World::new().await;
        let rules = vec![Rule::new(Op::Create, fault).on("/picked").always()];
        let (losing, _faults) = agent_with_faults(&world, "box-1", rules).await;
        let winning = world.agent("box-2", Script::default()).await;
        let asked = world.ask("SELECT 1").await;
        world.rows(&asked).await;
        world.sleep(60).await;
        assert_eq!(losing.workers.seen.statements().len(), 0, "{fault:?}");
        assert_eq!(winning.workers.seen.statements().len(), 1, "{fault:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn an_owner_that_never_becomes_known_is_nobody() {
    let world = World::new().await;
    let rules = vec![
        Rule::new(Op::Create, Fault::AnswerLost).on("/picked").always(),
        Rule::new(Op::Get, Fault::Refused(500)).on("/picked").always(),
    ];
    let (agent, faults) = agent_with_faults(&world, "box-1", rules).await;
    let asked = [world.ask("SELECT 1").await, world.ask("SELECT 2").await];
    world.sleep(120).await;
    for asked in &asked {
        assert!(world.get(&Key::Picked(asked.id)).await.is_some());
        assert_eq!(world.get(&Key::Result(asked.id)).await, None);
    }
    assert_eq!(agent.workers.seen.statements().len(), 0);
    // Both slots are free again.
    faults.clear();
    let asked = world.ask("SELECT 3").await;
    world.rows(&asked).await;
}

#[tokio::test(start_paused = true)]
async fn a_restarted_box_does_not_take_its_own_picked_for_this_attempt_s() {
    let world = World::new().await;
    let key = ReplyKey::generate(&mut world.ctx.entropy());
    let request: ReadRequest = world.request("SELECT 1", &key).into();
    let picked = Picked {
        box_name: "box-1".parse().expect("label"),
        boot: "earlier".parse().expect("label"),
        nonce: Nonce::mint(&mut world.ctx.entropy()),
        deadline: Seconds::new(world.ctx.now_unix() + 1_200),
    };
    world.put(&Key::Picked(request.id), picked.to_bytes().into()).await;
    let agent = world.agent("box-1", Script::default()).await;
    let id = request.id;
    world.post(request).await;
    world.sleep(120).await;
    assert_eq!(agent.workers.seen.statements().len(), 0);
    assert_eq!(world.get(&Key::Result(id)).await, None);
}

#[tokio::test(start_paused = true)]
async fn chunks_and_results_survive_lost_answers() {
    let world = World::new().await;
    let rules = vec![
        Rule::new(Op::Create, Fault::AnswerLost).on("/out/").times(2),
        Rule::new(Op::Create, Fault::Refused(503)).on("/out/").times(2),
        Rule::new(Op::Create, Fault::DoneBut(500)).on("/result.json").times(2),
    ];
    let (agent, _faults) = agent_with_faults(&world, "box-1", rules).await;
    let output = vec![vec![5; 900 << 10]];
    agent.workers.follow(Script { output, ..Script::default() });
    let asked = world.ask("SELECT 1").await;
    let (rows, _) = world.rows(&asked).await;
    assert_eq!(rows.len(), 900 << 10);
}

#[tokio::test(start_paused = true)]
async fn a_chunk_that_cannot_be_confirmed_is_never_named() {
    let world = World::new().await;
    let rules = vec![Rule::new(Op::Create, Fault::Refused(500)).on("/out/00000003").always()];
    let (agent, _faults) = agent_with_faults(&world, "box-1", rules).await;
    let output = vec![vec![5; 256 << 10]; 5];
    agent.workers.follow(Script { output, ..Script::default() });
    let asked = world.ask("SELECT 1").await;
    let result = world.result(asked.id).await;
    assert_eq!((result.state, result.code), (State::Failed, Code::Interrupted));
    assert_eq!(result.last_seq, 2);
}

#[tokio::test(start_paused = true)]
async fn foreign_bytes_under_a_chunk_s_key_end_the_read() {
    let world = World::new().await;
    let _agent = world.agent("box-1", Script::default()).await;
    let key = ReplyKey::generate(&mut world.ctx.entropy());
    let request: ReadRequest = world.request("SELECT 1", &key).into();
    let id = request.id;
    world.put(&Key::Chunk(id, 1), "somebody else's".into()).await;
    world.post(request).await;
    let result = world.result(id).await;
    assert_eq!((result.code, result.last_seq), (Code::Interrupted, 0));
}

/// A request changed before it is signed, by whom, and the entry that names it.
struct Forged {
    id: ReadId,
    request: ReadRequest,
    entry: QueueEntry,
    signer: KeyFile,
}

fn forged(world: &World, change: impl FnOnce(&mut NewRequest)) -> Forged {
    let key = ReplyKey::generate(&mut world.ctx.entropy());
    let mut request = world.request("SELECT 1", &key);
    let genuine: ReadRequest = request.clone().into();
    change(&mut request);
    let (id, entry) = (genuine.id, genuine.queue_entry());
    Forged { id, request: request.into(), entry, signer: world.root.clone() }
}

async fn is_left_alone(what: &str, build: impl FnOnce(&World) -> Forged) {
    let world = World::new().await;
    let agent = world.agent("box-1", Script::default()).await;
    let Forged { id, request, entry, signer } = build(&world);
    let envelope = signer.sign(&request).expect("a root key").to_bytes();
    world.put(&Key::Request(id), envelope.into()).await;
    world.put(&Key::Queue(entry), "".into()).await;
    world.bump(&world.record.region).await;
    world.sleep(150).await;
    assert_eq!(world.get(&Key::Picked(id)).await, None, "{what}");
    assert_eq!(agent.workers.seen.statements().len(), 0, "{what}");
    // The box still serves.
    let asked = world.ask("SELECT 2").await;
    world.rows(&asked).await;
}

#[tokio::test(start_paused = true)]
async fn forged_and_misplaced_requests_are_left_alone() {
    is_left_alone("another id", |world| {
        forged(world, |new| new.id = ReadId::mint(&mut world.ctx.entropy()))
    })
    .await;
    is_left_alone("another region", |world| {
        forged(world, |new| new.region = "ie".parse().expect("label"))
    })
    .await;
    is_left_alone("another time", |world| {
        forged(world, |new| new.issued_at = Seconds::new(new.issued_at.unix() + 1))
    })
    .await;
    is_left_alone("an operation of a later phase", |world| {
        forged(world, |new| new.op = "pull".to_owned())
    })
    .await;
    is_left_alone("another root key", |world| Forged {
        signer: KeyFile::generate_root(&mut world.ctx.entropy()),
        ..forged(world, |_| {})
    })
    .await;
    is_left_alone("too old", |world| {
        let mut forged = forged(world, |new| {
            new.issued_at = Seconds::new(new.issued_at.unix() - 61);
        });
        forged.entry.issued_at = forged.request.issued_at;
        forged
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn a_forged_entry_does_not_decide_the_genuine_one() {
    let world = World::new().await;
    let _agent = world.agent("box-1", Script::default()).await;
    let key = ReplyKey::generate(&mut world.ctx.entropy());
    let request: ReadRequest = world.request("SELECT 1", &key).into();
    let id = request.id;
    let mut forged = request.queue_entry();
    forged.issued_at = Seconds::new(forged.issued_at.unix() - 2);
    world.put(&Key::Queue(forged), "".into()).await;
    world.post(request).await;
    assert_eq!(world.ending(id).await, (State::Done, Code::None));
}

#[tokio::test(start_paused = true)]
async fn a_request_that_is_not_there_yet_is_looked_for_again() {
    let world = World::new().await;
    let _agent = world.agent("box-1", Script::default()).await;
    let key = ReplyKey::generate(&mut world.ctx.entropy());
    let request: ReadRequest = world.request("SELECT 1", &key).into();
    let id = request.id;
    world.put(&Key::Queue(request.queue_entry()), "".into()).await;
    world.bump(&world.record.region).await;
    world.sleep(5).await;
    let envelope = world.root.sign(&request).expect("a root key").to_bytes();
    world.put(&Key::Request(id), envelope.into()).await;
    // The fifth look was 3.75 s after the first, and pauses double.
    world.ctx.sleep(Duration::from_secs(4)).await;
    assert!(world.get(&Key::Picked(id)).await.is_some());
}

/// The create lands, but neither its answer nor the object can be had for longer than an election
/// lasts.
#[tokio::test(start_paused = true)]
async fn a_picked_that_turns_out_to_be_ours_too_late_ends_its_read_at_once() {
    let world = World::new().await;
    let rules = vec![
        Rule::new(Op::Create, Fault::DoneInSilence).on("/picked").always(),
        Rule::new(Op::Get, Fault::Refused(500)).on("/picked").always(),
    ];
    let (agent, faults) = agent_with_faults(&world, "box-1", rules).await;
    let asked = world.ask("SELECT 1").await;
    world.sleep(40).await;
    assert!(world.get(&Key::Picked(asked.id)).await.is_some());
    assert_eq!(world.get(&Key::Result(asked.id)).await, None);
    faults.clear();
    world.sleep(6).await;
    assert_eq!(world.ending(asked.id).await, (State::Failed, Code::Interrupted));
    assert_eq!(agent.workers.seen.statements().len(), 0, "it is not run any more");
    // And it held no slot meanwhile: the box goes on serving.
    world.rows(&world.ask("SELECT 2").await).await;
}

#[tokio::test(start_paused = true)]
async fn a_picked_that_turns_out_to_be_another_s_is_left_alone() {
    let world = World::new().await;
    let rules = vec![
        Rule::new(Op::Create, Fault::Refused(500)).on("/picked").always(),
        Rule::new(Op::Get, Fault::Refused(500)).on("/picked").always(),
    ];
    let (agent, faults) = agent_with_faults(&world, "box-1", rules).await;
    let asked = world.ask("SELECT 1").await;
    world.sleep(40).await;
    let other = Picked {
        box_name: "box-1".parse().unwrap(),
        boot: "boot".parse().unwrap(),
        nonce: Nonce::mint(&mut world.ctx.entropy()),
        deadline: Seconds::new(world.ctx.now_unix() + 1_200),
    };
    world.put(&Key::Picked(asked.id), other.to_bytes().into()).await;
    faults.clear();
    world.sleep(30).await;
    assert_eq!(world.get(&Key::Result(asked.id)).await, None);
    assert_eq!(agent.workers.seen.statements().len(), 0);
}
