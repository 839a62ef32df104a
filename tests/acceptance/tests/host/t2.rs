//! T2 (db-forward §11.4): a forwarded query through the units that `install-units` wrote.

use std::time::{Duration, Instant};

use carlos_tests_acceptance::deployment::{Deployment, HOST, free_port};
use carlos_tests_acceptance::host::{Host, Network};
use carlos_tests_acceptance::station::{PROGRAM, Station, lines};
use carlos_tests_minio::Server;

const SCHEMA: &str = "CREATE TABLE orders(id INTEGER PRIMARY KEY, item TEXT);
                      INSERT INTO orders(item) VALUES ('tea'), ('milk');";
const QUERY: &str = "SELECT id, item FROM orders ORDER BY id";

pub(crate) fn query(server: &'static Server) {
    let deployment = Deployment::create(server);
    let mut source = deployment.source(HOST, SCHEMA);
    let station = Station::serving(&deployment);
    let first = deployment.ask(HOST, QUERY);
    assert_eq!(first.code, Some(0), "{first:?}\n{}", station.host.tail());
    assert_eq!(first.stdout, "id\titem\n1\ttea\n2\tmilk\n");
    source.db.execute_batch("INSERT INTO orders(item) VALUES ('jam')").unwrap();
    deployment.sync(&mut source);
    let second = deployment.ask(HOST, QUERY);
    assert!(second.stdout.ends_with("3\tjam\n"), "{second:?}");
    // The worker's own guard: the CLI has nothing against the text.
    let extension = deployment.ask(HOST, "SELECT load_extension('/usr/lib/any.so')");
    assert_eq!(extension.code, Some(17), "{extension:?}");
    station.until_alone();
    let log = station.host.journal("carlos-dbread@*");
    assert!(log.contains("database reader for connection"), "no unit served it: {log}");
    agent_has_no_power(&station);
}

/// The same question through a console in its own unit.
pub(crate) fn console(server: &'static Server) {
    let deployment = Deployment::create(server);
    let _source = deployment.source(HOST, SCHEMA);
    let station = Station::serving(&deployment);
    let (host, port, key) = (&station.host, free_port(), "/etc/carlos/root.key");
    host.write(key, deployment.root_key(), 0o400);
    host.ok(&["chown", "carlos-console", key]);
    host.write("/etc/carlos/console.env", lines(&deployment.console(port, key)), 0o600);
    host.ok(&["systemctl", "start", "carlos-console.service"]);
    deployment.log_in(port);
    let answer = deployment.ask(HOST, QUERY);
    assert_eq!(answer.stdout, "id\titem\n1\ttea\n2\tmilk\n", "{answer:?}\n{}", host.tail());
    assert_eq!(host.show("carlos-console.service", "NRestarts"), "0");
    let agents = host.run(&["setpriv", "--reuid", "carlos", "--clear-groups", "cat", key]);
    assert_ne!(agents.code, Some(0), "the agent reads the root key");
}

/// The agent's own unit: its user, no capability, no way to the live databases.
fn agent_has_no_power(station: &Station) {
    let host = &station.host;
    let pid = host.show("carlos-agent.service", "MainPID");
    let status = host.ok(&["cat", &format!("/proc/{pid}/status")]);
    let uid = host.ok(&["id", "-u", "carlos"]);
    assert!(status.contains(&format!("Uid:\t{uid}\t{uid}\t{uid}\t{uid}")), "{status}");
    for nothing in ["CapPrm:\t0000000000000000", "CapBnd:\t0000000000000000", "NoNewPrivs:\t1"] {
        assert!(status.contains(nothing), "{nothing}: {status}");
    }
    let looks = host.run(&["ls", &format!("/proc/{pid}/root/data")]);
    assert!(!looks.stdout.contains("registry.db"), "{looks:?}");
}

pub(crate) fn real_host() {
    let station = Station::boot(Network::Private, "CARLOS_BOX=box-uk\nCARLOS_REGION=uk\n");
    let host = &station.host;
    limits_are_counted(host);
    let again = host.ok(&[PROGRAM, "system", "install-units"]);
    assert!(!again.contains("written") && again.contains("unchanged"), "{again}");
    let exposure =
        host.ok(&["systemd-analyze", "security", "--no-pager", "carlos-dbread@1.service"]);
    let exposure = exposure.lines().last().unwrap_or_default().to_owned();
    eprintln!("{}; {exposure}", host.systemd());
    let (booted, traces) = (host.booted, host.traces());
    let halted = station.host.halt();
    eprintln!("booted in {booted:.2?}, halted in {halted:.2?}");
    let left: Vec<_> = traces.iter().filter(|trace| trace.exists()).collect();
    assert!(left.is_empty(), "{left:?}");
    assert!(booted < Duration::from_secs(30));
    dead_host_is_reported();
}

/// Otherwise limits are shown as set and hold nothing.
fn limits_are_counted(host: &Host) {
    for property in ["MemoryCurrent", "TasksCurrent"] {
        let value = host.show("systemd-journald.service", property);
        assert!(value.parse::<u64>().is_ok(), "{property}={value}");
    }
}

/// Whoever waits for a host that has died is told so at once.
fn dead_host_is_reported() {
    let host = Host::boot(Network::Private).unwrap();
    let mut waiting = host.command("sleep").arg("100").spawn().unwrap();
    let begun = Instant::now();
    host.kill();
    assert!(!waiting.wait().unwrap().success());
    assert_ne!(host.run(&["true"]).code, Some(0));
    assert!(begun.elapsed() < Duration::from_secs(10), "{:?}", begun.elapsed());
}
