//! What the buckets of a deployment are set to: the state that Terraform's modules give, as data.

use carlos_bucket::Address;
use serde_json::{Value, json};

use super::grants::{Deployment, Dialect};
use super::lifecycle::{self, Rule, UNFINISHED_DAYS};

/// The only objects that are ever replaced (db-forward §5.3, J2).
pub const REPLACED: [&str; 3] = ["control/serial/*", "control/status/*", "router/*/serial"];

/// What one bucket is to be.
#[derive(Clone, Debug, PartialEq)]
pub struct Wanted {
    /// Where it is.
    pub address: Address,
    /// Its rules; an empty list where the server has none to set.
    pub lifecycle: Vec<Rule>,
    /// Whether it keeps old versions. Versions that are on stay on: nothing can turn them off.
    pub versioned: bool,
    /// Public access blocked, objects owned by the bucket's owner, and encrypted: Amazon's own.
    pub guarded: bool,
    /// Its policy, where its server's grants or guards are policies of buckets.
    pub policy: Option<Value>,
}

/// What a deployment bucket is to be.
pub fn deployment(
    address: Address,
    versioned: bool,
    activity_days: Option<u32>,
    grants: Option<Value>,
) -> Wanted {
    let lifecycle = lifecycle::wanted(&address.prefix, activity_days, address.amazon);
    let policy = match address.amazon {
        true => Some(policy(vec![tls_only(&address.bucket), create_only(&address.bucket)])),
        false => grants,
    };
    Wanted { guarded: address.amazon, lifecycle, versioned, policy, address }
}

/// What a region's data bucket is to be. Litestream's own retention removes old files, so no rule
/// may take one away while a plan still names it.
pub fn data(address: Address, grants: Option<Value>) -> Wanted {
    let unfinished = Rule {
        id: "unfinished-uploads".into(),
        enabled: true,
        unfinished_days: Some(UNFINISHED_DAYS),
        ..Rule::default()
    };
    let policy = match address.amazon {
        true => Some(policy(vec![tls_only(&address.bucket)])),
        false => grants,
    };
    // Other servers refuse a rule that does nothing else, or drop it.
    let lifecycle = if address.amazon { vec![unfinished] } else { Vec::new() };
    Wanted { guarded: address.amazon, lifecycle, versioned: false, policy, address }
}

/// The grants of a bucket as its policy, on servers whose grants are policies of buckets.
pub fn grants(deployment: &Deployment, dialect: &Dialect, bucket: &str) -> Option<Value> {
    let all = deployment.bucket_policies(dialect).into_iter();
    all.filter(|(name, _)| name == bucket).map(|(_, policy)| policy).next()
}

fn policy(statements: Vec<Value>) -> Value {
    json!({ "Version": "2012-10-17", "Statement": statements })
}

fn tls_only(bucket: &str) -> Value {
    let whole = format!("arn:aws:s3:::{bucket}");
    json!({
        "Sid": "TlsOnly",
        "Effect": "Deny",
        "Principal": "*",
        "Action": "s3:*",
        "Resource": [whole, format!("{whole}/*")],
        "Condition": { "Bool": { "aws:SecureTransport": "false" } },
    })
}

/// A tool that forgets the header cannot replace anything but what is meant to be replaced.
fn create_only(bucket: &str) -> Value {
    let replaced = REPLACED.map(|keys| format!("arn:aws:s3:::{bucket}/{keys}"));
    json!({
        "Sid": "CreateOnly",
        "Effect": "Deny",
        "Principal": "*",
        "Action": "s3:PutObject",
        "NotResource": replaced,
        "Condition": { "Null": { "s3:if-none-match": "true" } },
    })
}

/// Whether two lists of rules do the same. Names are of no account, nor is the order.
pub fn same_rules(left: &[Rule], right: &[Rule]) -> bool {
    let sorted = |rules: &[Rule]| {
        let mut plain: Vec<Rule> =
            rules.iter().map(|rule| Rule { id: String::new(), ..rule.clone() }).collect();
        plain.sort_by(|a, b| format!("{a:?}").cmp(&format!("{b:?}")));
        plain
    };
    sorted(left) == sorted(right)
}

/// Whether two policies say the same. Servers write a single text for a list of one, and keep
/// lists in no order.
pub fn same_policy(left: &Value, right: &Value) -> bool {
    plain(left) == plain(right)
}

fn plain(value: &Value) -> Value {
    match value {
        Value::Object(members) => {
            let plain = members.iter().map(|(name, value)| (name.clone(), plain(value)));
            Value::Object(plain.collect())
        }
        Value::Array(items) => {
            let mut items: Vec<Value> = items.iter().map(plain).collect();
            items.sort_by_key(Value::to_string);
            match items.len() {
                1 => items.remove(0),
                _ => Value::Array(items),
            }
        }
        other => other.clone(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn address(amazon: bool) -> Address {
        let (bucket, region) = ("acme".to_owned(), "eu-west-1".to_owned());
        Address { bucket, prefix: String::new(), region, endpoint: None, amazon }
    }

    #[test]
    fn amazon_s_buckets_are_guarded_and_others_get_what_they_know() {
        let amazon = deployment(address(true), false, Some(30), None);
        let text = amazon.policy.expect("a policy").to_string();
        assert!(text.contains("arn:aws:s3:::acme/router/*/serial") && amazon.guarded);
        let activity = amazon.lifecycle.iter().find(|rule| rule.prefix == "activity/");
        assert_eq!(activity.and_then(|rule| rule.days), Some(30));
        let other = deployment(address(false), false, None, None);
        assert!(other.policy.is_none() && !other.guarded && other.lifecycle.len() == 10);
        assert!(other.lifecycle.iter().all(|rule| rule.unfinished_days.is_none()));
        assert_eq!(data(address(false), None).lifecycle, []);
    }

    /// db-forward §5.3, J4: what the doctor accepts is what is made.
    #[test]
    fn the_doctor_finds_nothing_in_what_is_wanted() {
        for amazon in [true, false] {
            let wanted = deployment(address(amazon), true, Some(30), None).lifecycle;
            assert_eq!(lifecycle::problems(&wanted, true, ""), []);
        }
    }

    #[test]
    fn a_policy_is_the_same_in_other_words() {
        let ours = policy(vec![tls_only("acme"), create_only("acme")]);
        let theirs = json!({
            "Statement": [create_only("acme"), tls_only("acme")],
            "Version": "2012-10-17",
        });
        assert!(same_policy(&ours, &theirs));
        let one = json!({ "Action": ["s3:GetObject"], "Resource": ["b", "a"] });
        assert!(same_policy(&one, &json!({ "Action": "s3:GetObject", "Resource": ["a", "b"] })));
        assert!(!same_policy(&ours, &policy(vec![tls_only("acme")])));
    }

    #[test]
    fn rules_are_the_same_by_what_they_do() {
        let wanted = lifecycle::wanted("", None, true);
        let mut others: Vec<_> = wanted.iter().rev().cloned().collect();
        others.iter_mut().for_each(|rule| rule.id = "of another tool".into());
        assert!(same_rules(&wanted, &others));
        others[0].prefix.push('x');
        assert!(!same_rules(&wanted, &others));
    }
}
