//! Two hosts in one process over real sockets: the shortest way through everything.

use std::sync::Arc;
use std::time::Duration;

use carlos_bucket::{Bucket, Context};
use object_store::memory::InMemory;
use routemesh::{
    BucketStore, Bytes, CallOptions, Content, LocationStore, MemoryStore, MeshHost, MessageKind,
    Packet, Shutdown,
};
use serde::{Deserialize, Serialize};

const SOON: Duration = Duration::from_secs(10);

#[derive(Debug, Deserialize, Packet, PartialEq, Serialize)]
#[packet(name = "join-match")]
struct JoinMatch {
    player: u64,
}

#[derive(Debug, Deserialize, Packet, PartialEq, Serialize)]
#[packet(name = "joined")]
struct Joined {
    room: String,
}

async fn server<S: LocationStore + Clone>(store: &S, plaintext: bool) -> MeshHost {
    let mut builder = MeshHost::builder();
    builder.store(store.clone());
    let mesh = builder.route_mesh("game-mesh");
    if plaintext {
        mesh.plaintext();
    }
    mesh.channel("match")
        .server()
        .on_request(|_, join: JoinMatch| async move {
            Ok(Joined { room: format!("room-{}", join.player % 4) })
        })
        .on_raw(MessageKind::Request, "echo", |_, body| async move { Ok(body) });
    builder.start().await.expect("starts")
}

async fn client<S: LocationStore + Clone>(store: &S, plaintext: bool) -> MeshHost {
    let mut builder = MeshHost::builder();
    builder.store(store.clone());
    let mesh = builder.route_mesh("game-mesh");
    if plaintext {
        mesh.plaintext();
    }
    mesh.channel("match").client();
    builder.start().await.expect("starts")
}

async fn talk(plaintext: bool) {
    let store = MemoryStore::new();
    let server = server(&store, plaintext).await;
    let client = client(&store, plaintext).await;
    client.wait_for_targets("match", 1, SOON).await.expect("the server is found");
    for player in 0..100 {
        let joined: Joined =
            client.request_to_channel("match", &JoinMatch { player }).await.expect("a reply");
        assert_eq!(joined.room, format!("room-{}", player % 4));
    }
    let channel = client.channel("match").expect("registered");
    for size in [0, 1, 4_096, 65_536, 65_537, 1 << 20, 20 << 20] {
        let body = Bytes::from(vec![7; size]);
        let options = CallOptions::default();
        let reply = channel.request_raw("echo", Content::Raw, body.clone(), &options).await;
        assert!(reply.expect("a reply").bytes == body, "{size} bytes");
    }
    assert_eq!(client.status("game-mesh").expect("registered").ready_peers(), 1);
    assert_eq!(server.shutdown(SOON).await, Shutdown::Stopped);
    assert_eq!(client.shutdown(SOON).await, Shutdown::Stopped);
}

#[tokio::test]
async fn two_nodes_talk_in_the_open() {
    talk(true).await;
}

#[tokio::test]
async fn two_nodes_talk_over_tls() {
    talk(false).await;
}

#[tokio::test]
async fn nodes_find_each_other_in_a_bucket() {
    let bucket = Bucket::new(Arc::new(InMemory::new()), Context::system());
    let store = BucketStore::new(bucket, None).local();
    let server = server(&store, false).await;
    let client = client(&store, false).await;
    client.wait_for_targets("match", 1, SOON).await.expect("the server is found");
    let joined: Joined =
        client.request_to_channel("match", &JoinMatch { player: 5 }).await.expect("a reply");
    assert_eq!(joined.room, "room-1");
    assert_eq!(server.shutdown(SOON).await, Shutdown::Stopped);
}
