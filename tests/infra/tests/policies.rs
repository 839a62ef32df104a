//! Policies are written down once, in the grants that `carlos admin policies` prints. The files
//! that Terraform and docker-compose read hold the same; with `CARLOS_WRITE_INFRA=1` the tests
//! write them anew.

use std::fs;

use carlos_cli::admin::grants::{Deployment, Dialect, Holder, Role};
use carlos_protocol::ids::{Principal, Region};
use carlos_tests_infra::{files, hold, root};
use serde_json::Value;

const TERRAFORM: &str = "infra/terraform/modules/roles/policies";
const COMPOSE: &str = "infra/compose/policies";

/// Litestream is no part of the project; its policies are written by hand.
const BY_HAND: &str = "replicator";

/// Stand for the names that Terraform fills in: labels that no grant contains.
const NAME: &str = "zz-name-zz";
const OF: &str = "zz-of-zz";

fn holder(name: &str, role: Role) -> Holder {
    Holder { name: name.parse::<Principal>().expect("a label"), role }
}

fn region(text: &str) -> Region {
    text.parse().expect("a label")
}

/// A policy for each role, with the names left open as Terraform's templates have them.
fn templates() -> Vec<(String, Value)> {
    let roles = [
        ("console", Role::Console(region(OF))),
        ("agent", Role::Agent(region(OF))),
        ("operator", Role::Operator),
        ("mesh-node", Role::MeshNode(OF.to_owned())),
        ("router", Role::Router(OF.to_owned())),
    ];
    let template = |(role, rights): (&str, Role)| {
        let deployment = Deployment {
            bucket: "${deployment}".to_owned(),
            data: vec![(region(OF), "${data}".to_owned())],
            holders: vec![holder(NAME, rights)],
        };
        let policies = deployment.user_policies(&Dialect::aws(""));
        let text = policies[0].1.to_string().replace(NAME, "${name}").replace(OF, "${of}");
        (role.to_owned(), serde_json::from_str(&text).expect("JSON"))
    };
    roles.into_iter().map(template).collect()
}

/// The deployment that docker-compose starts.
fn composed() -> Vec<(String, Value)> {
    let data = ["ie", "uk"].map(|name| (region(name), format!("carlos-data-{name}")));
    let holders = vec![
        holder("console", Role::Console(region("ie"))),
        holder("box-ie", Role::Agent(region("ie"))),
        holder("box-uk", Role::Agent(region("uk"))),
        holder("operator", Role::Operator),
    ];
    let deployment =
        Deployment { bucket: "carlos-deployment".to_owned(), data: data.into(), holders };
    deployment.user_policies(&Dialect::minio())
}

fn hold_equal(folder: &str, wanted: &[(String, Value)]) {
    for (name, policy) in wanted {
        hold(&format!("{folder}/{name}.json"), policy);
    }
    let names = files(&root().join(folder), &[".json"]).into_iter();
    let names = names.filter_map(|path| Some(path.file_stem()?.to_str()?.to_owned()));
    let strays: Vec<_> = names
        .filter(|name| name != BY_HAND && !wanted.iter().any(|(wanted, _)| wanted == name))
        .collect();
    assert!(strays.is_empty(), "{folder} grants rights to nobody: {strays:?}");
}

#[test]
fn terraform_grants_what_the_command_prints() {
    hold_equal(TERRAFORM, &templates());
}

#[test]
fn docker_compose_grants_what_the_command_prints() {
    hold_equal(COMPOSE, &composed());
}

/// MinIO refuses a document with a condition key that it does not know.
#[test]
fn minio_is_told_nothing_it_does_not_know() {
    for (name, policy) in composed() {
        let text = policy.to_string();
        assert!(!text.contains("if-none-match") && !text.contains("IfExists"), "{name}");
    }
}

/// A replicator writes replicas of one region, and reaches nothing else.
#[test]
fn both_replicators_are_one_policy() {
    let read = |folder| {
        let path = root().join(folder).join(format!("{BY_HAND}.json"));
        fs::read_to_string(path).expect("a file of the tree")
    };
    assert_eq!(read(TERRAFORM).replace("${data}", "carlos-data-uk"), read(COMPOSE));
    assert!(!read(TERRAFORM).contains("deployment"));
}
