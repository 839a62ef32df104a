//! Statements and files that mean harm: each has its clear answer, and nothing is left behind.

#![allow(clippy::unwrap_used, clippy::panic, clippy::disallowed_methods)]

mod common;

use carlos_dbquery::{QueryError, Refusal};
use carlos_protocol::statement;
use common::Fixture;
use rusqlite::Connection;

/// Statements that are refused, whichever layer does it.
const REFUSED: [&str; 59] = [
    "VACUUM INTO 'new.db'",
    "VACUUM main INTO 'new.db'",
    "/* x */ -- y\n VACUUM /* z */ INTO -- w\n 'new.db'",
    "VACUUM INTO ?1",
    "EXPLAIN VACUUM INTO 'new.db'",
    "EXPLAIN QUERY PLAN VACUUM INTO 'new.db'",
    "VACUUM",
    "ATTACH 'new.db' AS n",
    "ATTACH ':memory:' AS n",
    "ATTACH '' AS n",
    "EXPLAIN ATTACH ':memory:' AS n",
    "DETACH main",
    "PRAGMA query_only=OFF",
    "PRAGMA query_only(0)",
    "PRAGMA main.query_only = 0",
    "pragma QUERY_ONLY",
    "EXPLAIN PRAGMA query_only=OFF",
    "SELECT * FROM pragma_query_only",
    "PRAGMA writable_schema=ON",
    "PRAGMA writable_schema=RESET",
    "PRAGMA journal_mode=DELETE",
    "PRAGMA journal_mode",
    "PRAGMA wal_checkpoint(TRUNCATE)",
    "PRAGMA user_version=8",
    "PRAGMA schema_version(9)",
    "PRAGMA data_version=1",
    "PRAGMA application_id=1",
    "PRAGMA trusted_schema=OFF",
    "PRAGMA temp_store_directory='/tmp'",
    "PRAGMA mmap_size=1000000000",
    "PRAGMA hard_heap_limit=0",
    "PRAGMA soft_heap_limit(1)",
    "PRAGMA case_sensitive_like=ON",
    "PRAGMA optimize",
    "PRAGMA incremental_vacuum",
    "PRAGMA database_list",
    "SELECT file FROM pragma_database_list",
    "PRAGMA no_such_pragma",
    "WITH x AS (SELECT 1) DELETE FROM parent RETURNING *",
    "WITH x AS (SELECT 1) INSERT INTO parent SELECT 9, 'z' RETURNING id",
    "WITH x AS (SELECT 1) UPDATE parent SET name = 'q' RETURNING *",
    "EXPLAIN DELETE FROM parent",
    "EXPLAIN QUERY PLAN UPDATE parent SET name = 'q'",
    "INSERT INTO notes5(notes5) VALUES ('rebuild')",
    "CREATE TEMP TABLE x(a)",
    "CREATE TABLE x(a)",
    "CREATE TEMP VIEW x AS SELECT 1",
    "CREATE VIRTUAL TABLE temp.x USING fts5(a)",
    "EXPLAIN CREATE TABLE x(a)",
    "DROP TABLE parent",
    "ALTER TABLE parent ADD COLUMN z",
    "REINDEX",
    "ANALYZE",
    "BEGIN IMMEDIATE",
    "SAVEPOINT s",
    "COMMIT",
    "SELECT load_extension('x.so')",
    "SELECT fts3_tokenizer('simple')",
    "SELECT optimize(notes4) FROM notes4",
];

#[test]
fn nothing_is_written_by_any_statement() {
    let fixture = Fixture::new();
    let before = fixture.tree();
    let here = std::env::current_dir().unwrap();
    let around: Vec<_> = std::fs::read_dir(&here).unwrap().map(|e| e.unwrap().path()).collect();
    for sql in REFUSED {
        let error = fixture.query(sql).unwrap_err();
        assert!(matches!(error, QueryError::Refused(_)), "{sql}: {error:?}");
        assert_eq!(fixture.tree(), before, "{sql}");
    }
    let after: Vec<_> = std::fs::read_dir(&here).unwrap().map(|e| e.unwrap().path()).collect();
    assert_eq!(around, after, "the working directory is as it was");
}

/// Table functions that SQLite does not have: an error of its own, and no effect either.
#[test]
fn switches_have_no_table_function_with_a_value() {
    let fixture = Fixture::new();
    for sql in [
        "SELECT * FROM pragma_query_only(0)",
        "SELECT * FROM pragma_query_only WHERE arg = 'OFF'",
        "SELECT * FROM pragma_writable_schema(1)",
        "SELECT * FROM pragma_user_version(8)",
    ] {
        assert!(matches!(fixture.query(sql), Err(QueryError::Sql(_))), "{sql}");
    }
}

#[test]
fn what_is_refused_is_named() {
    let fixture = Fixture::new();
    let cases = [
        ("PRAGMA query_only=OFF", "PRAGMA query_only with a value is not allowed."),
        ("SELECT * FROM pragma_query_only", "PRAGMA query_only is not allowed."),
        ("WITH x AS (SELECT 1) DELETE FROM parent", "it writes to parent."),
        ("SELECT load_extension('x')", "the function load_extension is not allowed."),
        ("EXPLAIN VACUUM INTO 'x'", "it writes."),
    ];
    for (sql, ending) in cases {
        let sentence = fixture.query(sql).unwrap_err().to_string();
        assert!(sentence.ends_with(ending), "{sql}: {sentence}");
    }
}

#[test]
fn shadow_tables_cannot_be_written() {
    let fixture = Fixture::new();
    let before = fixture.tree();
    for sql in [
        "WITH x AS (SELECT 1) DELETE FROM area_node",
        "WITH x AS (SELECT 1) UPDATE area_rowid SET nodeno = 1 RETURNING *",
        "WITH x AS (SELECT 1) INSERT INTO area_parent SELECT 1, 2",
        "WITH x AS (SELECT 1) DELETE FROM notes5_data",
        "EXPLAIN DELETE FROM area_node",
    ] {
        fixture.query(sql).unwrap_err();
        assert_eq!(fixture.tree(), before, "{sql}");
    }
    assert_eq!(fixture.rows("SELECT count(*) FROM area"), ["2"]);
}

#[test]
fn errors_in_sql_are_sqlites_own_words() {
    let fixture = Fixture::new();
    for (sql, text) in [
        ("SELECT * FROM nowhere", "no such table: nowhere"),
        ("SELEKT 1", "near \"SELEKT\": syntax error"),
        ("SELECT no_such(1)", "no such function: no_such"),
        ("SELECT abs(-9223372036854775808)", "integer overflow"),
        ("SELECT zeroblob(200000000)", "string or blob too big"),
        ("SELECT 'a' LIKE hex(zeroblob(600))", "LIKE or GLOB pattern too complex"),
    ] {
        match fixture.query(sql).unwrap_err() {
            QueryError::Sql(found) => assert_eq!(found, text, "{sql}"),
            other => panic!("{sql}: {other:?}"),
        }
    }
}

#[test]
fn parameters_are_named_not_nulled() {
    let fixture = Fixture::new();
    for (sql, name) in [("SELECT ?", "?"), ("SELECT ?2", "?"), ("SELECT 1 WHERE 1 = :who", ":who")]
    {
        match fixture.query(sql).unwrap_err() {
            QueryError::Refused(Refusal::Parameter { name: found }) => assert_eq!(found, name),
            other => panic!("{sql}: {other:?}"),
        }
    }
    assert!(matches!(fixture.query("SELECT ?30000"), Err(QueryError::Sql(_))));
}

#[test]
fn many_statements_do_not_overflow_the_stack() {
    let fixture = Fixture::new();
    let many = "SELECT 1;".repeat(7_000);
    let refused = fixture.query(&many);
    let QueryError::Refused(refusal) = refused.unwrap_err() else { panic!("not refused") };
    assert_eq!(refusal, statement::Refusal::TwoStatements.into());
}

#[test]
fn deep_texts_end_in_an_error_not_a_crash() {
    let fixture = Fixture::new();
    let deep = [
        format!("SELECT {}1{}", "(".repeat(20_000), ")".repeat(20_000)),
        format!("SELECT{}1", " -".repeat(20_000)),
        format!("SELECT {}1{}", "(SELECT ".repeat(5_000), ")".repeat(5_000)),
        format!("SELECT * FROM {}(SELECT 1){}", "(SELECT * FROM ".repeat(3_000), ")".repeat(3_000)),
        format!("SELECT 1{}", " UNION SELECT 1".repeat(4_000)),
        format!("SELECT 1{}", " + 1".repeat(10_000)),
        format!("SELECT 1 WHERE 1{}", " AND 1".repeat(9_000)),
        format!("SELECT json('{}')", "[".repeat(60_000)),
        format!("SELECT CASE {} END", "WHEN 1 THEN 1 ".repeat(4_000)),
    ];
    for sql in &deep {
        match fixture.query(sql) {
            Ok(_) | Err(QueryError::Sql(_)) => {}
            Err(other) => panic!("{}: {other:?}", &sql[..40]),
        }
    }
}

#[test]
fn a_long_chain_of_views_is_an_answer() {
    let fixture = Fixture::new();
    let conn = Connection::open(&fixture.db).unwrap();
    let mut chain = "BEGIN; CREATE VIEW v0 AS SELECT 1 AS x;".to_owned();
    for n in 1..2_000 {
        chain += &format!("CREATE VIEW v{n} AS SELECT x FROM v{};", n - 1);
    }
    conn.execute_batch(&format!("{chain} COMMIT; PRAGMA wal_checkpoint(TRUNCATE)")).unwrap();
    conn.close().unwrap();
    match fixture.query("SELECT * FROM v1999") {
        Ok(_) | Err(QueryError::Sql(_)) => {}
        Err(other) => panic!("{other:?}"),
    }
}

#[test]
fn names_that_are_not_utf8_are_an_answer() {
    let fixture = Fixture::new();
    let conn = Connection::open(&fixture.db).unwrap();
    conn.execute_batch("CREATE TABLE odd(nameXY); PRAGMA wal_checkpoint(TRUNCATE)").unwrap();
    conn.close().unwrap();
    let mut bytes = std::fs::read(&fixture.db).unwrap();
    let at = bytes.windows(6).position(|window| window == b"nameXY").unwrap();
    bytes[at + 4..at + 6].copy_from_slice(b"\xff\xfe");
    std::fs::write(&fixture.db, bytes).unwrap();
    match fixture.query("SELECT * FROM odd").unwrap_err() {
        QueryError::Sql(text) => assert_eq!(text, "a name in the database is not UTF-8 text"),
        other => panic!("{other:?}"),
    }
    assert_eq!(fixture.rows("SELECT count(*) FROM parent"), ["2"]);
}

#[test]
fn a_file_that_is_no_database_is_an_answer() {
    let fixture = Fixture::new();
    std::fs::write(&fixture.db, b"not a database, but long enough to have a header".repeat(50))
        .unwrap();
    match fixture.query("SELECT 1").unwrap_err() {
        QueryError::Sql(text) => assert_eq!(text, "file is not a database"),
        other => panic!("{other:?}"),
    }
    std::fs::remove_file(&fixture.db).unwrap();
    assert!(matches!(fixture.query("SELECT 1"), Err(QueryError::Setup(_))));
    assert!(fixture.tree().is_empty(), "a missing file is not made");
}
