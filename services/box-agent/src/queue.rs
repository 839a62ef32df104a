//! The queue loop: from listed entries to reads this box runs (db-forward §5.5 step 4, §5.8).

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use carlos_bucket::{Pace, Purpose, QueueWatch};
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
use crate::worker::hold::running;

/// Entries held at once. A region opens 16 reads a console; a listing with more than this is a
/// writer gone wrong, and its later entries wait for the next listing.
const MAX_PENDING: usize = 1_024;

/// Decisions remembered: every entry of a full window, four times over.
const MAX_DECIDED: usize = 4_096;

/// Requests read in one round, and at once: a flood of forged entries delays a genuine one by
/// some round trips and never by the whole flood's reading.
const EXAMINED_A_ROUND: usize = 32;
const EXAMINED_AT_ONCE: usize = 8;

/// How often entries that found no room are tried again; the poller's own active pace.
const AGAIN_AFTER: Duration = Duration::from_millis(250);

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
}

#[derive(Default)]
struct Pending {
    /// `None` until the request was read and verified.
    request: Option<Box<ReadRequest>>,
    /// Looks at a request that could not be read, or is not there.
    looks: u32,
}

impl Desk {
    fn take_in(&mut self, entries: &[QueueEntry]) {
        for place in entries.iter().map(Place::from) {
            if self.pending.len() < MAX_PENDING && !self.decided.contains(&place) {
                self.pending.entry(place).or_default();
            }
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

    /// Entries in the window whose request is still to be read: the least looked at first, so that
    /// entries whose request never comes hold up no other, and then the oldest.
    fn unread(&self, now_unix: u64) -> Vec<Place> {
        let in_window = |place: &Place| check_age(Seconds::new(place.issued_at), now_unix).is_ok();
        let unread = self
            .pending
            .iter()
            .filter(|(place, entry)| entry.request.is_none() && in_window(place));
        let mut unread: Vec<_> = unread.map(|(place, entry)| (entry.looks, *place)).collect();
        unread.sort_unstable();
        unread.into_iter().map(|(_, place)| place).take(EXAMINED_A_ROUND).collect()
    }

    fn look_again(&mut self, place: Place) {
        if let Some(entry) = self.pending.get_mut(&place) {
            entry.looks += 1;
        }
    }

    fn verified(&mut self, place: Place, request: Box<ReadRequest>) {
        self.pending.insert(place, Pending { request: Some(request), looks: 0 });
    }

    fn genuine(&self) -> Vec<Place> {
        let genuine = self.pending.iter().filter(|(_, entry)| entry.request.is_some());
        genuine.map(|(place, _)| *place).collect()
    }
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
    let mut watch = QueueWatch::new(agent.ports.bucket.clone(), region, Pace::default());
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
            () = agent.ctx().sleep(AGAIN_AFTER), if !idle => {}
        }
        round(agent, &mut desk, reads).await;
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
        take_on(agent, desk, place, reads).await;
    }
}

async fn examine_unread(agent: &Agent, desk: &mut Desk) {
    let unread = desk.unread(agent.ctx().now_unix());
    let looks = unread.into_iter().map(async |place| (place, look_at(agent, place).await));
    let looks: Vec<_> = futures::stream::iter(looks).buffered(EXAMINED_AT_ONCE).collect().await;
    for (place, examined) in looks {
        match examined {
            Examined::Later => desk.look_again(place),
            Examined::Genuine(request) => desk.verified(place, request),
            Examined::Refused(refusal) => {
                if !refusal.is_silent() {
                    tracing::warn!(id = %place.id, %refusal, "a read request is refused");
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
async fn take_on(agent: &Arc<Agent>, desk: &mut Desk, place: Place, reads: &Reads) {
    let cancel = Key::Cancel(place.id).to_path();
    match agent.ports.bucket.get(&cancel, Purpose::Claim).await {
        Ok(None) => {}
        Ok(Some(_)) => return desk.decide(place),
        Err(error) => return tracing::debug!(id = %place.id, %error, "cancel not readable"),
    }
    let counted = running(&*agent.ports.workers).await;
    let (slot, reservation) = match agent.admission.admit_read(counted) {
        Ok(admitted) => admitted,
        Err(reason) => return tracing::debug!(id = %place.id, %reason, "a read waits"),
    };
    let Some(Pending { request: Some(request), .. }) = desk.pending.remove(&place) else { return };
    desk.decide(place);
    let candidate = Candidate { request: *request, slot, reservation };
    let task = agent.ctx().spawn(read::run(Arc::clone(agent), candidate));
    reads.push(AbortOnDropHandle::new(task));
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
        let unread: Vec<u64> = desk.unread(NOW).iter().map(|place| place.issued_at).collect();
        assert_eq!(unread, [NOW - 60, NOW + 60]);
        // The one from the future is kept until its time comes, the old one is gone.
        assert_eq!(desk.pending.len(), 3);
    }

    #[test]
    fn one_id_under_two_times_is_two_entries() {
        let mut desk = Desk::default();
        let (forged, genuine) = (entry(NOW - 1, 1), entry(NOW, 1));
        desk.take_in(&[forged.clone(), genuine.clone()]);
        desk.decide(Place::from(&forged));
        assert_eq!(desk.unread(NOW), [Place::from(&genuine)]);
    }

    #[test]
    fn entries_whose_request_never_comes_hold_up_no_other() {
        let mut desk = Desk::default();
        let forged: Vec<_> = (0..40).map(|number| entry(NOW - 1, number)).collect();
        desk.take_in(&forged);
        let genuine = entry(NOW, 99);
        desk.take_in(std::slice::from_ref(&genuine));
        for place in desk.unread(NOW) {
            desk.look_again(place);
        }
        assert!(desk.unread(NOW).contains(&Place::from(&genuine)));
    }

    #[test]
    fn a_flood_is_bounded() {
        let mut desk = Desk::default();
        let flood: Vec<QueueEntry> = (0..10_000).map(|number| entry(NOW, number)).collect();
        desk.take_in(&flood);
        assert_eq!(desk.pending.len(), MAX_PENDING);
        assert_eq!(desk.unread(NOW).len(), EXAMINED_A_ROUND);
        flood.iter().for_each(|entry| desk.decide(Place::from(entry)));
        assert_eq!((desk.pending.len(), desk.decided.len()), (0, MAX_DECIDED));
    }
}
