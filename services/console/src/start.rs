//! What a console makes sure of before it listens.

use std::io;
use std::sync::Arc;

use carlos_bucket::{
    Bucket,
    probe::{Probed, probe},
};
use carlos_metrics::Exporter;
use tokio_util::sync::CancellationToken;

use crate::config::ConsoleConfig;

/// The console's name under `probe/`, which is also what its rights in the bucket name.
const PRINCIPAL: &str = "console";

/// The bucket broke a promise that a read stands on; nothing may be served from it.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the deployment bucket cannot be used ({code}): {reason}")]
pub struct UnusableBucket {
    /// The probe's stable code, the same that an agent and `carlos doctor` give.
    pub code: &'static str,
    /// Which promise it was.
    pub reason: String,
}

/// Tries the bucket's promises, before anything is served from it. Returns early, and without a
/// judgement, when told to shut down.
///
/// A bucket that gave no clear answer has not been caught lying: that is a warning in the log,
/// because every create here reads back what it is not sure of.
///
/// # Errors
/// [`UnusableBucket`] when the bucket was caught breaking one of them.
pub async fn check_bucket(
    bucket: &Bucket,
    shutdown: &CancellationToken,
) -> Result<(), UnusableBucket> {
    let probed = tokio::select! {
        biased;
        () = shutdown.cancelled() => return Ok(()),
        probed = probe(bucket, PRINCIPAL) => probed,
    };
    let code = probed.code();
    match probed {
        Probed::Keeps(_) => Ok(()),
        Probed::Lies(broken) => Err(UnusableBucket { code, reason: broken.to_string() }),
        Probed::CouldNotTell(reason) => {
            tracing::warn!(code, reason, "the bucket could not be probed");
            Ok(())
        }
    }
}

/// Serves what the console counts on the address of its configuration, until `shutdown`; nothing
/// where none is named.
///
/// # Errors
/// When the address cannot be had.
pub async fn serve_metrics(
    config: &ConsoleConfig,
    bucket: &Bucket,
    shutdown: &CancellationToken,
) -> io::Result<()> {
    let Some(endpoint) = config.metrics_at else { return Ok(()) };
    let exporter = Exporter::bind(endpoint).await?;
    tracing::info!(address = %exporter.address()?, "metrics");
    let (metrics, counted) = (Arc::clone(&config.metrics), bucket.clone());
    let context = bucket.context();
    let serving = exporter.serve(
        context.clone(),
        move |page| metrics.write(page, &counted),
        shutdown.clone(),
    );
    drop(context.spawn(serving));
    Ok(())
}
