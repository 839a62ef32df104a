//! `carlos console`, `carlos agent` and `carlos system db-worker`: the platform's services, set up
//! by the environment exactly as their own programs are.

use std::ffi::OsString;
use std::net::SocketAddr;
use std::process::ExitCode;

use carlos_bucket::{Bucket, Context, open_store};
use carlos_console::ConsoleConfig;
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;
use tracing_subscriber::EnvFilter;

use crate::failure::Failure;

/// Serves people's CLIs until `stop`.
pub(super) async fn console(
    context: Context,
    stop: impl Future<Output = ()>,
) -> Result<(), Failure> {
    log_to_stderr("info");
    let config = ConsoleConfig::from_env(var).map_err(misconfigured)?;
    let bucket: String = carlos_console::required(var, "CARLOS_BUCKET").map_err(misconfigured)?;
    let store = open_store(&bucket).map_err(misconfigured)?;
    let listen: SocketAddr =
        var("CARLOS_LISTEN").as_deref().unwrap_or(LISTEN).parse().map_err(|_| {
            Failure::usage("CARLOS_LISTEN is not an address and a port, such as 127.0.0.1:8080.")
        })?;
    let bucket = Bucket::new(store, context);
    until(stop, |shutdown| serve_console(config, bucket, listen, shutdown)).await
}

async fn serve_console(
    config: ConsoleConfig,
    bucket: Bucket,
    listen: SocketAddr,
    shutdown: CancellationToken,
) -> Result<(), Failure> {
    carlos_console::check_bucket(&bucket, &shutdown)
        .await
        .map_err(|error| Failure::unexpected(format!("the console did not start: {error}.")))?;
    let metrics = carlos_console::serve_metrics(&config, &bucket, &shutdown).await;
    metrics.map_err(|error| {
        Failure::unexpected("could not listen on CARLOS_METRICS_LISTEN.").because(error)
    })?;
    let listener = TcpListener::bind(listen).await.map_err(|error| {
        Failure::unexpected(format!("could not listen on {listen}.")).because(error)
    })?;
    tracing::info!(address = %listen, "listening");
    carlos_console::run(config, bucket, listener, shutdown).await;
    Ok(())
}

/// Serves one box's region until `stop`.
#[cfg(target_os = "linux")]
pub(super) async fn agent(context: Context, stop: impl Future<Output = ()>) -> Result<(), Failure> {
    use carlos_box_agent::{Environment, WorkerCommand};

    log_to_stderr("info");
    let environment = Environment::read(var).map_err(misconfigured)?;
    let program = std::env::current_exe().map_err(|error| {
        Failure::unexpected("could not find this program to start workers from.").because(error)
    })?;
    let command = WorkerCommand { program, args: DB_WORKER.map(OsString::from).to_vec() };
    let workers = environment.workers(&context, command);
    let ports = environment.open(&context, workers).map_err(misconfigured)?;
    let config = environment.config;
    until(stop, |shutdown| carlos_box_agent::run(config, ports, shutdown))
        .await
        .map_err(|error| Failure::unexpected(format!("the agent stopped: {error}.")))
}

/// Says why there is no agent here.
#[cfg(not(target_os = "linux"))]
pub(super) async fn agent(_: Context, _: impl Future<Output = ()>) -> Result<(), Failure> {
    let why = "carlos agent runs on Linux only, because its workers' sandbox is Linux's own.";
    Err(Failure::unexpected(why))
}

/// Serves the connection on stdin. Called before any runtime is started, because the worker's
/// sandbox binds only threads that come after it.
#[cfg(target_os = "linux")]
pub(crate) fn db_worker(args: Vec<OsString>) -> ExitCode {
    // A listener has no connection of its own; the workers it starts have.
    if !stdin_is_a_socket() && !args.iter().any(|arg| arg == "--listen") {
        crate::out::say(carlos_protocol::copy::docs_worker().as_str());
        return ExitCode::from(crate::exit::Exit::Usage.code());
    }
    carlos_dbread_worker::main_entry(args)
}

/// Whoever starts a worker gives it a connection; a person's terminal or pipe is none. The worker
/// itself looks closer.
#[cfg(target_os = "linux")]
fn stdin_is_a_socket() -> bool {
    use rustix::fs::{FileType, fstat};
    fstat(std::io::stdin())
        .is_ok_and(|stat| FileType::from_raw_mode(stat.st_mode) == FileType::Socket)
}

/// Says why there is no worker here.
#[cfg(not(target_os = "linux"))]
pub(crate) fn db_worker(_: Vec<OsString>) -> ExitCode {
    crate::out::say(carlos_protocol::copy::docs_worker().as_str());
    ExitCode::FAILURE
}

/// Runs a service that ends by itself when told to, and tells it at `stop`.
async fn until<T, F: Future<Output = T>>(
    stop: impl Future<Output = ()>,
    service: impl FnOnce(CancellationToken) -> F,
) -> T {
    let shutdown = CancellationToken::new();
    let running = service(shutdown.clone());
    tokio::pin!(running);
    tokio::select! {
        biased;
        ended = &mut running => return ended,
        () = stop => shutdown.cancel(),
    }
    running.await
}

fn var(name: &str) -> Option<String> {
    std::env::var(name).ok()
}

fn misconfigured(error: impl std::fmt::Display) -> Failure {
    Failure::usage(format!("{error}."))
}

/// Logs what `CARLOS_LOG` asks for, and `usual` when it is not set.
pub(crate) fn log_to_stderr(usual: &str) {
    let filter = EnvFilter::try_from_env("CARLOS_LOG").unwrap_or_else(|_| usual.into());
    let subscriber = tracing_subscriber::fmt().with_env_filter(filter);
    // `carlos dev` may run several services in one process; the first one has set this up.
    let _ = subscriber.with_writer(std::io::stderr).try_init();
}

/// How an agent asks this program to be a worker.
#[cfg(target_os = "linux")]
const DB_WORKER: [&str; 2] = ["system", "db-worker"];

/// Loopback: tokens travel in the clear here, so whoever wants more puts TLS in front.
const LISTEN: &str = "127.0.0.1:8080";
