//! The product on a real S3 server. `CARLOS_S3_TESTS=require` makes a missing server a failure;
//! without it the tests are shown as ignored, with the reason.
#![allow(clippy::disallowed_methods, clippy::disallowed_macros, clippy::unwrap_used, clippy::panic)]

mod admin;
mod conforms;
mod facts;
mod lies;
mod lifecycle;
mod live;
mod pages;
mod rights;
mod starter;
mod t1;
mod t16;
mod t18;
mod t4;
mod t5;
mod t9;

use std::process::ExitCode;
use std::sync::{Arc, PoisonError, RwLock};

use carlos_bucket::scenario::{SCENARIOS, Scenario};
use carlos_tests_minio::{Choice, Kind, Server};
use futures::future::LocalBoxFuture;
use libtest_mimic::{Arguments, Failed, Trial};
use tokio::runtime::Runtime;

use self::t9::Change;

/// Most tests wait for deadlines, not for the machine.
const AT_ONCE: usize = 8;

type Test = fn(&'static Server) -> LocalBoxFuture<'static, ()>;

/// Those that run on the server all share.
const TESTS: &[(&str, Test)] = &[
    ("t1::a_read_crosses_regions_and_keys_do_not", |server| Box::pin(t1::test(server))),
    ("t16::a_whole_life_of_reads_only_creates", |server| Box::pin(t16::test(server))),
    ("t18::the_result_overtakes_the_last_chunk", |server| Box::pin(t18::test(server))),
    ("t4::forgeries_are_left_alone", |server| Box::pin(t4::forgeries(server))),
    ("t4::forged_answers", |server| Box::pin(t4::answers(server))),
    ("t9::moved", |server| Box::pin(t9::test(server, Change::Moved))),
    ("t9::recreated", |server| Box::pin(t9::test(server, Change::RecreatedInItsAccount))),
    ("t9::recreated_elsewhere", |server| {
        Box::pin(t9::test(server, Change::RecreatedInAnotherAccount))
    }),
    ("t9::of_another_class", |server| Box::pin(t9::test(server, Change::OfAnotherClass))),
    ("rights::every_pair", |server| Box::pin(rights::test(server))),
    ("conforms::every_law", |server| Box::pin(conforms::laws(server))),
    ("conforms::with_checksums", |server| Box::pin(conforms::checksums(server))),
    ("conforms::the_probe_on_a_plain_bucket", |server| Box::pin(conforms::plain(server))),
    ("conforms::a_versioned_bucket", |server| Box::pin(conforms::versioned(server))),
    ("admin::applied_on_a_real_server", |server| Box::pin(admin::applied(server))),
    ("admin::each_wrong_lifecycle_has_its_code", |server| Box::pin(admin::lifecycles(server))),
    ("admin::a_versioned_bucket_is_refused", |server| Box::pin(admin::versioned(server))),
    ("admin::keys_that_reach_too_far_are_found", |server| Box::pin(admin::reach(server))),
    ("facts::failures_are_told_apart", |server| Box::pin(facts::failures(server))),
    ("facts::answers_tell_the_time", |server| Box::pin(facts::clock(server))),
    ("pages::five_thousand_files", |server| Box::pin(pages::test(server))),
    ("facts::a_replaced_file_is_noticed", |server| Box::pin(facts::replaced(server))),
];

/// Those that are held to a time, and run while no other does.
const TIMED: &[(&str, Test)] =
    &[("t5::exactly_one_box_runs_each_of_a_thousand_reads", |server| Box::pin(t5::test(server)))];

/// Read by every test while it runs, and written by those of [`TIMED`].
static QUIET: RwLock<()> = RwLock::new(());

/// Those that only some servers can be asked.
const ON_MINIO: &[(&str, Test)] =
    &[("t16::on_a_versioned_minio", |server| Box::pin(t16::versioned(server)))];

type Alone = fn() -> LocalBoxFuture<'static, ()>;

/// Those that need no server but what they start themselves.
const TOYS: &[(&str, Alone)] = &[
    ("admin::applied_as_on_amazon", || Box::pin(admin::applied_as_on_amazon())),
    ("admin::a_wrong_clock_is_found", || Box::pin(admin::clocks())),
    ("lies::a_window_between_check_and_act", || Box::pin(lies::a_window())),
    ("lies::an_ignored_condition", || Box::pin(lies::an_ignored_condition())),
    ("lies::a_refused_free_name", || Box::pin(lies::refused_free_names())),
    ("lies::an_honest_server_is_not_refused", || Box::pin(lies::an_honest_server())),
];

/// What every test runs with.
#[derive(Clone)]
struct Stage {
    choice: Arc<Choice>,
    runtime: Arc<Runtime>,
}

fn main() -> ExitCode {
    let mut args = Arguments::from_args();
    args.test_threads.get_or_insert(AT_ONCE);
    let stage = Stage {
        choice: Arc::new(Choice::make()),
        runtime: Arc::new(Runtime::new().expect("a runtime")),
    };
    if !args.list {
        eprintln!("{}", stage.choice.sentence);
    }
    let conclusion = libtest_mimic::run(&args, stage.trials());
    Server::end_shared();
    conclusion.exit_code()
}

impl Stage {
    fn trials(&self) -> Vec<Trial> {
        // The long ones first, so that they are not what the others end up waiting for; among the
        // scenarios those are the last.
        let mut trials = vec![self.alone("lifecycle::expiry_follows_the_rules", lifecycle::test)];
        trials.extend(TIMED.iter().map(|(name, test)| self.timed(name, *test)));
        trials.extend(SCENARIOS.iter().rev().map(|scenario| self.scenario(*scenario)));
        trials.extend(TESTS.iter().map(|(name, test)| self.on_shared(name, *test)));
        let minio = self.choice.kind == Ok(Kind::Docker);
        trials.extend(ON_MINIO.iter().map(|(name, test)| {
            // Never shown as passed where there is no such server.
            self.on_shared(name, *test).with_ignored_flag(!minio)
        }));
        let live =
            self.on_shared("live::every_answer_is_a_state", |server| Box::pin(live::test(server)));
        trials.push(live.with_ignored_flag(self.skipped() || live::litestream().is_none()));
        trials.extend(TOYS.iter().map(|(name, test)| self.on_toys(name, *test)));
        trials.push(self.alone("starter::a_dead_daemon_is_reported", starter::test));
        trials
    }

    fn scenario(&self, scenario: Scenario) -> Trial {
        let stage = self.clone();
        let name = format!("scenarios::{:02}_{}", scenario.number, scenario.name);
        self.trial(name, move || {
            let server = Server::shared(&stage.choice)?;
            stage.runtime.block_on(conforms::scenario(server, scenario))?;
            Ok(())
        })
    }

    fn on_shared(&self, name: &str, test: Test) -> Trial {
        let stage = self.clone();
        self.trial(name.to_owned(), move || {
            let server = Server::shared(&stage.choice)?;
            stage.runtime.block_on(test(server));
            Ok(())
        })
    }

    fn timed(&self, name: &str, test: Test) -> Trial {
        let stage = self.clone();
        let trial = Trial::test(name.to_owned(), move || {
            let server = Server::shared(&stage.choice)?;
            let _alone = QUIET.write().unwrap_or_else(PoisonError::into_inner);
            stage.runtime.block_on(test(server));
            Ok(())
        });
        trial.with_ignored_flag(self.skipped())
    }

    fn on_toys(&self, name: &str, test: Alone) -> Trial {
        let runtime = Arc::clone(&self.runtime);
        Trial::test(name.to_owned(), move || {
            let _others = QUIET.read().unwrap_or_else(PoisonError::into_inner);
            runtime.block_on(test());
            Ok(())
        })
    }

    /// A test that brings a server of its own.
    fn alone(&self, name: &str, test: fn(&Choice, &Runtime) -> Result<(), String>) -> Trial {
        let stage = self.clone();
        self.trial(name.to_owned(), move || Ok(test(&stage.choice, &stage.runtime)?))
    }

    fn trial(
        &self,
        name: String,
        run: impl FnOnce() -> Result<(), Failed> + Send + 'static,
    ) -> Trial {
        let trial = Trial::test(name, || {
            let _others = QUIET.read().unwrap_or_else(PoisonError::into_inner);
            run()
        });
        trial.with_ignored_flag(self.skipped())
    }

    fn skipped(&self) -> bool {
        self.choice.kind.is_err() && !self.choice.required
    }
}
