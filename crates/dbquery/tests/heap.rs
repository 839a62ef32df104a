//! Memory is bounded. Alone in its own process, as SQLite's heap limit is the process's.

#![allow(clippy::unwrap_used, clippy::panic, clippy::disallowed_methods)]

mod common;

use std::path::PathBuf;

use carlos_dbquery::{Limits, QueryError};
use common::{Fixture, query, stop};

#[test]
fn a_sort_that_does_not_fit_is_an_error_and_leaves_nothing() {
    let fixture = Fixture::new();
    let before = fixture.tree();
    let limits = Limits { heap: 64 * 1024 * 1024, ..Limits::default() };
    for sql in [
        "WITH RECURSIVE c(x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM c WHERE x < 5000000) \
         SELECT x FROM c ORDER BY x * 7919 % 5000011, x",
        "WITH RECURSIVE c(x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM c WHERE x < 5000000) \
         SELECT count(DISTINCT hex(x)) FROM c",
        "SELECT hex(zeroblob(60000000))",
        "SELECT group_concat(hex(randomblob(10000))) FROM pragma_function_list a, \
         pragma_function_list b",
    ] {
        let ended = query(&fixture.db, sql, &limits, &stop());
        assert!(matches!(ended, Err(QueryError::Memory)), "{sql}: {ended:?}");
        assert_eq!(fixture.tree(), before, "{sql}");
        assert_eq!(open_files(), Vec::<PathBuf>::new(), "{sql}");
        let (_, ran) = query(&fixture.db, "SELECT * FROM kinds", &limits, &stop()).unwrap();
        assert_eq!(ran.rows, 13);
    }
}

/// Regular files that this process holds open, deleted ones among them.
fn open_files() -> Vec<PathBuf> {
    let Ok(entries) = std::fs::read_dir("/proc/self/fd") else { return Vec::new() };
    let targets = entries.filter_map(|entry| std::fs::read_link(entry.ok()?.path()).ok());
    targets
        .filter(|path| {
            path.to_string_lossy().contains(".db") || path.to_string_lossy().contains("etilqs")
        })
        .collect()
}
