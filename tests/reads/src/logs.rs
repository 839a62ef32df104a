//! What the processes of one test log. It works on a current-thread runtime, where every task of
//! the test runs on the test's own thread.

use std::fmt::{self, Write as _};
use std::sync::{Arc, Mutex};

use tracing::field::{Field, Visit};
use tracing::span::{Attributes, Id, Record};
use tracing::subscriber::DefaultGuard;
use tracing::{Event, Level, Metadata, Subscriber};

/// Collects every event of at least `INFO` while it lives.
pub struct Logs {
    lines: Arc<Mutex<Vec<(Level, String)>>>,
    _guard: DefaultGuard,
}

impl Logs {
    /// Begins to collect on this thread.
    pub fn collect() -> Self {
        let lines = Arc::default();
        let collector = Collector { lines: Arc::clone(&lines) };
        Self { lines, _guard: tracing::subscriber::set_default(collector) }
    }

    /// The warnings and errors so far that hold `part`.
    pub fn warnings(&self, part: &str) -> Vec<String> {
        let lines = self.lines.lock().unwrap();
        let loud = lines.iter().filter(|(level, line)| *level <= Level::WARN && line.contains(part));
        loud.map(|(_, line)| line.clone()).collect()
    }

    /// Everything so far.
    pub fn text(&self) -> String {
        let lines = self.lines.lock().unwrap();
        lines.iter().map(|(level, line)| format!("{level} {line}\n")).collect()
    }
}

struct Collector {
    lines: Arc<Mutex<Vec<(Level, String)>>>,
}

impl Subscriber for Collector {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        *metadata.level() <= Level::INFO
    }

    fn event(&self, event: &Event<'_>) {
        let mut line = Line(String::new());
        event.record(&mut line);
        self.lines.lock().unwrap().push((*event.metadata().level(), line.0));
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
