//! Reads the workspace's own source: what the tests in this package hold against their budgets.

use std::path::{Path, PathBuf};

/// The workspace root, two folders above this package.
pub fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .ancestors()
        .nth(2)
        .expect("tests/tidy lies two folders below the root")
        .to_path_buf()
}

/// Every file below the root whose name ends with one of `endings`, without build output.
pub fn files(endings: &[&str]) -> Vec<PathBuf> {
    let mut found = Vec::new();
    let mut folders = vec![root()];
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(&folder).expect("a folder of the tree is readable") {
            let path = entry.expect("a folder of the tree lists").path();
            let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
            if path.is_symlink() || matches!(name.as_str(), "target" | ".git" | "node_modules") {
                continue;
            }
            if path.is_dir() {
                folders.push(path);
            } else if endings.iter().any(|ending| name.ends_with(ending)) {
                found.push(path);
            }
        }
    }
    found.sort();
    found
}

/// The path as a reader of a failure wants it: relative to the root.
pub fn shown(path: &Path) -> String {
    path.strip_prefix(root()).unwrap_or(path).display().to_string()
}
