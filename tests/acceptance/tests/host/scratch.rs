//! T3's other half (db-forward §11.4): a worker's private scratch is gone after every way to end.

use std::time::Duration;

use carlos_tests_acceptance::deployment::{Deployment, HOST};
use carlos_tests_acceptance::station::{AGENT, Station};
use carlos_tests_acceptance::{ENDLESS, within};
use carlos_tests_minio::Server;

/// What a cancel may take: a look at it every five seconds, the worker's end, its unit's end.
const CANCELLED: Duration = Duration::from_secs(15);

pub(crate) fn gone(server: &'static Server) {
    let deployment = Deployment::create(server);
    let _source = deployment.source(HOST, "CREATE TABLE t(a); INSERT INTO t VALUES (1);");
    let station = Station::serving(&deployment);
    after_a_normal_end(&deployment, &station);
    after_a_cancel(&deployment, &station);
    after_a_kill_of_the_worker(&deployment, &station);
    after_a_kill_of_the_agent(&deployment, &station);
}

fn after_a_normal_end(deployment: &Deployment, station: &Station) {
    let answer = deployment.ask(HOST, "SELECT a FROM t");
    assert_eq!(answer.stdout, "a\n1\n", "{answer:?}");
    station.until_alone();
}

fn after_a_cancel(deployment: &Deployment, station: &Station) {
    let asking = deployment.ask_aside(HOST, ENDLESS);
    station.until_restored();
    let answer = asking.cancel();
    assert!(answer.stdout.is_empty() && answer.code != Some(0), "{answer:?}");
    let (_, took) = within(CANCELLED, "the cancelled worker has stopped", || {
        station.workers().is_empty().then_some(())
    });
    eprintln!("a cancelled read's unit is gone after {took:.1?}");
    station.until_alone();
}

fn after_a_kill_of_the_worker(deployment: &Deployment, station: &Station) {
    let asking = deployment.ask_aside(HOST, ENDLESS);
    let unit = station.until_restored();
    station.host.ok(&["systemctl", "kill", "--signal", "KILL", &unit]);
    let answer = asking.answer();
    assert!(answer.stdout.is_empty() && answer.code == Some(12), "{answer:?}");
    station.until_alone();
}

fn after_a_kill_of_the_agent(deployment: &Deployment, station: &Station) {
    let _asking = deployment.ask_aside(HOST, ENDLESS);
    station.until_restored();
    station.host.ok(&["systemctl", "kill", "--signal", "KILL", "--kill-whom", "main", AGENT]);
    station.until_alone();
}
