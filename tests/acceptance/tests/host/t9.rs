//! T9 (db-forward §11.4) through real units and a real server: the record changes while the
//! download stands still at each of its points.

use std::time::Duration;

use carlos_bucket::{Append, Chain, Purpose};
use carlos_protocol::ids::{Class, Host, Principal};
use carlos_protocol::{keys, records};
use carlos_tests_acceptance::deployment::Deployment;
use carlos_tests_acceptance::station::Station;
use carlos_tests_minio::Server;
use carlos_tests_minio::proxy::{Held, Proxy, Side};
use carlos_tests_minio::wire::Kind;

/// What the last few kilobytes take from the proxy into the worker's connection.
const DOWNLOADED: Duration = Duration::from_millis(500);

const SCHEMA: &str = "CREATE TABLE t(a); INSERT INTO t VALUES (1);";

/// What happens to the record.
#[derive(Clone, Copy, Debug)]
enum Change {
    Moved,
    Recreated,
    RecreatedInAnotherAccount,
    OfAnotherClass,
}

const CHANGES: [Change; 4] =
    [Change::Moved, Change::Recreated, Change::RecreatedInAnotherAccount, Change::OfAnotherClass];

/// Where the read stands still meanwhile.
#[derive(Clone, Copy, Debug)]
enum Moment {
    BeforeThePick,
    WhilePlanning,
    WhileDownloading,
    BeforeTheRun,
}

const MOMENTS: [Moment; 4] =
    [Moment::BeforeThePick, Moment::WhilePlanning, Moment::WhileDownloading, Moment::BeforeTheRun];

pub(crate) fn every_point(server: &'static Server) {
    let deployment = Deployment::create(server);
    deployment.admin(&["account", "create", "rival"]);
    let proxy = deployment.block_on(Proxy::before(&server.endpoint));
    let through = [("CARLOS_S3_ENDPOINT", proxy.endpoint.as_str())];
    let station = Station::serving_with(&deployment, &through, |_| {});
    for (number, moment) in MOMENTS.into_iter().enumerate() {
        for (change_number, change) in CHANGES.into_iter().enumerate() {
            let host = format!("m{number}c{change_number}.example.com");
            deployment.instance(&host);
            let _source = deployment.source(&host, SCHEMA);
            changed(&deployment, &station, &proxy, &host, moment, change);
        }
    }
    assert_eq!(proxy.count(Kind::Create, "/out/"), 0, "a chunk was written");
    // The same without a change: what was expected above is not what always happens.
    let host = "same.example.com";
    deployment.instance(host);
    let _source = deployment.source(host, SCHEMA);
    assert_eq!(deployment.ask(host, "SELECT a FROM t").stdout, "a\n1\n");
}

fn changed(
    deployment: &Deployment,
    station: &Station,
    proxy: &Proxy,
    host: &str,
    moment: Moment,
    change: Change,
) {
    let held = moment.hold(proxy, host);
    let asking = deployment.ask_aside(host, "SELECT a FROM t");
    let held = moment.reach(deployment, station, proxy, held);
    change.happen(deployment, host);
    held.go(station);
    let answer = asking.answer();
    let what = format!("{moment:?} {change:?}: {answer:?}\n{}", station.agent_log());
    assert!(answer.code == Some(18) && answer.stdout.is_empty(), "{what}");
    assert!(answer.stderr.contains("DBF-15"), "{what}");
    station.until_alone();
}

/// What stands still: a request at the proxy, or a worker.
enum Still {
    Request(Held),
    Worker(String),
}

impl Still {
    fn go(self, station: &Station) {
        match self {
            Self::Request(held) => held.release(),
            Self::Worker(unit) => {
                station.host.ok(&["systemctl", "kill", "--signal", "CONT", &unit]);
            }
        }
    }
}

impl Moment {
    /// Prepares the point before the read begins.
    fn hold(self, proxy: &Proxy, host: &str) -> Held {
        match self {
            Self::BeforeThePick => proxy.hold(Side::Before, Kind::Create, "/picked"),
            Self::WhilePlanning => {
                proxy.hold(Side::Before, Kind::List, &format!("replicas/{host}"))
            }
            // The first look into a file is at its header, for the plan.
            Self::WhileDownloading | Self::BeforeTheRun => {
                proxy.hold(Side::After, Kind::Get, ".ltx")
            }
        }
    }

    /// Waits until the read is there.
    fn reach(
        self,
        deployment: &Deployment,
        station: &Station,
        proxy: &Proxy,
        mut held: Held,
    ) -> Still {
        let reached = |held: &mut Held| deployment.block_on(held.reached());
        reached(&mut held);
        if matches!(self, Self::BeforeThePick | Self::WhilePlanning) {
            return Still::Request(held);
        }
        let mut download = proxy.hold(Side::After, Kind::Get, ".ltx");
        held.release();
        reached(&mut download);
        if matches!(self, Self::WhileDownloading) {
            return Still::Request(download);
        }
        // The worker is held before the last byte reaches it, so that it has all and says nothing.
        let unit = station.workers().pop().expect("a worker waits for the file");
        station.host.ok(&["systemctl", "kill", "--signal", "STOP", &unit]);
        download.release();
        // Meanwhile the agent has read the last byte and waits for the worker.
        std::thread::sleep(DOWNLOADED);
        Still::Worker(unit)
    }
}

impl Change {
    fn happen(self, deployment: &Deployment, host: &str) {
        match self {
            Self::Moved => {
                deployment.admin(&["instance", "move", host, "--to", "ie"]);
                deployment.admin(&["instance", "end-move", host]);
            }
            Self::Recreated => {
                deployment.admin(&["instance", "delete", host]);
                deployment.instance(host);
            }
            Self::RecreatedInAnotherAccount => {
                deployment.admin(&["instance", "delete", host]);
                let place = ["--account", "rival", "--app", "shop", "--region", "uk"];
                deployment.admin(&[&["instance", "create", host], &place[..]].concat());
            }
            Self::OfAnotherClass => deployment.block_on(reclass(deployment, host)),
        }
    }
}

/// There is no command for it.
async fn reclass(deployment: &Deployment, host: &str) {
    let host: Host = host.parse().unwrap();
    let operator: Principal = "operator".parse().unwrap();
    let chain = Chain::new(deployment.bucket(), keys::host_chain(&host), operator);
    let head = chain.head(Purpose::Claim).await.unwrap().unwrap();
    let mut record: records::HostRecord = records::decode(&head.content).unwrap();
    record.class = "always-on".parse::<Class>().unwrap();
    let content = records::encode(&record);
    let appended = chain.append(Some(head.revision), &content, Purpose::Claim).await;
    assert!(matches!(appended, Append::Written(_)), "{appended:?}");
}
