//! Who passes, in which order, with which bytes.
#![allow(clippy::disallowed_methods, clippy::unwrap_used, clippy::panic)]

mod common;

use carlos_console::ConsoleConfig;
use carlos_protocol::{
    ids::{Account, Host, Region},
    keys::Key,
    records::{HostRecord, Move},
    time::Seconds,
    tokens::{Token, TokenKind},
};
use common::{DOOR, EMAIL, READS, Rig, SQL, configured, member, read_body, record, rev, rig};

fn token(rig: &Rig, kind: TokenKind, account: &str) -> Token {
    let account = Account::parse(account).unwrap();
    Token::generate(&mut rig.bucket.context().entropy(), kind, &account)
}

/// A member's answer at the reads door.
async fn code(rig: &Rig) -> (u16, String) {
    let answer = rig.refused(&read_body(SQL)).await;
    (answer.status.as_u16(), answer.code())
}

async fn with_record(change: impl FnOnce(&mut HostRecord)) -> Rig {
    let rig = rig().await;
    let mut changed = record();
    change(&mut changed);
    rig.revision(&Key::Host(changed.host.clone(), rev(2)), &changed).await;
    rig
}

#[tokio::test]
async fn a_member_sees_apps_and_instances() {
    let rig = rig().await;
    let apps = rig.get("/api/cli/apps").await;
    assert_eq!(apps.json(), serde_json::json!({"apps": [{"account": "acme", "app": "shop"}]}));
    let instances = rig.get("/api/cli/apps/acme/shop/instances").await;
    let shop = serde_json::json!(
        {"host": "shop.example.com", "region": "uk", "class": "sleeping"}
    );
    assert_eq!(instances.json(), serde_json::json!({ "instances": [shop] }));
}

#[tokio::test]
async fn apps_of_other_accounts_show_where_their_record_lists_the_person() {
    let rig = rig().await;
    let mut ann = member(EMAIL, &[(&rig.token, None)]);
    ann.also = ["friends", "strangers", "nobody"].map(|name| name.parse().unwrap()).to_vec();
    rig.account("acme", 2, vec![ann]).await;
    rig.account("friends", 1, vec![member(EMAIL, &[])]).await;
    rig.account("strangers", 1, vec![member("bob@example.com", &[])]).await;
    for (account, host) in [("friends", "a.example.com"), ("strangers", "b.example.com")] {
        let account = Account::parse(account).unwrap();
        rig.instance(&HostRecord { account, host: host.parse().unwrap(), ..record() }).await;
    }
    let apps = rig.get("/api/cli/apps").await.json();
    let accounts: Vec<_> =
        apps["apps"].as_array().unwrap().iter().map(|app| &app["account"]).collect();
    assert_eq!(accounts, ["acme", "friends"]);
    let foreign = rig.get("/api/cli/apps/strangers/shop/db/b.example.com").await;
    assert_eq!(foreign.status, 404);
}

#[tokio::test]
async fn what_does_not_exist_and_what_is_foreign_are_the_same_bytes() {
    let rig = rig().await;
    rig.account("other", 1, vec![member("bob@example.com", &[])]).await;
    let theirs = HostRecord {
        account: Account::parse("other").unwrap(),
        host: Host::parse("theirs.example.com").unwrap(),
        ..record()
    };
    rig.instance(&theirs).await;
    let expected = rig.get("/api/cli/apps/nowhere/shop/db/shop.example.com").await;
    assert_eq!((expected.status.as_u16(), expected.code().as_str()), (404, "DBL-10"));
    for path in [
        "/api/cli/apps/acme/nothing/db/shop.example.com",
        "/api/cli/apps/acme/shop/db/nothing.example.com",
        "/api/cli/apps/acme/shop/db/theirs.example.com",
        "/api/cli/apps/other/shop/db/theirs.example.com",
        "/api/cli/apps/other/shop/db/nothing.example.com",
        "/api/cli/apps/acme/shop/db/SHOP.example.com",
        "/api/cli/apps/acme/shop/db/..%2F..",
        "/api/cli/apps/%ff/shop/db/shop.example.com",
        "/api/cli/apps/nowhere/shop/instances",
        "/api/cli/apps/acme/nothing/instances",
        "/api/cli/apps/other/shop/instances",
        "/api/cli/nothing",
    ] {
        assert_eq!(rig.get(path).await.shape(), expected.shape(), "{path}");
    }
    for path in ["acme/shop/db/theirs.example.com", "other/shop/db/theirs.example.com"] {
        let path = format!("/api/cli/apps/{path}/reads");
        let answer = rig.post(&path, read_body(SQL).to_string()).await;
        assert_eq!(common::Answer::of(answer).await.shape(), expected.shape(), "{path}");
    }
}

#[tokio::test]
async fn a_deleted_instance_is_gone() {
    let rig = with_record(|record| record.deleted = true).await;
    assert_eq!(code(&rig).await, (404, "DBL-10".into()));
    let instances = rig.get("/api/cli/apps/acme/shop/instances").await;
    assert_eq!(instances.json(), serde_json::json!({"instances": []}));
}

#[tokio::test]
async fn tokens_that_are_none_are_one_answer() {
    let rig = rig().await;
    let expected = rig.get_as(DOOR, None).await;
    assert_eq!((expected.status.as_u16(), expected.code().as_str()), (401, "DBL-11"));
    let expired = token(&rig, TokenKind::Person, "acme");
    let now = rig.bucket.context().now_unix();
    let members = member(EMAIL, &[(&rig.token, None), (&expired, Some(now))]);
    rig.account("acme", 2, vec![members]).await;
    let wrong = token(&rig, TokenKind::Person, "acme");
    let homeless = token(&rig, TokenKind::Person, "nowhere");
    for text in [expired.reveal(), wrong.reveal(), homeless.reveal(), "cpt_acme_", "", "é"] {
        let answer = rig.get_as(DOOR, Some(text)).await;
        assert_eq!(answer.shape(), expected.shape());
    }
    assert_eq!(rig.get(DOOR).await.status, 409);
}

#[tokio::test]
async fn a_token_taken_away_counts_at_the_next_request() {
    let rig = rig().await;
    assert_eq!(rig.get("/api/cli/apps").await.status, 200);
    rig.account("acme", 2, vec![member(EMAIL, &[])]).await;
    assert_eq!(rig.get("/api/cli/apps").await.status, 401);
}

#[tokio::test]
async fn a_service_is_no_person_on_any_route() {
    let rig = rig().await;
    let service = token(&rig, TokenKind::Service, "acme");
    let members = member(EMAIL, &[(&rig.token, None), (&service, None)]);
    rig.account("acme", 2, vec![members]).await;
    for path in ["/api/cli/apps", "/api/cli/apps/acme/shop/instances", DOOR] {
        let answer = rig.get_as(path, Some(service.reveal())).await;
        assert_eq!((answer.status.as_u16(), answer.code().as_str()), (403, "DBL-12"), "{path}");
    }
    let reads = rig.request(hyper::Method::POST, READS, Some(service.reveal()));
    assert_eq!(rig.send(reads).await.status(), 403);
}

#[tokio::test]
async fn the_request_budget_comes_after_membership_and_before_the_record() {
    let rig = configured(|config| ConsoleConfig { requests_per_minute: 2, ..config }).await;
    for _ in 0..2 {
        assert_eq!(rig.get("/api/cli/apps/acme/shop/db/nothing.example.com").await.status, 404);
    }
    let spent = rig.get("/api/cli/apps/acme/shop/db/nothing.example.com").await;
    assert_eq!((spent.status.as_u16(), spent.code().as_str()), (429, "DBL-13"));
    let rest: u64 = spent.headers["retry-after"].to_str().unwrap().parse().unwrap();
    assert!((1..=60).contains(&rest));
    assert_eq!(rig.get("/api/cli/apps/nowhere/shop/db/shop.example.com").await.status, 404);
}

#[tokio::test]
async fn instances_that_keep_no_regional_replica_are_refused_by_their_reason() {
    let pooled = with_record(|record| record.pooled = true).await;
    assert_eq!(code(&pooled).await, (409, "DBL-20".into()));
    let fleet = with_record(|record| record.fleet = true).await;
    assert_eq!(code(&fleet).await, (409, "DBL-19".into()));
    let awake = with_record(|record| record.class = "dedicated".parse().unwrap()).await;
    assert_eq!(code(&awake).await, (409, "DBL-18".into()));
}

#[tokio::test]
async fn a_moving_instance_waits_for_its_move() {
    let to = Region::parse("us").unwrap();
    let moving = Some(Move { to, since: Seconds::new(1_792_659_600) });
    let rig = with_record(|record| record.moving = moving).await;
    assert_eq!(code(&rig).await, (409, "DBF-10".into()));
    assert_eq!(rig.get(DOOR).await.code(), "DBF-10");
    assert!(rig.keys("db-reads").await.is_empty() && rig.keys("activity").await.is_empty());
}

#[tokio::test]
async fn the_list_door_carries_the_forward_marker() {
    let rig = rig().await;
    let door = rig.get(DOOR).await;
    let body = door.json();
    assert_eq!(door.status, 409);
    assert_eq!((&body["forward"], &body["region"]), (&1.into(), &"uk".into()));
    assert_eq!(body["forward_ops"], serde_json::json!(["query"]));
    assert!(body["error"].as_str().unwrap().contains("run carlos update"));
}

/// The bytes that a console without forwarding has always answered (db-forward §9.2).
const FORWARDING_OFF: &[u8] = include_bytes!("golden/forwarding-off.json");

#[tokio::test]
async fn t8_a_console_that_does_not_forward_answers_the_recorded_bytes() {
    let off = configured(|config| ConsoleConfig { forward: false, ..config }).await;
    let keyless = configured(|config| ConsoleConfig { key: None, ..config }).await;
    let scoped = configured(|config| {
        let root = config.key.clone().unwrap();
        let mut entropy = carlos_bucket::Context::system().entropy();
        let key = root.generate_scoped(&mut entropy, "carlos-db-read-v1").unwrap();
        ConsoleConfig { key: Some(key), ..config }
    })
    .await;
    for rig in [off, keyless, scoped] {
        let list = rig.get(DOOR).await;
        let read = rig.refused(&read_body(SQL)).await;
        for answer in [list, read] {
            assert_eq!(answer.status, 409);
            assert_eq!(answer.body, FORWARDING_OFF);
        }
        assert!(rig.keys("db-reads").await.is_empty());
    }
}

#[tokio::test]
async fn records_that_cannot_be_read_are_said_to_be_unreadable() {
    let rig = rig().await;
    rig.write(&Key::Host(record().host, rev(2)), "garbage").await;
    assert_eq!(code(&rig).await, (503, "DBL-2".into()));
    let rig = with_record(|record| record.v = 2).await;
    assert_eq!(code(&rig).await, (503, "DBL-2".into()));
    let rig = common::rig().await;
    rig.write(&Key::Account(Account::parse("acme").unwrap(), rev(2)), "{}").await;
    assert_eq!(code(&rig).await, (503, "DBL-2".into()));
}

#[tokio::test]
async fn one_record_that_cannot_be_read_hides_no_other() {
    let rig = rig().await;
    let beside = Host::parse("beside.example.com").unwrap();
    rig.instance(&HostRecord { host: beside.clone(), ..record() }).await;
    rig.write(&Key::Host(beside, rev(2)), "garbage").await;
    let instances = rig.get("/api/cli/apps/acme/shop/instances").await.json();
    let hosts: Vec<_> =
        instances["instances"].as_array().unwrap().iter().map(|it| &it["host"]).collect();
    assert_eq!(hosts, ["shop.example.com"]);
    let mut ann = member(EMAIL, &[(&rig.token, None)]);
    ann.also = vec!["friends".parse().unwrap()];
    rig.account("acme", 2, vec![ann]).await;
    rig.write(&Key::Account(Account::parse("friends").unwrap(), rev(1)), "garbage").await;
    let apps = rig.get("/api/cli/apps").await.json();
    assert_eq!(apps["apps"], serde_json::json!([{"account": "acme", "app": "shop"}]));
}

#[tokio::test]
async fn the_plain_pages_need_no_token() {
    let rig = rig().await;
    assert_eq!(rig.get_as("/healthz", None).await.body, "ok\n");
    let page = rig.get_as("/", None).await;
    assert_eq!(page.body, "carlos console\n");
}
