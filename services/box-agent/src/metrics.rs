//! What an agent counts, for the box's operators (docs/metrics.md).

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;

use carlos_metrics::{Counts, Exporter, Histogram, Kind, Page, write_bucket};
use carlos_protocol::request::ReadRequest;
use carlos_protocol::result::State;
use tokio_util::sync::CancellationToken;
use tokio_util::task::AbortOnDropHandle;

use crate::agent::Agent;
use crate::elect::Owner;
use crate::read::Ending;

const READS: &str = "carlos_agent_reads_total";
const ELECTIONS: &str = "carlos_agent_elections_total";
const QUEUE: &str = "carlos_agent_queue_entries";

/// What one agent counted since it started.
#[derive(Debug, Default)]
pub(crate) struct Metrics {
    unread: AtomicUsize,
    waiting: AtomicUsize,
    reads: Counts<2>,
    elections: Counts<1>,
    forged: AtomicU64,
    pickup: Histogram,
}

impl Metrics {
    /// Entries on the desk: those whose request is still to be read, and genuine ones that wait
    /// for a slot.
    pub(crate) fn desk(&self, unread: usize, waiting: usize) {
        self.unread.store(unread, Ordering::Relaxed);
        self.waiting.store(waiting, Ordering::Relaxed);
    }

    /// A request that was not genuine.
    pub(crate) fn forged(&self) {
        self.forged.fetch_add(1, Ordering::Relaxed);
    }

    /// An election is over; a won one is a pickup, which took from the console's clock to this
    /// one's.
    pub(crate) fn elected(&self, owner: Owner, request: &ReadRequest, now_unix_ms: u64) {
        let outcome = match owner {
            Owner::Own => "won",
            Owner::Other => "lost",
            Owner::Unknown => "unknown",
        };
        self.elections.add([outcome]);
        if owner == Owner::Own {
            let issued = request.issued_at.unix().saturating_mul(1_000);
            self.pickup.observe(Duration::from_millis(now_unix_ms.saturating_sub(issued)));
        }
    }

    /// A read that this box owned has its result.
    pub(crate) fn ended(&self, ending: &Ending) {
        let state = match ending.state {
            State::Cancelled => "cancelled",
            State::Done => "done",
            State::Failed => "failed",
            State::Refused => "refused",
        };
        self.reads.add([state, ending.code.as_str()]);
    }
}

/// Serves an agent's numbers while this is held, where its configuration names an address.
///
/// # Errors
/// When the address cannot be had.
pub(crate) async fn serve(agent: &Arc<Agent>) -> io::Result<Option<AbortOnDropHandle<()>>> {
    let Some(endpoint) = agent.config.metrics_at else { return Ok(None) };
    let exporter = Exporter::bind(endpoint).await?;
    tracing::info!(address = %exporter.address()?, "metrics");
    let source = Arc::clone(agent);
    // A draining agent is still looked at, so this ends with the agent and not with its signal.
    let never = CancellationToken::new();
    let serving = exporter.serve(agent.ctx().clone(), move |page| write(&source, page), never);
    Ok(Some(AbortOnDropHandle::new(agent.ctx().spawn(serving))))
}

fn write(agent: &Agent, page: &mut Page) {
    let metrics = &agent.metrics;
    page.build("carlos_agent_build_info", env!("CARGO_PKG_VERSION"));
    let gauge =
        |page: &mut Page, name, help, value: usize| page.one(name, Kind::Gauge, help, value);
    let ready = usize::from(agent.is_ready());
    gauge(page, "carlos_agent_ready", "1 while this box can serve reads.", ready);
    let draining = usize::from(agent.draining.is_cancelled());
    gauge(page, "carlos_agent_draining", "1 while it takes no new reads.", draining);
    let held = agent.admission.held();
    gauge(page, "carlos_agent_reads_running", "Reads that hold a slot now.", held);
    gauge(page, "carlos_agent_read_slots", "Reads it runs at once.", agent.config.slots);
    page.family(QUEUE, Kind::Gauge, "Entries in the window, by what they wait for.");
    for (state, count) in [("unread", &metrics.unread), ("waiting", &metrics.waiting)] {
        page.sample(QUEUE, &[("state", state)], count.load(Ordering::Relaxed));
    }
    page.family(READS, Kind::Counter, "Reads that this box owned, by their result.");
    metrics.reads.write(page, READS, ["state", "code"]);
    page.family(ELECTIONS, Kind::Counter, "Elections it stood for, by outcome.");
    metrics.elections.write(page, ELECTIONS, ["outcome"]);
    let (name, help) = ("carlos_agent_forged_requests_total", "Requests that are not genuine.");
    page.one(name, Kind::Counter, help, metrics.forged.load(Ordering::Relaxed));
    let help = "From a request's time, in whole seconds of its console's clock, to its owner.";
    metrics.pickup.write(page, "carlos_agent_pickup_seconds", help);
    let bucket = &agent.ports.bucket;
    let data = agent.ports.replicas.as_ref().and_then(|replicas| replicas.requests());
    let data = data.map(|counters| ("data", counters));
    let buckets: Vec<_> = [("deployment", bucket.counters())].into_iter().chain(data).collect();
    write_bucket(page, &buckets);
    let (name, help) = ("carlos_bucket_brake_seconds", "The gap the store's brake keeps now.");
    page.one(name, Kind::Gauge, help, bucket.brake().gap().as_secs_f64());
}
