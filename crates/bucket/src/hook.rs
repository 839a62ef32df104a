//! A store with pause points: a test can hold a request just before or just after the store does
//! its work, change the world, and let it go. Races that need one exact order are written with it
//! (a result that overtakes the last chunk; a record that changes during a download).

use std::fmt;
use std::future::Future;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use async_trait::async_trait;
use futures::future::BoxFuture;
use object_store::path::Path;
use object_store::{
    GetOptions, GetResult, ObjectMeta, ObjectStore, ObjectStoreExt, PutOptions, PutPayload,
    PutResult, Result,
};
use tokio::sync::oneshot;

use crate::layer::{Inner, KeyFilter, Layer, Layered, Op, list_inner};

/// On which side of the store's work a hook sits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Side {
    /// The store has seen nothing yet.
    Before,
    /// The store has done its work; the caller has no answer yet.
    After,
}

/// The hooks of one store; see [`HookStore::wrap`].
#[derive(Clone, Default)]
pub struct HookStore {
    hooks: Arc<Mutex<Vec<Hook>>>,
}

struct Hook {
    side: Side,
    op: Op,
    keys: KeyFilter,
    left: u32,
    action: Action,
}

type Callback = Arc<dyn Fn(String) -> BoxFuture<'static, ()> + Send + Sync>;

enum Action {
    Call(Callback),
    Pause(Option<(oneshot::Sender<String>, oneshot::Receiver<()>)>),
}

enum Step {
    Call(Callback),
    Pause(oneshot::Sender<String>, oneshot::Receiver<()>),
}

/// A request held at its hook, or about to be. Dropping it lets the request go.
#[derive(Debug)]
pub struct Pause {
    reached: oneshot::Receiver<String>,
    release: oneshot::Sender<()>,
}

impl Pause {
    /// Waits until a request is held here and returns its key.
    pub async fn reached(&mut self) -> String {
        // The sender goes away only with the store, and then no request will ever come.
        match (&mut self.reached).await {
            Ok(key) => key,
            Err(_) => std::future::pending().await,
        }
    }

    /// Lets the held request go on.
    pub fn release(self) {
        drop(self.release);
    }
}

impl HookStore {
    /// `inner` with hooks, and the handle that sets them.
    pub fn wrap(inner: Inner) -> (Arc<dyn ObjectStore>, Self) {
        let hooks = Self::default();
        (Layered::new(inner, Arc::new(hooks.clone())), hooks)
    }

    /// Holds the next such request whose key holds `part`.
    pub fn pause(&self, side: Side, op: Op, part: &str) -> Pause {
        let (reached_in, reached) = oneshot::channel();
        let (release, release_out) = oneshot::channel();
        let action = Action::Pause(Some((reached_in, release_out)));
        self.add(side, op, part, 1, action);
        Pause { reached, release }
    }

    /// Runs `callback` with the key of each of the next `times` such requests. The request waits
    /// for it. Work on the inner store from there, or the callback may meet its own hook.
    pub fn on<F>(
        &self,
        side: Side,
        op: Op,
        part: &str,
        times: u32,
        callback: impl Fn(String) -> F + Send + Sync + 'static,
    ) where
        F: Future<Output = ()> + Send + 'static,
    {
        let callback: Callback = Arc::new(move |key| Box::pin(callback(key)));
        self.add(side, op, part, times, Action::Call(callback));
    }

    fn add(&self, side: Side, op: Op, part: &str, left: u32, action: Action) {
        let part = part.to_owned();
        let keys: KeyFilter = Arc::new(move |key| key.contains(&part));
        self.hooks().push(Hook { side, op, keys, left, action });
    }

    async fn reach(&self, side: Side, op: Op, key: &str) {
        match self.next(side, op, key) {
            Some(Step::Call(callback)) => callback(key.to_owned()).await,
            Some(Step::Pause(reached, release)) => {
                // Either side may have been dropped, which means: do not wait.
                let held = reached.send(key.to_owned()).is_ok();
                let _ = if held { release.await } else { Ok(()) };
            }
            None => {}
        }
    }

    fn next(&self, side: Side, op: Op, key: &str) -> Option<Step> {
        let mut hooks = self.hooks();
        let hook = hooks
            .iter_mut()
            .find(|hook| hook.left > 0 && (hook.side, hook.op) == (side, op) && (hook.keys)(key))?;
        hook.left -= 1;
        match &mut hook.action {
            Action::Call(callback) => Some(Step::Call(Arc::clone(callback))),
            Action::Pause(ends) => ends.take().map(|(reached, go)| Step::Pause(reached, go)),
        }
    }

    fn hooks(&self) -> MutexGuard<'_, Vec<Hook>> {
        self.hooks.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[async_trait]
impl Layer for HookStore {
    async fn put(
        &self,
        inner: &Inner,
        key: &Path,
        body: PutPayload,
        options: PutOptions,
    ) -> Result<PutResult> {
        let op = Op::of(&options);
        self.reach(Side::Before, op, key.as_ref()).await;
        let done = inner.put_opts(key, body, options).await;
        self.reach(Side::After, op, key.as_ref()).await;
        done
    }

    async fn get(&self, inner: &Inner, key: &Path, options: GetOptions) -> Result<GetResult> {
        self.reach(Side::Before, Op::Get, key.as_ref()).await;
        let found = inner.get_opts(key, options).await;
        self.reach(Side::After, Op::Get, key.as_ref()).await;
        found
    }

    async fn list(
        &self,
        inner: &Inner,
        prefix: Option<&Path>,
        after: Option<&Path>,
    ) -> Result<Vec<ObjectMeta>> {
        let at = prefix.map(ToString::to_string).unwrap_or_default();
        self.reach(Side::Before, Op::List, &at).await;
        let metas = list_inner(inner, prefix, after).await;
        self.reach(Side::After, Op::List, &at).await;
        metas
    }

    async fn delete(&self, inner: &Inner, key: &Path) -> Result<()> {
        self.reach(Side::Before, Op::Delete, key.as_ref()).await;
        let done = inner.delete(key).await;
        self.reach(Side::After, Op::Delete, key.as_ref()).await;
        done
    }
}

impl fmt::Debug for HookStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("HookStore")
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use object_store::memory::InMemory;

    use super::*;
    use crate::{Bucket, Context, Outcome, Purpose};

    fn hooked() -> (Bucket, HookStore) {
        let (store, hooks) = HookStore::wrap(Arc::new(InMemory::new()));
        (Bucket::new(store, Context::simulated(1, 0)), hooks)
    }

    /// The shape of a result that overtakes the last chunk (db-forward T18).
    #[tokio::test(start_paused = true)]
    async fn a_listing_is_held_while_the_world_moves_on() {
        let (bucket, hooks) = hooked();
        let mut pause = hooks.pause(Side::After, Op::List, "/out");
        let reader = bucket.clone();
        let listing = bucket
            .context()
            .spawn(async move { reader.list("db-reads/x/out", None, Purpose::Result).await });
        assert_eq!(pause.reached().await, "db-reads/x/out");
        let end = bucket.create("db-reads/x/out/00000001", "late".into(), Purpose::Claim).await;
        assert_eq!(end, Outcome::Created);
        pause.release();
        let listed = listing.await.expect("the task ends");
        assert_eq!(listed, Ok(Vec::new()), "the listing was done before the object");
        let again = bucket.list("db-reads/x/out", None, Purpose::Result).await;
        assert_eq!(again.map(|listed| listed.len()), Ok(1), "a pause holds once");
    }

    #[tokio::test(start_paused = true)]
    async fn before_the_store_sees_it_the_world_can_change() {
        let (bucket, hooks) = hooked();
        let inner = bucket.clone();
        hooks.on(Side::Before, Op::Get, "hosts/", 1, move |key| {
            let inner = inner.clone();
            async move {
                let end = inner.create(&key, "just now".into(), Purpose::Claim).await;
                assert_eq!(end, Outcome::Created);
            }
        });
        let read = bucket.get("hosts/x/1", Purpose::Claim).await;
        assert_eq!(read, Ok(Some("just now".into())));
    }

    #[tokio::test(start_paused = true)]
    async fn a_dropped_pause_holds_nothing() {
        let (bucket, hooks) = hooked();
        drop(hooks.pause(Side::Before, Op::Get, ""));
        let read = bucket.get("hosts/x/1", Purpose::Within(Duration::from_secs(1))).await;
        assert_eq!(read, Ok(None));
    }
}
