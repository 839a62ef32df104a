//! What every request of one console shares, and the two listings.

use std::{collections::BTreeSet, sync::Arc};

use carlos_bucket::{Bucket, Context, Purpose};
use carlos_protocol::{
    api,
    envelope::KeyFile,
    ids::{Account, App, Host},
    keys::{self, Key},
};
use futures::{StreamExt, stream};
use tokio_util::{sync::CancellationToken, task::TaskTracker};

use crate::{
    admission::Admission,
    budget::Budget,
    config::ConsoleConfig,
    evidence::Sightings,
    gate::Person,
    reads::Reads,
    records::{LookupError, Records},
    refusal::Refusal,
    strangers::Strangers,
    timings::Timings,
};

/// Accounts one listing looks at: a person's own and those they help with.
const MAX_ACCOUNTS: usize = 64;

/// Apps one listing names; an answer of more is for no terminal.
const MAX_APPS: usize = 1_000;

/// Instances one listing names; an answer of more is for no terminal.
const MAX_INSTANCES: usize = 1_000;

/// Records read at once for a listing.
const RECORDS_AT_ONCE: usize = 16;

pub(crate) struct Console {
    pub(crate) bucket: Bucket,
    pub(crate) timings: Timings,
    /// The key that signs requests; `None` when nothing is forwarded.
    pub(crate) signer: Option<Arc<KeyFile>>,
    pub(crate) records: Records,
    pub(crate) sightings: Sightings,
    pub(crate) budget: Budget,
    pub(crate) strangers: Strangers,
    pub(crate) admission: Admission,
    pub(crate) reads: Reads,
}

impl Console {
    pub(crate) fn new(
        config: &ConsoleConfig,
        bucket: Bucket,
        tasks: TaskTracker,
        shutdown: CancellationToken,
    ) -> Self {
        let timings = config.timings.clone();
        let reads = Reads {
            bucket: bucket.clone(),
            timings: timings.clone(),
            tasks,
            shutdown,
            metrics: Arc::clone(&config.metrics),
        };
        Self {
            records: Records::new(bucket.clone()),
            sightings: Sightings::default(),
            bucket,
            timings,
            signer: config.signer(),
            budget: Budget::new(config.requests_per_minute),
            strangers: Strangers::new(),
            admission: Admission::new(config.reads_per_person, config.reads_in_all),
            reads,
        }
    }

    pub(crate) fn context(&self) -> &Context {
        self.bucket.context()
    }

    /// Every app of every account that the person is a member of.
    pub(crate) async fn apps(&self, person: &Person) -> Result<api::Apps, Refusal> {
        let hints = person.also.iter().take(MAX_ACCOUNTS);
        let accounts: BTreeSet<_> = hints.chain([&person.home]).cloned().collect();
        let mut apps = Vec::new();
        for account in accounts {
            if passing_over(self.is_member(person, &account).await)?.unwrap_or(false) {
                apps.extend(self.apps_of(&account).await?);
            }
        }
        apps.truncate(MAX_APPS);
        Ok(api::Apps { apps })
    }

    async fn apps_of(&self, account: &Account) -> Result<Vec<api::AppRef>, Refusal> {
        let prefix = keys::account_apps_prefix(account);
        let listed = self.bucket.list(&prefix, None, Purpose::Claim).await?;
        let names: BTreeSet<App> = listed
            .iter()
            .filter_map(|listed| match Key::parse(&listed.key) {
                Ok(Key::App(_, app, _)) => Some(app),
                _ => None,
            })
            .collect();
        let entry = |app| api::AppRef { account: account.clone(), app };
        Ok(names.into_iter().map(entry).collect())
    }

    /// The instances of one app, each by its own record: the index has no authority.
    pub(crate) async fn instances(
        &self,
        person: &Person,
        account: &str,
        app: &str,
    ) -> Result<api::Instances, Refusal> {
        let account = self.member_of(person, account).await?;
        let app = App::parse(app).map_err(|_| Refusal::NotFound)?;
        let hosts = self.hosts_of(&account, &app).await?;
        if hosts.is_empty() {
            return Err(Refusal::NotFound);
        }
        let looks = hosts.into_iter().map(|host| async move { self.records.host(&host).await });
        let mut looks = stream::iter(looks).buffered(RECORDS_AT_ONCE);
        let mut instances = Vec::new();
        while let Some(found) = looks.next().await {
            let Some(record) = passing_over(found)?.flatten() else { continue };
            if record.account == account && record.app == app && !record.deleted {
                let (host, region, class) = (record.host, record.region, record.class);
                instances.push(api::Instance { host, region, class });
            }
        }
        Ok(api::Instances { instances })
    }

    async fn hosts_of(&self, account: &Account, app: &App) -> Result<Vec<Host>, Refusal> {
        let listed =
            self.bucket.list(&keys::app_prefix(account, app), None, Purpose::Claim).await?;
        let hosts = listed.iter().filter_map(|listed| match Key::parse(&listed.key) {
            Ok(Key::App(_, _, host)) => Some(host),
            _ => None,
        });
        Ok(hosts.take(MAX_INSTANCES).collect())
    }
}

/// `None` for a record that cannot be read: one of many shall not hide the rest of a listing. A
/// bucket that does not answer still fails it, because what is missing then is chance.
fn passing_over<T>(found: Result<T, LookupError>) -> Result<Option<T>, Refusal> {
    match found {
        Ok(found) => Ok(Some(found)),
        Err(LookupError::Garbled) => Ok(None),
        Err(error) => Err(error.into()),
    }
}
