//! The programs under test, found beside the test's own executable.

use std::path::PathBuf;

/// The client that people run.
pub(crate) fn carlos() -> PathBuf {
    built("carlos")
}

/// The worker that agents start.
pub(crate) fn worker() -> PathBuf {
    built("carlos-dbread-worker")
}

// Cargo builds only a package's own binaries for its tests, and these belong to other packages.
fn built(name: &str) -> PathBuf {
    let test = std::env::current_exe().unwrap();
    let profile = test.parent().and_then(|deps| deps.parent()).unwrap();
    let program = profile.join(name);
    assert!(
        program.is_file(),
        "{} is not built. run: cargo build --workspace --bins",
        program.display()
    );
    program
}
