//! The acceptance tests on a real systemd host. `tests/acceptance/run` installs what they need and
//! makes a missing host a failure; without it, on a machine that cannot boot one, they are shown
//! as ignored, with the reason.
#![allow(clippy::disallowed_methods, clippy::disallowed_macros, clippy::unwrap_used, clippy::panic)]

mod t2;

use std::process::ExitCode;

use carlos_tests_acceptance::host::root;
use carlos_tests_minio::{Choice, Server};
use libtest_mimic::{Arguments, Failed, Trial};

/// `require` makes a machine that boots no host a failure instead of a skip.
const MODE: &str = "CARLOS_ACCEPTANCE_TESTS";

/// Hosts at once. Tests mostly wait for units, not for the machine.
const AT_ONCE: usize = 3;

type Test = fn(&'static Server);

/// Those with a deployment around their host.
const SERVED: &[(&str, Test)] = &[("t2::a_forwarded_query_through_the_installed_units", t2::query)];

/// Those with a host alone.
const ALONE: &[(&str, fn())] = &[("t2::the_host_is_a_real_one", t2::real_host)];

fn main() -> ExitCode {
    let mut args = Arguments::from_args();
    args.test_threads.get_or_insert(AT_ONCE);
    let able = root::available();
    let required = std::env::var(MODE).is_ok_and(|mode| mode == "require");
    if let (Err(why), false) = (&able, args.list) {
        eprintln!("SKIPPED: acceptance on a systemd host: {why}");
    }
    let skipped = able.is_err() && !required;
    let served = SERVED.iter().map(|(name, test)| trial(name, skipped, || on_server(*test)));
    let alone = ALONE.iter().map(|(name, test)| {
        trial(name, skipped, || {
            test();
            Ok(())
        })
    });
    let conclusion = libtest_mimic::run(&args, served.chain(alone).collect());
    Server::end_shared();
    conclusion.exit_code()
}

fn on_server(test: Test) -> Result<(), Failed> {
    let server = Server::shared(&Choice::make())?;
    test(server);
    Ok(())
}

fn trial(
    name: &str,
    skipped: bool,
    run: impl FnOnce() -> Result<(), Failed> + Send + 'static,
) -> Trial {
    Trial::test(name, run).with_ignored_flag(skipped)
}
