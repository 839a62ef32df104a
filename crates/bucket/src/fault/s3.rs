//! How S3 itself behaves, as far as a caller can be misled by it. What it promises is kept: reads
//! and listings show every put that was done, and of several creates of one name one is done. What
//! it does not promise is missing: an answer need not say what was done, a put goes on when its
//! caller has left, a listing is no snapshot, and a prefix can be slowed down for a while.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use async_trait::async_trait;
use futures::channel::oneshot;
use object_store::path::Path;
use object_store::{
    GetOptions, GetResult, ObjectMeta, ObjectStore, PutOptions, PutPayload, PutResult, Result,
};

use super::{answered, broken};
use crate::Context;
use crate::layer::{Inner, Layer, Layered, Op, list_inner};

/// Keys in one answer to a LIST.
const PAGE: usize = 1_000;

/// What an ordinary put takes in the store.
const SERVICE: Duration = Duration::from_millis(60);

/// From one page of a listing to the next: a turn between caller and store, longer than a put.
const PAGE_APART: Duration = Duration::from_millis(150);

/// How often a model misleads, each as a share of the requests that it can happen to.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct S3Conduct {
    /// Requests that take up to [`Self::slowest`].
    pub slow: f64,
    /// The longest a slow request takes; a put beyond its caller's patience lands all the same.
    pub slowest: Duration,
    /// Creates that meet another create of their name on its way, and end 409 with nothing done.
    pub conflicts: f64,
    /// Creates that a front end of the store sends twice because the first answer got lost inside:
    /// done, and answered 412 or 409 after their own first half, or 500.
    pub repeats: f64,
}

/// One S3 service. Clones are the same service, seen from several lines.
#[derive(Clone)]
pub struct S3Model {
    ctx: Context,
    state: Arc<Mutex<State>>,
}

#[derive(Default)]
struct State {
    conduct: S3Conduct,
    /// Creates between their arrival and their end, by name.
    under_way: BTreeMap<String, usize>,
    /// What is slowed down: a prefix, and the share of its requests that are turned away.
    storms: Vec<(String, f64)>,
    seen: BTreeMap<&'static str, usize>,
}

impl S3Model {
    /// A service that does what it is asked at once. Chance is drawn from a stream of its own.
    pub fn new(ctx: &Context) -> Self {
        Self { ctx: ctx.node("s3"), state: Arc::default() }
    }

    /// The service in front of `inner`, which stands for what it keeps: one line's view of it.
    pub fn over(&self, inner: Inner) -> Inner {
        Layered::new(inner, Arc::new(self.clone()))
    }

    /// From now on it behaves so.
    pub fn behave(&self, conduct: S3Conduct) {
        self.state().conduct = conduct;
    }

    /// Turns away this share of all requests under `prefix` with `SlowDown`, until
    /// [`S3Model::calm_down`].
    pub fn storm(&self, prefix: &str, share: f64) {
        self.state().storms.push((prefix.to_owned(), share));
    }

    /// Ends every storm.
    pub fn calm_down(&self) {
        self.state().storms.clear();
    }

    /// How often what happened, by name.
    pub fn seen(&self) -> BTreeMap<&'static str, usize> {
        self.state().seen.clone()
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn note(&self, what: &'static str) {
        *self.state().seen.entry(what).or_default() += 1;
    }

    /// Draws only where something may happen, so that a service that behaves costs no chance.
    fn happens(&self, share: f64) -> bool {
        share > 0.0 && self.ctx.chance(share)
    }

    fn admit(&self, key: &Path) -> Result<()> {
        let under = |(prefix, _): &&(String, f64)| key.as_ref().starts_with(prefix.as_str());
        let share = self.state().storms.iter().find(under).map_or(0.0, |(_, share)| *share);
        if self.happens(share) {
            self.note("slow down");
            return Err(answered(503, key));
        }
        Ok(())
    }

    async fn take_time(&self, ordinary: Duration) {
        let S3Conduct { slow, slowest, .. } = self.state().conduct;
        let takes = match self.happens(slow) {
            true => {
                self.note("slow");
                self.ctx.jitter(slowest)
            }
            false => self.ctx.jitter(ordinary),
        };
        if !takes.is_zero() {
            self.ctx.sleep(takes).await;
        }
    }

    /// A put, from its arrival to the answer, whoever waits for it.
    async fn carry_out(
        self,
        inner: Inner,
        key: Path,
        body: PutPayload,
        options: PutOptions,
    ) -> Result<PutResult> {
        if Op::of(&options) != Op::Create {
            self.take_time(SERVICE).await;
            return inner.put_opts(&key, body, options).await;
        }
        *self.state().under_way.entry(key.to_string()).or_default() += 1;
        self.take_time(SERVICE).await;
        let done = self.decide(&inner, &key, body, options).await;
        self.leave(&key);
        done
    }

    async fn decide(
        &self,
        inner: &Inner,
        key: &Path,
        body: PutPayload,
        options: PutOptions,
    ) -> Result<PutResult> {
        let S3Conduct { conflicts, repeats, .. } = self.state().conduct;
        let raced = self.state().under_way.get(key.as_ref()).is_some_and(|count| *count > 1);
        if raced && self.happens(conflicts) {
            self.note("409 in a race");
            return Err(answered(409, key));
        }
        let done = inner.put_opts(key, body, options).await?;
        if !self.happens(repeats) {
            return Ok(done);
        }
        let (what, status) = [
            ("412 after it landed", 412),
            ("409 after it landed", 409),
            ("500 after it landed", 500),
        ][self.ctx.below(3)];
        self.note(what);
        Err(answered(status, key))
    }

    fn leave(&self, key: &Path) {
        let mut state = self.state();
        if let Some(count) = state.under_way.get_mut(key.as_ref()) {
            *count -= 1;
        }
        state.under_way.retain(|_, count| *count > 0);
    }
}

#[async_trait]
impl Layer for S3Model {
    async fn put(
        &self,
        inner: &Inner,
        key: &Path,
        body: PutPayload,
        options: PutOptions,
    ) -> Result<PutResult> {
        self.admit(key)?;
        let (answer, heard) = oneshot::channel();
        let work = self.clone().carry_out(Arc::clone(inner), key.clone(), body, options);
        let service = self.clone();
        // A task of the service: a caller that gives up stops nothing.
        self.ctx.spawn(async move {
            let end = work.await;
            let landed = end.is_ok();
            if answer.send(end).is_err() && landed {
                service.note("landed after its caller left");
            }
        });
        heard.await.unwrap_or_else(|_| Err(broken("the service has ended")))
    }

    async fn get(&self, inner: &Inner, key: &Path, options: GetOptions) -> Result<GetResult> {
        self.admit(key)?;
        self.take_time(Duration::ZERO).await;
        inner.get_opts(key, options).await
    }

    /// Page by page: what appears before the end of a page that was sent is not in it.
    async fn list(
        &self,
        inner: &Inner,
        prefix: Option<&Path>,
        after: Option<&Path>,
    ) -> Result<Vec<ObjectMeta>> {
        let at = prefix.cloned().unwrap_or_default();
        let (mut listed, mut after) = (Vec::new(), after.cloned());
        loop {
            self.admit(&at)?;
            self.take_time(Duration::ZERO).await;
            let mut page = list_inner(inner, prefix, after.as_ref()).await?;
            page.sort_unstable_by(|a, b| a.location.cmp(&b.location));
            let more = page.len() > PAGE;
            page.truncate(PAGE);
            listed.extend(page);
            if !more {
                return Ok(listed);
            }
            self.note("a further page");
            after = listed.last().map(|meta| meta.location.clone());
            self.ctx.sleep(PAGE_APART).await;
        }
    }
}

impl fmt::Debug for S3Model {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("S3Model")
    }
}

#[cfg(test)]
mod tests {
    use futures::future::join_all;
    use object_store::memory::InMemory;

    use super::*;
    use crate::{Bucket, Cause, Outcome, Purpose};

    fn service(conduct: S3Conduct) -> (Bucket, S3Model) {
        let ctx = Context::simulated(3, 0);
        let model = S3Model::new(&ctx);
        model.behave(conduct);
        (Bucket::new(model.over(Arc::new(InMemory::new())), ctx), model)
    }

    /// Whatever the answers say, every name has one holder, and it knows.
    #[tokio::test(start_paused = true)]
    async fn of_racing_creates_one_is_done_and_told() {
        let (bucket, model) = service(S3Conduct { conflicts: 0.5, repeats: 0.4, ..TAME });
        for round in 0..100 {
            let key = format!("db-reads/{round}/picked");
            let racers = (0..4).map(|n| bucket.create(&key, n.to_string().into(), Purpose::Claim));
            let ends = join_all(racers).await;
            let owners = ends.iter().filter(|end| end.is_ours()).count();
            assert_eq!(owners, 1, "round {round}: {ends:?}");
        }
        for what in ["409 in a race", "409 after it landed", "412 after it landed"] {
            assert!(model.seen().contains_key(what), "{:?}", model.seen());
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_put_lands_after_its_caller_left() {
        let slowest = Duration::from_secs(20);
        let (bucket, model) = service(S3Conduct { slow: 1.0, slowest, ..TAME });
        let within = Purpose::Within(Duration::from_millis(900));
        let end = bucket.create("probe/a/1", "x".into(), within).await;
        assert_eq!(end, Outcome::Unknown(Cause::TimedOut));
        bucket.context().sleep(slowest).await;
        model.behave(TAME);
        assert_eq!(bucket.get("probe/a/1", Purpose::Claim).await, Ok(Some("x".into())));
        assert_eq!(model.seen().get("landed after its caller left"), Some(&1));
    }

    /// What lands behind the page that was sent is found, what lands before its end is not: no
    /// caller may take one listing for the state of a moment.
    #[tokio::test(start_paused = true)]
    async fn a_listing_of_a_thousand_and_one_is_two_pages_of_two_moments() {
        let (bucket, model) = service(TAME);
        for n in 0..=PAGE {
            let key = format!("probe/pages/{n:05}");
            assert!(bucket.create(&key, "".into(), Purpose::Claim).await.is_ours());
        }
        let lister = bucket.clone();
        let listing = bucket
            .context()
            .spawn(async move { lister.list("probe/pages", None, Purpose::Sweep).await });
        bucket.context().sleep(Duration::from_millis(1)).await;
        for key in ["probe/pages/00000-late", "probe/pages/99999-late"] {
            assert!(bucket.create(key, "".into(), Purpose::Claim).await.is_ours());
        }
        let listed = listing.await.expect("the task ends").expect("a listing");
        let late: Vec<_> = listed.iter().filter(|it| it.key.ends_with("late")).collect();
        assert_eq!(late.len(), 1, "{late:?}");
        assert!(late[0].key.starts_with("probe/pages/99999"), "{late:?}");
        assert_eq!(model.seen().get("a further page"), Some(&1));
    }

    #[tokio::test(start_paused = true)]
    async fn a_storm_is_under_its_prefix_and_passes() {
        let (bucket, model) = service(TAME);
        model.storm("db-reads/", 1.0);
        let stormy = bucket.create("db-reads/x/picked", "x".into(), Purpose::Claim).await;
        assert_eq!(stormy, Outcome::Unknown(Cause::Throttled));
        model.calm_down();
        let calm = bucket.create("db-reads/x/picked", "x".into(), Purpose::Result).await;
        assert_eq!(calm, Outcome::Created);
    }

    const TAME: S3Conduct =
        S3Conduct { slow: 0.0, slowest: Duration::ZERO, conflicts: 0.0, repeats: 0.0 };
}
