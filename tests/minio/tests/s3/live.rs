//! Live Litestream: the real binary replicates a busy database to the S3 server while reads are
//! asked in a loop. Level 0 is kept so shortly, and the box's downloads take so long, that planned
//! files vanish under it. Every answer is a state that the source had.
//!
//! | variable | meaning | when unset |
//! |---|---|---|
//! | `CARLOS_LITESTREAM_BINS` | programs, separated by commas; the last is taken | not run |
//! | `CARLOS_S3_TESTS_LIVE_SECONDS` | how long reads are asked | 30 |

use std::path::PathBuf;
use std::time::Duration;

use carlos_protocol::copy::Exit;
use carlos_tests_minio::busy::{Busy, STATE_SQL};
use carlos_tests_minio::programs::Ran;
use carlos_tests_minio::proxy::{Fault, Rule};
use carlos_tests_minio::wire::Kind;
use carlos_tests_minio::world::{BoxPlan, Desk};
use carlos_tests_minio::{Proxy, Server, World};
use futures::future::join_all;

/// As many as one person may have open.
const ASKERS: usize = 2;

/// Up to this long before each request for a file: that of a box far from its bucket, on a bad day.
/// A plan's newest files are gone after one to two seconds.
const FAR: Duration = Duration::from_millis(400);

/// What became of the reads of a run.
#[derive(Debug, Default)]
struct Tally {
    answered: usize,
    changed_twice: usize,
    newest: u32,
}

/// The program, if there is one.
pub(crate) fn litestream() -> Option<PathBuf> {
    let all = std::env::var("CARLOS_LITESTREAM_BINS").ok()?;
    all.rsplit(',').next().filter(|path| !path.is_empty()).map(PathBuf::from)
}

pub(crate) async fn test(server: &'static Server) {
    let program = litestream().expect("the test is not run without");
    let world = World::bare(server).await;
    let back = Proxy::before(&server.endpoint).await;
    let (desk, agent) =
        tokio::join!(world.console(&server.endpoint), world.agent(BoxPlan::usual(&back.endpoint)));
    let busy = Busy::start(&world, &program);
    world.until("a replica", async || first(&world, &desk, &busy).await).await;
    back.add(Rule::new(Kind::Get, ".ltx", Fault::Delayed(FAR)).always());
    let level0 = format!("{}/0000", world.replica());
    let plans_before = back.count(Kind::List, &level0);
    let tallies = join_all((0..ASKERS).map(|_| ask(&world, &desk, &busy))).await;
    let vanished = back.seen(".ltx").iter().filter(|seen| seen.done == Some(404)).count();
    let plans = back.count(Kind::List, &level0) - plans_before;
    let (states, complaints) = (busy.states.count(), busy.complaints());
    let answered: usize = tallies.iter().map(|tally| tally.answered).sum();
    let twice: usize = tallies.iter().map(|tally| tally.changed_twice).sum();
    // A read that changed twice had two plans, and so had each that a second try answered.
    let second_tries = plans.saturating_sub(answered + 2 * twice);
    eprintln!(
        "live: {states} states; {answered} reads answered, {second_tries} of them by a second \
         try, {twice} changed twice; {vanished} planned files vanished"
    );
    assert_eq!(complaints, [""; 0]);
    for tally in &tallies {
        assert!(tally.answered > 2 && tally.newest > 0, "{tally:?}: {}", agent.log());
    }
    assert!(vanished > 0 && second_tries > 0, "nothing changed under a read: this shows nothing");
    assert!(twice < answered, "{twice} reads changed twice");
}

async fn first(world: &World, desk: &Desk, busy: &Busy) -> Option<u32> {
    let ran = world.query(desk, STATE_SQL).await;
    busy.states.find(&ran.stdout).ok()
}

/// Asks one read after the other.
async fn ask(world: &World, desk: &Desk, busy: &Busy) -> Tally {
    let length = seconds();
    let begun = world.context.monotonic();
    let mut tally = Tally::default();
    while world.context.monotonic() - begun < length {
        let ran = world.query(desk, STATE_SQL).await;
        tally.take(&ran, busy);
    }
    tally
}

impl Tally {
    fn take(&mut self, ran: &Ran, busy: &Busy) {
        // Honest, and what a person is told who should ask again (db-forward §5.5).
        if ran.code == Some(i32::from(Exit::Replica.code())) && ran.stderr.contains("(DBL-7)") {
            assert!(ran.stdout.is_empty(), "{ran:?}");
            self.changed_twice += 1;
            return;
        }
        assert_eq!(ran.code, Some(0), "{ran:?}");
        let number = busy.states.find(&ran.stdout).unwrap_or_else(|wrong| panic!("{wrong}"));
        // Each read begins after the one before has ended, and asks for the newest copy.
        assert!(number >= self.newest, "state {number} after state {}", self.newest);
        self.newest = number;
        self.answered += 1;
    }
}

fn seconds() -> Duration {
    let text = std::env::var("CARLOS_S3_TESTS_LIVE_SECONDS").ok();
    Duration::from_secs(text.and_then(|text| text.parse().ok()).unwrap_or(30))
}
