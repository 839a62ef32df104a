//! A store at the other end of a network: every request waits, and streams break.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use carlos_bucket::layer::{Inner, Layer, Layered};
use carlos_replica::restore::plan_replica;
use carlos_replica::{Fetch, Restore, Target, restore_to_file};
use futures::{StreamExt, TryStreamExt, stream};
use object_store::local::LocalFileSystem;
use object_store::path::Path as Key;
use object_store::{GetOptions, GetResult, GetResultPayload, ObjectMeta, Result};
use serde_json::json;

use crate::{OPTIONS, Outcome, replica};

/// From a request to the first byte of its answer, between neighbouring regions.
const ANSWER: Duration = Duration::from_millis(20);
/// Keys that a listing's page holds on S3.
const PAGE: usize = 1000;
/// Bytes after which a connection drops, in the mode that has them drop.
const DROP_AFTER: u64 = 8 << 20;

#[derive(Debug, Default)]
struct Far {
    lists: AtomicU64,
    gets: AtomicU64,
    bytes: Arc<AtomicU64>,
    drops: bool,
}

#[async_trait]
impl Layer for Far {
    async fn get(&self, inner: &Inner, key: &Key, options: GetOptions) -> Result<GetResult> {
        self.gets.fetch_add(1, Ordering::Relaxed);
        tokio::time::sleep(ANSWER).await;
        let got = inner.get_opts(key, options).await?;
        let (meta, range) = (got.meta.clone(), got.range.clone());
        let (attributes, extensions) = (got.attributes.clone(), got.extensions.clone());
        let most = if self.drops { DROP_AFTER } else { u64::MAX };
        let counter = Arc::clone(&self.bytes);
        let stream = got.into_stream().map_ok(move |piece| {
            counter.fetch_add(piece.len() as u64, Ordering::Relaxed);
            piece
        });
        let stream = cut(stream.boxed(), most);
        let payload = GetResultPayload::Stream(stream);
        Ok(GetResult { payload, meta, range, attributes, extensions })
    }

    async fn list(
        &self,
        inner: &Inner,
        prefix: Option<&Key>,
        _after: Option<&Key>,
    ) -> Result<Vec<ObjectMeta>> {
        let found: Vec<_> = inner.list(prefix).try_collect().await?;
        let pages = u32::try_from(found.len() / PAGE + 1).unwrap_or(u32::MAX);
        self.lists.fetch_add(u64::from(pages), Ordering::Relaxed);
        tokio::time::sleep(ANSWER * pages).await;
        Ok(found)
    }
}

type Pieces = stream::BoxStream<'static, Result<Bytes>>;

/// The stream until `most` bytes have come, and then a reset.
fn cut(stream: Pieces, most: u64) -> Pieces {
    stream
        .scan(0, move |given, piece: Result<Bytes>| {
            let before = *given;
            *given += piece.as_ref().map_or(0, |piece| piece.len() as u64);
            let reset = object_store::Error::Generic { store: "far", source: "reset".into() };
            futures::future::ready(Some(if before >= most { Err(reset) } else { piece }))
        })
        .boxed()
}

/// Restores as the product does (`ahead`, and `drops` with connections that break), or with one
/// request after another (`in-turn`) for comparison.
pub(crate) async fn restore(path: &str, out: &str, mode: &str) -> Outcome {
    let inner = Arc::new(LocalFileSystem::new_with_prefix(path)?);
    let far = Arc::new(Far { drops: mode == "drops", ..Far::default() });
    let replica = replica(Layered::new(inner, Arc::clone(&far)))?;
    let plan = plan_replica(&replica, Target::Newest).await?;
    let (files, planned) = (plan.files().len(), plan.bytes());
    if mode == "in-turn" {
        let mut restore = Restore::create(Path::new(out), plan.planned(), OPTIONS)?;
        for file in plan.files() {
            let mut fetch = Fetch::new(&replica, file);
            while let Some(piece) = fetch.next().await? {
                restore.feed(&piece)?;
            }
        }
        restore.finish()?;
    } else {
        restore_to_file(&replica, plan, Target::Newest, Path::new(out), OPTIONS).await?;
    }
    let read = far.bytes.load(Ordering::Relaxed);
    Ok(json!({
        "files": files,
        "lists": far.lists.load(Ordering::Relaxed),
        "gets": far.gets.load(Ordering::Relaxed),
        "read_over_plan": read as f64 / planned as f64,
    }))
}
