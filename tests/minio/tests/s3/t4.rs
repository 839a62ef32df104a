//! T4: forgery and replay (db-forward §5.9, §11.4), with the real console, the real agent and the
//! real command line. Whoever forges here can write the whole deployment bucket.

use bytes::Bytes;
use carlos_protocol::copy::Exit;
use carlos_protocol::envelope::{KeyFile, KeyId};
use carlos_protocol::ids::ReadId;
use carlos_protocol::keys::{Key, QueueEntry};
use carlos_protocol::request::ReadRequest;
use carlos_protocol::result::State;
use carlos_protocol::seal::ReplyKey;
use carlos_protocol::time::Seconds;
use carlos_tests_minio::programs::{Ran, Service};
use carlos_tests_minio::proxy::{Held, Side};
use carlos_tests_minio::wire::Kind;
use carlos_tests_minio::world::{BoxPlan, Desk, parse};
use carlos_tests_minio::{Proxy, Server, World};
use carlos_tests_reads::Player;

/// Forgeries are read and left alone, and a genuine read goes by; then it is offered again.
pub(crate) async fn forgeries(server: &'static Server) {
    let mut stage = Stage::new(server).await;
    let forged = stage.forge_all().await;
    let genuine = stage.genuine().await;
    stage.left_alone(&forged).await;
    stage.offered_again(genuine).await;
    stage.left_alone(&forged).await;
}

/// What a writer of the bucket can and cannot make a person believe.
pub(crate) async fn answers(server: &'static Server) {
    let stage = Stage::new(server).await;
    stage.sealed_to_another_key().await;
    stage.reordered().await;
    stage.the_last_dropped().await;
    stage.a_forged_answer_that_comes_first().await;
}

struct Stage {
    world: World,
    /// Before the box.
    back: Proxy,
    desk: Desk,
    agent: Service,
}

impl Stage {
    async fn new(server: &'static Server) -> Self {
        let world = World::new(server).await;
        let back = Proxy::before(&server.endpoint).await;
        let (desk, agent) = tokio::join!(
            world.console(&server.endpoint),
            world.agent(BoxPlan::usual(&back.endpoint))
        );
        Self { world, back, desk, agent }
    }

    /// A read as a console would ask for it now.
    async fn request(&self) -> ReadRequest {
        self.world.offer_of(&self.world.record().await, World::SQL).request
    }

    /// Offers `envelope` under the request's own id, time and region.
    async fn offer(&self, request: &ReadRequest, envelope: Bytes) -> ReadId {
        self.world.write(&request.queue_entry(), envelope).await;
        request.id
    }

    /// One of each kind, by what is wrong with it.
    async fn forge_all(&self) -> Vec<(&'static str, ReadId)> {
        vec![
            ("unsigned", self.unsigned().await),
            ("wrong key", self.wrong_key().await),
            ("scoped key", self.scoped_key().await),
            ("another payload", self.another_payload().await),
            ("moved to another id", self.moved_to_another_id().await),
            ("moved to another region", self.moved_to_another_region().await),
            ("another time", self.a_queue_entry_with_another_time().await),
            ("no request", self.a_queue_entry_without_a_request().await),
        ]
    }

    async fn unsigned(&self) -> ReadId {
        let request = self.request().await;
        let text = String::from_utf8(self.world.signed(&request).into()).unwrap();
        let (head, _) = text.rsplit_once(r#""sig":""#).unwrap();
        self.offer(&request, format!(r#"{head}"sig":""}}"#).into()).await
    }

    async fn wrong_key(&self) -> ReadId {
        let request = self.request().await;
        let stranger = KeyFile::generate_root(&mut self.world.context.entropy());
        let envelope = signed_as(&stranger, self.world.key.id(), &request);
        self.offer(&request, envelope).await
    }

    async fn scoped_key(&self) -> ReadId {
        let request = self.request().await;
        let entropy = &mut self.world.context.entropy();
        let scoped = self.world.key.generate_scoped(entropy, "release").unwrap();
        let envelope = signed_as(&as_root(&scoped), scoped.id(), &request);
        self.offer(&request, envelope).await
    }

    async fn another_payload(&self) -> ReadId {
        let request = self.request().await;
        let record = self.world.record().await;
        let other = self.world.offer_with(&record, "SELECT 'mine'", |new| new.id = request.id);
        let payload = |request: &ReadRequest| {
            let envelope = self.world.signed(request);
            let envelope: serde_json::Value = serde_json::from_slice(&envelope).unwrap();
            envelope["payload"].as_str().unwrap().to_owned()
        };
        let text = String::from_utf8(self.world.signed(&request).into()).unwrap();
        let changed = text.replace(&payload(&request), &payload(&other.request));
        assert_ne!(changed, text);
        self.offer(&request, changed.into()).await
    }

    async fn moved_to_another_id(&self) -> ReadId {
        let request = self.request().await;
        let id = ReadId::mint(&mut self.world.context.entropy());
        let entry = QueueEntry { id, ..request.queue_entry() };
        self.world.write(&entry, self.world.signed(&request)).await;
        id
    }

    async fn moved_to_another_region(&self) -> ReadId {
        let record = self.world.record().await;
        let ie = self.world.offer_with(&record, World::SQL, |new| new.region = parse("ie"));
        let entry = QueueEntry { region: parse("uk"), ..ie.request.queue_entry() };
        self.world.write(&entry, self.world.signed(&ie.request)).await;
        ie.request.id
    }

    async fn a_queue_entry_with_another_time(&self) -> ReadId {
        let request = self.request().await;
        let issued_at = Seconds::new(self.world.context.now_unix() - 5);
        let entry = QueueEntry { issued_at, ..request.queue_entry() };
        self.world.write(&entry, self.world.signed(&request)).await;
        request.id
    }

    async fn a_queue_entry_without_a_request(&self) -> ReadId {
        let request = self.request().await;
        self.world.queue(&request.queue_entry()).await;
        request.id
    }

    /// A person's own read, whose box has the whole queue before it.
    async fn genuine(&self) -> ReadId {
        let known = self.world.reads().await;
        let ran = self.world.query(&self.desk, World::SQL).await;
        assert_eq!((ran.code, ran.stdout.as_str()), (Some(0), World::TSV), "{ran:?}");
        self.world.asked(&known).await
    }

    /// Each was looked at, and nothing was done for it: no look for a cancel, which comes before
    /// everything else.
    async fn left_alone(&self, forged: &[(&str, ReadId)]) {
        for (what, id) in forged {
            let looks = self.back.seen(&id.to_string());
            let own = |key: &str| key.ends_with("/request.json");
            assert!(looks.iter().any(|seen| own(&seen.asked.key)), "{what}: never looked at");
            let more: Vec<_> = looks.iter().filter(|seen| !own(&seen.asked.key)).collect();
            assert!(more.is_empty(), "{what}: {more:?}");
            assert_eq!(self.world.object(&Key::Picked(*id)).await, None, "{what}");
        }
    }

    /// The genuine envelope is in the queue's window still, before and after the agent restarts.
    async fn offered_again(&mut self, id: ReadId) {
        let before = self.world.objects_of(id).await;
        self.genuine().await;
        let elections = format!("{id}/picked");
        assert_eq!(self.back.count(Kind::Create, &elections), 1, "its own agent remembers");
        let plan = BoxPlan::usual(&self.back.endpoint);
        drop(std::mem::replace(&mut self.agent, self.world.agent(plan).await));
        // Its memory is empty: it stands for election, and loses against what is there.
        let lost = async || {
            let tries = self.back.seen(&elections);
            tries.iter().any(|seen| seen.told == Some(412)).then_some(())
        };
        self.world.until("the restarted agent stands for election", lost).await;
        self.genuine().await;
        assert_eq!(self.world.objects_of(id).await, before);
    }

    /// Asks with the real client, and lets somebody who can write the bucket give the answer
    /// before the real box does, which then steps away.
    async fn answered(&self, play: impl AsyncFnOnce(Player)) -> (Ran, ReadId) {
        let mut election: Held = self.back.hold(Side::Before, Kind::Create, "/picked");
        let playing = async {
            election.reached().await;
            let held = self.back.seen("/picked").pop().unwrap().asked.key;
            let Ok(Key::Picked(id)) = Key::parse(&held) else { panic!("{held}") };
            let envelope = self.world.object(&Key::Request(id)).await.unwrap();
            let roots = [self.world.key.public()].into_iter().collect();
            let request: ReadRequest =
                carlos_protocol::envelope::verify(&roots, &envelope).unwrap();
            let player = Player::new(self.world.bucket.clone(), id, request.reply_key);
            player.pick().await;
            election.release();
            play(player).await;
            id
        };
        tokio::join!(self.world.query(&self.desk, World::SQL), playing)
    }

    async fn sealed_to_another_key(&self) {
        let (ran, _) = self
            .answered(async |player| {
                player.chunk(1).await;
                let stranger = ReplyKey::generate(&mut self.world.context.entropy()).public();
                let sealed = player.with_reply_key(stranger).sealed(2, false, &player.pieces()[1]);
                player.put_chunk(2, sealed).await;
                player.chunk(3).await;
                player.done(3).await;
            })
            .await;
        not_believed(&ran);
    }

    async fn reordered(&self) {
        let (ran, _) = self
            .answered(async |player| {
                let pieces = player.pieces();
                player.put_chunk(1, player.sealed(2, false, &pieces[1])).await;
                player.put_chunk(2, player.sealed(1, false, &pieces[0])).await;
                player.chunk(3).await;
                player.done(3).await;
            })
            .await;
        not_believed(&ran);
    }

    async fn the_last_dropped(&self) {
        let (ran, _) = self
            .answered(async |player| {
                player.chunk(1).await;
                player.chunk(2).await;
                player.done(2).await;
            })
            .await;
        not_believed(&ran);
    }

    /// What sealing does not buy (db-forward §5.6, codex 18): it proves who can read an answer and
    /// not who wrote it.
    async fn a_forged_answer_that_comes_first(&self) {
        let (ran, id) = self
            .answered(async |player| {
                for seq in 1..=3 {
                    player.chunk(seq).await;
                }
                player.done(3).await;
            })
            .await;
        assert_eq!((ran.code, ran.stdout.as_str()), (Some(0), Player::TSV), "{ran:?}");
        // The real box is still there, and adds nothing to the forger's answer.
        self.genuine().await;
        assert_eq!(self.back.count(Kind::Create, &format!("{id}/out")), 0);
        let result = self.world.result(id).await;
        assert_eq!((result.state, self.world.chunks(id).await), (State::Done, 3));
    }
}

fn not_believed(ran: &Ran) {
    assert_eq!(ran.code, Some(i32::from(Exit::BadAnswer.code())), "{ran:?}");
    assert!(ran.stdout.is_empty() && ran.stderr.contains("(DBF-13)"), "{ran:?}");
}

/// Signed by one key in the name of another.
fn signed_as(key: &KeyFile, name: &KeyId, request: &ReadRequest) -> Bytes {
    let envelope = String::from_utf8(key.sign(request).unwrap().to_bytes()).unwrap();
    envelope.replace(key.id().as_str(), name.as_str()).into()
}

/// The secret of a scoped key, passed off as a root key; the protocol's own code does not sign
/// with a scoped one.
fn as_root(scoped: &KeyFile) -> KeyFile {
    let text: serde_json::Value = serde_json::from_slice(&scoped.to_json()).unwrap();
    let id = KeyId::of_root(scoped.public().as_bytes());
    let file = serde_json::json!({
        "kind": "root", "id": id.as_str(), "secret": text["secret"], "cert": null,
    });
    KeyFile::from_json(file.to_string().as_bytes()).unwrap()
}
