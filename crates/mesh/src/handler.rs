//! What runs when a message arrives: typed closures behind one object type, and their tables.

use std::collections::HashMap;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;

use bytes::Bytes;
use carlos_protocol::mesh::{ChannelName, Content, MeshName, Metadata, Rid};
use thiserror::Error;

use crate::packet::{Body, BodyError, Packet};

/// Why a handler does not answer.
#[derive(Clone, Debug, Eq, Error, PartialEq)]
pub enum HandlerError {
    /// The handler refuses: the caller ends as `Rejected`.
    #[error("refused: {0}")]
    Rejected(String),
    /// The handler failed: the caller ends as `InternalFailure`.
    #[error("failed: {0}")]
    Failed(String),
}

impl HandlerError {
    /// A refusal with a text for the caller; at most 255 bytes of it travel.
    pub fn rejected(text: impl Into<String>) -> Self {
        Self::Rejected(text.into())
    }

    /// A failure with a text for the caller; at most 255 bytes of it travel.
    pub fn failed(text: impl Into<String>) -> Self {
        Self::Failed(text.into())
    }
}

/// Whether a message waits for an answer: a part of a handler's key (routemesh §7).
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub enum MessageKind {
    /// One-way.
    Send,
    /// With a reply.
    Request,
}

impl MessageKind {
    /// `send` or `request`.
    pub fn name(self) -> &'static str {
        match self {
            Self::Send => "send",
            Self::Request => "request",
        }
    }
}

/// What a handler knows of its message beside the body.
#[derive(Clone, Debug)]
pub struct MessageContext {
    pub(crate) scope: Arc<Scope>,
    pub(crate) source: Arc<Rid>,
    pub(crate) metadata: Metadata,
    pub(crate) correlation: Option<u64>,
}

/// The fixed part of a context: shared by all messages of one handler.
#[derive(Debug)]
pub(crate) struct Scope {
    pub(crate) mesh: MeshName,
    pub(crate) channel: Option<ChannelName>,
    pub(crate) packet: String,
    pub(crate) content: Content<'static>,
}

impl MessageContext {
    /// The mesh the message came through.
    pub fn mesh(&self) -> &MeshName {
        &self.scope.mesh
    }

    /// The channel; `None` for a node-direct message.
    pub fn channel(&self) -> Option<&ChannelName> {
        self.scope.channel.as_ref()
    }

    /// The packet name.
    pub fn packet(&self) -> &str {
        &self.scope.packet
    }

    /// The content type; `None` for raw bytes.
    pub fn content_type(&self) -> Option<&'static str> {
        self.scope.content.as_str()
    }

    /// The node that sent the message.
    pub fn source(&self) -> &Rid {
        &self.source
    }

    /// What the sender put beside the body. It is not copied to replies or further calls.
    pub fn metadata(&self) -> &Metadata {
        &self.metadata
    }

    /// The request's number on its link; `None` for a one-way message.
    pub fn correlation_id(&self) -> Option<u64> {
        self.correlation
    }
}

/// An encoded answer.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(crate) struct Answer {
    pub(crate) content: Content<'static>,
    pub(crate) bytes: Bytes,
}

/// How a handler's run ended.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(crate) enum Failure {
    /// The body could not be read: the handler did not run.
    Body(BodyError),
    /// The handler said so.
    Handler(HandlerError),
}

pub(crate) type Run = Pin<Box<dyn Future<Output = Result<Answer, Failure>> + Send>>;

/// A handler with its key and fixed context.
pub(crate) struct Handler {
    pub(crate) scope: Arc<Scope>,
    call: Box<dyn Fn(MessageContext, Bytes) -> Run + Send + Sync>,
}

impl Handler {
    /// Reads the body and runs the handler; a body that cannot be read fails without running it.
    pub(crate) fn run(&self, context: MessageContext, body: Bytes) -> Run {
        (self.call)(context, body)
    }
}

impl std::fmt::Debug for Handler {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("Handler").field(&self.scope).finish()
    }
}

/// A handler before its scope is known: what the builder collects.
pub(crate) struct Registration {
    pub(crate) kind: MessageKind,
    pub(crate) packet: String,
    pub(crate) content: Content<'static>,
    call: Box<dyn Fn(MessageContext, Bytes) -> Run + Send + Sync>,
}

impl Registration {
    /// A handler of one-way messages.
    pub(crate) fn send<P, F, Fut>(packet: Option<&str>, handle: F) -> Self
    where
        P: Packet,
        F: Fn(MessageContext, P) -> Fut + Send + Sync + 'static,
        Fut: Future<Output = Result<(), HandlerError>> + Send + 'static,
    {
        Self::new::<P, (), F, Fut>(MessageKind::Send, packet, handle)
    }

    /// A handler of requests.
    pub(crate) fn request<P, R, F, Fut>(packet: Option<&str>, handle: F) -> Self
    where
        P: Packet,
        R: Body,
        F: Fn(MessageContext, P) -> Fut + Send + Sync + 'static,
        Fut: Future<Output = Result<R, HandlerError>> + Send + 'static,
    {
        Self::new::<P, R, F, Fut>(MessageKind::Request, packet, handle)
    }

    /// A handler of raw bytes under a packet name.
    pub(crate) fn raw<F, Fut>(kind: MessageKind, packet: &str, handle: F) -> Self
    where
        F: Fn(MessageContext, Bytes) -> Fut + Send + Sync + 'static,
        Fut: Future<Output = Result<Bytes, HandlerError>> + Send + 'static,
    {
        let call = move |context, body| boxed(handle(context, body));
        Self { kind, packet: packet.to_owned(), content: Content::Raw, call: Box::new(call) }
    }

    fn new<P, R, F, Fut>(kind: MessageKind, packet: Option<&str>, handle: F) -> Self
    where
        P: Packet,
        R: Body,
        F: Fn(MessageContext, P) -> Fut + Send + Sync + 'static,
        Fut: Future<Output = Result<R, HandlerError>> + Send + 'static,
    {
        let call = move |context, body| match P::decode(body) {
            Ok(packet) => boxed(handle(context, packet)),
            Err(error) => Box::pin(async { Err(Failure::Body(error)) }) as Run,
        };
        let packet = packet.unwrap_or(P::NAME).to_owned();
        Self { kind, packet, content: P::CONTENT, call: Box::new(call) }
    }

    /// The handler, once mesh and channel are known.
    pub(crate) fn into_handler(self, mesh: MeshName, channel: Option<ChannelName>) -> Handler {
        let scope = Scope { mesh, channel, packet: self.packet, content: self.content };
        Handler { scope: Arc::new(scope), call: self.call }
    }
}

impl std::fmt::Debug for Registration {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Registration")
            .field("kind", &self.kind)
            .field("packet", &self.packet)
            .finish_non_exhaustive()
    }
}

fn boxed<R: Body, Fut>(run: Fut) -> Run
where
    Fut: Future<Output = Result<R, HandlerError>> + Send + 'static,
{
    Box::pin(async move {
        let reply = run.await.map_err(Failure::Handler)?;
        let failed = |error: BodyError| Failure::Handler(HandlerError::Failed(error.0));
        Ok(Answer { content: R::CONTENT, bytes: reply.encode().map_err(failed)? })
    })
}

/// The handlers of one owner: a channel, or node direct.
#[derive(Debug, Default)]
pub(crate) struct Handlers {
    sends: HashMap<Box<str>, Arc<Handler>>,
    requests: HashMap<Box<str>, Arc<Handler>>,
}

impl Handlers {
    /// Adds a handler; false when its key is taken.
    pub(crate) fn add(&mut self, kind: MessageKind, handler: Handler) -> bool {
        let table = match kind {
            MessageKind::Send => &mut self.sends,
            MessageKind::Request => &mut self.requests,
        };
        let packet: Box<str> = handler.scope.packet.as_str().into();
        table.insert(packet, Arc::new(handler)).is_none()
    }

    /// The handler of a packet.
    pub(crate) fn find(&self, kind: MessageKind, packet: &str) -> Option<&Arc<Handler>> {
        match kind {
            MessageKind::Send => self.sends.get(packet),
            MessageKind::Request => self.requests.get(packet),
        }
    }
}
