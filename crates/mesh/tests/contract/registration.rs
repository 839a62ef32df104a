//! RM-T01, T02, T04 to T08: registration and validation before any socket.

use routemesh::{
    CallError, CallOptions, ConfigError, MemoryStore, MeshHost, MeshHostBuilder, NetworkOptions,
    NoTarget, ObjectRole, RouterOptions, StartError,
};

use crate::support::{Answer, Ask, SOON, ask, client, node, server, until, who};

/// What is wrong with a configuration.
async fn refused(configure: impl FnOnce(&mut MeshHostBuilder)) -> Vec<ConfigError> {
    let mut builder = MeshHost::builder();
    configure(&mut builder);
    match builder.start().await {
        Err(StartError::Config(errors)) => errors.0,
        Err(other) => panic!("not found by the validation: {other}"),
        Ok(_) => Vec::new(),
    }
}

#[tokio::test]
async fn rm_t01_one_node_for_each_mesh() {
    let errors = refused(|host| {
        host.route_mesh("game");
        host.route_mesh("admin");
        host.route_mesh("game");
    });
    assert_eq!(errors.await, [ConfigError::DuplicateMesh("game".into())]);
}

#[tokio::test]
async fn rm_t02_one_send_path_for_each_channel() {
    let twice = |first: &str, second: &str| {
        let (first, second) = (first.to_owned(), second.to_owned());
        ConfigError::DuplicateChannel { channel: "match".into(), first, second }
    };
    let errors = refused(|host| {
        host.route_mesh("game").channel("match").client();
        host.route_mesh("admin").channel("match").client();
    });
    assert_eq!(errors.await, [twice("mesh \"game\"", "mesh \"admin\"")]);
    let errors = refused(|host| {
        let mesh = host.route_mesh("game");
        mesh.channel("match").client();
        mesh.channel("match").server();
    });
    assert_eq!(errors.await, [twice("mesh \"game\"", "mesh \"game\"")]);
    let errors = refused(|host| {
        host.reserve_channel("match", "fanout");
        host.route_mesh("game").channel("match").client();
    });
    assert_eq!(errors.await, [twice("fanout", "mesh \"game\"")]);
}

#[tokio::test]
async fn rm_t04_meshes_do_not_mix() {
    let store = MemoryStore::new();
    let game = server(&store, "game", 100).await;
    let mut builder = MeshHost::builder();
    builder.store(store.clone());
    builder.route_mesh("admin").plaintext().channel("match").client();
    let admin = builder.start().await.expect("starts");
    let near = client(&store).await;
    near.wait_for_targets("match", 1, SOON).await.expect("found within its mesh");
    assert_eq!(who(&admin).await, Err(CallError::NoTarget(NoTarget::NotPublished)));
    assert!(admin.status("admin").expect("registered").peers.is_empty());
    let foreign = game.rid("game").expect("registered");
    let sent = admin.send_to_node("admin", &foreign, &ask("x")).await;
    assert_eq!(sent, Err(CallError::NoTarget(NoTarget::NotPublished)));
}

#[tokio::test]
async fn rm_t05_channels_share_one_link() {
    let store = MemoryStore::new();
    let mut builder = MeshHost::builder();
    let mesh = node(&mut builder, &store);
    for name in ["chat", "lobby", "match"] {
        mesh.channel(name)
            .server()
            .on_request(move |_, _: Ask| async move { Ok(Answer { by: name.to_owned() }) });
    }
    let _server = builder.start().await.expect("starts");
    let mut builder = MeshHost::builder();
    let mesh = node(&mut builder, &store);
    for name in ["chat", "lobby", "match"] {
        mesh.channel(name).client();
    }
    let client = builder.start().await.expect("starts");
    for name in ["chat", "lobby", "match"] {
        client.wait_for_targets(name, 1, SOON).await.expect("found");
        let answer: Answer = client.request_to_channel(name, &ask("x")).await.expect("a reply");
        assert_eq!(answer.by, name);
    }
    assert_eq!(client.status("game").expect("registered").peers.len(), 1);
}

#[tokio::test]
async fn rm_t06_a_client_is_no_target() {
    let store = MemoryStore::new();
    let (one, two) = (client(&store).await, client(&store).await);
    until("both are connected", || {
        [&one, &two].iter().all(|host| host.status("game").is_ok_and(|s| s.ready_peers() == 1))
    })
    .await;
    assert_eq!(who(&one).await, Err(CallError::NoTarget(NoTarget::NotPublished)));
    assert_eq!(one.status("game").expect("registered").channels[0].ready_targets, 0);
}

#[tokio::test]
async fn rm_t07_a_node_without_membership_calls_and_is_called() {
    let store = MemoryStore::new();
    let mut builder = MeshHost::builder();
    node(&mut builder, &store).on_node_request(|context, ask: Ask| async move {
        Ok(Answer { by: format!("{} of {}", ask.text, context.source()) })
    });
    let target = builder.start().await.expect("starts without a channel");
    let caller = client(&store).await;
    let rid = target.rid("game").expect("registered");
    until("connected", || caller.status("game").is_ok_and(|s| s.ready_peers() == 1)).await;
    let options = CallOptions::default();
    let answer: Answer =
        caller.request_to_node("game", &rid, &ask("call"), &options).await.expect("a reply");
    assert_eq!(answer.by, format!("call of {}", caller.rid("game").expect("registered")));
    let itself: Answer =
        target.request_to_node("game", &rid, &ask("call"), &options).await.expect("a reply");
    assert_eq!(itself.by, format!("call of {rid}"), "a node may name itself");
}

#[tokio::test]
async fn rm_t08_an_object_client_serves_channels_and_takes_no_direct_messages() {
    let errors = refused(|host| {
        let mesh = host.store(MemoryStore::new()).route_mesh("game");
        mesh.object_role(ObjectRole::Client);
        mesh.on_node_send(|_, _: Ask| async { Ok(()) });
    });
    assert_eq!(errors.await, [ConfigError::NodeHandlerOnObjectClient("game".into())]);
    let store = MemoryStore::new();
    let mut builder = MeshHost::builder();
    let mesh = node(&mut builder, &store).object_role(ObjectRole::Client);
    mesh.channel("match")
        .server()
        .on_request(|_, _: Ask| async { Ok(Answer { by: "object client".into() }) });
    let served = builder.start().await.expect("a channel server may be an object client");
    let caller = client(&store).await;
    caller.wait_for_targets("match", 1, SOON).await.expect("found");
    assert_eq!(who(&caller).await.as_deref(), Ok("object client"));
    let rid = served.rid("game").expect("registered");
    let sent = caller.send_to_node("game", &rid, &ask("x")).await;
    assert_eq!(sent, Err(CallError::NoTarget(NoTarget::ObjectClient)));
}

#[tokio::test]
async fn every_other_fault_of_a_configuration_has_its_name() {
    let endpoint = |endpoint: &str, reason| ConfigError::Endpoint {
        mesh: "game".into(),
        endpoint: endpoint.into(),
        reason,
    };
    let errors = refused(|host| {
        host.network(NetworkOptions { bind_host: "0.0.0.0".into(), advertise_host: None });
        host.route_mesh("game");
    });
    let reason = "a wildcard needs an advertise host";
    assert_eq!(errors.await, [endpoint("0.0.0.0", reason)]);
    let errors = refused(|host| {
        host.route_mesh("game").router(RouterOptions {
            send_timeout: Some(std::time::Duration::ZERO),
            ..RouterOptions::default()
        });
    });
    assert_eq!(errors.await, [ConfigError::Timeout { what: "the send timeout" }]);
    let errors = refused(|host| {
        host.store(MemoryStore::new()).route_mesh("game").rid(b"fixed");
    });
    assert!(matches!(errors.await[..], [ConfigError::Rid { .. }]));
    let errors = refused(|host| {
        let mesh = host.route_mesh("game");
        mesh.channel("match")
            .server()
            .on_request(|_, _: Ask| async { Ok(()) })
            .on_request(|_, _: Ask| async { Ok(()) });
        let _ = mesh.channel("open");
    });
    let (scope, kind) = ("channel \"match\"".to_owned(), "request");
    let twice = ConfigError::DuplicateHandler { scope, kind, packet: "ask".into() };
    assert_eq!(errors.await, [twice, ConfigError::NoRole("open".into())]);
    assert_eq!(refused(|_| ()).await, [ConfigError::NoMesh]);
}
