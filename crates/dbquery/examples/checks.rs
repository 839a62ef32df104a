//! What the checks of a database cost, in seconds of this thread's CPU time and of the wall clock:
//! the whole file quickly, the whole file fully, and what each query given reads.
//!
//! ```text
//! TZ=UTC cargo run --release -p carlos-dbquery --example checks -- FILE [SQL]...
//! ```
#![allow(clippy::disallowed_methods, clippy::disallowed_macros)]

use std::error::Error;
use std::path::Path;
use std::time::{Duration, Instant};

use carlos_dbquery::{IntegrityMode, Limits, Stop, integrity, read_by};

fn main() -> Result<(), Box<dyn Error>> {
    let mut args = std::env::args().skip(1);
    let file = args.next().ok_or("usage: checks FILE [SQL]...")?;
    let file = Path::new(&file);
    let start = Instant::now();
    let stop = Stop::new(move || start.elapsed());
    let limits = Limits { time: Duration::from_secs(3_600), ..Limits::default() };
    let check = |what: &str, mode: &IntegrityMode| -> Result<(), Box<dyn Error>> {
        let (cpu, wall) = (cpu_seconds()?, Instant::now());
        integrity(file, mode, &limits, &stop)?;
        let (cpu, wall) = (cpu_seconds()? - cpu, wall.elapsed().as_secs_f64());
        println!("{cpu:7.2} s CPU {wall:7.2} s wall  {what}");
        Ok(())
    };
    check("quick_check of the file", &IntegrityMode::Quick)?;
    check("integrity_check of the file", &IntegrityMode::Full)?;
    for sql in args {
        check(&sql, &read_by(file, sql.as_str(), &limits, &stop)?)?;
    }
    Ok(())
}

/// Linux tells it in nanoseconds, as the first field.
fn cpu_seconds() -> Result<f64, Box<dyn Error>> {
    let text = std::fs::read_to_string("/proc/thread-self/schedstat")?;
    let nanoseconds: f64 = text.split(' ').next().unwrap_or_default().parse()?;
    Ok(nanoseconds / 1e9)
}
