//! What can be said about a query from its text alone.

use super::Refusal;

/// Longest query in bytes: what a signed request carries.
pub const MAX_SQL_BYTES: usize = carlos_protocol::limits::SQL_BYTES;

/// Refuses, with a good sentence, text that cannot be one reading statement.
///
/// Passing means nothing: the authorizer decides (db-forward §8.3).
pub fn check_query_sql(sql: &str) -> Result<(), Refusal> {
    if sql.len() > MAX_SQL_BYTES {
        return Err(Refusal::TooLong { bytes: sql.len() });
    }
    if sql.contains('\0') {
        return Err(Refusal::Nul);
    }
    if sql.contains('\u{fffd}') {
        return Err(Refusal::NotText);
    }
    let statement = skip_blank(sql);
    if statement.is_empty() {
        return Err(Refusal::Empty);
    }
    check_dot_command(statement)?;
    check_verb(statement)?;
    check_one_statement(statement)
}

/// [`check_query_sql`] over bytes as they were typed or read from a file.
pub fn check_query_bytes(sql: &[u8]) -> Result<&str, Refusal> {
    if sql.len() > MAX_SQL_BYTES {
        return Err(Refusal::TooLong { bytes: sql.len() });
    }
    let sql = std::str::from_utf8(sql).map_err(|_| Refusal::NotText)?;
    check_query_sql(sql)?;
    Ok(sql)
}

/// Verbs that no reading statement begins with.
const VERBS: [&str; 18] = [
    "ALTER",
    "ANALYZE",
    "ATTACH",
    "BEGIN",
    "COMMIT",
    "CREATE",
    "DELETE",
    "DETACH",
    "DROP",
    "END",
    "INSERT",
    "REINDEX",
    "RELEASE",
    "REPLACE",
    "ROLLBACK",
    "SAVEPOINT",
    "UPDATE",
    "VACUUM",
];

fn check_verb(statement: &str) -> Result<(), Refusal> {
    let word = &statement[..word_len(statement)];
    match VERBS.iter().find(|verb| verb.eq_ignore_ascii_case(word)) {
        Some(verb) => Err(Refusal::Verb { verb }),
        None => Ok(()),
    }
}

fn check_dot_command(statement: &str) -> Result<(), Refusal> {
    /// Enough of a mistyped line to recognise it.
    const SHOWN: usize = 24;
    let Some(rest) = statement.strip_prefix('.') else { return Ok(()) };
    if !rest.starts_with(|first: char| first.is_ascii_alphabetic()) {
        return Ok(());
    }
    let command = format!(".{}", &rest[..word_len(rest).min(SHOWN)]);
    Err(Refusal::DotCommand { command })
}

fn check_one_statement(statement: &str) -> Result<(), Refusal> {
    let mut rest = statement;
    loop {
        let Some(first) = rest.bytes().next() else { return Ok(()) };
        if first == b';' {
            break;
        }
        rest = &rest[token_len(rest)..];
    }
    if skip_blank(rest).is_empty() { Ok(()) } else { Err(Refusal::TwoStatements) }
}

/// The text after white space, comments and semicolons.
fn skip_blank(sql: &str) -> &str {
    let mut rest = sql;
    while let Some(first) = rest.bytes().next() {
        let blank = matches!(first, b' ' | b'\t' | b'\n' | b'\x0c' | b'\r' | b';')
            || rest.starts_with("--")
            || rest.starts_with("/*")
            // SQLite takes a byte order mark for white space.
            || first == 0xef && rest.starts_with('\u{feff}');
        if !blank {
            break;
        }
        rest = &rest[token_len(rest)..];
    }
    rest
}

/// Bytes of the first token, near enough to SQLite's lexer to find where a statement ends: strings,
/// quoted names and comments are one token each, everything else one character.
fn token_len(sql: &str) -> usize {
    let mut chars = sql.chars();
    match chars.next() {
        Some(quote @ ('\'' | '"' | '`')) => quoted_len(sql, quote),
        Some('[') => through(sql, 1, "]"),
        Some('-') if sql.starts_with("--") => through(sql, 2, "\n"),
        Some('/') if sql.starts_with("/*") => through(sql, 2, "*/"),
        Some(other) => other.len_utf8(),
        None => 0,
    }
}

fn through(sql: &str, from: usize, end: &str) -> usize {
    sql[from..].find(end).map_or(sql.len(), |at| from + at + end.len())
}

/// A doubled quote stands for one, so the two halves are two tokens in a row here: no matter.
fn quoted_len(sql: &str, quote: char) -> usize {
    sql[1..].find(quote).map_or(sql.len(), |at| at + 2)
}

fn word_len(text: &str) -> usize {
    text.find(|c: char| !c.is_ascii_alphanumeric() && c != '_').unwrap_or(text.len())
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn one_reading_statement_passes() {
        for sql in [
            "SELECT 1",
            "select 1;",
            "-- note\nSELECT ';' ; -- end; of it\n /* ; */ ;;",
            "SELECT \";\", [;], `;`, 'it''s; fine', x'3b'",
            "WITH a AS (SELECT 1) SELECT * FROM a",
            "VALUES (1)",
            "EXPLAIN QUERY PLAN SELECT 1",
            "PRAGMA table_info(t)",
            "SELECT 1 /* open ; SELECT 2",
            "SELECT 'open ; SELECT 2",
            "\u{feff}SELECT .5",
        ] {
            assert_eq!(check_query_sql(sql), Ok(()), "{sql}");
        }
    }

    #[test]
    fn two_statements_are_named() {
        for sql in ["SELECT 1; SELECT 2", ";;SELECT 1;;x", "SELECT 1;--a\nDROP TABLE t"] {
            assert_eq!(check_query_sql(sql), Err(Refusal::TwoStatements), "{sql}");
        }
    }

    #[test]
    fn each_bad_text_has_its_sentence() {
        let cases: [(&str, &str); 9] = [
            ("", "the query is empty."),
            (" ;-- x\n/* y */\t;", "the query is empty."),
            ("SELECT 1\0", "the query holds a NUL byte. remove it and run it again."),
            (
                "SELECT '\u{fffd}'",
                "the query holds bytes that are not UTF-8 text or the character U+FFFD.",
            ),
            (".tables t", ".tables is a command of the sqlite3 shell, not SQL."),
            ("/* hi */ delete from t", "carlos db only reads, and DELETE does not."),
            ("Vacuum INTO 'x'", "carlos db only reads, and VACUUM does not."),
            (
                "SELECT 1; SELECT 2",
                "carlos db runs one statement at a time. remove everything after the first one.",
            ),
            ("replace into t values (1)", "carlos db only reads, and REPLACE does not."),
        ];
        for (sql, sentence) in cases {
            assert_eq!(check_query_sql(sql).unwrap_err().to_string(), sentence, "{sql}");
        }
    }

    #[test]
    fn length_is_counted_in_bytes_and_first() {
        assert_eq!(check_query_sql(&"a".repeat(MAX_SQL_BYTES)), Ok(()));
        let long = "\0".repeat(10_000_000);
        assert_eq!(check_query_sql(&long), Err(Refusal::TooLong { bytes: 10_000_000 }));
        assert_eq!(check_query_bytes(&[0xff; 3]), Err(Refusal::NotText));
        assert_eq!(check_query_bytes(b"SELECT 1"), Ok("SELECT 1"));
    }

    proptest! {
        #[test]
        fn no_text_panics(sql in "[-';\"`\\[\\]/*. \na\u{e9}\u{fffd}\0.x]{0,40}") {
            let _ = check_query_sql(&sql);
        }
    }
}
