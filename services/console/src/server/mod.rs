//! Connections: accepted up to a cap, bounded in every wait, ended on shutdown.

mod connections;
mod stall;

use std::{convert::Infallible, pin::pin, sync::Arc, time::Duration};

use axum::{Router, body::Body, response::Response};
use carlos_bucket::Context;
use hyper::{Request, body::Incoming, server::conn::http1, service::service_fn};
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::net::{TcpListener, TcpStream};
use tokio_util::{sync::CancellationToken, task::TaskTracker};
use tower::ServiceExt;

use self::{
    connections::{Connection, Connections, Held},
    stall::WriteStall,
};
use crate::timings::Timings;

/// Headers of one request, and what is buffered of its answer: a token and a path are far below.
const BUFFER_BYTES: usize = 64 * 1024;

/// Pause after a failed accept: out of descriptors is over soon or not at all.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// What a dropped connection task gets to notice it; it has nothing left to wait for.
const ABORT_TIME: Duration = Duration::from_secs(1);

/// Serves one router on one listener.
pub(crate) struct Server {
    pub(crate) context: Context,
    pub(crate) app: Router,
    pub(crate) timings: Timings,
    pub(crate) max_connections: usize,
    /// Connections, and the reads behind them: both are waited for on shutdown.
    pub(crate) tasks: TaskTracker,
    pub(crate) shutdown: CancellationToken,
}

impl Server {
    /// Accepts until shutdown, then gives what is open a bounded time to end.
    pub(crate) async fn serve(self, listener: TcpListener) {
        let connections = Arc::new(Connections::new(self.max_connections));
        loop {
            tokio::select! {
                () = self.shutdown.cancelled() => break,
                accepted = listener.accept() => match accepted {
                    Ok((stream, _)) => self.start(&connections, stream),
                    Err(error) => {
                        tracing::warn!(%error, "accepting a connection failed");
                        self.context.sleep(ACCEPT_PAUSE).await;
                    }
                },
            }
        }
        drop(listener);
        self.drain(&connections).await;
    }

    fn start(&self, connections: &Arc<Connections>, stream: TcpStream) {
        let Some(connection) = connections.enter() else {
            tracing::warn!("every connection is busy, a new one was closed");
            return;
        };
        let serving = self.connection(stream, connection);
        self.context.spawn(self.tasks.track_future(serving));
    }

    fn connection(
        &self,
        stream: TcpStream,
        connection: Arc<Connection>,
    ) -> impl Future<Output = ()> + Send + use<> {
        tune(&stream, self.timings.write_stall);
        let io = WriteStall::new(stream, self.context.clone(), self.timings.write_stall);
        let app = self.app.clone();
        let shutdown = self.shutdown.clone();
        let mut http = http1::Builder::new();
        http.timer(TokioTimer::new())
            .header_read_timeout(self.timings.headers)
            .max_buf_size(BUFFER_BYTES);
        async move {
            let evicted = Arc::clone(&connection);
            let service = service_fn(move |request| answer(app.clone(), &connection, request));
            let mut serving = pin!(http.serve_connection(TokioIo::new(io), service));
            tokio::select! {
                _ = serving.as_mut() => return,
                () = evicted.evicted() => return,
                () = shutdown.cancelled() => serving.as_mut().graceful_shutdown(),
            }
            tokio::select! {
                _ = serving => {}
                () = evicted.evicted() => {}
            }
        }
    }

    async fn drain(&self, connections: &Connections) {
        self.tasks.close();
        let ended = self.context.timeout(self.timings.shutdown, self.tasks.wait()).await;
        if ended.is_ok() {
            return;
        }
        tracing::warn!(open = connections.len(), "ending connections that did not end themselves");
        connections.evict_all();
        let _ = self.context.timeout(ABORT_TIME, self.tasks.wait()).await;
    }
}

/// Best effort: without either a connection works, only later.
fn tune(stream: &TcpStream, stall: Duration) {
    // Lines are small and each is worth a packet of its own (db-forward §5.5, codex 19).
    let _ = stream.set_nodelay(true);
    // A peer that vanished without a word takes no wait line, but the kernel would try for a
    // quarter of an hour before it says so.
    #[cfg(target_os = "linux")]
    let _ = rustix::net::sockopt::set_tcp_user_timeout(
        stream,
        u32::try_from(stall.as_millis()).unwrap_or(u32::MAX),
    );
    #[cfg(not(target_os = "linux"))]
    let _ = stall;
}

fn answer(
    app: Router,
    connection: &Arc<Connection>,
    request: Request<Incoming>,
) -> impl Future<Output = Result<Response, Infallible>> + Send + use<> {
    let busy = connection.busy();
    async move {
        let response = app.oneshot(request.map(Body::new)).await?;
        Ok(response.map(|body| Body::new(Held::new(body, busy))))
    }
}
