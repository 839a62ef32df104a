//! What can be said about a statement from its text alone.
//!
//! Client, console and worker call the same check (db-forward §5.5 steps 2 and 3, §8.3), so that
//! what no box would run is neither sent nor signed. It makes good messages early and guards
//! nothing: what holds is SQLite's authorizer in the worker.

mod pragmas;

use thiserror::Error;

use crate::limits::SQL_BYTES;
pub use pragmas::pragma_allowed;

/// Why a text is not one statement that reads. The sentence is for the person who typed it.
#[derive(Clone, Debug, Eq, Error, PartialEq)]
pub enum Refusal {
    /// A dot-command of the sqlite3 shell.
    #[error("{command} is a command of the sqlite3 shell, not SQL.")]
    DotCommand {
        /// The word with its dot, cut to a few characters.
        command: String,
    },
    /// No statement: nothing, white space, comments or semicolons.
    #[error("the query is empty.")]
    Empty,
    /// Bytes that are not UTF-8, or U+FFFD: JSON would rewrite them (DBF-32).
    #[error("the query holds bytes that are not UTF-8 text or the character U+FFFD.")]
    NotText,
    /// SQLite reads up to a NUL and would drop the rest silently.
    #[error("the query holds a NUL byte. remove it and run it again.")]
    Nul,
    /// A pragma that sets something, or is on no list.
    #[error("carlos db only reads, so this query is not run. PRAGMA {pragma} is not allowed.")]
    Pragma {
        /// Its name, cut to a few characters, and whether it has a value.
        pragma: String,
    },
    /// More text than a request may carry.
    #[error("the query is {bytes} bytes long. carlos db takes at most 64 KB.")]
    TooLong {
        /// Its length.
        bytes: usize,
    },
    /// More than one statement.
    #[error("carlos db runs one statement at a time. remove everything after the first one.")]
    TwoStatements,
    /// A statement that begins with a verb that cannot read.
    #[error("carlos db only reads, and {verb} does not.")]
    Verb {
        /// The verb, in upper case.
        verb: &'static str,
    },
}

/// Refuses, with a good sentence, text that cannot be one reading statement.
///
/// Whatever it refuses, SQLite or the authorizer would refuse, too; the reverse does not hold, so
/// passing means nothing.
///
/// # Errors
/// What is wrong with the text; its length first, so that no bound is paid for by reading it.
pub fn check(sql: &str) -> Result<(), Refusal> {
    if sql.len() > SQL_BYTES {
        return Err(Refusal::TooLong { bytes: sql.len() });
    }
    if sql.contains('\0') {
        return Err(Refusal::Nul);
    }
    if sql.contains(char::REPLACEMENT_CHARACTER) {
        return Err(Refusal::NotText);
    }
    let mut tokens = Tokens(sql);
    tokens.skip_empty_statements();
    check_dot_command(tokens.0)?;
    check_verb(tokens.clone())?;
    check_one_statement(tokens)
}

/// [`check`] over bytes as they were typed or read from a file.
///
/// # Errors
/// As [`check`], and [`Refusal::NotText`] for bytes that are not UTF-8.
pub fn check_bytes(sql: &[u8]) -> Result<&str, Refusal> {
    if sql.len() > SQL_BYTES {
        return Err(Refusal::TooLong { bytes: sql.len() });
    }
    let sql = std::str::from_utf8(sql).map_err(|_| Refusal::NotText)?;
    check(sql)?;
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

/// Enough of a mistyped word to recognise it.
const SHOWN: usize = 24;

fn check_dot_command(statement: &str) -> Result<(), Refusal> {
    let Some(rest) = statement.strip_prefix('.') else { return Ok(()) };
    if !rest.starts_with(|first: char| first.is_ascii_alphabetic()) {
        return Ok(());
    }
    let command = format!(".{}", cut(&rest[..word_len(rest)]));
    Err(Refusal::DotCommand { command })
}

fn check_verb(mut tokens: Tokens<'_>) -> Result<(), Refusal> {
    let Some(verb) = tokens.next() else { return Err(Refusal::Empty) };
    if verb.eq_ignore_ascii_case("PRAGMA") {
        return check_pragma(tokens);
    }
    match VERBS.iter().find(|writing| writing.eq_ignore_ascii_case(verb)) {
        Some(verb) => Err(Refusal::Verb { verb }),
        None => Ok(()),
    }
}

/// `PRAGMA [schema.]name`, `= value` or `(value)`. Anything else is no pragma, and SQLite says so.
fn check_pragma(mut tokens: Tokens<'_>) -> Result<(), Refusal> {
    let (Some(mut name), mut next) = (tokens.next(), tokens.next()) else { return Ok(()) };
    if next == Some(".") {
        let Some(second) = tokens.next() else { return Ok(()) };
        (name, next) = (second, tokens.next());
    }
    let name = unquoted(name);
    let value = next.filter(|next| matches!(*next, "=" | "("));
    if name.is_empty() || pragma_allowed(name, value) {
        return Ok(());
    }
    let valued = if value.is_some() { " with a value" } else { "" };
    Err(Refusal::Pragma { pragma: format!("{}{valued}", cut(name)) })
}

fn check_one_statement(mut tokens: Tokens<'_>) -> Result<(), Refusal> {
    tokens.find(|token| *token == ";");
    match tokens.find(|token| *token != ";") {
        Some(_) => Err(Refusal::TwoStatements),
        None => Ok(()),
    }
}

/// The tokens of a text, without white space and comments.
///
/// Near enough to SQLite's lexer to find words and where a statement ends: strings, quoted names
/// and variables are one token each, so are words and numbers; every other character is one.
#[derive(Clone)]
struct Tokens<'a>(&'a str);

impl<'a> Iterator for Tokens<'a> {
    type Item = &'a str;

    fn next(&mut self) -> Option<&'a str> {
        self.skip_blank();
        let (token, rest) = self.0.split_at(token_len(self.0));
        self.0 = rest;
        (!token.is_empty()).then_some(token)
    }
}

impl<'a> Tokens<'a> {
    fn skip_blank(&mut self) {
        while let Some(len) = blank_len(self.0) {
            self.0 = &self.0[len..];
        }
    }

    fn skip_empty_statements(&mut self) {
        self.skip_blank();
        while let Some(rest) = self.0.strip_prefix(';') {
            self.0 = rest;
            self.skip_blank();
        }
    }
}

/// Bytes of the white space or comment that a text begins with.
fn blank_len(sql: &str) -> Option<usize> {
    /// SQLite takes a byte order mark for white space.
    const SPACE: [char; 7] = [' ', '\t', '\n', '\x0b', '\x0c', '\r', '\u{feff}'];
    let first = sql.chars().next()?;
    match first {
        _ if SPACE.contains(&first) => Some(first.len_utf8()),
        '-' if sql.starts_with("--") => Some(through(sql, 2, "\n")),
        '/' if sql.starts_with("/*") => Some(through(sql, 2, "*/")),
        _ => None,
    }
}

fn token_len(sql: &str) -> usize {
    match sql.chars().next() {
        // A doubled quote stands for one, so the two halves are two tokens in a row: no matter.
        Some('\'') => through(sql, 1, "'"),
        Some('"') => through(sql, 1, "\""),
        Some('`') => through(sql, 1, "`"),
        Some('[') => through(sql, 1, "]"),
        Some('$' | '@' | ':' | '#') => variable_len(sql),
        Some(first) => word_len(sql).max(first.len_utf8()),
        None => 0,
    }
}

fn through(sql: &str, from: usize, end: &str) -> usize {
    sql[from..].find(end).map_or(sql.len(), |at| from + at + end.len())
}

/// `:name`, and Tcl's `$ns::name(index)`, whose index may hold anything but white space.
fn variable_len(sql: &str) -> usize {
    let mut len = 1;
    loop {
        let rest = &sql[len..];
        match word_len(rest) {
            0 if rest.starts_with("::") => len += 2,
            0 => break,
            word => len += word,
        }
    }
    let index = &sql[len..];
    if len == 1 || !index.starts_with('(') {
        return len;
    }
    let end = index.find(|c: char| c == ')' || c.is_ascii_whitespace() || c == '\x0b');
    match end {
        Some(end) if index[end..].starts_with(')') => len + end + 1,
        _ => len,
    }
}

/// Bytes of the identifier or number that a text begins with, or 0.
fn word_len(text: &str) -> usize {
    let ends = |c: char| c.is_ascii() && !c.is_ascii_alphanumeric() && c != '_' && c != '$';
    text.find(ends).unwrap_or(text.len())
}

fn unquoted(name: &str) -> &str {
    let open = |c| matches!(c, '\'' | '"' | '`' | '[');
    let close = |c| matches!(c, '\'' | '"' | '`' | ']');
    name.strip_prefix(open).and_then(|name| name.strip_suffix(close)).unwrap_or(name)
}

fn cut(word: &str) -> &str {
    &word[..word.floor_char_boundary(SHOWN)]
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
            "SELECT \";\", [;], `;`, 'it''s; fine', x'3b', $a::b(;)",
            "WITH a AS (SELECT 1) SELECT * FROM a",
            "VALUES (1)",
            "EXPLAIN QUERY PLAN SELECT 1",
            "PRAGMA table_info(t)",
            "PRAGMA main . \"table_info\"('t')",
            "pragma user_version;",
            "SELECT 1 /* open ; SELECT 2",
            "SELECT 'open ; SELECT 2",
            "\u{feff}SELECT .5",
            "delete$ not the verb",
        ] {
            assert_eq!(check(sql), Ok(()), "{sql}");
        }
    }

    #[test]
    fn two_statements_are_named() {
        for sql in ["SELECT 1; SELECT 2", ";;SELECT 1;;x", "SELECT 1;--a\nDROP TABLE t"] {
            assert_eq!(check(sql), Err(Refusal::TwoStatements), "{sql}");
        }
    }

    #[test]
    fn each_bad_text_has_its_sentence() {
        let cases: [(&str, &str); 10] = [
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
            ("replace into t values (1)", "carlos db only reads, and REPLACE does not."),
            (
                "SELECT 1; SELECT 2",
                "carlos db runs one statement at a time. remove everything after the first one.",
            ),
            (
                "PRAGMA journal_mode = off",
                "carlos db only reads, so this query is not run. PRAGMA journal_mode with a value \
                 is not allowed.",
            ),
        ];
        for (sql, sentence) in cases {
            assert_eq!(check(sql).unwrap_err().to_string(), sentence, "{sql}");
        }
    }

    /// What only SQLite can tell is left to it: the worker's tests count on getting that far.
    #[test]
    fn a_verb_inside_is_none_of_the_texts_business() {
        for sql in ["WITH a AS (SELECT 1) DELETE FROM t", "EXPLAIN DROP TABLE t"] {
            assert_eq!(check(sql), Ok(()), "{sql}");
        }
    }

    #[test]
    fn pragmas_that_set_or_are_on_no_list_are_named() {
        for (sql, shown) in [
            ("PRAGMA query_only", "query_only"),
            ("pragma main.journal_mode(off)", "journal_mode with a value"),
            ("PRAGMA /* x */ [user_version] = 7", "user_version with a value"),
            ("PRAGMA 'writable_schema'=1", "writable_schema with a value"),
            ("PRAGMA a_name_that_is_longer_than_what_is_shown", "a_name_that_is_longer_th"),
        ] {
            assert_eq!(check(sql), Err(Refusal::Pragma { pragma: shown.into() }), "{sql}");
        }
    }

    #[test]
    fn length_is_counted_in_bytes_and_first() {
        assert_eq!(check(&"a".repeat(SQL_BYTES)), Ok(()));
        let long = "\0".repeat(10_000_000);
        assert_eq!(check(&long), Err(Refusal::TooLong { bytes: 10_000_000 }));
        assert_eq!(check_bytes(&[0xff; 3]), Err(Refusal::NotText));
        assert_eq!(check_bytes(b"SELECT 1"), Ok("SELECT 1"));
    }

    proptest! {
        #[test]
        fn no_text_panics(sql in "[-';\"`\\[\\]/*(). \na\u{e9}\u{fffd}\0.x$:@#]{0,40}") {
            let _ = check(&sql);
        }

        #[test]
        fn the_tokens_and_what_is_between_them_are_the_text(
            sql in "[-';\"/*(). \na\u{e9}x$:]{0,40}",
        ) {
            let (mut tokens, mut end) = (Tokens(&sql), 0);
            while let Some(token) = tokens.next() {
                let start = sql.len() - tokens.0.len() - token.len();
                prop_assert!(start >= end && Tokens(&sql[end..start]).next().is_none());
                end = start + token.len();
            }
        }

        /// A semicolon outside of quotes and comments ends the statement, whatever stands around.
        #[test]
        fn whatever_follows_a_statement_is_a_second_one(
            literal in "[-;/*a \n]{0,20}",
            blank in prop::sample::select(vec!["", " ", "-- ;\n", "/* ' */"]),
        ) {
            let first = format!("SELECT '{literal}', \"{literal}\"{blank};{blank}");
            prop_assert_eq!(check(&first), Ok(()));
            prop_assert_eq!(check(&format!("{first}x")), Err(Refusal::TwoStatements));
        }
    }
}
