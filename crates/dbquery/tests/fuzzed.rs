//! Many statements and many broken files, made from seeds: each has an answer, nothing is written.

#![allow(clippy::unwrap_used, clippy::panic, clippy::disallowed_methods)]

mod common;

use std::sync::LazyLock;

use carlos_dbquery::{IntegrityMode, Limits, QueryError, integrity};
use common::{Fixture, query, stop};
use proptest::prelude::*;

static FIXTURE: LazyLock<Fixture> = LazyLock::new(Fixture::new);

fn blank() -> impl Strategy<Value = &'static str> {
    prop::sample::select(vec![" ", "\n", "\t /* ; */ ", " -- x\n", ";\n", "/**/"])
}

fn table() -> impl Strategy<Value = &'static str> {
    prop::sample::select(vec![
        "parent",
        "main.child",
        "notes5",
        "notes5_data",
        "notes4_content",
        "area",
        "area_node",
        "[area_rowid]",
        "\"cell_parent\"",
        "sqlite_schema",
        "sqlite_stat1",
        "view_area",
        "kinds",
    ])
}

/// A statement that would write, behind whatever may stand before it.
fn writes() -> impl Strategy<Value = String> {
    let front = prop::sample::select(vec![
        "",
        "WITH a AS (SELECT 1)",
        "WITH RECURSIVE a(x) AS (SELECT 1 UNION SELECT x + 1 FROM a WHERE x < 3)",
        "EXPLAIN",
        "EXPLAIN QUERY PLAN WITH a AS (VALUES (1))",
    ]);
    let verb = prop::sample::select(vec![
        "DELETE FROM {}",
        "DELETE FROM {} WHERE rowid IN (SELECT 1)",
        "UPDATE {} SET rowid = 1",
        "UPDATE OR REPLACE {} SET rowid = rowid + 1",
        "INSERT INTO {}(rowid) VALUES (99)",
        "INSERT OR IGNORE INTO {}(rowid) SELECT 98",
        "REPLACE INTO {}(rowid) VALUES (1)",
    ]);
    let tail = prop::sample::select(vec!["", " RETURNING *", " RETURNING rowid", ";"]);
    (blank(), front, blank(), verb, table(), tail).prop_map(|(a, front, b, verb, table, tail)| {
        format!("{a}{front}{b}{}{tail}", verb.replace("{}", table))
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]

    #[test]
    fn no_statement_writes(sql in writes()) {
        let before = FIXTURE.tree();
        let ended = FIXTURE.query(&sql);
        prop_assert!(
            matches!(ended, Err(QueryError::Refused(_) | QueryError::Sql(_))), "{:?}", ended
        );
        prop_assert_eq!(FIXTURE.tree(), before);
    }
}

const READS: [&str; 7] = [
    "SELECT * FROM kinds",
    "SELECT * FROM parent p LEFT JOIN child c ON c.parent = p.id ORDER BY p.name",
    "SELECT * FROM notes4 WHERE notes4 MATCH 'fox OR dog'",
    "SELECT *, rank FROM notes5('fox OR dog') ORDER BY rank",
    "SELECT * FROM area WHERE x0 < 100",
    "SELECT * FROM sqlite_schema, pragma_table_info(name)",
    "SELECT name, sum(pgsize) FROM dbstat GROUP BY name",
];

proptest! {
    #![proptest_config(ProptestConfig::with_cases(100))]

    #[test]
    fn a_broken_file_is_an_answer(
        flips in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..40),
        whole_pages in any::<bool>(),
    ) {
        let mut bytes = std::fs::read(&FIXTURE.db).unwrap();
        for (at, byte) in &flips {
            let at = at.index(bytes.len());
            // The first header bytes decide whether it is a database at all: leave them.
            let end = if whole_pages { (at + 64).min(bytes.len()) } else { at + 1 };
            bytes[at.max(24)..end.max(24)].fill(*byte);
        }
        let dir = tempfile::tempdir().unwrap();
        let db = dir.path().join("broken.db");
        std::fs::write(&db, bytes).unwrap();
        for sql in READS {
            match query(&db, sql, &Limits::default(), &stop()) {
                Ok(_) | Err(QueryError::Sql(_) | QueryError::Refused(_)) => {}
                // Memory would be a contained panic here: there is plenty.
                Err(other) => prop_assert!(false, "{sql}: {other:?}"),
            }
        }
        let _ = integrity(&db, &IntegrityMode::Full, &Limits::default(), &stop());
    }
}
