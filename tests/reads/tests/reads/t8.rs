//! T8: clients and consoles of before and after forwarding (db-forward §9.2, §11.4). A client of
//! before shows a person the `error` of the list door's answer and goes no further; a console of
//! before is one whose forwarding is off, which answers byte for byte as it always has.

use carlos_protocol::api::{self, ErrorBody};
use carlos_protocol::copy;
use carlos_tests_reads::{RunningConsole, World, parse};

/// The list door's answer, as every client gets it.
async fn list_door(world: &World, console: &RunningConsole) -> (u16, ErrorBody) {
    let _ = rustls::crypto::ring::default_provider().install_default();
    let client = reqwest::Client::builder().no_proxy().tls_certs_only([]).build().unwrap();
    let place = &world.place;
    let path = api::db_path(&place.account, &place.app, &place.host);
    let request = client.get(format!("{}{path}", console.url)).bearer_auth(world.token.reveal());
    let response = request.send().await.unwrap();
    let status = response.status().as_u16();
    (status, ErrorBody::from_bytes(&response.bytes().await.unwrap()).unwrap())
}

/// What a client of before shows.
async fn old_client(world: &World, console: &RunningConsole) -> String {
    let (status, body) = list_door(world, console).await;
    assert_eq!(status, 409);
    body.error
}

async fn old_console(world: &World) -> RunningConsole {
    world.console_with(|config| config.forward = false).await
}

fn residency() -> String {
    copy::residency("shop.example.com", "uk").to_string()
}

async fn nothing_was_asked(world: &World, console: &RunningConsole) {
    assert_eq!(world.keys("db-reads/").await, [""; 0]);
    assert_eq!(world.keys("activity/").await, [""; 0]);
    assert_eq!(console.view.ledger.of("db-reads/"), []);
}

#[tokio::test]
async fn t8_old_client_and_old_console_speak_of_residency() {
    let world = World::new().await;
    let _uk = world.start_box("uk-1").await;
    let console = old_console(&world).await;
    let (_, body) = list_door(&world, &console).await;
    assert_eq!(body, ErrorBody { error: residency(), ..ErrorBody::default() });
    nothing_was_asked(&world, &console).await;
}

#[tokio::test]
async fn t8_old_client_where_no_box_is_capable_hears_dbf_1() {
    let world = World::new().await;
    let console = world.console().await;
    let said = copy::no_capable_box("shop.example.com", "uk").to_string();
    assert_eq!(old_client(&world, &console).await, said);
    world.operator.create_box(&parse("uk-1"), &parse("uk")).await.unwrap();
    let (_, body) = list_door(&world, &console).await;
    assert_eq!(body.forward, Some(1), "a box that has not said anything yet is no evidence");
}

#[tokio::test]
async fn t8_old_client_where_a_box_is_capable_is_told_to_update() {
    let world = World::new().await;
    let _uk = world.start_box("uk-1").await;
    let console = world.console().await;
    let said = copy::update_to_forward("shop.example.com", "uk").to_string();
    assert_eq!(old_client(&world, &console).await, said);
    nothing_was_asked(&world, &console).await;
}

#[tokio::test]
async fn t8_new_client_on_an_old_console_prints_its_sentence_and_asks_nothing() {
    let world = World::new().await;
    let _uk = world.start_box("uk-1").await;
    let console = old_console(&world).await;
    let ran = console.query(&world, World::SQL).await;
    assert_eq!((ran.code, &ran.stdout[..]), (11, &b""[..]), "{}", ran.stderr);
    assert!(ran.stderr.contains(&residency()), "{}", ran.stderr);
    nothing_was_asked(&world, &console).await;
}

#[tokio::test]
async fn t8_new_client_and_new_console_forward() {
    let world = World::new().await;
    let _uk = world.start_box("uk-1").await;
    let console = world.console().await;
    console.query(&world, World::SQL).await.printed(World::TSV);
    assert_eq!(world.signed().await.len(), 1);
}
