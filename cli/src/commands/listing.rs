//! `carlos apps` and `carlos instances`.

use super::choose;
use crate::args;
use crate::client::Client;
use crate::failure::Failure;
use crate::out;

pub(super) async fn apps(args: &args::Apps, client: &Client) -> Result<(), Failure> {
    let answer = client.apps().await?;
    if args.json {
        return out::json(&answer);
    }
    out::lines(answer.apps.iter().map(|entry| format!("{}/{}", entry.account, entry.app)))
}

pub(super) async fn instances(args: &args::Instances, client: &Client) -> Result<(), Failure> {
    let (account, app) = choose::app(client, &args.app).await?;
    let answer = client.instances(&account, &app).await?;
    if args.json {
        return out::json(&answer);
    }
    let line =
        |i: &carlos_protocol::api::Instance| format!("{}\t{}\t{}", i.host, i.region, i.class);
    out::lines(answer.instances.iter().map(line))
}
