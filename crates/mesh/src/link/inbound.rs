//! What comes in: messages into mailboxes, replies to their requests, credit back to the sender.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::task::Waker;
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use carlos_protocol::mesh::{
    Credit, Head, Metadata, OWNER_NODE, Outcome, Record, RecordError, ReplyHead,
};

use super::Link;
use super::out::COPY_BELOW;
use super::requests::{ReplyContent, failure};
use crate::delivery::{Full, Job, Mailbox, Owner, ReplyTo, answer_failure};
use crate::handler::MessageKind;

/// Credit goes back once an eighth of the window has come together.
const RETURN_SHARE: u64 = 8;

/// Large messages of one peer in transit at once: one for each of its channels' owners, and no
/// peer has a reason for more.
const PARTIALS: usize = 1_024;

/// The most a large body grows at once: a declared size costs nothing before its bytes arrive.
const GROWTH: u64 = 1024 * 1024;

/// The inbound half of a link.
pub(crate) struct Inbound {
    link: Arc<Link>,
    /// This node's channels in the order of its descriptor, node direct last.
    owners: Arc<[Arc<Owner>]>,
    returns: Returns,
    /// Messages that found no room, by owner.
    parked: BTreeMap<usize, VecDeque<Parked>>,
    messages: BTreeMap<u32, Partial>,
    replies: BTreeMap<u64, PartialReply>,
    /// Too many replies wait for this peer: its requests are held back.
    behind: bool,
}

/// A whole message and the credit that comes back when it gets in.
struct Parked {
    job: Job,
    cost: u64,
}

/// A message of which parts are missing. Without a job its bytes are thrown away as they come.
struct Partial {
    owner: usize,
    job: Option<Job>,
    /// Its charge is in the mailbox.
    reserved: bool,
    /// Credit that is held back until it is.
    held: u64,
    body: BytesMut,
    left: u64,
}

struct PartialReply {
    content: ReplyContent,
    body: BytesMut,
    left: u64,
}

/// A record that has no business here.
const OUT_OF_PLACE: RecordError = RecordError::Body(0);

impl Inbound {
    /// The inbound half of `link`, which granted the peer `window` bytes.
    pub(crate) fn new(link: Arc<Link>, owners: Arc<[Arc<Owner>]>, window: u64) -> Self {
        let returns = Returns::new(owners.len(), window);
        Self {
            link,
            owners,
            returns,
            parked: BTreeMap::new(),
            messages: BTreeMap::new(),
            replies: BTreeMap::new(),
            behind: false,
        }
    }

    /// Looks once for each batch whether replies pile up.
    pub(super) fn begin_batch(&mut self) {
        self.behind = self.link.lane.is_behind_with_replies();
    }

    /// Takes a message, or the first part of one; `batch` is what its payload lies in.
    pub(super) fn message(
        &mut self,
        head: &Head<'_>,
        payload: &[u8],
        batch: &Bytes,
        now: Duration,
    ) -> Result<(), RecordError> {
        let index = self.owner_index(head.owner)?;
        let cost = head.record_bytes(payload.len()) as u64;
        let job = self.job(index, head, payload.len(), now);
        let job = job.map_err(|(outcome, text)| self.turn_away(index, head, outcome, text)).ok();
        match (head.parted, job) {
            (None, None) => self.returns.add(index, cost),
            (None, Some(job)) => {
                self.deliver(index, Job { payload: keep(payload, batch), ..job }, cost);
            }
            (Some(parted), job) => {
                self.begin_large(index, parted.stream, parted.total, job)?;
                self.part(parted.stream, payload, cost)?;
            }
        }
        Ok(())
    }

    /// Takes a further part of a message.
    pub(super) fn message_part(&mut self, stream: u32, part: &[u8]) -> Result<(), RecordError> {
        self.part(stream, part, Head::part_bytes(part.len()) as u64)
    }

    /// Takes a reply, or the first part of one.
    pub(super) fn reply(
        &mut self,
        head: &ReplyHead<'_>,
        payload: &[u8],
        batch: &Bytes,
    ) -> Result<(), RecordError> {
        let requests = &self.link.requests;
        if head.outcome != Outcome::Done {
            requests.end(head.correlation, Err(failure(head.outcome, payload)));
            return Ok(());
        }
        let content = head.content.into();
        let Some(total) = head.total else {
            requests.end(head.correlation, Ok((content, keep(payload, batch))));
            return Ok(());
        };
        let mut partial = PartialReply { content, body: body_for(total), left: total };
        partial.left -= payload.len() as u64;
        partial.body.extend_from_slice(payload);
        match self.replies.len() < PARTIALS {
            true => self.replies.insert(head.correlation, partial),
            false => return Err(OUT_OF_PLACE),
        };
        Ok(())
    }

    /// Takes a further part of a reply. The asker may be gone: then its bytes are not kept.
    pub(super) fn reply_part(&mut self, correlation: u64, part: &[u8]) -> Result<(), RecordError> {
        let partial = self.replies.get_mut(&correlation).ok_or(OUT_OF_PLACE)?;
        partial.left = partial.left.checked_sub(part.len() as u64).ok_or(OUT_OF_PLACE)?;
        match self.link.requests.is_open(correlation) {
            true => partial.body.extend_from_slice(part),
            false => partial.body = BytesMut::new(),
        }
        if partial.left == 0
            && let Some(whole) = self.replies.remove(&correlation)
        {
            self.link.requests.end(correlation, Ok((whole.content, whole.body.freeze())));
        }
        Ok(())
    }

    /// Tries again what found no room; `waker` is woken when there may be some.
    pub(super) fn unpark(&mut self, waker: &Waker) {
        if self.parked.is_empty() && self.messages.values().all(|partial| partial.held == 0) {
            return;
        }
        self.behind = self.link.lane.is_behind_with_replies();
        let owners: Vec<usize> = self.parked.keys().copied().collect();
        for index in owners {
            self.owners[index].mailbox.park(waker);
            while let Some(Parked { job, cost }) = self.pop_parked(index) {
                if let Some(job) = self.try_deliver(index, job, cost) {
                    self.parked.entry(index).or_default().push_front(Parked { job, cost });
                    break;
                }
            }
        }
        self.reserve_partials(waker);
    }

    /// Gives credit back: when enough has come together, or all of it.
    pub(super) fn flush(&mut self, all: bool) {
        if let Some(grants) = self.returns.take(all) {
            self.link.lane.control(&Record::Credit(grants));
        }
    }

    /// Whether some credit waits to be given back.
    pub(super) fn owes(&self) -> bool {
        self.returns.total > 0
    }

    fn owner_index(&self, owner: u16) -> Result<usize, RecordError> {
        let node = self.owners.len() - 1;
        match owner {
            OWNER_NODE => Ok(node),
            _ => Some(usize::from(owner)).filter(|&index| index < node).ok_or(OUT_OF_PLACE),
        }
    }

    /// Everything of a message but its payload, or the reason why no handler will see it.
    fn job(
        &self,
        index: usize,
        head: &Head<'_>,
        here: usize,
        now: Duration,
    ) -> Result<Job, (Outcome, &'static str)> {
        let owner = &self.owners[index];
        let kind = if head.asked.is_some() { MessageKind::Request } else { MessageKind::Send };
        let Some(handler) = owner.handlers.find(kind, head.packet) else {
            owner.stats.no_handler.fetch_add(1, Ordering::Relaxed);
            return Err((Outcome::NoHandler, "no handler for this packet"));
        };
        if handler.scope.content != head.content {
            return Err((Outcome::ProtocolError, "another content type is expected"));
        }
        let metadata = match head.metadata {
            [] => Metadata::new(),
            bytes => Metadata::from_bytes(bytes)
                .map_err(|_| (Outcome::ProtocolError, "the metadata cannot be read"))?,
        };
        let reply = match head.asked {
            None => ReplyTo::Nobody,
            Some(asked) => ReplyTo::Link(Arc::clone(&self.link), asked.correlation),
        };
        let budget = head.asked.map(|asked| Duration::from_millis(asked.budget_ms.into()));
        Ok(Job {
            handler: Arc::clone(handler),
            source: Arc::clone(&self.link.peer),
            metadata,
            payload: Bytes::new(),
            reply,
            expires: budget.map(|budget| now + budget),
            charge: Mailbox::charge(head.total(here), head.metadata.len()),
        })
    }

    fn turn_away(&self, index: usize, head: &Head<'_>, outcome: Outcome, text: &'static str) {
        self.owners[index].stats.dropped.fetch_add(1, Ordering::Relaxed);
        if let Some(asked) = head.asked {
            self.link.refuse(asked.correlation, outcome, text);
        }
    }

    /// A whole message: into the mailbox, or behind those that wait already (decision 14).
    fn deliver(&mut self, index: usize, job: Job, cost: u64) {
        let queued = self.parked.contains_key(&index);
        let job = match queued {
            true => Some(job),
            false => self.try_deliver(index, job, cost),
        };
        if let Some(job) = job {
            self.parked.entry(index).or_default().push_back(Parked { job, cost });
        }
    }

    /// The message again when there is no room for it now.
    fn try_deliver(&mut self, index: usize, job: Job, cost: u64) -> Option<Job> {
        if self.behind && !matches!(job.reply, ReplyTo::Nobody) {
            return Some(job);
        }
        match self.owners[index].mailbox.put(job) {
            Ok(()) => {}
            Err((Full::Now, job)) => return Some(*job),
            Err((full, job)) => self.drop_job(index, &job, full),
        }
        self.returns.add(index, cost);
        None
    }

    fn drop_job(&self, index: usize, job: &Job, full: Full) {
        let (outcome, text) = match full {
            Full::Sealed => (Outcome::ShuttingDown, "the node takes no more work"),
            Full::Now | Full::TooLarge => (Outcome::Unavailable, "the mailbox has no room"),
        };
        self.owners[index].stats.dropped.fetch_add(1, Ordering::Relaxed);
        answer_failure(&job.reply, outcome, text);
    }

    fn pop_parked(&mut self, index: usize) -> Option<Parked> {
        let queue = self.parked.get_mut(&index)?;
        let first = queue.pop_front();
        if queue.is_empty() {
            self.parked.remove(&index);
        }
        first
    }

    /// Reserves room from the head alone, before a byte of the payload is kept (decision 16).
    fn begin_large(
        &mut self,
        owner: usize,
        stream: u32,
        total: u64,
        job: Option<Job>,
    ) -> Result<(), RecordError> {
        if self.messages.len() >= PARTIALS || self.messages.contains_key(&stream) {
            return Err(OUT_OF_PLACE);
        }
        let room = match (&job, self.parked.contains_key(&owner)) {
            (None, _) => Ok(()),
            (Some(_), true) => Err(Full::Now),
            (Some(job), false) => self.owners[owner].mailbox.reserve(job.charge),
        };
        let (job, reserved) = match (room, job) {
            (Ok(()), job) => (job, true),
            (Err(Full::Now), job) => (job, false),
            (Err(full), job) => {
                job.iter().for_each(|job| self.drop_job(owner, job, full));
                (None, true)
            }
        };
        let body = if job.is_some() { body_for(total) } else { BytesMut::new() };
        let partial = Partial { owner, job, reserved, held: 0, body, left: total };
        self.messages.insert(stream, partial);
        Ok(())
    }

    fn part(&mut self, stream: u32, part: &[u8], cost: u64) -> Result<(), RecordError> {
        let partial = self.messages.get_mut(&stream).ok_or(OUT_OF_PLACE)?;
        partial.left = partial.left.checked_sub(part.len() as u64).ok_or(OUT_OF_PLACE)?;
        if partial.job.is_some() {
            partial.body.extend_from_slice(part);
        }
        match partial.reserved {
            true => self.returns.add(partial.owner, cost),
            false => partial.held += cost,
        }
        if partial.left == 0
            && let Some(whole) = self.messages.remove(&stream)
        {
            self.finish_large(whole);
        }
        Ok(())
    }

    fn finish_large(&mut self, whole: Partial) {
        let Some(job) = whole.job else { return };
        let job = Job { payload: whole.body.freeze(), ..job };
        match whole.reserved {
            true => self.owners[whole.owner].mailbox.push(job),
            false => self.deliver(whole.owner, job, whole.held),
        }
    }

    /// Large messages whose sender waits for the credit of what is here.
    fn reserve_partials(&mut self, waker: &Waker) {
        for partial in self.messages.values_mut().filter(|partial| !partial.reserved) {
            let Some(job) = &partial.job else { continue };
            let mailbox = &self.owners[partial.owner].mailbox;
            mailbox.park(waker);
            if self.parked.contains_key(&partial.owner) || mailbox.reserve(job.charge).is_err() {
                continue;
            }
            partial.reserved = true;
            self.returns.add(partial.owner, std::mem::take(&mut partial.held));
        }
    }
}

impl Drop for Inbound {
    /// The link ends: messages of which parts are missing will never run.
    fn drop(&mut self) {
        for partial in self.messages.values().filter(|partial| partial.reserved) {
            if let Some(job) = &partial.job {
                self.owners[partial.owner].mailbox.release(1, job.charge);
            }
        }
    }
}

/// Credit to give back, by owner.
struct Returns {
    owed: Vec<u64>,
    total: u64,
    at_once: u64,
}

impl Returns {
    fn new(owners: usize, window: u64) -> Self {
        let at_once = if window == 0 { GROWTH } else { window / RETURN_SHARE };
        Self { owed: vec![0; owners], total: 0, at_once }
    }

    fn add(&mut self, owner: usize, bytes: u64) {
        self.owed[owner] += bytes;
        self.total += bytes;
    }

    fn take(&mut self, all: bool) -> Option<Vec<Credit>> {
        let due = if all { 1 } else { self.at_once.max(1) };
        if self.total < due {
            return None;
        }
        self.total = 0;
        let node = self.owed.len() - 1;
        let grant = |(index, owed): (usize, &mut u64)| {
            let bytes = u32::try_from(*owed).unwrap_or(u32::MAX);
            *owed -= u64::from(bytes);
            let owner = if index == node { OWNER_NODE } else { index as u16 };
            (bytes > 0).then_some(Credit { owner, bytes })
        };
        let grants = self.owed.iter_mut().enumerate().filter_map(grant).collect();
        self.total = self.owed.iter().sum();
        Some(grants)
    }
}

/// A small payload is copied, so that it does not keep a whole read alive; a large one is shared.
fn keep(payload: &[u8], batch: &Bytes) -> Bytes {
    match payload.len() {
        0..COPY_BELOW => Bytes::copy_from_slice(payload),
        _ => batch.slice_ref(payload),
    }
}

/// Room for a body that was declared, as far as that is believed.
fn body_for(total: u64) -> BytesMut {
    BytesMut::with_capacity(total.min(GROWTH) as usize)
}
