//! `carlos login`, `logout`, `apps` and `instances`, and where a token may go, by the real binary.

use std::path::Path;

use crate::{Console, Ran, Reply, Script, TOKEN, carlos, run, run_with_input};

fn ask(home: &Path, args: &[&str]) -> Ran {
    carlos(home).args(args).output().unwrap().into()
}

fn login(home: &Path, url: &str, input: &str) -> Ran {
    run_with_input(carlos(home).args(["login", url]), input.as_bytes())
}

#[test]
fn a_login_serves_later_commands_until_logout() {
    let home = tempfile::tempdir().unwrap();
    let console = Console::start(Script::default());
    ask(home.path(), &["apps"]).failed(10, "you are not logged in");
    let ran = login(home.path(), console.url(), &format!("{TOKEN}\n"));
    assert_eq!((ran.code, ran.stdout.as_slice()), (0, &b""[..]), "{ran:?}");
    assert_eq!(ask(home.path(), &["apps"]).stdout, b"acme/shop\n");
    let bearer = format!("Bearer {TOKEN}");
    assert!(console.seen().iter().all(|seen| seen.authorization == bearer));
    assert_eq!(ask(home.path(), &["logout"]).code, 0);
    ask(home.path(), &["apps"]).failed(10, "you are not logged in");
}

#[test]
fn a_token_from_a_file() {
    let home = tempfile::tempdir().unwrap();
    let console = Console::start(Script::default());
    let file = home.path().join("token");
    std::fs::write(&file, format!("{TOKEN}\n")).unwrap();
    let args = ["login", console.url(), "--token-file", file.to_str().unwrap()];
    assert_eq!(ask(home.path(), &args).code, 0);
    assert_eq!(ask(home.path(), &["apps"]).code, 0);
}

#[test]
fn a_token_the_console_refuses_is_not_kept() {
    let home = tempfile::tempdir().unwrap();
    let apps = Reply::json(401, r#"{"error":"this token is not valid."}"#);
    let console = Console::start(Script { apps, ..Script::default() });
    login(home.path(), console.url(), TOKEN).failed(10, "this token is not valid.");
    ask(home.path(), &["apps"]).failed(10, "you are not logged in");
    login(home.path(), console.url(), "").failed(2, "that is not a token");
}

#[test]
fn plain_http_only_to_this_machine() {
    let home = tempfile::tempdir().unwrap();
    for url in ["http://console.example.com", "http://192.0.2.1:80", "http://localhost.evil.com"] {
        login(home.path(), url, TOKEN).failed(2, "is not an https address");
    }
}

#[test]
fn the_names_of_this_machine() {
    let home = tempfile::tempdir().unwrap();
    let console = Console::start(Script::default());
    let named = console.url().replace("127.0.0.1", "localhost");
    assert_eq!(login(home.path(), &named, TOKEN).code, 0);
}

#[test]
fn a_redirect_is_not_followed() {
    let elsewhere = Console::start(Script::default());
    let apps = Reply::redirect(format!("{}/api/cli/apps", elsewhere.url()));
    let console = Console::start(Script { apps, ..Script::default() });
    run(&console, &["apps"]).failed(1, "points to another address");
    assert!(elsewhere.seen().is_empty(), "the token went elsewhere");
}

#[test]
fn a_proxy_does_not_see_a_plain_token() {
    let home = tempfile::tempdir().unwrap();
    let (console, proxy) = (Console::start(Script::default()), Console::start(Script::default()));
    let mut command = carlos(home.path());
    command.env("CARLOS_URL", console.url()).env("CARLOS_TOKEN", TOKEN);
    command.env("http_proxy", proxy.url()).env("HTTP_PROXY", proxy.url());
    let ran: Ran = command.env("ALL_PROXY", proxy.url()).arg("apps").output().unwrap().into();
    assert_eq!(ran.code, 0, "{ran:?}");
    assert!(proxy.seen().is_empty(), "the proxy saw the token");
}

#[test]
fn a_console_that_is_not_there() {
    let home = tempfile::tempdir().unwrap();
    let free = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    login(home.path(), &format!("http://{free}"), TOKEN).failed(1, "could not reach");
}

#[test]
fn listings_as_lines_and_as_json() {
    let console = Console::start(Script::default());
    let text = |args: &[&str]| String::from_utf8(run(&console, args).stdout).unwrap();
    assert_eq!(text(&["instances", "shop"]), "shop.example.com\tuk\tsleeping\n");
    let apps: serde_json::Value = serde_json::from_str(&text(&["apps", "--json"])).unwrap();
    assert_eq!(apps, serde_json::json!({"apps": [{"account": "acme", "app": "shop"}]}));
    let instances: serde_json::Value =
        serde_json::from_str(&text(&["instances", "acme/shop", "--json"])).unwrap();
    assert_eq!(instances["instances"][0]["region"], "uk");
}

#[test]
fn an_answer_that_is_not_the_consoles() {
    for body in ["<html></html>", "[]", "{\"apps\":3}"] {
        let console = Console::start(Script { apps: Reply::json(200, body), ..Script::default() });
        run(&console, &["apps"]).failed(1, "");
    }
    let endless = Reply::json(200, &" ".repeat(3 << 20));
    let console = Console::start(Script { apps: endless, ..Script::default() });
    run(&console, &["apps"]).failed(1, "");
}
