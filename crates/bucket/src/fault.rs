//! A store that fails on request. Faults before the store saw the request and faults after it did
//! its work are apart, because only the second kind makes the lost answer: an object that is there
//! although its writer was told otherwise.

use std::fmt;
use std::future::pending;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use async_trait::async_trait;
use object_store::path::Path;
use object_store::{
    Error, GetOptions, GetResult, ObjectMeta, ObjectStore, ObjectStoreExt, PutOptions, PutPayload,
    PutResult, Result,
};

use crate::Context;
use crate::layer::{Inner, KeyFilter, Layer, Layered, Op, list_inner};
use crate::verdict::HttpStatus;

pub use self::s3::{S3Conduct, S3Model};

mod s3;

/// What goes wrong with one request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// Request side: the status is answered and nothing is done.
    Refused(u16),
    /// Request side: 409 with nothing landed, in the form the library gives it.
    Conflict,
    /// Request side: the connection fails before anything is sent.
    NotSent,
    /// Request side: the connection closes while the request is sent, and nothing is done.
    Reset,
    /// Request side: the request vanishes and no answer ever comes.
    Swallowed,
    /// Request side: no answer ever comes, and the put lands this much later.
    LandsLate(Duration),
    /// Request side: the connection closes, and the put lands this much later: whoever looks at
    /// once finds nothing, and whoever looks again finds it.
    ResetLandsLate(Duration),
    /// Request side: it arrives this much later; what follows is ordinary.
    Delayed(Duration),
    /// Response side: the work is done and the status is answered.
    DoneBut(u16),
    /// Response side: the work is done and the connection closes without an answer.
    AnswerLost,
    /// Response side: the work is done and no answer ever comes.
    DoneInSilence,
    /// Response side: the work is done at once, the answer comes this much later.
    SlowAnswer(Duration),
    /// A read says 404; a listing leaves out the keys that the rule chooses.
    Hidden,
}

/// When a fault strikes. A rule strikes once unless told otherwise.
#[derive(Clone)]
pub struct Rule {
    op: Op,
    keys: KeyFilter,
    left: Option<u32>,
    odds: f64,
    fault: Fault,
}

impl Rule {
    /// The fault strikes the next such request, whatever its key.
    pub fn new(op: Op, fault: Fault) -> Self {
        Self { op, keys: Arc::new(|_| true), left: Some(1), odds: 1.0, fault }
    }

    /// Only keys that hold `part`.
    pub fn on(self, part: &str) -> Self {
        let part = part.to_owned();
        self.filter(move |key| key.contains(&part))
    }

    /// Only keys that `keys` chooses.
    pub fn filter(self, keys: impl Fn(&str) -> bool + Send + Sync + 'static) -> Self {
        Self { keys: Arc::new(keys), ..self }
    }

    /// Strikes this many times.
    pub fn times(self, times: u32) -> Self {
        Self { left: Some(times), ..self }
    }

    /// Strikes without end.
    pub fn always(self) -> Self {
        Self { left: None, ..self }
    }

    /// Strikes each time with this probability, without end, from the context's seed.
    pub fn odds(self, odds: f64) -> Self {
        Self { odds, left: None, ..self }
    }
}

/// The script of faults, shared with the store it disturbs.
#[derive(Clone)]
pub struct FaultStore {
    ctx: Context,
    script: Arc<Mutex<Script>>,
}

#[derive(Default)]
struct Script {
    rules: Vec<Rule>,
    struck: Vec<String>,
}

impl FaultStore {
    /// A store over `inner` and the handle that scripts its faults. Delays use `ctx`, and chance
    /// is drawn from a stream of its own, so that adding faults does not change the draws of the
    /// process under test.
    pub fn wrap(inner: Inner, ctx: &Context) -> (Arc<dyn ObjectStore>, Self) {
        let faults = Self { ctx: ctx.node("fault-store"), script: Arc::default() };
        (Layered::new(inner, Arc::new(faults.clone())), faults)
    }

    /// Adds a rule after those there; the first that applies strikes.
    pub fn add(&self, rule: Rule) -> &Self {
        self.script().rules.push(rule);
        self
    }

    /// Ends all faults.
    pub fn clear(&self) {
        self.script().rules.clear();
    }

    /// What struck so far, in order, as `Create key Fault`.
    pub fn struck(&self) -> Vec<String> {
        self.script().struck.clone()
    }

    fn strike(&self, op: Op, key: &str) -> Option<Fault> {
        let mut script = self.script();
        let fault = script
            .rules
            .iter_mut()
            .filter(|rule| rule.op == op && !rule.hides_from_lists())
            .find_map(|rule| rule.strike(&self.ctx, key))?;
        script.struck.push(format!("{op:?} {key} {fault:?}"));
        Some(fault)
    }

    fn hidden(&self, key: &str) -> bool {
        let mut script = self.script();
        let mut lists = script.rules.iter_mut().filter(|rule| rule.hides_from_lists());
        lists.any(|rule| rule.strike(&self.ctx, key).is_some())
    }

    fn script(&self) -> MutexGuard<'_, Script> {
        self.script.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The part of a fault that comes before the store sees the request.
    async fn before(&self, fault: Option<Fault>, key: &Path) -> Result<()> {
        match fault {
            Some(Fault::Refused(status)) => Err(answered(status, key)),
            Some(Fault::Conflict) => Err(answered(409, key)),
            Some(Fault::Hidden) => Err(answered(404, key)),
            Some(Fault::NotSent) => Err(broken("connection refused")),
            Some(Fault::Reset | Fault::ResetLandsLate(_)) => Err(broken("connection reset")),
            Some(Fault::Swallowed | Fault::LandsLate(_)) => pending().await,
            Some(Fault::Delayed(delay)) => {
                self.ctx.sleep(delay).await;
                Ok(())
            }
            _ => Ok(()),
        }
    }

    /// The part of a fault that comes after the store did its work.
    async fn after(&self, fault: Option<Fault>, key: &Path) -> Result<()> {
        match fault {
            Some(Fault::DoneBut(status)) => Err(answered(status, key)),
            Some(Fault::AnswerLost) => Err(broken("connection closed before the answer")),
            Some(Fault::DoneInSilence) => pending().await,
            Some(Fault::SlowAnswer(delay)) => {
                self.ctx.sleep(delay).await;
                Ok(())
            }
            _ => Ok(()),
        }
    }

    /// Sends a put on its way behind the back of a caller that will never hear of it.
    fn land_later(
        &self,
        delay: Duration,
        inner: &Inner,
        key: &Path,
        put: (PutPayload, PutOptions),
    ) {
        let (inner, key, ctx) = (Arc::clone(inner), key.clone(), self.ctx.clone());
        self.ctx.spawn(async move {
            ctx.sleep(delay).await;
            // Whether it lands is what the test goes on to look at.
            let _ = inner.put_opts(&key, put.0, put.1).await;
        });
    }
}

impl Rule {
    fn hides_from_lists(&self) -> bool {
        self.op == Op::List && self.fault == Fault::Hidden
    }

    fn strike(&mut self, ctx: &Context, key: &str) -> Option<Fault> {
        if self.left == Some(0) || !(self.keys)(key) {
            return None;
        }
        if self.odds < 1.0 && !ctx.chance(self.odds) {
            return None;
        }
        self.left = self.left.map(|left| left - 1);
        Some(self.fault)
    }
}

#[async_trait]
impl Layer for FaultStore {
    async fn put(
        &self,
        inner: &Inner,
        key: &Path,
        body: PutPayload,
        options: PutOptions,
    ) -> Result<PutResult> {
        let fault = self.strike(Op::of(&options), key.as_ref());
        if let Some(Fault::LandsLate(delay) | Fault::ResetLandsLate(delay)) = fault {
            self.land_later(delay, inner, key, (body.clone(), options.clone()));
        }
        self.before(fault, key).await?;
        let done = inner.put_opts(key, body, options).await;
        // A refusal gets lost on its way back just as a success does.
        self.after(fault, key).await?;
        done
    }

    async fn get(&self, inner: &Inner, key: &Path, options: GetOptions) -> Result<GetResult> {
        let fault = self.strike(Op::Get, key.as_ref());
        self.before(fault, key).await?;
        let found = inner.get_opts(key, options).await;
        self.after(fault, key).await?;
        found
    }

    async fn list(
        &self,
        inner: &Inner,
        prefix: Option<&Path>,
        after: Option<&Path>,
    ) -> Result<Vec<ObjectMeta>> {
        let at = prefix.cloned().unwrap_or_default();
        let fault = self.strike(Op::List, at.as_ref());
        self.before(fault, &at).await?;
        let mut metas = list_inner(inner, prefix, after).await?;
        metas.retain(|meta| !self.hidden(meta.location.as_ref()));
        self.after(fault, &at).await?;
        Ok(metas)
    }

    async fn delete(&self, inner: &Inner, key: &Path) -> Result<()> {
        let fault = self.strike(Op::Delete, key.as_ref());
        self.before(fault, key).await?;
        let done = inner.delete(key).await;
        self.after(fault, key).await?;
        done
    }
}

impl fmt::Debug for FaultStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("FaultStore")
    }
}

/// A status in the shape in which the library reports it.
fn answered(status: u16, key: &Path) -> Error {
    let (path, source) = (key.to_string(), Box::new(HttpStatus(status)));
    match status {
        401 => Error::Unauthenticated { path, source },
        403 => Error::PermissionDenied { path, source },
        404 => Error::NotFound { path, source },
        // The library makes one error of both where it asked for the name to be free.
        409 | 412 => Error::AlreadyExists { path, source },
        _ => Error::Generic { store: "fault", source },
    }
}

fn broken(how: &'static str) -> Error {
    Error::Generic { store: "fault", source: how.into() }
}

#[cfg(test)]
mod tests {
    use object_store::memory::InMemory;

    use super::*;
    use crate::{Bucket, Purpose};

    async fn struck(seed: u64) -> Vec<String> {
        let ctx = Context::simulated(seed, 0);
        let (store, faults) = FaultStore::wrap(Arc::new(InMemory::new()), &ctx);
        faults.add(Rule::new(Op::Create, Fault::AnswerLost).on("/out/").odds(0.3));
        faults.add(Rule::new(Op::Get, Fault::Delayed(Duration::from_millis(70))).odds(0.5));
        let bucket = Bucket::new(store, ctx);
        for n in 0..50 {
            let key = format!("db-reads/x/out/{n}");
            assert!(bucket.create(&key, "x".into(), Purpose::Claim).await.is_ours());
        }
        faults.struck()
    }

    #[tokio::test(start_paused = true)]
    async fn one_seed_gives_one_course_of_faults() {
        let first = struck(1).await;
        assert!(first.len() > 10, "{first:?}");
        assert_eq!(struck(1).await, first);
        assert_ne!(struck(2).await, first);
    }

    #[tokio::test(start_paused = true)]
    async fn rules_strike_in_order_and_as_often_as_told() {
        let ctx = Context::simulated(1, 0);
        let (store, faults) = FaultStore::wrap(Arc::new(InMemory::new()), &ctx);
        faults.add(Rule::new(Op::Get, Fault::Refused(500)).on("a").times(2));
        faults.add(Rule::new(Op::Get, Fault::Refused(400)).filter(|key| key.ends_with('b')));
        let mut ends = Vec::new();
        for key in ["a", "ab", "ab", "ab", "b"] {
            let end = store.get(&Path::from(key)).await.expect_err("nothing is there");
            ends.push(matches!(end, Error::NotFound { .. }));
        }
        assert_eq!(ends, [false, false, false, true, true]);
        assert_eq!(faults.struck().len(), 3);
    }

    /// A refusal is lost on its way back like a success, and silence is cut by the caller's clock.
    #[tokio::test(start_paused = true)]
    async fn the_response_side_hides_what_the_store_said() {
        let ctx = Context::simulated(1, 0);
        let (store, faults) = FaultStore::wrap(Arc::new(InMemory::new()), &ctx);
        faults.add(Rule::new(Op::Delete, Fault::DoneBut(500)));
        let key = Path::from("probe/x");
        store.put(&key, "x".into()).await.expect("a memory store");
        store.delete(&key).await.expect_err("the answer is lost");
        assert!(matches!(store.get(&key).await, Err(Error::NotFound { .. })), "but it was done");
        faults.add(Rule::new(Op::List, Fault::SlowAnswer(Duration::from_secs(3))));
        let listing = futures::TryStreamExt::try_collect::<Vec<_>>(store.list(None));
        assert!(ctx.timeout(Duration::from_secs(2), listing).await.is_err());
    }
}
