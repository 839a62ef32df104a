//! One module for each group of commands.

mod account;
mod choose;
pub(crate) mod doctor;
mod listing;
mod params;
pub(crate) mod query;
pub(crate) mod reading;
mod replica;
pub(crate) mod services;
mod sql;

pub use self::doctor::Doctor;
pub use self::params::ParamArgs;

use std::process::ExitCode;

use carlos_bucket::Context;
use carlos_protocol::copy;

use crate::args::{Command, Db, Replica, System};
use crate::client::Client;
use crate::config::Config;
use crate::exit::Exit;
use crate::failure::Failure;
use crate::out;
use crate::stack::{demo, dev};

/// Runs one command to its end and says on stderr why it failed, if it did.
#[must_use]
pub fn run(command: Command) -> ExitCode {
    let ended = match command {
        Command::System { command: System::DbWorker { args } } => return services::db_worker(args),
        #[cfg(target_os = "linux")]
        Command::System { command: System::InstallUnits(args) } => {
            crate::system::install_units(&args)
        }
        command => run_in_runtime(command),
    };
    let Err(failure) = ended else { return ExitCode::from(Exit::Done.code()) };
    out::say(&failure.text());
    ExitCode::from(failure.exit.code())
}

fn run_in_runtime(command: Command) -> Result<(), Failure> {
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(WORKERS)
        .enable_all()
        .build()
        .map_err(|error| Failure::unexpected("could not start.").because(error))?;
    let ended = runtime.block_on(dispatch(command, Context::system()));
    // A write to a pager that no longer reads would hold the process; Ctrl-C ends it all the same.
    runtime.shutdown_background();
    ended
}

/// Services are told of Ctrl-C and end in order; everything else is dropped where it is.
async fn dispatch(command: Command, context: Context) -> Result<(), Failure> {
    match command {
        Command::Agent => services::agent(context, interrupted()).await,
        Command::Console => services::console(context, interrupted()).await,
        Command::Dev(dev) => dev::run(dev, context, interrupted()).await,
        command => tokio::select! {
            biased;
            () = interrupted() => Err(copy::stopped().into()),
            ended = for_people(command, context) => ended,
        },
    }
}

/// Dropping one of these closes its connections, which the other side takes as the end
/// (db-forward §5.5).
async fn for_people(command: Command, context: Context) -> Result<(), Failure> {
    match command {
        Command::Login(args) => account::login(&args, context).await,
        Command::Logout => account::logout(),
        Command::Apps(args) => listing::apps(&args, &client(context)?).await,
        Command::Instances(args) => listing::instances(&args, &client(context)?).await,
        Command::Db { command: Db::Query(args) } => query::query(args, context).await,
        Command::Replica { command: Replica::Plan(args) } => replica::plan(args, context).await,
        Command::Replica { command: Replica::Restore(args) } => {
            replica::restore(args, context).await
        }
        Command::Replica { command: Replica::Ls(args) } => replica::ls(args).await,
        Command::Replica { command: Replica::Verify(args) } => replica::verify(args).await,
        Command::Admin(admin) => crate::admin::run(admin, context).await,
        Command::Doctor(args) => doctor::doctor(args, context).await,
        Command::Demo(demo) => demo::run(demo, context).await,
        Command::Agent | Command::Console | Command::Dev(_) | Command::System { .. } => {
            unreachable!("services are dispatched before")
        }
    }
}

/// Ends when the process is asked to stop: Ctrl-C, or SIGTERM where there is one.
async fn interrupted() {
    #[cfg(unix)]
    {
        use tokio::signal::unix::{SignalKind, signal};
        if let Ok(mut terminate) = signal(SignalKind::terminate()) {
            tokio::select! {
                _ = tokio::signal::ctrl_c() => {}
                _ = terminate.recv() => {}
            }
            return;
        }
    }
    // Without signals there is nothing to wait for: the system ends the process itself.
    if tokio::signal::ctrl_c().await.is_err() {
        std::future::pending().await
    }
}

fn client(context: Context) -> Result<Client, Failure> {
    Client::new(Config::from_env()?.login()?, context)
}

/// One for the network and one for whatever blocks: what keeps a service busy is its store.
const WORKERS: usize = 2;
