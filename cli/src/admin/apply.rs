//! `carlos admin apply`: buckets brought to the state that Terraform's modules give them, where
//! there is no Terraform. Run again, it changes nothing.

#[cfg(feature = "admin")]
mod http;
#[cfg(feature = "admin")]
mod sdk;
#[cfg(feature = "admin")]
mod with_sdk;

use carlos_protocol::ids::Region;
use clap::Args;

use super::policies::{Holders, Server};
#[cfg(not(feature = "admin"))]
use crate::failure::Failure;

/// What to bring about.
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub(super) struct Apply {
    /// The data bucket of a region.
    #[arg(long, value_name = "REGION=URL", value_parser = data)]
    data: Vec<(Region, String)>,
    /// Let the deployment bucket keep old versions.
    #[arg(long)]
    versioned: bool,
    /// How many days rows of the audit log are kept.
    #[arg(long, value_name = "DAYS", value_parser = clap::value_parser!(u32).range(1..))]
    activity_days: Option<u32>,
    /// Whose server this is. AWS, unless CARLOS_S3_ENDPOINT says otherwise.
    #[arg(long)]
    server: Option<Server>,
    #[command(flatten)]
    holders: Holders,
    /// Look and say what would change, and change nothing.
    #[arg(long)]
    dry_run: bool,
    /// Print one JSON array.
    #[arg(long)]
    json: bool,
}

const EXAMPLES: &str = "\
Makes the deployment bucket and the data buckets where they are missing, with lifecycle, versioning,
public access block, encryption and policy. On Ceph the policies are the grants of those named with
--console, --agent and so on; on AWS and MinIO grants belong to users, and are not made here.
Prints a line for each setting: same, made, or with --dry-run: missing.

Examples:
  carlos admin apply --bucket 's3://acme-deployment?region=eu-west-1' \\
    --data 'uk=s3://acme-data-uk?region=eu-west-2' --dry-run
  CARLOS_S3_ENDPOINT=http://127.0.0.1:9000 carlos admin apply --bucket s3://carlos-deployment \\
    --server ceph --data uk=s3://carlos-data-uk --console console=ie --agent box-uk=uk";

/// Brings the buckets to their state.
#[cfg(not(feature = "admin"))]
pub(super) async fn apply(_: &str, _: Apply) -> Result<(), Failure> {
    Err(carlos_protocol::copy::not_built("carlos admin apply", "admin").into())
}

#[cfg(feature = "admin")]
pub(super) use with_sdk::apply;

/// `REGION=URL`.
fn data(text: &str) -> Result<(Region, String), String> {
    let (region, url) = text.split_once('=').ok_or("not of the form REGION=URL")?;
    let region =
        region.parse().map_err(|error: carlos_protocol::ids::IdError| error.to_string())?;
    Ok((region, url.to_owned()))
}
