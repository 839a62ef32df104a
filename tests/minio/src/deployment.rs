//! A deployment's buckets with everybody's rights on them.

use carlos_bucket::layer::Inner;
use carlos_bucket::{Bucket, Context};
use carlos_cli::admin::grants::{Deployment, Holder, Role};
use carlos_protocol::ids::Region;

use crate::server::{Running, Server};

/// The mesh that `mesh-node` belongs to.
pub const MESH: &str = "chat";

/// Fresh buckets: one for the deployment, and the data buckets of `ie` and `uk`.
pub struct Buckets {
    pub server: &'static Server,
    pub deployment: Deployment,
}

impl Buckets {
    /// Makes the buckets and grants the rights.
    pub async fn create(server: &'static Server) -> Self {
        let run = Context::system().ulid().to_string().to_lowercase();
        let named = |region: &str| (region_of(region), format!("carlos-{run}-{region}"));
        let deployment = Deployment {
            bucket: format!("carlos-{run}"),
            data: ["ie", "uk"].map(named).to_vec(),
            holders: holders(),
        };
        let buckets = Self { server, deployment };
        let admin = server.admin();
        admin.create_bucket(&buckets.deployment.bucket).await;
        for (_, name) in &buckets.deployment.data {
            admin.create_bucket(name).await;
        }
        buckets.grant().await;
        buckets
    }

    async fn grant(&self) {
        let dialect = &self.server.dialect;
        if let Running::Docker(container) = &self.server.running {
            let policies = self.deployment.user_policies(dialect).into_iter();
            // Its root needs no grant and can be given none.
            for (user, policy) in policies.filter(|(user, _)| user != "operator") {
                let name = format!("{user}-{}", self.deployment.bucket);
                container.grant(&user, &name, &policy);
            }
            return;
        }
        for (bucket, policy) in self.deployment.bucket_policies(dialect) {
            self.server.admin().set_policy(&bucket, &policy).await;
        }
    }

    /// The data bucket of `region`.
    pub fn data(&self, region: &str) -> &str {
        let found = self.deployment.data.iter().find(|(name, _)| name.as_str() == region);
        &found.unwrap().1
    }

    /// The deployment bucket's store as `user` sees it.
    pub fn store(&self, user: &str) -> Inner {
        self.server.store(user, &self.deployment.bucket)
    }

    /// The deployment bucket as `user` sees it.
    pub fn bucket(&self, user: &str) -> Bucket {
        Bucket::new(self.store(user), Context::system())
    }
}

/// A fresh bucket of the operator's with nobody else in it; its name.
pub async fn plain_bucket(server: &Server) -> String {
    let name = format!("carlos-{}", Context::system().ulid().to_string().to_lowercase());
    server.admin().create_bucket(&name).await;
    name
}

fn holders() -> Vec<Holder> {
    // Ceph lets the owner of a bucket read only what nobody else has put there.
    let roles = [
        ("operator", Role::Operator),
        ("console", Role::Console(region_of("ie"))),
        ("box-ie", Role::Agent(region_of("ie"))),
        ("box-uk", Role::Agent(region_of("uk"))),
        ("mesh-node", Role::MeshNode(MESH.into())),
    ];
    roles.map(|(name, role)| Holder { name: name.parse().unwrap(), role }).to_vec()
}

fn region_of(name: &str) -> Region {
    name.parse().unwrap()
}
