//! What a query reads is what is checked before it is answered.

#![allow(clippy::unwrap_used, clippy::panic, clippy::disallowed_methods)]

mod common;

use carlos_dbquery::{
    IntegrityError, IntegrityMode, Limits, Query, QueryError, Refusal, integrity, read_by,
};
use carlos_protocol::params::{Param, ParamValue};
use common::{Fixture, stop};

fn reads(fixture: &Fixture, sql: &str) -> IntegrityMode {
    read_by(&fixture.db, sql, &Limits::default(), &stop()).unwrap_or_else(|e| panic!("{sql}: {e}"))
}

fn tables(names: &[&str]) -> IntegrityMode {
    IntegrityMode::Tables(names.iter().map(|name| (*name).to_owned()).collect())
}

fn check(fixture: &Fixture, mode: &IntegrityMode) -> Result<(), IntegrityError> {
    integrity(&fixture.db, mode, &Limits::default(), &stop())
}

#[test]
fn a_query_depends_on_the_tables_it_names_and_no_others() {
    let fixture = Fixture::new();
    execute(
        &fixture,
        "CREATE TABLE \"o'Neil\"(a); CREATE VIEW both AS SELECT name, n FROM child, \
        parent; CREATE TABLE wr(k PRIMARY KEY, v) WITHOUT ROWID",
    );
    for (sql, names) in [
        ("SELECT 1", &[][..]),
        ("SELECT name FROM parent", &["parent"]),
        ("SELECT count(*) FROM PARENT", &["parent"]),
        ("SELECT rowid FROM child WHERE parent IN (SELECT id FROM parent)", &["child", "parent"]),
        ("SELECT 1 FROM both", &["child", "parent"]),
        ("WITH kinds AS (SELECT 1 AS one) SELECT one, v FROM kinds, wr", &["wr"]),
        ("SELECT * FROM \"o'neil\"", &["o'neil"]),
        ("SELECT value FROM docs, json_each(doc)", &["docs"]),
        ("SELECT * FROM sqlite_schema, pragma_table_info('parent')", &[]),
        ("SELECT sum(pgsize) FROM dbstat", &[]),
        ("EXPLAIN SELECT * FROM log", &["log"]),
    ] {
        let read = reads(&fixture, sql);
        assert_eq!(read, tables(names), "{sql}");
        check(&fixture, &read).unwrap_or_else(|error| panic!("{sql}: {error}"));
    }
}

#[test]
fn what_reads_without_naming_depends_on_everything() {
    let fixture = Fixture::new();
    for sql in [
        "SELECT * FROM notes4 WHERE notes4 MATCH 'fox'",
        "SELECT hit FROM view5",
        "SELECT term FROM terms5",
        "SELECT id FROM area",
        "SELECT p.name FROM parent p JOIN cell ON cell.id = p.id",
        "PRAGMA foreign_key_check",
        "SELECT * FROM pragma_foreign_key_check",
    ] {
        assert_eq!(reads(&fixture, sql), IntegrityMode::Full, "{sql}");
    }
}

/// An index over another column than it says: answers through it are wrong, and no page is.
fn mismatched() -> Fixture {
    let fixture = Fixture::new();
    execute(
        &fixture,
        "CREATE TABLE bad(a, b); INSERT INTO bad VALUES (1, 2); \
        CREATE INDEX bad_a ON bad(b); PRAGMA writable_schema = ON; \
        UPDATE sqlite_schema SET sql = 'CREATE INDEX bad_a ON bad(a)' WHERE name = 'bad_a'",
    );
    fixture
}

#[test]
fn an_index_that_does_not_fit_stops_the_queries_of_its_table() {
    let fixture = mismatched();
    check(&fixture, &IntegrityMode::Quick).unwrap();
    assert!(fixture.rows("SELECT a FROM bad WHERE a = 1").is_empty(), "a wrong answer");
    let damaged = |mode| matches!(check(&fixture, &mode), Err(IntegrityError::Damaged(_)));
    assert!(damaged(reads(&fixture, "SELECT a FROM bad WHERE a = 1")));
    assert!(damaged(reads(&fixture, "SELECT term FROM terms5")));
    check(&fixture, &reads(&fixture, "SELECT name FROM parent")).unwrap();
}

#[test]
fn what_is_not_run_is_refused_before_anything_is_checked() {
    let fixture = Fixture::new();
    let refused = |sql: &str, params: &[Param]| {
        read_by(&fixture.db, Query { sql, params }, &Limits::default(), &stop()).unwrap_err()
    };
    assert!(matches!(refused("SELECT nothing FROM parent", &[]), QueryError::Sql(_)));
    assert!(matches!(refused("DELETE FROM parent", &[]), QueryError::Refused(_)));
    let lacks = refused("SELECT ?", &[]);
    assert!(matches!(lacks, QueryError::Refused(Refusal::Parameter { .. })));
    let value = Param::positional(ParamValue::Int(1));
    let read = read_by(
        &fixture.db,
        Query { sql: "SELECT name FROM parent WHERE id = ?", params: &[value] },
        &Limits::default(),
        &stop(),
    );
    assert_eq!(read.unwrap(), tables(&["parent"]));
}

fn execute(fixture: &Fixture, sql: &str) {
    let conn = rusqlite::Connection::open(&fixture.db).unwrap();
    conn.execute_batch(sql).unwrap();
    conn.execute_batch("PRAGMA wal_checkpoint(TRUNCATE)").unwrap();
    conn.close().unwrap();
}
