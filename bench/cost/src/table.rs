//! Reports as tables for people and as JSON for programs.

use std::fmt::Write as _;

use serde_json::{Value, json};

use crate::hour::{ByDistance, Load, Report};
use crate::latency::Distance;

const DISTANCES: [Distance; 3] = [Distance::SameRegion, Distance::Ms80, Distance::Ms160];

/// Both tables, in Markdown.
pub fn markdown(reports: &[Report]) -> String {
    format!("{}\n{}", requests(reports), waits(reports))
}

/// Requests of an average hour, and what a month of such hours costs.
fn requests(reports: &[Report]) -> String {
    let mut table = String::from(
        "| boxes | hour | create | put | GET | GET, 304 | LIST | USD a month | a box |\n\
         |---|---|---|---|---|---|---|---|---|\n",
    );
    for report in reports {
        let sent = report.sent.all();
        let _ = write!(table, "| {} | {} |", grouped(report.boxes as u64), hour(report));
        for count in [sent.create, sent.put, sent.get, sent.not_modified, sent.list] {
            let _ = write!(table, " {} |", grouped(count / report.hours as u64));
        }
        let (all, each) = (report.dollars_a_month(), report.dollars_a_month_a_box());
        let _ = writeln!(table, " {all:.2} | {each:.2} |");
    }
    table
}

/// Half of the waits and 99 of 100, in seconds, by distance.
fn waits(reports: &[Report]) -> String {
    let [same, near, far] = DISTANCES.map(Distance::name);
    let head = "boxes | p50 / p99 in s, and how many";
    let mut table = format!("| {head} | {same} | {near} | {far} |\n|---|---|---|---|---|\n");
    for report in reports.iter().filter(|report| report.reads > 0) {
        for (name, waits) in [
            ("pickup, somebody read within a minute", &report.pickup),
            ("pickup, after a quiet time", &report.pickup_after_quiet),
            ("command to first row", &report.first_row),
            ("command to checked answer", &report.answer),
        ] {
            let _ = writeln!(table, "{}", row(report, name, waits));
        }
    }
    table
}

fn row(report: &Report, name: &str, waits: &ByDistance) -> String {
    let mut row = format!("| {} | {name} |", grouped(report.boxes as u64));
    for distance in DISTANCES {
        let _ = match waits.get(&distance) {
            Some(waits) => {
                let [half, most] = [50, 99].map(|percent| waits.percentile(percent).as_secs_f64());
                write!(row, " {half:.2} / {most:.2} ({}) |", waits.count())
            }
            None => write!(row, " |"),
        };
    }
    row
}

fn hour(report: &Report) -> String {
    match report.load {
        Load::Idle => "idle".to_owned(),
        Load::Reads(count) | Load::ReadsIn(_, count) => format!("{count} reads"),
    }
}

/// Digits in groups of three.
fn grouped(number: u64) -> String {
    let digits = number.to_string();
    let mut text = String::new();
    for (place, digit) in digits.chars().enumerate() {
        if place > 0 && (digits.len() - place).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

/// Everything measured, with the derived dollars.
pub fn json(reports: &[Report]) -> Value {
    let rows = reports.iter().map(|report| {
        let mut row = json!(report);
        row["requests"] = json!(report.sent.all());
        row["usd_a_month"] = json!(report.dollars_a_month());
        row["usd_a_month_a_box"] = json!(report.dollars_a_month_a_box());
        row
    });
    json!({ "reports": rows.collect::<Vec<_>>() })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn digits_come_in_groups() {
        assert_eq!(["0", "999", "1,000", "1,234,567"], [0, 999, 1_000, 1_234_567].map(grouped));
    }
}
