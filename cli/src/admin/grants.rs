//! Who may do what with which objects, as data: the one source of every policy of a deployment.
//! `carlos admin policies` prints them for whatever provisions the buckets.

use carlos_protocol::ids::{Principal, Region};
use serde_json::{Value, json};

use self::Act::{Create, Everything, Read, Replace};

/// What may be done with the objects of a name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Act {
    /// Get and list, and be told that a name is free.
    Read,
    /// Put where nothing is. Only some servers can hold a principal to that; the protocol does.
    Create,
    /// Put over what is there.
    Replace,
    /// All of it, with the bucket's settings.
    Everything,
}

/// Which bucket a right is for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Place {
    /// The deployment bucket.
    Deployment,
    /// The data bucket of a region.
    Data(Region),
}

/// One right. In `keys`, `*` stands for any text, slashes included.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Right {
    /// The bucket.
    pub place: Place,
    /// What may be done.
    pub act: Act,
    /// With which names.
    pub keys: String,
}

/// What a principal is there for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Role {
    /// A console, with the region it stands in.
    Console(Region),
    /// A box's agent, with the region whose replicas it reads.
    Agent(Region),
    /// `carlos admin`.
    Operator,
    /// A node of a mesh, by the mesh's name.
    MeshNode(String),
    /// A router or private memory host, by its deployment's name.
    Router(String),
}

/// Somebody with keys.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Holder {
    /// The name, which its own keys hold.
    pub name: Principal,
    /// What it is there for.
    pub role: Role,
}

impl Right {
    /// Whether this right is for the object of this name.
    pub fn covers(&self, key: &str) -> bool {
        matches(&self.keys, key)
    }
}

/// As servers match a policy's resource: `*` is any text.
fn matches(pattern: &str, key: &str) -> bool {
    let Some((head, rest)) = pattern.split_once('*') else { return pattern == key };
    let Some(tail) = key.strip_prefix(head) else { return false };
    let mut ends = tail.char_indices().map(|(at, _)| at).chain([tail.len()]);
    ends.any(|at| matches(rest, &tail[at..]))
}

type Row = (Act, &'static str);

const CONSOLE: &[Row] = &[
    (Read, "accounts/*"),
    (Read, "activity/*"),
    (Read, "apps/*"),
    (Read, "control/*"),
    (Read, "db-reads/*"),
    (Read, "hosts/*"),
    (Read, "mesh/*"),
    (Read, "presence/*"),
    (Read, "probe/*"),
    (Create, "activity/*"),
    (Create, "apps/*"),
    (Create, "db-reads/*"),
    (Create, "hosts/*"),
    (Create, "probe/{name}/*"),
    (Replace, "control/serial/*"),
];

/// Nothing under `accounts/`: a box has no business with people's token hashes.
const AGENT: &[Row] = &[
    (Read, "control/edges/{name}/*"),
    (Read, "control/serial/{of}"),
    (Read, "db-reads/*"),
    (Read, "hosts/*"),
    (Read, "probe/{name}/*"),
    (Create, "control/edges/{name}/*"),
    (Create, "db-reads/*/out/*"),
    (Create, "db-reads/*/picked"),
    (Create, "db-reads/*/result.json"),
    (Create, "probe/{name}/*"),
    (Replace, "control/status/{name}"),
];

const MESH_NODE: &[Row] = &[
    (Read, "control/serial/mesh/{of}"),
    (Read, "mesh/*"),
    (Read, "presence/mesh/*"),
    (Read, "probe/{name}/*"),
    (Create, "mesh/fanout/*/{name}/*"),
    (Create, "mesh/nodes/{of}/{name}/*"),
    (Create, "mesh/servers/*/{name}/*"),
    (Create, "presence/mesh/{of}/*/{name}.*"),
    (Create, "probe/{name}/*"),
    (Replace, "control/serial/mesh/{of}"),
];

const ROUTER: &[Row] = &[(Read, "router/{of}/*")];

const OPERATOR: &[Row] = &[(Everything, "*")];

impl Holder {
    /// Every right of this principal; what is not here is forbidden.
    pub fn rights(&self) -> Vec<Right> {
        let (rows, of, data) = match &self.role {
            Role::Console(region) => (CONSOLE, region.as_str(), Some(region)),
            Role::Agent(region) => (AGENT, region.as_str(), Some(region)),
            Role::Operator => (OPERATOR, "", None),
            Role::MeshNode(mesh) => (MESH_NODE, mesh.as_str(), None),
            Role::Router(deployment) => (ROUTER, deployment.as_str(), None),
        };
        let filled = |keys: &str| keys.replace("{name}", self.name.as_str()).replace("{of}", of);
        let own = rows.iter().map(|&(act, keys)| Right {
            place: Place::Deployment,
            act,
            keys: filled(keys),
        });
        let data = data.map(|region| Right {
            place: Place::Data(region.clone()),
            act: Read,
            keys: "*".into(),
        });
        own.chain(data).collect()
    }

    fn keys(&self, place: &Place, act: Act) -> Vec<String> {
        let rights = self.rights().into_iter();
        let those = rights.filter(|right| right.place == *place && right.act == act);
        those.map(|right| right.keys).collect()
    }
}

/// How a server reads policies.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Dialect {
    /// The resource name of a user, with `{}` for the name.
    pub user: String,
    /// The server can demand `If-None-Match` of a put (`s3:if-none-match`).
    pub knows_if_none_match: bool,
    /// Asked for a name that is free, the server compares the name with the prefixes that may be
    /// listed. A server that does not would answer 403 for 404, and is told to let listings
    /// without any prefix pass instead; it then shows the names of a bucket, not their contents.
    pub compares_missing_names: bool,
}

impl Dialect {
    /// Amazon's, for users of the account with this number.
    pub fn aws(account: &str) -> Self {
        Self {
            user: format!("arn:aws:iam::{account}:user/{{}}"),
            knows_if_none_match: true,
            compares_missing_names: true,
        }
    }

    /// The Ceph object gateway's, as of version 16 (ceph#68577).
    pub fn ceph() -> Self {
        Self {
            user: "arn:aws:iam:::user/{}".into(),
            knows_if_none_match: false,
            compares_missing_names: false,
        }
    }

    /// MinIO's, whose policies belong to users.
    pub fn minio() -> Self {
        Self { compares_missing_names: true, ..Self::ceph() }
    }
}

/// A deployment's buckets and who has keys to them.
#[derive(Clone, Debug)]
pub struct Deployment {
    /// The deployment bucket's name.
    pub bucket: String,
    /// The data buckets' names.
    pub data: Vec<(Region, String)>,
    /// Everybody with keys.
    pub holders: Vec<Holder>,
}

impl Deployment {
    /// One policy for each principal, by name.
    pub fn user_policies(&self, dialect: &Dialect) -> Vec<(String, Value)> {
        let named = |holder: &Holder| {
            let places = self.places().into_iter();
            let own = places.flat_map(|(place, name)| allowed(holder, &place, name, dialect));
            (holder.name.to_string(), policy(own.collect()))
        };
        self.holders.iter().map(named).collect()
    }

    /// One policy for each bucket, by name. A bucket that nobody is granted has none.
    pub fn bucket_policies(&self, dialect: &Dialect) -> Vec<(String, Value)> {
        let all = self.places().into_iter().map(|(place, name)| {
            let of = |holder: &Holder| {
                let user = dialect.user.replace("{}", holder.name.as_str());
                let own = allowed(holder, &place, name, dialect).into_iter();
                own.map(|one| with(one, "Principal", json!({ "AWS": [user] }))).collect::<Vec<_>>()
            };
            (name.to_owned(), self.holders.iter().flat_map(of).collect::<Vec<_>>())
        });
        let granted = all.filter(|(_, statements)| !statements.is_empty());
        granted.map(|(name, statements)| (name, policy(statements))).collect()
    }

    fn places(&self) -> Vec<(Place, &str)> {
        let data = self.data.iter();
        let data = data.map(|(region, name)| (Place::Data(region.clone()), name.as_str()));
        std::iter::once((Place::Deployment, self.bucket.as_str())).chain(data).collect()
    }
}

fn policy(statements: Vec<Value>) -> Value {
    json!({ "Version": "2012-10-17", "Statement": statements })
}

/// What a principal's rights in one bucket come to.
fn allowed(holder: &Holder, place: &Place, bucket: &str, dialect: &Dialect) -> Vec<Value> {
    let keys = |act| holder.keys(place, act);
    let whole = format!("arn:aws:s3:::{bucket}");
    let named = |keys: &[String]| -> Vec<String> {
        keys.iter().map(|keys| format!("{whole}/{keys}")).collect()
    };
    let mut statements = Vec::new();
    let mut allow = |action: &str, resources: Vec<String>, condition: Option<Value>| {
        let one = json!({ "Effect": "Allow", "Action": [action], "Resource": resources });
        statements.push(match condition {
            Some(condition) => with(one, "Condition", condition),
            None => one,
        });
    };
    if !keys(Everything).is_empty() {
        allow("s3:*", vec![whole.clone(), format!("{whole}/*")], None);
    }
    let read = keys(Read);
    if !read.is_empty() {
        allow("s3:GetObject", named(&read), None);
        allow("s3:ListBucket", vec![whole.clone()], listed(&read, dialect));
    }
    let create = keys(Create);
    if !create.is_empty() {
        let condition = json!({ "Null": { "s3:if-none-match": "false" } });
        allow("s3:PutObject", named(&create), dialect.knows_if_none_match.then_some(condition));
    }
    let replace = keys(Replace);
    if !replace.is_empty() {
        allow("s3:PutObject", named(&replace), None);
    }
    statements
}

/// Listings are held to the names that may be read.
fn listed(keys: &[String], dialect: &Dialect) -> Option<Value> {
    let operator = match dialect.compares_missing_names {
        true => "StringLike",
        false => "StringLikeIfExists",
    };
    let everything = keys.iter().any(|keys| keys == "*");
    (!everything).then(|| json!({ operator: { "s3:prefix": keys } }))
}

fn with(mut statement: Value, name: &str, value: Value) -> Value {
    statement[name] = value;
    statement
}

#[cfg(test)]
mod tests {
    use super::*;

    fn holder(name: &str, role: Role) -> Holder {
        Holder { name: name.parse().expect("a label"), role }
    }

    fn uk() -> Region {
        "uk".parse().expect("a label")
    }

    fn agent() -> Holder {
        holder("box-uk", Role::Agent(uk()))
    }

    #[test]
    fn a_box_s_rights_are_its_own() {
        let deployment = agent().keys(&Place::Deployment, Create);
        assert!(deployment.contains(&"probe/box-uk/*".to_owned()));
        assert_eq!(agent().keys(&Place::Deployment, Replace), ["control/status/box-uk"]);
        assert_eq!(agent().keys(&Place::Data(uk()), Read), ["*"]);
        let filled = |keys: &str| !keys.contains("accounts") && !keys.contains('{');
        assert!(agent().rights().iter().all(|right| filled(&right.keys)));
    }

    /// db-forward §5.3, J2: serials and statuses are all that is ever replaced.
    #[test]
    fn nothing_under_db_reads_is_replaced_by_anybody_but_operators() {
        let mesh = || "chat".to_owned();
        let roles = [Role::Console(uk()), Role::Agent(uk()), Role::MeshNode(mesh())];
        for role in roles.into_iter().chain([Role::Router(mesh())]) {
            for keys in holder("x", role).keys(&Place::Deployment, Replace) {
                assert!(keys.starts_with("control/"), "{keys}");
            }
        }
    }

    fn deployment() -> Deployment {
        let data = vec![(uk(), "data-uk".to_owned())];
        let holders = vec![agent(), holder("ops", Role::Operator)];
        Deployment { bucket: "deployment".into(), data, holders }
    }

    #[test]
    fn a_create_demands_the_condition_where_the_server_can() {
        let dialect = Dialect::aws("123456789012");
        let policies = deployment().user_policies(&dialect);
        let statements = policies[0].1["Statement"].as_array().expect("a list");
        let puts: Vec<_> =
            statements.iter().filter(|one| one["Action"][0] == "s3:PutObject").collect();
        assert_eq!(puts.len(), 2);
        assert_eq!(puts[0]["Condition"]["Null"]["s3:if-none-match"], "false");
        assert_eq!(puts[1]["Resource"][0], "arn:aws:s3:::deployment/control/status/box-uk");
        assert!(puts[1].get("Condition").is_none());
        let simple = deployment().user_policies(&Dialect::ceph());
        assert!(!simple[0].1.to_string().contains("if-none-match"));
    }

    #[test]
    fn a_bucket_s_policy_names_its_users() {
        let policies = deployment().bucket_policies(&Dialect::ceph());
        let names: Vec<_> = policies.iter().map(|(name, _)| name.as_str()).collect();
        assert_eq!(names, ["deployment", "data-uk"]);
        let data = &policies[1].1["Statement"];
        assert_eq!(data[0]["Principal"]["AWS"][0], "arn:aws:iam:::user/box-uk");
        assert!(data.to_string().find("ops").is_none(), "operators are granted data apart");
    }
}
