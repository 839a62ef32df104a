//! A real console on a loopback port.

use std::time::Duration;

use carlos_bucket::Bucket;
use carlos_console::{ConsoleConfig, Timings};
use tokio::net::TcpListener;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

use crate::stores::View;
use crate::world::{World, parse};

/// Production's bounds with quicker looks into the bucket, which in these tests is in memory or on
/// the local disk. A test that waits out a bound shortens that one.
pub fn quick() -> Timings {
    Timings {
        picked_poll: Duration::from_millis(20),
        output_poll: Duration::from_millis(40),
        ..Timings::default()
    }
}

/// A console in region `ie` that serves until it is dropped.
pub struct RunningConsole {
    pub url: String,
    /// The deployment bucket as this console sees it.
    pub view: View,
    shutdown: CancellationToken,
    served: Option<JoinHandle<()>>,
}

impl RunningConsole {
    /// Stops as a process does that was told to.
    pub async fn stop(mut self) {
        self.shutdown.cancel();
        self.served.take().unwrap().await.unwrap();
    }
}

impl Drop for RunningConsole {
    fn drop(&mut self) {
        if let Some(served) = &self.served {
            served.abort();
        }
    }
}

impl World {
    /// Starts a console.
    pub async fn console(&self) -> RunningConsole {
        self.console_with(|_| {}).await
    }

    /// Starts a console with other waits.
    pub async fn console_waiting(&self, change: impl FnOnce(&mut Timings)) -> RunningConsole {
        self.console_with(|config| change(&mut config.timings)).await
    }

    /// Starts a console that is set up differently.
    pub async fn console_with(&self, change: impl FnOnce(&mut ConsoleConfig)) -> RunningConsole {
        let mut config = ConsoleConfig::new(parse("ie")).forwarding(self.key.clone());
        config.timings = quick();
        change(&mut config);
        let context = self.context.node("console");
        let view = View::of(self.deployment.clone(), &context);
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let shutdown = CancellationToken::new();
        let bucket = Bucket::new(view.store.clone(), context);
        let served = carlos_console::run(config, bucket, listener, shutdown.clone());
        let served = Some(self.context.spawn(served));
        RunningConsole { url, view, shutdown, served }
    }
}
