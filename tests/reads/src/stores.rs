//! One process's view of a store: what it asks is written down, and can be held or spoiled, without
//! touching what any other process sees.

use std::sync::{Arc, Mutex};

use async_trait::async_trait;
use carlos_bucket::Context;
use carlos_bucket::fault::FaultStore;
use carlos_bucket::hook::HookStore;
use carlos_bucket::layer::{Inner, Layer, Layered, Op, list_inner};
use object_store::path::Path;
use object_store::{
    GetOptions, GetResult, ObjectMeta, ObjectStore as _, ObjectStoreExt as _, PutOptions,
    PutPayload, PutResult, Result,
};

/// A store as one process sees it.
#[derive(Clone)]
pub struct View {
    /// What the process is given.
    pub store: Inner,
    /// Holds requests.
    pub hooks: HookStore,
    /// Spoils requests.
    pub faults: FaultStore,
    /// Every request, in the order they were made.
    pub ledger: Ledger,
}

impl View {
    /// A view of `inner` for a process that lives on `context`.
    pub fn of(inner: Inner, context: &Context) -> Self {
        let (faulty, faults) = FaultStore::wrap(inner, context);
        let (hooked, hooks) = HookStore::wrap(faulty);
        let ledger = Ledger::default();
        let store = Layered::new(hooked, Arc::new(ledger.clone()));
        Self { store, hooks, faults, ledger }
    }
}

/// One request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    pub op: Op,
    /// The key; for a listing its prefix.
    pub key: String,
    /// Whether it was answered with success. A read that found nothing was not.
    pub good: bool,
}

/// Writes down what is asked of a store.
#[derive(Clone, Debug, Default)]
pub struct Ledger(Arc<Mutex<Vec<Entry>>>);

impl Ledger {
    /// Every request so far whose key holds `part`.
    pub fn of(&self, part: &str) -> Vec<Entry> {
        let entries = self.0.lock().unwrap();
        entries.iter().filter(|entry| entry.key.contains(part)).cloned().collect()
    }

    /// How many such requests there were.
    pub fn count(&self, op: Op, part: &str) -> usize {
        self.of(part).iter().filter(|entry| entry.op == op).count()
    }

    fn note<T>(&self, op: Op, key: impl ToString, answer: Result<T>) -> Result<T> {
        let entry = Entry { op, key: key.to_string(), good: answer.is_ok() };
        self.0.lock().unwrap().push(entry);
        answer
    }
}

#[async_trait]
impl Layer for Ledger {
    async fn put(
        &self,
        inner: &Inner,
        key: &Path,
        body: PutPayload,
        options: PutOptions,
    ) -> Result<PutResult> {
        let op = Op::of(&options);
        self.note(op, key, inner.put_opts(key, body, options).await)
    }

    async fn get(&self, inner: &Inner, key: &Path, options: GetOptions) -> Result<GetResult> {
        self.note(Op::Get, key, inner.get_opts(key, options).await)
    }

    async fn list(
        &self,
        inner: &Inner,
        prefix: Option<&Path>,
        after: Option<&Path>,
    ) -> Result<Vec<ObjectMeta>> {
        let listed = list_inner(inner, prefix, after).await;
        self.note(Op::List, prefix.map(ToString::to_string).unwrap_or_default(), listed)
    }

    async fn delete(&self, inner: &Inner, key: &Path) -> Result<()> {
        self.note(Op::Delete, key, inner.delete(key).await)
    }
}
