//! T18: the result overtakes the last chunk (db-forward §5.5 step 6, codex 20), with the real
//! console behind a proxy that holds its looks, and the real box behind one that holds its last
//! writes, or lets the chunk land after the result.

use carlos_protocol::ids::ReadId;
use carlos_protocol::keys::Key;
use carlos_tests_minio::programs::{Ran, Service};
use carlos_tests_minio::proxy::{Fault, Held, Rule, Seen, Side};
use carlos_tests_minio::wire::Kind;
use carlos_tests_minio::world::{BoxPlan, Desk};
use carlos_tests_minio::{Proxy, Server, World};
use tokio_util::sync::CancellationToken;

/// The last of the answer's chunks: 256 KiB each, of a megabyte of rows.
const LAST: &str = "/out/00000004";

/// Between which two looks of the console the box's last objects become visible.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Between {
    ResultAndListing,
    ListingAndResult,
}

impl Between {
    /// The look after which it happens.
    fn look(self) -> (Kind, &'static str) {
        match self {
            Self::ResultAndListing => (Kind::Get, "/result.json"),
            Self::ListingAndResult => (Kind::List, "/out"),
        }
    }
}

pub(crate) async fn test(server: &'static Server) {
    let stage = Stage::new(server).await;
    for between in [Between::ListingAndResult, Between::ResultAndListing] {
        stage.chunk_then_result(between).await;
        stage.result_then_chunk(between).await;
    }
}

struct Stage {
    world: World,
    /// Before the console.
    front: Proxy,
    /// Before the box.
    back: Proxy,
    desk: Desk,
    _agent: Service,
    /// The answer without any holds.
    rows: String,
}

impl Stage {
    async fn new(server: &'static Server) -> Self {
        let world = World::new(server).await;
        let [front, back] =
            [Proxy::before(&server.endpoint).await, Proxy::before(&server.endpoint).await];
        let (desk, agent) = tokio::join!(
            world.console(&front.endpoint),
            world.agent(BoxPlan::usual(&back.endpoint))
        );
        let ran = world.query(&desk, World::LONG_SQL).await;
        assert_eq!(ran.code, Some(0), "{ran:?}");
        Self { world, front, back, desk, _agent: agent, rows: ran.stdout }
    }

    /// The box commits its last chunk and then its result between two looks of the console.
    async fn chunk_then_result(&self, between: Between) {
        let mut chunk = self.back.hold(Side::Before, Kind::Create, LAST);
        let overtaking = async {
            let id = self.id_of(&mut chunk, LAST).await;
            let look = self.held_look(between, id).await;
            chunk.release();
            self.world.appears(&Key::Result(id)).await;
            look.release();
            id
        };
        let (ran, id) = tokio::join!(self.world.query(&self.desk, World::LONG_SQL), overtaking);
        self.whole(between, ran, id);
    }

    /// The result is there and its last chunk is not, until the console has seen both.
    async fn result_then_chunk(&self, between: Between) {
        let land = CancellationToken::new();
        self.back.add(Rule::new(Kind::Create, LAST, Fault::LandsLate(land.clone())));
        let mut result = self.back.hold(Side::Before, Kind::Create, "/result.json");
        let overtaking = async {
            let id = self.id_of(&mut result, "/result.json").await;
            let look = self.held_look(between, id).await;
            result.release();
            self.world.appears(&Key::Result(id)).await;
            look.release();
            // The console has the result now, and goes on looking for the chunk.
            let looks = async || (self.listings_after_the_result(id) > 1).then_some(());
            self.world.until("the console lists again", looks).await;
            assert_eq!(self.world.object(&Key::Chunk(id, 4)).await, None);
            land.cancel();
            id
        };
        let (ran, id) = tokio::join!(self.world.query(&self.desk, World::LONG_SQL), overtaking);
        self.whole(between, ran, id);
    }

    /// The read whose object is held.
    async fn id_of(&self, held: &mut Held, part: &str) -> ReadId {
        held.reached().await;
        let held = self.back.seen(part).pop().unwrap().asked.key;
        match Key::parse(&held).unwrap() {
            Key::Chunk(id, _) | Key::Result(id) => id,
            other => panic!("{other:?}"),
        }
    }

    /// The console's next look of the kind, answered by the server and not yet told.
    async fn held_look(&self, between: Between, id: ReadId) -> Held {
        let (kind, part) = between.look();
        let mut look = self.front.hold(Side::After, kind, &format!("{id}{part}"));
        look.reached().await;
        look
    }

    /// The person has every row, and no line told of the result before the last chunk.
    fn whole(&self, between: Between, ran: Ran, id: ReadId) {
        assert_eq!(ran.code, Some(0), "{between:?}: {ran:?}");
        assert_eq!(ran.stdout, self.rows, "{between:?}");
        assert!(self.listings_after_the_result(id) > 0, "{between:?}: no listing after the result");
        let looks = self.front.seen(&id.to_string());
        let first = looks.iter().find(|seen| is_result(seen) || seen.asked.kind == Kind::List);
        // What makes all of this hold: no listing is trusted that is older than the result.
        assert!(first.is_some_and(is_result), "{between:?}: the first look was {first:?}");
        let last = self.front.seen(&format!("{id}{LAST}"));
        assert!(last.iter().any(found), "{between:?}: {last:?}");
    }

    fn listings_after_the_result(&self, id: ReadId) -> usize {
        let looks = self.front.seen(&id.to_string());
        let told = |seen: &Seen| is_result(seen) && found(seen);
        let Some(at) = looks.iter().position(told) else { return 0 };
        looks[at..].iter().filter(|seen| seen.asked.kind == Kind::List).count()
    }
}

fn is_result(seen: &Seen) -> bool {
    seen.asked.key.ends_with("/result.json")
}

fn found(seen: &Seen) -> bool {
    seen.told == Some(200)
}
