//! RM-T14, RM-T15 and the scenarios around selection.

use std::collections::BTreeMap;
use std::time::Duration;

use routemesh::{
    CallError, CallOptions, ConfigError, MemoryStore, MeshHost, NoTarget, Shutdown, StartError,
};

use crate::support::{Answer, Ask, SOON, ask, client, node, server, until, who};

#[tokio::test]
async fn rm_t14_weights_have_a_range() {
    for weight in [-1, 10_001] {
        let mut builder = MeshHost::builder();
        builder.route_mesh("game").channel("match").server().weight(weight);
        let Err(StartError::Config(errors)) = builder.start().await else { panic!("refused") };
        assert_eq!(errors.0, [ConfigError::Weight { channel: "match".into(), weight }]);
    }
    let store = MemoryStore::new();
    let host = server(&store, "a", 100).await;
    for weight in [-1, 10_001] {
        let set = host.set_weight("match", weight).await;
        assert!(matches!(set, Err(CallError::InvalidOperation(_))), "{weight}");
    }
    for weight in [0, 10_000, 100] {
        assert_eq!(host.set_weight("match", weight).await, Ok(()));
    }
    let caller = client(&store).await;
    assert!(matches!(caller.set_weight("match", 1).await, Err(CallError::NotConfigured(_))));
}

async fn tally(host: &MeshHost, calls: usize) -> BTreeMap<String, usize> {
    let mut tally = BTreeMap::new();
    for _ in 0..calls {
        *tally.entry(who(host).await.expect("a reply")).or_default() += 1;
    }
    tally
}

#[tokio::test]
async fn weights_share_calls_exactly() {
    let store = MemoryStore::new();
    let _servers = (server(&store, "a", 100).await, server(&store, "b", 300).await);
    let caller = client(&store).await;
    caller.wait_for_targets("match", 2, SOON).await.expect("both found");
    let shares = tally(&caller, 80).await;
    assert_eq!(shares, BTreeMap::from([("a".to_owned(), 20), ("b".to_owned(), 60)]));
}

#[tokio::test]
async fn rm_t15_weight_zero_and_drain_touch_new_selections_only() {
    let store = MemoryStore::new();
    let mut builder = MeshHost::builder();
    let mesh = node(&mut builder, &store).rid_prefix("slow");
    mesh.channel("match").server().on_request(|_, ask: Ask| async move {
        if ask.text == "slow" {
            tokio::time::sleep(Duration::from_millis(700)).await;
        }
        Ok(Answer { by: "slow".into() })
    });
    mesh.on_node_request(|_, _: Ask| async { Ok(Answer { by: "direct".into() }) });
    let slow = builder.start().await.expect("starts");
    let caller = client(&store).await;
    caller.wait_for_targets("match", 1, SOON).await.expect("found");
    let slowly = ask("slow");
    let pending = caller.request_to_channel::<_, Answer>("match", &slowly);
    let turned = async {
        tokio::time::sleep(Duration::from_millis(100)).await;
        slow.set_weight("match", 0).await.expect("in range");
        until("no target is left", || {
            caller.status("game").is_ok_and(|s| s.channels[0].ready_targets == 0)
        })
        .await;
        assert_eq!(who(&caller).await, Err(CallError::NoTarget(NoTarget::WeightZero)));
    };
    let (ended, ()) = futures::join!(pending, turned);
    assert_eq!(ended.map(|answer| answer.by).as_deref(), Ok("slow"), "submitted work goes on");
    let status = caller.status("game").expect("registered");
    assert_eq!(status.ready_peers(), 1, "the link stays");
    slow.set_weight("match", 100).await.expect("in range");
    caller.wait_for_targets("match", 1, SOON).await.expect("back again");
    slow.drain().await;
    until("draining is seen", || {
        caller.status("game").is_ok_and(|s| s.channels[0].ready_targets == 0)
    })
    .await;
    assert_eq!(who(&caller).await, Err(CallError::NoTarget(NoTarget::Draining)));
    let rid = slow.rid("game").expect("registered");
    let (packet, options) = (ask("x"), CallOptions::default());
    let direct: Result<Answer, _> = caller.request_to_node("game", &rid, &packet, &options).await;
    assert_eq!(direct.map(|answer| answer.by).as_deref(), Ok("direct"));
    assert_eq!(slow.shutdown(SOON).await, Shutdown::Stopped);
}

#[tokio::test]
async fn a_server_calls_itself_through_the_same_way() {
    let store = MemoryStore::new();
    let host = server(&store, "self", 100).await;
    host.wait_for_targets("match", 1, SOON).await.expect("itself");
    assert_eq!(who(&host).await.as_deref(), Ok("self"));
    host.set_weight("match", 0).await.expect("in range");
    until("it is out", || host.status("game").is_ok_and(|s| s.channels[0].ready_targets == 0))
        .await;
    assert_eq!(who(&host).await, Err(CallError::NoTarget(NoTarget::WeightZero)));
    let unknown = host.channel("unknown").map(|_| ());
    assert_eq!(unknown, Err(CallError::NoTarget(NoTarget::NotRegistered)));
}
