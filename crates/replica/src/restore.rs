//! From a replica to a database file, with one new plan when a planned file vanishes.

use std::path::Path;

use crate::apply::{Restore, RestoreError, RestoreOptions, Restored};
use crate::download::Download;
use crate::plan::{Plan, PlanError, ReplanError, Rereading, Target, plan};
use crate::reader::{ReadError, ReplicaReader};
use crate::times::listing_for;

/// Why a replica was not restored.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum RestoreFailure {
    #[error("the replica changed while it was being read, twice")]
    ChangedTwice,
    #[error(transparent)]
    Plan(#[from] PlanError),
    #[error(transparent)]
    Read(#[from] ReadError),
    #[error(transparent)]
    Restore(#[from] RestoreError),
}

impl From<ReplanError> for RestoreFailure {
    fn from(error: ReplanError) -> Self {
        match error {
            ReplanError::ChangedTwice => Self::ChangedTwice,
            ReplanError::Plan(error) => Self::Plan(error),
        }
    }
}

/// Lists the replica and plans; for a time target see [`crate::times`].
///
/// # Errors
/// Why it cannot be listed, or what the listing lacks.
pub async fn plan_replica(
    reader: &dyn ReplicaReader,
    target: Target,
) -> Result<Plan, RestoreFailure> {
    Ok(plan(&listing_for(reader, target).await?, target, reader.resolution())?)
}

/// Restores `first` to `out`, and says which plan it was in the end. `first` must be a plan for
/// `target` from this reader. A file that vanishes or is replaced on the way leads to one new
/// plan, which reaches at least the same transaction.
///
/// # Errors
/// No file is left at `out` then. See [`RestoreFailure`].
pub async fn restore_to_file(
    reader: &dyn ReplicaReader,
    first: Plan,
    target: Target,
    out: &Path,
    options: RestoreOptions,
) -> Result<(Plan, Restored), RestoreFailure> {
    let mut rereading = Rereading::new(&first, target, reader.resolution());
    let mut plan = first;
    loop {
        match apply(reader, &plan, out, options).await {
            Err(RestoreFailure::Read(ReadError::Changed { .. })) => {
                let listing = listing_for(reader, target).await?;
                plan = rereading.replan(&listing)?;
            }
            Err(failure) => return Err(failure),
            Ok(restored) => return Ok((plan, restored)),
        }
    }
}

async fn apply(
    reader: &dyn ReplicaReader,
    plan: &Plan,
    out: &Path,
    options: RestoreOptions,
) -> Result<Restored, RestoreFailure> {
    let mut restore = Restore::create(out, plan.planned(), options)?;
    let mut download = Download::new(reader, plan.files());
    while let Some(bytes) = download.next().await? {
        restore.feed(&bytes)?;
    }
    Ok(restore.finish()?)
}
