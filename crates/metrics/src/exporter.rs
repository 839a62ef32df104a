//! Answers `GET /metrics`. So little of HTTP that a service without a web server can have it: one
//! request for each connection, its head bounded in bytes and time, its body never read.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use carlos_bucket::Context;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Semaphore;
use tokio_util::sync::CancellationToken;

use crate::endpoint::Endpoint;
use crate::page::Page;

/// Bytes of a request's head: a scraper's is below one thousand.
const HEAD: usize = 8 * 1024;

/// What one request may take, from its first byte to the last of the answer.
const PATIENCE: Duration = Duration::from_secs(5);

/// Requests answered at once: two scrapers and somebody with curl.
const AT_ONCE: usize = 4;

/// Pause after a failed accept: out of descriptors is over soon or not at all.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

type Source = Arc<dyn Fn(&mut Page) + Send + Sync>;

/// A listener for numbers.
#[derive(Debug)]
pub struct Exporter {
    listener: TcpListener,
}

impl Exporter {
    /// Takes the address.
    ///
    /// # Errors
    /// When it cannot be had.
    pub async fn bind(endpoint: Endpoint) -> io::Result<Self> {
        Ok(Self { listener: TcpListener::bind(endpoint.address).await? })
    }

    /// The address, with the port that the system chose for port 0.
    ///
    /// # Errors
    /// When the system does not say.
    pub fn address(&self) -> io::Result<SocketAddr> {
        self.listener.local_addr()
    }

    /// Answers until `shutdown` with what `source` writes.
    pub async fn serve(
        self,
        ctx: Context,
        source: impl Fn(&mut Page) + Send + Sync + 'static,
        shutdown: CancellationToken,
    ) {
        let (source, room): (Source, _) = (Arc::new(source), Arc::new(Semaphore::new(AT_ONCE)));
        loop {
            let accepted = tokio::select! {
                biased;
                () = shutdown.cancelled() => return,
                accepted = self.listener.accept() => accepted,
            };
            match accepted {
                Ok((stream, _)) => {
                    // With no room the connection is closed: the next scrape comes anyway.
                    let Ok(place) = Arc::clone(&room).try_acquire_owned() else { continue };
                    let (clock, source) = (ctx.clone(), Arc::clone(&source));
                    drop(ctx.spawn(async move {
                        let answered = clock.timeout(PATIENCE, answer(stream, &source)).await;
                        tracing::trace!(?answered, "a request for metrics");
                        drop(place);
                    }));
                }
                Err(error) => {
                    tracing::warn!(%error, "accepting a request for metrics failed");
                    ctx.sleep(ACCEPT_PAUSE).await;
                }
            }
        }
    }
}

async fn answer(mut stream: TcpStream, source: &Source) -> io::Result<()> {
    let response = match Asked::of(&head(&mut stream).await?) {
        Asked::Metrics => {
            let mut page = Page::default();
            source(&mut page);
            response("200 OK", page.text())
        }
        Asked::Elsewhere => response("404 Not Found", "the numbers are at /metrics\n"),
        Asked::Otherwise => response("405 Method Not Allowed", "only GET\n"),
        Asked::Garbage => response("400 Bad Request", "not a request\n"),
    };
    stream.write_all(response.as_bytes()).await?;
    stream.shutdown().await
}

/// The bytes up to the blank line; what came so far when there is none in time or in bounds.
async fn head(stream: &mut TcpStream) -> io::Result<Vec<u8>> {
    let mut head = Vec::new();
    let mut piece = [0; 1024];
    while head.len() < HEAD && !head.windows(4).any(|end| end == b"\r\n\r\n") {
        match stream.read(&mut piece).await? {
            0 => break,
            count => head.extend_from_slice(&piece[..count]),
        }
    }
    Ok(head)
}

/// What a request's first line asks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Asked {
    Metrics,
    Elsewhere,
    Otherwise,
    Garbage,
}

impl Asked {
    fn of(head: &[u8]) -> Self {
        let whole = head.windows(4).any(|end| end == b"\r\n\r\n");
        let line = head.split(|byte| *byte == b'\r').next().unwrap_or_default();
        let words: Vec<&[u8]> = line.split(|byte| *byte == b' ').collect();
        let [method, target, version] = words[..] else { return Self::Garbage };
        if !whole || !version.starts_with(b"HTTP/1.") {
            return Self::Garbage;
        }
        let path = target.split(|byte| *byte == b'?').next().unwrap_or_default();
        match (method, path) {
            (b"GET", b"/metrics") => Self::Metrics,
            (b"GET", _) => Self::Elsewhere,
            _ => Self::Otherwise,
        }
    }
}

fn response(status: &str, body: &str) -> String {
    format!(
        "HTTP/1.1 {status}\r\nContent-Type: text/plain; version=0.0.4; charset=utf-8\r\n\
         Content-Length: {}\r\nCache-Control: no-store\r\nConnection: close\r\n\r\n{body}",
        body.len()
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::page::Kind;

    struct Running {
        address: SocketAddr,
        shutdown: CancellationToken,
    }

    async fn running() -> Running {
        let endpoint = Endpoint { address: "127.0.0.1:0".parse().unwrap() };
        let exporter = Exporter::bind(endpoint).await.unwrap();
        let (address, shutdown) = (exporter.address().unwrap(), CancellationToken::new());
        let source = |page: &mut Page| page.one("up", Kind::Gauge, "Up.", true);
        let ctx = Context::system();
        ctx.spawn(exporter.serve(ctx.clone(), source, shutdown.clone()));
        Running { address, shutdown }
    }

    async fn ask(at: SocketAddr, request: &[u8]) -> String {
        let mut stream = TcpStream::connect(at).await.unwrap();
        stream.write_all(request).await.unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).await.unwrap();
        answer
    }

    #[tokio::test]
    async fn the_numbers_are_at_metrics_and_nowhere_else() {
        let Running { address, shutdown } = running().await;
        let answer = ask(address, b"GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n").await;
        let (head, body) = answer.split_once("\r\n\r\n").unwrap();
        assert!(head.starts_with("HTTP/1.1 200 OK\r\n"), "{head}");
        assert!(head.contains(&format!("Content-Length: {}", body.len())), "{head}");
        assert_eq!(body, "# HELP up Up.\n# TYPE up gauge\nup 1\n");
        for (request, status) in [
            ("GET / HTTP/1.1\r\n\r\n", "404"),
            ("POST /metrics HTTP/1.1\r\n\r\n", "405"),
            ("GET /metrics\r\n\r\n", "400"),
            ("GET /metrics SPDY/3\r\n\r\n", "400"),
        ] {
            let answer = ask(address, request.as_bytes()).await;
            assert!(answer.starts_with(&format!("HTTP/1.1 {status} ")), "{request}: {answer}");
        }
        shutdown.cancel();
    }

    #[tokio::test]
    async fn a_head_without_an_end_is_no_request() {
        let Running { address, .. } = running().await;
        let mut stream = TcpStream::connect(address).await.unwrap();
        stream.write_all(&vec![b'x'; HEAD]).await.unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).await.unwrap();
        assert!(answer.starts_with("HTTP/1.1 400 "), "{answer}");
    }

    #[tokio::test]
    async fn silent_connections_do_not_pile_up() {
        let Running { address, .. } = running().await;
        let mut silent = Vec::new();
        for _ in 0..AT_ONCE {
            silent.push(TcpStream::connect(address).await.unwrap());
        }
        let mut one_more = TcpStream::connect(address).await.unwrap();
        let mut answer = Vec::new();
        // Closed at once, long before the silent ones lose their patience.
        let ctx = Context::system();
        let closed = ctx.timeout(PATIENCE / 2, one_more.read_to_end(&mut answer));
        assert_eq!(closed.await.unwrap().unwrap_or(0), 0);
    }

    #[tokio::test]
    async fn a_shutdown_gives_the_address_back() {
        let Running { address, shutdown } = running().await;
        shutdown.cancel();
        let ctx = Context::system();
        let free = async {
            while TcpListener::bind(address).await.is_err() {
                ctx.sleep(Duration::from_millis(5)).await;
            }
        };
        ctx.timeout(PATIENCE, free).await.expect("the listener goes with its task");
    }

    proptest::proptest! {
        #[test]
        fn any_bytes_are_some_question(head in proptest::collection::vec(0_u8.., 0..200)) {
            let _: Asked = Asked::of(&head);
        }
    }
}
