//! The exit codes of `carlos`: the contract a script relies on, listed in `docs/cli.md`.
//!
//! Which refusal has which code is decided once, in `carlos_protocol::copy`.

pub use carlos_protocol::copy::Exit;

/// Every way to end, with what it means, word for word as in `docs/cli.md`. stdout stays empty
/// unless it is the first.
pub const MEANINGS: [(Exit, &str); 17] = [
    (Exit::Done, "done"),
    (Exit::Unexpected, "something unexpected went wrong"),
    (Exit::Usage, "the command line is not right"),
    (Exit::NotFound, "not found, or not allowed, or not logged in"),
    (Exit::NoServer, "no server in the region can do it"),
    (Exit::Unfinished, "the read did not finish"),
    (Exit::BadAnswer, "the answer did not check out"),
    (Exit::Replica, "the replica cannot answer"),
    (Exit::TooLarge, "too large, no room, or over the output cap"),
    (Exit::Timeout, "it took too long"),
    (Exit::Sql, "the SQL was refused, or failed"),
    (Exit::Changed, "the instance changed, or is moving"),
    (Exit::Busy, "too many reads or requests"),
    (Exit::Unsound, "carlos doctor found a fault"),
    (Exit::Unclear, "carlos doctor could not find out everything"),
    (Exit::NotBuilt, "the command is not part of this build"),
    (Exit::Stopped, "stopped with Ctrl-C"),
];

#[cfg(test)]
mod tests {
    use carlos_protocol::copy::TABLE;

    use super::*;

    #[test]
    fn every_exit_of_the_copy_table_has_its_meaning() {
        for row in TABLE {
            let Some(exit) = row.exit else { continue };
            assert!(MEANINGS.iter().any(|(known, _)| *known == exit), "{}", row.id);
        }
    }

    #[test]
    fn the_documentation_has_exactly_this_table() {
        let doc = include_str!("../../docs/cli.md");
        let written: Vec<&str> = doc
            .lines()
            .skip_while(|line| !line.starts_with("| exit code |"))
            .skip(2)
            .take_while(|line| line.starts_with('|'))
            .collect();
        let row = |(exit, meaning): &(Exit, &str)| format!("| {} | {meaning} |", exit.code());
        assert_eq!(written, MEANINGS.iter().map(row).collect::<Vec<_>>());
    }

    #[test]
    fn every_sentence_has_its_entry_in_the_documentation() {
        let doc = include_str!("../../docs/errors.md");
        let entries: Vec<&str> = doc.lines().filter_map(|line| line.strip_prefix("## ")).collect();
        let ids: Vec<&str> = TABLE.iter().map(|row| row.id).collect();
        assert_eq!(entries, ids);
    }

    #[test]
    fn every_entry_names_its_exit_code() {
        let doc = one_line(include_str!("../../docs/errors.md"));
        for row in TABLE {
            let start = doc.find(&format!("## {} ", row.id)).expect("has an entry");
            let entry = doc[start + 3..].split(" ## ").next().unwrap_or_default();
            let Some(exit) = row.exit else { continue };
            let named = format!("Exit code {}.", exit.code());
            assert!(entry.contains(&named), "{} does not say {named:?}", row.id);
        }
    }

    #[test]
    fn the_documented_paragraphs_are_the_approved_ones() {
        let doc = one_line(&include_str!("../../docs/cli.md").replace('`', ""));
        for message in [carlos_protocol::copy::docs_db(), carlos_protocol::copy::docs_worker()] {
            assert!(doc.contains(&one_line(message.as_str())), "{}", message.id());
        }
    }

    /// The text without its line breaks, which say nothing in Markdown.
    fn one_line(text: &str) -> String {
        text.split_whitespace().collect::<Vec<_>>().join(" ")
    }
}
