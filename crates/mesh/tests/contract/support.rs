//! Packets, and hosts that are quickly made.

use std::time::Duration;

use routemesh::{
    Body, CallError, MemoryStore, MeshHost, MeshHostBuilder, Packet, RouteMeshBuilder,
};
use serde::{Deserialize, Serialize};

/// Far above what anything here takes, even on a busy machine.
pub(crate) const SOON: Duration = Duration::from_secs(20);

#[derive(Clone, Debug, Deserialize, Packet, PartialEq, Serialize)]
#[packet(name = "ask")]
pub(crate) struct Ask {
    pub(crate) text: String,
}

#[derive(Clone, Debug, Deserialize, Packet, PartialEq, Serialize)]
#[packet(name = "answer")]
pub(crate) struct Answer {
    pub(crate) by: String,
}

pub(crate) fn ask(text: &str) -> Ask {
    Ask { text: text.to_owned() }
}

/// A plaintext node of the mesh `game`.
pub(crate) fn node<'a>(
    builder: &'a mut MeshHostBuilder,
    store: &MemoryStore,
) -> &'a mut RouteMeshBuilder {
    builder.store(store.clone());
    builder.route_mesh("game").plaintext()
}

/// A server of `match` that answers with its name.
pub(crate) async fn server(store: &MemoryStore, name: &'static str, weight: i64) -> MeshHost {
    let mut builder = MeshHost::builder();
    let mesh = node(&mut builder, store).rid_prefix(name);
    mesh.channel("match")
        .server()
        .weight(weight)
        .on_request(move |_, _: Ask| async move { Ok(Answer { by: name.to_owned() }) });
    builder.start().await.expect("a server starts")
}

/// A client of `match`.
pub(crate) async fn client(store: &MemoryStore) -> MeshHost {
    let mut builder = MeshHost::builder();
    node(&mut builder, store).rid_prefix("client").channel("match").client();
    builder.start().await.expect("a client starts")
}

/// Who answers a request.
pub(crate) async fn who(host: &MeshHost) -> Result<String, CallError> {
    let answer: Answer = host.request_to_channel("match", &ask("who")).await?;
    Ok(answer.by)
}

/// Waits until `holds`.
pub(crate) async fn until(what: &str, mut holds: impl FnMut() -> bool) {
    let start = std::time::Instant::now();
    while !holds() {
        assert!(start.elapsed() < SOON, "{what}");
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}

/// A reply that is no packet.
pub(crate) async fn request<R: Body>(host: &MeshHost, text: &str) -> Result<R, CallError> {
    host.request_to_channel("match", &ask(text)).await
}
