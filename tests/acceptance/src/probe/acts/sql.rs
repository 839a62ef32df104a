//! What SQLite would do for a statement if its own limits and the authorizer were gone: the
//! connection here has neither.

use std::path::Path;

use rusqlite::Connection;

use super::Attempt;

/// Whatever a member's statement could name.
pub(super) fn attach(scratch: &Path) -> Attempt {
    let db = own(scratch)?;
    db.execute("ATTACH '/data/registry.db' AS other", [])?;
    let rows: i64 = db.query_row("SELECT count(*) FROM other.tenants", [], |row| row.get(0))?;
    Ok(format!("{rows} rows"))
}

pub(super) fn vacuum_into(scratch: &Path) -> Attempt {
    let db = own(scratch)?;
    let target = format!("/data/open/copy-{}.db", std::process::id());
    db.execute("VACUUM INTO ?1", [&target])?;
    Ok(target)
}

fn own(scratch: &Path) -> rusqlite::Result<Connection> {
    let db = Connection::open(scratch.join("own.db"))?;
    db.execute_batch("CREATE TABLE IF NOT EXISTS t(a); INSERT INTO t VALUES (1)")?;
    Ok(db)
}
