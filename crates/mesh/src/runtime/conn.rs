//! The life of one connection: dial or accept, prove keys, greet, carry messages, end.

use std::io;
use std::sync::Arc;

use bytes::{Bytes, BytesMut};
use carlos_bucket::Context;
use carlos_protocol::mesh::{Hello, Identity, Record, RecordDecoder, Reject, put_record};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::sync::{OwnedSemaphorePermit, mpsc};

use crate::core::{Cause, ConnId, Event, HANDSHAKE, Target};
use crate::delivery::Owner;
use crate::error::CallError;
use crate::link::{Driven, Inbound, Link, LinkEvent};
use crate::net::{Keys, Net, Stream};

/// What the node task tells a connection before it is a link.
#[derive(Debug)]
pub(crate) enum Command {
    Greet(Box<Hello>),
    Admit(Arc<Link>),
    Reject(Reject),
    Close,
}

/// What every connection of a node needs.
#[derive(Clone)]
pub(crate) struct Surroundings {
    pub(crate) ctx: Context,
    pub(crate) net: Arc<dyn Net>,
    /// `None` on a plaintext mesh.
    pub(crate) keys: Option<Keys>,
    pub(crate) owners: Arc<[Arc<Owner>]>,
    /// What this node grants to a peer.
    pub(crate) window: u64,
    pub(crate) events: mpsc::Sender<Event>,
}

/// Dials, and carries messages until the link ends.
pub(crate) async fn dial(
    around: Surroundings,
    conn: ConnId,
    target: Target,
    hello: Box<Hello>,
    commands: mpsc::Receiver<Command>,
) {
    let connect = async {
        let stream = around.net.dial(&target.endpoint).await?;
        match &around.keys {
            Some(keys) => keys.dial(stream).await.map(|(stream, key)| (stream, Some(key))),
            None => Ok((stream, None)),
        }
    };
    let connected = around.ctx.timeout(HANDSHAKE, connect).await;
    let Ok(Ok((stream, proven))) = connected else {
        return tell(&around, Event::Closed(conn, Cause::Unreachable)).await;
    };
    let mut greeting = Greeting::new(around, conn, stream, proven, commands);
    let said = greeting.say(&Record::Hello(&hello.to_bytes())).await;
    let cause = match said {
        Ok(()) => greeting.run().await,
        Err(_) => Cause::Unreachable,
    };
    greeting.end(cause).await;
}

/// Takes a connection in, and carries messages until the link ends.
pub(crate) async fn accept(
    around: Surroundings,
    conn: ConnId,
    stream: Box<dyn Stream>,
    commands: mpsc::Receiver<Command>,
    permit: OwnedSemaphorePermit,
) {
    let secure = async {
        match &around.keys {
            Some(keys) => keys.accept(stream).await.map(|(stream, key)| (stream, Some(key))),
            None => Ok((stream, None)),
        }
    };
    let secured = around.ctx.timeout(HANDSHAKE, secure).await;
    let Ok(Ok((stream, proven))) = secured else {
        return tell(&around, Event::Closed(conn, Cause::Unreachable)).await;
    };
    let mut greeting = Greeting::new(around, conn, stream, proven, commands);
    greeting.permit = Some(permit);
    let cause = greeting.run().await;
    greeting.end(cause).await;
}

/// The node task is gone only when the host ends.
async fn tell(around: &Surroundings, event: Event) {
    let _ = around.events.send(event).await;
}

/// A connection until both ends admitted each other.
struct Greeting {
    around: Surroundings,
    conn: ConnId,
    stream: Option<Box<dyn Stream>>,
    read: BytesMut,
    proven: Option<Identity>,
    commands: mpsc::Receiver<Command>,
    link: Option<Arc<Link>>,
    greeted: bool,
    admitted: bool,
    /// A place among those that greet.
    permit: Option<OwnedSemaphorePermit>,
}

/// What happens during a greeting.
enum Step {
    Command(Option<Command>),
    Record(io::Result<Said>),
}

/// What the other end may say before a link stands.
enum Said {
    Hello(Box<Hello>),
    Admit,
    Reject(Reject),
}

impl Greeting {
    fn new(
        around: Surroundings,
        conn: ConnId,
        stream: Box<dyn Stream>,
        proven: Option<Identity>,
        commands: mpsc::Receiver<Command>,
    ) -> Self {
        Self {
            around,
            conn,
            stream: Some(stream),
            read: BytesMut::new(),
            proven,
            commands,
            link: None,
            greeted: false,
            admitted: false,
            permit: None,
        }
    }

    /// Greets, bounded in time, and then carries messages.
    async fn run(&mut self) -> Cause {
        let ctx = self.around.ctx.clone();
        match ctx.timeout(HANDSHAKE, self.greet()).await {
            Err(_) => Cause::Slow,
            Ok(Err(cause)) => cause,
            Ok(Ok(link)) => self.carry(link).await,
        }
    }

    async fn greet(&mut self) -> Result<Arc<Link>, Cause> {
        loop {
            if let Some(link) = self.link.as_ref().filter(|_| self.admitted) {
                return Ok(Arc::clone(link));
            }
            match self.step().await {
                Step::Command(Some(command)) => self.obey(command).await?,
                Step::Command(None) => return Err(Cause::Stopped),
                Step::Record(Ok(said)) => self.hear(said).await?,
                Step::Record(Err(error)) if error.kind() == io::ErrorKind::InvalidData => {
                    return Err(Cause::Protocol);
                }
                Step::Record(Err(_)) => return Err(Cause::Ended),
            }
        }
    }

    async fn step(&mut self) -> Step {
        let stream = self.stream.as_mut().expect("the stream is there until the link carries");
        tokio::select! {
            biased;
            command = self.commands.recv() => Step::Command(command),
            said = listen(stream, &mut self.read) => Step::Record(said),
        }
    }

    async fn obey(&mut self, command: Command) -> Result<(), Cause> {
        let said = match command {
            Command::Greet(hello) => self.say(&Record::Hello(&hello.to_bytes())).await,
            Command::Admit(link) => {
                self.link = Some(link);
                self.say(&Record::Admit).await
            }
            Command::Reject(reason) => {
                let _ = self.say(&Record::Reject(reason)).await;
                return Err(Cause::Refused(reason));
            }
            Command::Close => return Err(Cause::Stopped),
        };
        said.map_err(|_| Cause::Ended)
    }

    async fn hear(&mut self, said: Said) -> Result<(), Cause> {
        match said {
            Said::Hello(_) if std::mem::replace(&mut self.greeted, true) => Err(Cause::Protocol),
            Said::Hello(hello) => {
                tell(&self.around, Event::Hello(self.conn, hello, self.proven)).await;
                Ok(())
            }
            Said::Admit => {
                self.admitted = true;
                tell(&self.around, Event::Admitted(self.conn)).await;
                Ok(())
            }
            Said::Reject(reason) => Err(Cause::RefusedByPeer(reason)),
        }
    }

    async fn say(&mut self, record: &Record<'_>) -> io::Result<()> {
        let mut bytes = BytesMut::new();
        put_record(record, &mut bytes);
        let stream = self.stream.as_mut().expect("the stream is there until the link carries");
        stream.write_all(&bytes).await?;
        stream.flush().await
    }

    async fn carry(&mut self, link: Arc<Link>) -> Cause {
        self.permit = None;
        let stream = self.stream.take().expect("a connection carries once");
        let around = &self.around;
        let inbound = Inbound::new(Arc::clone(&link), Arc::clone(&around.owners), around.window);
        let read = std::mem::take(&mut self.read);
        let (carried, ctx) = (Arc::clone(&link), around.ctx.clone());
        let mut driven = Driven::new(stream, read, carried, inbound, ctx);
        loop {
            let next = tokio::select! {
                biased;
                command = self.commands.recv() => match command {
                    Some(Command::Close) => return Cause::Stopped,
                    Some(_) => continue,
                    None => return linger(&self.around.ctx, &link, driven).await,
                },
                event = driven.next() => event,
            };
            match next {
                LinkEvent::Ack(id) => tell(around, Event::Ack(self.conn, id)).await,
                LinkEvent::Update(node) => tell(around, Event::Update(self.conn, node)).await,
                LinkEvent::Ended => return Cause::Ended,
                LinkEvent::Protocol => return Cause::Protocol,
            }
        }
    }

    /// Ends what was open on the link, and tells the node.
    async fn end(mut self, cause: Cause) {
        if let Some(link) = self.link.take() {
            link.lane.close();
            link.requests.close(&CallError::Unavailable("the link was lost".into()));
        }
        tell(&self.around, Event::Closed(self.conn, cause)).await;
    }
}

/// The node is gone: what the link still holds, the last replies among it, goes out.
async fn linger(ctx: &Context, link: &Link, mut driven: Driven) -> Cause {
    link.lane.close();
    let rest =
        async { while !matches!(driven.next().await, LinkEvent::Ended | LinkEvent::Protocol) {} };
    // A peer that does not read is not waited for.
    let _ = ctx.timeout(HANDSHAKE, rest).await;
    Cause::Stopped
}

/// The next record of a greeting. Dropped before its end, nothing that was read is lost.
async fn listen(stream: &mut Box<dyn Stream>, read: &mut BytesMut) -> io::Result<Said> {
    loop {
        if let Some((said, size)) = parse(read)? {
            let _: Bytes = read.split_to(size).freeze();
            return Ok(said);
        }
        if stream.read_buf(read).await? == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
    }
}

fn parse(read: &[u8]) -> io::Result<Option<(Said, usize)>> {
    let invalid = |error: String| io::Error::new(io::ErrorKind::InvalidData, error);
    let cut = RecordDecoder::cut(read).map_err(|error| invalid(error.to_string()))?;
    let Some((record, size)) = cut else { return Ok(None) };
    let said = match record {
        Record::Hello(bytes) => {
            Said::Hello(Box::new(Hello::from_bytes(bytes).map_err(|e| invalid(e.to_string()))?))
        }
        Record::Admit => Said::Admit,
        Record::Reject(reason) => Said::Reject(reason),
        _ => return Err(invalid("a record before its time".into())),
    };
    Ok(Some((said, size)))
}
