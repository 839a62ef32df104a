//! The agent as a program of its own: reads the environment, runs until SIGTERM or SIGINT.

use std::process::ExitCode;

#[cfg(target_os = "linux")]
fn main() -> ExitCode {
    tracing_subscriber::fmt()
        .with_env_filter(tracing_subscriber::EnvFilter::from_default_env())
        .with_writer(std::io::stderr)
        .init();
    match linux::run() {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            tracing::error!("{error}");
            ExitCode::FAILURE
        }
    }
}

#[cfg(not(target_os = "linux"))]
fn main() -> ExitCode {
    tracing_subscriber::fmt().with_writer(std::io::stderr).init();
    tracing::error!("the agent runs on Linux only: its workers' sandbox is the kernel's");
    ExitCode::FAILURE
}

#[cfg(target_os = "linux")]
mod linux {
    use std::error::Error;
    use std::path::PathBuf;

    use carlos_box_agent::{Environment, WorkerCommand};
    use carlos_bucket::Context;
    use tokio::signal::unix::{SignalKind, signal};
    use tokio_util::sync::CancellationToken;

    /// The program that workers are, when it does not lie beside this one.
    const WORKER: &str = "CARLOS_DB_WORKER";

    pub(crate) fn run() -> Result<(), Box<dyn Error>> {
        let environment = Environment::read(|name| std::env::var(name).ok())?;
        let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
        runtime.block_on(serve(environment))
    }

    async fn serve(environment: Environment) -> Result<(), Box<dyn Error>> {
        let ctx = Context::system();
        let shutdown = CancellationToken::new();
        drop(ctx.spawn(cancel_on_signal(shutdown.clone())));
        let command = WorkerCommand { program: worker()?, args: Vec::new() };
        let workers = environment.workers(&ctx, command);
        let ports = environment.open(&ctx, workers)?;
        Ok(carlos_box_agent::run(environment.config, ports, shutdown).await?)
    }

    fn worker() -> Result<PathBuf, std::io::Error> {
        match std::env::var_os(WORKER) {
            Some(program) => Ok(program.into()),
            None => Ok(std::env::current_exe()?.with_file_name("carlos-dbread-worker")),
        }
    }

    async fn cancel_on_signal(shutdown: CancellationToken) {
        let signals = signal(SignalKind::terminate()).and_then(|terminate| {
            signal(SignalKind::interrupt()).map(|interrupt| (terminate, interrupt))
        });
        match signals {
            Ok((mut terminate, mut interrupt)) => tokio::select! {
                _ = terminate.recv() => {}
                _ = interrupt.recv() => {}
            },
            // Without signals the agent could not be stopped in order.
            Err(error) => tracing::error!(%error, "signals cannot be received"),
        }
        shutdown.cancel();
    }
}
