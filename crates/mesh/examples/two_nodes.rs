//! Two processes on one machine that find each other by address.
//!
//! ```text
//! cargo run --example two_nodes -- server 7001 100     # prints its key
//! cargo run --example two_nodes -- server 7002 300
//! cargo run --example two_nodes -- client KEY@127.0.0.1:7001 KEY@127.0.0.1:7002
//! ```
//!
//! A server reads commands: `weight N`, `drain`, `stop`. The client sends a request every 100 ms
//! and shows who answered.
#![allow(clippy::disallowed_methods, clippy::disallowed_macros)]

use std::collections::BTreeMap;
use std::error::Error;
use std::time::Duration;

use routemesh::{Identity, ManualPeer, MeshHost, Packet, SHUTDOWN};
use serde::{Deserialize, Serialize};

#[derive(Deserialize, Packet, Serialize)]
#[packet(name = "join-match")]
struct JoinMatch {
    player: u64,
}

#[derive(Deserialize, Packet, Serialize)]
#[packet(name = "joined")]
struct Joined {
    server: String,
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = arguments.iter().map(String::as_str).collect();
    match words.as_slice() {
        ["server", port, weight] => server(port.parse()?, weight.parse()?).await,
        ["client", peers @ ..] if !peers.is_empty() => client(peers).await,
        _ => Err("two_nodes server PORT WEIGHT | client KEY@HOST:PORT...".into()),
    }
}

async fn server(port: u16, weight: i64) -> Result<(), Box<dyn Error>> {
    let name = format!("the server at {port}");
    let mut builder = MeshHost::builder();
    let mesh = builder.route_mesh("game-mesh").listen_port(port).accept_any_identity();
    mesh.channel("match").server().weight(weight).on_request(move |_, _: JoinMatch| {
        let server = name.clone();
        async move { Ok(Joined { server }) }
    });
    let host = builder.start().await?;
    let key = host.identity("game-mesh")?.ok_or("TLS has a key")?;
    println!("{key}@{}", host.endpoint("game-mesh")?);
    while let Some(line) = next_line().await {
        match line.split_whitespace().collect::<Vec<_>>().as_slice() {
            ["weight", weight] => host.set_weight("match", weight.parse()?).await?,
            ["drain"] => host.drain().await,
            ["stop"] => break,
            _ => println!("weight N | drain | stop"),
        }
    }
    println!("{:?}", host.shutdown(SHUTDOWN).await);
    Ok(())
}

/// A line of a person, or nothing at the end or at Ctrl-C.
async fn next_line() -> Option<String> {
    let read = tokio::task::spawn_blocking(|| std::io::stdin().lines().next());
    tokio::select! {
        _ = tokio::signal::ctrl_c() => None,
        line = read => line.ok()??.ok(),
    }
}

async fn client(peers: &[&str]) -> Result<(), Box<dyn Error>> {
    let mut builder = MeshHost::builder();
    let mesh = builder.route_mesh("game-mesh");
    mesh.channel("match").client();
    for peer in peers {
        let (key, endpoint) = peer.split_once('@').ok_or("a peer is KEY@HOST:PORT")?;
        mesh.peer(ManualPeer::new(endpoint, Identity::parse(key)?));
    }
    let host = builder.start().await?;
    host.wait_for_targets("match", peers.len(), Duration::from_secs(10)).await?;
    let mut answers: BTreeMap<String, u64> = BTreeMap::new();
    for player in 0.. {
        let joined = host.request_to_channel("match", &JoinMatch { player }).await;
        let who = joined.map_or_else(|error| error.to_string(), |joined: Joined| joined.server);
        *answers.entry(who).or_default() += 1;
        if player % 10 == 9 {
            println!("{answers:?}");
        }
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    Ok(())
}
