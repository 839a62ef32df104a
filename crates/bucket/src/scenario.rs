//! Numbered scenarios of what goes wrong between a process and its store, each a function over a
//! store, so that the same text runs on memory, on a directory and on S3. They script their faults
//! in front of the store given.

use std::time::Duration;

use bytes::Bytes;
use carlos_protocol::ids::{Principal, ReadId, Region, Revision};
use carlos_protocol::keys::{Key, QueueEntry};
use carlos_protocol::time::Seconds;
use futures::future::{BoxFuture, join};

use crate::conformance::{Breach, ensure};
use crate::fault::{Fault, FaultStore, Rule};
use crate::layer::{Inner, Op};
use crate::{
    Append, Bucket, Cause, Chain, Context, Outcome, Pace, Purpose, Queue, QueueWatch, Serial,
};

/// What a scenario runs on.
#[derive(Clone, Debug)]
pub struct Ground {
    /// The store behind the faults.
    pub store: Inner,
    /// The clock and randomness.
    pub ctx: Context,
}

/// A numbered scenario.
#[derive(Clone, Copy, Debug)]
pub struct Scenario {
    /// Its number; never reused.
    pub number: u8,
    /// What happens in it.
    pub name: &'static str,
    /// Runs it.
    pub run: fn(Ground) -> BoxFuture<'static, Result<(), Breach>>,
}

macro_rules! scenarios {
    ($($number:literal $name:ident)+) => {
        /// Every scenario, by number.
        pub const SCENARIOS: &[Scenario] = &[$(Scenario {
            number: $number,
            name: stringify!($name),
            run: |ground| Box::pin($name(ground)),
        }),+];
    };
}

scenarios! {
    1 a_put_vanishes_before_it_lands
    2 a_put_lands_and_the_store_goes_silent
    3 a_put_lands_and_is_answered_with_500
    4 a_put_lands_and_the_connection_closes
    5 a_put_lands_and_is_answered_with_503
    6 a_put_is_answered_with_500_and_not_done
    7 a_put_is_answered_with_409_and_not_done
    8 a_put_lands_three_seconds_after_we_gave_up
    9 an_object_appears_only_on_the_second_look
    10 a_name_is_taken_by_another
    11 a_name_is_taken_while_our_answer_is_lost
    12 a_store_fails_until_the_deadline
    13 an_unknown_put_lands_later_and_is_asked_for_again
    14 a_refused_principal_is_told_at_once
    15 two_writers_append_to_one_head
    16 an_append_is_unknown_and_repeated
    17 a_listing_hides_the_head
    18 a_bump_is_lost
    19 two_claimers_lose_answers
}

/// Longer than any stall here, shorter than a patient test.
const PURPOSE: Purpose = Purpose::Claim;

/// The put never arrives; the second one does.
async fn a_put_vanishes_before_it_lands(ground: Ground) -> Result<(), Breach> {
    one_fault(ground, Fault::Swallowed, Outcome::Created).await
}

/// The answer never comes, and the read-back finds our own bytes.
async fn a_put_lands_and_the_store_goes_silent(ground: Ground) -> Result<(), Breach> {
    one_fault(ground, Fault::DoneInSilence, Outcome::AlreadyMine).await
}

async fn a_put_lands_and_is_answered_with_500(ground: Ground) -> Result<(), Breach> {
    one_fault(ground, Fault::DoneBut(500), Outcome::AlreadyMine).await
}

async fn a_put_lands_and_the_connection_closes(ground: Ground) -> Result<(), Breach> {
    one_fault(ground, Fault::AnswerLost, Outcome::AlreadyMine).await
}

/// Throttling after the work is done: a refusal is no proof either.
async fn a_put_lands_and_is_answered_with_503(ground: Ground) -> Result<(), Breach> {
    one_fault(ground, Fault::DoneBut(503), Outcome::AlreadyMine).await
}

async fn a_put_is_answered_with_500_and_not_done(ground: Ground) -> Result<(), Breach> {
    one_fault(ground, Fault::Refused(500), Outcome::Created).await
}

/// "Already exists" for a name that nobody holds.
async fn a_put_is_answered_with_409_and_not_done(ground: Ground) -> Result<(), Breach> {
    one_fault(ground, Fault::Conflict, Outcome::Created).await
}

/// The first put arrives when the second has long been answered, and must change nothing.
async fn a_put_lands_three_seconds_after_we_gave_up(ground: Ground) -> Result<(), Breach> {
    let late = Fault::LandsLate(Duration::from_secs(5));
    one_fault(ground, late, Outcome::Created).await
}

/// The create's answer is lost and the first read says 404 although the object is there.
async fn an_object_appears_only_on_the_second_look(ground: Ground) -> Result<(), Breach> {
    let field = Field::new(ground);
    field.faults.add(Rule::new(Op::Create, Fault::AnswerLost));
    field.faults.add(Rule::new(Op::Get, Fault::Hidden));
    field.create_ends(Outcome::AlreadyMine).await
}

async fn a_name_is_taken_by_another(ground: Ground) -> Result<(), Breach> {
    let field = Field::new(ground);
    field.take_as_other().await?;
    field.create_ends(Outcome::TakenBy(OTHERS.into())).await
}

async fn a_name_is_taken_while_our_answer_is_lost(ground: Ground) -> Result<(), Breach> {
    let field = Field::new(ground);
    field.take_as_other().await?;
    field.faults.add(Rule::new(Op::Create, Fault::AnswerLost));
    field.create_ends(Outcome::TakenBy(OTHERS.into())).await
}

/// Nothing but failures: the end is "unknown", and it comes by the deadline.
async fn a_store_fails_until_the_deadline(ground: Ground) -> Result<(), Breach> {
    let field = Field::new(ground);
    field.faults.add(Rule::new(Op::Create, Fault::Swallowed).always());
    let begun = field.ctx.monotonic();
    let end = field.create().await;
    let took = field.ctx.monotonic() - begun;
    ensure!(matches!(end, Outcome::Unknown(_)), "a store that never answers: {end:?}");
    let allowed = PURPOSE.allowed() + Duration::from_millis(500);
    ensure!(took <= allowed, "the end came after {took:?}");
    field.holds(None).await
}

/// After "unknown" the put lands. The same create again finds itself; a new claim would not.
async fn an_unknown_put_lands_later_and_is_asked_for_again(ground: Ground) -> Result<(), Breach> {
    let field = Field::new(ground);
    field.faults.add(Rule::new(Op::Create, Fault::LandsLate(Duration::from_secs(6))));
    field.faults.add(Rule::new(Op::Create, Fault::Refused(500)).always());
    let end = field.create().await;
    ensure!(matches!(end, Outcome::Unknown(_)), "before it landed: {end:?}");
    field.faults.clear();
    field.ctx.sleep(Duration::from_secs(3)).await;
    field.create_ends(Outcome::AlreadyMine).await
}

/// Access that is denied is not asked for again until the deadline.
async fn a_refused_principal_is_told_at_once(ground: Ground) -> Result<(), Breach> {
    let field = Field::new(ground);
    field.faults.add(Rule::new(Op::Create, Fault::Refused(403)).always());
    let end = field.create().await;
    ensure!(matches!(end, Outcome::Unknown(Cause::Denied(_))), "a denied create: {end:?}");
    let asked = field.faults.struck().len();
    ensure!(asked == 1, "a denied create was sent {asked} times");
    field.holds(None).await
}

/// Both start from the same head; one is written, the other is shown it.
async fn two_writers_append_to_one_head(ground: Ground) -> Result<(), Breach> {
    let field = Field::new(ground);
    let (a, b) = (field.chain("a"), field.chain("b"));
    let first = a.append(None, b"[0]", PURPOSE).await;
    ensure!(first == Append::Written(Revision::FIRST), "the first revision: {first:?}");
    let expected = Some(Revision::FIRST);
    let (one, two) =
        join(a.append(expected, b"[1]", PURPOSE), b.append(expected, b"[2]", PURPOSE)).await;
    let (content, lost) = match (one, two) {
        (Append::Written(_), lost) => ("[1]", lost),
        (lost, Append::Written(_)) => ("[2]", lost),
        ends => return Err(Breach(format!("neither was written: {ends:?}"))),
    };
    let Append::Conflict(Some(head)) = lost else {
        return Err(Breach(format!("the loser's end: {lost:?}")));
    };
    ensure!(head.content == content, "the loser was shown {head:?}");
    Ok(())
}

/// The answer is lost for longer than the deadline; the repeated append finds its own revision.
async fn an_append_is_unknown_and_repeated(ground: Ground) -> Result<(), Breach> {
    let field = Field::new(ground);
    let chain = field.chain("a");
    field.faults.add(Rule::new(Op::Create, Fault::DoneInSilence).always());
    // The look before the append is answered; the read-backs after it are not.
    let second = |fault| Rule::new(Op::Get, fault).filter(is_second_revision);
    field.faults.add(second(Fault::Delayed(Duration::ZERO)));
    field.faults.add(second(Fault::Refused(500)).always());
    let first = chain.append(None, b"[0]", PURPOSE).await;
    ensure!(first == Append::Written(Revision::FIRST), "found by reading back: {first:?}");
    let expected = Some(Revision::FIRST);
    let unknown = chain.append(expected, b"[1]", PURPOSE).await;
    ensure!(matches!(unknown, Append::Unknown(_)), "with reads failing: {unknown:?}");
    field.faults.clear();
    let again = chain.append(expected, b"[1]", PURPOSE).await;
    ensure!(again == Append::Written(Revision::FIRST.next()), "repeated: {again:?}");
    let landed = field.behind.list(&field.chain_name(), None, PURPOSE).await;
    ensure!(landed.map(|keys| keys.len()) == Ok(2), "the chain holds other than two revisions");
    Ok(())
}

fn is_second_revision(key: &str) -> bool {
    key.ends_with("/00000000000000000002")
}

/// A listing without the newest revisions: the successors are asked for by name all the same.
async fn a_listing_hides_the_head(ground: Ground) -> Result<(), Breach> {
    let field = Field::new(ground);
    let writer = field.chain("a");
    for (before, content) in [(0, "[0]"), (1, "[1]"), (2, "[2]")] {
        let end = writer.append(Revision::new(before), content.as_bytes(), PURPOSE).await;
        ensure!(matches!(end, Append::Written(_)), "{content}: {end:?}");
    }
    let hide = Rule::new(Op::List, Fault::Hidden).filter(|key| !key.ends_with('1')).always();
    field.faults.add(hide);
    let head = field.chain("b").head(PURPOSE).await;
    let head = head.map_err(|error| Breach(error.to_string()))?;
    let content = head.map(|head| head.content);
    ensure!(content == Some(Bytes::from_static(b"[2]")), "the head is {content:?}");
    Ok(())
}

/// The entry is there and no serial ever moves: the sweep finds it within 30 s.
async fn a_bump_is_lost(ground: Ground) -> Result<(), Breach> {
    let field = Field::new(ground);
    let region = field.region();
    let mut watch = QueueWatch::new(field.bucket.clone(), region.clone(), Pace::default());
    ensure!(watch.next().await.is_empty(), "a queue before its first entry");
    field.faults.add(Rule::new(Op::Replace, Fault::Refused(500)).always());
    let entry = field.enqueue(&region).await?;
    let serial = Serial::new(field.bucket.clone(), Key::Serial(region).to_path());
    ensure!(serial.bump().await.is_err(), "the bump was to be lost");
    // The sweep's 30 s, one idle poll and a slow listing.
    let seen = field.ctx.timeout(Duration::from_secs(33), watch.next()).await;
    ensure!(seen == Ok(vec![entry]), "the sweep saw {seen:?}");
    Ok(())
}

/// Two boxes claim the same reads while answers get lost on either side: one owner each time
/// (db-forward §5.3, J3).
async fn two_claimers_lose_answers(ground: Ground) -> Result<(), Breach> {
    let field = Field::new(ground);
    for fault in [Fault::AnswerLost, Fault::DoneBut(500), Fault::Conflict, Fault::Refused(500)] {
        field.faults.add(Rule::new(Op::Create, fault).odds(0.15));
    }
    for round in 0..50 {
        let key = field.picked();
        let a = field.bucket.create(&key, format!("a {round}").into(), PURPOSE);
        let b = field.bucket.create(&key, format!("b {round}").into(), PURPOSE);
        let (a, b) = join(a, b).await;
        let owners = usize::from(a.is_ours()) + usize::from(b.is_ours());
        ensure!(owners == 1, "round {round} has {owners} owners: {a:?}, {b:?}");
    }
    Ok(())
}

const OURS: &str = "ours, with a nonce";
const OTHERS: &str = "another's, with a nonce";

/// A store with faults in front, and one name to fight over.
struct Field {
    ctx: Context,
    bucket: Bucket,
    behind: Bucket,
    faults: FaultStore,
    key: String,
}

impl Field {
    fn new(ground: Ground) -> Self {
        let Ground { store, ctx } = ground;
        let behind = Bucket::new(store.clone(), ctx.clone());
        let (store, faults) = FaultStore::wrap(store, &ctx);
        let bucket = Bucket::new(store, ctx.clone());
        let key = Key::Picked(ReadId::mint(&mut ctx.entropy())).to_path();
        Self { ctx, bucket, behind, faults, key }
    }

    async fn create(&self) -> Outcome {
        self.bucket.create(&self.key, OURS.into(), PURPOSE).await
    }

    /// Creates, compares the end, and looks behind the faults once everything late has landed.
    async fn create_ends(&self, expected: Outcome) -> Result<(), Breach> {
        let end = self.create().await;
        ensure!(end == expected, "the create ends with {end:?} instead of {expected:?}");
        self.ctx.sleep(Duration::from_secs(6)).await;
        self.holds(Some(if end.is_ours() { OURS } else { OTHERS })).await
    }

    async fn take_as_other(&self) -> Result<(), Breach> {
        let end = self.behind.create(&self.key, OTHERS.into(), PURPOSE).await;
        ensure!(end == Outcome::Created, "the other's create: {end:?}");
        Ok(())
    }

    /// What really is in the store: this body, once, or nothing.
    async fn holds(&self, body: Option<&'static str>) -> Result<(), Breach> {
        let found = self.behind.get(&self.key, PURPOSE).await;
        ensure!(found == Ok(body.map(Bytes::from)), "the store holds {found:?}");
        let folder = self.key.trim_end_matches("/picked");
        let listed = self.behind.list(folder, None, Purpose::Sweep).await;
        let count = listed.map_err(|error| Breach(error.to_string()))?.len();
        ensure!(count == usize::from(body.is_some()), "the store holds {count} objects");
        Ok(())
    }

    fn picked(&self) -> String {
        Key::Picked(ReadId::mint(&mut self.ctx.entropy())).to_path()
    }

    fn chain(&self, by: &str) -> Chain {
        let by = Principal::parse(by).expect("a label");
        Chain::new(self.bucket.clone(), self.chain_name(), by)
    }

    fn chain_name(&self) -> String {
        self.key.replace("/picked", "/chain")
    }

    fn region(&self) -> Region {
        let name = format!("r{}", self.ctx.ulid()).to_lowercase();
        Region::parse(&name).expect("a label")
    }

    async fn enqueue(&self, region: &Region) -> Result<QueueEntry, Breach> {
        let issued_at = Seconds::new(self.ctx.now_unix());
        let id = ReadId::mint(&mut self.ctx.entropy());
        let entry = QueueEntry { region: region.clone(), issued_at, id };
        let end = Queue::new(self.bucket.clone(), region.clone()).add(&entry, PURPOSE).await;
        ensure!(end == Outcome::Created, "the entry: {end:?}");
        Ok(entry)
    }
}

async fn one_fault(ground: Ground, fault: Fault, expected: Outcome) -> Result<(), Breach> {
    let field = Field::new(ground);
    field.faults.add(Rule::new(Op::Create, fault));
    field.create_ends(expected).await?;
    let struck = field.faults.struck().len();
    ensure!(struck == 1, "the fault struck {struck} times");
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use object_store::memory::InMemory;

    use super::*;
    use crate::shuffle::Shuffled;
    use crate::{file_url, open_store};

    const START_MS: u64 = 1_792_659_600_000;

    async fn run_all(store: Inner, ctx: &Context) {
        for scenario in SCENARIOS {
            let ground = Ground { store: store.clone(), ctx: ctx.node(scenario.name) };
            let end = (scenario.run)(ground).await;
            assert_eq!(end, Ok(()), "{} {}", scenario.number, scenario.name);
        }
    }

    #[test]
    fn numbers_are_not_reused() {
        let numbers: Vec<u8> = SCENARIOS.iter().map(|scenario| scenario.number).collect();
        assert!(numbers.is_sorted_by(|a, b| a < b), "{numbers:?}");
    }

    #[tokio::test(start_paused = true)]
    async fn scenarios_on_memory() {
        for seed in 0..20 {
            run_all(Arc::new(InMemory::new()), &Context::simulated(seed, START_MS)).await;
        }
    }

    #[tokio::test(start_paused = true)]
    async fn scenarios_on_a_shuffling_store() {
        let ctx = Context::simulated(1, START_MS);
        run_all(Shuffled::wrap(Arc::new(InMemory::new()), &ctx), &ctx).await;
    }

    #[tokio::test(start_paused = true)]
    async fn scenarios_on_a_directory() {
        let dir = tempfile::tempdir().expect("a directory");
        let store = open_store(&file_url(dir.path())).expect("a store");
        run_all(store, &Context::simulated(2, START_MS)).await;
    }
}
