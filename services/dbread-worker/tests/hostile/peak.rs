//! The most memory that a process ever held, read while it lives.

use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering;
use std::thread::JoinHandle;
use std::time::Duration;

/// Watches one process from its own thread until it is gone.
pub(crate) struct Peak {
    most: Arc<AtomicU64>,
    over: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Peak {
    pub(crate) fn of(pid: u32) -> Self {
        // The first look is not the thread's: a short life must not pass unseen.
        let first = resident(pid).expect("the worker waits for its header");
        let (most, over) = (Arc::new(AtomicU64::new(first)), Arc::new(AtomicBool::new(false)));
        let (seen, stop) = (Arc::clone(&most), Arc::clone(&over));
        let thread = std::thread::spawn(move || {
            while !stop.load(Ordering::Relaxed) {
                let Some(bytes) = resident(pid) else { break };
                seen.fetch_max(bytes, Ordering::Relaxed);
                std::thread::sleep(Duration::from_millis(2));
            }
        });
        Self { most, over, thread: Some(thread) }
    }

    /// Bytes: the high-water mark that the kernel kept.
    pub(crate) fn most(&self) -> u64 {
        self.most.load(Ordering::Relaxed)
    }
}

impl Drop for Peak {
    fn drop(&mut self) {
        self.over.store(true, Ordering::Relaxed);
        let thread = self.thread.take().expect("only a drop takes it");
        thread.join().unwrap();
    }
}

fn resident(pid: u32) -> Option<u64> {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"))?;
    let kib: u64 = line.trim().strip_suffix(" kB")?.parse().ok()?;
    Some(kib * 1024)
}
