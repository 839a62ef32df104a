//! RM-T10 to RM-T13: manual peers, links that are not needed, double dials.

use std::net::TcpListener;
use std::time::Duration;

use routemesh::{ManualPeer, MeshHost, ObjectRole, PeerState};

use crate::support::{SOON, until};

/// A port that was free a moment ago.
fn port() -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    listener.local_addr().expect("bound").port()
}

fn at(port: u16) -> ManualPeer {
    ManualPeer::any_identity(format!("127.0.0.1:{port}"))
}

async fn manual(
    rid: &str,
    port: u16,
    role: ObjectRole,
    served: Option<i64>,
    peers: &[u16],
) -> MeshHost {
    let mut builder = MeshHost::builder();
    let mesh = builder.route_mesh("game").plaintext().listen_port(port).object_role(role);
    match role {
        ObjectRole::None => mesh.rid(rid.as_bytes()),
        _ => mesh.rid_prefix(rid),
    };
    if let Some(weight) = served {
        mesh.channel("match").server().weight(weight);
    }
    peers.iter().for_each(|&peer| {
        mesh.peer(at(peer));
    });
    builder.start().await.expect("starts")
}

fn states(host: &MeshHost) -> Vec<PeerState> {
    let status = host.status("game").expect("registered");
    status.peers.iter().map(|peer| peer.state).collect()
}

#[tokio::test]
async fn rm_t10_rm_t12_idle_object_clients_end_not_required() {
    let (one, two) = (port(), port());
    let a = manual("a", one, ObjectRole::Client, None, &[two]).await;
    let b = manual("b", two, ObjectRole::Client, None, &[one]).await;
    until("both know", || [&a, &b].iter().all(|host| states(host) == [PeerState::NotRequired]))
        .await;
    assert_eq!(a.status("game").expect("registered").ready_peers(), 0);
    let before = a.status("game").expect("registered").sequence;
    tokio::time::sleep(Duration::from_secs(2)).await;
    let after = a.status("game").expect("registered").sequence;
    assert_eq!(before, after, "nothing is tried again");
}

#[tokio::test]
async fn rm_t11_a_membership_of_weight_zero_needs_the_link() {
    let (one, two) = (port(), port());
    let a = manual("a", one, ObjectRole::Client, Some(0), &[]).await;
    let b = manual("b", two, ObjectRole::Client, None, &[one]).await;
    until("ready", || states(&a) == [PeerState::Ready] && states(&b) == [PeerState::Ready]).await;
}

#[tokio::test]
async fn rm_t12_a_peer_that_is_needed_and_away_is_not_connected() {
    let (one, two) = (port(), port());
    let a = manual("a", one, ObjectRole::None, None, &[]).await;
    let number = a.add_peer("game", at(two).expect_rid(b"b")).await.expect("an endpoint");
    until("it is missed", || {
        matches!(states(&a)[..], [PeerState::NotConnected | PeerState::Connecting])
    })
    .await;
    let _b = manual("b", two, ObjectRole::None, None, &[]).await;
    until("it came", || states(&a) == [PeerState::Ready]).await;
    a.remove_peer("game", number).await.expect("registered");
    until("it is gone", || states(&a).is_empty()).await;
}

#[tokio::test]
async fn rm_t13_a_double_dial_leaves_one_link() {
    let (one, two) = (port(), port());
    let (to_b, to_a) = ([two], [one]);
    let (a, b) = futures::join!(
        manual("a", one, ObjectRole::None, None, &to_b),
        manual("b", two, ObjectRole::None, None, &to_a),
    );
    until("ready", || states(&a) == [PeerState::Ready] && states(&b) == [PeerState::Ready]).await;
    tokio::time::sleep(Duration::from_secs(1)).await;
    assert_eq!((states(&a), states(&b)), (vec![PeerState::Ready], vec![PeerState::Ready]));
}

#[tokio::test]
async fn a_fixed_id_comes_back_after_a_restart() {
    let (one, two) = (port(), port());
    let a = manual("a", one, ObjectRole::None, None, &[two]).await;
    let b = manual("b", two, ObjectRole::None, None, &[one]).await;
    until("ready", || states(&a) == [PeerState::Ready]).await;
    b.shutdown(SOON).await;
    drop(b);
    until("gone", || states(&a) != [PeerState::Ready]).await;
    let _again = manual("b", two, ObjectRole::None, None, &[one]).await;
    until("back", || states(&a) == [PeerState::Ready]).await;
}
