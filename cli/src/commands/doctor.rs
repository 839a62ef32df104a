//! `carlos doctor`: whether a deployment's bucket, keys, clock and boxes are as they must be, asked
//! with the environment of whoever runs it.

mod boxes;
mod bucket;
mod finding;
mod reach;
mod serials;

use std::collections::BTreeSet;

use carlos_bucket::{
    Bucket, BucketSettings, Context, OpenError, StoreClock, open_existing, open_settings,
    open_store_with,
};
use carlos_protocol::ids::{Principal, Region};
use clap::{Args, ValueEnum};
use serde::Serialize;

use self::finding::{Finding, Level};
use crate::admin::grants::{Holder, Role};
use crate::exit::Exit;
use crate::failure::Failure;
use crate::out;

/// Where each code has its section.
const PAGE: &str = "docs/doctor.md";

/// Check that a deployment's bucket, keys, clock and boxes are as they must be.
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub struct Doctor {
    /// The deployment bucket: `s3://bucket` or `file:///path/to/directory`.
    #[arg(long, env = "CARLOS_BUCKET", value_name = "URL")]
    bucket: String,
    /// Whose keys and settings these are. By default the environment tells: a box has CARLOS_BOX,
    /// a console CARLOS_LISTEN, CARLOS_DB_FORWARD or CARLOS_ROOT_KEY_FILE, an operator none.
    #[arg(long = "as", value_name = "ROLE")]
    role: Option<AsRole>,
    /// The name that the role's rights are for, unless it is `console`, or that of CARLOS_BOX.
    #[arg(long)]
    name: Option<Principal>,
    /// The region that a console or a box stands in.
    #[arg(long, env = "CARLOS_REGION")]
    region: Option<Region>,
    /// The mesh of a mesh node, or the deployment of a router.
    #[arg(long, value_name = "NAME")]
    of: Option<Principal>,
    /// The data bucket of a region. A service must reach its own region's and no other.
    #[arg(long, value_name = "REGION=URL", value_parser = data)]
    data: Vec<(Region, String)>,
    /// Only this check; may be given again.
    #[arg(long, value_name = "CHECK")]
    only: Vec<Check>,
    /// Also move each region's serial and look that it moves: boxes look at their queue once more.
    #[arg(long)]
    bump: bool,
    /// Print one JSON object.
    #[arg(long)]
    json: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum AsRole {
    Operator,
    Console,
    Agent,
    MeshNode,
    Router,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Check {
    /// The promises that everything rests on.
    Bucket,
    /// What the bucket removes by itself.
    Lifecycle,
    /// Old versions.
    Versioning,
    /// This machine's clock against the store's.
    Clock,
    /// What these keys can do.
    Reach,
    /// Whether reads are announced and taken.
    Serials,
    /// Who is there to serve reads.
    Boxes,
}

const EXAMPLES: &str = "\
Prints a line for each finding on stdout, or one JSON object: level, code, subject, sentence.
docs/doctor.md has a section for each code. Ends with 0 when nothing is wrong (warnings are not),
with 20 when something is, and with 21 when nothing is but something could not be found out.

Examples:
  carlos doctor --bucket s3://carlos-deployment --json
  CARLOS_BUCKET=s3://carlos-deployment AWS_PROFILE=console \\
    carlos doctor --as console --region ie --data uk=s3://carlos-data-uk
  carlos doctor --only boxes --only serials";

/// What is looked at, and as whom.
struct Patient {
    bucket: Bucket,
    /// Absent for stores that have none.
    settings: Option<BucketSettings>,
    clock: StoreClock,
    holder: Holder,
    amazon: bool,
    data: Vec<(Region, Bucket)>,
}

#[derive(Serialize)]
struct Report<'a> {
    bucket: &'a str,
    #[serde(rename = "as")]
    asked_as: &'a str,
    level: Level,
    findings: &'a [Finding],
    page: &'static str,
}

/// Runs every check that the role can run, prints the report, and fails by the worst finding.
pub(crate) async fn doctor(args: Doctor, context: Context) -> Result<(), Failure> {
    let patient = open(&args, &context)?;
    let findings = examine(&args, &patient).await;
    let level = findings.iter().map(|finding| finding.level).max().unwrap_or(Level::Ok);
    let asked_as = patient.holder.name.as_str();
    let report = Report { bucket: &args.bucket, asked_as, level, findings: &findings, page: PAGE };
    match args.json {
        true => out::json(&report)?,
        false => out::lines(findings.iter().map(Finding::line))?,
    }
    ended(level, &findings)
}

fn ended(level: Level, findings: &[Finding]) -> Result<(), Failure> {
    let of = |level: Level| {
        let codes: BTreeSet<&str> =
            findings.iter().filter(|one| one.level == level).map(|one| one.code).collect();
        codes.into_iter().collect::<Vec<_>>().join(", ")
    };
    match level {
        Level::Ok | Level::Warning => Ok(()),
        Level::Unclear => {
            let said = format!("not everything could be found out: {}. see {PAGE}.", of(level));
            Err(Failure::new(Exit::Unclear, said))
        }
        Level::Fault => {
            Err(Failure::new(Exit::Unsound, format!("at fault: {}. see {PAGE}.", of(level))))
        }
    }
}

async fn examine(args: &Doctor, patient: &Patient) -> Vec<Finding> {
    let operator = patient.holder.role == Role::Operator;
    let sees_boxes = operator || matches!(patient.holder.role, Role::Console(_));
    let asked = |check: Check| args.only.is_empty() || args.only.contains(&check);
    let mut found = Vec::new();
    // A router creates nothing, so it has nothing to try the promises with.
    if asked(Check::Bucket) && !matches!(patient.holder.role, Role::Router(_)) {
        found.extend(bucket::promises(patient).await);
    }
    // Services have no right to a bucket's settings, and need none.
    if operator && asked(Check::Lifecycle) {
        found.extend(bucket::lifecycle(patient).await);
    }
    if operator && asked(Check::Versioning) {
        found.extend(bucket::versions(patient).await);
    }
    if asked(Check::Clock) {
        found.extend(bucket::clock(patient).await);
    }
    if asked(Check::Reach) {
        found.extend(reach::rights(patient).await);
    }
    if sees_boxes && (asked(Check::Boxes) || asked(Check::Serials)) {
        found.extend(deployment(args, patient, asked(Check::Boxes), asked(Check::Serials)).await);
    }
    found
}

async fn deployment(args: &Doctor, patient: &Patient, boxes: bool, serials: bool) -> Vec<Finding> {
    let deployment = match boxes::gather(patient).await {
        Ok(deployment) => deployment,
        Err(error) => return vec![Finding::new("boxes-could-not-tell", "", format!("{error}."))],
    };
    let mut found = Vec::new();
    if boxes {
        found.extend(boxes::judge(&deployment, &patient.bucket));
    }
    if serials {
        let mut about = Vec::new();
        for region in deployment.regions() {
            about.extend(serials::of_region(patient, &region, args.bump).await);
        }
        if about.is_empty() {
            about.push(Finding::new("serials-ok", "", "every read of the last hour was taken."));
        }
        found.extend(about);
    }
    found
}

fn open(args: &Doctor, context: &Context) -> Result<Patient, Failure> {
    let var = |name: &str| std::env::var(name).ok();
    let not_opened = |error: OpenError| Failure::usage(format!("{error}."));
    let clock = StoreClock::new(context.clone());
    let holder = holder(args, var)?;
    // A slip in a directory's name is refused before the store is opened for good.
    open_existing(&args.bucket).map_err(not_opened)?;
    let store = open_store_with(&args.bucket, var, Some(&clock)).map_err(not_opened)?;
    let settings = open_settings(&args.bucket, var, &clock).map_err(not_opened)?;
    let bucket = Bucket::new(store, context.clone());
    let mut data = Vec::new();
    for (region, url) in data_buckets(args, &holder.role, var) {
        data.push((region, bucket.beside(open_existing(&url).map_err(not_opened)?)));
    }
    let amazon = settings.as_ref().is_some_and(|settings| settings.address().amazon);
    Ok(Patient { bucket, settings, clock, holder, amazon, data })
}

/// Those of the command line, and the one that a box reads.
fn data_buckets(
    args: &Doctor,
    role: &Role,
    var: impl Fn(&str) -> Option<String>,
) -> Vec<(Region, String)> {
    let mut data = args.data.clone();
    let own = match role {
        Role::Agent(region) if !data.iter().any(|(known, _)| known == region) => {
            var("CARLOS_HIBERNATE_BUCKET").map(|url| (region.clone(), url))
        }
        _ => None,
    };
    data.extend(own);
    data
}

fn holder(args: &Doctor, var: impl Fn(&str) -> Option<String>) -> Result<Holder, Failure> {
    let set = |name: &str| var(name).is_some_and(|value| !value.is_empty());
    let console = ["CARLOS_LISTEN", "CARLOS_DB_FORWARD", "CARLOS_ROOT_KEY_FILE"];
    let role = args.role.unwrap_or_else(|| match () {
        () if set("CARLOS_BOX") => AsRole::Agent,
        () if console.iter().any(|name| set(name)) => AsRole::Console,
        () => AsRole::Operator,
    });
    let region = || {
        let region = args.region.clone();
        region.ok_or_else(|| Failure::usage("say its region: --region, or CARLOS_REGION."))
    };
    let of = || {
        let of = args.of.as_ref().map(Principal::to_string);
        of.ok_or_else(|| Failure::usage("say of which mesh or deployment: --of."))
    };
    let (usual, role) = match role {
        AsRole::Operator => (Some("operator".to_owned()), Role::Operator),
        AsRole::Console => (Some("console".to_owned()), Role::Console(region()?)),
        AsRole::Agent => (var("CARLOS_BOX"), Role::Agent(region()?)),
        AsRole::MeshNode => (None, Role::MeshNode(of()?)),
        AsRole::Router => (None, Role::Router(of()?)),
    };
    let name = match (&args.name, usual) {
        (Some(name), _) => name.clone(),
        (None, Some(usual)) => {
            usual.parse().map_err(|error| Failure::usage(format!("{usual}: {error}.")))?
        }
        (None, None) => {
            return Err(Failure::usage(
                "say whose name its rights are for: --name, or for a box CARLOS_BOX.",
            ));
        }
    };
    Ok(Holder { name, role })
}

/// `REGION=URL`.
fn data(text: &str) -> Result<(Region, String), String> {
    let (region, url) = text.split_once('=').ok_or("not of the form REGION=URL")?;
    let region =
        region.parse().map_err(|error: carlos_protocol::ids::IdError| error.to_string())?;
    Ok((region, url.to_owned()))
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::time::Duration;

    use carlos_bucket::fault::{Fault, FaultStore, Rule};
    use carlos_bucket::layer::{Inner, Op};
    use carlos_bucket::toys::{Liar, Lie};
    use carlos_bucket::{Purpose, Serial};
    use carlos_protocol::ids::ReadId;
    use carlos_protocol::keys::{Key, QueueEntry};
    use carlos_protocol::time::Seconds;
    use object_store::memory::InMemory;

    use super::*;

    const NOW_MS: u64 = 1_791_532_800_000;

    fn patient_of(store: Inner, context: &Context) -> Patient {
        let name = "operator".parse().expect("a label");
        Patient {
            bucket: Bucket::new(store, context.clone()),
            settings: None,
            clock: StoreClock::new(context.clone()),
            holder: Holder { name, role: Role::Operator },
            amazon: false,
            data: Vec::new(),
        }
    }

    fn uk() -> Region {
        "uk".parse().expect("a label")
    }

    fn codes(found: &[Finding]) -> Vec<&'static str> {
        found.iter().map(|finding| finding.code).collect()
    }

    #[tokio::test(start_paused = true)]
    async fn each_lie_of_a_store_has_its_code() {
        let lies = [
            (Lie::ChecksThenActs(Duration::from_millis(5)), "bucket-many-winners"),
            (Lie::IgnoresHeader, "bucket-ignores-condition"),
            (Lie::RefusesFreeNames, "bucket-refuses-free-names"),
        ];
        for (lie, code) in lies {
            let context = Context::simulated(7, NOW_MS);
            let store = Liar::wrap(Arc::new(InMemory::new()), &context, lie);
            let found = bucket::promises(&patient_of(store, &context)).await;
            assert_eq!(codes(&found), [code]);
            let failure = ended(Level::Fault, &found).expect_err("a fault");
            assert!(failure.exit == Exit::Unsound && failure.sentence.contains(code));
        }
    }

    #[tokio::test(start_paused = true)]
    async fn hidden_objects_and_failures_are_told_apart() {
        let with = async |rule: Rule| {
            let context = Context::simulated(7, NOW_MS);
            let (store, faults) = FaultStore::wrap(Arc::new(InMemory::new()), &context);
            faults.add(rule);
            codes(&bucket::promises(&patient_of(store, &context)).await)
        };
        let hidden = with(Rule::new(Op::Get, Fault::Hidden)).await;
        assert_eq!(hidden, ["bucket-read-after-write"]);
        let unlisted = with(Rule::new(Op::List, Fault::Hidden).always()).await;
        assert_eq!(unlisted, ["bucket-list-after-write"]);
        let failing = with(Rule::new(Op::Create, Fault::Refused(403)).always()).await;
        assert_eq!(failing, ["bucket-could-not-tell"]);
    }

    #[tokio::test(start_paused = true)]
    async fn only_amazon_is_expected_to_demand_the_condition() {
        let context = Context::simulated(7, NOW_MS);
        let mut patient = patient_of(Arc::new(InMemory::new()), &context);
        assert_eq!(codes(&bucket::promises(&patient).await), ["bucket-ok"]);
        patient.amazon = true;
        let found = bucket::promises(&patient).await;
        assert_eq!(codes(&found), ["bucket-ok", "condition-not-demanded"]);
        assert!(ended(Level::Warning, &found).is_ok());
    }

    async fn asked(patient: &Patient, seconds_ago: u64) -> ReadId {
        let context = patient.bucket.context();
        let id = ReadId::mint(&mut context.entropy());
        let issued_at = Seconds::new(context.now_unix() - seconds_ago);
        let entry = Key::Queue(QueueEntry { region: uk(), issued_at, id }).to_path();
        let put = patient.bucket.create(&entry, bytes::Bytes::new(), Purpose::Claim).await;
        assert!(put.is_ours());
        id
    }

    #[tokio::test(start_paused = true)]
    async fn a_serial_is_held_against_the_newest_read() {
        let context = Context::simulated(7, NOW_MS);
        let patient = patient_of(Arc::new(InMemory::new()), &context);
        let look = async || codes(&serials::of_region(&patient, &uk(), false).await);
        assert_eq!(look().await, [""; 0]);
        asked(&patient, 10).await;
        assert_eq!(look().await, ["serial-stale"]);
        let serial = Serial::new(patient.bucket.clone(), "control/serial/uk");
        serial.bump().await.expect("a memory store");
        assert_eq!(look().await, [""; 0]);
        context.sleep(Duration::from_secs(90)).await;
        asked(&patient, 0).await;
        assert_eq!(look().await, ["serial-stale"]);
    }

    #[tokio::test(start_paused = true)]
    async fn a_serial_that_does_not_move_is_found() {
        let context = Context::simulated(7, NOW_MS);
        let (store, faults) = FaultStore::wrap(Arc::new(InMemory::new()), &context);
        let patient = patient_of(store, &context);
        let look = async || codes(&serials::of_region(&patient, &uk(), true).await);
        assert_eq!(look().await, [""; 0]);
        faults.add(Rule::new(Op::Replace, Fault::Refused(403)).always());
        assert_eq!(look().await, ["serial-stuck"]);
    }

    #[tokio::test(start_paused = true)]
    async fn a_read_that_no_box_took_is_counted_once_it_is_over() {
        let context = Context::simulated(7, NOW_MS);
        let patient = patient_of(Arc::new(InMemory::new()), &context);
        let serial = Serial::new(patient.bucket.clone(), "control/serial/uk");
        let (taken, _) = (asked(&patient, 300).await, asked(&patient, 60).await);
        serial.bump().await.expect("a memory store");
        let look = async || codes(&serials::of_region(&patient, &uk(), false).await);
        assert_eq!(look().await, ["reads-not-picked"]);
        let picked = Key::Picked(taken).to_path();
        let put = patient.bucket.create(&picked, "{}".into(), Purpose::Claim).await;
        assert!(put.is_ours());
        assert_eq!(look().await, [""; 0]);
    }
}
