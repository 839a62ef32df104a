//! The text format: families with their help and type, samples with their labels.
//!
//! Version 0.0.4 of the format, which every Prometheus reads.

use std::fmt::Write as _;

/// What a family's numbers are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Only ever grows, from 0 at the start of the process. Its name ends in `_total`.
    Counter,
    /// Goes up and down.
    Gauge,
    /// Cumulative buckets, their sum and their count.
    Histogram,
}

impl Kind {
    const fn name(self) -> &'static str {
        match self {
            Self::Counter => "counter",
            Self::Gauge => "gauge",
            Self::Histogram => "histogram",
        }
    }
}

/// One answer to `GET /metrics`.
#[derive(Clone, Debug, Default)]
pub struct Page(String);

impl Page {
    /// Begins a family. Its samples follow at once.
    pub fn family(&mut self, name: &'static str, kind: Kind, help: &str) {
        let _ = writeln!(self.0, "# HELP {name} {}", escaped(help, false));
        let _ = writeln!(self.0, "# TYPE {name} {}", kind.name());
    }

    /// A sample of the family begun last.
    pub fn sample(&mut self, name: &str, labels: &[(&str, &str)], value: impl Into<Number>) {
        self.0.push_str(name);
        for (place, (label, text)) in labels.iter().enumerate() {
            let before = if place == 0 { '{' } else { ',' };
            let _ = write!(self.0, "{before}{label}=\"{}\"", escaped(text, true));
        }
        if !labels.is_empty() {
            self.0.push('}');
        }
        let Number(value) = value.into();
        let _ = writeln!(self.0, " {value}");
    }

    /// A family of one sample without labels.
    pub fn one(&mut self, name: &'static str, kind: Kind, help: &str, value: impl Into<Number>) {
        self.family(name, kind, help);
        self.sample(name, &[], value);
    }

    /// The name and version of what runs: always 1, to be joined with other families.
    pub fn build(&mut self, name: &'static str, version: &str) {
        self.family(name, Kind::Gauge, "Always 1; the version that runs.");
        self.sample(name, &[("version", version)], 1_u64);
    }

    /// The text so far.
    pub fn text(&self) -> &str {
        &self.0
    }
}

/// A value as the format writes it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Number(String);

impl From<u64> for Number {
    fn from(value: u64) -> Self {
        Self(value.to_string())
    }
}

impl From<usize> for Number {
    fn from(value: usize) -> Self {
        Self(value.to_string())
    }
}

impl From<bool> for Number {
    fn from(value: bool) -> Self {
        Self(u8::from(value).to_string())
    }
}

impl From<f64> for Number {
    fn from(value: f64) -> Self {
        Self(value.to_string())
    }
}

/// Line breaks and backslashes would begin another line; quotes end a label's text.
fn escaped(text: &str, quotes: bool) -> String {
    let text = text.replace('\\', "\\\\").replace('\n', "\\n");
    if quotes { text.replace('"', "\\\"") } else { text }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_family_is_help_type_and_samples() {
        let mut page = Page::default();
        page.family("carlos_things_total", Kind::Counter, "Things.");
        page.sample("carlos_things_total", &[("a", "1"), ("b", "x")], 3_u64);
        page.one("carlos_open", Kind::Gauge, "Open.", true);
        let text = "# HELP carlos_things_total Things.\n# TYPE carlos_things_total counter\n\
                    carlos_things_total{a=\"1\",b=\"x\"} 3\n\
                    # HELP carlos_open Open.\n# TYPE carlos_open gauge\ncarlos_open 1\n";
        assert_eq!(page.text(), text);
    }

    proptest::proptest! {
        /// Whatever a label says, it stays one line and ends where it should.
        #[test]
        fn no_label_breaks_out_of_its_line(text in ".*") {
            let mut page = Page::default();
            page.sample("m", &[("l", &text)], 1_u64);
            let line = page.text().strip_suffix("\"} 1\n").expect("the sample's own end");
            let inner = line.strip_prefix("m{l=\"").expect("the sample's own beginning");
            proptest::prop_assert!(!inner.contains('\n'));
            let unescaped = inner.replace("\\\\", "");
            let quotes = unescaped.match_indices('"').map(|(at, _)| at);
            for at in quotes {
                proptest::prop_assert!(unescaped[..at].ends_with('\\'));
            }
        }
    }
}
