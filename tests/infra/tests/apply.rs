//! `carlos admin apply` gives a bucket what Terraform's modules give it: the modules' own
//! expressions, evaluated, against the command's data.

use carlos_bucket::Address;
use carlos_cli::admin::lifecycle::{NONCURRENT_DAYS, Rule, UNFINISHED_DAYS};
use carlos_cli::admin::state::{self, REPLACED, Wanted};
use carlos_tests_infra::{argument, block, terraform};
use hcl::eval::{Context, Evaluate};
use hcl::{Expression, Value};

const NAME: &str = "acme";

fn amazon() -> Address {
    let (bucket, region) = (NAME.to_owned(), "eu-west-1".to_owned());
    Address { bucket, prefix: String::new(), region, endpoint: None, amazon: true }
}

/// A local value of a module, with the bucket named and the locals it rests on evaluated first.
fn local(module: &str, name: &str, rests_on: &[&str]) -> serde_json::Value {
    let file = terraform(&format!("infra/terraform/modules/{module}/main.tf"));
    let locals = block(&file, "locals", &[]).expect("the module's locals");
    let of = |name: &str| -> Expression { argument(&locals, name).expect("a local value") };
    let mut context = Context::new();
    context.declare_var("var", hcl::value!({ name = NAME, activity_days = 400 }));
    let mut known = hcl::Map::new();
    for name in rests_on {
        context.declare_var("local", Value::Object(known.clone()));
        let value = of(name).evaluate(&context).expect("a value without a provider");
        known.insert((*name).to_owned(), value);
    }
    context.declare_var("local", Value::Object(known));
    let value = of(name).evaluate(&context).expect("a value without a provider");
    serde_json::to_value(value).expect("a value is JSON")
}

fn statements(wanted: &Wanted) -> serde_json::Value {
    wanted.policy.as_ref().expect("a policy")["Statement"].clone()
}

#[test]
fn a_deployment_bucket_gets_the_policy_of_its_module() {
    let made = statements(&state::deployment(amazon(), false, None, None));
    assert_eq!(made, local("deployment-bucket", "statements", &["arn", "replaced"]));
    assert_eq!(serde_json::json!(REPLACED), local("deployment-bucket", "replaced", &[]));
}

#[test]
fn a_data_bucket_gets_the_policy_and_the_rule_of_its_module() {
    let made = state::data(amazon(), None);
    assert_eq!(statements(&made), local("data-bucket", "statements", &["arn"]));
    let days = local("data-bucket", "unfinished_days", &[]);
    let rules = made.lifecycle.iter().map(|rule| (rule.prefix.as_str(), rule.unfinished_days));
    assert_eq!(rules.collect::<Vec<_>>(), [("", days.as_u64().map(|days| days as u32))]);
    assert!(made.lifecycle.iter().all(|rule| rule.days.is_none()), "nothing removes a replica");
}

/// The ages themselves are held equal beside this; here is what else a rule does.
#[test]
fn a_deployment_bucket_gets_the_rules_of_its_module() {
    let number = |name| local("deployment-bucket", name, &[]).as_u64();
    assert_eq!(number("noncurrent_days"), Some(NONCURRENT_DAYS.into()));
    assert_eq!(number("unfinished_days"), Some(UNFINISHED_DAYS.into()));
    let expiring = local("deployment-bucket", "expiring", &[]);
    let expiring = expiring.as_object().expect("a table");
    let made = state::deployment(amazon(), false, None, None).lifecycle;
    let (ages, markers): (Vec<&Rule>, Vec<&Rule>) = made.iter().partition(|rule| !rule.markers);
    assert_eq!((ages.len(), markers.len()), (expiring.len(), expiring.len()));
    for rule in ages {
        assert_eq!(expiring[&rule.prefix].as_u64(), rule.days.map(u64::from), "{}", rule.prefix);
        assert!(rule.noncurrent_days.is_some() && rule.unfinished_days.is_some());
    }
    assert!(markers.iter().all(|rule| expiring.contains_key(&rule.prefix)));
}
