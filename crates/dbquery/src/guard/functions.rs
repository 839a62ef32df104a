//! Which SQL functions a query may call.
//!
//! SQLite's own functions are a closed set, as nothing here registers more, so they are listed one
//! by one: a function that a later SQLite brings is denied until someone has looked at it. A test
//! holds the list against the SQLite that is built in.

/// Functions that only compute, in byte order. Those that need an index (`bm25`, `snippet`) read
/// it; `rtreecheck` reads a whole R-Tree, which the query's clock bounds.
const COMPUTING: [&str; 151] = [
    "->",
    "->>",
    "abs",
    "acos",
    "acosh",
    "asin",
    "asinh",
    "atan",
    "atan2",
    "atanh",
    "avg",
    "bm25",
    "ceil",
    "ceiling",
    "changes",
    "char",
    "coalesce",
    "concat",
    "concat_ws",
    "cos",
    "cosh",
    "count",
    "cume_dist",
    "current_date",
    "current_time",
    "current_timestamp",
    "date",
    "datetime",
    "degrees",
    "dense_rank",
    "exp",
    "first_value",
    "floor",
    "format",
    "fts5_get_locale",
    "fts5_insttoken",
    "fts5_locale",
    "fts5_source_id",
    "glob",
    "group_concat",
    "hex",
    "highlight",
    "if",
    "ifnull",
    "iif",
    "instr",
    "json",
    "json_array",
    "json_array_insert",
    "json_array_length",
    "json_error_position",
    "json_extract",
    "json_group_array",
    "json_group_object",
    "json_insert",
    "json_object",
    "json_patch",
    "json_pretty",
    "json_quote",
    "json_remove",
    "json_replace",
    "json_set",
    "json_type",
    "json_valid",
    "jsonb",
    "jsonb_array",
    "jsonb_array_insert",
    "jsonb_extract",
    "jsonb_group_array",
    "jsonb_group_object",
    "jsonb_insert",
    "jsonb_object",
    "jsonb_patch",
    "jsonb_remove",
    "jsonb_replace",
    "jsonb_set",
    "julianday",
    "lag",
    "last_insert_rowid",
    "last_value",
    "lead",
    "length",
    "like",
    "likelihood",
    "likely",
    "ln",
    "log",
    "log10",
    "log2",
    "lower",
    "ltrim",
    "match",
    "matchinfo",
    "max",
    "min",
    "mod",
    "nth_value",
    "ntile",
    "nullif",
    "octet_length",
    "offsets",
    "percent_rank",
    "pi",
    "pow",
    "power",
    "printf",
    "quote",
    "radians",
    "random",
    "randomblob",
    "rank",
    "replace",
    "round",
    "row_number",
    "rtreecheck",
    "rtreedepth",
    "rtreenode",
    "rtrim",
    "sign",
    "sin",
    "sinh",
    "snippet",
    "soundex",
    "sqlite_compileoption_get",
    "sqlite_compileoption_used",
    "sqlite_source_id",
    "sqlite_version",
    "sqrt",
    "strftime",
    "string_agg",
    "substr",
    "substring",
    "subtype",
    "sum",
    "tan",
    "tanh",
    "time",
    "timediff",
    "total",
    "total_changes",
    "trim",
    "trunc",
    "typeof",
    "unhex",
    "unicode",
    "unistr",
    "unistr_quote",
    "unixepoch",
    "unlikely",
    "upper",
    "zeroblob",
];

/// Whether a query may call this function.
///
/// Known and denied: `load_extension` (runs foreign code), `fts3_tokenizer` (hands out and takes
/// pointers), `fts5` (hands the module's interface to a bound pointer), `optimize` (rewrites an
/// FTS index), `sqlite_log` (writes to the process's error log).
pub(super) fn allowed(name: &str) -> bool {
    // SQLite names a function as it was registered: in lower case.
    COMPUTING.binary_search(&name).is_ok()
}

#[cfg(test)]
mod tests {
    use rusqlite::Connection;

    use super::*;

    /// Denied on purpose, each for the reason given at [`allowed`].
    const DENIED: [&str; 5] =
        ["fts3_tokenizer", "fts5", "load_extension", "optimize", "sqlite_log"];

    #[test]
    fn every_built_in_function_was_looked_at() {
        assert!(COMPUTING.is_sorted());
        let conn = Connection::open_in_memory().unwrap();
        let mut statement = conn.prepare("SELECT DISTINCT name FROM pragma_function_list").unwrap();
        let names = statement.query_map([], |row| row.get::<_, String>(0)).unwrap();
        let names: Vec<String> = names.map(Result::unwrap).collect();
        assert!(names.len() > 150);
        for name in &names {
            assert_ne!(allowed(name), DENIED.contains(&name.as_str()), "{name}");
        }
        for name in COMPUTING {
            assert!(names.iter().any(|known| known == name), "{name} is not built in");
        }
    }
}
