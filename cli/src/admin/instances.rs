//! Instances and boxes: who owns a host, where its data lives, and which servers are known.

use std::collections::BTreeSet;

use carlos_bucket::{Outcome, Purpose};
use carlos_protocol::ids::{Account, App, BoxName, Class, Host, Region};
use carlos_protocol::keys::{self, Key};
use carlos_protocol::records::{self, AppIndex, Edges, HostRecord, Move, Status};
use carlos_protocol::time::Seconds;
use object_store::ObjectStoreExt as _;
use object_store::path::Path;

use super::operator::{AdminError, Operator};

/// What a new instance is.
#[derive(Clone, Debug)]
pub struct NewInstance {
    pub account: Account,
    pub app: App,
    pub host: Host,
    pub region: Region,
    pub class: Class,
}

/// A box as its chain and its pulse show it.
#[derive(Clone, Debug)]
pub struct KnownBox {
    pub name: BoxName,
    pub edges: Option<Edges>,
    pub status: Option<Status>,
}

impl Operator {
    /// Gives a free host to an app. A host that somebody has, whoever asks, is refused.
    pub async fn create_instance(&self, new: NewInstance) -> Result<HostRecord, AdminError> {
        self.account(&new.account).await?;
        let created_at = self.context().ulid();
        let record = self
            .edit(&keys::host_chain(&new.host), |found: Option<HostRecord>| {
                if found.is_some_and(|record| !record.deleted) {
                    return Err(AdminError::exists("instance", &new.host));
                }
                Ok(HostRecord {
                    v: records::VERSION,
                    host: new.host.clone(),
                    account: new.account.clone(),
                    app: new.app.clone(),
                    class: new.class.clone(),
                    region: new.region.clone(),
                    created_at,
                    moving: None,
                    pooled: false,
                    fleet: false,
                    deleted: false,
                })
            })
            .await?;
        self.index(&record).await?;
        Ok(record)
    }

    /// Leaves a tombstone: the name is free, and no record of this life comes back.
    pub async fn delete_instance(&self, host: &Host) -> Result<(), AdminError> {
        self.edit_live(host, |record| {
            record.deleted = true;
            Ok(())
        })
        .await
        .map(drop)
    }

    /// Marks the instance as moving; nobody reads it until the move has ended.
    pub async fn begin_move(&self, host: &Host, to: &Region) -> Result<(), AdminError> {
        let since = Seconds::new(self.context().now_unix());
        self.edit_live(host, |record| {
            if record.moving.is_some() {
                return Err(AdminError::Refused(format!("{host} is moving already")));
            }
            record.moving = Some(Move { to: to.clone(), since });
            Ok(())
        })
        .await
        .map(drop)
    }

    /// Ends the move: the data now lives where the move went.
    pub async fn end_move(&self, host: &Host) -> Result<(), AdminError> {
        self.edit_live(host, |record| {
            let Some(moving) = record.moving.take() else {
                return Err(AdminError::Refused(format!("{host} is not moving")));
            };
            record.region = moving.to;
            Ok(())
        })
        .await
        .map(drop)
    }

    /// The live instance of this host.
    pub async fn instance(&self, host: &Host) -> Result<HostRecord, AdminError> {
        let record: Option<HostRecord> = self.read(&keys::host_chain(host)).await?;
        record.filter(|record| !record.deleted).ok_or_else(|| AdminError::absent("instance", host))
    }

    /// The live instances of one account.
    pub async fn instances(&self, account: &Account) -> Result<Vec<HostRecord>, AdminError> {
        let prefix = keys::account_apps_prefix(account);
        let mut found = Vec::new();
        for listed in self.bucket.list(&prefix, None, Purpose::Sweep).await? {
            let Ok(Key::App(_, app, host)) = Key::parse(&listed.key) else { continue };
            // The index has no authority: the host may have gone to somebody else since.
            match self.instance(&host).await {
                Ok(record) if record.account == *account && record.app == app => found.push(record),
                Ok(_) | Err(AdminError::Absent { .. }) => {}
                Err(error) => return Err(error),
            }
        }
        Ok(found)
    }

    /// Makes a box known before its agent first runs. A console then waits for it rather than say
    /// that its region has no server.
    pub async fn create_box(&self, name: &BoxName, region: &Region) -> Result<(), AdminError> {
        self.edit(&keys::edges_chain(name), |found: Option<Edges>| match found {
            Some(_) => Err(AdminError::exists("box", name)),
            None => Ok(Edges {
                v: records::VERSION,
                box_name: name.clone(),
                region: region.clone(),
                capabilities: Vec::new(),
                draining: false,
            }),
        })
        .await
        .map(drop)
    }

    /// Forgets a box that is gone for good. Nothing of a read is touched.
    pub async fn remove_box(&self, name: &BoxName) -> Result<(), AdminError> {
        let mut keys: Vec<String> = self
            .bucket
            .list(&format!("{}/", keys::edges_chain(name)), None, Purpose::Sweep)
            .await?
            .into_iter()
            .map(|listed| listed.key)
            .collect();
        if keys.is_empty() {
            return Err(AdminError::absent("box", name));
        }
        keys.push(Key::Status(name.clone()).to_path());
        for key in keys {
            match self.bucket.store().delete(&Path::from(key.as_str())).await {
                Ok(()) | Err(object_store::Error::NotFound { .. }) => {}
                Err(error) => return Err(AdminError::Refused(error.to_string())),
            }
        }
        Ok(())
    }

    /// Every box that has a chain or a pulse.
    pub async fn boxes(&self) -> Result<Vec<KnownBox>, AdminError> {
        let mut names = BTreeSet::new();
        for prefix in [keys::EDGES, keys::STATUS] {
            let children = self.bucket.children(prefix, Purpose::Sweep).await?;
            names.extend(children.names::<BoxName>(prefix));
        }
        let mut boxes = Vec::new();
        for name in names {
            let edges = self.read(&keys::edges_chain(&name)).await?;
            let key = Key::Status(name.clone()).to_path();
            let status = self.bucket.get(&key, Purpose::Claim).await?;
            let status = status.and_then(|bytes| Status::from_bytes(&bytes).ok());
            boxes.push(KnownBox { name, edges, status });
        }
        Ok(boxes)
    }

    async fn edit_live(
        &self,
        host: &Host,
        change: impl Fn(&mut HostRecord) -> Result<(), AdminError>,
    ) -> Result<HostRecord, AdminError> {
        self.edit(&keys::host_chain(host), |found: Option<HostRecord>| {
            let live = found.filter(|record| !record.deleted);
            let mut record = live.ok_or_else(|| AdminError::absent("instance", host))?;
            change(&mut record)?;
            Ok(record)
        })
        .await
    }

    async fn index(&self, record: &HostRecord) -> Result<(), AdminError> {
        let HostRecord { account, app, host, .. } = record;
        let key = Key::App(account.clone(), app.clone(), host.clone()).to_path();
        let body = records::encode(&AppIndex {});
        match self.bucket.create(&key, body.into(), Purpose::Claim).await {
            Outcome::Created | Outcome::AlreadyMine | Outcome::TakenBy(_) => Ok(()),
            Outcome::Unknown(cause) => Err(AdminError::Unknown { name: key, cause }),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use carlos_bucket::{Bucket, Context};
    use object_store::memory::InMemory;

    use super::*;

    async fn operator() -> Operator {
        let operator = Operator::new(Bucket::new(Arc::new(InMemory::new()), Context::system()));
        for account in ["acme", "rival"] {
            operator.create_account(&Account::parse(account).unwrap()).await.unwrap();
        }
        operator
    }

    fn new(account: &str, host: &str) -> NewInstance {
        NewInstance {
            account: Account::parse(account).unwrap(),
            app: App::parse("shop").unwrap(),
            host: Host::parse(host).unwrap(),
            region: Region::parse("uk").unwrap(),
            class: Class::parse("sleeping").unwrap(),
        }
    }

    #[tokio::test]
    async fn a_host_has_one_live_record_whoever_asks() {
        let operator = operator().await;
        let first = operator.create_instance(new("acme", "shop.example.com")).await.unwrap();
        assert!(operator.create_instance(new("rival", "shop.example.com")).await.is_err());
        operator.delete_instance(&first.host).await.unwrap();
        let second = operator.create_instance(new("rival", "shop.example.com")).await.unwrap();
        assert_ne!(first.incarnation(), second.incarnation());
        let acme = Account::parse("acme").unwrap();
        assert!(operator.instances(&acme).await.unwrap().is_empty());
        assert_eq!(operator.instances(&second.account).await.unwrap(), vec![second]);
    }

    #[tokio::test]
    async fn a_recreated_host_is_another_incarnation() {
        let operator = operator().await;
        let first = operator.create_instance(new("acme", "shop.example.com")).await.unwrap();
        operator.delete_instance(&first.host).await.unwrap();
        assert!(operator.delete_instance(&first.host).await.is_err());
        let second = operator.create_instance(new("acme", "shop.example.com")).await.unwrap();
        assert_ne!(first.incarnation(), second.incarnation());
    }

    #[tokio::test]
    async fn a_move_has_a_beginning_and_an_end() {
        let operator = operator().await;
        let host = operator.create_instance(new("acme", "shop.example.com")).await.unwrap().host;
        let ie = Region::parse("ie").unwrap();
        assert!(operator.end_move(&host).await.is_err());
        operator.begin_move(&host, &ie).await.unwrap();
        assert!(operator.begin_move(&host, &ie).await.is_err());
        assert!(operator.instance(&host).await.unwrap().moving.is_some());
        operator.end_move(&host).await.unwrap();
        let record = operator.instance(&host).await.unwrap();
        assert_eq!((record.region, record.moving), (ie, None));
    }

    #[tokio::test]
    async fn a_box_is_known_until_it_is_removed() {
        let operator = operator().await;
        let (name, uk) = (BoxName::parse("uk-1").unwrap(), Region::parse("uk").unwrap());
        operator.create_box(&name, &uk).await.unwrap();
        assert!(operator.create_box(&name, &uk).await.is_err());
        let boxes = operator.boxes().await.unwrap();
        assert_eq!(boxes.len(), 1);
        assert!(boxes[0].status.is_none() && boxes[0].edges.is_some());
        operator.remove_box(&name).await.unwrap();
        assert!(operator.boxes().await.unwrap().is_empty());
    }
}
