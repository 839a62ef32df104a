//! The unit files, with the places where a box's own numbers go.

use carlos_protocol::limits::WORKER_CONNECTIONS;

use super::settings::Limits;

/// Where units expect this program (db-forward §8.3).
pub(super) const PROGRAM: &str = "/opt/carlos/carlos";

/// Where the agent's settings are, as an environment file.
pub(super) const AGENT_SETTINGS: &str = "/etc/carlos/agent.env";

/// Where the workers' socket listens (db-forward §8.3).
const SOCKET: &str = "/run/carlos-dbread/worker.sock";

const CONSOLE_SETTINGS: &str = "/etc/carlos/console.env";
const SETTINGS_DIR: &str = "/etc/carlos";

/// The unit that stands for all workers.
pub(super) const WORKER_SOCKET: &str = "carlos-dbread.socket";

/// A file as it is to stand on the box.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Rendered {
    /// Absolute path.
    pub(super) path: &'static str,
    pub(super) text: String,
}

/// Path and template of everything that is installed. Users come first: units name them.
const TEMPLATES: [(&str, &str); 6] = [
    ("/etc/sysusers.d/carlos.conf", include_str!("../../../infra/systemd/sysusers.conf")),
    ("/etc/tmpfiles.d/carlos.conf", include_str!("../../../infra/systemd/tmpfiles.conf")),
    (
        "/etc/systemd/system/carlos-dbread@.service",
        include_str!("../../../infra/systemd/carlos-dbread@.service"),
    ),
    (
        "/etc/systemd/system/carlos-dbread.socket",
        include_str!("../../../infra/systemd/carlos-dbread.socket"),
    ),
    (
        "/etc/systemd/system/carlos-agent.service",
        include_str!("../../../infra/systemd/carlos-agent.service"),
    ),
    (
        "/etc/systemd/system/carlos-console.service",
        include_str!("../../../infra/systemd/carlos-console.service"),
    ),
];

/// Every file, with `limits` in place.
pub(super) fn render(limits: &Limits) -> Vec<Rendered> {
    let values = [
        ("program", PROGRAM.to_owned()),
        ("socket", SOCKET.to_owned()),
        ("connections", WORKER_CONNECTIONS.to_string()),
        ("restored_bytes", limits.restored_bytes.to_string()),
        ("agent_settings", AGENT_SETTINGS.to_owned()),
        ("console_settings", CONSOLE_SETTINGS.to_owned()),
        ("settings_dir", SETTINGS_DIR.to_owned()),
    ];
    let fill = |template: &str| {
        values.iter().fold(template.to_owned(), |text, (name, value)| {
            text.replace(&format!("{{{{{name}}}}}"), value)
        })
    };
    TEMPLATES.iter().map(|(path, template)| Rendered { path, text: fill(template) }).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rendered(name: &str) -> String {
        let limits = Limits { restored_bytes: 7 << 20 };
        let files = render(&limits);
        files.into_iter().find(|file| file.path.ends_with(name)).expect("is installed").text
    }

    #[test]
    fn nothing_is_left_to_fill_in() {
        for file in render(&Limits::default()) {
            assert!(!file.text.contains("{{") && !file.text.contains("}}"), "{}", file.path);
        }
    }

    #[test]
    fn the_boxs_limits_are_in_the_units() {
        let worker = rendered("carlos-dbread@.service");
        assert!(worker.contains("\nLimitFSIZE=7340032\n"), "{worker}");
        let start = "\nExecStart=/opt/carlos/carlos system db-worker --max-bytes 7340032\n";
        assert!(worker.contains(start), "{worker}");
        assert!(rendered("carlos-dbread.socket").contains("\nMaxConnections=3\n"));
    }

    /// Every line that db-forward §8.3 names, word for word where it gives words.
    #[test]
    fn the_worker_unit_has_every_line_of_its_specification() {
        let worker = rendered("carlos-dbread@.service");
        let lines = [
            "StandardInput=socket",
            "StandardOutput=socket",
            "StandardError=journal",
            "DynamicUser=yes",
            "PrivateNetwork=yes",
            "RestrictAddressFamilies=AF_UNIX",
            "ProtectSystem=strict",
            "TemporaryFileSystem=/data:ro /var/lib:ro /opt/carlos:ro /run/carlos:ro",
            "BindReadOnlyPaths=/opt/carlos/carlos",
            "InaccessiblePaths=-/etc/carlos -/run/carlos-control",
            "PrivateTmp=yes",
            "MemoryMax=512M",
            "CPUQuota=100%",
            "TasksMax=16",
            "RuntimeMaxSec=20min",
            "NoNewPrivileges=yes",
            "CapabilityBoundingSet=",
            "ProtectProc=invisible",
        ];
        for line in lines {
            assert!(worker.lines().any(|found| found == line), "{line}");
        }
        let socket = rendered("carlos-dbread.socket");
        let wanted = ["ListenStream=/run/carlos-dbread/worker.sock", "SocketUser=carlos"];
        for line in wanted.iter().chain(&["SocketMode=0600", "Accept=yes"]) {
            assert!(socket.lines().any(|found| found == *line), "{line}");
        }
    }

    #[test]
    fn a_workers_user_is_its_own_and_its_name_is_short_enough() {
        let worker = rendered("carlos-dbread@.service");
        let user = worker.lines().find_map(|line| line.strip_prefix("User=")).expect("a user");
        // Connection number, process and user of the connecting side; later versions of systemd
        // add the kernel's own number of that process.
        for instance in ["1048575-4194304-65534", "9999-4194304_99999999-999"] {
            let name = user.replace("%i", instance);
            assert!(user.contains("%i") && name.len() <= 31, "{name}");
        }
    }
}
