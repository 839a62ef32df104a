//! Every way a command can end, by the real binary: its exit code, its sentence, an empty stdout.

use std::io::Read as _;
use std::time::{Duration, Instant};

use crate::{Answer, Console, End, Reply, Script, Shop, TOKEN, carlos, query, run, run_with_input};

fn read_ends(state: &'static str, code: &'static str) -> crate::Ran {
    let read =
        move |request: &_| Reply::stream(Answer::ended(request, state, code).body(), End::Clean);
    query(&Console::reading(read), &[])
}

#[test]
fn a_box_ends_a_read_with_each_code() {
    let codes = [
        ("failed", "nothing-replicated", 14, "has no replica yet"),
        ("failed", "history-gone", 14, "reaches back to 2026-"),
        ("failed", "check-failed", 14, "is not sound"),
        ("failed", "changed-twice", 14, "while it was being read, twice"),
        ("failed", "too-large", 15, "shop.example.com's database is 3 GB once restored"),
        ("refused", "no-room", 15, "the server in region uk does not have room"),
        ("failed", "sql-error", 17, "no such table: orders"),
        ("failed", "timeout", 16, "the query ran for 5 minutes and was stopped."),
        ("failed", "output-cap", 15, "the result was cut off at 64 MB."),
        ("refused", "record-changed", 18, "shop.example.com changed while the read was waiting."),
        ("refused", "moving", 18, "shop.example.com is moving between regions."),
        ("failed", "interrupted", 12, "did not finish, so nothing was printed."),
        ("cancelled", "", 12, "did not finish, so nothing was printed."),
    ];
    for (state, code, exit, words) in codes {
        read_ends(state, code).failed(exit, words);
    }
}

#[test]
fn a_code_of_a_later_version_is_a_read_that_did_not_finish() {
    read_ends("failed", "phase-of-the-moon").failed(12, "phase-of-the-moon");
}

#[test]
fn the_list_door_refuses() {
    let answers = [
        (404, r#"{"error":"not found"}"#, 10, "not found"),
        (401, r#"{"error":"who are you?"}"#, 10, "who are you?"),
        (403, "", 10, "403"),
        (
            409,
            r#"{"error":"shop keeps its data elsewhere."}"#,
            11,
            "shop keeps its data elsewhere.",
        ),
        (409, r#"{"error":"no server.","code":"DBF-1"}"#, 11, "no server. (DBF-1)"),
        (409, r#"{"error":"moving.","code":"DBF-10"}"#, 18, "moving. (DBF-10)"),
        (429, r#"{"error":"slow down."}"#, 19, "slow down."),
        (503, r#"{"error":"could not read the instance."}"#, 1, "could not read the instance."),
        (500, "<html>\u{1b}[2J</html>", 1, "500"),
    ];
    for (status, body, exit, words) in answers {
        let door = Reply::json(status, body);
        query(&Console::start(Script { door, ..Script::default() }), &[]).failed(exit, words);
    }
}

#[test]
fn the_read_door_refuses() {
    let answers = [
        (409, r#"{"error":"no server yet.","code":"DBF-1"}"#, 11, "no server yet. (DBF-1)"),
        (409, r#"{"error":"none answers.","code":"DBF-2"}"#, 11, "none answers. (DBF-2)"),
        (429, r#"{"error":"too many.","code":"DBF-9"}"#, 19, "too many. (DBF-9)"),
        (404, r#"{"error":"not found"}"#, 10, "not found"),
    ];
    for (status, body, exit, words) in answers {
        let read = move |_: &_| Reply::json(status, body);
        query(&Console::reading(read), &[]).failed(exit, words);
    }
}

#[test]
fn what_a_console_says_cannot_drive_the_terminal() {
    let door = Reply::json(409, r#"{"error":"a\u001b[2Jb\u009bc"}"#);
    let ran = query(&Console::start(Script { door, ..Script::default() }), &[]);
    ran.failed(11, "a\\u{1b}[2Jb\\u{9b}c");
    assert!(!ran.stderr.contains('\u{1b}'));
}

#[test]
fn apps_and_instances_that_are_not_one() {
    let apps = r#"{"apps":[{"account":"acme","app":"shop"},{"account":"zeta","app":"shop"}]}"#;
    let hosts = r#"{"instances":[
        {"host":"a.example.com","region":"uk","class":"sleeping"},
        {"host":"b.example.com","region":"ie","class":"sleeping"}]}"#;
    let console = Console::start(Script {
        apps: Reply::json(200, apps),
        instances: Reply::json(200, hosts),
        ..Script::default()
    });
    let ask = |app| run(&console, &["db", "query", app, "SELECT 1"]);
    ask("shop").failed(2, "name it with its account: acme/shop, zeta/shop.");
    ask("acme/shop").failed(2, "name one with --instance: a.example.com, b.example.com.");
    ask("blog").failed(10, "no such app or instance");
    ask("Bad Name").failed(2, "is not the name of an app");
}

#[test]
fn command_lines_that_say_too_little_or_too_much() {
    let console = Console::start(Script::default());
    for args in [&["db", "query", "shop"][..], &["frobnicate"], &["db", "query"]] {
        run(&console, args).failed(2, "Usage");
    }
    query(&console, &["--at", "2026-10-07T14:00:00"]).failed(2, "use one with an offset");
    query(&console, &["--timeout", "soon"]).failed(2, "soon is not a duration");
    query(&console, &["--format", "xml"]).failed(2, "xml");
}

#[test]
fn sql_that_no_server_would_run() {
    let console = Console::start(Script::default());
    let ask = |sql: &str| run(&console, &["db", "query", "acme/shop", sql]);
    for sql in ["", "SELECT 1; SELECT 2", "-- nothing"] {
        ask(sql).failed(17, "");
    }
    ask(&"x".repeat(64 * 1024 + 1)).failed(17, "can run at most 65536");
    ask("SELECT '\u{fffd}'").failed(17, "this query cannot be sent to region uk");
    assert!(console.seen().iter().all(|seen| !seen.line.starts_with("POST")));
}

#[test]
fn sql_from_stdin_and_from_a_file() {
    let home = tempfile::tempdir().unwrap();
    let console = Console::reading(|request| Reply::stream(Answer::to(request).body(), End::Clean));
    let ask = |args: &[&str], input: &[u8]| {
        let mut command = carlos(home.path());
        command.env("CARLOS_URL", console.url()).env("CARLOS_TOKEN", TOKEN);
        command.args(["db", "query", "acme/shop"]).args(args);
        run_with_input(&mut command, input)
    };
    assert_eq!(ask(&["-"], b"SELECT 'from stdin'\n").code, 0);
    let file = home.path().join("q.sql");
    std::fs::write(&file, "SELECT 'from a file'").unwrap();
    assert_eq!(ask(&["--file", file.to_str().unwrap()], b"").code, 0);
    let sent: Vec<String> =
        console.seen().iter().filter_map(|seen| Some(seen.body["sql"].as_str()?.into())).collect();
    assert_eq!(sent, ["SELECT 'from stdin'\n", "SELECT 'from a file'"]);

    ask(&["-"], b"SELECT '\xff'").failed(17, "this query cannot be sent to region uk");
    ask(&["-"], &vec![b' '; 10_000_000]).failed(17, "64 KB");
    ask(&["--file", "/no/such/file"], b"").failed(2, "/no/such/file");
}

#[test]
fn a_time_is_sent_in_utc_with_milliseconds_at_most() {
    let console = Console::start(Script::default());
    query(&console, &["--at", "2026-10-07T16:00:00.1239+02:00"]);
    query(&console, &["--at=-15m"]);
    let sent: Vec<String> =
        console.seen().iter().filter_map(|seen| Some(seen.body["at"].as_str()?.into())).collect();
    assert_eq!(sent[0], "2026-10-07T14:00:00.123Z");
    assert!(sent[1].ends_with('Z'), "{sent:?}");
}

#[test]
fn an_answer_that_does_not_come_in_time() {
    let console = Console::reading(held);
    query(&console, &["--timeout", "1s"]).failed(16, "no answer within 1s");
    assert!(eventually(|| console.seen().iter().any(|seen| seen.closed)), "still connected");
}

/// Ctrl-C closes the connection, which is how a console learns of it (db-forward §5.5).
#[cfg(unix)]
#[test]
fn ctrl_c_stops_the_read() {
    let home = tempfile::tempdir().unwrap();
    let console = Console::reading(held);
    let mut command = carlos(home.path());
    command.env("CARLOS_URL", console.url()).env("CARLOS_TOKEN", TOKEN);
    let mut child = command.args(["db", "query", "acme/shop", "SELECT 1"]).spawn().unwrap();
    let posted = || console.seen().iter().any(|seen| seen.line.starts_with("POST"));
    assert!(eventually(posted), "the read never began");
    let id = child.id().to_string();
    assert!(std::process::Command::new("kill").args(["-INT", &id]).status().unwrap().success());
    let (mut stdout, mut stderr) = (Vec::new(), String::new());
    child.stdout.take().unwrap().read_to_end(&mut stdout).unwrap();
    child.stderr.take().unwrap().read_to_string(&mut stderr).unwrap();
    let code = child.wait().unwrap().code().unwrap_or(-1);
    crate::Ran { code, stdout, stderr }.failed(130, "stopped");
    assert!(eventually(|| console.seen().iter().any(|seen| seen.closed)), "still connected");
}

#[test]
fn a_reader_that_leaves_early_has_had_what_it_wanted() {
    let home = tempfile::tempdir().unwrap();
    let console = Console::reading(|request| Reply::stream(Answer::to(request).body(), End::Clean));
    let mut command = carlos(home.path());
    command.env("CARLOS_URL", console.url()).env("CARLOS_TOKEN", TOKEN);
    let mut child = command.args(["db", "query", "acme/shop", "SELECT 1"]).spawn().unwrap();
    drop(child.stdout.take());
    assert_eq!(child.wait().unwrap().code(), Some(0));
}

#[test]
fn each_format() {
    let console = Console::reading(|request| Reply::stream(Answer::to(request).body(), End::Clean));
    let ask = |format| String::from_utf8(query(&console, &["--format", format]).stdout).unwrap();
    assert_eq!(ask("tsv"), Shop::TSV);
    let rows: serde_json::Value = serde_json::from_str(&ask("json")).unwrap();
    assert_eq!(rows[1], serde_json::json!({"id": 2, "name": "banana\tsplit"}));
    assert!(ask("table").contains("apple"));
}

fn held(request: &serde_json::Value) -> Reply {
    let lines = Answer::to(request).lines();
    Reply::stream(crate::join(&lines[..4]), End::Held)
}

fn eventually(holds: impl Fn() -> bool) -> bool {
    let start = Instant::now();
    while start.elapsed() < Duration::from_secs(10) {
        if holds() {
            return true;
        }
        std::thread::sleep(Duration::from_millis(10));
    }
    false
}
