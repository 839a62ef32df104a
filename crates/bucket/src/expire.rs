//! The lifecycle of a directory store. A real store removes old objects by a rule of its own; on a
//! directory this task plays that part, outside the protocol and behind any write-once guard
//! (db-forward §5.3, J4). It knows prefixes and ages and nothing of what the objects mean.
//!
//! A directory also keeps what a real store never shows: the staging file `name#1` of a put whose
//! process was killed before it gave the file its name. Such a file is no object, so no listing and
//! no rule sees it; [`sweep_staging`] does.

use std::ffi::OsStr;
use std::path::{Path as Folder, PathBuf};
use std::time::{Duration, SystemTime, UNIX_EPOCH};
use std::{fs, io};

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

/// A staging file of this age is nobody's: a put ends within the half minute of its deadline, and
/// the rest forgives a machine that slept. If its writer lives after all, its put fails and is
/// repeated.
pub const STAGING_AGE: Duration = Duration::from_secs(60 * 60);

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

/// Removes the staging files older than [`STAGING_AGE`] in a directory store and in the folders
/// under it, with the folders that are empty then; the number of files removed. Blocks.
///
/// # Errors
/// The first folder that cannot be read or file that cannot be removed.
pub fn sweep_staging(root: &Folder, now_unix_ms: u64) -> io::Result<u64> {
    let now = UNIX_EPOCH + Duration::from_millis(now_unix_ms);
    sweep(root, now.checked_sub(STAGING_AGE).unwrap_or(UNIX_EPOCH))
}

fn sweep(folder: &Folder, before: SystemTime) -> io::Result<u64> {
    let mut removed = 0;
    for entry in gone_is_empty(fs::read_dir(folder))?.into_iter().flatten() {
        let entry = entry?;
        let kind = entry.file_type()?;
        if kind.is_dir() {
            let inside = sweep(&entry.path(), before)?;
            if inside > 0 {
                // Fails where something is left, or came meanwhile.
                let _ = fs::remove_dir(entry.path());
            }
            removed += inside;
        } else if kind.is_file() && is_staging(&entry.file_name()) {
            let metadata = gone_is_empty(entry.metadata())?;
            if metadata.is_some_and(|file| file.modified().is_ok_and(|time| time < before)) {
                removed += u64::from(gone_is_empty(fs::remove_file(entry.path()))?.is_some());
            }
        }
    }
    Ok(removed)
}

/// Whether the store's library gives this name to files that are not objects yet. It takes no
/// object of such a name, so none can be meant.
fn is_staging(name: &OsStr) -> bool {
    let suffix = name.to_str().and_then(|name| name.split_once('#')).map(|(_, suffix)| suffix);
    suffix.is_some_and(|it| !it.is_empty() && it.bytes().all(|byte| byte.is_ascii_digit()))
}

/// The store goes on working while it is swept.
fn gone_is_empty<T>(found: io::Result<T>) -> io::Result<Option<T>> {
    match found {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        found => found.map(Some),
    }
}

/// Runs a pass at once and then one every hour, until the shutdown signal. The staging files of
/// the directories in `staging` go with each pass.
pub async fn expire(
    store: Inner,
    staging: Vec<PathBuf>,
    ctx: Context,
    rules: &[Rule],
    shutdown: CancellationToken,
) {
    loop {
        sweep_all(&staging, &ctx).await;
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

async fn sweep_all(staging: &[PathBuf], ctx: &Context) {
    for root in staging {
        let (path, now) = (root.clone(), ctx.now_unix_ms());
        let swept = ctx.spawn_blocking(move || sweep_staging(&path, now)).await;
        match swept {
            Ok(Ok(0)) => {}
            Ok(Ok(removed)) => tracing::info!(removed, ?root, "removed what killed puts left"),
            Ok(Err(error)) => tracing::warn!(%error, ?root, "cannot remove what killed puts left"),
            Err(error) => tracing::warn!(%error, ?root, "the sweep did not end"),
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
    use std::sync::Arc;

    use object_store::memory::InMemory;

    use super::*;
    use crate::open::open_store;

    const NOW_MS: u64 = 1_790_000_000_000;

    /// A file whose last write is `age` before `now_ms`.
    fn aged(root: &Folder, key: &str, age: Duration, now_ms: u64) {
        let path = root.join(key);
        std::fs::create_dir_all(path.parent().expect("a key in a folder")).expect("a folder");
        let file = File::create(&path).expect("a file");
        let written: SystemTime = UNIX_EPOCH + Duration::from_millis(now_ms) - age;
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
        ages.iter().for_each(|(key, age, _)| aged(dir.path(), key, *age, NOW_MS));
        let store = open_store(&format!("file://{}", dir.path().display())).expect("a store");
        let removed = expire_once(&store, &Context::simulated(1, NOW_MS), &RULES).await;
        assert_eq!(removed.expect("a readable directory"), 4);
        for (key, _, gone) in ages {
            assert_ne!(dir.path().join(key).exists(), gone, "{key}");
        }
    }

    /// The names are the library's own: what it stages is swept, and what it lists stays.
    #[tokio::test]
    async fn staging_files_of_killed_puts_go_and_objects_stay() {
        let dir = tempfile::tempdir().expect("a directory");
        let old = STAGING_AGE + Duration::from_secs(1);
        let files = [
            ("db-reads/dbr_a/out/00000001#1", old, true),
            ("hosts/shop.example.com/00000000000000000001#27", old, true),
            ("hosts/shop.example.com/00000000000000000001", old, false),
            ("control/status/uk-1#1", STAGING_AGE - Duration::from_secs(1), false),
            ("control/status/uk-1", old, false),
            ("probe/a/x#", old, false),
            ("probe/a/x#1a", old, false),
            ("probe/a/x", old, false),
        ];
        files.iter().for_each(|(key, age, _)| aged(dir.path(), key, *age, NOW_MS));
        let store = open_store(&format!("file://{}", dir.path().display())).expect("a store");
        let listed = || store.list(None).map_ok(|meta| meta.location).try_collect::<Vec<_>>();
        let before = listed().await.expect("a readable directory");
        assert_eq!(sweep_staging(dir.path(), NOW_MS).expect("a readable directory"), 2);
        for (key, _, gone) in files {
            assert_ne!(dir.path().join(key).exists(), gone, "{key}");
        }
        assert!(!dir.path().join("db-reads").exists(), "the folders that it emptied");
        assert_eq!(listed().await.expect("a readable directory").len(), before.len());
        assert_eq!(sweep_staging(&dir.path().join("nowhere"), NOW_MS).expect("nothing"), 0);
    }

    #[tokio::test(start_paused = true)]
    async fn the_task_passes_every_hour_and_ends_on_the_signal() {
        let ctx = Context::simulated(1, u64::from(u32::MAX) * 1_000);
        let store: Inner = Arc::new(InMemory::new());
        let shutdown = CancellationToken::new();
        let dir = tempfile::tempdir().expect("a directory");
        aged(dir.path(), "hosts/h/1#1", STAGING_AGE * 2, ctx.now_unix_ms());
        let roots = vec![dir.path().to_owned()];
        let expiring = expire(Arc::clone(&store), roots, ctx.clone(), &RULES, shutdown.clone());
        let task = ctx.spawn(expiring);
        while dir.path().join("hosts").exists() {
            ctx.sleep(Duration::from_millis(1)).await;
        }
        let late = Path::from("probe/box1/late");
        store.put(&late, "x".into()).await.expect("a memory store");
        ctx.sleep(EVERY).await;
        assert!(store.head(&late).await.is_err(), "written long before the simulated now");
        shutdown.cancel();
        task.await.expect("the task ends");
    }
}
