//! From what a person names to one instance of one app.

use carlos_protocol::copy;
use carlos_protocol::ids::{Account, App, Host};

use crate::client::{Client, Place};
use crate::failure::Failure;

/// The app called `name`: `account/app`, or the only app of that name.
pub(super) async fn app(client: &Client, name: &str) -> Result<(Account, App), Failure> {
    let bad = |_| Failure::usage(format!("{name} is not the name of an app."));
    if let Some((account, app)) = name.split_once('/') {
        return Ok((Account::parse(account).map_err(bad)?, App::parse(app).map_err(bad)?));
    }
    let app = App::parse(name).map_err(bad)?;
    let all = client.apps().await?.apps;
    let mut accounts = all.into_iter().filter(|entry| entry.app == app).map(|entry| entry.account);
    let Some(account) = accounts.next() else {
        return Err(copy::not_found().into());
    };
    let others: Vec<String> = accounts.map(|other| format!("{other}/{app}")).collect();
    if !others.is_empty() {
        let all = [&[format!("{account}/{app}")], others.as_slice()].concat();
        return Err(copy::name_an_account(app, all.join(", ")).into());
    }
    Ok((account, app))
}

/// The instance to read: the one named, or the only one there is.
pub(super) async fn place(
    client: &Client,
    name: &str,
    instance: Option<&str>,
) -> Result<Place, Failure> {
    let named = instance.map(parse_host).transpose()?;
    let (account, app) = app(client, name).await?;
    if let Some(host) = named {
        return Ok(Place { account, app, host });
    }
    let mut hosts: Vec<Host> =
        client.instances(&account, &app).await?.instances.into_iter().map(|i| i.host).collect();
    match (hosts.pop(), hosts.is_empty()) {
        (Some(host), true) => Ok(Place { account, app, host }),
        (None, _) => Err(copy::no_instance(app).into()),
        (Some(last), false) => {
            let all: Vec<String> = hosts.into_iter().chain([last]).map(|h| h.to_string()).collect();
            Err(copy::name_an_instance(app, all.join(", ")).into())
        }
    }
}

fn parse_host(text: &str) -> Result<Host, Failure> {
    Host::parse(text).map_err(|_| Failure::usage(format!("{text} is not the host of an instance.")))
}
