//! T13 (db-forward §11.4): a socket file promises nothing. What stands behind it is probed, and a
//! box whose workers do not start offers no reads.

use std::time::Duration;

use carlos_tests_acceptance::deployment::{Deployment, HOST};
use carlos_tests_acceptance::host::Host;
use carlos_tests_acceptance::station::{AGENT, PROGRAM, Station, WORKER};
use carlos_tests_acceptance::{ENDLESS, within};
use carlos_tests_minio::Server;

/// One probe and one publication, on a busy machine.
const WITHDRAWN: Duration = Duration::from_secs(20);

const SCHEMA: &str = "CREATE TABLE t(a); INSERT INTO t VALUES (1);";

/// A way for the service to be of no use while its socket is there.
struct Broken {
    name: &'static str,
    how: fn(&Host),
}

const BROKEN: [Broken; 4] = [
    Broken { name: "missing", how: |host| drop(host.ok(&["rm", UNIT])) },
    Broken { name: "masked", how: |host| drop(host.ok(&["ln", "-sf", "/dev/null", UNIT])) },
    Broken {
        name: "failing to start",
        how: |host| host.drop_in(WORKER, "broken", "[Service]\nExecStart=\nExecStart=/bin/false\n"),
    },
    Broken {
        name: "of another version",
        how: |host| host.drop_in(WORKER, "broken", ANOTHER_VERSION),
    },
];

const UNIT: &str = "/etc/systemd/system/carlos-dbread@.service";

/// A frame of nine bytes: its length, the type of a hello, and the version.
const ANOTHER_VERSION: &str = "[Service]
NoExecPaths=
ExecPaths=
ExecStart=
ExecStart=/bin/sh -c 'printf \"\\\\000\\\\000\\\\000\\\\010\\\\001{\\\\042v\\\\042:9}\"; \
exec cat >/dev/null'
";

/// Each of them withdraws the box, which is back once it is repaired.
pub(crate) fn withdrawn(server: &'static Server) {
    let deployment = Deployment::create(server);
    let _source = deployment.source(HOST, SCHEMA);
    let station = Station::serving(&deployment);
    for broken in BROKEN {
        offered(&deployment, true, broken.name);
        (broken.how)(&station.host);
        station.host.ok(&["systemctl", "daemon-reload"]);
        // A read whose worker does not start has the probe look at once.
        let answer = deployment.ask(HOST, "SELECT a FROM t");
        assert!(answer.code != Some(0) && answer.stdout.is_empty(), "{}: {answer:?}", broken.name);
        let took = offered(&deployment, false, broken.name);
        eprintln!("a service {}: withdrawn {took:.1?} after a read met it", broken.name);
        let refused = deployment.ask(HOST, "SELECT a FROM t");
        assert!(refused.stderr.contains("DBF-1)"), "{}: {refused:?}", broken.name);
        repaired(&station);
    }
    offered(&deployment, true, "repaired");
    assert_eq!(deployment.ask(HOST, "SELECT a FROM t").stdout, "a\n1\n");
}

fn repaired(station: &Station) {
    let host = &station.host;
    host.ok(&["rm", "-rf", UNIT, &format!("{UNIT}.d")]);
    host.ok(&[PROGRAM, "system", "install-units"]);
    // A socket whose service could not be started at all has given up, and one that is restarted
    // as often as here is held back.
    host.run(&["systemctl", "reset-failed", "carlos-dbread.socket"]);
    host.ok(&["systemctl", "restart", "carlos-dbread.socket"]);
    host.ok(&["systemctl", "restart", AGENT]);
    station.until_ready();
}

/// Waits until the box's edges say so.
fn offered(deployment: &Deployment, wanted: bool, when: &str) -> Duration {
    let what = format!("{when}: the box offers reads: {wanted}");
    within(WITHDRAWN, &what, || (deployment.offers_reads() == wanted).then_some(())).1
}

/// Two reads leave the probe its connection, and a busy box stays on offer.
pub(crate) fn busy(server: &'static Server) {
    let deployment = Deployment::create(server);
    let _source = deployment.source(HOST, SCHEMA);
    let often = ("CARLOS_DB_READ_PROBE_SECONDS", "2");
    let station = Station::serving_with(&deployment, &[often], |_| {});
    let reads = [ENDLESS; 2].map(|sql| deployment.ask_aside(HOST, sql));
    let two = || Some(station.readers()).filter(|readers| readers.len() == 2);
    let (held, _) = within(WITHDRAWN, "two reads run", two);
    let probed = || station.workers().iter().any(|unit| !held.contains(unit));
    for _ in 0..2 {
        within(WITHDRAWN, "a probe runs beside them", || probed().then_some(()));
        within(WITHDRAWN, "and ends", || (!probed()).then_some(()));
    }
    assert!(deployment.offers_reads() && !station.agent_log().contains("ready=false"));
    drop(reads.map(|read| read.cancel()));
}
