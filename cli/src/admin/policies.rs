//! `carlos admin policies`: the grants as the policies of one deployment.

use carlos_protocol::ids::{Principal, Region};
use clap::{Args, ValueEnum};
use serde_json::{Map, Value};

use super::grants::{Deployment, Dialect, Holder, Role};
use crate::failure::Failure;
use crate::out;

/// The deployment whose policies are printed.
#[derive(Debug, Args)]
#[command(after_help = EXAMPLE)]
pub(super) struct Policies {
    /// The data bucket of a region.
    #[arg(long, value_name = "REGION=BUCKET", value_parser = pair::<Region>)]
    data: Vec<(Region, String)>,
    #[command(flatten)]
    holders: Holders,
    /// Whose policies these are.
    #[arg(long, default_value = "aws")]
    server: Server,
    /// The AWS account of the users, for policies of buckets.
    #[arg(long, value_name = "NUMBER", default_value = "")]
    aws_account: String,
    /// One policy for each bucket, instead of one for each user.
    #[arg(long)]
    by_bucket: bool,
}

/// Everybody with keys.
#[derive(Debug, Args)]
pub(super) struct Holders {
    /// A console, with the region it stands in.
    #[arg(long, value_name = "NAME=REGION", value_parser = pair::<Principal>)]
    console: Vec<(Principal, String)>,
    /// A box, with the region whose replicas it reads.
    #[arg(long, value_name = "NAME=REGION", value_parser = pair::<Principal>)]
    agent: Vec<(Principal, String)>,
    /// Who runs carlos admin.
    #[arg(long, value_name = "NAME")]
    operator: Vec<Principal>,
    /// A node of a mesh.
    #[arg(long, value_name = "NAME=MESH", value_parser = pair::<Principal>)]
    mesh_node: Vec<(Principal, String)>,
    /// A router or private memory host, with its deployment.
    #[arg(long, value_name = "NAME=DEPLOYMENT", value_parser = pair::<Principal>)]
    router: Vec<(Principal, String)>,
}

/// Who made the server, as far as it makes a difference.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(super) enum Server {
    Aws,
    Ceph,
    Minio,
}

const EXAMPLE: &str = "\
Prints one JSON object of policies by name, from the same grants for every server.

Example:
  carlos admin policies --bucket s3://carlos-deployment --data uk=carlos-data-uk \\
    --console console=ie --agent box-uk=uk --operator ops";

/// Prints the policies of a deployment whose bucket is `url`.
pub(super) fn print(url: &str, args: Policies) -> Result<(), Failure> {
    let name = url.strip_prefix("s3://").and_then(|rest| rest.split(['/', '?']).next());
    let bucket = name.filter(|name| !name.is_empty()).ok_or_else(|| {
        Failure::usage("only S3 buckets have policies: --bucket s3://bucket, or CARLOS_BUCKET.")
    })?;
    let dialect = match args.server {
        Server::Aws => Dialect::aws(&args.aws_account),
        Server::Ceph => Dialect::ceph(),
        Server::Minio => Dialect::minio(),
    };
    let by_bucket = args.by_bucket;
    let deployment =
        Deployment { bucket: bucket.to_owned(), holders: args.holders.read()?, data: args.data };
    let policies = match by_bucket {
        true => deployment.bucket_policies(&dialect),
        false => deployment.user_policies(&dialect),
    };
    out::json(&policies.into_iter().collect::<Map<String, Value>>())
}

impl Holders {
    pub(super) fn read(&self) -> Result<Vec<Holder>, Failure> {
        let region = |text: &String| {
            text.parse::<Region>().map_err(|error| Failure::usage(format!("{text}: {error}.")))
        };
        let mut holders = Vec::new();
        let mut add = |name: &Principal, role| holders.push(Holder { name: name.clone(), role });
        for (name, text) in &self.console {
            add(name, Role::Console(region(text)?));
        }
        for (name, text) in &self.agent {
            add(name, Role::Agent(region(text)?));
        }
        self.operator.iter().for_each(|name| add(name, Role::Operator));
        for (name, mesh) in &self.mesh_node {
            add(name, Role::MeshNode(mesh.clone()));
        }
        for (name, deployment) in &self.router {
            add(name, Role::Router(deployment.clone()));
        }
        Ok(holders)
    }
}

/// `NAME=TEXT`, whose text could not widen a pattern.
fn pair<T: std::str::FromStr<Err: std::fmt::Display>>(text: &str) -> Result<(T, String), String> {
    let (name, value) = text.split_once('=').ok_or("not of the form NAME=VALUE")?;
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || b".-_".contains(&byte);
    if value.is_empty() || !value.bytes().all(plain) {
        return Err(format!("{value:?} is not a name"));
    }
    Ok((name.parse().map_err(|error: T::Err| error.to_string())?, value.to_owned()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pair_holds_two_plain_names() {
        assert_eq!(pair::<Region>("uk=data-uk"), Ok(("uk".parse().expect("x"), "data-uk".into())));
        for bad in ["uk", "uk=", "uk=*", "uk=a/b", "U K=x"] {
            assert!(pair::<Region>(bad).is_err(), "{bad}");
        }
    }
}
