//! RM-T17 and the ends of calls.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use routemesh::{
    CallError, CallOptions, ErrorKind, HandlerError, Json, MemoryStore, MeshHost, MessageKind,
    RouterOptions,
};

use crate::support::{Ask, SOON, ask, client, node, request, until};

/// A server whose handler does what the text says.
async fn obedient(store: &MemoryStore, router: RouterOptions, seen: Arc<AtomicUsize>) -> MeshHost {
    let mut builder = MeshHost::builder();
    let mesh = node(&mut builder, store).router(router);
    mesh.channel("match")
        .server()
        .on_request(move |_, ask: Ask| {
            seen.fetch_add(1, Ordering::SeqCst);
            async move {
                match ask.text.as_str() {
                    "refuse" => Err(HandlerError::rejected("no")),
                    "fail" => Err(HandlerError::failed("broken")),
                    "panic" => panic!("as asked"),
                    "sleep" => {
                        tokio::time::sleep(Duration::from_millis(500)).await;
                        Ok(Json(0))
                    }
                    text => Ok(Json(text.len())),
                }
            }
        })
        .on_raw(MessageKind::Request, "length", |_, body| async move {
            Ok(body.len().to_string().into())
        });
    builder.start().await.expect("starts")
}

async fn pair(router: RouterOptions) -> (MeshHost, MeshHost, Arc<AtomicUsize>) {
    let (store, seen) = (MemoryStore::new(), Arc::new(AtomicUsize::new(0)));
    let server = obedient(&store, router, Arc::clone(&seen)).await;
    let client = client(&store).await;
    client.wait_for_targets("match", 1, SOON).await.expect("found");
    (server, client, seen)
}

#[tokio::test]
async fn every_end_has_its_kind() {
    let (_server, client, _) = pair(RouterOptions::default()).await;
    let end = async |text| request::<Json<usize>>(&client, text).await.map(|json| json.0);
    assert_eq!(end("four").await, Ok(4));
    assert_eq!(end("refuse").await, Err(CallError::Rejected("no".into())));
    assert_eq!(end("fail").await, Err(CallError::InternalFailure("broken".into())));
    assert_eq!(end("panic").await.map_err(|e| e.kind()), Err(ErrorKind::InternalFailure));
    assert_eq!(end("after").await, Ok(5), "a panic ends nothing else");
    let other = request::<()>(&client, "x").await;
    assert_eq!(other.map_err(|error| error.kind()), Err(ErrorKind::ProtocolError));
    let channel = client.channel("match").expect("registered");
    let options = CallOptions::default();
    let unknown = channel.request_raw("none", Default::default(), "x".into(), &options).await;
    assert_eq!(unknown.map_err(|error| error.kind()).map(|_| ()), Err(ErrorKind::NotFound));
}

#[tokio::test]
async fn a_late_reply_is_nobodys() {
    let (_server, client, seen) = pair(RouterOptions::default()).await;
    let channel = client.channel("match").expect("registered");
    let hasty = CallOptions { timeout: Some(Duration::from_millis(100)), ..Default::default() };
    let late = channel.request_with::<_, Json<usize>>(&ask("sleep"), &hasty).await;
    assert_eq!(late.map(|json| json.0), Err(CallError::DeadlineExceeded));
    for text in ["a", "bb"] {
        let reply = channel.request::<_, Json<usize>>(&ask(text)).await;
        assert_eq!(reply.map(|json| json.0), Ok(text.len()));
    }
    tokio::time::sleep(Duration::from_millis(600)).await;
    let reply = channel.request::<_, Json<usize>>(&ask("ccc")).await;
    assert_eq!(reply.map(|json| json.0), Ok(3));
    assert_eq!(seen.load(Ordering::SeqCst), 4, "each ran once");
}

#[tokio::test]
async fn rm_t17_large_messages_arrive_whole_or_not_at_all() {
    let small = RouterOptions { mailbox_byte_budget: 1 << 20, ..RouterOptions::default() };
    let (_server, client, _) = pair(small).await;
    let channel = client.channel("match").expect("registered");
    let options = CallOptions::default();
    let length = async |size: usize| {
        let body = vec![1; size].into();
        let reply = channel.request_raw("length", Default::default(), body, &options).await;
        reply.map(|reply| reply.bytes)
    };
    for size in [0, 1, 65_536, 65_537, 900_000, 5_000_000] {
        assert_eq!(length(size).await.as_deref(), Ok(size.to_string().as_bytes()), "{size}");
    }
    // Behind a message that runs, one above the whole budget does not get in.
    let sleep = ask("sleep");
    let busy = channel.request::<_, Json<usize>>(&sleep);
    let large = async {
        tokio::time::sleep(Duration::from_millis(100)).await;
        length(5_000_000).await.map_err(|error| error.kind())
    };
    let (slept, large) = futures::join!(busy, large);
    assert!(slept.is_ok());
    assert_eq!(large, Err(ErrorKind::Unavailable));
    assert_eq!(length(5_000_000).await.as_deref(), Ok(&b"5000000"[..]), "and alone again");
}

#[tokio::test]
async fn a_lost_server_ends_its_requests_once() {
    let (server, client, seen) = pair(RouterOptions::default()).await;
    let pending = request::<Json<usize>>(&client, "sleep");
    let lost = async {
        until("it runs", || seen.load(Ordering::SeqCst) == 1).await;
        drop(server);
    };
    let (ended, ()) = futures::join!(pending, lost);
    assert_eq!(ended.map(|_| ()).map_err(|error| error.kind()), Err(ErrorKind::Unavailable));
}

#[tokio::test]
async fn a_shutdown_lets_accepted_work_answer() {
    let (server, client, seen) = pair(RouterOptions::default()).await;
    let pending = request::<Json<usize>>(&client, "sleep");
    let ends = async {
        until("it runs", || seen.load(Ordering::SeqCst) == 1).await;
        server.shutdown(SOON).await
    };
    let (ended, shutdown) = futures::join!(pending, ends);
    assert_eq!(ended.map(|json| json.0), Ok(0), "its reply arrives");
    assert_eq!(shutdown, routemesh::Shutdown::Stopped);
    until("it is gone", || client.status("game").is_ok_and(|s| s.ready_peers() == 0)).await;
    let after = request::<Json<usize>>(&client, "x").await.map(|_| ());
    assert!(matches!(after, Err(CallError::NoTarget(_))), "{after:?}");
}
