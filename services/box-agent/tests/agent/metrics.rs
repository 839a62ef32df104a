//! What an agent shows to `GET /metrics`. Over a real socket, and so in real time.

use std::net::{SocketAddr, TcpListener};
use std::sync::Arc;
use std::time::Duration;

use carlos_box_agent::{AgentConfig, AgentError, run};
use carlos_bucket::Pace;
use carlos_metrics::Endpoint;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio_util::sync::CancellationToken;

use crate::support::World;
use crate::workers::Script;

async fn page(at: SocketAddr) -> Option<String> {
    let mut stream = TcpStream::connect(at).await.ok()?;
    stream.write_all(b"GET /metrics HTTP/1.1\r\nHost: localhost\r\n\r\n").await.ok()?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer).await.ok()?;
    answer.starts_with("HTTP/1.1 200 ").then_some(answer)
}

async fn until(world: &World, at: SocketAddr, line: &str) -> String {
    for _ in 0..400 {
        let found = page(at).await.unwrap_or_default();
        if found.lines().any(|it| it == line) {
            return found;
        }
        world.ctx.sleep(Duration::from_millis(25)).await;
    }
    panic!("never {line}: {:?}", page(at).await);
}

fn watched(world: &World, at: SocketAddr) -> AgentConfig {
    let quick = Duration::from_millis(20);
    let pace = Pace { idle: quick, active: quick, ..Pace::default() };
    AgentConfig { pace, metrics_at: Some(Endpoint { address: at }), ..world.config("box-1") }
}

#[tokio::test]
async fn a_read_is_seen_in_the_numbers() {
    let world = World::new().await;
    let free = TcpListener::bind("127.0.0.1:0").unwrap();
    let at = free.local_addr().unwrap();
    drop(free);
    let workers = world.workers(Script::default());
    let ports = world.ports("box-1", Arc::clone(&workers));
    let agent = world.launch(watched(&world, at), ports, workers);
    let before = until(&world, at, "carlos_agent_ready 1").await;
    assert!(before.contains("carlos_agent_read_slots 2\n"), "{before}");
    assert!(!before.contains("carlos_agent_reads_total{"), "{before}");
    let asked = world.ask("SELECT 1").await;
    world.rows(&asked).await;
    let after = until(&world, at, "carlos_agent_reads_total{state=\"done\",code=\"\"} 1").await;
    for line in [
        "carlos_agent_elections_total{outcome=\"won\"} 1",
        "carlos_agent_pickup_seconds_count 1",
        "carlos_agent_queue_entries{state=\"waiting\"} 0",
        "carlos_agent_draining 0",
        "carlos_bucket_requests_total{bucket=\"deployment\",kind=\"list\",answer=\"failed\"} 0",
        // One for each level of the replica.
        "carlos_bucket_requests_total{bucket=\"data\",kind=\"list\",answer=\"ok\"} 10",
    ] {
        assert!(after.lines().any(|found| found == line), "{line}: {after}");
    }
    assert!(after.contains("kind=\"get\",answer=\"not_modified\"}"), "{after}");
    agent.shutdown.cancel();
    agent.task.await.unwrap();
    assert_eq!(page(at).await, None, "the listener goes with the agent");
}

#[tokio::test(start_paused = true)]
async fn an_agent_whose_address_is_taken_does_not_start() {
    let world = World::new().await;
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let config = watched(&world, taken.local_addr().unwrap());
    let ports = world.ports("box-1", world.workers(Script::default()));
    let ended = run(config, ports, CancellationToken::new()).await;
    assert!(matches!(ended, Err(AgentError::Metrics(_))), "{ended:?}");
}
