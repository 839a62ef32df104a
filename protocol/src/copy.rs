//! Every sentence a person reads, in one table: id, the codes it answers, the CLI's exit code, text
//! (db-forward §10). Console, CLI and docs take their words from here and from nowhere else.
//!
//! `DBF-n` rows are db-forward §10's, verbatim. `DBL-n` rows are ours, in the same voice: lower
//! case at the start and after a full stop, no em dashes.

use std::fmt::{self, Display, Write as _};

use crate::limits::SQL_BYTES;
use crate::result::{Code, ReadResult, State};
use crate::statement;
use crate::summary::Summary;

/// The CLI's exit codes, as `docs/cli.md` lists them.
#[derive(Clone, Copy, Debug, Eq, Hash, Ord, PartialEq, PartialOrd)]
#[repr(u8)]
pub enum Exit {
    /// The rows are printed.
    Done = 0,
    /// Nobody planned for this.
    Unexpected = 1,
    /// The command line is not one the CLI understands.
    Usage = 2,
    /// Not found, or not allowed: the two are never told apart.
    NotFound = 10,
    /// No server in the region can read.
    NoServer = 11,
    /// The read did not finish.
    Unfinished = 12,
    /// The answer did not check out.
    BadAnswer = 13,
    /// The replica cannot answer.
    Replica = 14,
    /// Too large, no room, or over the output cap.
    TooLarge = 15,
    /// The query, or the person's own bound, ran out of time.
    Timeout = 16,
    /// The SQL was refused or failed.
    Sql = 17,
    /// The instance changed or is moving.
    Changed = 18,
    /// Too many reads or requests.
    Busy = 19,
    /// The doctor found a fault.
    Unsound = 20,
    /// The doctor found no fault and could not look at everything.
    Unclear = 21,
    /// This build has no such command.
    NotBuilt = 22,
    /// Ctrl-C.
    Stopped = 130,
}

impl Exit {
    /// The process's exit code.
    pub fn code(self) -> u8 {
        self as u8
    }
}

/// A row of the table.
#[derive(Clone, Copy, Debug)]
pub struct Row {
    /// `DBF-n` or `DBL-n`.
    pub id: &'static str,
    /// The codes it answers: those of `result.json`, or the program's own.
    pub codes: &'static [&'static str],
    /// How the CLI exits when it ends with this sentence; absent where it does not end.
    pub exit: Option<Exit>,
    /// The sentence, with `%s` and `%d` where arguments go.
    pub text: &'static str,
}

/// The row of an id, for example of an error body's `code`.
pub fn by_id(id: &str) -> Option<&'static Row> {
    TABLE.iter().find(|row| row.id == id)
}

/// A sentence with its arguments filled in. Safe to print: control characters in arguments are
/// escaped, because some of them come from a tenant's database.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Message {
    id: &'static str,
    exit: Option<Exit>,
    text: String,
}

impl Message {
    /// The row's id.
    pub fn id(&self) -> &'static str {
        self.id
    }

    /// The row's exit code; absent where the CLI does not end.
    pub fn exit(&self) -> Option<Exit> {
        self.exit
    }

    /// The sentence.
    pub fn as_str(&self) -> &str {
        &self.text
    }
}

impl Display for Message {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

/// The sentence of a result that is not done; `None` for a done one.
///
/// `summary` is what the client opened, when the result had one. A sentence that cannot be said
/// without it becomes the one of an answer that does not check out.
pub fn of_result(
    result: &ReadResult,
    summary: Option<&Summary>,
    host: impl Display,
    region: impl Display,
) -> Option<Message> {
    Some(match &result.code {
        Code::None if result.state == State::Done => return None,
        Code::None | Code::Interrupted => unfinished(host, region),
        Code::ChangedTwice => changed_twice(host),
        Code::CheckFailed => check_failed(host),
        Code::HistoryGone => match summary.and_then(|summary| summary.oldest) {
            Some(oldest) => history_gone(host, oldest),
            None => history_gone_unknown(host),
        },
        Code::Moving => moving_on_box(host),
        Code::NoRoom => no_room(region, host),
        Code::NothingReplicated => nothing_replicated(host),
        Code::OutputCap => output_cap(),
        Code::RecordChanged => record_changed(host),
        Code::SqlError => match summary.map(|summary| summary.sql_error.as_str()) {
            None | Some("") => bad_answer(region),
            Some(message) => sql_error(message),
        },
        Code::Timeout => timeout(),
        Code::TooLarge => match summary {
            None => bad_answer(region),
            Some(Summary { restored_bytes, cap_bytes, .. }) => {
                too_large(host, Bytes(*restored_bytes), Bytes(*cap_bytes), region)
            }
        },
        Code::Unknown(_) => unknown_code(&result.code),
    })
}

/// The sentence for a statement refused by its text. What JSON would rewrite has one of its own,
/// which names the region ([`not_sendable`]).
pub fn of_statement(refusal: &statement::Refusal) -> Message {
    match refusal {
        statement::Refusal::TooLong { bytes } => sql_too_long(bytes, SQL_BYTES),
        refusal => sql_refused(refusal),
    }
}

/// A size for a person: powers of 1024 with the short names that the docs use, at most one
/// decimal, rounded up so that a size above a bound never reads as the bound.
#[derive(Clone, Copy, Debug)]
pub struct Bytes(pub u64);

impl Display for Bytes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        const UNITS: [(u64, &str); 4] = [(40, "TB"), (30, "GB"), (20, "MB"), (10, "KB")];
        let unit = UNITS.into_iter().find(|(shift, _)| self.0 >> shift > 0);
        let Some((shift, name)) = unit else { return write!(f, "{} bytes", self.0) };
        let tenths = (u128::from(self.0) * 10).div_ceil(1 << shift);
        match tenths % 10 {
            0 => write!(f, "{} {name}", tenths / 10),
            tenth => write!(f, "{}.{tenth} {name}", tenths / 10),
        }
    }
}

/// A count of rows for a person.
#[derive(Clone, Copy, Debug)]
pub struct Rows(pub u64);

impl Display for Rows {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let noun = if self.0 == 1 { "row" } else { "rows" };
        write!(f, "{} {noun}", self.0)
    }
}

fn fill(row: &'static Row, arguments: &[&dyn Display]) -> Message {
    let mut text = String::with_capacity(row.text.len() + 64);
    let mut pieces = pieces(row.text);
    text.push_str(pieces.next().unwrap_or_default());
    for (argument, piece) in arguments.iter().zip(pieces) {
        push_escaped(&mut text, &argument.to_string());
        text.push_str(piece);
    }
    Message { id: row.id, exit: row.exit, text }
}

/// The text between the places where arguments go.
fn pieces(text: &'static str) -> impl Iterator<Item = &'static str> {
    text.split("%s").flat_map(|part| part.split("%d"))
}

/// Control characters, and the marks that reorder text, would drive a terminal.
fn push_escaped(to: &mut String, argument: &str) {
    for c in argument.chars() {
        if is_driving(c) {
            write!(to, "{}", c.escape_unicode()).expect("a String takes every write");
        } else {
            to.push(c);
        }
    }
}

/// Whether a terminal would act on the character instead of showing it.
pub fn is_driving(c: char) -> bool {
    let reorders = matches!(c, '\u{200e}' | '\u{200f}' | '\u{202a}'..='\u{202e}');
    c.is_control() || reorders || matches!(c, '\u{2066}'..='\u{2069}' | '\u{2028}' | '\u{2029}')
}

macro_rules! sentences {
    ($(
        $(#[$doc:meta])*
        $id:literal [$($code:literal),*] $exit:expr,
        $name:ident($($argument:ident),*) = $text:expr;
    )*) => {
        /// The whole table.
        pub const TABLE: &[Row] = &[$(
            Row { id: $id, codes: &[$($code),*], exit: $exit, text: $text },
        )*];

        /// How many arguments each sentence's function takes, in the table's order.
        #[cfg(test)]
        const ARITIES: &[usize] = &[$({
            let arguments: &[&str] = &[$(stringify!($argument)),*];
            arguments.len()
        },)*];

        $(
            $(#[$doc])*
            pub fn $name($($argument: impl Display),*) -> Message {
                static ROW: Row =
                    Row { id: $id, codes: &[$($code),*], exit: $exit, text: $text };
                fill(&ROW, &[$(&$argument),*])
            }
        )*
    };
}

use Exit::*;

sentences! {
    /// Console: no box in the region has the capability.
    "DBF-1" [] Some(NoServer), no_capable_box(host, region) =
        "%s keeps its data in region %s. no server in that region can read databases yet, so \
         carlos db cannot read it for now.";

    /// Console: boxes have the capability, and none lives.
    "DBF-2" [] Some(NoServer), no_live_box(host, region) =
        "%s keeps its data in region %s. no server in that region is answering right now. try \
         again in a few minutes.";

    /// CLI: nobody picked the read.
    "DBF-3" [] Some(NoServer), not_picked(region) =
        "no server in region %s picked up the read within 60 seconds. try again in a few minutes.";

    /// CLI: the copy is too large.
    "DBF-4" ["too-large"] Some(TooLarge), too_large(host, size, cap, region) =
        "%s's database is %s once restored. carlos db can query at most %s in region %s.";

    /// CLI: the box has no room.
    "DBF-5" ["no-room"] Some(TooLarge), no_room(region, host) =
        "the server in region %s does not have room to restore %s's database right now. try again \
         later.";

    /// CLI: more rows than the output cap.
    "DBF-6" ["output-cap"] Some(TooLarge), output_cap() =
        "the result was cut off at 64 MB. narrow the query with WHERE or LIMIT and run it again.";

    /// CLI: the query ran too long.
    "DBF-7" ["timeout"] Some(Timeout), timeout() =
        "the query ran for 5 minutes and was stopped. narrow it and run it again.";

    /// CLI: a pull, before pulls are forwarded.
    "DBF-8" [] Some(NoServer), no_pull(host, region) =
        "%s keeps its data in region %s. carlos db pull cannot fetch a copy from there yet. carlos \
         db query can read it.";

    /// Console: a bound on open reads.
    "DBF-9" [] Some(Busy), too_many_reads() =
        "too many database reads are open. wait a minute and try again.";

    /// Console: the instance is moving.
    "DBF-10" [] Some(Changed), moving(host) =
        "%s is moving between regions. read its database once the move has finished.";

    /// CLI, on stderr while it waits.
    "DBF-11" [] None, reading(host, region) =
        "reading a copy of %s's database in region %s.";

    /// CLI: the response ended without a result, or the box was interrupted.
    "DBF-12" ["interrupted"] Some(Unfinished), unfinished(host, region) =
        "the read of %s's database in region %s did not finish, so nothing was printed. try again.";

    /// CLI: a chunk or the summary does not open or add up.
    "DBF-13" [] Some(BadAnswer), bad_answer(region) =
        "the answer from region %s did not check out, so carlos db showed none of it. try again.";

    /// Console: the sentence beside the forward marker, for a client that does not know it.
    "DBF-14" [] Some(NoServer), update_to_forward(host, region) =
        "%s keeps its data in region %s. this version of carlos cannot read it from there. run \
         carlos update, then try again.";

    /// CLI: the instance is not the one that was admitted.
    "DBF-15" ["record-changed"] Some(Changed), record_changed(host) =
        "%s changed while the read was waiting. try again.";

    /// CLI: the box saw the instance moving.
    "DBF-16" ["moving"] Some(Changed), moving_on_box(host) =
        "%s is moving between regions. read its database once the move has finished.";

    /// Audit detail of a query.
    "DBF-21" [] None, audit_query(region, bytes, sha256) =
        "forwarded a database query to region %s. the query was %d bytes, sha256 %s (cli)";

    /// Audit detail of a query as of a time.
    "DBF-22" [] None, audit_query_at(region, at, bytes, sha256) =
        "forwarded a database query to region %s, as of %s. the query was %d bytes, sha256 %s \
         (cli)";

    /// Docs: `carlos db`.
    "DBF-30" [] None, docs_db() =
        "If the app has more than one instance, name one with --instance. Only instances that \
         sleep have a replica. An instance on your own fleet or in a pool cannot be read this way, \
         and the command says which.\n\nWhen an instance keeps its data in another region than the \
         console's, carlos db query runs in that region. A server there restores the copy, runs \
         your query and sends back only the rows. The rows are encrypted for your terminal on the \
         way, so nothing in between can read them, and nothing is printed until all of them have \
         arrived and checked out. There, the copy can be at most 2 GB once restored, the query \
         runs for at most 5 minutes, and the rows can come to at most 64 MB. carlos db pull cannot \
         fetch a copy from another region yet.";

    /// Docs: `carlos system`, the worker.
    "DBF-31" [] None, docs_worker() =
        "carlos system db-worker runs on platform boxes only. systemd starts it for each forwarded \
         database query. you never run it yourself.";

    /// CLI and console: SQL that JSON would rewrite.
    "DBF-32" [] Some(Sql), not_sendable(region) =
        "this query cannot be sent to region %s, because it holds bytes that are not UTF-8 text or \
         the character U+FFFD. fix the query and run it again.";

    /// Console: forwarding is off, or this instance is never forwarded.
    "DBL-1" [] Some(NoServer), residency(host, region) =
        "%s keeps its data in region %s. this console reads databases in its own region only.";

    /// Console: something before the headers failed or took too long.
    "DBL-2" [] Some(Unfinished), could_not_read_instance() =
        "could not read the instance. Try again.";

    /// CLI: no replica yet.
    "DBL-3" ["nothing-replicated"] Some(Replica), nothing_replicated(host) =
        "%s has no replica yet, so there is no copy to read. try again once it has written \
         something.";

    /// CLI: the time is before the replica's oldest.
    "DBL-4" ["history-gone"] Some(Replica), history_gone(host, oldest) =
        "the replica of %s's database reaches back to %s. name a later time.";

    /// CLI: the time is before the replica's oldest, which is not known.
    "DBL-5" [] Some(Replica), history_gone_unknown(host) =
        "the replica of %s's database does not reach back that far. name a later time.";

    /// CLI: the copy is not sound.
    "DBL-6" ["check-failed"] Some(Replica), check_failed(host) =
        "the restored copy of %s's database is not sound, so carlos db did not read it.";

    /// CLI: the replica changed under the read, twice.
    "DBL-7" ["changed-twice"] Some(Replica), changed_twice(host) =
        "the replica of %s's database changed while it was being read, twice. try again.";

    /// CLI: SQLite's own words.
    "DBL-8" ["sql-error"] Some(Sql), sql_error(message) =
        "%s";

    /// CLI: Ctrl-C.
    "DBL-9" [] Some(Stopped), stopped() =
        "stopped";

    /// Console: 404, the same bytes whether the thing exists or not.
    "DBL-10" [] Some(NotFound), not_found() =
        "no such app or instance, or you are not a member of its account.";

    /// Console: 401.
    "DBL-11" [] Some(NotFound), bad_token() =
        "this token is not valid or has expired. run carlos login.";

    /// Console: 403, a service's token at a person's door.
    "DBL-12" [] Some(NotFound), people_only() =
        "databases are read by people. this token belongs to a service.";

    /// Console: the token's request budget.
    "DBL-13" [] Some(Busy), over_budget() =
        "too many requests with this token. wait a minute and try again.";

    /// Console: the body is over its bound.
    "DBL-14" [] Some(Sql), body_too_large(bytes) =
        "the request is too large. this console reads at most %d bytes.";

    /// CLI and console: the statement is over its bound.
    "DBL-15" [] Some(Sql), sql_too_long(bytes, max) =
        "the query is %d bytes long. carlos db can run at most %d.";

    /// Console: the body is not a read request.
    "DBL-16" [] Some(Unexpected), bad_request() =
        "this console does not understand the request. run carlos update, then try again.";

    /// Console: the body did not arrive in time.
    "DBL-17" [] Some(Unfinished), body_too_slow() =
        "the request took too long to arrive. try again.";

    /// Console: the instance's class keeps no replica.
    "DBL-18" [] Some(Replica), class_without_replica(host) =
        "%s does not sleep, so it has no replica that carlos db could read.";

    /// Console: the instance is on a fleet.
    "DBL-19" [] Some(NoServer), on_fleet(host) =
        "%s runs on your own fleet. carlos db cannot read its database this way.";

    /// Console: the instance is in a pool.
    "DBL-20" [] Some(NoServer), in_pool(host) =
        "%s runs in a pool. carlos db cannot read its database this way.";

    /// Console: the audit row could not be written, so nothing was started.
    "DBL-21" [] Some(Unfinished), no_audit() =
        "could not record the read, so it was not started. try again.";

    /// Probe: the store breaks create-only writes.
    "DBL-22" ["bucket-lies"] Some(Unexpected), bucket_lies(fact) =
        "this bucket cannot be used, because it breaks a promise that carlos needs: %s.";

    /// Probe: the store's answers were not clear enough to tell.
    "DBL-23" ["bucket-unclear"] Some(Unexpected), bucket_unclear(fact) =
        "could not tell whether this bucket can be used: %s. try again.";

    /// CLI: a code of a later version.
    "DBL-24" [] Some(Unfinished), unknown_code(code) =
        "the read ended with %s, which this version of carlos does not know. run carlos update, \
         then try again.";

    /// CLI: no connection.
    "DBL-25" [] Some(Unexpected), no_console(console) =
        "could not reach the console at %s. try again.";

    /// CLI: a token would go over plain http.
    "DBL-26" [] Some(Usage), token_needs_https(console) =
        "%s is not an https address. a token is sent over plain http to this machine only.";

    /// CLI: no token.
    "DBL-27" [] Some(NotFound), not_logged_in() =
        "you are not logged in. run carlos login.";

    /// CLI: a time without offset, or none at all.
    "DBL-28" [] Some(Usage), bad_time(text) =
        "%s is not a time that --at reads. use one with an offset, like 2026-10-22T09:00:00Z, or a \
         distance like -15m.";

    /// CLI: more than one instance to choose from.
    "DBL-29" [] Some(Usage), name_an_instance(app, hosts) =
        "%s has more than one instance. name one with --instance: %s.";

    /// CLI: an app without instances.
    "DBL-30" [] Some(NotFound), no_instance(app) =
        "%s has no instance to read.";

    /// CLI: the person's own bound.
    "DBL-31" [] Some(Timeout), own_timeout(duration) =
        "no answer within %s, so the read was stopped.";

    /// CLI, on stderr after the rows: today's status line.
    "DBL-32" [] None, query_status(rows, host, time, txid) =
        "%s from a copy of %s's database as of %s, transaction %s.";

    /// CLI and console: a statement that the guards do not run.
    "DBL-33" ["sql-refused"] Some(Sql), sql_refused(reason) =
        "%s";

    /// Console: nobody planned for this.
    "DBL-34" [] Some(Unexpected), console_failed() =
        "something went wrong on the console. try again.";

    /// Console: an operation of a later version.
    "DBL-35" [] Some(Unexpected), unknown_op(op) =
        "this console cannot forward %s.";

    /// CLI: an app name that several accounts have.
    "DBL-36" [] Some(Usage), name_an_account(app, accounts) =
        "%s is an app of more than one account. name it with its account: %s.";

    /// Console: an answer that is not one of this protocol's.
    "DBL-37" [] Some(Unexpected), not_a_console(console) =
        "%s did not answer like a carlos console.";

    /// Console: the read has parameters, and every box of the region is of before them.
    "DBL-38" [] Some(NoServer), no_binding_box(region) =
        "no server in region %s takes values for parameters yet. write them into the query, or try \
         again once it has been updated.";

    /// CLI, on stderr after the status line: the plan was coarser than asked.
    "DBL-39" [] None, coarser_copy() =
        "the replica keeps only compacted files of the time you named, so this copy is older than \
         its last change before then.";

    /// CLI: a command that this build leaves out.
    "DBL-40" [] Some(NotBuilt), not_built(command, feature) =
        "%s is not part of this build. images and releases have it, and so does a build with \
         --features %s.";
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;
    use crate::ids::Digest;
    use crate::result::tests::done;
    use crate::time::Millis;

    /// One line a row, `<id> <exit> <sha256 of the text>`: changing a sentence means changing a
    /// line here, in the open (db-forward §11.4, T10).
    const APPROVED: &str = include_str!("../approved-copy.txt");

    fn digest_line(row: &Row) -> String {
        let exit = row.exit.map_or_else(|| "-".to_owned(), |exit| exit.code().to_string());
        format!("{} {exit} {}", row.id, Digest::of(row.text.as_bytes()))
    }

    #[test]
    fn t10_approved_copy_digests() {
        let lines: Vec<String> = TABLE.iter().map(digest_line).collect();
        let approved: Vec<&str> = APPROVED.lines().collect();
        assert!(lines == approved, "not approved; the table is:\n{}", lines.join("\n"));
    }

    #[test]
    fn every_code_has_one_row() {
        for code in Code::all().filter(|code| *code != Code::None) {
            let rows = TABLE.iter().filter(|row| row.codes.contains(&code.as_str()));
            assert_eq!(rows.count(), 1, "{code}");
        }
    }

    #[test]
    fn ids_are_unique_and_arguments_fit() {
        let ids: BTreeSet<&str> = TABLE.iter().map(|row| row.id).collect();
        assert_eq!(ids.len(), TABLE.len());
        for (row, arity) in TABLE.iter().zip(ARITIES) {
            assert_eq!(pieces(row.text).count(), arity + 1, "{}", row.id);
        }
    }

    #[test]
    fn our_own_sentences_keep_the_voice() {
        for row in TABLE.iter().filter(|row| row.id.starts_with("DBL-")) {
            assert!(!row.text.starts_with(char::is_uppercase), "{}", row.id);
            assert!(!row.text.contains(['\u{2014}', '\u{2013}']), "{}", row.id);
            // DBL-2 is a sentence of today's, quoted with its capital (db-forward §16, ruling 4).
            let after_stop = row.text.split(". ").skip(1);
            let capitals = after_stop.filter(|part| part.starts_with(char::is_uppercase)).count();
            assert_eq!(capitals, usize::from(row.id == "DBL-2"), "{}", row.id);
        }
    }

    fn sentence(code: Code, summary: Option<&Summary>) -> Message {
        let result = ReadResult { state: State::Failed, code, ..done() };
        of_result(&result, summary, "shop.example.com", "uk").expect("not done")
    }

    #[test]
    fn each_result_has_its_sentence() {
        let (oldest, sql_error) = (Some(Millis::new(0)), "no such table: x".to_owned());
        let summary = Summary { oldest, sql_error, ..Summary::default() };
        for code in Code::all().filter(|code| *code != Code::None) {
            let message = sentence(code.clone(), Some(&summary));
            let row = by_id(message.id()).expect("a row");
            assert!(row.codes.contains(&code.as_str()), "{code}: {}", row.id);
            assert!(message.exit().is_some());
        }
        assert_eq!(of_result(&done(), None, "h", "uk"), None);
    }

    #[test]
    fn results_without_their_details_have_a_sentence_too() {
        assert_eq!(sentence(Code::HistoryGone, None).id(), "DBL-5");
        assert_eq!(sentence(Code::SqlError, None).id(), "DBF-13");
        assert_eq!(sentence(Code::SqlError, Some(&Summary::default())).id(), "DBF-13");
        assert_eq!(sentence(Code::TooLarge, None).id(), "DBF-13");
        assert_eq!(sentence("new".to_owned().into(), None).id(), "DBL-24");
        let cancelled = ReadResult { state: State::Cancelled, ..done() };
        let message = of_result(&cancelled, None, "h", "uk").expect("not done");
        assert_eq!(message.id(), "DBF-12");
    }

    #[test]
    fn sizes_are_rounded_up() {
        let gib = 1_u64 << 30;
        let summary =
            Summary { restored_bytes: 2 * gib + 1, cap_bytes: 2 * gib, ..Summary::default() };
        let text = sentence(Code::TooLarge, Some(&summary)).to_string();
        assert!(text.contains("is 2.1 GB once restored"), "{text}");
        assert!(text.contains("at most 2 GB in"), "{text}");
        assert_eq!(Bytes(1023).to_string(), "1023 bytes");
        assert_eq!(Bytes(u64::MAX).to_string(), "16777216 TB");
    }

    #[test]
    fn an_argument_cannot_drive_the_terminal_or_the_template() {
        let message = sql_error("no such column: \u{1b}[2J%s\r\n\u{202e}");
        assert_eq!(message.as_str(), r"no such column: \u{1b}[2J%s\u{d}\u{a}\u{202e}");
    }
}
