//! The store's own deletion, really running: on a server whose days last a few seconds.

use std::collections::BTreeSet;
use std::time::Duration;

use carlos_bucket::Context;
use carlos_bucket::expire::RULES;
use carlos_tests_minio::deployment::plain_bucket;
use carlos_tests_minio::{Choice, Kind, Server};
use futures::TryStreamExt;
use object_store::ObjectStoreExt;
use object_store::path::Path;
use tokio::runtime::Runtime;

const DAY_SECONDS: u32 = 5;

/// Ten of those days for the one-day rules; the server looks once a day.
const PATIENCE: Duration = Duration::from_secs(50);

/// Of every prefix with a rule of days, and of every one without a rule.
const EXPIRING: [&str; 6] = [
    "db-reads/dbr_a/request.json",
    "db-reads/dbr_a/out/00000001",
    "db-reads/queue/uk/2026102209/1792659600-dbr_a",
    "presence/mesh/chat/29877660/node.1",
    "probe/console/01",
    "mesh/nodes/chat/node/1",
];
const STAYING: [&str; 9] = [
    "accounts/acme/1",
    // A rule of 400 days.
    "activity/acme/20261022/01",
    "apps/acme/shop/shop.example.com",
    "control/edges/box-uk/1",
    "control/serial/uk",
    "control/status/box-uk",
    "db-reads-of-another-name/1",
    "hosts/shop.example.com/1",
    "router/main/serial",
];

pub(crate) fn test(choice: &Choice, runtime: &Runtime) -> Result<(), String> {
    if choice.kind.clone()? != Kind::Ceph {
        // Nobody else's days can be shortened.
        eprintln!("lifecycle: not run, it needs a Ceph object gateway started here");
        return Ok(());
    }
    let server = Server::with_short_days(DAY_SECONDS)?;
    runtime.block_on(expiry(&server));
    Ok(())
}

async fn expiry(server: &Server) {
    let context = Context::system();
    let bucket = plain_bucket(server).await;
    let store = server.store("operator", &bucket);
    for key in EXPIRING.iter().chain(&STAYING) {
        store.put(&Path::from(*key), "x".into()).await.unwrap();
    }
    server.admin().set_lifecycle(&bucket, &RULES).await;
    let begun = context.monotonic();
    let staying: BTreeSet<String> = STAYING.iter().map(|key| (*key).to_owned()).collect();
    loop {
        let listed: Vec<_> = store.list(None).try_collect().await.unwrap();
        let left: BTreeSet<String> = listed.into_iter().map(|at| at.location.into()).collect();
        assert!(left.is_superset(&staying), "a record went: {left:?}");
        if left == staying {
            return;
        }
        let late: Vec<_> = left.difference(&staying).collect();
        assert!(context.monotonic() - begun < PATIENCE, "still there: {late:?}");
        context.sleep(Duration::from_millis(500)).await;
    }
}
