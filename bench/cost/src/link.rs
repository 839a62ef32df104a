//! The way from one process to a bucket: it takes time, and everything on it is counted.

use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use async_trait::async_trait;
use carlos_bucket::Context;
use carlos_bucket::layer::{Inner, Layer, Layered, Op, list_inner};
use object_store::path::Path;
use object_store::{
    Error, GetOptions, GetResult, ObjectMeta, PutOptions, PutPayload, PutResult, Result,
};

use crate::latency::Distance;
use crate::prices::Requests;

/// Keys in one page of a LIST.
const PAGE: usize = 1_000;

/// Looks at a serial closer together than this are those of somebody who waits for work: an idle
/// box looks every two seconds.
const QUICK: Duration = Duration::from_millis(1_500);

/// One process's line to one bucket. Clones share the counts.
#[derive(Clone)]
pub(crate) struct Link {
    ctx: Context,
    distance: Distance,
    counts: Arc<Mutex<Counts>>,
    landed: Landings,
}

#[derive(Default)]
struct Counts {
    requests: Requests,
    looked_at: Option<Duration>,
    quick_looks: Vec<Duration>,
}

/// When what anybody wrote took effect, by key, on the monotonic clock. A replaced object has one
/// entry for each time.
#[derive(Clone, Default)]
pub(crate) struct Landings(Arc<Mutex<Vec<(String, Duration)>>>);

impl Landings {
    /// Everything so far, in order.
    pub(crate) fn all(&self) -> Vec<(String, Duration)> {
        locked(&self.0).clone()
    }

    fn add(&self, key: &Path, at: Duration) {
        // Statuses are most of what is written and tell nothing here.
        if !key.as_ref().starts_with("control/status/") {
            locked(&self.0).push((key.to_string(), at));
        }
    }
}

impl Link {
    /// A line of this length.
    pub(crate) fn new(ctx: &Context, distance: Distance, landed: &Landings) -> Self {
        let landed = landed.clone();
        Self { ctx: ctx.clone(), distance, counts: Arc::default(), landed }
    }

    /// The bucket as the process at this end sees it.
    pub(crate) fn to(&self, store: &Inner) -> Inner {
        Layered::new(Arc::clone(store), Arc::new(self.clone()))
    }

    /// What was sent so far.
    pub(crate) fn requests(&self) -> Requests {
        locked(&self.counts).requests
    }

    /// When a serial was looked at soon after the look before.
    pub(crate) fn quick_looks(&self) -> Vec<Duration> {
        locked(&self.counts).quick_looks.clone()
    }

    fn count(&self, add: impl FnOnce(&mut Requests)) {
        add(&mut locked(&self.counts).requests);
    }

    fn note_look(&self, key: &Path) {
        if !key.as_ref().starts_with("control/serial/") {
            return;
        }
        let now = self.ctx.monotonic();
        let mut counts = locked(&self.counts);
        if counts.looked_at.is_some_and(|before| now - before < QUICK) {
            counts.quick_looks.push(now);
        }
        counts.looked_at = Some(now);
    }

    /// The store does its work halfway.
    async fn pass<T>(&self, op: Op, request: impl Future<Output = T>) -> T {
        let way = self.distance.draw(op, &self.ctx) / 2;
        self.ctx.sleep(way).await;
        let done = request.await;
        self.ctx.sleep(way).await;
        done
    }
}

fn locked<T>(shared: &Mutex<T>) -> MutexGuard<'_, T> {
    shared.lock().expect("nobody panics while counting")
}

#[async_trait]
impl Layer for Link {
    async fn put(
        &self,
        inner: &Inner,
        key: &Path,
        body: PutPayload,
        options: PutOptions,
    ) -> Result<PutResult> {
        let op = Op::of(&options);
        self.count(|sent| match op {
            Op::Create => sent.create += 1,
            _ => sent.put += 1,
        });
        let landing = async {
            let done = inner.put_opts(key, body, options).await?;
            self.landed.add(key, self.ctx.monotonic());
            Ok(done)
        };
        self.pass(op, landing).await
    }

    async fn get(&self, inner: &Inner, key: &Path, options: GetOptions) -> Result<GetResult> {
        self.note_look(key);
        let found = self.pass(Op::Get, inner.get_opts(key, options)).await;
        self.count(|sent| match found {
            Err(Error::NotModified { .. }) => sent.not_modified += 1,
            _ => sent.get += 1,
        });
        found
    }

    async fn list(
        &self,
        inner: &Inner,
        prefix: Option<&Path>,
        after: Option<&Path>,
    ) -> Result<Vec<ObjectMeta>> {
        let found = self.pass(Op::List, list_inner(inner, prefix, after)).await;
        let pages = found.as_ref().map_or(1, |found| found.len().div_ceil(PAGE).max(1));
        self.count(|sent| sent.list += pages as u64);
        found
    }
}

impl fmt::Debug for Link {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "a link from {}", self.distance.name())
    }
}
