//! Statements that ask for more than there is, of a database that is sound.

use carlos_protocol::frames::Outcome;

use crate::Case;
use crate::support::Replica;

const DONE: &[Outcome] = &[Outcome::Done];
const ERROR: &[Outcome] = &[Outcome::SqlError];
const TIME: &[Outcome] = &[Outcome::Timeout];
const CAP: &[Outcome] = &[Outcome::OutputCap];
/// Where the machine's speed decides which bound is met first.
const TIME_OR_CAP: &[Outcome] = &[Outcome::Timeout, Outcome::OutputCap];
const TIME_OR_ERROR: &[Outcome] = &[Outcome::Timeout, Outcome::SqlError];

/// Numbers without an end.
const ENDLESS: &str = "WITH RECURSIVE n(x) AS (SELECT 1 UNION ALL SELECT x+1 FROM n)";

pub(crate) fn cases() -> Vec<Case> {
    let mut cases = Vec::new();
    for (name, sql, right) in [endless(), bombs(), patterns(), wide()].into_iter().flatten() {
        cases.push(Case::new(name, Replica::shop(), sql, right));
    }
    cases
}

type Row = (&'static str, String, &'static [Outcome]);

fn endless() -> Vec<Row> {
    let row = |name, tail: &str, right| (name, format!("{ENDLESS} {tail}"), right);
    vec![
        row("endless rows", "SELECT x FROM n", TIME_OR_CAP),
        row("endless rows, each long", "SELECT hex(zeroblob(4096)) FROM n", CAP),
        row("endless count", "SELECT count(*) FROM n", TIME),
        row("endless sort", "SELECT x FROM n ORDER BY hex(x)", TIME_OR_ERROR),
        row("endless distinct", "SELECT count(DISTINCT hex(x)||hex(x*7)) FROM n", TIME_OR_ERROR),
        row("endless group", "SELECT hex(x), count(*) FROM n GROUP BY 1", TIME_OR_ERROR),
        row("endless window", "SELECT sum(x) OVER (ORDER BY -x) FROM n", TIME_OR_ERROR),
        row("endless text", "SELECT length(group_concat(x, '----------')) FROM n", TIME_OR_ERROR),
        row("endless json", "SELECT length(json_group_array(hex(x))) FROM n", TIME_OR_ERROR),
        row("cross join of endless", "SELECT count(*) FROM n a, n b", TIME_OR_ERROR),
    ]
}

fn bombs() -> Vec<Row> {
    let row = |name, sql: &str, right| (name, sql.to_owned(), right);
    vec![
        row("zeroblob of a gigabyte", "SELECT zeroblob(1000000000)", ERROR),
        row("zeroblob of the largest number", "SELECT zeroblob(9223372036854775807)", ERROR),
        row("randomblob of 2 GiB", "SELECT length(randomblob(2147483647))", ERROR),
        row("one value over 64 MiB", "SELECT zeroblob(80000000)", CAP),
        row("one value under 64 MiB", "SELECT zeroblob(60000000)", DONE),
        row("hex of hex of hex", "SELECT hex(hex(hex(hex(zeroblob(30000000)))))", ERROR),
        row("printf of a wide field", "SELECT length(printf('%2000000000d', 1))", ERROR),
        row("printf of a deep fraction", "SELECT length(printf('%.2000000000f', 1))", DONE),
        row(
            "printf with ten wide fields",
            "SELECT printf('%*d%*d', 99999999, 1, 99999999, 1)",
            ERROR,
        ),
        row(
            "replace that multiplies",
            "SELECT length(replace(hex(zeroblob(20000)), '0', hex(zeroblob(20000))))",
            ERROR,
        ),
        row(
            "text that doubles",
            "WITH RECURSIVE d(x) AS (SELECT 'ab' UNION ALL SELECT x||x FROM d) \
             SELECT length(x) FROM d",
            ERROR,
        ),
        row("json of deep arrays", &format!("SELECT json('{}')", "[".repeat(60_000)), ERROR),
        row(
            "json patch that multiplies",
            "SELECT length(json_set('{}', '$.a', json(printf('[%.*c]', 90000000, '1'))))",
            &[Outcome::Done, Outcome::SqlError],
        ),
        row("a million unions of unions", &union_tree(), &[Outcome::Timeout, Outcome::SqlError]),
    ]
}

/// A sum of sums: ten levels, each ten times the one before.
fn union_tree() -> String {
    let mut sql = "WITH t0(x) AS (VALUES (1),(2),(3),(4),(5),(6),(7),(8),(9),(10))".to_owned();
    for level in 1..10 {
        let under = level - 1;
        sql += &format!(", t{level}(x) AS (SELECT a.x FROM t{under} a, t{under} b)");
    }
    sql + " SELECT count(*) FROM t9"
}

fn patterns() -> Vec<Row> {
    let worst = |op: &str, any: &str| {
        let pattern = format!("{any}a").repeat(24_000);
        let text = format!("hex(zeroblob(5000000)) || '{}'", "a".repeat(1000));
        format!("SELECT ({text}) {op} '{pattern}b'")
    };
    let slow = |op: &str, any: &str| {
        let pattern = format!("{any}0").repeat(12);
        format!("SELECT hex(zeroblob(4000000)) {op} '{pattern}{any}b'")
    };
    vec![
        ("LIKE with 24,000 wildcards", worst("LIKE", "%"), ERROR),
        ("GLOB with 24,000 wildcards", worst("GLOB", "*"), ERROR),
        ("LIKE that a simple matcher never ends", slow("LIKE", "%"), DONE),
        ("GLOB that a simple matcher never ends", slow("GLOB", "*"), DONE),
        (
            "instr of long in long",
            "SELECT instr(hex(zeroblob(9000000)), hex(zeroblob(4000000))||'1')".to_owned(),
            &[Outcome::Done, Outcome::Timeout],
        ),
        ("MATCH of thousands of terms", match_many(), &[Outcome::Done, Outcome::SqlError]),
    ]
}

fn match_many() -> String {
    format!("SELECT count(*) FROM note WHERE note MATCH '{}red'", "red OR ".repeat(9_000))
}

fn wide() -> Vec<Row> {
    let columns = |n: usize| vec!["1"; n].join(",");
    vec![
        ("2,000 columns", format!("SELECT {}", columns(2000)), DONE),
        ("2,001 columns", format!("SELECT {}", columns(2001)), ERROR),
        (
            "2,000 columns of endless rows",
            format!("{ENDLESS} SELECT {} FROM n", columns(2000)),
            TIME_OR_CAP,
        ),
        ("65 tables in one join", format!("SELECT 1 FROM item{}", ", item".repeat(64)), ERROR),
        (
            "64 tables in one join",
            format!("SELECT count(*) FROM item{}", ", item".repeat(63)),
            TIME_OR_ERROR,
        ),
        ("an expression of 20,000 terms", format!("SELECT 1{}", "+1".repeat(20_000)), ERROR),
        (
            "brackets 20,000 deep",
            format!("SELECT {}1{}", "(".repeat(20_000), ")".repeat(20_000)),
            ERROR,
        ),
    ]
}
