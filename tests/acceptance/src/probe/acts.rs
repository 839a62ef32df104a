//! The acts themselves. Each does the whole of what it is named for, and is content with nothing
//! less; none knows what should stop it.

mod bulk;
mod files;
mod powers;
mod reach;
mod sibling;
mod sql;

use std::error::Error;
use std::path::Path;

use carlos_tests_acceptance::acts::Answer;
pub(crate) use carlos_tests_acceptance::acts::HOLD;

/// What an act saw, or what stopped it.
type Attempt = Result<String, Box<dyn Error>>;

/// Tries one act. `scratch` is where a worker may write.
pub(crate) fn attempt(act: &str, scratch: &Path) -> Answer {
    let (name, about) = act.split_once(' ').unwrap_or((act, ""));
    match by_name(name, about, scratch) {
        Ok(detail) => Answer { worked: true, detail },
        Err(error) => Answer { worked: false, detail: error.to_string() },
    }
}

fn by_name(name: &str, about: &str, scratch: &Path) -> Attempt {
    match name {
        "nothing" => Ok(String::new()),
        "read-registry" => files::read("/data/registry.db"),
        "read-another-tenant" => files::read("/data/instances/other.example.com/app.db"),
        "read-settings" => files::read("/etc/carlos/host.env"),
        "read-home" => files::read("/home/someone/note"),
        "read-log" => files::read("/var/log/open.log"),
        "see-processes" => files::see_processes(),
        "see-first-process" => files::read("/proc/1/cmdline"),
        "write-anywhere" => files::write_anywhere(),
        "run-a-shell" => files::run("/bin/true"),
        "run-from-scratch" => files::run_from(scratch),
        "run-by-loader" => files::run_by_loader(scratch),
        "suid-file" => files::suid(scratch),
        "reach-metadata" => reach::tcp(carlos_tests_acceptance::acts::METADATA),
        "reach-neighbour" => reach::tcp(carlos_tests_acceptance::acts::NEIGHBOUR),
        "reach-abstract" => reach::abstract_name(),
        "reach-bus" => reach::unix("/run/dbus/system_bus_socket"),
        "reach-journal" => reach::unix("/run/systemd/journal/stdout"),
        "reach-notify" => reach::datagram("/run/systemd/notify"),
        "reach-users" => reach::unix("/run/systemd/userdb/io.systemd.DynamicUser"),
        "reach-own-socket" => reach::unix("/run/carlos-dbread/worker.sock"),
        "udp" => reach::udp(),
        "netlink" => reach::netlink(),
        "vsock" => reach::vsock(),
        "raw-socket" => reach::raw(),
        "packet-socket" => reach::packet(),
        "processes" => bulk::processes(),
        "threads" => bulk::threads(),
        "memory" => bulk::memory(),
        "file-size" => bulk::file(scratch),
        "many-files" => bulk::files(scratch),
        "cpu" => Ok(bulk::cpu()),
        "unshare-user" => powers::unshare_user(),
        "unshare-net" => powers::unshare_net(),
        "mount" => powers::mount(scratch),
        "chroot" => powers::chroot(scratch),
        "ptrace" => powers::ptrace(),
        "io-uring" => powers::io_uring(),
        "signal-agent" => powers::signal_agent(),
        "sql-attach" => sql::attach(scratch),
        "sql-vacuum-into" => sql::vacuum_into(scratch),
        HOLD => sibling::hold(scratch),
        "sibling-seen" => sibling::seen(about),
        "sibling-file" => sibling::file(about),
        "sibling-memory" => sibling::memory(about),
        "sibling-signal" => sibling::signal(about),
        _ => panic!("no act is named {name}"),
    }
}
