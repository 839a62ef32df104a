//! A forwarded read: one task that lives as long as its HTTP request (db-forward §5.2, J1).

mod opening;
mod pace;
mod relay;
#[cfg(test)]
mod relay_tests;

use std::sync::Arc;

use carlos_bucket::Bucket;
use carlos_protocol::{envelope::KeyFile, lines::Line};
use tokio::sync::oneshot;
use tokio_util::{sync::CancellationToken, task::TaskTracker};

use self::{opening::Opening, pace::Pace, relay::Relay};
pub(crate) use self::{
    opening::{NotOpened, Order},
    pace::{Ending, LineBody},
};
use crate::{admission::Admitted, metrics::Metrics, timings::Timings};

/// What every read of one console shares.
#[derive(Clone)]
pub(crate) struct Reads {
    pub(crate) bucket: Bucket,
    pub(crate) timings: Timings,
    pub(crate) tasks: TaskTracker,
    pub(crate) shutdown: CancellationToken,
    pub(crate) metrics: Arc<Metrics>,
}

impl Reads {
    /// Opens a read and answers its response body once boxes can see it.
    ///
    /// The read's task holds the admission and lives on its own: dropping this future, or later the
    /// body, ends the request, and the task then writes the one cancel and nothing else.
    pub(crate) async fn start(
        &self,
        key: Arc<KeyFile>,
        order: Order,
        admitted: Admitted,
    ) -> Result<LineBody, NotOpened> {
        let context = self.bucket.context();
        let (pace, body) = pace::response(
            context.clone(),
            self.timings.clone(),
            self.shutdown.clone(),
            admitted.clone(),
        );
        let (ready, opened) = oneshot::channel();
        let opening = Opening::new(self.bucket.clone(), key, order);
        let task = read(self.clone(), opening, pace, ready, admitted);
        context.spawn(self.tasks.track_future(task));
        match opened.await {
            Ok(answer) => answer.map(|()| body),
            Err(_) => Err(NotOpened::Ended(Ending::Shutdown)),
        }
    }
}

/// The whole life of one read. `_admitted` is given back when this returns (J5).
async fn read(
    reads: Reads,
    mut opening: Opening,
    mut pace: Pace,
    ready: oneshot::Sender<Result<(), NotOpened>>,
    _admitted: Admitted,
) {
    let (id, allowed) = (opening.id(), pace.timings.cancel);
    let Reads { bucket, metrics, .. } = reads;
    let _open = metrics.opened();
    let opened = match opening.write(&pace).await {
        Ok(opened) => opened,
        Err(error) => {
            tracing::info!(%id, %error, "a read was not opened");
            metrics.not_opened();
            let _ = ready.send(Err(error));
            return opening.cancel(allowed).await;
        }
    };
    // In the channel before the handler answers, so that it leaves with the headers (codex 19).
    let admitted = pace.send(&Line::Admitted(id)).await;
    let _ = ready.send(Ok(()));
    let ending = match admitted {
        Ok(()) => Relay::new(bucket, id, pace, opened.issued).counted(&metrics).run().await,
        Err(ending) => ending,
    };
    tracing::info!(%id, ?ending, "a read ended");
    if ending != Ending::Answered {
        metrics.ended(ending);
        opening.cancel(allowed).await;
    }
}
