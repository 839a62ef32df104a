//! The real agent and the real console as processes, with settings that production has not.
//!
//! - `agent`: as many slots as `CARLOS_TEST_SLOTS` says, and workers in its own process, whose
//!   statements become lines of the file `CARLOS_TEST_RUNS`.
//! - `console`: an owner's time is over after `CARLOS_TEST_OWNER_MS`.
//!
//! Everything else is the environment of `carlos agent` and `carlos console`.
#![allow(clippy::disallowed_methods, clippy::disallowed_macros, clippy::unwrap_used, clippy::panic)]

use std::fs::File;
use std::sync::Arc;
use std::time::Duration;

use carlos_box_agent::{Environment, Walls};
use carlos_bucket::{Bucket, Context, open_store};
use carlos_console::ConsoleConfig;
use carlos_tests_minio::workers::InProcessWorkers;
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;
use tracing_subscriber::EnvFilter;

#[tokio::main]
async fn main() {
    let filter = EnvFilter::try_from_env("CARLOS_LOG").unwrap_or_else(|_| "info".into());
    let log = tracing_subscriber::fmt().with_env_filter(filter).with_ansi(false);
    log.with_writer(std::io::stderr).init();
    match std::env::args().nth(1).as_deref() {
        Some("agent") => agent().await,
        Some("console") => console().await,
        other => panic!("{other:?} is neither agent nor console"),
    }
}

async fn agent() {
    let context = Context::system();
    let mut environment = Environment::read(var).unwrap();
    environment.config.slots = need("CARLOS_TEST_SLOTS").parse().unwrap();
    // The workers here say honestly that nothing confines them.
    environment.config.sandbox = Walls::none();
    let runs = File::create(need("CARLOS_TEST_RUNS")).unwrap();
    let scratch = need("CARLOS_DB_READ_SCRATCH").into();
    let workers = Arc::new(InProcessWorkers::new(context.clone(), scratch, runs));
    let ports = environment.open(&context, workers).unwrap();
    carlos_box_agent::run(environment.config, ports, CancellationToken::new()).await.unwrap();
}

async fn console() {
    let mut config = ConsoleConfig::from_env(var).unwrap();
    config.timings.owner = Duration::from_millis(need("CARLOS_TEST_OWNER_MS").parse().unwrap());
    config.timings.grace = Duration::ZERO;
    let store = open_store(&need("CARLOS_BUCKET")).unwrap();
    let bucket = Bucket::new(store, Context::system());
    let listener = TcpListener::bind(need("CARLOS_LISTEN")).await.unwrap();
    carlos_console::run(config, bucket, listener, CancellationToken::new()).await;
}

fn var(name: &str) -> Option<String> {
    std::env::var(name).ok()
}

fn need(name: &str) -> String {
    var(name).unwrap_or_else(|| panic!("{name} is not set"))
}
