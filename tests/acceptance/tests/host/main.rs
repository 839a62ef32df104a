//! The acceptance tests on a real systemd host. `tests/acceptance/run` installs what they need and
//! asks for them; without it they are shown as ignored.
#![allow(clippy::disallowed_methods, clippy::disallowed_macros, clippy::unwrap_used, clippy::panic)]

mod offline;
mod scratch;
mod t12;
mod t13;
mod t2;
mod t3;
mod t9;

use std::process::ExitCode;

use carlos_tests_acceptance::host::root;
use carlos_tests_minio::{Choice, Server};
use libtest_mimic::{Arguments, Failed, Trial};

/// `require` asks for them: a machine that boots no host is then a failure.
const MODE: &str = "CARLOS_ACCEPTANCE_TESTS";

/// Hosts at once. Tests mostly wait for units, not for the machine.
const AT_ONCE: usize = 3;

type Test = fn(&'static Server);

/// Those with a deployment around their host, the long ones first.
const SERVED: &[(&str, Test)] = &[
    ("t9::a_record_that_changes_at_each_point_of_the_download", t9::every_point),
    ("t13::a_service_that_does_not_start_withdraws_the_box", t13::withdrawn),
    ("t12::the_next_agent_waits_for_an_orphan", t12::orphan),
    ("t12::a_disconnect_in_the_merge_ends_the_worker", t12::disconnected_in_the_merge),
    ("t12::a_worker_that_hears_nothing_ends_within_five_seconds", t12::disconnected_while_deaf),
    ("t12::two_reads_on_a_disk_for_one", t12::room_for_one),
    ("t13::two_reads_leave_the_probe_its_connection", t13::busy),
    ("t3::scratch_is_gone_after_every_end", scratch::gone),
    ("t2::a_console_in_its_own_unit", t2::console),
    ("t2::a_forwarded_query_through_the_installed_units", t2::query),
];

/// Those with a host alone.
const ALONE: &[(&str, fn())] = &[
    ("t3::every_act_fails_behind_each_wall", t3::walls),
    ("t3::every_line_of_the_unit_is_needed", t3::every_line_is_needed),
    ("t3::workers_cannot_reach_each_other", t3::siblings),
    ("t3::no_byte_more_than_announced", t3::announced),
    ("t3::cpu_time_is_bounded", t3::cpu),
    ("t3::a_worker_without_a_user_of_its_own_does_not_start", t3::no_name_no_worker),
    ("t2::the_host_is_a_real_one", t2::real_host),
];

/// Those that need systemd's tools and no host.
const OFFLINE: &[(&str, fn())] = &[
    ("offline::systemd_understands_every_line", offline::verified),
    ("offline::the_units_exposure_is_small", offline::exposure),
];

fn main() -> ExitCode {
    let mut args = Arguments::from_args();
    args.test_threads.get_or_insert(AT_ONCE);
    let asked = std::env::var(MODE).is_ok_and(|mode| mode == "require");
    if !asked && !args.list {
        eprintln!("SKIPPED: acceptance on a systemd host: tests/acceptance/run runs it");
    }
    // Asked for on a machine that cannot boot a host, each of them fails and says why.
    let mut trials: Vec<Trial> =
        SERVED.iter().map(|(name, test)| trial(name, asked, || on_server(*test))).collect();
    trials.extend(ALONE.iter().map(|(name, test)| trial(name, asked, || on_host(*test))));
    let tools = asked || offline::available().is_ok();
    trials.extend(OFFLINE.iter().map(|(name, test)| {
        trial(name, tools, || {
            test();
            Ok(())
        })
    }));
    let conclusion = libtest_mimic::run(&args, trials);
    Server::end_shared();
    conclusion.exit_code()
}

fn on_host(test: fn()) -> Result<(), Failed> {
    root::available()?;
    test();
    Ok(())
}

fn on_server(test: Test) -> Result<(), Failed> {
    root::available()?;
    let server = Server::shared(&Choice::make())?;
    test(server);
    Ok(())
}

fn trial(
    name: &str,
    runs: bool,
    test: impl FnOnce() -> Result<(), Failed> + Send + 'static,
) -> Trial {
    Trial::test(name, test).with_ignored_flag(!runs)
}
