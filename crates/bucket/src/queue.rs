//! The queue of one region: empty objects whose names begin with a time, so that one listing reads
//! the pickup window and its cost does not grow with history (db-forward §5.4, §5.8).

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use bytes::Bytes;
use carlos_protocol::ids::{ReadId, Region};
use carlos_protocol::keys::{Key, QueueEntry, queue_prefix, queue_start};
use carlos_protocol::limits::{CLOCK_SKEW, PICKUP_WINDOW, QUEUE_SWEEP};
use carlos_protocol::time::{Hour, Seconds};

use crate::bucket::{Bucket, Listed, Outcome};
use crate::deadline::Purpose;
use crate::poller::{Pace, Poller};
use crate::serial::{News, Serial};
use crate::verdict::ReadError;

/// How far back a listing starts: the window, and a clock that runs ahead by the allowed skew.
const LOOK_BACK: Duration = PICKUP_WINDOW.saturating_add(CLOCK_SKEW);

/// Writes and reads one region's queue.
#[derive(Clone, Debug)]
pub struct Queue {
    bucket: Bucket,
    region: Region,
}

impl Queue {
    /// The queue of `region`.
    pub fn new(bucket: Bucket, region: Region) -> Self {
        Self { bucket, region }
    }

    /// Announces a request that exists. The key is unique to its read, so meeting an empty object
    /// there is meeting oneself.
    pub async fn add(&self, entry: &QueueEntry, purpose: Purpose) -> Outcome {
        self.bucket.create(&entry.to_string(), Bytes::new(), purpose).await
    }

    /// The entries that are in the window by this process's clock, oldest first. Names that are not
    /// entries are passed over.
    ///
    /// # Errors
    /// [`ReadError`] when an hour could not be listed; half a window is not an answer.
    pub async fn window(&self) -> Result<Vec<QueueEntry>, ReadError> {
        let now = self.bucket.context().now_unix();
        let oldest = now.saturating_sub(LOOK_BACK.as_secs());
        let newest = now + CLOCK_SKEW.as_secs();
        let mut entries = self.hour(Hour::of(oldest), oldest).await?;
        if Hour::of(newest) != Hour::of(oldest) {
            entries.extend(self.hour(Hour::of(newest), oldest).await?);
        }
        entries.retain(|entry| (oldest..=newest).contains(&entry.issued_at.unix()));
        entries.sort_by_key(|entry| (entry.issued_at.unix(), entry.id.as_text()));
        Ok(entries)
    }

    async fn hour(&self, hour: Hour, oldest: u64) -> Result<Vec<QueueEntry>, ReadError> {
        let start = queue_start(&self.region, hour, Seconds::new(oldest));
        let prefix = queue_prefix(&self.region, hour);
        let listed = self.bucket.list(&prefix, Some(&start), Purpose::Sweep).await?;
        Ok(listed.iter().filter_map(entry).collect())
    }
}

fn entry(listed: &Listed) -> Option<QueueEntry> {
    match Key::parse(&listed.key) {
        Ok(Key::Queue(entry)) => Some(entry),
        _ => None,
    }
}

/// How long a new entry alone keeps a watch quick: until the election over it is decided, from the
/// other side of the world too. Whoever wins it says so with its [`Alarm`].
const UNDECIDED: Duration = Duration::from_secs(3);

/// Keeps a watch quick for the pace's linger. Clones ring the same watch.
///
/// Every box of a region lists a new entry and one takes the read; if all of them stayed quick for
/// a minute, a read would cost more with each box that the region has.
#[derive(Clone, Debug, Default)]
pub struct Alarm(Arc<AtomicBool>);

impl Alarm {
    /// There is work of one's own: the next read usually follows soon.
    pub fn ring(&self) {
        self.0.store(true, Ordering::Relaxed);
    }

    fn take(&self) -> bool {
        self.0.swap(false, Ordering::Relaxed)
    }
}

/// A box's watch over its queue: polls the serial, lists when it moves and every 30 s if it does
/// not, quickens while there is work.
#[derive(Debug)]
pub struct QueueWatch {
    queue: Queue,
    serial: Serial,
    poller: Poller,
    alarm: Alarm,
    listed_at: Option<Duration>,
    /// What the last listing showed: each sweep of two minutes shows an entry again, and only its
    /// first sight is news.
    shown: BTreeSet<(u64, ReadId)>,
    owed: bool,
}

impl QueueWatch {
    /// A watch over the queue of `region`. Its first look lists.
    pub fn new(bucket: Bucket, region: Region, pace: Pace) -> Self {
        let poller = Poller::new(bucket.context().clone(), pace);
        let serial = Serial::new(bucket.clone(), Key::Serial(region.clone()).to_path());
        let queue = Queue::new(bucket, region);
        let (alarm, shown) = (Alarm::default(), BTreeSet::new());
        Self { queue, serial, poller, alarm, listed_at: None, shown, owed: true }
    }

    /// This watch, kept quick by `alarm`.
    pub fn woken_by(self, alarm: Alarm) -> Self {
        Self { alarm, ..self }
    }

    /// Waits for the next listing and returns its window, which holds entries of earlier windows
    /// again while they are in it. Safe to drop and call again, so it can stand in a `select!`
    /// beside the shutdown signal.
    pub async fn next(&mut self) -> Vec<QueueEntry> {
        loop {
            if self.alarm.take() {
                self.poller.saw_work();
            }
            self.poller.wait().await;
            self.look().await;
            if !self.owed {
                continue;
            }
            match self.queue.window().await {
                Ok(entries) => return self.listed(entries),
                Err(error) => self.failed("list the queue", &error),
            }
        }
    }

    /// One look at the serial. A failed look changes nothing but the pace.
    async fn look(&mut self) {
        match self.serial.poll().await {
            Ok(news) => {
                self.poller.answered();
                self.owed |= news == News::Moved;
            }
            Err(error) => self.failed("read the serial", &error),
        }
        self.owed |= self.sweep_is_due();
    }

    fn sweep_is_due(&self) -> bool {
        let now = self.queue.bucket.context().monotonic();
        self.listed_at.is_none_or(|at| now >= at + QUEUE_SWEEP)
    }

    fn listed(&mut self, entries: Vec<QueueEntry>) -> Vec<QueueEntry> {
        self.owed = false;
        self.listed_at = Some(self.queue.bucket.context().monotonic());
        let shown: BTreeSet<_> =
            entries.iter().map(|entry| (entry.issued_at.unix(), entry.id)).collect();
        if !shown.is_subset(&self.shown) {
            self.poller.quicken(UNDECIDED);
        }
        self.shown = shown;
        entries
    }

    fn failed(&mut self, what: &str, error: &ReadError) {
        tracing::warn!(region = %self.queue.region, %error, "cannot {what}");
        self.poller.turned_away();
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;

    use async_trait::async_trait;
    use object_store::ObjectMeta;
    use object_store::memory::InMemory;
    use object_store::path::Path;

    use super::*;
    use crate::fault::{Fault, FaultStore, Rule};
    use crate::layer::{Inner, Layer, Layered, Op, list_inner};
    use crate::{Context, Kind};

    const START_MS: u64 = 1_792_659_600_000;
    const HOUR: Duration = Duration::from_secs(3_600);

    fn uk() -> Region {
        Region::parse("uk").expect("a label")
    }

    fn faulty() -> (Bucket, FaultStore) {
        let ctx = Context::simulated(21, START_MS);
        let (store, faults) = FaultStore::wrap(Arc::new(InMemory::new()), &ctx);
        (Bucket::new(store, ctx), faults)
    }

    async fn add(bucket: &Bucket) -> QueueEntry {
        let issued_at = Seconds::new(bucket.context().now_unix());
        let id = ReadId::mint(&mut bucket.context().entropy());
        let entry = QueueEntry { region: uk(), issued_at, id };
        let end = Queue::new(bucket.clone(), uk()).add(&entry, Purpose::Claim).await;
        assert_eq!(end, Outcome::Created);
        entry
    }

    async fn watch_for_an_hour(bucket: &Bucket) -> usize {
        let mut watch = QueueWatch::new(bucket.clone(), uk(), Pace::default());
        let mut seen = 0;
        let watching = async {
            loop {
                seen += watch.next().await.len();
            }
        };
        let ended = bucket.context().timeout(HOUR, watching).await;
        ended.expect_err("a watch has no end");
        seen
    }

    /// litestream#234: a listing costs twelve GETs, so an idle hour must hold no more than sweeps.
    #[tokio::test(start_paused = true)]
    async fn an_idle_hour_lists_only_to_sweep() {
        let (bucket, _) = faulty();
        Serial::new(bucket.clone(), "control/serial/uk").bump().await.expect("a healthy store");
        assert_eq!(watch_for_an_hour(&bucket).await, 0);
        let (list, get) =
            (bucket.counters().of(Kind::List).sent, bucket.counters().of(Kind::Get).sent);
        // One sweep in 30 s, a second LIST for the few sweeps at the turn of the hour.
        assert!((100..=130).contains(&list), "{list} listings");
        assert!(get <= 1_800, "{get} reads");
    }

    /// One LIST from the window's start on, whatever the hour has seen before it; two around the
    /// turn of an hour, whose names are under two prefixes.
    #[tokio::test(start_paused = true)]
    async fn a_sweep_is_one_page_from_the_windows_start() {
        let (store, asked) = Asked::wrap(Arc::new(InMemory::new()));
        let bucket = Bucket::new(store, Context::simulated(21, START_MS));
        let ctx = bucket.context();
        ctx.sleep(Duration::from_secs(30 * 60)).await;
        for second in 0..25 * 60 {
            for _ in 0..2 {
                let issued_at = Seconds::new(START_MS / 1_000 + second);
                let id = ReadId::mint(&mut ctx.entropy());
                let entry = QueueEntry { region: uk(), issued_at, id };
                assert!(
                    Queue::new(bucket.clone(), uk()).add(&entry, Purpose::Claim).await.is_ours()
                );
            }
        }
        let entry = add(&bucket).await;
        let before = bucket.counters().of(Kind::List).sent;
        let queue = Queue::new(bucket.clone(), uk());
        assert_eq!(queue.window().await, Ok(vec![entry]));
        assert_eq!(bucket.counters().of(Kind::List).sent, before + 1, "a page of 3,000 entries");
        let start =
            queue_start(&uk(), Hour::of(ctx.now_unix()), Seconds::new(ctx.now_unix() - 120));
        assert_eq!(asked.lists(), [start]);
        // From a minute before the turn, for clocks that run ahead, to two minutes after it.
        for (second, lists) in [(58, 1), (59, 2), (61, 2), (63, 1)] {
            ctx.sleep(Duration::from_secs(second * 60 + 30) - ctx.monotonic()).await;
            let _entries = queue.window().await.expect("a memory store");
            assert_eq!(asked.lists().len(), lists, "at {second}:30");
        }
    }

    /// Where each listing was told to begin.
    #[derive(Debug, Default)]
    struct Asked(Mutex<Vec<String>>);

    impl Asked {
        fn wrap(inner: Inner) -> (Inner, Arc<Self>) {
            let asked = Arc::<Self>::default();
            (Layered::new(inner, Arc::clone(&asked)), asked)
        }

        /// Those since the last call.
        fn lists(&self) -> Vec<String> {
            std::mem::take(&mut *self.0.lock().expect("nobody panics"))
        }
    }

    #[async_trait]
    impl Layer for Asked {
        async fn list(
            &self,
            inner: &Inner,
            prefix: Option<&Path>,
            after: Option<&Path>,
        ) -> object_store::Result<Vec<ObjectMeta>> {
            let after = after.expect("no queue is listed from its beginning");
            self.0.lock().expect("nobody panics").push(after.to_string());
            list_inner(inner, prefix, Some(after)).await
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_store_that_refuses_for_an_hour_is_asked_seldom() {
        let (bucket, faults) = faulty();
        faults.add(Rule::new(Op::Get, Fault::Refused(503)).always());
        faults.add(Rule::new(Op::List, Fault::Refused(503)).always());
        assert_eq!(watch_for_an_hour(&bucket).await, 0);
        let sent: u64 = bucket.counters().snapshot().iter().map(|(_, tally)| tally.sent).sum();
        assert!((100..=1_500).contains(&sent), "{sent} requests");
    }

    #[tokio::test(start_paused = true)]
    async fn a_moved_serial_is_followed_within_the_idle_pace() {
        let (bucket, _) = faulty();
        let mut watch = QueueWatch::new(bucket.clone(), uk(), Pace::default());
        assert!(watch.next().await.is_empty());
        let entry = add(&bucket).await;
        Serial::new(bucket.clone(), "control/serial/uk").bump().await.expect("a healthy store");
        let begun = bucket.context().monotonic();
        assert_eq!(watch.next().await, [entry]);
        assert!(bucket.context().monotonic() - begun <= Duration::from_secs(2));
    }

    /// The second read of a busy minute is picked up in a quarter of a second.
    #[tokio::test(start_paused = true)]
    async fn work_quickens_the_watch() {
        let (bucket, _) = faulty();
        let serial = Serial::new(bucket.clone(), "control/serial/uk");
        let mut watch = QueueWatch::new(bucket.clone(), uk(), Pace::default());
        add(&bucket).await;
        assert_eq!(watch.next().await.len(), 1);
        add(&bucket).await;
        serial.bump().await.expect("a healthy store");
        let begun = bucket.context().monotonic();
        assert_eq!(watch.next().await.len(), 2);
        assert!(bucket.context().monotonic() - begun <= Duration::from_millis(260));
    }

    /// Looks at the serial in the minute that begins `after` seconds after a new entry.
    async fn looks_after(after: u64, won: bool) -> u64 {
        let (bucket, _) = faulty();
        let ctx = bucket.context().clone();
        let alarm = Alarm::default();
        let watch = QueueWatch::new(bucket.clone(), uk(), Pace::default());
        let mut watch = watch.woken_by(alarm.clone());
        watch.next().await;
        add(&bucket).await;
        Serial::new(bucket.clone(), "control/serial/uk").bump().await.expect("a healthy store");
        watch.next().await;
        ctx.spawn(async move {
            loop {
                watch.next().await;
            }
        });
        if won {
            alarm.ring();
        }
        ctx.sleep(Duration::from_secs(after)).await;
        let before = bucket.counters().of(Kind::Get).sent;
        ctx.sleep(Duration::from_secs(60)).await;
        bucket.counters().of(Kind::Get).sent - before
    }

    /// A lost election leaves a box as quiet as it was, and an entry that sweeps show again for two
    /// minutes wakes nobody.
    #[tokio::test(start_paused = true)]
    async fn only_whoever_works_stays_awake_and_for_a_minute() {
        assert!((235..=245).contains(&looks_after(0, true).await));
        assert!(looks_after(65, true).await <= 31);
        assert!(looks_after(0, false).await <= 31 + 12);
        assert!(looks_after(5, false).await <= 31);
    }

    #[tokio::test(start_paused = true)]
    async fn a_failed_listing_is_owed() {
        let (bucket, faults) = faulty();
        let serial = Serial::new(bucket.clone(), "control/serial/uk");
        let mut watch = QueueWatch::new(bucket.clone(), uk(), Pace::default());
        assert!(watch.next().await.is_empty());
        add(&bucket).await;
        serial.bump().await.expect("a healthy store");
        faults.add(Rule::new(Op::List, Fault::Refused(403)).times(2));
        let begun = bucket.context().monotonic();
        assert_eq!(watch.next().await.len(), 1);
        assert!(bucket.context().monotonic() - begun < Duration::from_secs(15));
        assert_eq!(faults.struck().len(), 2);
    }
}
