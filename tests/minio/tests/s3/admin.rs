//! `carlos admin apply` and `carlos doctor` on a real server: what the one makes the other finds
//! right, and each fault that is planted is found by its code.

use std::collections::BTreeSet;

use carlos_bucket::expire::RULES;
use carlos_tests_minio::deployment::plain_bucket;
use carlos_tests_minio::programs::{Ran, Service, run};
use carlos_tests_minio::settings::Settings;
use carlos_tests_minio::{Buckets, Kind, Server};
use http::Method;
use object_store::ObjectStoreExt as _;
use object_store::path::Path;
use serde_json::Value;

/// Makes a build without the command a failure, as where everything is to be tested.
const REQUIRED: &str = "CARLOS_TESTS_ADMIN";

/// The pairs of setting and state that one bucket got, or `None` where this build has no such
/// command, which it then says.
fn apply(bucket: &str, args: &[&str], vars: &[(String, String)]) -> Option<Vec<(String, String)>> {
    let url = format!("s3://{bucket}");
    let ran = run(&[&["admin", "apply", "--json", "--bucket", &url], args].concat(), vars);
    if ran.code == Some(22) && std::env::var(REQUIRED).is_err() {
        assert!(ran.stderr.contains("--features admin. (DBL-40)"), "{ran:?}");
        return None;
    }
    assert_eq!(ran.code, Some(0), "{ran:?}");
    let lines: Vec<Value> = serde_json::from_str(&ran.stdout).unwrap();
    let text = |line: &Value, member: &str| line[member].as_str().unwrap().to_owned();
    let own = lines.iter().filter(|line| line["bucket"] == bucket);
    Some(own.map(|line| (text(line, "setting"), text(line, "state"))).collect())
}

fn states(settings: &[(String, String)]) -> BTreeSet<&str> {
    settings.iter().map(|(_, state)| state.as_str()).collect()
}

/// What the doctor found but what is well, its exit code, and all it said.
fn doctor(bucket: &str, args: &[&str], vars: &[(String, String)]) -> (BTreeSet<String>, i32, Ran) {
    let url = format!("s3://{bucket}");
    let ran = run(&[&["doctor", "--json", "--bucket", &url], args].concat(), vars);
    let report: Value = serde_json::from_str(&ran.stdout).unwrap_or_else(|_| panic!("{ran:?}"));
    let found = report["findings"].as_array().unwrap().iter();
    let codes = found.filter(|one| one["level"] != "ok").map(|one| {
        let subject = one["subject"].as_str().unwrap();
        format!("{} {subject}", one["code"].as_str().unwrap()).trim_end().to_owned()
    });
    (codes.collect(), ran.code.unwrap(), ran)
}

fn set<const N: usize>(codes: [&str; N]) -> BTreeSet<String> {
    codes.map(str::to_owned).into()
}

/// Every setting that Amazon's buckets get, on a server that keeps what it is told.
pub(crate) async fn applied_as_on_amazon() {
    let server = Settings::start(0).await;
    let vars = server.environment();
    let args = ["--server", "aws", "--versioned", "--data", "uk=s3://acme-uk"];
    let apply = |more: &[&str]| apply("acme", &[&args[..], more].concat(), &vars);
    let Some(looked) = apply(&["--dry-run"]) else { return };
    assert_eq!((states(&looked), looked.len()), (["missing"].into(), 7), "{looked:?}");
    let made = apply(&[]).unwrap();
    assert_eq!((states(&made), made.len()), (["made"].into(), 7), "{made:?}");
    assert_eq!(states(&apply(&[]).unwrap()), ["same"].into());
    let kept = ["policy", "lifecycle", "encryption", "ownershipControls", "publicAccessBlock"];
    for (count, setting) in kept.into_iter().enumerate() {
        server.forget("acme", setting);
        let missing = apply(&["--dry-run"]).unwrap();
        let missing = missing.iter().filter(|(_, state)| state == "missing").count();
        assert_eq!(missing, count + 1, "{setting}");
    }
    let made = apply(&[]).unwrap();
    assert_eq!(made.iter().filter(|(_, state)| state == "made").count(), 5, "{made:?}");
    let (found, ..) = doctor("acme", &["--only", "lifecycle", "--only", "versioning"], &vars);
    assert_eq!(found, set(["versioning-on"]));
}

/// A real server's buckets, with the grants that are policies of buckets there.
pub(crate) async fn applied(server: &'static Server) {
    let run = carlos_bucket::Context::system().ulid().to_string().to_lowercase();
    let (bucket, data) = (format!("carlos-{run}"), format!("uk=s3://carlos-{run}-uk"));
    let vars = server.environment("operator");
    let mut args = vec!["--data", data.as_str(), "--agent", "box-uk=uk", "--console", "console=ie"];
    args.extend(if server.kind == Kind::Ceph {
        ["--server", "ceph"]
    } else {
        ["--server", "minio"]
    });
    let apply = |more: &[&str]| apply(&bucket, &[&args[..], more].concat(), &vars);
    let Some(looked) = apply(&["--dry-run"]) else { return };
    assert_eq!(states(&looked), ["missing"].into(), "{looked:?}");
    let made = apply(&[]).unwrap();
    assert_eq!(states(&made), ["made"].into(), "{made:?}");
    assert_eq!(states(&apply(&[]).unwrap()), ["same"].into());
    let only = ["--only", "lifecycle", "--only", "versioning", "--only", "bucket"];
    let (found, exit, ran) = doctor(&bucket, &only, &vars);
    assert_eq!((found, exit), (set([]), 0), "{ran:?}");
    server.admin().set_lifecycle(&bucket, &RULES[1..]).await;
    let missing = apply(&["--dry-run"]).unwrap();
    assert!(missing.contains(&("lifecycle".into(), "missing".into())), "{missing:?}");
    assert!(apply(&[]).unwrap().contains(&("lifecycle".into(), "made".into())));
    if server.kind == Kind::Ceph {
        let data = server.store("box-uk", &format!("carlos-{run}-uk"));
        let absent = data.get(&Path::from("x")).await.map(drop);
        assert!(matches!(absent, Err(object_store::Error::NotFound { .. })), "{absent:?}");
    }
}

/// One rule of a lifecycle document, in the older form that some tools write.
fn rule(prefix: &str, inside: &str) -> String {
    let at = prefix.replace('/', "-");
    format!(
        "<Rule><ID>r-{at}{}</ID><Prefix>{prefix}</Prefix><Status>Enabled</Status>{inside}</Rule>",
        inside.len()
    )
}

fn days(days: u32) -> String {
    format!("<Expiration><Days>{days}</Days></Expiration>")
}

async fn set_rules(server: &Server, bucket: &str, rules: &[String]) {
    let body = format!("<LifecycleConfiguration>{}</LifecycleConfiguration>", rules.concat());
    let answer = server.admin().ask(Method::PUT, &format!("{bucket}?lifecycle="), body).await;
    assert!(answer.status < 300, "{answer:?}");
}

/// Each way in which a lifecycle can be wrong, as the server gives it back.
pub(crate) async fn lifecycles(server: &'static Server) {
    let bucket = plain_bucket(server).await;
    let vars = server.environment("operator");
    let look = || doctor(&bucket, &["--only", "lifecycle"], &vars);
    assert_eq!((look().0, look().1), (set(["lifecycle-none"]), 20));
    let good: Vec<_> = RULES
        .iter()
        .map(|one| rule(&format!("{}/", one.prefix), &days(one.after.as_secs() as u32 / 86_400)))
        .collect();
    let faults: [(Vec<String>, &[&str], i32); 6] = [
        (good.clone(), &[], 0),
        (good[1..].to_vec(), &["lifecycle-missing db-reads/"], 20),
        (
            [&good[1..], &[rule("db-reads/", &days(9))]].concat(),
            &["lifecycle-wrong-age db-reads/"],
            20,
        ),
        (
            [&good[..], &[rule("hosts/", &days(9))]].concat(),
            &["lifecycle-deletes-records hosts/"],
            20,
        ),
        ([&good[..], &[rule("ho", &days(9))]].concat(), &["lifecycle-deletes-records ho"], 20),
        (
            [&good[..], &[rule("backups/", &days(9))]].concat(),
            &["lifecycle-unexpected backups/"],
            0,
        ),
    ];
    for (rules, codes, exit) in faults {
        set_rules(server, &bucket, &rules).await;
        let (found, ended, ran) = look();
        let codes: BTreeSet<String> = codes.iter().map(|code| (*code).to_owned()).collect();
        assert_eq!((found, ended), (codes, exit), "{ran:?}");
    }
    let (_, exit, ran) = doctor(&bucket, &["--only", "lifecycle"], &server.environment("stranger"));
    assert!(exit == 21 && ran.stdout.contains("lifecycle-could-not-tell"), "{ran:?}");
}

/// Old versions stay unless a rule removes them; on Ceph the bucket is of no use at all, and no
/// service starts on it.
pub(crate) async fn versioned(server: &'static Server) {
    let bucket = plain_bucket(server).await;
    server.admin().set_versioned(&bucket).await;
    let good: Vec<_> = RULES
        .iter()
        .map(|one| rule(&format!("{}/", one.prefix), &days(one.after.as_secs() as u32 / 86_400)))
        .collect();
    set_rules(server, &bucket, &good).await;
    let vars = server.environment("operator");
    let (found, exit, ran) = doctor(&bucket, &["--only", "lifecycle"], &vars);
    let keeps = |code: &String| code.starts_with("lifecycle-keeps-versions ");
    assert!(exit == 20 && found.len() == RULES.len() && found.iter().all(keeps), "{ran:?}");
    if server.kind != Kind::Ceph {
        return;
    }
    let (found, exit, ran) = doctor(&bucket, &["--only", "bucket", "--only", "versioning"], &vars);
    let lies = set(["bucket-ignores-condition", "versioning-breaks-creates", "versioning-on"]);
    assert_eq!((found, exit), (lies, 20), "{ran:?}");
    refused(server, "agent", &bucket, &[("CARLOS_BOX", "box1")]).await;
    refused(server, "console", &bucket, &[("CARLOS_LISTEN", "127.0.0.1:0")]).await;
}

/// A service ends at its start, and names the promise that is broken.
async fn refused(server: &Server, service: &str, bucket: &str, more: &[(&str, &str)]) {
    let dir = tempfile::tempdir().unwrap();
    let mut vars = server.environment("operator");
    let url = format!("s3://{bucket}");
    let own = [("CARLOS_BUCKET", url.as_str()), ("CARLOS_REGION", "uk")];
    let own = own.iter().chain(more).map(|(name, value)| ((*name).into(), (*value).into()));
    vars.extend(own);
    let mut service = Service::start(service, &vars, dir.path(), "log");
    let exit = super::t1::eventually("it ends", || service.ended()).await;
    let log = service.log();
    assert!(exit == 1 && log.contains("bucket-ignores-condition"), "{exit}: {log}");
}

/// What each role's keys reach, with its own rights, with more, and with less.
pub(crate) async fn reach(server: &'static Server) {
    if server.kind != Kind::Ceph {
        return;
    }
    let buckets = Buckets::create(server).await;
    let own = buckets.deployment.bucket.clone();
    let operator = server.store("operator", &own);
    operator.put(&Path::from("accounts/acme/1"), "{}".into()).await.unwrap();
    operator.put(&Path::from("router/main/serial"), "x".into()).await.unwrap();
    let urls = ["ie", "uk"].map(|region| format!("{region}=s3://{}", buckets.data(region)));
    let ask = |role: &str, name: &str, region: &str| {
        let mut args = vec!["--only", "reach", "--as", role, "--name", name, "--region", region];
        args.extend(["--data", &urls[0], "--data", &urls[1]]);
        doctor(&own, &args, &server.environment(name))
    };
    // Ceph shows names to whoever may list anything; the page of the code says so.
    let names = |found: &BTreeSet<String>| found.iter().all(|one| one.starts_with("reach-names "));
    for (role, name, region) in [("console", "console", "ie"), ("agent", "box-uk", "uk")] {
        let (found, exit, ran) = ask(role, name, region);
        assert!(exit == 0 && found.len() == 1 && names(&found), "{name}: {ran:?}");
    }
    let node = ["--only", "reach", "--as", "mesh-node", "--name", "mesh-node", "--of", "chat"];
    let (found, exit, ran) = doctor(&own, &node, &server.environment("mesh-node"));
    assert!(exit == 0 && found.len() == 1 && names(&found), "{ran:?}");
    widened(server, &buckets, &ask).await;
    let (found, exit, ran) = ask("agent", "box-uk", "ie");
    let short = found.iter().filter(|one| one.starts_with("reach-too-short data bucket of ie"));
    assert!(exit == 20 && short.count() == 1, "{ran:?}");
    let (found, exit, ran) = ask("console", "stranger", "ie");
    assert!(exit == 20 && found.contains("reach-too-short data bucket of ie"), "{ran:?}");
}

type Ask<'a> = &'a dyn Fn(&str, &str, &str) -> (BTreeSet<String>, i32, Ran);

/// Gives the console the data bucket of `uk`, and the box the accounts.
async fn widened(server: &Server, buckets: &Buckets, ask: Ask<'_>) {
    let mut policies = buckets.deployment.bucket_policies(&server.dialect).into_iter();
    let (own, mut policy) = policies.next().unwrap();
    let grant = |user: &str, action: &str, resource: String| {
        let principal = server.dialect.user.replace("{}", user);
        serde_json::json!({ "Effect": "Allow", "Principal": { "AWS": [principal] },
                            "Action": [action], "Resource": [resource] })
    };
    let more = grant("box-uk", "s3:GetObject", format!("arn:aws:s3:::{own}/accounts/*"));
    let probe = grant("box-uk", "s3:PutObject", format!("arn:aws:s3:::{own}/probe/*"));
    policy["Statement"].as_array_mut().unwrap().extend([more, probe]);
    server.admin().set_policy(&own, &policy).await;
    let (found, exit, ran) = ask("agent", "box-uk", "uk");
    let read = "reach-too-far accounts/acme/1";
    let wrote = found.iter().any(|one| one.starts_with("reach-too-far probe/"));
    assert!(exit == 20 && found.contains(read) && wrote, "{ran:?}");
    let data = buckets.data("uk");
    let (_, mut policy) = policies.find(|(name, _)| name == data).unwrap();
    let list = grant("console", "s3:ListBucket", format!("arn:aws:s3:::{data}"));
    policy["Statement"].as_array_mut().unwrap().push(list);
    server.admin().set_policy(data, &policy).await;
    let (found, exit, ran) = ask("console", "console", "ie");
    assert!(exit == 20 && found.contains("reach-too-far data bucket of uk"), "{ran:?}");
}

/// A clock that differs from the store's, whatever else the store answers.
pub(crate) async fn clocks() {
    for (ahead, code, exit) in
        [(0, None, 0), (45, Some("clock-drifts"), 0), (-3_600, Some("clock-skewed"), 20)]
    {
        let server = Settings::start(ahead).await;
        let (found, ended, ran) = doctor("any", &["--only", "clock"], &server.environment());
        let codes: BTreeSet<String> = code.into_iter().map(str::to_owned).collect();
        assert_eq!((found, ended), (codes, exit), "{ran:?}");
    }
    let nobody = [
        ("CARLOS_S3_ENDPOINT", "http://127.0.0.1:9"),
        ("AWS_ACCESS_KEY_ID", "a"),
        ("AWS_SECRET_ACCESS_KEY", "b"),
    ];
    let vars = nobody.map(|(name, value)| (name.to_owned(), value.to_owned()));
    let (found, exit, ran) = doctor("any", &["--only", "clock"], &vars);
    assert_eq!((found, exit), (set(["clock-could-not-tell"]), 21), "{ran:?}");
}
