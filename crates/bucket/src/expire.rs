//! The lifecycle of a directory store. A real store removes old objects by a rule of its own; on a
//! directory this task plays that part, outside the protocol and behind any write-once guard
//! (db-forward §5.3, J4). It knows prefixes and ages and nothing of what the objects mean.

use std::time::Duration;

use futures::TryStreamExt;
use object_store::path::Path;
use object_store::{ObjectMeta, ObjectStore, ObjectStoreExt};
use tokio_util::sync::CancellationToken;

use crate::Context;
use crate::layer::Inner;

const DAY: Duration = Duration::from_secs(24 * 60 * 60);

/// Between two passes. A store's own rule acts once a day, some hours late; once an hour keeps the
/// listing of one pass small.
const EVERY: Duration = Duration::from_secs(60 * 60);

/// Objects under a prefix go when they are older than an age.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rule {
    /// The folder, without a closing slash. Everything that expires has a top-level folder of its
    /// own, because a store's lifecycle rule can match nothing finer.
    pub prefix: &'static str,
    /// The age, by the store's own time of writing.
    pub after: Duration,
}

/// What expires in the deployment bucket. Records, indexes and serials are in no rule and stay.
pub const RULES: [Rule; 5] = [
    Rule { prefix: "db-reads", after: DAY },
    Rule { prefix: "presence", after: DAY },
    Rule { prefix: "probe", after: DAY },
    // Owners write their descriptors again every day.
    Rule { prefix: "mesh", after: DAY.saturating_mul(3) },
    // Audit rows: a year, and a month to look at it.
    Rule { prefix: "activity", after: DAY.saturating_mul(400) },
];

/// Removes what `rules` let go by the context's clock; the number of objects removed.
///
/// # Errors
/// The first failure of the store. What is left goes with the next pass.
pub async fn expire_once(
    store: &Inner,
    ctx: &Context,
    rules: &[Rule],
) -> object_store::Result<u64> {
    let mut removed = 0;
    for rule in rules {
        let mut found = store.list(Some(&Path::from(rule.prefix)));
        while let Some(meta) = found.try_next().await? {
            if is_over(&meta, ctx.now_unix_ms(), rule.after) && remove(store, &meta).await? {
                removed += 1;
            }
        }
    }
    Ok(removed)
}

/// Runs a pass at once and then one every hour, until the shutdown signal.
pub async fn expire(store: Inner, ctx: Context, rules: &[Rule], shutdown: CancellationToken) {
    loop {
        match expire_once(&store, &ctx, rules).await {
            Ok(removed) => tracing::debug!(removed, "expired objects of the directory store"),
            Err(error) => tracing::warn!(%error, "cannot expire objects of the directory store"),
        }
        tokio::select! {
            biased;
            () = shutdown.cancelled() => return,
            () = ctx.sleep(EVERY) => {}
        }
    }
}

fn is_over(meta: &ObjectMeta, now_unix_ms: u64, after: Duration) -> bool {
    let written = u64::try_from(meta.last_modified.timestamp_millis()).unwrap_or(0);
    // An object from the future is young: its writer's clock is ahead of ours.
    u128::from(now_unix_ms.saturating_sub(written)) > after.as_millis()
}

/// False when it was gone already: two passes may meet.
async fn remove(store: &Inner, meta: &ObjectMeta) -> object_store::Result<bool> {
    match store.delete(&meta.location).await {
        Ok(()) => Ok(true),
        Err(object_store::Error::NotFound { .. }) => Ok(false),
        Err(error) => Err(error),
    }
}

#[cfg(test)]
mod tests {
    use std::fs::{File, FileTimes};
    use std::path::Path as FilePath;
    use std::sync::Arc;
    use std::time::{SystemTime, UNIX_EPOCH};

    use object_store::memory::InMemory;

    use super::*;
    use crate::open::open_store;

    const NOW_MS: u64 = 1_790_000_000_000;

    /// A file whose last write is `age` before [`NOW_MS`].
    fn aged(root: &FilePath, key: &str, age: Duration) {
        let path = root.join(key);
        std::fs::create_dir_all(path.parent().expect("a key in a folder")).expect("a folder");
        let file = File::create(&path).expect("a file");
        let written: SystemTime = UNIX_EPOCH + Duration::from_millis(NOW_MS) - age;
        file.set_times(FileTimes::new().set_modified(written)).expect("its time");
    }

    #[tokio::test(start_paused = true)]
    async fn only_what_is_over_goes() {
        let dir = tempfile::tempdir().expect("a directory");
        let ages = [
            ("db-reads/dbr_a/out/00000001", DAY + Duration::from_secs(1), true),
            ("db-reads/dbr_b/out/00000001", DAY - Duration::from_secs(1), false),
            ("db-reads/queue/uk/2026102209/1-dbr_a", DAY * 2, true),
            ("probe/box1/x", DAY * 2, true),
            ("activity/acme/20261022/x", DAY * 399, false),
            ("activity/acme/20251022/x", DAY * 401, true),
            ("mesh/nodes/m/r/1", DAY * 2, false),
            ("hosts/shop.example.com/1", DAY * 5_000, false),
            ("control/serial/uk", DAY * 5_000, false),
            ("db-readsX/stays", DAY * 5_000, false),
        ];
        ages.iter().for_each(|(key, age, _)| aged(dir.path(), key, *age));
        let store = open_store(&format!("file://{}", dir.path().display())).expect("a store");
        let removed = expire_once(&store, &Context::simulated(1, NOW_MS), &RULES).await;
        assert_eq!(removed.expect("a readable directory"), 4);
        for (key, _, gone) in ages {
            assert_ne!(dir.path().join(key).exists(), gone, "{key}");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn the_task_passes_every_hour_and_ends_on_the_signal() {
        let ctx = Context::simulated(1, u64::from(u32::MAX) * 1_000);
        let store: Inner = Arc::new(InMemory::new());
        let shutdown = CancellationToken::new();
        let task = ctx.spawn(expire(Arc::clone(&store), ctx.clone(), &RULES, shutdown.clone()));
        ctx.sleep(Duration::from_secs(1)).await;
        let late = Path::from("probe/box1/late");
        store.put(&late, "x".into()).await.expect("a memory store");
        ctx.sleep(EVERY).await;
        assert!(store.head(&late).await.is_err(), "written long before the simulated now");
        shutdown.cancel();
        task.await.expect("the task ends");
    }
}
