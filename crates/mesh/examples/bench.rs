//! A first measure of a link: `bench server PORT [tls]`, then `bench client PORT SIZE DEPTH
//! SECONDS [tls]`; a depth of 0 sends one way.
#![allow(clippy::disallowed_methods, clippy::disallowed_macros)]

use std::error::Error;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use routemesh::{
    Bytes, CallOptions, ChannelHandle, Content, ManualPeer, MeshHost, MeshHostBuilder, MessageKind,
    RouteMeshBuilder,
};

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let tls = words.last() == Some(&"tls");
    match words.as_slice() {
        ["server", port, ..] => server(port.parse()?, tls).await,
        ["client", port, size, depth, seconds, ..] => {
            let (size, depth, seconds) = (size.parse()?, depth.parse()?, seconds.parse()?);
            client(port, size, depth, Duration::from_secs(seconds), tls).await
        }
        _ => Err("bench server PORT | client PORT SIZE DEPTH SECONDS".into()),
    }
}

fn node(builder: &mut MeshHostBuilder, tls: bool) -> &mut RouteMeshBuilder {
    let mesh = builder.route_mesh("bench").accept_any_identity();
    if tls { mesh } else { mesh.plaintext() }
}

async fn server(port: u16, tls: bool) -> Result<(), Box<dyn Error>> {
    let count = Arc::new(AtomicU64::new(0));
    let (sink, total) = (Arc::clone(&count), Arc::clone(&count));
    let mut builder = MeshHost::builder();
    let mesh = node(&mut builder, tls).listen_port(port);
    mesh.channel("work")
        .server()
        .on_raw(MessageKind::Request, "echo", |_, body| async move { Ok(body) })
        .on_raw(MessageKind::Request, "total", move |_, _| {
            let total = total.load(Ordering::Relaxed);
            async move { Ok(Bytes::copy_from_slice(&total.to_be_bytes())) }
        })
        .on_raw(MessageKind::Send, "sink", move |_, _| {
            sink.fetch_add(1, Ordering::Relaxed);
            async move { Ok(Bytes::new()) }
        });
    let _host = builder.start().await?;
    std::future::pending::<()>().await;
    Ok(())
}

async fn client(
    port: &str,
    size: usize,
    depth: usize,
    time: Duration,
    tls: bool,
) -> Result<(), Box<dyn Error>> {
    let mut builder = MeshHost::builder();
    let mesh = node(&mut builder, tls).peer(ManualPeer::any_identity(format!("127.0.0.1:{port}")));
    mesh.channel("work").client();
    let host = builder.start().await?;
    host.wait_for_targets("work", 1, Duration::from_secs(10)).await?;
    let channel = host.channel("work")?;
    let body = Bytes::from(vec![7; size]);
    match depth {
        0 => one_way(&channel, body, time).await,
        _ => round_trips(&channel, body, depth, time).await,
    }
}

async fn one_way(
    channel: &ChannelHandle,
    body: Bytes,
    time: Duration,
) -> Result<(), Box<dyn Error>> {
    let options = CallOptions::default();
    let (start, before) = (Instant::now(), total(channel).await?);
    while start.elapsed() < time {
        for _ in 0..64 {
            channel.send_raw("sink", Content::Raw, body.clone(), &options).await?;
        }
    }
    let count = total(channel).await? - before;
    println!("one-way {:>8.1} k/s", count as f64 / start.elapsed().as_secs_f64() / 1e3);
    Ok(())
}

async fn total(channel: &ChannelHandle) -> Result<u64, Box<dyn Error>> {
    let options = CallOptions::default();
    let reply = channel.request_raw("total", Content::Raw, Bytes::new(), &options).await?;
    Ok(u64::from_be_bytes(reply.bytes.as_ref().try_into()?))
}

async fn round_trips(
    channel: &ChannelHandle,
    body: Bytes,
    depth: usize,
    time: Duration,
) -> Result<(), Box<dyn Error>> {
    let times = Arc::new(Mutex::new(Vec::new()));
    let start = Instant::now();
    let workers = (0..depth).map(|_| {
        let (channel, body, times) = (channel.clone(), body.clone(), Arc::clone(&times));
        tokio::spawn(async move {
            let (options, mut mine) = (CallOptions::default(), Vec::new());
            while start.elapsed() < time {
                let sent = Instant::now();
                let reply = channel.request_raw("echo", Content::Raw, body.clone(), &options);
                reply.await.expect("a reply");
                mine.push(sent.elapsed());
            }
            times.lock().expect("nobody panicked").extend(mine);
        })
    });
    for worker in workers.collect::<Vec<_>>() {
        worker.await?;
    }
    let elapsed = start.elapsed().as_secs_f64();
    let mut times = times.lock().expect("nobody panicked");
    times.sort_unstable();
    let at = |share: f64| times[(times.len() as f64 * share) as usize];
    println!(
        "depth {depth:>4} {:>8.1} k/s  p50 {:>7.1?}  p99 {:>7.1?}",
        times.len() as f64 / elapsed / 1e3,
        at(0.5),
        at(0.99)
    );
    Ok(())
}
