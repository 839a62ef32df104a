//! The console as its own process, set up by its environment: `CARLOS_BUCKET` (a URL, required),
//! `CARLOS_LISTEN` (an address, loopback:8080 by default) and what `ConsoleConfig::from_env` reads.

use std::{error::Error, net::SocketAddr};

use carlos_bucket::{Bucket, Context, open_store};
use carlos_console::{ConsoleConfig, check_bucket, required, run};
use tokio::{net::TcpListener, signal::unix};
use tokio_util::sync::CancellationToken;

/// Loopback: who wants more puts a proxy with TLS in front, since tokens travel in the clear here.
const LISTEN: &str = "127.0.0.1:8080";

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    tracing_subscriber::fmt().with_writer(std::io::stderr).init();
    let var = |name: &str| std::env::var(name).ok();
    let config = ConsoleConfig::from_env(var)?;
    let store = open_store(&required::<String>(var, "CARLOS_BUCKET")?)?;
    let bucket = Bucket::new(store, Context::system());
    let listen: SocketAddr = var("CARLOS_LISTEN").as_deref().unwrap_or(LISTEN).parse()?;
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
        served = serve(config, bucket, listen, shutdown.clone()) => served,
        never = stop => never,
    }
}

async fn serve(
    config: ConsoleConfig,
    bucket: Bucket,
    listen: SocketAddr,
    shutdown: CancellationToken,
) -> Result<(), Box<dyn Error>> {
    check_bucket(&bucket, &shutdown).await?;
    let listener = TcpListener::bind(listen).await?;
    tracing::info!(address = %listener.local_addr()?, "listening");
    run(config, bucket, listener, shutdown).await;
    Ok(())
}
