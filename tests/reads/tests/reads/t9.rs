//! T9: the identity bracket (db-forward §8.2, §11.4). The record changes at four moments of a read,
//! in seven ways; each ends with its code in the same response, and no chunk is ever written.

use std::sync::Arc;

use carlos_box_agent::CrashPoint;
use carlos_bucket::hook::Side;
use carlos_bucket::layer::Op;
use carlos_protocol::copy::Exit;
use carlos_protocol::ids::ReadId;
use carlos_protocol::keys::Key;
use carlos_protocol::records::HostRecord;
use carlos_protocol::request::ReadRequest;
use carlos_protocol::result::{Code, ReadResult, State};
use carlos_tests_reads::{Forger, RunningBox, World, parse};

/// What happens to the record.
#[derive(Clone, Copy, Debug)]
enum Change {
    Moved,
    Moving,
    RecreatedInItsAccount,
    RecreatedInAnotherAccount,
    OfAnotherClass,
    Pooled,
    Deleted,
}

impl Change {
    async fn happen(self, world: &World) {
        let (host, operator) = (&world.place.host, &world.operator);
        match self {
            Self::Moved => {
                operator.begin_move(host, &parse("ie")).await.unwrap();
                operator.end_move(host).await.unwrap();
            }
            Self::Moving => operator.begin_move(host, &parse("ie")).await.unwrap(),
            Self::RecreatedInItsAccount => world.recreate("acme").await,
            Self::RecreatedInAnotherAccount => {
                operator.create_account(&parse("rival")).await.unwrap();
                world.recreate("rival").await;
            }
            Self::OfAnotherClass => {
                world.change_record(|record| record.class = parse("always-on")).await;
            }
            Self::Pooled => world.change_record(|record| record.pooled = true).await,
            Self::Deleted => operator.delete_instance(host).await.unwrap(),
        }
    }

    fn code(self) -> (Code, &'static str) {
        match self {
            Self::Moving => (Code::Moving, "DBF-16"),
            _ => (Code::RecordChanged, "DBF-15"),
        }
    }
}

/// When it happens.
#[derive(Clone, Copy, Debug)]
enum Moment {
    BeforeThePick,
    WhilePlanning,
    WhileDownloading,
    BeforeTheRun,
}

impl Moment {
    /// Makes `change` happen once, at this moment of the box's next read.
    fn arrange(self, uk: &RunningBox, world: &Arc<World>, change: Change) {
        let world = Arc::clone(world);
        let hooks = match self {
            Self::BeforeTheRun => {
                let work = async move { change.happen(&world).await };
                return uk.gates.at(CrashPoint::WorkerReady, work);
            }
            Self::BeforeThePick => &uk.view.hooks,
            Self::WhilePlanning | Self::WhileDownloading => &uk.data.hooks,
        };
        let (op, part) = match self {
            Self::BeforeThePick => (Op::Create, "/picked"),
            Self::WhilePlanning => (Op::List, ""),
            _ => (Op::Get, ".ltx"),
        };
        if matches!(self, Self::WhileDownloading) {
            // The first look into a file is at its header, for the plan.
            hooks.on(Side::Before, op, part, 1, |_| async {});
        }
        hooks.on(Side::Before, op, part, 1, move |_| {
            let world = Arc::clone(&world);
            async move { change.happen(&world).await }
        });
    }
}

async fn changed(moment: Moment, change: Change) {
    let world = Arc::new(World::new().await);
    let console = world.console().await;
    let uk = world.start_box("uk-1").await;
    moment.arrange(&uk, &world, change);
    let (code, sentence) = change.code();
    console.query(&world, World::SQL).await.ended(Exit::Changed, sentence);
    let id = world.asked().await.id;
    let result = result(&world, id).await;
    assert_eq!((result.state, result.code, result.last_seq), (State::Refused, code, 0));
    assert_eq!(uk.view.ledger.count(Op::Create, &format!("{id}/out")), 0, "a chunk was written");
    assert_eq!(world.chunks(id).await, 0);
}

async fn result(world: &World, id: ReadId) -> ReadResult {
    ReadResult::from_bytes(&world.appears(&Key::Result(id)).await).unwrap()
}

macro_rules! every_moment {
    ($($name:ident: $change:expr;)*) => {$(
        mod $name {
            use super::{Change, Moment, changed};

            #[tokio::test]
            async fn t9_between_request_and_pick() {
                changed(Moment::BeforeThePick, $change).await;
            }

            #[tokio::test]
            async fn t9_during_planning() {
                changed(Moment::WhilePlanning, $change).await;
            }

            #[tokio::test]
            async fn t9_during_download() {
                changed(Moment::WhileDownloading, $change).await;
            }

            #[tokio::test]
            async fn t9_between_download_and_run() {
                changed(Moment::BeforeTheRun, $change).await;
            }
        }
    )*};
}

every_moment! {
    moved: Change::Moved;
    moving: Change::Moving;
    recreated: Change::RecreatedInItsAccount;
    recreated_elsewhere: Change::RecreatedInAnotherAccount;
    of_another_class: Change::OfAnotherClass;
    pooled: Change::Pooled;
    deleted: Change::Deleted;
}

/// The bracket closes with check B: what happens later is after the copy was read.
#[tokio::test]
async fn t9_after_check_b_the_read_stands() {
    let world = Arc::new(World::new().await);
    let console = world.console().await;
    let uk = world.start_box("uk-1").await;
    let late = Arc::clone(&world);
    uk.gates.at(CrashPoint::CheckedAgain, async move { Change::Moved.happen(&late).await });
    console.query(&world, World::SQL).await.printed(World::TSV);
}

/// A replica that changes under the read is read once more, between checks of its own.
#[tokio::test]
async fn t9_a_second_attempt_has_its_own_checks() {
    let world = Arc::new(World::bare(carlos_tests_reads::Keeping::Memory).await);
    let mut source = world.source(World::SHOP).await;
    source.change("INSERT INTO orders VALUES (4, 'scale')").await;
    let console = world.console().await;
    let uk = world.start_box("uk-1").await;
    let vanished = carlos_bucket::fault::Fault::Hidden;
    // The last file's header is read first, then each file; the second of those is gone.
    let rule = carlos_bucket::fault::Rule::new(Op::Get, vanished).on("0000000000000001.ltx");
    uk.data.faults.add(rule);
    let late = Arc::clone(&world);
    let again = move |_| {
        let world = Arc::clone(&late);
        async move { Change::RecreatedInItsAccount.happen(&world).await }
    };
    // The listing of the second plan.
    let plans = uk.data.hooks.clone();
    uk.gates.at(CrashPoint::Planned, async move { plans.on(Side::Before, Op::List, "", 1, again) });
    console.query(&world, World::SQL).await.ended(Exit::Changed, "DBF-15");
    assert_eq!(uk.data.faults.struck().len(), 1, "the first attempt was not disturbed");
}

/// A box of these tests reads one tenant's rows for that tenant's questions.
#[tokio::test]
async fn t9_each_tenant_reads_their_own() {
    let world = World::new().await;
    let (place, token) = world.second_tenant(RIVAL).await;
    let console = world.console().await;
    let _uk = world.start_box("uk-1").await;
    let (ours, theirs) = tokio::join!(
        console.query(&world, World::SQL),
        console.carlos(token.reveal(), &["db", "query", "rival/store", World::SQL]),
    );
    ours.printed(World::TSV);
    theirs.printed(RIVAL_TSV);
    let crossed = ["db", "query", "acme/shop", "--instance", place.host.as_str(), World::SQL];
    console.carlos(world.token.reveal(), &crossed).await.ended(Exit::NotFound, "DBL-10");
}

const RIVAL: &str = "
    CREATE TABLE orders (id INTEGER PRIMARY KEY, item TEXT NOT NULL);
    INSERT INTO orders VALUES (1, 'secret recipe');";
const RIVAL_TSV: &str = "id\titem\n1\tsecret recipe\n";

/// Signed like a console's, for the second tenant's host, with the first one's life in it.
#[tokio::test]
async fn t9_second_tenant_an_envelope_chooses_no_host() {
    let world = World::new().await;
    let (theirs, _) = world.second_tenant(RIVAL).await;
    let uk = world.start_box("uk-1").await;
    let forger = Forger::of(&world);
    let mut new = forger.request().await;
    new.host = theirs.host;
    refused_unread(&world, &uk, new.into()).await;
}

/// A record under the shop's name that speaks of the second tenant's host.
#[tokio::test]
async fn t9_second_tenant_a_record_speaks_of_its_own_host_only() {
    let world = World::new().await;
    let (theirs, _) = world.second_tenant(RIVAL).await;
    let uk = world.start_box("uk-1").await;
    let forger = Forger::of(&world);
    let mut new = forger.request().await;
    world.change_record(|record| record.host = theirs.host).await;
    let record: HostRecord = world.operator.instance(&world.place.host).await.unwrap();
    new.incarnation = record.incarnation();
    refused_unread(&world, &uk, new.into()).await;
}

/// Offers a signed request and expects its refusal before a byte of any replica is read.
async fn refused_unread(world: &World, uk: &RunningBox, request: ReadRequest) {
    let forger = Forger::of(world);
    forger.offer(&request.queue_entry(), forger.signed(&request)).await;
    let result = result(world, request.id).await;
    assert_eq!((result.state, result.code), (State::Refused, Code::RecordChanged));
    assert_eq!(uk.data.ledger.of(""), [], "the data bucket was read");
    assert_eq!(world.chunks(request.id).await, 0);
}

/// The prefix is the box's own: what lies where an envelope could point is not looked at.
#[tokio::test]
async fn t9_second_tenant_the_prefix_is_the_boxs_own() {
    let world = World::new().await;
    let host = &world.place.host;
    for decoy in ["", "acme/", "acme/shop/", "shop/", "uk/", "replicas/acme/", "replicas/acme."] {
        let prefix = format!("{decoy}{host}");
        let context = &world.context;
        carlos_tests_reads::Source::create(context, &world.data, &prefix, RIVAL).await;
    }
    let console = world.console().await;
    let uk = world.start_box("uk-1").await;
    console.query(&world, World::SQL).await.printed(World::TSV);
    let own = format!("replicas/{host}/");
    let looked = uk.data.ledger.of("");
    assert!(!looked.is_empty());
    for entry in looked {
        assert!(format!("{}/", entry.key).starts_with(&own), "looked at {}", entry.key);
    }
}
