//! A database that uses everything, and short ways to query it.

#![allow(clippy::unwrap_used, clippy::panic, clippy::disallowed_methods)]
// Each test file uses its part.
#![allow(dead_code, unreachable_pub)]

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::Instant;

use carlos_dbquery::{Format, Limits, QueryError, Ran, Stop, render, run};
use rusqlite::Connection;
use tempfile::TempDir;

/// A folder that holds one database and nothing else.
pub struct Fixture {
    pub dir: TempDir,
    pub db: PathBuf,
}

const SCHEMA: &str = "
    CREATE TABLE kinds(id INTEGER PRIMARY KEY, value);
    INSERT INTO kinds VALUES (1, NULL), (2, -9223372036854775808), (3, 0.1), (4, 9e999),
        (5, -9e999), (6, 'plain'), (7, CAST(x'ff00fe' AS TEXT)), (8, CAST(x'610062' AS TEXT)),
        (9, x'00ff'), (10, ''), (11, x''), (12, -0.0), (13, 1e300);
    CREATE TABLE parent(id INTEGER PRIMARY KEY, name TEXT NOT NULL UNIQUE COLLATE NOCASE);
    CREATE TABLE child(id INTEGER PRIMARY KEY, parent REFERENCES parent, n INT AS (id * 2));
    CREATE INDEX child_parent ON child(parent) WHERE parent IS NOT NULL;
    INSERT INTO parent VALUES (1, 'Ann'), (2, 'bob');
    INSERT INTO child(id, parent) VALUES (10, 1), (11, 1), (12, 2);
    CREATE TABLE log(entry);
    CREATE TRIGGER logged AFTER INSERT ON parent BEGIN INSERT INTO log VALUES (new.name); END;
    CREATE VIRTUAL TABLE notes4 USING fts4(body);
    INSERT INTO notes4(docid, body) VALUES (1, 'the quick brown fox'), (2, 'lazy dog');
    CREATE VIRTUAL TABLE terms4 USING fts4aux(notes4);
    CREATE VIRTUAL TABLE notes5 USING fts5(body, tokenize = 'porter');
    INSERT INTO notes5(rowid, body) VALUES (1, 'running foxes'), (2, 'sleeping dogs');
    CREATE VIRTUAL TABLE terms5 USING fts5vocab(notes5, row);
    CREATE VIRTUAL TABLE area USING rtree(id, x0, x1, y0, y1, +label TEXT);
    INSERT INTO area VALUES (1, 0, 10, 0, 10, 'home'), (2, 20, 30, 20, 30, 'away');
    CREATE VIRTUAL TABLE cell USING rtree_i32(id, a, b);
    INSERT INTO cell VALUES (1, 5, 6);
    CREATE TABLE docs(doc TEXT);
    INSERT INTO docs VALUES ('{\"a\":[1,2,{\"b\":\"x\"}]}');
    CREATE VIEW view4 AS SELECT docid, snippet(notes4) AS hit FROM notes4 WHERE notes4 MATCH 'fox';
    CREATE VIEW view5 AS SELECT rowid, highlight(notes5, 0, '<', '>') AS hit FROM notes5('run');
    CREATE VIEW view_area AS SELECT id, label FROM area WHERE x0 >= 15;
    CREATE VIEW view_json AS SELECT j.value FROM docs, json_each(doc, '$.a') j WHERE j.atom;
    CREATE VIEW view_stat AS SELECT name, sum(pgsize) > 0 AS some FROM dbstat GROUP BY name;
    CREATE VIEW view_info AS SELECT name FROM pragma_table_info('parent');
    ANALYZE;
    PRAGMA user_version = 7;
";

impl Fixture {
    pub fn new() -> Self {
        Self::with("PRAGMA journal_mode = WAL;")
    }

    /// A fixture whose file begins with these settings.
    pub fn with(settings: &str) -> Self {
        let dir = TempDir::new().unwrap();
        let db = dir.path().join("data base?&#%.db");
        let conn = Connection::open(&db).unwrap();
        conn.execute_batch(settings).unwrap();
        conn.execute_batch(SCHEMA).unwrap();
        // What is in a write-ahead log is not in the file, as after a restore.
        conn.execute_batch("PRAGMA wal_checkpoint(TRUNCATE)").unwrap();
        conn.close().unwrap();
        Self { dir, db }
    }

    pub fn query(&self, sql: &str) -> Result<(Vec<u8>, Ran), QueryError> {
        query(&self.db, sql, &Limits::default(), &stop())
    }

    /// The answer's rows in the exact format, without its header line.
    pub fn rows(&self, sql: &str) -> Vec<String> {
        let (stream, _) = self.query(sql).unwrap_or_else(|error| panic!("{sql}: {error}"));
        let mut out = Vec::new();
        render(Format::Tsv, &stream, &mut out).unwrap();
        let text = String::from_utf8_lossy(&out).into_owned();
        text.lines().skip(1).map(str::to_owned).collect()
    }

    /// Every file under the folder with its bytes.
    pub fn tree(&self) -> BTreeMap<PathBuf, Vec<u8>> {
        tree(self.dir.path())
    }
}

pub fn query(
    db: &Path,
    sql: &str,
    limits: &Limits,
    stop: &Stop,
) -> Result<(Vec<u8>, Ran), QueryError> {
    let mut stream = Vec::new();
    let ran = run(db, sql, limits, &mut stream, stop)?;
    Ok((stream, ran))
}

pub fn stop() -> Stop {
    let start = Instant::now();
    Stop::new(move || start.elapsed())
}

pub fn tree(dir: &Path) -> BTreeMap<PathBuf, Vec<u8>> {
    let mut files = BTreeMap::new();
    for entry in fs::read_dir(dir).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            files.extend(tree(&path));
        } else {
            files.insert(path.clone(), fs::read(&path).unwrap());
        }
    }
    files
}
