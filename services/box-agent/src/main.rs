//! The agent as a program of its own: reads the environment, runs until SIGTERM or SIGINT. It exits
//! with 2 when the environment is not usable, as `carlos agent` does, and with 1 when it could not
//! serve.

use std::process::ExitCode;

#[cfg(target_os = "linux")]
fn main() -> ExitCode {
    use tracing_subscriber::EnvFilter;

    let filter = EnvFilter::try_from_env("CARLOS_LOG").unwrap_or_else(|_| "info".into());
    tracing_subscriber::fmt().with_env_filter(filter).with_writer(std::io::stderr).init();
    match linux::run() {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            tracing::error!("{}", failure.error);
            failure.exit.code().into()
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
    use carlos_protocol::copy::Exit;
    use tokio::signal::unix::{SignalKind, signal};
    use tokio_util::sync::CancellationToken;

    /// The program that workers are, when it does not lie beside this one.
    const WORKER: &str = "CARLOS_DB_WORKER";

    /// Why the agent ended, and how that exits.
    pub(crate) struct Failure {
        pub(crate) exit: Exit,
        pub(crate) error: Box<dyn Error>,
    }

    impl Failure {
        /// Starting again changes nothing before the environment does.
        fn misconfigured(error: impl Error + 'static) -> Self {
            Self { exit: Exit::Usage, error: error.into() }
        }
    }

    impl<E: Error + 'static> From<E> for Failure {
        fn from(error: E) -> Self {
            Self { exit: Exit::Unexpected, error: error.into() }
        }
    }

    pub(crate) fn run() -> Result<(), Failure> {
        let environment = Environment::read(|name| std::env::var(name).ok());
        let environment = environment.map_err(Failure::misconfigured)?;
        let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
        runtime.block_on(serve(environment))
    }

    async fn serve(environment: Environment) -> Result<(), Failure> {
        let ctx = Context::system();
        let shutdown = CancellationToken::new();
        drop(ctx.spawn(cancel_on_signal(shutdown.clone())));
        let command = WorkerCommand { program: worker()?, args: Vec::new() };
        let workers = environment.workers(&ctx, command);
        let ports = environment.open(&ctx, workers).map_err(Failure::misconfigured)?;
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
