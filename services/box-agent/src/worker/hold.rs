//! A worker held by this agent, from before it starts until it has stopped (J5).

use std::sync::Arc;

use carlos_bucket::Context;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio_util::task::AbortOnDropHandle;

use super::{StartError, WorkerHost, WorkerLife, WorkerLink};
use crate::admission::{Admission, Count, OwnWorker};

/// The two directions of a worker's connection. Dropping both tells the worker to stop.
pub(crate) struct Connection {
    pub(crate) reader: Box<dyn AsyncRead + Send + Unpin>,
    pub(crate) writer: Box<dyn AsyncWrite + Send + Unpin>,
}

/// At most one worker at a time, and what the agent needs to start and to outlive it.
///
/// Every method may be dropped half way and called again: a read that is cancelled while its
/// worker starts still waits for that worker's end before it gives anything back.
pub(crate) struct WorkerHold {
    ctx: Context,
    admission: Arc<Admission>,
    host: Arc<dyn WorkerHost>,
    worker: Option<Held>,
}

struct Held {
    starting: Option<AbortOnDropHandle<Result<WorkerLink, StartError>>>,
    life: Option<Box<dyn WorkerLife>>,
    _own: OwnWorker,
}

impl WorkerHold {
    pub(crate) fn new(ctx: Context, admission: Arc<Admission>, host: Arc<dyn WorkerHost>) -> Self {
        Self { ctx, admission, host, worker: None }
    }

    /// Starts a worker. The one before it must have been stopped.
    pub(crate) async fn start(&mut self) -> Result<Connection, StartError> {
        let own = self.admission.own_worker();
        let host = self.host.clone();
        let starting = self.ctx.spawn(async move { host.start().await });
        let starting = Some(AbortOnDropHandle::new(starting));
        let held = self.worker.insert(Held { starting, life: None, _own: own });
        match held.settle().await {
            Ok(Some(connection)) => Ok(connection),
            Ok(None) => Err(StartError("the worker was started before".to_owned())),
            Err(error) => {
                self.worker = None;
                Err(error)
            }
        }
    }

    /// Waits until the worker, if there is one, has stopped and its scratch is gone. The caller
    /// has dropped its connection.
    pub(crate) async fn stop(&mut self) {
        let Some(held) = &mut self.worker else { return };
        if let Err(error) = held.settle().await {
            tracing::warn!(%error, "a worker that was to be stopped had not started");
        }
        if let Some(life) = &mut held.life {
            life.stopped().await;
        }
        self.worker = None;
    }

    pub(crate) fn admission(&self) -> &Arc<Admission> {
        &self.admission
    }

    /// How many workers run on this box.
    pub(crate) async fn count(&self) -> Count {
        self.admission.count(&*self.host).await
    }
}

impl Held {
    /// Waits for the start, once; `None` when it was already settled.
    async fn settle(&mut self) -> Result<Option<Connection>, StartError> {
        let Some(starting) = &mut self.starting else { return Ok(None) };
        let started = starting.await;
        self.starting = None;
        let link = started.map_err(|error| StartError(error.to_string()))??;
        self.life = Some(link.life);
        Ok(Some(Connection { reader: link.reader, writer: link.writer }))
    }
}
