//! T12 (db-forward §11.4): the disk, and workers that nobody holds any more.

use std::time::{Duration, Instant};

use carlos_tests_acceptance::deployment::{Deployment, HOST};
use carlos_tests_acceptance::station::{AGENT, Station};
use carlos_tests_acceptance::{ENDLESS, eventually, within};
use carlos_tests_minio::Server;

const OTHER: &str = "other.example.com";

/// A worker ends itself 5 s after its agent has gone (§8.3); the rest is its unit's end, looked
/// at from outside of a busy machine.
const GONE: Duration = Duration::from_secs(8);

/// Where the copy is 8 MiB and its transaction file as much, one read takes 16 MiB. With 4 MiB to
/// begin with and 4 kept, this has room for one read, and for the beginning of another.
const DISK: &str = "size=34m";
const FLOOR: (&str, &str) = ("CARLOS_DB_READ_DISK_FLOOR_BYTES", "4194304");

fn random(mebibytes: u32) -> String {
    format!(
        "CREATE TABLE t(a);
         WITH RECURSIVE c(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM c LIMIT {mebibytes})
         INSERT INTO t SELECT randomblob(1040000) FROM c;"
    )
}

/// Two reads on a disk with room for one.
pub(crate) fn room_for_one(server: &'static Server) {
    let deployment = Deployment::create(server);
    deployment.instance(OTHER);
    let _sources = [HOST, OTHER].map(|host| deployment.source(host, &random(8)));
    let station = Station::serving_with(&deployment, &[FLOOR], |host| {
        host.ok(&["mount", "-t", "tmpfs", "-o", DISK, "small-disk", "/var/tmp"]);
        host.ok(&["chmod", "1777", "/var/tmp"]);
    });
    let first = deployment.ask_aside(HOST, ENDLESS);
    station.until_restored();
    let second = deployment.ask(OTHER, "SELECT count(*) FROM t");
    assert_eq!(second.code, Some(15), "{second:?}");
    assert!(second.stderr.contains("DBF-5") && second.stdout.is_empty(), "{second:?}");
    assert_eq!(station.workers().len(), 1, "the first read was disturbed");
    drop(first.cancel());
    station.until_alone();
    let again = deployment.ask(OTHER, "SELECT count(*) FROM t");
    assert_eq!(again.stdout, "count(*)\n8\n", "{again:?}\n{}", station.agent_log());
}

/// An agent is killed while a worker cannot notice it. The next one waits for that worker's end.
pub(crate) fn orphan(server: &'static Server) {
    let deployment = Deployment::create(server);
    let _source = deployment.source(HOST, "CREATE TABLE t(a); INSERT INTO t VALUES (1);");
    let talkative = ("CARLOS_LOG", "info,carlos_box_agent=debug");
    let station = Station::serving_with(&deployment, &[talkative], |_| {});
    let _asking = deployment.ask_aside(HOST, ENDLESS);
    let unit = station.until_restored();
    // Now it runs for as long as this test wants, whoever has gone.
    station.host.ok(&["systemctl", "kill", "--signal", "STOP", &unit]);
    station.host.ok(&["systemctl", "kill", "--signal", "KILL", "--kill-whom", "main", AGENT]);
    station.host.run(&["systemctl", "restart", AGENT]);
    let log = || station.agent_log();
    let skipped = "a worker this agent did not start is still running";
    let alone = || {
        assert_eq!(station.workers(), [unit.as_str()], "another worker was started beside it");
        assert!(!log().contains("ready=true"), "{}", log());
    };
    eventually("the next agent has looked", || {
        alone();
        log().contains(skipped).then_some(())
    });
    let begun = Instant::now();
    while begun.elapsed() < GONE {
        alone();
        std::thread::sleep(Duration::from_millis(200));
    }
    assert!(!station.scratch().is_empty(), "its scratch is there as long as it is");
    station.host.ok(&["systemctl", "kill", "--signal", "CONT", &unit]);
    within(GONE, "the orphan has ended", || (!station.workers().contains(&unit)).then_some(()));
    station.until_ready();
    station.until_alone();
    eventually("the box is on offer", || deployment.offers_reads().then_some(()));
    let answer = deployment.ask(HOST, "SELECT a FROM t");
    assert_eq!(answer.stdout, "a\n1\n", "{answer:?}");
}

/// After the download, while the copy is being put together and checked.
pub(crate) fn disconnected_in_the_merge(server: &'static Server) {
    let deployment = Deployment::create(server);
    let _source = deployment.source(HOST, &random(24));
    let station = Station::serving(&deployment);
    let _asking = deployment.ask_aside(HOST, "SELECT count(*) FROM t");
    station.until_scratch_has(23 << 20);
    let took = killed(&station);
    eprintln!("a worker that merges is gone {took:.1?} after its agent");
}

/// In the middle of one instruction of SQLite's, which looks at nothing: the watcher alone ends it.
pub(crate) fn disconnected_while_deaf(server: &'static Server) {
    let deployment = Deployment::create(server);
    let _source = deployment.source(HOST, "CREATE TABLE t(a); INSERT INTO t VALUES (1);");
    let station = Station::serving(&deployment);
    let _asking = deployment.ask_aside(HOST, DEAF);
    station.until_restored();
    std::thread::sleep(Duration::from_secs(1));
    let took = killed(&station);
    eprintln!("a worker that hears nothing is gone {took:.1?} after its agent");
    assert!(took > Duration::from_secs(3), "it was not deaf");
    // PEER_LOST_FORCED: the process ended itself over its work.
    assert!(station.host.journal("carlos-dbread@*").contains("status=9"), "by another end");
}

/// Compares fifteen megabytes with fifteen megabytes, fifteen million times.
const DEAF: &str = "SELECT instr(zeroblob(30000000), CAST(zeroblob(15000000) || x'01' AS BLOB))";

/// Kills the agent and gives the time until its worker's unit is gone, with its scratch.
fn killed(station: &Station) -> Duration {
    let worker = station.workers().pop().expect("a worker runs");
    station.host.ok(&["systemctl", "kill", "--signal", "KILL", "--kill-whom", "main", AGENT]);
    let gone = || (!station.workers().contains(&worker)).then_some(());
    let (_, took) = within(GONE, "the worker has ended", gone);
    station.until_alone();
    took
}
