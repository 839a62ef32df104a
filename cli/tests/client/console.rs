//! HTTP/1.1 on a loopback port, just enough of it.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;

use serde_json::Value;

/// What the console says to each kind of request. The defaults are one app with one instance in
/// another region, whose reads are never answered.
pub(crate) struct Script {
    pub(crate) apps: Reply,
    pub(crate) instances: Reply,
    pub(crate) door: Reply,
    pub(crate) read: Box<dyn Fn(&Value) -> Reply + Send + Sync>,
}

impl Default for Script {
    fn default() -> Self {
        let marker = r#"{"error":"update","forward":1,"region":"uk","forward_ops":["query"]}"#;
        let instances =
            r#"{"instances":[{"host":"shop.example.com","region":"uk","class":"sleeping"}]}"#;
        Self {
            apps: Reply::json(200, r#"{"apps":[{"account":"acme","app":"shop"}]}"#),
            instances: Reply::json(200, instances),
            door: Reply::json(409, marker),
            read: Box::new(|_| Reply::stream(Vec::new(), End::Cut)),
        }
    }
}

/// How a response's body ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum End {
    /// As HTTP says it should.
    Clean,
    /// The connection breaks.
    Cut,
    /// Nothing more comes, until the client goes away.
    Held,
}

#[derive(Clone, Debug)]
pub(crate) struct Reply {
    status: u16,
    content_type: &'static str,
    location: Option<String>,
    body: Vec<u8>,
    end: End,
}

impl Reply {
    pub(crate) fn json(status: u16, body: &str) -> Self {
        let body = body.as_bytes().to_vec();
        Self { status, content_type: "application/json", location: None, body, end: End::Clean }
    }

    pub(crate) fn stream(body: Vec<u8>, end: End) -> Self {
        Self { status: 200, content_type: "application/x-ndjson", location: None, body, end }
    }

    pub(crate) fn redirect(location: String) -> Self {
        Self { location: Some(location), ..Self::json(302, "") }
    }

    fn write(&self, stream: &mut TcpStream) -> std::io::Result<()> {
        write!(
            stream,
            "HTTP/1.1 {} Scripted\r\ncontent-type: {}\r\n",
            self.status, self.content_type
        )?;
        if let Some(location) = &self.location {
            write!(stream, "location: {location}\r\n")?;
        }
        stream.write_all(b"transfer-encoding: chunked\r\n\r\n")?;
        if !self.body.is_empty() {
            write!(stream, "{:x}\r\n", self.body.len())?;
            stream.write_all(&self.body)?;
            stream.write_all(b"\r\n")?;
        }
        match self.end {
            End::Clean => stream.write_all(b"0\r\n\r\n"),
            End::Cut => stream.shutdown(Shutdown::Both),
            End::Held => wait_for_close(stream),
        }
    }
}

/// The scripted console. Dropping it leaves its thread to end with the test process.
pub(crate) struct Console {
    url: String,
    seen: Arc<Mutex<Vec<Seen>>>,
}

/// One request as it arrived.
#[derive(Clone, Debug)]
pub(crate) struct Seen {
    pub(crate) line: String,
    pub(crate) authorization: String,
    pub(crate) body: Value,
    /// Whether the client closed a held response.
    pub(crate) closed: bool,
}

impl Console {
    pub(crate) fn start(script: Script) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let port = listener.local_addr().expect("an address").port();
        let seen = Arc::new(Mutex::new(Vec::new()));
        let (script, log) = (Arc::new(script), Arc::clone(&seen));
        thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let (script, log) = (Arc::clone(&script), Arc::clone(&log));
                thread::spawn(move || serve(stream, &script, &log));
            }
        });
        Self { url: format!("http://127.0.0.1:{port}"), seen }
    }

    /// A console whose reads are answered by `read`, and everything else as by default.
    pub(crate) fn reading(read: impl Fn(&Value) -> Reply + Send + Sync + 'static) -> Self {
        Self::start(Script { read: Box::new(read), ..Script::default() })
    }

    pub(crate) fn url(&self) -> &str {
        &self.url
    }

    pub(crate) fn seen(&self) -> Vec<Seen> {
        self.seen.lock().expect("no thread panicked").clone()
    }
}

fn serve(stream: TcpStream, script: &Script, log: &Mutex<Vec<Seen>>) {
    let mut reader = BufReader::new(stream.try_clone().expect("a socket can be shared"));
    let mut stream = stream;
    while let Some(seen) = read_request(&mut reader) {
        let reply = choose(script, &seen);
        let held = reply.end == End::Held;
        let at = {
            let mut log = log.lock().expect("no thread panicked");
            log.push(seen);
            log.len() - 1
        };
        let written = reply.write(&mut stream);
        if held {
            log.lock().expect("no thread panicked")[at].closed = written.is_ok();
        }
        if written.is_err() || reply.end != End::Clean {
            return;
        }
    }
}

fn choose(script: &Script, seen: &Seen) -> Reply {
    let path = seen.line.split(' ').nth(1).unwrap_or_default();
    match path {
        "/api/cli/apps" => script.apps.clone(),
        path if path.ends_with("/instances") => script.instances.clone(),
        path if path.ends_with("/reads") => (script.read)(&seen.body),
        path if path.contains("/db/") => script.door.clone(),
        _ => Reply::json(404, r#"{"error":"not found"}"#),
    }
}

fn read_request(reader: &mut BufReader<TcpStream>) -> Option<Seen> {
    let line = read_line(reader)?;
    let (mut length, mut authorization) = (0, String::new());
    loop {
        let header = read_line(reader)?;
        let Some((name, value)) = header.split_once(": ") else { break };
        match name.to_ascii_lowercase().as_str() {
            "content-length" => length = value.parse().ok()?,
            "authorization" => authorization = value.to_owned(),
            _ => {}
        }
    }
    let mut body = vec![0; length];
    reader.read_exact(&mut body).ok()?;
    let body = serde_json::from_slice(&body).unwrap_or(Value::Null);
    Some(Seen { line, authorization, body, closed: false })
}

fn read_line(reader: &mut BufReader<TcpStream>) -> Option<String> {
    let mut line = String::new();
    let read = reader.read_line(&mut line).ok()?;
    (read > 0).then(|| line.trim_end().to_owned())
}

/// Ends well when the client closes, and with an error when it does not for a long time.
fn wait_for_close(stream: &mut TcpStream) -> std::io::Result<()> {
    stream.set_read_timeout(Some(Duration::from_secs(60)))?;
    let mut rest = [0; 64];
    loop {
        match stream.read(&mut rest) {
            Ok(0) => return Ok(()),
            Ok(_) => {}
            Err(error) if error.kind() == std::io::ErrorKind::ConnectionReset => return Ok(()),
            Err(error) => return Err(error),
        }
    }
}
