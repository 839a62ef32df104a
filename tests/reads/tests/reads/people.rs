//! Who asks, and with what: tokens and statements that are no good (db-forward §5.5 step 3).

use carlos_bucket::layer::Op;
use carlos_cli::client::Place;
use carlos_protocol::copy::Exit;
use carlos_protocol::limits::SQL_BYTES;
use carlos_protocol::time::Seconds;
use carlos_protocol::tokens::{Token, TokenKind};
use carlos_tests_reads::{Asked, EMAIL, Refused, RunningConsole, World, parse};

async fn running() -> (World, RunningConsole) {
    let world = World::new().await;
    world.operator.create_box(&parse("uk-1"), &parse("uk")).await.unwrap();
    let console = world.console().await;
    (world, console)
}

/// Nothing of a refused request reached the bucket.
async fn untouched(world: &World) {
    assert_eq!(world.keys("db-reads/").await, [""; 0]);
    assert_eq!(world.keys("activity/").await, [""; 0]);
}

async fn token(world: &World, kind: TokenKind, expires: Option<Seconds>) -> Token {
    let account = &world.place.account;
    world.operator.create_token(account, EMAIL, kind, expires).await.unwrap()
}

/// What the client and the read route say to this token.
async fn turned_away(world: &World, console: &RunningConsole, token: &Token, id: &str) {
    let args = ["db", "query", "acme/shop", "--instance", "shop.example.com", World::SQL];
    console.carlos(token.reveal(), &args).await.ended(Exit::NotFound, id);
    let refused = Asked::of(world, World::SQL).with_token(token).post(console).await.err();
    assert_eq!(refused.unwrap().body.code.as_deref(), Some(id));
    untouched(world).await;
}

#[tokio::test]
async fn a_services_token() {
    let (world, console) = running().await;
    let service = token(&world, TokenKind::Service, None).await;
    turned_away(&world, &console, &service, "DBL-12").await;
}

#[tokio::test]
async fn an_expired_token() {
    let (world, console) = running().await;
    let expires = Some(Seconds::new(world.context.now_unix() - 1));
    let expired = token(&world, TokenKind::Person, expires).await;
    turned_away(&world, &console, &expired, "DBL-11").await;
}

#[tokio::test]
async fn a_token_of_nobody() {
    let (world, console) = running().await;
    let entropy = &mut world.context.entropy();
    for account in ["acme", "nobody"] {
        let wrong = Token::generate(entropy, TokenKind::Person, &parse(account));
        turned_away(&world, &console, &wrong, "DBL-11").await;
    }
}

#[tokio::test]
async fn a_revoked_token_counts_no_more_at_the_next_request() {
    let (world, console) = running().await;
    drop(console.open(&world, World::SQL).await);
    let hash = world.token.hash().prefix();
    world.operator.revoke_token(&world.place.account, &hash).await.unwrap();
    let refused = Asked::of(&world, World::SQL).post(&console).await.err().unwrap();
    assert_eq!((refused.status, refused.body.code.as_deref()), (401, Some("DBL-11")));
}

/// A host that exists and is somebody else's answers as one that does not.
#[tokio::test]
async fn somebody_elses_instance_is_no_instance() {
    let (world, console) = running().await;
    let (theirs, _) = world.second_tenant(World::SHOP).await;
    let nobodys = Place { host: parse("none.example.com"), ..theirs.clone() };
    let mut answers = Vec::new();
    for place in [theirs, nobodys] {
        let mut asked = Asked::of(&world, World::SQL);
        asked.place = place;
        let Refused { status, body } = asked.post(&console).await.err().unwrap();
        answers.push((status, body));
    }
    assert_eq!(answers[0], answers[1]);
    assert_eq!((answers[0].0, answers[0].1.code.as_deref()), (404, Some("DBL-10")));
    untouched(&world).await;
}

/// Runs the client with a statement in a file.
async fn from_file(world: &World, console: &RunningConsole, sql: &[u8]) -> carlos_tests_reads::Ran {
    let file = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(file.path(), sql).unwrap();
    let path = file.path().to_str().unwrap();
    console.query_with(world, &["--file", path]).await
}

#[tokio::test]
async fn the_client_sends_no_statement_that_could_not_run() {
    let (world, console) = running().await;
    let huge = [b"SELECT ".to_vec(), vec![b'1'; 10 << 20]].concat();
    let cases: [(&[u8], &str); 8] = [
        (&huge, "DBL-33"),
        (b"SELECT 1\0", "DBL-33"),
        (b"", "DBL-33"),
        (b"-- nothing", "DBL-33"),
        (b"SELECT 1; SELECT 2", "DBL-33"),
        (b"SELECT '\xff'", "DBF-32"),
        (b"SELECT '\xed\xa0\x80'", "DBF-32"),
        ("SELECT '\u{fffd}'".as_bytes(), "DBF-32"),
    ];
    for (sql, id) in cases {
        from_file(&world, &console, sql).await.ended(Exit::Sql, id);
    }
    untouched(&world).await;
}

#[tokio::test]
async fn the_console_signs_no_statement_that_could_not_run() {
    let (world, console) = running().await;
    let cases = [
        (String::new(), 400, "DBL-33"),
        ("SELECT 1\0".to_owned(), 400, "DBL-33"),
        ("SELECT '\u{fffd}'".to_owned(), 400, "DBF-32"),
        ("1".repeat(SQL_BYTES + 1), 400, "DBL-15"),
        ("1".repeat(10 << 20), 413, "DBL-14"),
    ];
    for (sql, status, id) in cases {
        let refused = Asked::of(&world, &sql).post(&console).await.err().unwrap();
        assert_eq!((refused.status, refused.body.code.as_deref()), (status, Some(id)));
    }
    untouched(&world).await;
}

/// Statements that a client of ours would not send, each with a word of its refusal.
const NOT_ONE_READ: [(&str, &str); 15] = [
    ("select 1; select 2", "one statement at a time"),
    ("SELECT 1; DROP TABLE orders", "one statement at a time"),
    ("-- nothing", "empty"),
    (";;", "empty"),
    (".tables", "sqlite3 shell"),
    ("INSERT INTO orders VALUES (9, 'x')", "INSERT"),
    ("/* */ delete from orders", "DELETE"),
    ("CREATE TEMP TABLE t (x)", "CREATE"),
    ("ATTACH '/etc/passwd' AS p", "ATTACH"),
    ("VACUUM INTO '/tmp/copy.db'", "VACUUM"),
    ("BEGIN", "BEGIN"),
    ("PRAGMA journal_mode = DELETE", "PRAGMA journal_mode with a value"),
    ("pragma main.writable_schema(1)", "PRAGMA writable_schema with a value"),
    ("PRAGMA query_only", "PRAGMA query_only"),
    ("PRAGMA /* */ [user_version] = 7", "PRAGMA user_version with a value"),
];

/// What the binary itself says to a statement, without its `error:` and its code.
async fn clients_words(world: &World, console: &RunningConsole, sql: &str) -> String {
    let ran = from_file(world, console, sql.as_bytes()).await;
    ran.ended(Exit::Sql, "DBL-33");
    ran.stderr
}

/// A client that leaves its check out gets the same words from the console, which has by then
/// created nothing and replaced nothing: no audit row, no request, no restore.
#[tokio::test]
async fn the_console_checks_again_what_the_client_checks() {
    let (world, console) = running().await;
    let writes = || [Op::Create, Op::Replace].map(|op| console.view.ledger.count(op, ""));
    let before = writes();
    for (sql, word) in NOT_ONE_READ {
        let refused = Asked::of(&world, sql).post(&console).await.err().expect(sql);
        assert_eq!((refused.status, refused.body.code.as_deref()), (400, Some("DBL-33")), "{sql}");
        let words = refused.body.error;
        assert!(words.contains(word), "{sql}: {words}");
        let client = clients_words(&world, &console, sql).await;
        assert!(client.contains(&words), "{sql}: {words} is not {client}");
    }
    assert_eq!(writes(), before);
    untouched(&world).await;
}

#[tokio::test]
async fn the_console_reads_no_body_that_is_not_text() {
    let (world, console) = running().await;
    let asked = || Asked::of(&world, "SELECT 'here'");
    let bytes = asked().body.to_bytes();
    let text = String::from_utf8(bytes).unwrap();
    let raw = text.replace("here", "RAW").into_bytes();
    let at = raw.windows(3).position(|window| window == b"RAW").unwrap();
    let not_text = [&raw[..at], b"\xff", &raw[at + 3..]].concat();
    let lone = text.replace("here", r"\ud800").into_bytes();
    for (body, id) in [
        (not_text, "DBF-32"),
        (lone, "DBL-16"),
        (b"{}".to_vec(), "DBL-16"),
        (text.as_bytes()[..text.len() - 1].to_vec(), "DBL-16"),
        (text.replace("query", "pull").into_bytes(), "DBL-35"),
    ] {
        let refused = asked().post_bytes(&console, body).await.err().unwrap();
        assert_eq!(refused.body.code.as_deref(), Some(id), "{refused:?}");
    }
    untouched(&world).await;
}
