//! What a console counts, for its operators (docs/metrics.md).

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use axum::http::StatusCode;
use carlos_bucket::Bucket;
use carlos_metrics::{Counts, Histogram, Kind, Page, write_bucket};
use carlos_protocol::result::{Code, ReadResult, State};

use crate::reads::Ending;

const READS: &str = "carlos_console_reads_total";
const RESPONSES: &str = "carlos_console_responses_total";

/// What one console counted since it was configured.
#[derive(Debug, Default)]
pub struct Metrics {
    open: Arc<AtomicUsize>,
    reads: Counts<3>,
    responses: Counts<1>,
    pickup: Histogram,
    first_chunk: Histogram,
}

/// A read that counts as open until this is dropped.
pub(crate) struct Open(Arc<AtomicUsize>);

impl Drop for Open {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

impl Metrics {
    /// Writes every family, those of the console's requests to `bucket` included.
    pub fn write(&self, page: &mut Page, bucket: &Bucket) {
        page.build("carlos_console_build_info", env!("CARGO_PKG_VERSION"));
        let open = self.open.load(Ordering::Relaxed);
        page.one("carlos_console_open_reads", Kind::Gauge, "Reads that are open now.", open);
        page.family(READS, Kind::Counter, "Reads that ended, by how, and by the box's result.");
        self.reads.write(page, READS, ["ending", "state", "code"]);
        page.family(RESPONSES, Kind::Counter, "Responses to people's CLIs, by HTTP status.");
        self.responses.write(page, RESPONSES, ["status"]);
        let help = "From the request's time to its owner, as the console saw it.";
        self.pickup.write(page, "carlos_console_pickup_seconds", help);
        let help = "From the request's time to the first chunk of rows written to the response.";
        self.first_chunk.write(page, "carlos_console_first_chunk_seconds", help);
        write_bucket(page, &[("deployment", bucket.counters())]);
        let (name, help) = ("carlos_bucket_brake_seconds", "The gap the store's brake keeps now.");
        page.one(name, Kind::Gauge, help, bucket.brake().gap().as_secs_f64());
    }

    pub(crate) fn opened(&self) -> Open {
        self.open.fetch_add(1, Ordering::Relaxed);
        Open(Arc::clone(&self.open))
    }

    pub(crate) fn responded(&self, status: StatusCode) {
        self.responses.add([status.as_str()]);
    }

    pub(crate) fn picked(&self, after: Duration) {
        self.pickup.observe(after);
    }

    pub(crate) fn first_chunk(&self, after: Duration) {
        self.first_chunk.observe(after);
    }

    /// The result line is written: the read's code is the box's word, and known ones only, since
    /// a box may write any.
    pub(crate) fn answered(&self, result: &ReadResult) {
        let code = match &result.code {
            Code::Unknown(_) => "unknown",
            code => code.as_str(),
        };
        self.reads.add(["answered", state(result.state), code]);
    }

    /// The read ended without a result line.
    pub(crate) fn ended(&self, ending: Ending) {
        self.reads.add([name(ending), "", ""]);
    }

    /// A box never saw it, or nobody can say.
    pub(crate) fn not_opened(&self) {
        self.reads.add(["not_opened", "", ""]);
    }
}

const fn state(state: State) -> &'static str {
    match state {
        State::Cancelled => "cancelled",
        State::Done => "done",
        State::Failed => "failed",
        State::Refused => "refused",
    }
}

const fn name(ending: Ending) -> &'static str {
    match ending {
        Ending::Answered => "answered",
        Ending::Closed => "closed",
        Ending::Malformed => "malformed",
        Ending::Overdue => "overdue",
        Ending::Shutdown => "shutdown",
        Ending::Stalled => "stalled",
        Ending::Unpicked => "unpicked",
    }
}
