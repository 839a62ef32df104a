//! The console: people's CLIs ask it for apps, instances and forwarded database reads.
//!
//! A forwarded read is one open HTTP request and nothing more (db-forward §5.2): the console signs
//! a request into the bucket, relays what a box writes as response lines, and forgets the read with
//! the response. It holds rows only as ciphertext and never reads a region's data bucket.
//!
//! [`run`] is the whole service; `main` only sets it up from the environment.
#![cfg_attr(test, allow(clippy::disallowed_methods, clippy::disallowed_macros))]

mod admission;
mod audit;
mod budget;
mod config;
mod console;
mod evidence;
mod gate;
mod metrics;
mod reads;
mod records;
mod refusal;
mod routes;
mod server;
mod start;
mod strangers;
mod timings;

use std::sync::Arc;

use axum::Router;
use carlos_bucket::Bucket;
use tokio::net::TcpListener;
use tokio_util::{sync::CancellationToken, task::TaskTracker};

pub use crate::{
    config::{ConfigError, ConsoleConfig, MAX_CONNECTIONS, required},
    metrics::Metrics,
    start::{UnusableBucket, check_bucket, serve_metrics},
    timings::Timings,
};
use crate::{console::Console, server::Server};

/// Serves on `listener` until `shutdown`, then ends every open read, waits for a bounded time and
/// returns. Nothing is left to recover: no read outlives its request (db-forward §5.3, J1).
pub async fn run(
    config: ConsoleConfig,
    bucket: Bucket,
    listener: TcpListener,
    shutdown: CancellationToken,
) {
    if let Some(reason) = config.mute() {
        tracing::warn!(reason, "CARLOS_DB_FORWARD is 1, but no read is forwarded");
    }
    tracing::info!(region = %config.region, forwarding = config.signer().is_some(), "serving");
    let tasks = TaskTracker::new();
    let context = bucket.context().clone();
    let server = Server {
        context,
        app: Service::new(&config, bucket, tasks.clone(), shutdown.clone()).router(),
        timings: config.timings,
        max_connections: config.max_connections,
        tasks,
        shutdown,
    };
    server.serve(listener).await;
}

/// One console without a socket: its routes, as [`run`] serves them on each connection.
#[derive(Clone)]
pub struct Service {
    console: Arc<Console>,
}

impl Service {
    /// A console whose reads run in `tasks` and end with `shutdown`.
    pub fn new(
        config: &ConsoleConfig,
        bucket: Bucket,
        tasks: TaskTracker,
        shutdown: CancellationToken,
    ) -> Self {
        Self { console: Arc::new(Console::new(config, bucket, tasks, shutdown)) }
    }

    /// Every route.
    pub fn router(&self) -> Router {
        routes::router(Arc::clone(&self.console))
    }

    /// Reads that count as open now.
    pub fn open_reads(&self) -> usize {
        self.console.admission.open()
    }
}
