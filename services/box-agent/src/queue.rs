//! The queue loop: from listed entries to reads this box runs (db-forward §5.5 step 4, §5.8).

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use carlos_bucket::{Purpose, QueueWatch};
use carlos_protocol::ids::ReadId;
use carlos_protocol::keys::{Key, QueueEntry};
use carlos_protocol::limits::{CLOCK_SKEW, PICKUP_WINDOW};
use carlos_protocol::request::{ReadRequest, RequestRefusal, check_age};
use carlos_protocol::time::Seconds;
use futures::StreamExt;
use futures::stream::FuturesUnordered;
use tokio::sync::mpsc;
use tokio_util::task::AbortOnDropHandle;

use crate::agent::Agent;
use crate::read::{self, Candidate};
use crate::verify::{Examined, examine};

/// Entries held at once, some sixty bytes each. A region opens 16 reads a console; a window with
/// more than this is a writer gone wrong, and those looked at most often make room.
const MAX_PENDING: usize = 16_384;

/// Decisions remembered: every entry of a full window, four times over.
const MAX_DECIDED: usize = 4 * MAX_PENDING;

/// The pace at which entries are looked at: the poller's own active one.
const TICK: Duration = Duration::from_millis(250);

/// Requests read for the first time in one tick: five thousand forged entries of one second take
/// ten seconds, and an entry of any other second goes past them.
const FIRST_LOOKS: usize = 128;

/// Requests read once more in one tick. A request exists before its entry does (db-forward §5.4),
/// so these are entries that nobody stands behind, or a bucket that has trouble already.
const FURTHER_LOOKS: usize = 16;

/// Requests read at once.
const LOOKS_AT_ONCE: usize = 16;

/// The longest pause before an entry is looked at again: the window leaves time for several.
const LONGEST_PAUSE: Duration = Duration::from_secs(8);

/// Where an entry stands in its region's queue. The time is part of it: a forged entry for a
/// genuine id must not decide the genuine one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Place {
    issued_at: u64,
    id: ReadId,
}

impl From<&QueueEntry> for Place {
    fn from(entry: &QueueEntry) -> Self {
        Self { issued_at: entry.issued_at.unix(), id: entry.id }
    }
}

/// Entries under consideration, and those that never need another look.
#[derive(Default)]
struct Desk {
    pending: BTreeMap<Place, Pending>,
    decided: BTreeSet<Place>,
    allowance: Allowance,
}

#[derive(Default)]
struct Pending {
    /// `None` until the request was read and verified.
    request: Option<Box<ReadRequest>>,
    /// Looks at a request that could not be read, or is not there.
    looks: u32,
    /// On the monotonic clock: no look before.
    due: Duration,
}

/// The looks that are left in a tick.
struct Allowance {
    began: Duration,
    first: usize,
    further: usize,
}

impl Default for Allowance {
    fn default() -> Self {
        Self::beginning(Duration::ZERO)
    }
}

impl Allowance {
    fn beginning(began: Duration) -> Self {
        Self { began, first: FIRST_LOOKS, further: FURTHER_LOOKS }
    }
}

/// One moment on both clocks: windows go by the first, pauses by the second.
#[derive(Clone, Copy)]
struct Now {
    unix: u64,
    monotonic: Duration,
}

impl Now {
    fn of(agent: &Agent) -> Self {
        Self { unix: agent.ctx().now_unix(), monotonic: agent.ctx().monotonic() }
    }
}

impl Desk {
    fn take_in(&mut self, entries: &[QueueEntry]) {
        let places = entries.iter().map(Place::from);
        let known =
            |place: &Place| self.decided.contains(place) || self.pending.contains_key(place);
        let fresh: BTreeSet<Place> = places.filter(|place| !known(place)).collect();
        self.make_room(fresh.len());
        let room = MAX_PENDING.saturating_sub(self.pending.len());
        // The latest of them: a listing begins with those whose window closes first.
        let taken = fresh.into_iter().rev().take(room);
        self.pending.extend(taken.map(|place| (place, Pending::default())));
    }

    /// Lets go of the entries that were looked at most often and in vain.
    fn make_room(&mut self, wanted: usize) {
        let excess = (self.pending.len() + wanted).saturating_sub(MAX_PENDING);
        if excess == 0 {
            return;
        }
        let looked_at = self.pending.iter().filter(|(_, entry)| entry.looks > 0);
        let mut looked_at: Vec<_> = looked_at.map(|(place, entry)| (entry.looks, *place)).collect();
        looked_at.sort_unstable_by_key(|(looks, place)| (Reverse(*looks), *place));
        for (_, place) in looked_at.into_iter().take(excess) {
            self.pending.remove(&place);
        }
    }

    fn decide(&mut self, place: Place) {
        self.pending.remove(&place);
        self.decided.insert(place);
        while self.decided.len() > MAX_DECIDED {
            self.decided.pop_first();
        }
    }

    /// Forgets what no listing names any more.
    fn forget(&mut self, now_unix: u64) {
        let expired = |place: &Place| {
            let age = check_age(Seconds::new(place.issued_at), now_unix);
            age == Err(RequestRefusal::Expired)
        };
        self.pending.retain(|place, _| !expired(place));
        // Kept a while longer: a clock set back must not open a decision again.
        let kept = now_unix.saturating_sub((PICKUP_WINDOW + 2 * CLOCK_SKEW).as_secs());
        self.decided.retain(|place| place.issued_at >= kept);
    }

    /// The entries to look at now, those that were never looked at first. What one tick allows is
    /// used up by it.
    fn next_looks(&mut self, now: Now) -> Vec<Place> {
        if now.monotonic >= self.allowance.began + TICK {
            self.allowance = Allowance::beginning(now.monotonic);
        }
        let mut looks = self.first_looks(now);
        self.allowance.first -= looks.len();
        let further = self.further_looks(now);
        self.allowance.further -= further.len();
        looks.extend(further);
        looks
    }

    /// When there are too many, half of the looks go to the entries closest to now, where a read
    /// that somebody waits for stands, and half to the oldest, whose window closes first.
    fn first_looks(&self, now: Now) -> Vec<Place> {
        let room = self.allowance.first;
        let fresh = self.unread(now).filter(|(_, entry)| entry.looks == 0);
        let mut oldest: Vec<Place> = fresh.map(|(place, _)| *place).collect();
        if oldest.len() <= room {
            return oldest;
        }
        let mut closest = oldest.clone();
        closest.sort_unstable_by_key(|place| (place.issued_at.abs_diff(now.unix), *place));
        closest.truncate(room.div_ceil(2));
        let chosen: BTreeSet<Place> = closest.iter().copied().collect();
        oldest.retain(|place| !chosen.contains(place));
        closest.extend(oldest.into_iter().take(room - chosen.len()));
        closest
    }

    /// The least looked at first, so that entries whose request never comes hold up no other.
    fn further_looks(&self, now: Now) -> Vec<Place> {
        let due =
            self.unread(now).filter(|(_, entry)| entry.looks > 0 && entry.due <= now.monotonic);
        let mut due: Vec<_> = due.map(|(place, entry)| (entry.looks, *place)).collect();
        due.sort_unstable();
        due.into_iter().map(|(_, place)| place).take(self.allowance.further).collect()
    }

    /// Entries in the window whose request is still to be read, the oldest first.
    fn unread(&self, now: Now) -> impl Iterator<Item = (&Place, &Pending)> {
        self.pending.iter().filter(move |(place, entry)| {
            entry.request.is_none() && check_age(Seconds::new(place.issued_at), now.unix).is_ok()
        })
    }

    fn look_again(&mut self, place: Place, now: Duration) {
        if let Some(entry) = self.pending.get_mut(&place) {
            entry.due = now + pause(entry.looks);
            entry.looks += 1;
        }
    }

    fn verified(&mut self, place: Place, request: Box<ReadRequest>) {
        self.pending.insert(place, Pending { request: Some(request), ..Pending::default() });
    }

    fn genuine(&self) -> Vec<Place> {
        let genuine = self.pending.iter().filter(|(_, entry)| entry.request.is_some());
        genuine.map(|(place, _)| *place).collect()
    }
}

/// Doubles with every look.
fn pause(looks: u32) -> Duration {
    TICK.saturating_mul(2_u32.saturating_pow(looks)).min(LONGEST_PAUSE)
}

/// The reads this agent runs. Dropping it ends their tasks where they stand.
#[derive(Default)]
pub(crate) struct Reads(FuturesUnordered<AbortOnDropHandle<()>>);

impl Reads {
    fn push(&self, read: AbortOnDropHandle<()>) {
        self.0.push(read);
    }

    /// Waits for one read to end; never resolves while there is none.
    async fn next_end(&mut self) {
        match self.0.next().await {
            Some(Ok(())) => {}
            Some(Err(error)) => tracing::error!(%error, "a read's task did not end by itself"),
            None => std::future::pending().await,
        }
    }

    /// Waits for all of them.
    pub(crate) async fn all(&mut self) {
        while !self.0.is_empty() {
            self.next_end().await;
        }
    }
}

/// Watches the queue and starts reads until the agent drains; gives the reads still running.
pub(crate) async fn serve(agent: &Arc<Agent>) -> Reads {
    let (to_desk, from_watch) = mpsc::channel(1);
    let mut reads = Reads::default();
    tokio::select! {
        biased;
        () = agent.draining.cancelled() => {}
        () = watch(agent, to_desk) => {}
        () = keep_desk(agent, from_watch, &mut reads) => {}
    }
    reads
}

// A part of its own, so that a slow listing is never dropped because an entry wants another try.
async fn watch(agent: &Agent, to_desk: mpsc::Sender<Vec<QueueEntry>>) {
    let region = agent.config.region.clone();
    let watch = QueueWatch::new(agent.ports.bucket.clone(), region, agent.config.pace);
    let mut watch = watch.woken_by(agent.alarm.clone());
    while to_desk.send(watch.next().await).await.is_ok() {}
}

async fn keep_desk(
    agent: &Arc<Agent>,
    mut from_watch: mpsc::Receiver<Vec<QueueEntry>>,
    reads: &mut Reads,
) {
    let mut desk = Desk::default();
    loop {
        let idle = desk.pending.is_empty();
        tokio::select! {
            biased;
            entries = from_watch.recv() => match entries {
                Some(entries) => desk.take_in(&entries),
                None => return,
            },
            () = reads.next_end() => {}
            () = agent.ctx().sleep(TICK), if !idle => {}
        }
        round(agent, &mut desk, reads).await;
        let waiting = desk.genuine().len();
        agent.metrics.desk(desk.pending.len() - waiting, waiting);
    }
}

async fn round(agent: &Arc<Agent>, desk: &mut Desk, reads: &Reads) {
    desk.forget(agent.ctx().now_unix());
    // Nothing is read from the bucket for an entry that could not be taken on now.
    if !agent.is_ready() || !agent.admission.has_free_slot() {
        return;
    }
    examine_unread(agent, desk).await;
    for place in desk.genuine() {
        if agent.draining.is_cancelled() || !agent.admission.has_free_slot() {
            return;
        }
        if take_on(agent, desk, place, reads).await == Admitting::NoMore {
            return;
        }
    }
}

/// Whether another entry has a chance in the same round.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Admitting {
    GoOn,
    /// What was refused to one is refused to every other, and counting workers starts a process.
    NoMore,
}

async fn examine_unread(agent: &Agent, desk: &mut Desk) {
    let looks = desk
        .next_looks(Now::of(agent))
        .into_iter()
        .map(async |place| (place, look_at(agent, place).await));
    let looks: Vec<_> = futures::stream::iter(looks).buffered(LOOKS_AT_ONCE).collect().await;
    for (place, examined) in looks {
        match examined {
            Examined::Later => desk.look_again(place, agent.ctx().monotonic()),
            Examined::Genuine(request) => desk.verified(place, request),
            Examined::Refused(refusal) => {
                if !refusal.is_silent() {
                    tracing::warn!(id = %place.id, %refusal, "a read request is refused");
                    agent.metrics.forged();
                }
                desk.decide(place);
            }
        }
    }
}

async fn look_at(agent: &Agent, place: Place) -> Examined {
    let region = agent.config.region.clone();
    let entry = QueueEntry { region, issued_at: Seconds::new(place.issued_at), id: place.id };
    examine(&agent.ports.bucket, &agent.config.roots, &agent.config.region, &entry).await
}

/// Steps of one entry up to admission; a read that was admitted goes on in its own task.
async fn take_on(agent: &Arc<Agent>, desk: &mut Desk, place: Place, reads: &Reads) -> Admitting {
    let cancel = Key::Cancel(place.id).to_path();
    match agent.ports.bucket.get(&cancel, Purpose::Claim).await {
        Ok(None) => {}
        Ok(Some(_)) => {
            desk.decide(place);
            return Admitting::GoOn;
        }
        Err(error) => {
            tracing::debug!(id = %place.id, %error, "cancel not readable");
            return Admitting::GoOn;
        }
    }
    let count = agent.admission.count(&*agent.ports.workers).await;
    let (slot, reservation) = match agent.admission.admit_read(count) {
        Ok(admitted) => admitted,
        Err(reason) => {
            tracing::debug!(id = %place.id, %reason, "a read waits");
            return Admitting::NoMore;
        }
    };
    let Some(Pending { request: Some(request), .. }) = desk.pending.remove(&place) else {
        return Admitting::GoOn;
    };
    desk.decide(place);
    let candidate = Candidate { request: *request, slot, reservation };
    let task = agent.ctx().spawn(read::run(Arc::clone(agent), candidate));
    reads.push(AbortOnDropHandle::new(task));
    Admitting::GoOn
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: u64 = 1_792_659_600;

    fn entry(issued_at: u64, number: u64) -> QueueEntry {
        let mut bytes = [0; 16];
        bytes[..8].copy_from_slice(&number.to_be_bytes());
        QueueEntry {
            region: "uk".parse().expect("label"),
            issued_at: Seconds::new(issued_at),
            id: ReadId::from_bytes(bytes),
        }
    }

    #[test]
    fn a_decision_lasts_as_long_as_a_listing_can_name_the_entry() {
        let mut desk = Desk::default();
        let entries = [entry(NOW, 1)];
        desk.take_in(&entries);
        desk.decide(Place::from(&entries[0]));
        // Listings go on naming it for two minutes, whatever the clock does meanwhile.
        for now in [NOW + 60, NOW + 120, NOW - 60, NOW + 179] {
            desk.forget(now);
            desk.take_in(&entries);
            assert_eq!(desk.pending.len(), 0, "{now}");
        }
        desk.forget(NOW + 181);
        assert_eq!(desk.decided.len(), 0);
    }

    #[test]
    fn entries_outside_the_window_are_never_read() {
        let mut desk = Desk::default();
        desk.take_in(&[entry(NOW - 61, 1), entry(NOW - 60, 2), entry(NOW + 60, 3)]);
        desk.take_in(&[entry(NOW + 61, 4)]);
        desk.forget(NOW);
        let looks = desk.next_looks(after(0));
        let looks: Vec<u64> = looks.iter().map(|place| place.issued_at).collect();
        assert_eq!(looks, [NOW - 60, NOW + 60]);
        // The one from the future is kept until its time comes, the old one is gone.
        assert_eq!(desk.pending.len(), 3);
    }

    #[test]
    fn one_id_under_two_times_is_two_entries() {
        let mut desk = Desk::default();
        let (forged, genuine) = (entry(NOW - 1, 1), entry(NOW, 1));
        desk.take_in(&[forged.clone(), genuine.clone()]);
        desk.decide(Place::from(&forged));
        assert_eq!(desk.next_looks(after(0)), [Place::from(&genuine)]);
    }

    #[test]
    fn looks_at_one_entry_back_off() {
        let mut desk = Desk::default();
        desk.take_in(&[entry(NOW, 1)]);
        let looks: Vec<u64> =
            (0..60_000).step_by(125).filter(|ms| look(&mut desk, *ms) > 0).collect();
        assert_eq!(looks[..7], [0, 250, 750, 1_750, 3_750, 7_750, 15_750]);
        assert!(looks[6..].windows(2).all(|pair| pair[1] - pair[0] == 8_000), "{looks:?}");
    }

    /// Forged entries a box has looked at stand back behind one it has not.
    #[test]
    fn a_read_after_a_flood_is_looked_at_at_once() {
        let mut desk = Desk::default();
        desk.take_in(&flood(5_000, |number| NOW - number % 60));
        for ms in (0..15_000).step_by(250) {
            look(&mut desk, ms);
        }
        let genuine = entry(NOW + 15, GENUINE);
        desk.take_in(std::slice::from_ref(&genuine));
        assert_eq!(desk.next_looks(after(15_000))[0], Place::from(&genuine));
    }

    /// The worst is a flood in the very second of the read; a flood over the window costs no tick.
    #[test]
    fn a_read_in_a_flood_waits_seconds() {
        let spread = waits_ms(|number| NOW - 60 + number % 120);
        assert!(spread <= 1_000, "{spread}");
        let before = waits_ms(|_| NOW - 1);
        assert_eq!(before, 0);
        let same_second = waits_ms(|_| NOW);
        assert!(same_second <= 10_000, "{same_second}");
    }

    #[test]
    fn a_flood_costs_a_bounded_number_of_reads() {
        let mut desk = Desk::default();
        desk.take_in(&flood(5_000, |_| NOW));
        // Rounds come oftener than ticks when listings arrive and reads end.
        let mut second = |from: u64| -> usize {
            (from..from + 1_000).step_by(125).map(|ms| look(&mut desk, ms)).sum()
        };
        let seconds: Vec<usize> = (0..30).map(|number| second(number * 1_000)).collect();
        let most = 4 * (FIRST_LOOKS + FURTHER_LOOKS);
        assert!(seconds.iter().all(|looks| *looks <= most), "{seconds:?}");
        // Once all were looked at, what is left is small.
        assert!(seconds[10..].iter().all(|looks| *looks <= 4 * FURTHER_LOOKS), "{seconds:?}");
    }

    #[test]
    fn a_full_desk_lets_go_of_what_was_looked_at_most() {
        let mut desk = Desk::default();
        desk.take_in(&flood(MAX_PENDING as u64, |_| NOW - 1));
        let newcomer = entry(NOW, GENUINE);
        desk.take_in(std::slice::from_ref(&newcomer));
        assert!(!desk.pending.contains_key(&Place::from(&newcomer)), "nothing to let go of");
        let [once, twice] = [2, 4].map(|number| Place::from(&entry(NOW - 1, number)));
        for place in [once, twice, twice] {
            desk.look_again(place, Duration::ZERO);
        }
        desk.take_in(std::slice::from_ref(&newcomer));
        assert!(desk.pending.contains_key(&Place::from(&newcomer)));
        assert!(desk.pending.contains_key(&once) && !desk.pending.contains_key(&twice));
    }

    #[test]
    fn a_flood_is_bounded() {
        let mut desk = Desk::default();
        let flood = flood(4 * MAX_PENDING as u64 + 1, |_| NOW);
        desk.take_in(&flood);
        assert_eq!(desk.pending.len(), MAX_PENDING);
        flood.iter().for_each(|entry| desk.decide(Place::from(entry)));
        assert_eq!((desk.pending.len(), desk.decided.len()), (0, MAX_DECIDED));
    }

    /// No flood below uses this number.
    const GENUINE: u64 = u64::MAX / 2;

    fn flood(entries: u64, issued_at: impl Fn(u64) -> u64) -> Vec<QueueEntry> {
        // On both sides of the genuine entry's id.
        let id = |number| if number % 2 == 0 { number } else { u64::MAX - number };
        (0..entries).map(|number| entry(issued_at(number), id(number))).collect()
    }

    fn after(ms: u64) -> Now {
        Now { unix: NOW + ms / 1_000, monotonic: Duration::from_millis(ms) }
    }

    /// Looks in vain, and says how often.
    fn look(desk: &mut Desk, ms: u64) -> usize {
        let places = desk.next_looks(after(ms));
        places.iter().for_each(|place| desk.look_again(*place, Duration::from_millis(ms)));
        places.len()
    }

    /// How long a read waits for its first look that is listed with five thousand forged entries.
    fn waits_ms(issued_at: impl Fn(u64) -> u64) -> u64 {
        let mut desk = Desk::default();
        let genuine = entry(NOW, GENUINE);
        desk.take_in(&flood(5_000, issued_at));
        desk.take_in(std::slice::from_ref(&genuine));
        let is_looked_at = |ms: &u64| {
            look(&mut desk, *ms);
            desk.pending[&Place::from(&genuine)].looks > 0
        };
        (0..60_000).step_by(250).find(is_looked_at).expect("looked at while its window is open")
    }
}
