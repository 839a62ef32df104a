//! People: the real `carlos` binary as what they see, and a client that sees every line.

use std::process::{Output, Stdio};

use carlos_cli::client::{Answer, AnswerError, Lines, LinesError, Place, Verified};
use carlos_protocol::api::{self, ErrorBody, ReadBody};
use carlos_protocol::copy::Exit;
use carlos_protocol::ids::ReadId;
use carlos_protocol::lines::Line;
use carlos_protocol::params::Params;
use carlos_protocol::request::OP_QUERY;
use carlos_protocol::result::{ReadResult, State};
use carlos_protocol::seal::ReplyKey;
use carlos_protocol::time::At;
use carlos_protocol::tokens::Token;
use futures::StreamExt as _;
use futures::stream::BoxStream;
use tokio::process::Command;

use crate::console::RunningConsole;
use crate::programs;
use crate::world::World;

/// What one run of the binary left behind.
#[derive(Debug)]
pub struct Ran {
    pub code: i32,
    pub stdout: Vec<u8>,
    pub stderr: String,
}

impl Ran {
    /// Fails unless the read printed `stdout`.
    #[track_caller]
    pub fn printed(&self, stdout: &str) {
        assert_eq!(self.code, 0, "{}", self.stderr);
        assert_eq!(String::from_utf8_lossy(&self.stdout), stdout);
    }

    /// Fails unless the read ended with this exit code and the sentence of `id`, and printed
    /// nothing.
    #[track_caller]
    pub fn ended(&self, exit: Exit, id: &str) {
        assert!(self.stdout.is_empty(), "stdout is not empty: {self:?}");
        assert_eq!(self.code, i32::from(exit.code()), "{}", self.stderr);
        assert!(self.stderr.contains(&format!("({id})")), "no {id} in {}", self.stderr);
        assert!(!self.stderr.contains("panicked"), "{}", self.stderr);
    }
}

impl From<Output> for Ran {
    fn from(output: Output) -> Self {
        Self {
            code: output.status.code().unwrap_or(-1),
            stdout: output.stdout,
            stderr: String::from_utf8_lossy(&output.stderr).into_owned(),
        }
    }
}

impl RunningConsole {
    /// Runs `carlos args...` with an empty home, logged in by environment.
    pub async fn carlos(&self, token: &str, args: &[&str]) -> Ran {
        let home = tempfile::tempdir().unwrap();
        let output = Command::new(programs::carlos())
            .env_clear()
            .env("HOME", home.path())
            .env("CARLOS_URL", &self.url)
            .env("CARLOS_TOKEN", token)
            .args(args)
            .stdin(Stdio::null())
            .kill_on_drop(true)
            .output();
        output.await.unwrap().into()
    }

    /// Asks the shop one question, as its member.
    pub async fn query(&self, world: &World, sql: &str) -> Ran {
        self.query_with(world, &[sql]).await
    }

    /// Asks the shop with more arguments; the statement is one of them.
    pub async fn query_with(&self, world: &World, more: &[&str]) -> Ran {
        let args = [&["db", "query", "acme/shop"], more].concat();
        self.carlos(world.token.reveal(), &args).await
    }

    /// Opens a read of the shop, as its member.
    pub async fn open(&self, world: &World, sql: &str) -> Open {
        let asked = Asked::of(world, sql).post(self).await;
        asked.unwrap_or_else(|refused| panic!("{refused:?}"))
    }
}

/// A read request before it is sent.
pub struct Asked {
    pub token: Token,
    pub place: Place,
    pub body: ReadBody,
    key: ReplyKey,
}

/// What a console says instead of a stream.
#[derive(Debug)]
pub struct Refused {
    pub status: u16,
    pub body: ErrorBody,
}

impl Asked {
    pub fn of(world: &World, sql: &str) -> Self {
        let key = ReplyKey::generate(&mut world.context.entropy());
        let body = ReadBody {
            op: OP_QUERY.to_owned(),
            sql: sql.to_owned(),
            params: Params::default(),
            at: At::Newest,
            reply_key: key.public(),
        };
        Self { token: world.token.clone(), place: world.place.clone(), body, key }
    }

    /// The same, asked by somebody else.
    pub fn with_token(self, token: &Token) -> Self {
        Self { token: token.clone(), ..self }
    }

    /// Sends it and waits for the first line.
    pub async fn post(self, console: &RunningConsole) -> Result<Open, Refused> {
        let body = self.body.to_bytes();
        self.post_bytes(console, body).await
    }

    /// Sends these bytes in its stead.
    pub async fn post_bytes(
        self,
        console: &RunningConsole,
        body: Vec<u8>,
    ) -> Result<Open, Refused> {
        // Installed by an earlier client of this process, or now.
        let _ = rustls::crypto::ring::default_provider().install_default();
        let client = reqwest::Client::builder().no_proxy().tls_certs_only([]).build().unwrap();
        let Place { account, app, host } = &self.place;
        let url = format!("{}{}", console.url, api::reads_path(account, app, host));
        let request = client.post(url).bearer_auth(self.token.reveal()).body(body);
        let response = request.send().await.unwrap();
        let status = response.status().as_u16();
        if status != 200 {
            let body = response.bytes().await.unwrap();
            return Err(Refused { status, body: ErrorBody::from_bytes(&body).unwrap() });
        }
        let mut open = Open {
            id: ReadId::from_bytes([0; 16]),
            lines: Lines::new(response.bytes_stream().boxed()),
            key: self.key,
            seen: Vec::new(),
        };
        let first = open.next().await.unwrap();
        let Some(Line::Admitted(id)) = first else { panic!("{first:?}") };
        Ok(Open { id, ..open })
    }
}

/// A read whose response is open. Dropping it closes the connection.
pub struct Open {
    pub id: ReadId,
    /// Every line so far.
    pub seen: Vec<Line>,
    lines: Lines<BoxStream<'static, reqwest::Result<bytes::Bytes>>>,
    key: ReplyKey,
}

impl Open {
    /// The next line, or `None` where the response ended well.
    pub async fn next(&mut self) -> Result<Option<Line>, LinesError> {
        let line = self.lines.next().await?;
        self.seen.extend(line.clone());
        Ok(line)
    }

    /// Reads up to the line that says who owns the read.
    pub async fn until_picked(&mut self) {
        loop {
            match self.next().await.unwrap() {
                Some(Line::Picked(_)) => return,
                Some(Line::Wait(_)) => {}
                other => panic!("{other:?}"),
            }
        }
    }

    /// Reads to the end of the response and checks the answer as the binary does.
    pub async fn finish(mut self) -> Finished {
        let end = loop {
            match self.next().await {
                Ok(Some(_)) => {}
                Ok(None) => break Ok(()),
                Err(error) => break Err(error),
            }
        };
        let mut answer = Answer::default();
        let mut result = None;
        for line in self.seen.clone() {
            result = answer.take(line).unwrap();
        }
        let verified = match &result {
            Some(result) if result.state == State::Done => Some(answer.verify(&self.key, result)),
            _ => None,
        };
        Finished { id: self.id, lines: self.seen, end, result, verified }
    }
}

/// A response that has ended.
#[derive(Debug)]
pub struct Finished {
    pub id: ReadId,
    pub lines: Vec<Line>,
    pub end: Result<(), LinesError>,
    pub result: Option<ReadResult>,
    /// The answer, when the result says that it is done.
    pub verified: Option<Result<Verified, AnswerError>>,
}

impl Finished {
    /// The rows of a done and verified answer, as they are printed into a pipe.
    #[track_caller]
    pub fn tsv(&self) -> String {
        let Some(Ok(verified)) = &self.verified else { panic!("{self:?}") };
        let mut out = Vec::new();
        carlos_dbquery::render(carlos_dbquery::Format::Tsv, &verified.rows, &mut out).unwrap();
        String::from_utf8(out).unwrap()
    }

    /// The chunk numbers in the order of their lines.
    pub fn chunks(&self) -> Vec<u64> {
        let chunk = |line: &Line| match line {
            Line::Chunk { seq, .. } => Some(*seq),
            _ => None,
        };
        self.lines.iter().filter_map(chunk).collect()
    }
}
