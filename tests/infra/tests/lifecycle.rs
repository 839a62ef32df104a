//! What expires is written down once, in `carlos_bucket::expire::RULES`, which a directory store
//! obeys; Terraform's rules and MinIO's say the same.

#![allow(clippy::panic)]

use std::collections::BTreeMap;
use std::time::Duration;

use carlos_bucket::expire::RULES;
use carlos_tests_infra::{argument, block, blocks, files, root, terraform, text};
use hcl::expr::{ObjectKey, TraversalOperator};
use hcl::{Body, Expression};

const MODULE: &str = "infra/terraform/modules/deployment-bucket";
const DAY: Duration = Duration::from_secs(24 * 60 * 60);

/// Days by prefix, as the directory store expires.
fn rules() -> BTreeMap<String, u64> {
    let whole = |age: Duration| {
        assert_eq!(age.as_secs() % DAY.as_secs(), 0, "a lifecycle rule counts in days");
        age.as_secs() / DAY.as_secs()
    };
    RULES.iter().map(|rule| (format!("{}/", rule.prefix), whole(rule.after))).collect()
}

fn main_file() -> Body {
    terraform(&format!("{MODULE}/main.tf"))
}

/// The one lifecycle resource of the module.
fn lifecycle() -> Body {
    let kind = "aws_s3_bucket_lifecycle_configuration";
    block(&main_file(), "resource", &[kind, "this"]).expect("the module's lifecycle")
}

fn local(name: &str) -> Expression {
    let locals = block(&main_file(), "locals", &[]).expect("the module's locals");
    argument(&locals, name).expect("a local value")
}

/// A number, or the default of the variable that is named.
fn number(value: &Expression) -> u64 {
    let Expression::Traversal(traversal) = value else {
        let Expression::Number(number) = value else { panic!("{value:?} is not a number") };
        return number.as_u64().expect("a whole number");
    };
    let Some(TraversalOperator::GetAttr(name)) = traversal.operators.first() else {
        panic!("{traversal:?} names no variable")
    };
    let variables = terraform(&format!("{MODULE}/variables.tf"));
    let variable = block(&variables, "variable", &[name.as_str()]).expect("a declared variable");
    number(&argument(&variable, "default").expect("a default"))
}

fn key(key: &ObjectKey) -> String {
    match key {
        ObjectKey::Expression(Expression::String(text)) => text.clone(),
        other => panic!("{other:?} is not a prefix"),
    }
}

#[test]
fn every_terraform_file_parses() {
    let all = files(&root().join("infra/terraform"), &[".tf", ".hcl"]);
    assert!(all.len() >= 20, "{} files", all.len());
    for path in all {
        let text = std::fs::read_to_string(&path).expect("a file that was listed");
        let parsed = hcl::parse(&text);
        assert!(parsed.is_ok(), "{}: {:?}", path.display(), parsed.err());
    }
}

#[test]
fn terraform_expires_what_the_directory_store_expires() {
    let Expression::Object(table) = local("expiring") else { panic!("not a table") };
    let said: BTreeMap<String, u64> =
        table.iter().map(|(prefix, days)| (key(prefix), number(days))).collect();
    assert_eq!(said, rules());
}

/// db-forward §11.4, T17.
#[test]
fn t17_db_reads_expire_in_every_form() {
    assert_eq!(rules().get("db-reads/"), Some(&1));
    let made = blocks(&lifecycle(), "rule");
    assert_eq!(made.len(), 2, "one rule of ages and one of markers, for each prefix");
    for rule in &made {
        let filters = blocks(rule, "filter");
        assert_eq!(shown(&filters, "prefix"), ["rule.key"]);
        assert_eq!(argument(rule, "status"), Some("Enabled".into()));
    }
    let (ages, markers) = (&made[0], &made[1]);
    assert_eq!(shown(&blocks(ages, "expiration"), "days"), ["rule.value"]);
    let noncurrent = blocks(ages, "noncurrent_version_expiration");
    assert_eq!(shown(&noncurrent, "noncurrent_days"), ["local.noncurrent_days"]);
    assert_eq!(number(&local("noncurrent_days")), 1);
    let aborted = blocks(ages, "abort_incomplete_multipart_upload");
    assert_eq!(
        shown(&aborted, "days_after_initiation"),
        ["abort_incomplete_multipart_upload.value"]
    );
    assert_eq!(number(&local("unfinished_days")), 1);
    let expired = blocks(markers, "expiration");
    assert_eq!(shown(&expired, "expired_object_delete_marker"), ["true"]);
    assert_eq!(shown(&expired, "days"), ["none"], "S3 refuses both in one rule");
}

/// One argument of each block, as it is written.
fn shown(blocks: &[Body], name: &str) -> Vec<String> {
    let show = |value: Expression| hcl::format::to_string(&value).expect("an expression");
    blocks.iter().map(|one| argument(one, name).map_or_else(|| "none".into(), show)).collect()
}

#[test]
fn both_kinds_of_rules_are_made_for_every_prefix() {
    let dynamic = lifecycle();
    let each: Vec<_> = dynamic.blocks().filter(|one| one.identifier() == "dynamic").collect();
    let bodies: Vec<_> = each.iter().map(|one| one.body().clone()).collect();
    assert_eq!(shown(&bodies, "for_each"), ["local.expiring", "local.expiring"]);
}

/// What init.sh gives to `mc`.
#[test]
fn minio_expires_the_same() {
    let said = text("infra/compose/expiring");
    let line = |line: &str| {
        let (prefix, days) = line.split_once(' ').expect("a prefix and its days");
        (prefix.to_owned(), days.parse().expect("a number"))
    };
    assert_eq!(said.lines().map(line).collect::<BTreeMap<_, u64>>(), rules());
}
