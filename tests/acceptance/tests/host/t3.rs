//! T3 (db-forward §11.4): what a worker can do, from inside it. Every act is tried where there is
//! no wall, where it must work, behind the unit alone, behind the worker's own wall alone, and
//! behind both.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use carlos_tests_acceptance::acts::{ACTS, Act, Answer, Control, HOLD, SIBLING_ACTS};
use carlos_tests_acceptance::host::Network;
use carlos_tests_acceptance::station::{SOCKET, Station, WORKER, program};
use carlos_tests_acceptance::yard::{self, OPEN_SOCKET, ROOT_SOCKET};

/// Every act, without a wall and behind each.
pub(crate) fn walls() {
    let station = yard::station();
    limits_are_set(&station);
    let names: Vec<&str> = ACTS.iter().map(|act| act.name).collect();
    let unit = ask(&station, SOCKET, "bare", &names);
    let both = ask(&station, SOCKET, "inner", &names);
    let open = in_the_open(&station, "bare");
    let inner = in_the_open(&station, "inner");
    let mut wrong = String::new();
    for act in ACTS {
        let name = act.name;
        let cells = [&open[name], &unit[name], &inner[name], &both[name]];
        eprintln!("{name:20} {}", cells.map(cell).join(" | "));
        for (answer, wanted) in cells.into_iter().zip([true, !act.unit, false, false]) {
            if answer.worked != wanted {
                let _ = writeln!(wrong, "{name}: {answer:?}, not {wanted}");
            }
        }
    }
    assert!(wrong.is_empty(), "{wrong}{}", station.host.tail());
    station.until_alone();
}

/// What one worker can do to another.
pub(crate) fn siblings() {
    let station = yard::station();
    let acts: Vec<&str> = [HOLD].into_iter().chain(SIBLING_ACTS).collect();
    let open = ask(&station, OPEN_SOCKET, "bare", &acts);
    let unit = ask(&station, SOCKET, "bare", &acts);
    let both = ask(&station, SOCKET, "inner", &acts);
    for name in SIBLING_ACTS {
        eprintln!("{name:20} {}", [&open[name], &unit[name], &both[name]].map(cell).join(" | "));
        assert!(open[name].worked, "{name}: {:?}", open[name]);
        assert!(!unit[name].worked && !both[name].worked, "{name}: {unit:?} {both:?}");
    }
    station.until_alone();
}

/// Takes one line after another out of the unit, and finds that an act works again.
pub(crate) fn every_line_is_needed() {
    let station = yard::station();
    let old = station.host.systemd().starts_with("systemd 252 ");
    for (line, act) in LINES.iter().chain(if old { OF_252 } else { &[] }) {
        station.host.drop_in(WORKER, "mutation", &format!("[Service]\n{line}"));
        let acts = if act.starts_with("sibling") { vec![HOLD, act] } else { vec![*act] };
        let answer = ask(&station, SOCKET, "bare", &acts)[*act].clone();
        eprintln!("{:48} {act}: {}", line.trim_end().replace('\n', " "), cell(&answer));
        assert!(answer.worked, "without {line:?} {act} still fails: {answer:?}");
        station.until_alone();
    }
}

/// A line of the unit undone, and an act that nothing else in the unit stops.
const LINES: &[(&str, &str)] = &[
    ("PrivateNetwork=no\n", "reach-abstract"),
    ("RestrictAddressFamilies=\n", "netlink"),
    // A name that all instances share, as systemd would choose one.
    ("User=dbshared\n", "sibling-memory"),
    ("User=dbshared\n", "sibling-file"),
    ("InaccessiblePaths=\n", "read-settings"),
    ("InaccessiblePaths=\n", "reach-bus"),
    ("InaccessiblePaths=\n", "write-anywhere"),
    ("TemporaryFileSystem=\nBindReadOnlyPaths=\n", "read-registry"),
    ("ProtectHome=no\n", "read-home"),
    ("ProtectProc=default\n", "see-first-process"),
    ("NoExecPaths=\nExecPaths=\n", "run-from-scratch"),
    ("NoExecPaths=\nExecPaths=\n", "run-by-loader"),
    ("RestrictNamespaces=no\n", "unshare-user"),
    ("SystemCallFilter=\n", "io-uring"),
    ("SystemCallFilter=\n", "ptrace"),
    ("MemoryMax=infinity\n", "memory"),
    ("TasksMax=infinity\n", "threads"),
    ("LimitFSIZE=infinity\n", "file-size"),
];

/// With this version ProtectProc= leaves /run open; one that does not needs no line for it.
const OF_252: &[(&str, &str)] = &[("ReadOnlyPaths=\n", "write-anywhere")];

/// The CPU limit by what a spinning worker gets. On a busy machine a whole CPU is never to be had,
/// nor a tenth of one, so the quota is made small for it.
pub(crate) fn cpu() {
    let station = yard::station();
    assert_eq!(station.host.show("carlos-dbread@1.service", "CPUQuotaPerSecUSec"), "1s");
    station.host.drop_in(WORKER, "small", "[Service]\nCPUQuota=3%\n");
    let share = |socket: &str| -> u32 {
        ask(&station, socket, "bare", &["cpu"])["cpu"].detail.parse().unwrap()
    };
    let (free, bound) = (share(OPEN_SOCKET), share(SOCKET));
    eprintln!("a spinning worker gets {bound} % under a quota of 3 %, {free} % without");
    assert!(bound <= 5 && free > bound, "{bound} % of {free} %");
}

/// A worker whose user's name would be too long is not run under another's.
pub(crate) fn no_name_no_worker() {
    let station = yard::station();
    let unit = format!("carlos-dbread@{}.service", "1".repeat(40));
    let started = station.host.run(&["systemctl", "start", &unit]);
    assert_ne!(started.code, Some(0), "{started:?}");
    let log = station.host.journal(&unit);
    assert!(log.contains("Failed to start") && !log.contains("Started"), "{log}");
}

/// A worker takes no byte more than its agent announced, and restores no page more than it may.
pub(crate) fn announced() {
    let station = Station::boot(Network::Private, yard::SETTINGS);
    let host = &station.host;
    host.install(&program("carlos-acceptance-probe"), "/opt/carlos/probe");
    host.write("/run/snapshot.ltx", SNAPSHOT, 0o644);
    let send = |extra: &str, restored: &str| {
        let user = ["--reuid", "carlos", "--regid", "carlos", "--clear-groups"];
        let words = ["/opt/carlos/probe", "send", SOCKET, "/run/snapshot.ltx", extra, restored];
        host.ok(&[&["setpriv"], &user[..], &words[..]].concat())
    };
    let (honest, more, larger) = (send("0", "1048576"), send("1000", "1048576"), send("0", "4096"));
    eprintln!("honest: {honest}; more than announced: {more}; too large: {larger}");
    assert!(honest.contains("Ready("), "{honest}");
    assert!(more.contains("outcome: BadInput"), "{more}");
    assert!(larger.contains("outcome: TooLarge"), "{larger}");
    station.until_alone();
}

/// The first file of a real replica.
const SNAPSHOT: &[u8] = include_bytes!(concat!(
    "../../../../crates/replica/tests/fixtures/chain/replica/ltx/9/",
    "0000000000000001-0000000000000001.ltx"
));

fn limits_are_set(station: &Station) {
    let wanted = [
        ("MemoryMax", "536870912"),
        ("TasksMax", "16"),
        ("CPUQuotaPerSecUSec", "1s"),
        ("RuntimeMaxUSec", "20min"),
        ("LimitFSIZE", "67108864"),
        ("DynamicUser", "yes"),
        ("CollectMode", "inactive-or-failed"),
    ];
    for (property, value) in wanted {
        assert_eq!(station.host.show("carlos-dbread@1.service", property), value, "{property}");
    }
}

/// Each act by whoever could do it, in a unit without walls.
fn in_the_open(station: &Station, walls: &str) -> BTreeMap<String, Answer> {
    let of = |control: Control, socket: &str| {
        let acts = ACTS.iter().filter(|act: &&Act| act.control == control);
        let names: Vec<&str> = acts.map(|act| act.name).collect();
        ask(station, socket, walls, &names)
    };
    let mut answers = of(Control::User, OPEN_SOCKET);
    answers.append(&mut of(Control::Root, ROOT_SOCKET));
    answers
}

/// Has each act tried, after one that tries nothing and must work.
fn ask(station: &Station, socket: &str, walls: &str, acts: &[&str]) -> BTreeMap<String, Answer> {
    yard::ask(station, socket, walls, acts)
}

fn cell(answer: &Answer) -> String {
    let what = if answer.worked { "works: " } else { "no: " };
    format!("{what}{}", answer.detail.chars().take(40).collect::<String>())
}
