//! The authorizer: deny by default, at compile time, for the statement and all it pulls in.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use carlos_protocol::statement::pragma_allowed;
use rusqlite::Connection;
use rusqlite::hooks::{AuthAction, AuthContext, Authorization};

use super::functions;

/// Puts the authorizer on a connection and remembers what it was asked: the first thing it denied,
/// for the sentence, and what is read, for the check of exactly that.
#[derive(Clone, Debug, Default)]
pub(crate) struct Authorizer {
    heard: Arc<Mutex<Heard>>,
}

#[derive(Debug, Default)]
struct Heard {
    denied: Option<String>,
    tables: BTreeSet<String>,
    /// Something that reads tables without naming them.
    more: bool,
}

impl Authorizer {
    /// From here on the connection compiles only what [`verdict`] allows.
    pub(crate) fn install(conn: &mut Connection, shadows: Shadows) -> rusqlite::Result<Self> {
        let authorizer = Self::default();
        let heard = Arc::clone(&authorizer.heard);
        conn.authorizer(Some(move |context: AuthContext<'_>| {
            let mut heard = heard.lock().unwrap_or_else(PoisonError::into_inner);
            if let Err(what) = verdict(&context.action, &shadows) {
                heard.denied.get_or_insert(what);
                return Authorization::Deny;
            }
            heard.note(&context.action);
            Authorization::Allow
        }))?;
        Ok(authorizer)
    }

    /// What was denied first, if anything was.
    pub(crate) fn denied(&self) -> Option<String> {
        self.heard().denied.clone()
    }

    /// The tables that what was compiled reads, in lower case, if it names all of them.
    pub(crate) fn tables(&self) -> Option<BTreeSet<String>> {
        let heard = self.heard();
        (!heard.more).then(|| heard.tables.clone())
    }

    fn heard(&self) -> MutexGuard<'_, Heard> {
        self.heard.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Heard {
    fn note(&mut self, action: &AuthAction<'_>) {
        match action {
            // As typed or as declared: SQLite says now one and now the other.
            AuthAction::Read { table_name, .. } => {
                let name = table_name.to_ascii_lowercase();
                self.more |= name == "pragma_foreign_key_check";
                self.tables.insert(name);
            }
            AuthAction::Pragma { pragma_name, .. } => {
                self.more |= pragma_name.eq_ignore_ascii_case("foreign_key_check");
            }
            _ => {}
        }
    }
}

/// The shadow tables that R-Tree compiles writes to when it only reads.
///
/// Its module prepares INSERT, DELETE and UPDATE statements on its own `_node`, `_rowid` and
/// `_parent` tables as soon as the virtual table is opened. The authorizer cannot tell those from
/// the person's, so it allows them by name; defensive mode refuses a person's write to a shadow
/// table, and `query_only`, `mode=ro` and `immutable=1` each refuse any write.
#[derive(Clone, Debug, Default)]
pub(crate) struct Shadows {
    tables: Vec<String>,
}

impl Shadows {
    /// The R-Tree shadow tables that the schema implies, bounded by [`MAX_RTREES`].
    pub(crate) fn of(conn: &Connection) -> rusqlite::Result<Self> {
        let mut statement = conn.prepare(RTREES)?;
        let mut rows = statement.query([])?;
        let mut tables = Vec::new();
        while let Some(row) = rows.next()? {
            // A name that is not UTF-8 cannot reach the authorizer either: it fails before.
            let Ok(name) = row.get_ref(0)?.as_str() else { continue };
            tables.extend(["node", "rowid", "parent"].map(|part| format!("{name}_{part}")));
        }
        Ok(Self { tables })
    }

    fn hold(&self, table: &str) -> bool {
        self.tables.iter().any(|shadow| shadow.eq_ignore_ascii_case(table))
    }
}

/// More R-Trees than any real schema has; the list is searched for each table name compiled.
const MAX_RTREES: usize = 1_000;

/// `rootpage` is 0 or NULL for virtual tables. The text match may find too much, never too little:
/// the module's name has to be in the statement.
const RTREES: &str = "SELECT name FROM main.sqlite_schema WHERE type = 'table' \
    AND coalesce(rootpage, 0) = 0 AND sql LIKE '%rtree%' LIMIT 1000";
const _: () = assert!(MAX_RTREES == 1_000, "the LIMIT above says the same");

/// What a query may do: `Ok`, or what it would have done, in words.
///
/// | action (code) | verdict |
/// |---|---|
/// | SELECT (21), READ (20), RECURSIVE (33) | allowed |
/// | FUNCTION (31) | allowed when on the list of `functions.rs` |
/// | PRAGMA (19) | allowed when on the list of [`pragma_allowed`] |
/// | INSERT (18), UPDATE (23), DELETE (9) | denied, except for R-Tree's own shadow tables |
/// | CREATE, DROP and their TEMP forms (1-8, 10-17), CREATE and DROP VTABLE (29, 30) | denied |
/// | ALTER TABLE (26), REINDEX (27), ANALYZE (28) | denied |
/// | ATTACH (24; VACUUM asks for it, too, but only when it runs), DETACH (25) | denied |
/// | TRANSACTION (22), SAVEPOINT (32) | denied |
/// | anything else, also codes of later versions | denied |
fn verdict(action: &AuthAction<'_>, shadows: &Shadows) -> Result<(), String> {
    let what = match *action {
        AuthAction::Select | AuthAction::Read { .. } | AuthAction::Recursive => return Ok(()),
        AuthAction::Function { function_name } if functions::allowed(function_name) => {
            return Ok(());
        }
        AuthAction::Pragma { pragma_name, pragma_value }
            if pragma_allowed(pragma_name, pragma_value) =>
        {
            return Ok(());
        }
        AuthAction::Insert { table_name }
        | AuthAction::Delete { table_name }
        | AuthAction::Update { table_name, .. }
            if shadows.hold(table_name) =>
        {
            return Ok(());
        }
        ref denied => describe(denied),
    };
    Err(shorten(what))
}

/// The denied action as the second half of a sentence, naming what it acts on.
fn describe(action: &AuthAction<'_>) -> String {
    use AuthAction as A;
    match *action {
        A::Function { function_name } => format!("the function {function_name} is not allowed"),
        A::Pragma { pragma_name, pragma_value: None } => {
            format!("PRAGMA {pragma_name} is not allowed")
        }
        A::Pragma { pragma_name, .. } => {
            format!("PRAGMA {pragma_name} with a value is not allowed")
        }
        A::Insert { table_name } | A::Update { table_name, .. } | A::Delete { table_name } => {
            format!("it writes to {table_name}")
        }
        // VACUUM attaches its target when it runs.
        A::Attach { .. } => "it attaches or writes another file".to_owned(),
        A::Detach { database_name } => format!("it detaches {database_name}"),
        A::Transaction { .. } | A::Savepoint { .. } => "it controls a transaction".to_owned(),
        A::AlterTable { table_name, .. } | A::Analyze { table_name } => {
            format!("it changes {table_name}")
        }
        A::Reindex { index_name } => format!("it rebuilds {index_name}"),
        A::Unknown { code, .. } => format!("it does something unknown (action {code})"),
        _ => "it changes the schema".to_owned(),
    }
}

/// Names come from the query or the schema and can be as long as either.
fn shorten(mut what: String) -> String {
    const SHOWN: usize = 200;
    if what.len() > SHOWN {
        what.truncate(what.floor_char_boundary(SHOWN));
        what.push_str("...");
    }
    what
}

#[cfg(test)]
mod tests {
    use rusqlite::hooks::TransactionOperation;

    use super::*;

    /// Every action code of SQLite, with what a query is told.
    #[test]
    fn every_action_code_has_its_verdict() {
        use AuthAction as A;
        let schema = Err("it changes the schema");
        let (index_name, table_name, column_name) = ("i", "t", "c");
        let (trigger_name, view_name, module_name) = ("g", "v", "m");
        let operation = TransactionOperation::Begin;
        let table: [(A<'_>, Result<(), &str>); 34] = [
            (
                A::Unknown { code: 0, arg1: None, arg2: None },
                Err("it does something unknown (action 0)"),
            ),
            (A::CreateIndex { index_name, table_name }, schema),
            (A::CreateTable { table_name }, schema),
            (A::CreateTempIndex { index_name, table_name }, schema),
            (A::CreateTempTable { table_name }, schema),
            (A::CreateTempTrigger { trigger_name, table_name }, schema),
            (A::CreateTempView { view_name }, schema),
            (A::CreateTrigger { trigger_name, table_name }, schema),
            (A::CreateView { view_name }, schema),
            (A::Delete { table_name }, Err("it writes to t")),
            (A::DropIndex { index_name, table_name }, schema),
            (A::DropTable { table_name }, schema),
            (A::DropTempIndex { index_name, table_name }, schema),
            (A::DropTempTable { table_name }, schema),
            (A::DropTempTrigger { trigger_name, table_name }, schema),
            (A::DropTempView { view_name }, schema),
            (A::DropTrigger { trigger_name, table_name }, schema),
            (A::DropView { view_name }, schema),
            (A::Insert { table_name }, Err("it writes to t")),
            (
                A::Pragma { pragma_name: "query_only", pragma_value: None },
                Err("PRAGMA query_only is not allowed"),
            ),
            (A::Read { table_name, column_name }, Ok(())),
            (A::Select, Ok(())),
            (A::Transaction { operation }, Err("it controls a transaction")),
            (A::Update { table_name, column_name }, Err("it writes to t")),
            (A::Attach { filename: "f" }, Err("it attaches or writes another file")),
            (A::Detach { database_name: "d" }, Err("it detaches d")),
            (A::AlterTable { database_name: "d", table_name }, Err("it changes t")),
            (A::Reindex { index_name }, Err("it rebuilds i")),
            (A::Analyze { table_name }, Err("it changes t")),
            (A::CreateVtable { table_name, module_name }, schema),
            (A::DropVtable { table_name, module_name }, schema),
            (
                A::Function { function_name: "load_extension" },
                Err("the function load_extension is not allowed"),
            ),
            (A::Savepoint { operation, savepoint_name: "s" }, Err("it controls a transaction")),
            (A::Recursive, Ok(())),
        ];
        for (action, expected) in table {
            let verdict = verdict(&action, &Shadows::default());
            assert_eq!(verdict, expected.map_err(str::to_owned), "{action:?}");
        }
    }

    /// SQL for each action that writes or steps out, on a connection where only the authorizer
    /// stands in the way.
    #[test]
    fn the_authorizer_alone_denies_every_writing_statement() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("a.db");
        let mut conn = Connection::open(&file).unwrap();
        conn.execute_batch(
            "CREATE TABLE t(c); CREATE INDEX i ON t(c); CREATE VIEW v AS SELECT 1;
             CREATE TRIGGER g AFTER INSERT ON t BEGIN SELECT 1; END;
             CREATE TEMP TABLE tt(c); CREATE TEMP VIEW tv AS SELECT 1;
             CREATE TEMP TRIGGER tg AFTER INSERT ON t BEGIN SELECT 1; END;
             CREATE INDEX temp.ti ON tt(c); CREATE VIRTUAL TABLE f USING fts5(c)",
        )
        .unwrap();
        let before = std::fs::read(&file).unwrap();
        let authorizer = Authorizer::install(&mut conn, Shadows::default()).unwrap();
        for sql in WRITING {
            let sql = sql.replace("new.db", dir.path().join("new.db").to_str().unwrap());
            let error = conn.execute_batch(&sql).unwrap_err().to_string();
            assert!(error == "not authorized" || error == "authorization denied", "{sql}: {error}");
        }
        assert!(authorizer.denied().is_some());
        assert_eq!(std::fs::read(&file).unwrap(), before);
        assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 1, "no other file appears");
    }

    const WRITING: [&str; 34] = [
        "CREATE INDEX n ON t(c)",
        "CREATE TABLE n(c)",
        "CREATE TABLE n AS SELECT 1",
        "CREATE INDEX temp.n ON tt(c)",
        "CREATE TEMP TABLE n(c)",
        "CREATE TEMP TRIGGER n AFTER INSERT ON t BEGIN SELECT 1; END",
        "CREATE TEMP VIEW n AS SELECT 1",
        "CREATE TRIGGER n AFTER INSERT ON t BEGIN SELECT 1; END",
        "CREATE VIEW n AS SELECT 1",
        "DELETE FROM t",
        "WITH x AS (SELECT 1) DELETE FROM t RETURNING c",
        "DROP INDEX i",
        "DROP TABLE t",
        "DROP INDEX temp.ti",
        "DROP TABLE tt",
        "DROP TRIGGER tg",
        "DROP VIEW tv",
        "DROP TRIGGER g",
        "DROP VIEW v",
        "INSERT INTO t VALUES (1)",
        "REPLACE INTO t VALUES (1)",
        "PRAGMA user_version = 2",
        "BEGIN",
        "UPDATE t SET c = 1",
        "INSERT INTO t VALUES (1) ON CONFLICT DO UPDATE SET c = 2",
        "ATTACH 'new.db' AS n",
        "VACUUM INTO 'new.db'",
        "VACUUM",
        "ALTER TABLE t ADD COLUMN d",
        "REINDEX t",
        "ANALYZE t",
        "CREATE VIRTUAL TABLE n USING fts5(c)",
        "DROP TABLE f",
        "SAVEPOINT s",
    ];

    #[test]
    fn only_the_shadow_tables_of_a_real_rtree_are_let_through() {
        let conn = Connection::open_in_memory().unwrap();
        conn.execute_batch(
            "CREATE TABLE plain_node(x); CREATE VIRTUAL TABLE Area USING rtree(id, x0, x1);
             CREATE VIRTUAL TABLE words USING fts5(t);",
        )
        .unwrap();
        let shadows = Shadows::of(&conn).unwrap();
        for (table, let_through) in [
            ("area_node", true),
            ("Area_rowid", true),
            ("area_parent", true),
            ("Area", false),
            ("plain_node", false),
            ("words_data", false),
        ] {
            let action = AuthAction::Insert { table_name: table };
            assert_eq!(verdict(&action, &shadows).is_ok(), let_through, "{table}");
        }
    }

    #[test]
    fn long_names_are_cut_at_a_character() {
        let what = shorten("\u{e9}".repeat(500));
        assert!(what.len() <= 203 && what.ends_with("..."));
    }
}
