//! One agent's shared state, and the order in which its parts start and stop.

use std::sync::Arc;

use carlos_bucket::probe::{Probed, probe};
use carlos_bucket::{Alarm, Context};
use carlos_protocol::ids::BootId;
use thiserror::Error;
use tokio::sync::{Notify, watch};
use tokio_util::sync::CancellationToken;

use crate::admission::Admission;
use crate::capability;
use crate::config::AgentConfig;
use crate::metrics::{self, Metrics};
use crate::ports::Ports;
use crate::queue::{self, Reads};

/// Why the agent cannot run at all.
#[derive(Debug, Error)]
pub enum AgentError {
    /// The bucket broke a promise that the election stands on.
    #[error("the deployment bucket cannot be used ({code}): {reason}")]
    Bucket { code: &'static str, reason: String },
    /// Its numbers were to be served on an address that cannot be had.
    #[error("CARLOS_METRICS_LISTEN: {0}")]
    Metrics(std::io::Error),
}

/// What the parts of one agent share.
pub(crate) struct Agent {
    pub(crate) config: AgentConfig,
    pub(crate) ports: Ports,
    pub(crate) admission: Arc<Admission>,
    /// This run of the agent: a restarted one is another.
    pub(crate) boot: BootId,
    /// Cancelled when the agent takes no new work.
    pub(crate) draining: CancellationToken,
    /// Cancelled when held reads must end.
    pub(crate) end_now: CancellationToken,
    /// A worker failed to start: the probe looks at once (db-forward §7.1).
    pub(crate) probe_again: Notify,
    pub(crate) metrics: Metrics,
    /// Keeps the watch over the queue quick while this box has work.
    pub(crate) alarm: Alarm,
    ready: watch::Sender<bool>,
}

impl Agent {
    fn new(config: AgentConfig, ports: Ports, draining: CancellationToken) -> Self {
        let boot = ports.bucket.context().ulid().to_string().to_ascii_lowercase();
        Self {
            admission: Admission::new(config.slots, config.floors, Arc::clone(&ports.disk)),
            boot: BootId::parse(&boot).expect("a lower-case ULID is a label"),
            config,
            ports,
            draining,
            end_now: CancellationToken::new(),
            probe_again: Notify::new(),
            metrics: Metrics::default(),
            alarm: Alarm::default(),
            ready: watch::Sender::new(false),
        }
    }

    pub(crate) fn ctx(&self) -> &Context {
        self.ports.bucket.context()
    }

    /// Whether the box can serve reads: configured for them, and the last probe passed.
    pub(crate) fn is_ready(&self) -> bool {
        *self.ready.borrow()
    }

    pub(crate) fn set_ready(&self, ready: bool) {
        let changed = self.ready.send_if_modified(|now| std::mem::replace(now, ready) != ready);
        if changed {
            tracing::info!(ready, "forwarded reads");
        }
    }

    pub(crate) fn readiness(&self) -> watch::Receiver<bool> {
        self.ready.subscribe()
    }

    /// Why this box is not configured to serve reads, if it is not (db-forward §7.1).
    pub(crate) fn unserving(&self) -> Option<&'static str> {
        let reasons = [
            (!self.config.reads, "CARLOS_DB_READS is 0"),
            (self.config.host_claim, "CARLOS_HOST_CLAIM is set"),
            (self.config.roots.is_empty(), "CARLOS_RELEASE_PUBKEY is not set"),
            (self.ports.replicas.is_none(), "CARLOS_HIBERNATE_BUCKET is not set"),
        ];
        reasons.into_iter().find(|(holds, _)| *holds).map(|(_, reason)| reason)
    }
}

/// Runs the agent until `shutdown`, then drains: no new reads, a grace for those it holds, and
/// `interrupted` for those that do not finish in it.
///
/// Dropping the returned future ends the agent where it stands, as a kill does.
///
/// # Errors
/// [`AgentError`] when the bucket does not keep its promises, or the address of the metrics cannot
/// be had.
pub async fn run(
    config: AgentConfig,
    ports: Ports,
    shutdown: CancellationToken,
) -> Result<(), AgentError> {
    let agent = Arc::new(Agent::new(config, ports, shutdown));
    check_bucket(&agent).await?;
    let _metrics = metrics::serve(&agent).await.map_err(AgentError::Metrics)?;
    let (mut reads, (), ()) =
        tokio::join!(serve(&agent), capability::publish(&agent), tell_draining(&agent));
    drain(&agent, &mut reads).await;
    Ok(())
}

async fn tell_draining(agent: &Agent) {
    agent.draining.cancelled().await;
    let (reads, grace) = (agent.admission.held(), agent.config.draining.grace.as_secs());
    tracing::info!(reads, grace_seconds = grace, "draining: no new reads, waiting for those held");
}

async fn serve(agent: &Arc<Agent>) -> Reads {
    if let Some(reason) = agent.unserving() {
        tracing::info!(reason, "this box serves no forwarded reads");
        agent.draining.cancelled().await;
        return Reads::default();
    }
    let (reads, ()) = tokio::join!(queue::serve(agent), capability::keep_ready(agent));
    reads
}

async fn check_bucket(agent: &Agent) -> Result<(), AgentError> {
    let probed = tokio::select! {
        biased;
        () = agent.draining.cancelled() => return Ok(()),
        probed = probe(&agent.ports.bucket, agent.config.box_name.as_str()) => probed,
    };
    let code = probed.code();
    match probed {
        Probed::Keeps(_) => Ok(()),
        Probed::Lies(broken) => Err(AgentError::Bucket { code, reason: broken.to_string() }),
        // Not caught lying. Every create here reads back what it is not sure of.
        Probed::CouldNotTell(reason) => {
            tracing::warn!(code, reason, "the bucket could not be probed");
            Ok(())
        }
    }
}

async fn drain(agent: &Agent, reads: &mut Reads) {
    let draining = agent.config.draining;
    if agent.ctx().timeout(draining.grace, reads.all()).await.is_ok() {
        tracing::info!("drained");
        return;
    }
    tracing::warn!(reads = agent.admission.held(), "the grace is over: ending the reads held");
    agent.end_now.cancel();
    if agent.ctx().timeout(draining.end, reads.all()).await.is_err() {
        tracing::warn!("reads were still open when the agent stopped");
    }
}
