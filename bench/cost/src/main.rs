//! What `bench/cost/run` starts: plays the hours and prints the tables.
#![allow(clippy::disallowed_macros, reason = "a program whose output is its table")]

use std::process::ExitCode;

use carlos_bench_cost::{Load, Report, json, markdown, missed, play, size};

const USAGE: &str = "bench/cost/run [--boxes 1,10,100,1000] [--hours N] [--json] [--check]

  --boxes  deployments to play, by their number of boxes in five regions
  --hours  hours with reads for each, from different seeds (5, and 1 for a thousand boxes or more);
           the idle hour is played once
  --json   print everything measured as JSON
  --check  exit with 1 when a target is missed";

/// Reads in an hour that is not idle.
const READS: usize = 60;

/// Hours with reads, so that there are enough waits for a 99th percentile.
const HOURS: u64 = 5;

/// Boxes from which on one hour has to do.
const MANY: usize = 1_000;

struct Options {
    boxes: Vec<usize>,
    hours: Option<u64>,
    json: bool,
    check: bool,
}

fn main() -> ExitCode {
    let Some(options) = options() else {
        eprintln!("{USAGE}");
        return ExitCode::from(2);
    };
    let mut reports = Vec::new();
    for boxes in &options.boxes {
        reports.push(play(size(*boxes, 1), Load::Idle));
        let hours = options.hours.unwrap_or(if *boxes < MANY { HOURS } else { 1 });
        reports.push(busy(*boxes, hours));
    }
    match options.json {
        true => println!("{:#}", json(&reports)),
        false => print!("{}", markdown(&reports)),
    }
    let missed: Vec<_> = reports.iter().flat_map(missed_by).collect();
    missed.iter().for_each(|target| eprintln!("missed: {target}"));
    if options.check && !missed.is_empty() { ExitCode::FAILURE } else { ExitCode::SUCCESS }
}

fn busy(boxes: usize, hours: u64) -> Report {
    let first = play(size(boxes, 1), Load::Reads(READS));
    let others = (2..=hours).map(|seed| play(size(boxes, seed), Load::Reads(READS)));
    others.fold(first, |sum, hour| sum.merge(&hour))
}

fn missed_by(report: &Report) -> Vec<String> {
    missed(report).into_iter().map(|target| format!("{} boxes: {target}", report.boxes)).collect()
}

fn options() -> Option<Options> {
    let mut options =
        Options { boxes: vec![1, 10, 100, 1_000], hours: None, json: false, check: false };
    let mut words = std::env::args().skip(1);
    while let Some(word) = words.next() {
        match word.as_str() {
            "--boxes" => {
                let numbers = words.next()?;
                let numbers = numbers.split(',').map(str::parse);
                options.boxes = numbers.collect::<Result<_, _>>().ok()?;
            }
            "--hours" => options.hours = Some(words.next()?.parse().ok()?),
            "--json" => options.json = true,
            "--check" => options.check = true,
            _ => return None,
        }
    }
    let sensible = options.hours != Some(0) && options.boxes.iter().all(|boxes| *boxes > 0);
    sensible.then_some(options)
}
