//! A guarded connection: everything that is set before a tenant's statement is looked at.

use std::path::Path;
use std::time::Duration;

use carlos_protocol::limits::{MESSAGE_BYTES, SQL_BYTES};
use rusqlite::config::DbConfig;
use rusqlite::limits::Limit;
use rusqlite::{Connection, Error, ErrorCode, OpenFlags, ffi};

use crate::guard::{Authorizer, Refusal, Shadows};
use crate::runner::{Limits, QueryError};
use crate::stop::{Stop, Watch};

/// A connection on one file that can only read it, under a clock and a stop.
///
/// What holds, from the outside in: `mode=ro` and `immutable=1` (no lock, no journal, no write to
/// the file), `query_only` (no write at all), no attachable database, defensive mode (no write to
/// shadow tables or the schema), and the authorizer (no statement that would try).
#[derive(Debug)]
pub(crate) struct Session {
    // Dropped first: the stop lets go before the connection closes.
    watch: Watch,
    authorizer: Authorizer,
    stop: Stop,
    conn: Connection,
}

impl Session {
    pub(crate) fn open(path: &Path, limits: &Limits, stop: &Stop) -> Result<Self, QueryError> {
        let flags = OpenFlags::SQLITE_OPEN_READ_ONLY
            | OpenFlags::SQLITE_OPEN_URI
            | OpenFlags::SQLITE_OPEN_NO_MUTEX;
        let mut conn = Connection::open_with_flags(uri(path), flags).map_err(setup)?;
        let watch = stop.watch(&mut conn, limits.time).map_err(setup)?;
        watch.check()?;
        let mut session =
            Self { watch, authorizer: Authorizer::default(), stop: stop.clone(), conn };
        session.guard(limits.heap).map_err(|error| session.explain(&error))?;
        if !local_time_is_utc(&session.conn) {
            return Err(QueryError::Setup("this process does not run on UTC".to_owned()));
        }
        Ok(session)
    }

    /// Sets the switches and bounds and reads the schema; from then on nothing is compiled that the
    /// authorizer does not let through.
    fn guard(&mut self, heap: u64) -> rusqlite::Result<()> {
        configure(&self.conn, heap)?;
        bound(&self.conn)?;
        let shadows = Shadows::of(&self.conn)?;
        // Only now: SQLite parses the schema under the same limit, and a schema may hold a longer
        // statement than a person may send.
        self.conn.set_limit(Limit::SQLITE_LIMIT_SQL_LENGTH, SQL_BYTES as i32)?;
        self.authorizer = Authorizer::install(&mut self.conn, shadows)?;
        Ok(())
    }

    pub(crate) fn conn(&self) -> &Connection {
        &self.conn
    }

    /// What was compiled on this connection so far, as the authorizer heard it.
    pub(crate) fn authorizer(&self) -> &Authorizer {
        &self.authorizer
    }

    pub(crate) fn check(&self) -> Result<(), QueryError> {
        self.watch.check()
    }

    pub(crate) fn now(&self) -> Duration {
        self.stop.now()
    }

    /// What an error of SQLite's means for the person.
    pub(crate) fn explain(&self, error: &Error) -> QueryError {
        let text = text_of(error);
        match error.sqlite_error().map(|error| (error.code, error.extended_code)) {
            Some((ErrorCode::OperationInterrupted, _)) => {
                self.check().err().unwrap_or(QueryError::Cancelled)
            }
            Some((ErrorCode::OutOfMemory, _) | (_, ffi::SQLITE_IOERR_NOMEM)) => QueryError::Memory,
            Some((ErrorCode::AuthorizationForStatementDenied, _)) => self.denied(),
            // A denied function is a plain error with this text.
            _ if text.starts_with("not authorized") => self.denied(),
            Some((ErrorCode::ReadOnly, _)) => {
                Refusal::NotAllowed { what: "it writes".to_owned() }.into()
            }
            _ => QueryError::Sql(bounded(text)),
        }
    }

    fn denied(&self) -> QueryError {
        match self.authorizer.denied() {
            Some(what) => Refusal::NotAllowed { what }.into(),
            // rusqlite's callback fails on such a name before it asks ours.
            None => QueryError::Sql("a name in the database is not UTF-8 text".to_owned()),
        }
    }
}

/// Whether SQLite's `localtime` is UTC in this process, as byte-identical answers need (T6).
///
/// Whoever starts a worker or runs a query in its own process sets `TZ=UTC` in its environment;
/// [`crate::run`] refuses to run otherwise. The instants asked about lie in both halves of a year
/// and in three decades, so that no zone with an offset or a summer time agrees at all of them.
pub(crate) fn local_time_is_utc(conn: &Connection) -> bool {
    const INSTANTS: &str = "SELECT count(*) FROM (VALUES (0), (457_488_000), (646_790_400), \
        (1_768_435_200), (1_784_073_600)) WHERE datetime(column1, 'unixepoch', 'localtime') \
        IS NOT datetime(column1, 'unixepoch')";
    conn.query_row(INSTANTS, [], |row| row.get::<_, i64>(0)).is_ok_and(|different| different == 0)
}

/// Switches of the connection.
fn configure(conn: &Connection, heap: u64) -> rusqlite::Result<()> {
    use DbConfig::*;
    for (switch, on) in [
        (SQLITE_DBCONFIG_DEFENSIVE, true),
        // Views over FTS, R-Tree, JSON and dbstat must work; what they may call is on the
        // authorizer's lists all the same.
        (SQLITE_DBCONFIG_TRUSTED_SCHEMA, true),
        (SQLITE_DBCONFIG_ENABLE_TRIGGER, false),
        (SQLITE_DBCONFIG_ENABLE_FTS3_TOKENIZER, false),
        (SQLITE_DBCONFIG_WRITABLE_SCHEMA, false),
        (SQLITE_DBCONFIG_ENABLE_ATTACH_CREATE, false),
        (SQLITE_DBCONFIG_ENABLE_ATTACH_WRITE, false),
        (SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, true),
    ] {
        conn.set_db_config(switch, on)?;
    }
    // The heap limit first: it holds for the reading of the schema, too.
    conn.execute_batch(&format!(
        "PRAGMA hard_heap_limit={heap}; PRAGMA query_only=ON; PRAGMA temp_store=MEMORY; \
         PRAGMA mmap_size=0; PRAGMA cell_size_check=ON; PRAGMA cache_size=-{CACHE_KIB};"
    ))
}

/// 16 MiB of page cache: enough that an index join does not read the same pages again and again,
/// little of [`crate::HEAP_BYTES`].
const CACHE_KIB: u32 = 16 * 1024;

/// Longest text, blob or row that SQLite makes or reads: half of the heap, as making one often
/// needs two.
const MAX_VALUE_BYTES: i32 = 128 * 1024 * 1024;

/// Longest pattern of LIKE and GLOB. Matching looks at no clock and costs up to pattern times
/// text, so this number, not the deadline, bounds it.
const MAX_PATTERN_BYTES: i32 = 1_000;

/// Instructions of one compiled statement: what SQLite's documentation advises for foreign SQL,
/// and some times what 64 KB of SELECT compile to.
const MAX_INSTRUCTIONS: i32 = 250_000;

/// SQLite's own default, stated: deep trees recurse on the stack.
const MAX_EXPRESSION_DEPTH: i32 = 1_000;

/// As many as values can come; a statement that names `?32766` would allocate for all of them.
const MAX_VARIABLES: i32 = carlos_protocol::limits::PARAMS as i32;

fn bound(conn: &Connection) -> rusqlite::Result<()> {
    for (limit, most) in [
        (Limit::SQLITE_LIMIT_ATTACHED, 0),
        (Limit::SQLITE_LIMIT_WORKER_THREADS, 0),
        (Limit::SQLITE_LIMIT_TRIGGER_DEPTH, 1),
        (Limit::SQLITE_LIMIT_LENGTH, MAX_VALUE_BYTES),
        (Limit::SQLITE_LIMIT_LIKE_PATTERN_LENGTH, MAX_PATTERN_BYTES),
        (Limit::SQLITE_LIMIT_VDBE_OP, MAX_INSTRUCTIONS),
        (Limit::SQLITE_LIMIT_EXPR_DEPTH, MAX_EXPRESSION_DEPTH),
        (Limit::SQLITE_LIMIT_VARIABLE_NUMBER, MAX_VARIABLES),
    ] {
        conn.set_limit(limit, most)?;
    }
    Ok(())
}

/// The file as a URI: every byte that could mean something in one is escaped.
fn uri(path: &Path) -> String {
    let mut uri = String::from("file:");
    let bytes = path.as_os_str().as_encoded_bytes();
    if bytes.first() == Some(&b'/') {
        // An empty authority, so that a path of two slashes is not taken for one.
        uri.push_str("//");
    } else if cfg!(windows) && path.is_absolute() {
        uri.push_str("///");
    }
    for byte in bytes {
        match byte {
            b'\\' if cfg!(windows) => uri.push('/'),
            b':' if cfg!(windows) => uri.push(':'),
            b'/' | b'.' | b'-' | b'_' | b'~' => uri.push(char::from(*byte)),
            byte if byte.is_ascii_alphanumeric() => uri.push(char::from(*byte)),
            byte => uri.push_str(&format!("%{byte:02x}")),
        }
    }
    uri.push_str("?mode=ro&immutable=1");
    uri
}

fn setup(error: Error) -> QueryError {
    QueryError::Setup(bounded(text_of(&error)))
}

/// SQLite's message, without rusqlite's words around it.
fn text_of(error: &Error) -> String {
    match error {
        Error::SqliteFailure(_, Some(text)) => text.clone(),
        Error::SqlInputError { msg, .. } => msg.clone(),
        other => other.to_string(),
    }
}

/// Messages quote the query and the data; what travels is bounded.
pub(crate) fn bounded(mut text: String) -> String {
    text.truncate(text.floor_char_boundary(MESSAGE_BYTES));
    text
}

#[cfg(test)]
mod tests {
    use std::path::PathBuf;

    use super::*;

    fn database(dir: &Path) -> PathBuf {
        let file = dir.join("a ?#%25.db");
        let conn = Connection::open(&file).unwrap();
        conn.execute_batch("CREATE TABLE t(c); CREATE VIRTUAL TABLE area USING rtree(id, a, b)")
            .unwrap();
        file
    }

    fn open(file: &Path) -> Session {
        let stop = Stop::new(|| Duration::ZERO);
        Session::open(file, &Limits::default(), &stop).unwrap()
    }

    /// The authorizer is not all there is: each layer below it refuses on its own.
    #[test]
    fn without_the_authorizer_nothing_is_written_either() {
        let dir = tempfile::tempdir().unwrap();
        let file = database(dir.path());
        let before = std::fs::read(&file).unwrap();
        let mut session = open(&file);
        session.conn.authorizer(None::<fn(rusqlite::hooks::AuthContext<'_>) -> _>).unwrap();
        let target = dir.path().join("new.db").display().to_string();
        for (sql, refused) in [
            ("ATTACH ':memory:' AS n".to_owned(), "too many attached databases - max 0"),
            (format!("ATTACH '{target}' AS n"), "too many attached databases - max 0"),
            (format!("VACUUM INTO '{target}'"), "too many attached databases - max 0"),
            ("DELETE FROM area_node".to_owned(), "table area_node may not be modified"),
            ("CREATE TEMP TABLE x(a)".to_owned(), "attempt to write a readonly database"),
            ("DELETE FROM t".to_owned(), "attempt to write a readonly database"),
            ("SELECT load_extension('x')".to_owned(), "not authorized"),
            ("SELECT fts3_tokenizer('simple', x'00')".to_owned(), "fts3tokenize disabled"),
        ] {
            let error = session.conn.execute_batch(&sql).unwrap_err();
            assert_eq!(text_of(&error), refused, "{sql}");
        }
        session.conn.execute_batch("PRAGMA query_only = OFF").unwrap();
        let error = session.conn.execute_batch("DELETE FROM t").unwrap_err();
        assert_eq!(text_of(&error), "attempt to write a readonly database");
        assert_eq!(std::fs::read(&file).unwrap(), before);
        assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 1, "no other file appears");
    }

    #[test]
    fn a_path_is_a_path_and_never_a_parameter() {
        assert_eq!(
            uri(Path::new("/a b?mode=rw#%41")),
            "file:///a%20b%3fmode%3drw%23%2541?mode=ro&immutable=1"
        );
        assert_eq!(uri(Path::new("//x/y")), "file:////x/y?mode=ro&immutable=1");
        assert_eq!(uri(Path::new("x.db")), "file:x.db?mode=ro&immutable=1");
    }

    #[test]
    fn messages_are_cut_at_a_character() {
        let text = bounded("\u{e9}".repeat(MESSAGE_BYTES));
        assert!(text.len() <= MESSAGE_BYTES && text.ends_with('\u{e9}'));
    }
}
