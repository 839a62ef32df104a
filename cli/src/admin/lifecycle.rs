//! A bucket's lifecycle by what it does: servers reorder rules, rename them, move a prefix from one
//! place of the document to another, and drop what they do not know (db-forward §5.3, J4).

use std::fmt;

use carlos_bucket::expire;

use super::xml::{Element, NotXml};

const DAY_SECONDS: u64 = 24 * 60 * 60;

/// Prefixes with records that nothing may ever remove.
const RECORDS: [&str; 5] = ["accounts/", "apps/", "control/", "hosts/", "router/"];

/// The audit log, whose rows a deployment keeps for as long as it likes.
const ACTIVITY: &str = "activity/";

/// On a versioned bucket an expired object becomes noncurrent first; it goes a day later.
pub const NONCURRENT_DAYS: u32 = 1;

/// Nothing here uploads in parts; what another tool left unfinished goes with the rest.
pub const UNFINISHED_DAYS: u32 = 1;

/// One rule of a bucket, as far as it matters here.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Rule {
    /// The name it has in the bucket.
    pub id: String,
    /// Whether the store acts on it.
    pub enabled: bool,
    /// The names it is for.
    pub prefix: String,
    /// It is only for objects of some size.
    pub by_size: bool,
    /// It is only for objects with some tag. Ours have none.
    pub by_tag: bool,
    /// The age in days at which objects go.
    pub days: Option<u32>,
    /// A date at which all objects go, once.
    pub on_date: bool,
    /// Delete markers that hide nothing go.
    pub markers: bool,
    /// The age in days at which replaced and expired versions go.
    pub noncurrent_days: Option<u32>,
    /// The age in days at which unfinished uploads go.
    pub unfinished_days: Option<u32>,
    /// It moves objects to where they cannot be read at once.
    pub moves: bool,
}

/// What is wrong with a lifecycle.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Problem {
    /// There is no rule at all.
    None,
    /// Nothing removes what must go. Whether a rule for it is there and switched off.
    Missing { prefix: String, switched_off: bool },
    /// Objects go at another age.
    WrongAge { prefix: String, days: u32, wanted: u32 },
    /// On a versioned bucket, expired objects stay as versions.
    KeepsVersions { prefix: String },
    /// On a versioned bucket, delete markers stay and slow every listing.
    KeepsMarkers { prefix: String },
    /// A rule removes records.
    DeletesRecords { rule: String, records: Vec<&'static str> },
    /// A rule moves objects of ours out of reach.
    MovesObjects { rule: String },
    /// A rule is for more than one of the prefixes that expire, or for names nobody knows.
    Unexpected { rule: String },
}

impl Problem {
    /// The stable code.
    pub const fn code(&self) -> &'static str {
        match self {
            Self::None => "lifecycle-none",
            Self::Missing { .. } => "lifecycle-missing",
            Self::WrongAge { .. } => "lifecycle-wrong-age",
            Self::KeepsVersions { .. } => "lifecycle-keeps-versions",
            Self::KeepsMarkers { .. } => "lifecycle-keeps-markers",
            Self::DeletesRecords { .. } => "lifecycle-deletes-records",
            Self::MovesObjects { .. } => "lifecycle-moves-objects",
            Self::Unexpected { .. } => "lifecycle-unexpected",
        }
    }

    /// Whether the deployment works all the same.
    pub const fn is_harmless(&self) -> bool {
        matches!(self, Self::KeepsMarkers { .. } | Self::Unexpected { .. })
    }

    /// The prefix or rule it is about.
    pub fn subject(&self) -> &str {
        match self {
            Self::None => "",
            Self::Missing { prefix, .. }
            | Self::WrongAge { prefix, .. }
            | Self::KeepsVersions { prefix }
            | Self::KeepsMarkers { prefix } => prefix,
            Self::DeletesRecords { rule, .. }
            | Self::MovesObjects { rule }
            | Self::Unexpected { rule } => rule,
        }
    }
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::None => {
                f.write_str("the bucket has no lifecycle rule, so nothing is ever removed")
            }
            Self::Missing { switched_off: false, .. } => {
                f.write_str("no rule removes these objects")
            }
            Self::Missing { .. } => f.write_str("the rule for these objects is switched off"),
            Self::WrongAge { days, wanted, .. } => {
                write!(f, "objects go after {days} days instead of {wanted}")
            }
            Self::KeepsVersions { .. } => {
                f.write_str("the bucket is versioned, and expired objects stay as old versions")
            }
            Self::KeepsMarkers { .. } => {
                f.write_str("the bucket is versioned, and delete markers stay for ever")
            }
            Self::DeletesRecords { records, .. } => {
                write!(f, "this rule removes records: {}", records.join(", "))
            }
            Self::MovesObjects { .. } => f.write_str(
                "this rule moves objects to a storage class that may not answer at once",
            ),
            Self::Unexpected { .. } => f.write_str(
                "this rule is for none of the prefixes that expire, or for more than one",
            ),
        }
    }
}

/// Reads the rules of S3's lifecycle document.
///
/// # Errors
/// [`NotXml`] when it is none.
pub fn parse(text: &str) -> Result<Vec<Rule>, NotXml> {
    let document = Element::parse(text)?;
    match document.name.as_str() {
        "LifecycleConfiguration" => Ok(document.all("Rule").map(rule).collect()),
        _ => Err(NotXml),
    }
}

fn rule(element: &Element) -> Rule {
    let number = |inside: &str, name: &str| {
        element.child(inside).and_then(|inside| inside.text_of(name)?.parse().ok())
    };
    // The prefix is in the rule itself, in its filter, or among the filter's conditions.
    let filter = element.child("Filter");
    let and = filter.and_then(|filter| filter.child("And"));
    let places = [Some(element), filter, and];
    let places = || places.iter().flatten();
    let has = |name: &str| places().any(|place| place.child(name).is_some());
    let expiration = element.child("Expiration");
    let in_expiration = |name: &str| expiration.and_then(|inside| inside.text_of(name));
    Rule {
        id: element.text_of("ID").unwrap_or_default().to_owned(),
        enabled: element.text_of("Status") == Some("Enabled"),
        prefix: places().find_map(|place| place.text_of("Prefix")).unwrap_or_default().to_owned(),
        by_size: has("ObjectSizeGreaterThan") || has("ObjectSizeLessThan"),
        by_tag: has("Tag"),
        days: number("Expiration", "Days"),
        on_date: in_expiration("Date").is_some(),
        markers: in_expiration("ExpiredObjectDeleteMarker") == Some("true"),
        noncurrent_days: number("NoncurrentVersionExpiration", "NoncurrentDays"),
        unfinished_days: number("AbortIncompleteMultipartUpload", "DaysAfterInitiation"),
        moves: element.child("Transition").is_some(),
    }
}

/// What every deployment bucket expires: prefix and days, with `activity_days` for the audit log.
pub fn expiring(root: &str, activity_days: Option<u32>) -> Vec<(String, u32)> {
    let days = |rule: &expire::Rule| {
        let table = u32::try_from(rule.after.as_secs() / DAY_SECONDS).unwrap_or(u32::MAX);
        let own = activity_days.filter(|_| ACTIVITY.starts_with(rule.prefix));
        (under(root, &format!("{}/", rule.prefix)), own.unwrap_or(table))
    };
    expire::RULES.iter().map(days).collect()
}

/// The rules that a deployment bucket gets, as Terraform's module makes them: one of ages and one
/// of markers for each prefix, because S3 refuses both in one. Only Amazon takes the age of
/// unfinished uploads beside another.
pub fn wanted(root: &str, activity_days: Option<u32>, amazon: bool) -> Vec<Rule> {
    let expiring = expiring(root, activity_days);
    let name = |kind: &str, prefix: &str| format!("{kind}-{}", prefix.trim_end_matches('/'));
    let ages = expiring.iter().map(|(prefix, days)| Rule {
        id: name("expire", prefix),
        enabled: true,
        prefix: prefix.clone(),
        days: Some(*days),
        noncurrent_days: Some(NONCURRENT_DAYS),
        unfinished_days: amazon.then_some(UNFINISHED_DAYS),
        ..Rule::default()
    });
    let markers = expiring.iter().map(|(prefix, _)| Rule {
        id: name("markers", prefix),
        enabled: true,
        prefix: prefix.clone(),
        markers: true,
        ..Rule::default()
    });
    ages.chain(markers).collect()
}

/// What is wrong with these rules for a deployment whose keys begin with `root`.
pub fn problems(rules: &[Rule], versioned: bool, root: &str) -> Vec<Problem> {
    if rules.is_empty() {
        return vec![Problem::None];
    }
    let expiring = expiring(root, None);
    let missing = expiring.iter().flat_map(|(prefix, days)| {
        let ages = about_ages(rules, prefix, *days);
        ages.into_iter().chain(about_versions(rules, prefix, versioned))
    });
    let enabled = rules.iter().filter(|rule| rule.enabled);
    let wrong = enabled.filter_map(|rule| about_reach(rule, &expiring, root));
    missing.chain(wrong).collect()
}

/// Whether a rule is for every object of a prefix.
fn covers(rule: &Rule, prefix: &str) -> bool {
    prefix.starts_with(&rule.prefix) && !rule.by_size && !rule.by_tag
}

fn about_ages(rules: &[Rule], prefix: &str, wanted: u32) -> Option<Problem> {
    let of_age = || rules.iter().filter(|rule| covers(rule, prefix) && rule.days.is_some());
    let days = of_age().filter(|rule| rule.enabled).filter_map(|rule| rule.days).min();
    let prefix = || prefix.to_owned();
    match days {
        None => Some(Problem::Missing { prefix: prefix(), switched_off: of_age().count() > 0 }),
        Some(days) if days == wanted || prefix().ends_with(ACTIVITY) => None,
        Some(days) => Some(Problem::WrongAge { prefix: prefix(), days, wanted }),
    }
}

fn about_versions(rules: &[Rule], prefix: &str, versioned: bool) -> Option<Problem> {
    let some = |matches: fn(&Rule) -> bool| {
        rules.iter().any(|rule| rule.enabled && covers(rule, prefix) && matches(rule))
    };
    let prefix = || prefix.to_owned();
    match versioned {
        true if !some(|rule| rule.noncurrent_days.is_some()) => {
            Some(Problem::KeepsVersions { prefix: prefix() })
        }
        true if !some(|rule| rule.markers) => Some(Problem::KeepsMarkers { prefix: prefix() }),
        _ => None,
    }
}

/// Whether a rule reaches beyond one expiring prefix. Old versions, markers and unfinished uploads
/// are no records, so rules about these alone may be for anything.
fn about_reach(rule: &Rule, expiring: &[(String, u32)], root: &str) -> Option<Problem> {
    let removes = rule.days.is_some() || rule.on_date;
    if rule.by_tag || !removes && !rule.moves {
        return None;
    }
    let named = || match rule.prefix.as_str() {
        "" => "all objects".to_owned(),
        prefix => prefix.to_owned(),
    };
    let touches =
        |prefix: &str| prefix.starts_with(&rule.prefix) || rule.prefix.starts_with(prefix);
    let records: Vec<_> =
        RECORDS.into_iter().filter(|prefix| touches(&under(root, prefix))).collect();
    let ours = !records.is_empty() || expiring.iter().any(|(prefix, _)| touches(prefix));
    if removes && !records.is_empty() {
        return Some(Problem::DeletesRecords { rule: named(), records });
    }
    if rule.moves && ours {
        return Some(Problem::MovesObjects { rule: named() });
    }
    let within = expiring.iter().any(|(prefix, _)| rule.prefix.starts_with(prefix));
    (!within).then(|| Problem::Unexpected { rule: named() })
}

fn under(root: &str, prefix: &str) -> String {
    match root {
        "" => prefix.to_owned(),
        root => format!("{root}/{prefix}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn good() -> Vec<Rule> {
        wanted("", None, true)
    }

    fn codes(rules: &[Rule], versioned: bool) -> Vec<(&'static str, String)> {
        let found = problems(rules, versioned, "");
        found.iter().map(|one| (one.code(), one.subject().to_owned())).collect()
    }

    fn one(code: &'static str, subject: &str) -> Vec<(&'static str, String)> {
        vec![(code, subject.to_owned())]
    }

    #[test]
    fn what_is_wanted_is_right_in_any_order_and_with_less_said() {
        assert_eq!(codes(&good(), true), []);
        let mut dropped: Vec<_> = good().into_iter().rev().collect();
        for rule in &mut dropped {
            (rule.id, rule.unfinished_days) = (String::new(), None);
        }
        assert_eq!(codes(&dropped, true), []);
        let ages: Vec<_> = good().into_iter().filter(|rule| !rule.markers).collect();
        assert_eq!(codes(&ages, false), [], "an unversioned bucket has no markers");
    }

    #[test]
    fn below_a_prefix_the_same_holds_of_the_longer_names() {
        let rules = wanted("team/a", None, false);
        assert_eq!(problems(&rules, true, "team/a"), []);
        assert!(problems(&rules, false, "").len() >= 5);
        let whole =
            Rule { enabled: true, prefix: "team/".into(), days: Some(1), ..Rule::default() };
        let found = problems(&[whole], false, "team/a");
        assert!(found.iter().any(|one| one.code() == "lifecycle-deletes-records"), "{found:?}");
    }

    #[test]
    fn a_prefix_that_nothing_removes_is_named() {
        assert_eq!(codes(&[], false), one("lifecycle-none", ""));
        let without = |change: fn(&mut Rule)| {
            let mut rules = good();
            rules.iter_mut().filter(|rule| rule.prefix == "db-reads/").for_each(change);
            codes(&rules, false)
        };
        let missing = one("lifecycle-missing", "db-reads/");
        assert_eq!(without(|rule| rule.enabled = false), missing);
        assert_eq!(without(|rule| rule.days = None), missing);
        assert_eq!(without(|rule| rule.by_size = true), missing);
        assert_eq!(without(|rule| rule.by_tag = true), missing);
        assert_eq!(without(|rule| rule.prefix.push_str("queue/")), missing);
    }

    #[test]
    fn an_age_is_the_earliest_of_all_rules() {
        let age = |prefix: &str, days| Rule {
            enabled: true,
            prefix: prefix.to_owned(),
            days: Some(days),
            ..Rule::default()
        };
        let with = |rule: Rule| codes(&[good(), vec![rule]].concat(), false);
        assert_eq!(with(age("db-reads/", 7)), []);
        assert_eq!(with(age("mesh/", 1)), one("lifecycle-wrong-age", "mesh/"));
        assert_eq!(with(age("activity/", 30)), [], "a deployment may keep less");
        let mut late = good();
        late[0].days = Some(30);
        assert_eq!(codes(&late, false), one("lifecycle-wrong-age", "db-reads/"));
    }

    #[test]
    fn a_rule_that_reaches_records_is_found_however_it_is_written() {
        let removing = |prefix: &str| {
            let rule = Rule { prefix: prefix.into(), enabled: true, ..Rule::default() };
            let on_date = Rule { on_date: true, ..rule.clone() };
            let days = Rule { days: Some(4_000), by_size: true, ..rule };
            let both = [on_date, days].map(|rule| codes(&[good(), vec![rule]].concat(), false));
            assert_eq!(both[0], both[1], "{prefix}");
            both[0].clone()
        };
        for broad in ["a", "hosts/", "control/serial/uk", "h"] {
            assert_eq!(removing(broad), one("lifecycle-deletes-records", broad));
        }
        assert_eq!(removing(""), one("lifecycle-deletes-records", "all objects"));
        for other in ["db-reads", "d", "backups/"] {
            assert_eq!(removing(other), one("lifecycle-unexpected", other));
        }
        assert_eq!(removing("db-reads/queue/"), []);
    }

    #[test]
    fn what_is_moved_cannot_be_read() {
        let moving = |prefix: &str| {
            let rule =
                Rule { prefix: prefix.into(), enabled: true, moves: true, ..Rule::default() };
            codes(&[good(), vec![rule]].concat(), false)
        };
        assert_eq!(moving(""), one("lifecycle-moves-objects", "all objects"));
        assert_eq!(moving("hosts/"), one("lifecycle-moves-objects", "hosts/"));
        assert_eq!(moving("backups/"), one("lifecycle-unexpected", "backups/"));
    }

    #[test]
    fn a_versioned_bucket_needs_more_rules() {
        let mut rules = good();
        rules[0].noncurrent_days = None;
        assert_eq!(codes(&rules, true), one("lifecycle-keeps-versions", "db-reads/"));
        assert_eq!(codes(&rules, false), []);
        let mut rules = good();
        rules.retain(|rule| !rule.markers || rule.prefix != "probe/");
        assert_eq!(codes(&rules, true), one("lifecycle-keeps-markers", "probe/"));
    }

    /// Where servers put the prefix: MinIO and AWS in the filter, older ones in the rule.
    #[test]
    fn a_document_is_read_as_servers_write_it() {
        let document = |inside: &str| {
            format!(
                "<LifecycleConfiguration xmlns=\"http://s3.amazonaws.com/doc/2006-03-01/\"><Rule>\
                 <Status>Enabled</Status>{inside}</Rule></LifecycleConfiguration>"
            )
        };
        let days = "<Expiration><Days>1</Days></Expiration>";
        let prefix = "<Prefix>db-reads/</Prefix>";
        let expected =
            Rule { enabled: true, prefix: "db-reads/".into(), days: Some(1), ..Rule::default() };
        let written = [
            format!("{prefix}{days}"),
            format!("<Filter>{prefix}</Filter>{days}"),
            format!("{days}<Filter><And>{prefix}</And></Filter>"),
        ];
        for inside in written {
            assert_eq!(parse(&document(&inside)), Ok(vec![expected.clone()]), "{inside}");
        }
        let tagged = "<Filter><And><Prefix>x</Prefix><Tag><Key>k</Key></Tag></And></Filter>";
        let read = parse(&document(tagged)).expect("a document");
        assert!(read[0].by_tag && read[0].prefix == "x");
        assert!(parse("<Error/>").is_err() && parse("no").is_err());
    }
}
