//! The console as its own process, set up by its environment: `CARLOS_BUCKET` (a URL, required),
//! `CARLOS_LISTEN` (an address, loopback:8080 by default) and what `ConsoleConfig::from_env` reads.
//! It exits with 2 when the environment is not usable, as `carlos console` does, and with 1 when
//! serving fails.

use std::{error::Error, net::SocketAddr, process::ExitCode};

use carlos_bucket::{Bucket, Context, open_store};
use carlos_console::{ConsoleConfig, check_bucket, required, run, serve_metrics};
use carlos_protocol::copy::Exit;
use tokio::{net::TcpListener, signal::unix};
use tokio_util::sync::CancellationToken;
use tracing_subscriber::EnvFilter;

/// Loopback: who wants more puts a proxy with TLS in front, since tokens travel in the clear here.
const LISTEN: &str = "127.0.0.1:8080";

#[tokio::main]
async fn main() -> ExitCode {
    let filter = EnvFilter::try_from_env("CARLOS_LOG").unwrap_or_else(|_| "info".into());
    tracing_subscriber::fmt().with_env_filter(filter).with_writer(std::io::stderr).init();
    let setup = match Setup::from_env(|name| std::env::var(name).ok()) {
        Ok(setup) => setup,
        Err(error) => return failed(&*error, Exit::Usage),
    };
    match setup.serve_until_signal().await {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => failed(&*error, Exit::Unexpected),
    }
}

fn failed(error: &dyn Error, exit: Exit) -> ExitCode {
    tracing::error!("{error}");
    exit.code().into()
}

/// Everything that the environment says.
struct Setup {
    config: ConsoleConfig,
    bucket: Bucket,
    listen: SocketAddr,
}

impl Setup {
    fn from_env(var: impl Fn(&str) -> Option<String>) -> Result<Self, Box<dyn Error>> {
        let config = ConsoleConfig::from_env(&var)?;
        let store = open_store(&required::<String>(&var, "CARLOS_BUCKET")?)?;
        let bucket = Bucket::new(store, Context::system());
        let listen = var("CARLOS_LISTEN").unwrap_or_else(|| LISTEN.to_owned());
        let listen = listen.parse().map_err(|error| format!("CARLOS_LISTEN: {error}"))?;
        Ok(Self { config, bucket, listen })
    }

    async fn serve_until_signal(self) -> Result<(), Box<dyn Error>> {
        let shutdown = CancellationToken::new();
        let (interrupt, terminate) = (unix::SignalKind::interrupt(), unix::SignalKind::terminate());
        let (mut interrupt, mut terminate) = (unix::signal(interrupt)?, unix::signal(terminate)?);
        let stop = async {
            tokio::select! {
                _ = interrupt.recv() => {}
                _ = terminate.recv() => {}
            }
            shutdown.cancel();
            std::future::pending().await
        };
        tokio::select! {
            served = self.serve(shutdown.clone()) => served,
            never = stop => never,
        }
    }

    async fn serve(self, shutdown: CancellationToken) -> Result<(), Box<dyn Error>> {
        check_bucket(&self.bucket, &shutdown).await?;
        serve_metrics(&self.config, &self.bucket, &shutdown).await?;
        let listener = TcpListener::bind(self.listen).await?;
        tracing::info!(address = %listener.local_addr()?, "listening");
        run(self.config, self.bucket, listener, shutdown).await;
        Ok(())
    }
}
