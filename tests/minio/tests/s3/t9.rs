//! T9: the identity bracket (db-forward §8.2), with the real console and the real box, whose
//! requests a proxy holds while the record changes. Each ends with its code in the same response,
//! and no chunk is ever written.

use carlos_bucket::{Append, Chain, Purpose};
use carlos_protocol::copy::Exit;
use carlos_protocol::ids::ReadId;
use carlos_protocol::keys;
use carlos_protocol::records;
use carlos_protocol::result::{Code, State};
use carlos_tests_minio::programs::Service;
use carlos_tests_minio::proxy::{Held, Side};
use carlos_tests_minio::wire::Kind;
use carlos_tests_minio::world::{BoxPlan, Desk, parse};
use carlos_tests_minio::{Proxy, Server, World};

/// What happens to the record.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Change {
    Moved,
    RecreatedInItsAccount,
    RecreatedInAnotherAccount,
    OfAnotherClass,
}

impl Change {
    async fn happen(self, world: &World) {
        match self {
            Self::Moved => move_to(world, "ie").await,
            Self::RecreatedInItsAccount => recreate(world, "acme").await,
            Self::RecreatedInAnotherAccount => recreate(world, "rival").await,
            Self::OfAnotherClass => set_class(world, "always-on").await,
        }
    }

    /// Makes the instance readable again.
    async fn end(self, world: &World) {
        match self {
            Self::Moved => move_to(world, "uk").await,
            Self::RecreatedInItsAccount => {}
            Self::RecreatedInAnotherAccount => recreate(world, "acme").await,
            Self::OfAnotherClass => set_class(world, "sleeping").await,
        }
    }
}

async fn move_to(world: &World, region: &str) {
    let host = &world.place.host;
    world.operator.begin_move(host, &parse(region)).await.unwrap();
    world.operator.end_move(host).await.unwrap();
}

async fn recreate(world: &World, account: &str) {
    world.operator.delete_instance(&world.place.host).await.unwrap();
    world.create_instance(account).await;
}

async fn set_class(world: &World, class: &str) {
    let mut record = world.record().await;
    record.class = parse(class);
    let chain = keys::host_chain(&world.place.host);
    let chain = Chain::new(world.bucket.clone(), chain, parse("operator"));
    let head = chain.head(Purpose::Claim).await.unwrap().map(|head| head.revision);
    let appended = chain.append(head, &records::encode(&record), Purpose::Claim).await;
    assert!(matches!(appended, Append::Written(_)), "{appended:?}");
}

/// When it happens.
#[derive(Clone, Copy, Debug)]
enum Moment {
    BetweenRequestAndPick,
    WhilePlanning,
    WhileDownloading,
    BetweenDownloadAndRun,
}

pub(crate) async fn test(server: &'static Server, change: Change) {
    let stage = Stage::new(server).await;
    let rival = parse("rival");
    stage.world.operator.create_account(&rival).await.unwrap();
    for moment in [
        Moment::BetweenRequestAndPick,
        Moment::WhilePlanning,
        Moment::WhileDownloading,
        Moment::BetweenDownloadAndRun,
    ] {
        stage.refused(moment, change).await;
    }
    // The same holds without a change: it is the change that is refused.
    let ran = stage.asked_at(Moment::BetweenDownloadAndRun, async |_| {}).await.0;
    assert_eq!((ran.code, ran.stdout.as_str()), (Some(0), World::TSV), "{ran:?}");
}

struct Stage {
    world: World,
    /// Before the box.
    back: Proxy,
    desk: Desk,
    _agent: Service,
}

impl Stage {
    async fn new(server: &'static Server) -> Self {
        let world = World::new(server).await;
        let back = Proxy::before(&server.endpoint).await;
        let (desk, agent) = tokio::join!(
            world.console(&server.endpoint),
            world.agent(BoxPlan::usual(&back.endpoint))
        );
        Self { world, back, desk, _agent: agent }
    }

    async fn refused(&self, moment: Moment, change: Change) {
        let changing = async |world: &World| change.happen(world).await;
        let (ran, id) = self.asked_at(moment, changing).await;
        let place = format!("{change:?} {moment:?}: {ran:?}");
        assert_eq!(ran.code, Some(i32::from(Exit::Changed.code())), "{place}");
        assert!(ran.stdout.is_empty() && ran.stderr.contains("(DBF-15)"), "{place}");
        let result = self.world.result(id).await;
        let ended = (result.state, result.code, result.last_seq);
        assert_eq!(ended, (State::Refused, Code::RecordChanged, 0), "{place}");
        assert_eq!(self.back.count(Kind::Create, &format!("{id}/out")), 0, "{place}");
        assert_eq!(self.world.chunks(id).await, 0, "{place}");
        change.end(&self.world).await;
    }

    /// Asks the shop, and does `work` while the box waits at `moment`.
    async fn asked_at(
        &self,
        moment: Moment,
        work: impl AsyncFnOnce(&World),
    ) -> (carlos_tests_minio::programs::Ran, ReadId) {
        let known = self.world.reads().await;
        let first = self.arm(moment);
        let meddling = async {
            let held = self.reach(moment, first).await;
            work(&self.world).await;
            held.release();
            self.world.asked(&known).await
        };
        tokio::join!(self.world.query(&self.desk, World::SQL), meddling)
    }

    fn arm(&self, moment: Moment) -> Held {
        match moment {
            Moment::BetweenRequestAndPick => self.hold(Kind::Create, "/picked"),
            Moment::WhilePlanning => self.hold(Kind::List, "replicas/"),
            // The first look into a file is at its header, for the plan.
            Moment::WhileDownloading | Moment::BetweenDownloadAndRun => {
                self.hold(Kind::Get, ".ltx")
            }
        }
    }

    async fn reach(&self, moment: Moment, mut first: Held) -> Held {
        first.reached().await;
        if matches!(moment, Moment::BetweenRequestAndPick | Moment::WhilePlanning) {
            return first;
        }
        let download = self.next(first, Kind::Get, ".ltx").await;
        if let Moment::WhileDownloading = moment {
            return download;
        }
        // The first look at the record after the last byte is check B's.
        let record = format!("{}/", keys::host_chain(&self.world.place.host));
        self.next(download, Kind::Get, &record).await
    }

    /// Lets go of one request and holds another, which comes after it.
    async fn next(&self, held: Held, kind: Kind, part: &str) -> Held {
        let mut next = self.hold(kind, part);
        held.release();
        next.reached().await;
        next
    }

    fn hold(&self, kind: Kind, part: &str) -> Held {
        self.back.hold(Side::Before, kind, part)
    }
}
