//! `carlos-fuzz TARGET|all SECONDS [SEED]`: runs mutated inputs for a time and stops at the first
//! that breaks a target.
// A tool for people and nightly runs: it has a clock of its own and shares no code path with the
// product.
#![allow(clippy::disallowed_methods, clippy::disallowed_macros)]

use std::process::ExitCode;
use std::time::{Duration, Instant, SystemTime};

use carlos_fuzz::{TARGETS, Target, smoke, target};

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let Some(order) = Order::parse(&arguments) else { return usage() };
    println!("seed {}", order.seed);
    for target in &order.targets {
        let start = Instant::now();
        match smoke::run(target, order.seed, |_| start.elapsed() < order.each) {
            Ok(runs) => println!("{:16} {runs} inputs", target.name),
            Err(broken) => {
                println!("{broken:?}");
                return ExitCode::FAILURE;
            }
        }
    }
    ExitCode::SUCCESS
}

struct Order {
    targets: Vec<&'static Target>,
    each: Duration,
    seed: u64,
}

impl Order {
    fn parse(arguments: &[String]) -> Option<Self> {
        let (name, seconds, seed) = match arguments {
            [name, seconds] => (name, seconds, from_the_clock()),
            [name, seconds, seed] => (name, seconds, seed.parse().ok()?),
            _ => return None,
        };
        let targets = if name == "all" { TARGETS.iter().collect() } else { vec![target(name)?] };
        Some(Self { targets, each: Duration::from_secs(seconds.parse().ok()?), seed })
    }
}

fn from_the_clock() -> u64 {
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
    now.map_or(0, |since| since.as_secs())
}

fn usage() -> ExitCode {
    println!("carlos-fuzz TARGET|all SECONDS [SEED]");
    println!("SECONDS is for each target. targets:");
    TARGETS.iter().for_each(|target| println!("  {}", target.name));
    ExitCode::from(2)
}
