//! Databases whose schema waits for whoever reads them: what it names must not run, and what may
//! run must end.

use carlos_protocol::frames::Outcome;

use crate::Case;
use crate::support::Replica;

const DONE: &[Outcome] = &[Outcome::Done];
const ERROR: &[Outcome] = &[Outcome::SqlError];
const BROKEN: &[Outcome] = &[Outcome::CheckFailed];
const TIME_OR_ERROR: &[Outcome] = &[Outcome::Timeout, Outcome::SqlError];
const BROKEN_OR_ERROR: &[Outcome] = &[Outcome::CheckFailed, Outcome::SqlError];

pub(crate) fn cases() -> Vec<Case> {
    [dangerous(), endless(), nonsense(), shadows()].into_iter().flatten().collect()
}

fn case(name: &'static str, schema: impl AsRef<str>, sql: &str, right: &'static [Outcome]) -> Case {
    Case::new(name, Replica::of(schema.as_ref()), sql, right)
}

fn dangerous() -> Vec<Case> {
    vec![
        case(
            "a view that loads a library",
            "CREATE TABLE t(a); CREATE VIEW v AS SELECT load_extension('/tmp/x.so') FROM t; \
             INSERT INTO t VALUES (1)",
            "SELECT * FROM v",
            ERROR,
        ),
        case(
            "a view over a pointer to a tokenizer",
            "CREATE VIEW v AS SELECT fts3_tokenizer('simple')",
            "SELECT * FROM v",
            ERROR,
        ),
        case(
            "a view over a pragma's table",
            "CREATE VIEW v AS SELECT * FROM pragma_database_list",
            "SELECT * FROM v",
            ERROR,
        ),
        case(
            "a trigger on what is read",
            "CREATE TABLE t(a); INSERT INTO t VALUES (1); CREATE TABLE log(a); \
             CREATE TRIGGER x AFTER UPDATE ON t BEGIN INSERT INTO log VALUES (1); END",
            "SELECT * FROM t",
            DONE,
        ),
        case(
            "a trigger instead of a write to a view",
            "CREATE TABLE t(a); CREATE VIEW v AS SELECT a FROM t; CREATE TRIGGER x INSTEAD OF \
             DELETE ON v BEGIN DELETE FROM t; END",
            "WITH x AS (SELECT 1) DELETE FROM v",
            ERROR,
        ),
    ]
}

/// As one expression: sums until the statement's time is over.
const SLOW: &str =
    "(WITH RECURSIVE n(x) AS (SELECT 1 UNION ALL SELECT x+1 FROM n) SELECT count(*) FROM n)";

fn endless() -> Vec<Case> {
    let mut views = "CREATE VIEW v0 AS SELECT 1 AS x;".to_owned();
    for level in 1..60 {
        let under = level - 1;
        views += &format!("CREATE VIEW v{level} AS SELECT a.x FROM v{under} a, v{under} b;");
    }
    vec![
        case(
            "a view that never ends",
            format!("CREATE VIEW v AS SELECT {SLOW}"),
            "SELECT * FROM v",
            &[Outcome::Timeout],
        ),
        case("views that double 59 times", views, "SELECT count(*) FROM v59", TIME_OR_ERROR),
        case(
            "a column that is made when it is read",
            "CREATE TABLE t(a, b AS (hex(hex(hex(zeroblob(a)))))); INSERT INTO t(a) VALUES (1)",
            "SELECT length(b) FROM t",
            DONE,
        ),
        case(
            "a made column too large to make",
            "CREATE TABLE t(a, b AS (a)); INSERT INTO t(a) VALUES (1); \
             PRAGMA writable_schema=ON; UPDATE sqlite_schema \
             SET sql='CREATE TABLE t(a, b AS (hex(zeroblob(4000000000))))'",
            "SELECT length(b) FROM t",
            BROKEN_OR_ERROR,
        ),
        case(
            "a check that costs more than the read",
            "CREATE TABLE t(a CHECK (length(hex(zeroblob(40000000))) > a)); \
             PRAGMA ignore_check_constraints=ON; \
             INSERT INTO t WITH RECURSIVE n(x) AS (SELECT 1 UNION ALL SELECT x+1 FROM n LIMIT 20) \
             SELECT x FROM n",
            "SELECT count(*) FROM t",
            &[Outcome::Done, Outcome::Timeout, Outcome::CheckFailed, Outcome::RestoreTimeout],
        ),
    ]
}

fn forged(sql: &str) -> String {
    format!(
        "CREATE TABLE t(a); INSERT INTO t VALUES (1); CREATE TABLE u(a); \
         PRAGMA writable_schema=ON; {sql}"
    )
}

fn nonsense() -> Vec<Case> {
    vec![
        case(
            "a table whose text is no SQL",
            forged("UPDATE sqlite_schema SET sql='CREATE TABLE t(((((' WHERE name='t'"),
            "SELECT * FROM u",
            BROKEN_OR_ERROR,
        ),
        case(
            "a table whose text is a megabyte",
            forged(
                "UPDATE sqlite_schema SET sql='CREATE TABLE t(a'||\
                 replace(hex(zeroblob(30000)), '00', ' CHECK (1)')||')' WHERE name='t'",
            ),
            "SELECT * FROM t",
            &[Outcome::Done, Outcome::CheckFailed, Outcome::SqlError],
        ),
        case(
            "two tables on one tree",
            forged("UPDATE sqlite_schema SET rootpage=2 WHERE name='u'"),
            "SELECT * FROM u",
            BROKEN,
        ),
        case(
            "a table on the schema's own page",
            forged("UPDATE sqlite_schema SET rootpage=1 WHERE name='u'"),
            "SELECT * FROM u",
            BROKEN,
        ),
        case(
            "a table on a page that is not there",
            forged("UPDATE sqlite_schema SET rootpage=4000000000 WHERE name='u'"),
            "SELECT * FROM u",
            BROKEN,
        ),
        case(
            "a virtual table of no module",
            forged(
                "INSERT INTO sqlite_schema VALUES ('table','x','x',0,\
                 'CREATE VIRTUAL TABLE x USING nowhere(a)')",
            ),
            "SELECT * FROM x",
            ERROR,
        ),
        case(
            "a view of itself",
            forged(
                "INSERT INTO sqlite_schema VALUES ('view','x','x',0,\
                 'CREATE VIEW x AS SELECT * FROM x')",
            ),
            "SELECT * FROM x",
            ERROR,
        ),
        case(
            "an index of another column than it says",
            "CREATE TABLE t(a, b); INSERT INTO t VALUES (1, 2); CREATE INDEX i ON t(b); \
             PRAGMA writable_schema=ON; \
             UPDATE sqlite_schema SET sql='CREATE INDEX i ON t(a)' WHERE name='i'",
            "SELECT a FROM t WHERE a=1",
            BROKEN,
        ),
    ]
}

fn shadows() -> Vec<Case> {
    let fts = "CREATE VIRTUAL TABLE f USING fts5(a); INSERT INTO f VALUES ('red apple'), ('pear');";
    let tree = "CREATE VIRTUAL TABLE r USING rtree(i, a, b); INSERT INTO r VALUES (1, 2, 3);";
    let read = "SELECT * FROM f WHERE f MATCH 'apple'";
    vec![
        case(
            "an index of words in ruins",
            format!("{fts} UPDATE f_data SET block=randomblob(length(block)) WHERE id>10"),
            read,
            BROKEN_OR_ERROR,
        ),
        case(
            "an index of words of great numbers",
            format!("{fts} UPDATE f_data SET block=x'ffffffffffffffffffffffffffffffff'"),
            read,
            BROKEN_OR_ERROR,
        ),
        case(
            "an index of words with its settings lost",
            format!("{fts} DELETE FROM f_config"),
            read,
            BROKEN_OR_ERROR,
        ),
        case(
            "a tree of boxes in ruins",
            format!("{tree} UPDATE r_node SET data=zeroblob(4)"),
            "SELECT * FROM r WHERE a>0",
            BROKEN_OR_ERROR,
        ),
        case(
            "a tree of boxes that goes round",
            format!("{tree} UPDATE r_parent SET parentnode=1; UPDATE r_rowid SET nodeno=99"),
            "SELECT * FROM r WHERE i=1",
            &[Outcome::CheckFailed, Outcome::SqlError],
        ),
    ]
}
