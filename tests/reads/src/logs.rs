//! What the processes of one test log. It works on a current-thread runtime, where every task of
//! the test runs on the test's own thread.

use std::cell::RefCell;
use std::fmt::{self, Write as _};
use std::sync::{Arc, Mutex};

use tracing::field::{Field, Visit};
use tracing::span::{Attributes, Id, Record};
use tracing::subscriber::Interest;
use tracing::{Event, Level, Metadata, Subscriber};

type Lines = Arc<Mutex<Vec<(Level, String)>>>;

thread_local! {
    static COLLECTING: RefCell<Option<Lines>> = const { RefCell::new(None) };
}

/// Collects every event of at least `INFO` of this thread while it lives.
pub struct Logs(Lines);

impl Logs {
    /// Begins to collect on this thread.
    pub fn collect() -> Self {
        // One subscriber for the process: with one for each thread, an event that another thread
        // meets first is switched off for all.
        let _ = tracing::subscriber::set_global_default(Collector);
        let lines = Lines::default();
        COLLECTING.set(Some(Arc::clone(&lines)));
        Self(lines)
    }

    /// The warnings and errors so far that hold `part`.
    pub fn warnings(&self, part: &str) -> Vec<String> {
        let lines = self.0.lock().unwrap();
        let loud = lines.iter().filter(|(level, _)| *level <= Level::WARN);
        loud.filter(|(_, line)| line.contains(part)).map(|(_, line)| line.clone()).collect()
    }

    /// Everything so far.
    pub fn text(&self) -> String {
        let lines = self.0.lock().unwrap();
        lines.iter().map(|(level, line)| format!("{level} {line}\n")).collect()
    }
}

impl Drop for Logs {
    fn drop(&mut self) {
        COLLECTING.set(None);
    }
}

struct Collector;

impl Subscriber for Collector {
    fn register_callsite(&self, _: &'static Metadata<'static>) -> Interest {
        Interest::sometimes()
    }

    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        *metadata.level() <= Level::INFO && COLLECTING.with_borrow(Option::is_some)
    }

    fn event(&self, event: &Event<'_>) {
        let mut line = Line(String::new());
        event.record(&mut line);
        COLLECTING.with_borrow(|lines| {
            let lines = lines.as_ref().expect("enabled on this thread");
            lines.lock().unwrap().push((*event.metadata().level(), line.0));
        });
    }

    fn new_span(&self, _: &Attributes<'_>) -> Id {
        Id::from_u64(1)
    }

    fn record(&self, _: &Id, _: &Record<'_>) {}
    fn record_follows_from(&self, _: &Id, _: &Id) {}
    fn enter(&self, _: &Id) {}
    fn exit(&self, _: &Id) {}
}

struct Line(String);

impl Visit for Line {
    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        write!(self.0, "{}={value:?} ", field.name()).unwrap();
    }
}
