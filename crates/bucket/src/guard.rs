//! A store that keeps db-forward §5.3's J2 for its callers: under `db-reads/` an object is created
//! once and never replaced or deleted. Whoever tries is refused and written down, so that a test
//! can ask for an empty list at its end.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use async_trait::async_trait;
use object_store::path::Path;
use object_store::{
    CopyOptions, Error, MultipartUpload, ObjectStore, ObjectStoreExt, PutMultipartOptions,
    PutOptions, PutPayload, PutResult, Result,
};

use crate::layer::{Inner, Layer, Layered, Op};

/// The prefix whose objects are written once.
const WRITE_ONCE: &str = "db-reads/";

/// The record of broken write-once rules; see [`WriteOnceGuard::wrap`].
#[derive(Clone, Debug, Default)]
pub struct WriteOnceGuard {
    violations: Arc<Mutex<Vec<String>>>,
}

impl WriteOnceGuard {
    /// A guarded store and the guard to ask. The store's own lifecycle must work behind it, on
    /// `inner`, as a real store's does.
    pub fn wrap(inner: Inner) -> (Arc<dyn ObjectStore>, Self) {
        let guard = Self::default();
        (Layered::new(inner, Arc::new(guard.clone())), guard)
    }

    /// Every refused request, as `Delete key` or `Replace key`.
    pub fn violations(&self) -> Vec<String> {
        self.recorded().clone()
    }

    fn check(&self, op: Op, key: &Path) -> Result<()> {
        if op == Op::Create || !key.as_ref().starts_with(WRITE_ONCE) {
            return Ok(());
        }
        let violation = format!("{op:?} {key}");
        self.recorded().push(violation.clone());
        let source = format!("write once: {violation}").into();
        Err(Error::PermissionDenied { path: key.to_string(), source })
    }

    fn recorded(&self) -> MutexGuard<'_, Vec<String>> {
        self.violations.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[async_trait]
impl Layer for WriteOnceGuard {
    async fn put(
        &self,
        inner: &Inner,
        key: &Path,
        body: PutPayload,
        options: PutOptions,
    ) -> Result<PutResult> {
        self.check(Op::of(&options), key)?;
        inner.put_opts(key, body, options).await
    }

    async fn multipart(
        &self,
        inner: &Inner,
        key: &Path,
        options: PutMultipartOptions,
    ) -> Result<Box<dyn MultipartUpload>> {
        self.check(Op::Replace, key)?;
        inner.put_multipart_opts(key, options).await
    }

    async fn delete(&self, inner: &Inner, key: &Path) -> Result<()> {
        self.check(Op::Delete, key)?;
        inner.delete(key).await
    }

    async fn copy(
        &self,
        inner: &Inner,
        from: &Path,
        to: &Path,
        options: CopyOptions,
    ) -> Result<()> {
        self.check(Op::Replace, to)?;
        inner.copy_opts(from, to, options).await
    }
}

#[cfg(test)]
mod tests {
    use object_store::memory::InMemory;
    use object_store::{ObjectStoreExt, PutMode};

    use super::*;

    fn key(text: &str) -> Path {
        Path::parse(text).expect("a plain key")
    }

    #[tokio::test]
    async fn a_delete_and_a_replacing_put_are_refused_and_written_down() {
        let (store, guard) = WriteOnceGuard::wrap(Arc::new(InMemory::new()));
        let at = key("db-reads/dbr_x/picked");
        let create = PutOptions { mode: PutMode::Create, ..PutOptions::default() };
        store.put_opts(&at, "a".into(), create).await.expect("a create is allowed");
        store.put(&at, "b".into()).await.expect_err("a replacing put is not");
        store.delete(&at).await.expect_err("nor is a delete");
        store.copy(&key("other"), &at).await.expect_err("nor is a copy onto it");
        let seen = ["Replace", "Delete", "Replace"].map(|op| format!("{op} {at}"));
        assert_eq!(guard.violations(), seen);
    }

    #[tokio::test]
    async fn other_prefixes_may_be_replaced() {
        let (store, guard) = WriteOnceGuard::wrap(Arc::new(InMemory::new()));
        let at = key("control/serial/uk");
        store.put(&at, "a".into()).await.expect("a serial is replaced");
        store.put(&at, "b".into()).await.expect("again");
        assert!(guard.violations().is_empty());
    }
}
