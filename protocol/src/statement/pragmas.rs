//! Which pragmas a query may use.
//!
//! One list serves the three forms: `PRAGMA x`, `PRAGMA x=v` or `PRAGMA x(v)`, and the table
//! function `pragma_x(v)`, because the last compiles one of the first two and SQLite asks the
//! authorizer about that. What is not listed is denied; so are pragmas of later versions.

/// How a listed pragma may be written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Form {
    /// Without a value: with one it would set something.
    Bare,
    /// With or without a value: the value names what to look at.
    Any,
}

/// The reading pragmas, each with what needs it. All answer from the database alone, and none
/// leaves a trace in the connection.
///
/// Left out on purpose: `database_list` (names the scratch file, and would differ between two
/// places that must print the same), every switch in its reading form (`query_only`,
/// `writable_schema`, `journal_mode`, ...: a person asks about data, and a bare form that is safe
/// today is one SQLite release from doing something), `optimize` and `incremental_vacuum` (write),
/// `wal_checkpoint`, `shrink_memory`, both heap limits (set even when bare means read in others),
/// `stats` and `lock_status` (debugging).
const READING: [(&str, Form); 23] = [
    ("application_id", Form::Bare),
    ("collation_list", Form::Bare),
    ("compile_options", Form::Bare),
    // FTS5 asks for it before every query, to know whether its cache is stale.
    ("data_version", Form::Bare),
    ("encoding", Form::Bare),
    ("foreign_key_check", Form::Any),
    ("foreign_key_list", Form::Any),
    ("freelist_count", Form::Bare),
    ("function_list", Form::Bare),
    ("index_info", Form::Any),
    ("index_list", Form::Any),
    ("index_xinfo", Form::Any),
    // Reads every page, so it costs time, which the query's wall clock bounds.
    ("integrity_check", Form::Any),
    ("module_list", Form::Bare),
    ("page_count", Form::Bare),
    // FTS3 and FTS4 ask for it when they open a table.
    ("page_size", Form::Bare),
    ("pragma_list", Form::Bare),
    ("quick_check", Form::Any),
    ("schema_version", Form::Bare),
    ("table_info", Form::Any),
    ("table_list", Form::Any),
    ("table_xinfo", Form::Any),
    ("user_version", Form::Bare),
];

/// Whether a query may use this pragma, with or without a value.
pub fn pragma_allowed(name: &str, value: Option<&str>) -> bool {
    READING.iter().any(|(reading, form)| {
        reading.eq_ignore_ascii_case(name) && (value.is_none() || *form == Form::Any)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_only_where_they_name_something_to_look_at() {
        assert!(pragma_allowed("Table_Info", Some("t")));
        assert!(pragma_allowed("data_version", None));
        assert!(!pragma_allowed("data_version", Some("1")));
        assert!(!pragma_allowed("user_version", Some("7")));
        assert!(!pragma_allowed("query_only", None));
        assert!(!pragma_allowed("query_only", Some("OFF")));
        assert!(!pragma_allowed("no_such_pragma", None));
    }
}
