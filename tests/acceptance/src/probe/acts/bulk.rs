//! How much can be taken.

use std::fs::File;
use std::io::{self, Write as _};
use std::path::Path;
use std::process::{Child, Command};
use std::sync::mpsc;
use std::thread;
use std::time::{Duration, Instant};

use super::Attempt;

/// More than a unit's tasks, which are 16.
const MANY: usize = 40;

/// More than a unit's memory, which is 512 MiB.
const MEMORY: usize = 700 << 20;

/// More than a file may have on the test host, which is 64 MiB.
const FILE_MIB: usize = 65;

/// How long CPU time is taken.
const SPIN: Duration = Duration::from_secs(2);

pub(super) fn processes() -> Attempt {
    let mut children: Vec<Child> = Vec::new();
    let mut stopped = None;
    while children.len() < MANY && stopped.is_none() {
        match Command::new("/opt/carlos/carlos").arg("sleep").spawn() {
            Ok(child) => children.push(child),
            Err(error) => stopped = Some(error),
        }
    }
    let count = children.len();
    for child in &mut children {
        let _ = child.kill();
        let _ = child.wait();
    }
    match stopped {
        None => Ok(format!("{count} processes")),
        Some(error) => Err(format!("after {count}: {error}").into()),
    }
}

pub(super) fn threads() -> Attempt {
    let mut ends: Vec<mpsc::Sender<()>> = Vec::new();
    for count in 0..MANY {
        let (end, ended) = mpsc::channel();
        let wait = move || ended.recv().is_ok();
        thread::Builder::new().spawn(wait).map_err(|error| format!("after {count}: {error}"))?;
        ends.push(end);
    }
    Ok(format!("{} threads", ends.len()))
}

pub(super) fn memory() -> Attempt {
    let mut taken: Vec<u8> = Vec::new();
    taken.try_reserve_exact(MEMORY)?;
    taken.resize(MEMORY, 1);
    Ok(format!("{} bytes, each written", taken.iter().filter(|byte| **byte == 1).count()))
}

pub(super) fn file(scratch: &Path) -> Attempt {
    Ok(format!("{} bytes", filled(&scratch.join("large"), FILE_MIB)?))
}

/// As much in several files, each of which is small enough.
pub(super) fn files(scratch: &Path) -> Attempt {
    let fill = |number: usize| filled(&scratch.join(format!("part-{number}")), FILE_MIB / 2);
    let bytes = (0..3).map(fill).sum::<io::Result<u64>>()?;
    Ok(format!("{bytes} bytes"))
}

fn filled(path: &Path, mebibytes: usize) -> io::Result<u64> {
    let mut file = File::create(path)?;
    let block = vec![0; 1 << 20];
    for _ in 0..mebibytes {
        file.write_all(&block)?;
    }
    Ok(file.metadata()?.len())
}

/// The share of one CPU that a spinning thread gets, in percent.
pub(super) fn cpu() -> String {
    let begun = Instant::now();
    let before = used();
    let mut sum = 0_u64;
    while begun.elapsed() < SPIN {
        sum = (0..10_000_u64).fold(sum, u64::wrapping_add);
    }
    std::hint::black_box(sum);
    let share = (used() - before).as_secs_f64() / begun.elapsed().as_secs_f64();
    format!("{:.0}", share * 100.0)
}

fn used() -> Duration {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ProcessCPUTime);
    Duration::new(time.tv_sec.try_into().unwrap(), time.tv_nsec.try_into().unwrap())
}
