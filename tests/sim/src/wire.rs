//! The way from one process to the store: takes time, can be cut, and is written down.

use std::fmt;
use std::future::pending;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use async_trait::async_trait;
use carlos_bucket::fault::{FaultStore, S3Model};
use carlos_bucket::guard::WriteOnceGuard;
use carlos_bucket::layer::{Inner, Layer, Layered, Op, list_inner};
use carlos_bucket::shuffle::Shuffled;
use carlos_bucket::{Context, Elapsed};
use object_store::path::Path;
use object_store::{
    Error, GetOptions, GetResult, ObjectMeta, ObjectStore as _, ObjectStoreExt as _, PutOptions,
    PutPayload, PutResult, Result,
};

use tokio_util::sync::CancellationToken;

use crate::log::{Event, Log};

/// One direction of a request takes up to this: an ordinary put crosses an ocean in twice that.
const ONE_WAY: Duration = Duration::from_millis(60);

/// What the store library's HTTP client allows one request.
const CLIENT_TIMEOUT: Duration = Duration::from_secs(30);

/// Whether a process runs. A process without power sends nothing and hears nothing.
#[derive(Clone, Debug)]
pub struct Power(Arc<AtomicBool>);

impl Power {
    /// Switched on.
    pub fn on() -> Self {
        Self(Arc::new(AtomicBool::new(true)))
    }

    /// The process is killed; there is no way back.
    pub fn cut(&self) {
        self.0.store(false, Ordering::SeqCst);
    }

    /// Returns only while the process runs.
    pub(crate) async fn flows(&self) {
        if !self.0.load(Ordering::SeqCst) {
            pending().await
        }
    }
}

/// The request after which a process dies.
type Breaker = Arc<Mutex<Option<(Op, String, CancellationToken)>>>;

/// One principal's line to a store, kept over its restarts: its own faults and its own guard.
#[derive(Clone)]
pub struct Line {
    pub(crate) who: &'static str,
    store: Inner,
    log: Log,
    breaker: Breaker,
    /// What goes wrong on this line.
    pub faults: FaultStore,
    /// What this principal tried to replace or delete under `db-reads/`.
    pub guard: WriteOnceGuard,
}

impl Line {
    /// A line of `who` to `store`, which `service` serves. `chance` is what its faults are drawn
    /// from.
    pub fn new(
        who: &'static str,
        store: Inner,
        service: &S3Model,
        log: &Log,
        chance: &Context,
    ) -> Self {
        let landed = Layered::new(store, Arc::new(Landings { who, log: log.clone() }));
        let served = Shuffled::wrap(service.over(landed), chance);
        let (guarded, guard) = WriteOnceGuard::wrap(served);
        let (store, faults) = FaultStore::wrap(guarded, chance);
        Self { who, store, log: log.clone(), breaker: Breaker::default(), faults, guard }
    }

    /// The store as one process on this line sees it, while it has power.
    pub fn plug(&self, ctx: &Context, power: &Power) -> Inner {
        self.wire(ctx, power, None)
    }

    /// The same through a client with a time limit of its own, as every HTTP client of the data
    /// bucket has one; in the deployment bucket each purpose has its deadline.
    pub fn plug_impatiently(&self, ctx: &Context, power: &Power) -> Inner {
        self.wire(ctx, power, Some(CLIENT_TIMEOUT))
    }

    /// Kills the process that next has such a request done, before it hears of it. The token says
    /// when.
    pub fn cut_after(&self, op: Op, part: &str) -> CancellationToken {
        let cut = CancellationToken::new();
        *self.breaker.lock().unwrap() = Some((op, part.to_owned(), cut.clone()));
        cut
    }

    fn wire(&self, ctx: &Context, power: &Power, patience: Option<Duration>) -> Inner {
        let (ctx, power) = (ctx.node("wire"), power.clone());
        let (who, log, breaker) = (self.who, self.log.clone(), Arc::clone(&self.breaker));
        let wire = Wire { who, ctx, log, power, patience, breaker };
        Layered::new(Arc::clone(&self.store), Arc::new(wire))
    }
}

/// The outermost layer: what a process sends and hears, and when.
struct Wire {
    who: &'static str,
    ctx: Context,
    log: Log,
    power: Power,
    patience: Option<Duration>,
    breaker: Breaker,
}

impl Wire {
    async fn pass<T>(
        &self,
        op: Op,
        key: &str,
        request: impl Future<Output = Result<T>>,
    ) -> Result<T> {
        self.power.flows().await;
        self.log.add(self.who, Event::Sent(op, key.to_owned()));
        self.ctx.sleep(self.ctx.jitter(ONE_WAY)).await;
        let answer = match self.patience {
            Some(most) => self.ctx.timeout(most, request).await.unwrap_or_else(timed_out),
            None => request.await,
        };
        self.trip(op, key);
        self.ctx.sleep(self.ctx.jitter(ONE_WAY)).await;
        self.power.flows().await;
        self.log.add(self.who, Event::Answered(op, key.to_owned(), answer.is_ok()));
        answer
    }

    fn trip(&self, op: Op, key: &str) {
        let hit = |(at, part, _): &mut (Op, String, _)| *at == op && key.contains(part.as_str());
        if let Some((.., cut)) = self.breaker.lock().unwrap().take_if(hit) {
            self.power.cut();
            cut.cancel();
        }
    }
}

fn timed_out<T>(elapsed: Elapsed) -> Result<T> {
    Err(Error::Generic { store: "wire", source: Box::new(elapsed) })
}

#[async_trait]
impl Layer for Wire {
    async fn put(
        &self,
        inner: &Inner,
        key: &Path,
        body: PutPayload,
        options: PutOptions,
    ) -> Result<PutResult> {
        let op = Op::of(&options);
        self.pass(op, key.as_ref(), inner.put_opts(key, body, options)).await
    }

    async fn get(&self, inner: &Inner, key: &Path, options: GetOptions) -> Result<GetResult> {
        self.pass(Op::Get, key.as_ref(), inner.get_opts(key, options)).await
    }

    async fn list(
        &self,
        inner: &Inner,
        prefix: Option<&Path>,
        after: Option<&Path>,
    ) -> Result<Vec<ObjectMeta>> {
        let listing = list_inner(inner, prefix, after);
        self.pass(Op::List, prefix.map_or("", Path::as_ref), listing).await
    }

    async fn delete(&self, inner: &Inner, key: &Path) -> Result<()> {
        self.pass(Op::Delete, key.as_ref(), inner.delete(key)).await
    }
}

impl fmt::Debug for Wire {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Wire of {}", self.who)
    }
}

/// The innermost layer of a line: what it really changed in the store.
struct Landings {
    who: &'static str,
    log: Log,
}

#[async_trait]
impl Layer for Landings {
    async fn put(
        &self,
        inner: &Inner,
        key: &Path,
        body: PutPayload,
        options: PutOptions,
    ) -> Result<PutResult> {
        let op = Op::of(&options);
        let done = inner.put_opts(key, body, options).await?;
        self.log.add(self.who, Event::Landed(op, key.to_string()));
        Ok(done)
    }

    async fn delete(&self, inner: &Inner, key: &Path) -> Result<()> {
        inner.delete(key).await?;
        self.log.add(self.who, Event::Landed(Op::Delete, key.to_string()));
        Ok(())
    }
}

impl fmt::Debug for Landings {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Landings of {}", self.who)
    }
}
