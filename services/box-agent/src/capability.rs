//! What the box says about itself, and the probe that decides it (db-forward §7.1).

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use carlos_bucket::{Append, Chain, ChainError, Pulse, Purpose};
use carlos_protocol::ids::{Capability, Principal, Revision};
use carlos_protocol::keys::{Key, edges_chain};
use carlos_protocol::limits::STATUS_EVERY;
use carlos_protocol::records::{
    self, DB_READ_CAPABILITY, DB_READ_PARAMS_CAPABILITY, Edges, Status,
};

use crate::agent::Agent;
use crate::worker::hold::WorkerHold;
use crate::worker::talk::Talk;

/// After a probe that failed: a repaired worker is back within half a minute, a broken one costs
/// two short-lived processes a minute.
const FAILED_AGAIN: Duration = Duration::from_secs(30);

/// After a probe that was skipped: it starts nothing, and orphans end within seconds.
const SKIPPED_AGAIN: Duration = Duration::from_secs(5);

/// After a publication that the bucket did not confirm.
const PUBLISH_AGAIN: Duration = Duration::from_secs(5);

/// What a box that can serve publishes, sorted.
const CAPABILITIES: [&str; 2] = [DB_READ_CAPABILITY, DB_READ_PARAMS_CAPABILITY];

/// Publishes edges and status until the agent drains, and then that it drains: consoles know it
/// before the held reads have used any of their grace.
pub(crate) async fn publish(agent: &Agent) {
    let mut publisher = Publisher::new(agent);
    let mut readiness = agent.readiness();
    loop {
        readiness.mark_unchanged();
        let confirmed = publisher.publish().await;
        if agent.draining.is_cancelled() && publisher.said_draining {
            return;
        }
        let wait = if confirmed { STATUS_EVERY } else { PUBLISH_AGAIN };
        tokio::select! {
            biased;
            () = agent.draining.cancelled() => {}
            _ = readiness.changed() => {}
            () = agent.ctx().sleep(wait) => {}
        }
    }
}

struct Publisher<'a> {
    agent: &'a Agent,
    edges: Chain,
    pulse: Pulse,
    written: Option<(Revision, Vec<u8>)>,
    /// One try, confirmed or not: a stopping agent does not wait for a bucket that is away.
    said_draining: bool,
}

impl<'a> Publisher<'a> {
    fn new(agent: &'a Agent) -> Self {
        let (bucket, name) = (&agent.ports.bucket, &agent.config.box_name);
        Self {
            agent,
            edges: Chain::new(bucket.clone(), edges_chain(name), Principal::from(name)),
            pulse: Pulse::new(bucket.clone(), Key::Status(name.clone()).to_path()),
            written: None,
            said_draining: false,
        }
    }

    /// Edges first, so that a status never speaks of a revision that is not there.
    async fn publish(&mut self) -> bool {
        let edges = self.now();
        self.said_draining = edges.draining;
        let content = records::encode(&edges);
        let confirmed = self.write_edges(&content).await;
        let status = Status {
            v: records::VERSION,
            box_name: edges.box_name,
            time_unix: self.agent.ctx().now_unix(),
            edges_rev: self.written.as_ref().map_or(0, |(revision, _)| revision.number()),
            region: edges.region,
            capabilities: edges.capabilities,
            draining: edges.draining,
        };
        match self.pulse.beat(Bytes::from(records::encode(&status))).await {
            Ok(()) => confirmed,
            Err(cause) => {
                tracing::warn!(%cause, "the status was not written");
                false
            }
        }
    }

    fn now(&self) -> Edges {
        let capabilities = if self.agent.is_ready() { &CAPABILITIES[..] } else { &[] };
        let capability = |name: &&str| Capability::parse(name).expect("the names are labels");
        Edges {
            v: records::VERSION,
            box_name: self.agent.config.box_name.clone(),
            region: self.agent.config.region.clone(),
            capabilities: capabilities.iter().map(capability).collect(),
            draining: self.agent.draining.is_cancelled(),
        }
    }

    /// Appends a revision only when the content is another one than the head's.
    async fn write_edges(&mut self, content: &[u8]) -> bool {
        if self.written.as_ref().is_some_and(|(_, written)| written == content) {
            return true;
        }
        let expected = match self.edges.head(Purpose::Claim).await {
            Ok(head) => head.map(|head| head.revision),
            Err(ChainError::Malformed(revision)) => Some(revision),
            Err(ChainError::Read(error)) => {
                tracing::warn!(%error, "the edges chain cannot be read");
                return false;
            }
        };
        match self.edges.append(expected, content, Purpose::Claim).await {
            Append::Written(revision) | Append::Unchanged(revision) => {
                self.written = Some((revision, content.to_vec()));
                true
            }
            Append::Conflict(head) => {
                let by = head.map(|head| head.by.to_string());
                tracing::warn!(by, "somebody else writes this box's edges");
                false
            }
            Append::Unknown(cause) => {
                tracing::warn!(%cause, "the edges were not written");
                false
            }
        }
    }
}

/// Probes at start, every five minutes, and at once after a worker failed to start; returns when
/// the agent drains, whatever a worker does.
pub(crate) async fn keep_ready(agent: &Agent) {
    tokio::select! {
        biased;
        () = agent.draining.cancelled() => {}
        () = probe_for_ever(agent) => {}
    }
}

async fn probe_for_ever(agent: &Agent) {
    let mut said = None;
    loop {
        let wait = probe(agent, &mut said).await;
        tokio::select! {
            biased;
            () = agent.probe_again.notified() => {}
            () = agent.ctx().sleep(wait) => {}
        }
    }
}

/// Once for each reason: a box that waits for its operator says it again for those who look closer.
fn tell_failure(said: &mut Option<String>, error: String) {
    if said.as_ref() == Some(&error) {
        tracing::debug!(error, "the readiness probe failed again");
        return;
    }
    tracing::error!(error, "the readiness probe failed: this box serves no forwarded reads");
    *said = Some(error);
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Verdict {
    Passed,
    Failed(String),
    /// Says nothing about the worker, so the last result stands.
    Skipped,
}

/// One probe and its consequence; gives the time until the next. The verdict counts at once, not
/// only when the probe's worker has stopped, which may take long on a box in trouble.
async fn probe(agent: &Agent, said: &mut Option<String>) -> Duration {
    let count = agent.admission.count(&*agent.ports.workers).await;
    let _slot = match agent.admission.admit_probe(count) {
        Ok(slot) => slot,
        Err(reason) => {
            tracing::debug!(%reason, "the readiness probe is skipped");
            return SKIPPED_AGAIN;
        }
    };
    let workers = Arc::clone(&agent.ports.workers);
    let mut worker = WorkerHold::new(agent.ctx().clone(), Arc::clone(&agent.admission), workers);
    let wait = match greet(agent, &mut worker).await {
        Verdict::Passed => {
            agent.set_ready(true);
            *said = None;
            agent.config.probe_every
        }
        Verdict::Failed(error) => {
            agent.set_ready(false);
            tell_failure(said, error);
            FAILED_AGAIN
        }
        Verdict::Skipped => SKIPPED_AGAIN,
    };
    worker.stop().await;
    wait
}

/// One hello exchange with a real worker on a connection of its own.
async fn greet(agent: &Agent, worker: &mut WorkerHold) -> Verdict {
    let connection = match worker.start().await {
        Ok(connection) => connection,
        Err(error) => return Verdict::Failed(error.to_string()),
    };
    match Talk::open(agent.ctx(), connection, &agent.config).await {
        Ok(_talk) => Verdict::Passed,
        // The connection is closed by now, and holds no place of its own.
        Err(error) if error.is_hang_up() && agent.ports.workers.is_crowded().await => {
            tracing::debug!(%error, "the readiness probe found no place");
            Verdict::Skipped
        }
        Err(error) => Verdict::Failed(error.to_string()),
    }
}
