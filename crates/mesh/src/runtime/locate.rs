//! Keeps one node and its mesh's store in step (decisions 2 to 7).

use std::time::Duration;

use carlos_bucket::{Context, Pace, Poller};
use carlos_protocol::ids::Revision;
use carlos_protocol::mesh::{Descriptor, NodeState, PeerSight, Rid};
use tokio::sync::{mpsc, watch};
use tokio_util::sync::CancellationToken;

use crate::core::Event;
use crate::store::{MeshStore, News, StorePace};

/// Between two writes of one node: a weight that is turned all the time costs no more than this.
const WRITE_EVERY: Duration = Duration::from_secs(1);

/// What the store is to know of this node.
#[derive(Clone, Debug)]
pub(crate) struct Own {
    pub(crate) descriptor: Descriptor,
    pub(crate) peers: Vec<PeerSight>,
}

/// The loop of one node.
pub(crate) struct Locator {
    pub(crate) store: Box<dyn MeshStore>,
    pub(crate) pace: StorePace,
    pub(crate) ctx: Context,
    pub(crate) own: watch::Receiver<Own>,
    pub(crate) events: mpsc::Sender<Event>,
    pub(crate) lookups: mpsc::Receiver<Rid>,
}

/// When what was done last.
struct Done {
    published: Revision,
    published_at: Duration,
    announced: Revision,
    announced_at: Duration,
    listed_at: Duration,
    /// The last look failed: the next that succeeds lists, and ends the outage.
    failing: bool,
    written_at: Duration,
}

impl Done {
    fn is_list_due(&self, now: Duration, pace: &StorePace) -> bool {
        self.failing || now.saturating_sub(self.listed_at) >= pace.list
    }
}

impl Locator {
    /// Runs until `stop`, and then says that the node stopped. The node's first revision is
    /// claimed and announced, and one list read, before.
    pub(crate) async fn run(mut self, stop: CancellationToken) {
        let first = self.own.borrow_and_update().descriptor.revision;
        let now = self.ctx.monotonic();
        let mut done = Done {
            published: Revision::FIRST,
            published_at: now,
            announced: first,
            announced_at: now,
            listed_at: now,
            failing: false,
            written_at: now,
        };
        let pace = Pace {
            idle: self.pace.idle,
            active: self.pace.active,
            linger: self.pace.linger,
            ..Pace::default()
        };
        let mut poller = Poller::new(self.ctx.clone(), pace);
        while !stop.is_cancelled() {
            self.write(&mut done).await;
            self.wait(&mut poller, &mut done, &stop).await;
        }
        self.farewell().await;
    }

    /// Publishes and announces what is due; renewals come before everything else (decision 7).
    async fn write(&mut self, done: &mut Done) {
        let now = self.ctx.monotonic();
        let own = self.own.borrow_and_update().clone();
        let newer = own.descriptor.revision > done.published;
        let stale = now.saturating_sub(done.published_at) >= self.pace.republish;
        let rested = now.saturating_sub(done.written_at) >= WRITE_EVERY;
        if (newer && rested) || stale {
            done.written_at = now;
            match self.store.publish(&own.descriptor).await {
                Ok(()) => {
                    done.published = own.descriptor.revision;
                    done.published_at = now;
                }
                Err(error) => tracing::warn!(%error, "a descriptor is not published"),
            }
        }
        let due = now.saturating_sub(done.announced_at) >= self.pace.renew;
        if due || done.published > done.announced {
            match self.store.announce(&own.descriptor, done.published, &own.peers).await {
                Ok(()) => {
                    done.announced = done.published;
                    done.announced_at = now;
                }
                Err(error) => tracing::warn!(%error, "the node is not announced"),
            }
        }
    }

    /// Until the next look, or until there is something to write or to look up.
    async fn wait(&mut self, poller: &mut Poller, done: &mut Done, stop: &CancellationToken) {
        let renewal = (done.announced_at + self.pace.renew).saturating_sub(self.ctx.monotonic());
        let ctx = self.ctx.clone();
        let newer = self.own.borrow().descriptor.revision > done.published;
        let rest = if newer { renewal.min(WRITE_EVERY) } else { renewal };
        tokio::select! {
            biased;
            () = stop.cancelled() => {}
            Some(rid) = self.lookups.recv() => self.look_up(rid).await,
            changed = self.own.changed(), if !newer => {
                if changed.is_err() {
                    stop.cancel();
                }
            }
            () = poller.wait() => self.look(poller, done).await,
            () = ctx.sleep(rest) => {}
        }
    }

    async fn look(&mut self, poller: &mut Poller, done: &mut Done) {
        let now = self.ctx.monotonic();
        match self.store.poll().await {
            Ok(News::Moved) => poller.saw_work(),
            Ok(News::Same) if !done.is_list_due(now, &self.pace) => {
                return poller.answered();
            }
            Ok(News::Same) => {}
            Err(_) => return self.failed(poller, done).await,
        }
        match self.store.list().await {
            Ok(listing) => {
                poller.answered();
                done.listed_at = now;
                done.failing = false;
                self.tell(Event::Listing(listing)).await;
            }
            Err(_) => self.failed(poller, done).await,
        }
    }

    async fn failed(&self, poller: &mut Poller, done: &mut Done) {
        poller.turned_away();
        done.failing = true;
        self.tell(Event::StoreFailed).await;
    }

    async fn look_up(&mut self, rid: Rid) {
        let found = self.store.look_up(&rid).await.ok().flatten();
        self.tell(Event::Found(rid, found.map(Box::new))).await;
    }

    /// The node's last revision says that it stopped; nobody deletes (decision 3).
    async fn farewell(&mut self) {
        let own = self.own.borrow().clone();
        // A host that is dropped says nothing: its announcements run out.
        if own.descriptor.state != NodeState::Stopped {
            return;
        }
        if self.store.publish(&own.descriptor).await.is_ok() {
            let revision = own.descriptor.revision;
            let _ = self.store.announce(&own.descriptor, revision, &own.peers).await;
        }
    }

    /// The node task is gone only when the host ends.
    async fn tell(&self, event: Event) {
        let _ = self.events.send(event).await;
    }
}
