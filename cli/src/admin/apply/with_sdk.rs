//! The command, in builds that have its client.

use carlos_bucket::{Address, s3_address};
use serde::Serialize;

use super::sdk;
use super::{Apply, Server};
use crate::admin::grants::{Deployment, Dialect};
use crate::admin::state::{self, Wanted};
use crate::failure::Failure;
use crate::out;

/// One setting of one bucket.
#[derive(Debug, Serialize)]
struct Line {
    bucket: String,
    setting: &'static str,
    state: &'static str,
}

/// Brings the buckets to their state.
pub(in crate::admin) async fn apply(url: &str, args: Apply) -> Result<(), Failure> {
    let wanted = wanted(url, &args)?;
    let mut lines = Vec::new();
    let mut ended = Ok(());
    for one in &wanted {
        let bucket = one.address.bucket.clone();
        let mut say = |setting, state| {
            lines.push(Line { bucket: bucket.clone(), setting, state });
        };
        if let Err(error) = sdk::bring(one, args.dry_run, &mut say).await {
            ended = Err(Failure::unexpected(format!("{bucket}: {error}.")));
            break;
        }
    }
    // What was done before a failure is said too.
    match args.json {
        true => out::json(&lines)?,
        false => out::lines(
            lines.iter().map(|line| format!("{:<8} {}\t{}", line.state, line.bucket, line.setting)),
        )?,
    }
    ended
}

fn wanted(url: &str, args: &Apply) -> Result<Vec<Wanted>, Failure> {
    let own = address(url, args)?;
    let mut data = Vec::new();
    for (region, url) in &args.data {
        data.push((region.clone(), address(url, args)?));
    }
    let deployment = Deployment {
        bucket: own.bucket.clone(),
        data: data.iter().map(|(region, at)| (region.clone(), at.bucket.clone())).collect(),
        holders: args.holders.read()?,
    };
    let grants = |bucket: &str| match args.server {
        Some(Server::Ceph) => state::grants(&deployment, &Dialect::ceph(), bucket),
        _ => None,
    };
    let policy = grants(&own.bucket);
    let first = state::deployment(own, args.versioned, args.activity_days, policy);
    let others = data.into_iter().map(|(_, at)| {
        let policy = grants(&at.bucket);
        state::data(at, policy)
    });
    Ok(std::iter::once(first).chain(others).collect())
}

fn address(url: &str, args: &Apply) -> Result<Address, Failure> {
    let found = s3_address(url, |name| std::env::var(name).ok());
    let found = found.map_err(|error| Failure::usage(format!("{error}.")))?;
    let address = found.ok_or_else(|| {
        Failure::usage(format!("{url} has nothing to set: only S3 buckets have settings."))
    })?;
    let amazon = args.server.map_or(address.amazon, |server| server == Server::Aws);
    Ok(Address { amazon, ..address })
}
