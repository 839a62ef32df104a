//! The host of the probing worker: everything it must not reach is there, alive and open, and
//! beside the product's unit stand units without a wall.

use std::collections::BTreeMap;

use rusqlite::Connection;

use crate::acts::{Answer, METADATA, OPEN_FOLDERS};
use crate::eventually;
use crate::host::Network;
use crate::station::{PROGRAM, Station, program};

/// A socket like the workers', whose units have no wall and the agent's user.
pub const OPEN_SOCKET: &str = "/run/probe-open.sock";

/// The same with root's powers.
pub const ROOT_SOCKET: &str = "/run/probe-root.sock";

/// An agent's settings, as far as units repeat them.
pub const SETTINGS: &str =
    "CARLOS_BOX=box-uk\nCARLOS_REGION=uk\nCARLOS_DB_READ_MAX_BYTES=67108864\n";

/// A host whose workers are probes.
pub fn station() -> Station {
    let station = Station::boot(Network::Private, SETTINGS);
    station.host.install(&program("carlos-acceptance-probe"), PROGRAM);
    furnish(&station);
    open_units(&station);
    stand(&station);
    station
}

/// Has each act tried by a worker of its own behind `socket`, by name.
///
/// # Panics
/// When a worker does not even start: then nothing would be known of the acts.
pub fn ask(
    station: &Station,
    socket: &str,
    walls: &str,
    acts: &[&str],
) -> BTreeMap<String, Answer> {
    let mut command = station.host.command("setpriv");
    command.args(["--reuid", "carlos", "--regid", "carlos", "--clear-groups", PROGRAM]);
    command.args(["ask", socket, walls, "nothing"]).args(acts);
    let output = command.output().unwrap();
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let answers = text.lines().map(|line| serde_json::from_str::<Answer>(line).unwrap());
    let names = ["nothing"].iter().chain(acts).map(|name| (*name).to_owned());
    let answers: BTreeMap<String, Answer> = names.zip(answers).collect();
    let began = answers.get("nothing").is_some_and(|answer| answer.worked);
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(began && answers.len() == acts.len() + 1, "{said}{answers:?}{}", station.host.tail());
    answers
}

/// Files and folders that only walls close.
fn furnish(station: &Station) {
    let host = &station.host;
    let db = tempfile::NamedTempFile::new().unwrap();
    let registry = Connection::open(db.path()).unwrap();
    registry.execute_batch("CREATE TABLE tenants(id); INSERT INTO tenants VALUES (1)").unwrap();
    drop(registry);
    host.write("/data/registry.db", std::fs::read(db.path()).unwrap(), 0o644);
    host.write("/home/someone/note", "private", 0o644);
    host.write("/var/log/open.log", "who did what", 0o644);
    for folder in OPEN_FOLDERS {
        host.ok(&["mkdir", "-p", folder]);
        host.ok(&["chmod", "1777", folder]);
    }
    // The units of the product hide the settings' folder; here its mode must not.
    host.ok(&["chmod", "755", "/etc/carlos", "/data", "/home/someone"]);
}

fn open_units(station: &Station) {
    for (name, user) in [("probe-open", "carlos"), ("probe-root", "root")] {
        let socket = format!(
            "[Socket]\nListenStream=/run/{name}.sock\nSocketMode=0666\nAccept=yes\n\
             MaxConnections=8\n"
        );
        let service = format!(
            "[Unit]\nCollectMode=inactive-or-failed\n[Service]\nUser={user}\n\
             ExecStart={PROGRAM} system db-worker --max-bytes 67108864\n\
             StandardInput=socket\nStandardOutput=socket\nStandardError=journal\n"
        );
        station.host.write(&format!("/etc/systemd/system/{name}.socket"), socket, 0o644);
        station.host.write(&format!("/etc/systemd/system/{name}@.service"), service, 0o644);
    }
    station.host.ok(&["systemctl", "daemon-reload"]);
    station.host.ok(&["systemctl", "start", "probe-open.socket", "probe-root.socket"]);
}

/// What can be reached without a wall, and somebody to be signalled.
fn stand(station: &Station) {
    let host = &station.host;
    let address = METADATA.split(':').next().unwrap();
    host.ok(&["ip", "address", "add", &format!("{address}/32"), "dev", "lo"]);
    host.ok(&["systemd-run", "--quiet", "--unit", "stand", PROGRAM, "stand"]);
    eventually("the stand is open", || host.journal("stand").contains("standing").then_some(()));
    let sleep = ["--unit", "bystander", "--uid", "carlos", "sleep", "600"];
    host.ok(&[&["systemd-run", "--quiet"], &sleep[..]].concat());
    host.write("/run/agent.pid", host.show("bystander", "MainPID"), 0o644);
}
