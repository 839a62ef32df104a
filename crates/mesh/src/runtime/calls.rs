//! Sends and requests: selection and submission are one step, and each call ends once.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use bytes::Bytes;
use carlos_protocol::mesh::{Asked, Content, Head, Metadata, OWNER_NODE, ObjectRole, Rid};

use super::shared::{Channel, Port, Shared};
use crate::core::Pick;
use crate::delivery::{Full, Job, Mailbox, Owner, ReplyTo};
use crate::error::{CallError, NoTarget};
use crate::handler::MessageKind;
use crate::link::{Ended, Refused, ReplyContent, Ticket};
use crate::monitor::PeerState;
use crate::packet::{Body, Packet};

/// How often a node-direct call looks whether its peer is ready.
const READY_POLL: Duration = Duration::from_millis(20);

/// What a call may set beside its message.
#[derive(Clone, Debug, Default)]
pub struct CallOptions {
    /// How long a request may take in all; `None` for the node's own.
    pub timeout: Option<Duration>,
    /// Texts beside the body.
    pub metadata: Metadata,
}

/// A reply as bytes.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Reply {
    /// The bytes.
    pub bytes: Bytes,
    content: ReplyContent,
}

impl Reply {
    /// Reads the bytes.
    ///
    /// # Errors
    /// [`CallError::ProtocolError`].
    pub fn decode<R: Body>(self) -> Result<R, CallError> {
        if self.content != ReplyContent::from(R::CONTENT) {
            return Err(CallError::ProtocolError("a reply of another content type".into()));
        }
        R::decode(self.bytes).map_err(|error| CallError::ProtocolError(error.0))
    }
}

/// One channel of this process, ready to be called; cheap to clone. Holding it saves the look-up
/// of its name.
#[derive(Clone, Debug)]
pub struct ChannelHandle {
    pub(super) shared: Arc<Shared>,
    pub(super) channel: Arc<Channel>,
}

impl ChannelHandle {
    /// Sends a one-way message to one server. It ends when the message is queued towards the
    /// target, which says nothing about its handling.
    ///
    /// # Errors
    /// [`CallError`]; after an error the message is not delivered later.
    pub async fn send<P: Packet>(&self, packet: &P) -> Result<(), CallError> {
        let body = encode(packet)?;
        self.send_raw(P::NAME, P::CONTENT, body, &CallOptions::default()).await
    }

    /// Sends a one-way message of any bytes.
    ///
    /// # Errors
    /// As [`Self::send`].
    pub async fn send_raw(
        &self,
        packet: &str,
        content: Content<'_>,
        body: Bytes,
        options: &CallOptions,
    ) -> Result<(), CallError> {
        self.shared.check_open()?;
        let metadata = options.metadata.to_bytes();
        let message = Message::new(packet, content, &body, &metadata, &options.metadata);
        let port = match self.select(|port| port.try_send(&self.shared, &message))? {
            Submitted::Done(()) => return Ok(()),
            Submitted::Full(port) => port,
        };
        let wait = self.shared.router.send_wait();
        self.shared.within(wait, port.send(&self.shared, &message)).await
    }

    /// Sends a request to one server and waits for its reply. Dropped, it forgets the request;
    /// the handler may run all the same.
    ///
    /// # Errors
    /// [`CallError`], exactly one.
    pub async fn request<P: Packet, R: Body>(&self, packet: &P) -> Result<R, CallError> {
        self.request_with(packet, &CallOptions::default()).await
    }

    /// The same with options.
    ///
    /// # Errors
    /// As [`Self::request`].
    pub async fn request_with<P: Packet, R: Body>(
        &self,
        packet: &P,
        options: &CallOptions,
    ) -> Result<R, CallError> {
        let body = encode(packet)?;
        self.request_raw(P::NAME, P::CONTENT, body, options).await?.decode()
    }

    /// Sends a request of any bytes.
    ///
    /// # Errors
    /// As [`Self::request`].
    pub async fn request_raw(
        &self,
        packet: &str,
        content: Content<'_>,
        body: Bytes,
        options: &CallOptions,
    ) -> Result<Reply, CallError> {
        self.shared.check_open()?;
        let metadata = options.metadata.to_bytes();
        let message = Message::new(packet, content, &body, &metadata, &options.metadata);
        let timeout = options.timeout.unwrap_or(self.shared.request_timeout);
        let call = async {
            let submitted =
                self.select(|port| port.try_request(&self.shared, &message, timeout))?;
            let ticket = match submitted {
                Submitted::Done(ticket) => ticket,
                Submitted::Full(port) => {
                    let wait = self.shared.router.send_wait().min(timeout);
                    let begun = port.request(&self.shared, &message, timeout);
                    self.shared.within(wait, begun).await?
                }
            };
            ticket.await
        };
        let ended = self.shared.within(timeout, call).await;
        ended.map(|(content, bytes)| Reply { bytes, content })
    }

    /// Picks a server and submits, under the channel's lock.
    fn select<T>(
        &self,
        mut submit: impl FnMut(&Port) -> Result<T, Attempt>,
    ) -> Result<Submitted<T>, CallError> {
        let (mut done, mut failed) = (None, None);
        let mut targets = self.channel.targets();
        let pick = targets.selector.select(|port| match submit(port) {
            Ok(value) => {
                done = Some(value);
                true
            }
            // Not full but failed: the call ends here.
            Err(Attempt::Failed(error)) => {
                failed = Some(error);
                true
            }
            Err(Attempt::Full) => false,
        });
        let nobody = targets.nobody;
        drop(targets);
        if let Some(error) = failed {
            return Err(error);
        }
        match pick {
            Pick::Nobody => Err(CallError::NoTarget(nobody)),
            Pick::Full(port) => Ok(Submitted::Full(port)),
            Pick::Taken(port) => {
                port.count();
                done.map(Submitted::Done).ok_or(CallError::InvalidOperation("nothing was done"))
            }
        }
    }
}

/// What came of a selection.
enum Submitted<T> {
    Done(T),
    /// All are full; it is this one's turn.
    Full(Port),
}

/// Why a submission did not happen.
enum Attempt {
    Full,
    Failed(CallError),
}

/// One message as its callers give it.
struct Message<'a> {
    packet: &'a str,
    content: Content<'a>,
    body: &'a Bytes,
    encoded: &'a [u8],
    metadata: &'a Metadata,
}

impl<'a> Message<'a> {
    fn new(
        packet: &'a str,
        content: Content<'a>,
        body: &'a Bytes,
        encoded: &'a [u8],
        metadata: &'a Metadata,
    ) -> Self {
        Self { packet, content, body, encoded, metadata }
    }

    fn head(&self, owner: u16, asked: Option<Asked>) -> Head<'_> {
        Head {
            owner,
            asked,
            packet: self.packet,
            content: self.content,
            metadata: self.encoded,
            parted: None,
        }
    }

    /// The message as a job of this process: the same checks as those of a link.
    fn job(
        &self,
        shared: &Shared,
        owner: &Owner,
        kind: MessageKind,
        reply: ReplyTo,
        expires: Option<Duration>,
    ) -> Result<Job, CallError> {
        let handler = owner.handlers.find(kind, self.packet);
        let Some(handler) = handler else {
            owner.stats.no_handler.fetch_add(1, Ordering::Relaxed);
            return Err(CallError::NoHandler(self.packet.to_owned()));
        };
        if handler.scope.content != self.content {
            return Err(CallError::ProtocolError("another content type is expected".into()));
        }
        Ok(Job {
            handler: Arc::clone(handler),
            source: Arc::clone(&shared.rid),
            metadata: self.metadata.clone(),
            payload: self.body.clone(),
            reply,
            expires,
            charge: Mailbox::charge(self.body.len() as u64, self.encoded.len()),
        })
    }
}

impl Port {
    fn count(&self) {
        if let Self::Remote(link, _) = self {
            link.selected.fetch_add(1, Ordering::Relaxed);
        }
    }

    fn try_send(&self, shared: &Shared, message: &Message<'_>) -> Result<(), Attempt> {
        match self {
            Self::Remote(link, owner) => {
                let sent = link.lane.try_send(&message.head(*owner, None), message.body);
                sent.map_err(Attempt::from)
            }
            Self::Local(owner) => {
                let job = message.job(shared, owner, MessageKind::Send, ReplyTo::Nobody, None);
                match job {
                    Ok(job) => put_now(owner, job),
                    // As on a remote node: nobody hears of it.
                    Err(_) => Ok(()),
                }
            }
        }
    }

    async fn send(&self, shared: &Shared, message: &Message<'_>) -> Result<(), CallError> {
        match self {
            Self::Remote(link, owner) => {
                let head = message.head(*owner, None);
                link.lane.send(&head, message.body).await.map_err(refusal)
            }
            Self::Local(owner) => {
                let job = message.job(shared, owner, MessageKind::Send, ReplyTo::Nobody, None)?;
                put_waiting(owner, job).await
            }
        }
    }

    fn try_request(
        &self,
        shared: &Shared,
        message: &Message<'_>,
        timeout: Duration,
    ) -> Result<Ticket, Attempt> {
        match self {
            Self::Remote(link, owner) => {
                let ticket = link.requests.open().map_err(Attempt::Failed)?;
                let head = message.head(*owner, Some(asked(&ticket, timeout)));
                link.lane.try_send(&head, message.body)?;
                Ok(ticket)
            }
            Self::Local(owner) => {
                let (ticket, job) =
                    local_request(shared, owner, message, timeout).map_err(Attempt::Failed)?;
                put_now(owner, job)?;
                Ok(ticket)
            }
        }
    }

    async fn request(
        &self,
        shared: &Shared,
        message: &Message<'_>,
        timeout: Duration,
    ) -> Result<Ticket, CallError> {
        match self {
            Self::Remote(link, owner) => {
                let ticket = link.requests.open()?;
                let head = message.head(*owner, Some(asked(&ticket, timeout)));
                link.lane.send(&head, message.body).await.map_err(refusal)?;
                Ok(ticket)
            }
            Self::Local(owner) => {
                let (ticket, job) = local_request(shared, owner, message, timeout)?;
                put_waiting(owner, job).await?;
                Ok(ticket)
            }
        }
    }
}

fn local_request(
    shared: &Shared,
    owner: &Owner,
    message: &Message<'_>,
    timeout: Duration,
) -> Result<(Ticket, Job), CallError> {
    let ticket = shared.local.open()?;
    let reply = ReplyTo::Local(Arc::clone(&shared.local), ticket.correlation());
    let expires = Some(shared.ctx.monotonic() + timeout);
    let job = message.job(shared, owner, MessageKind::Request, reply, expires)?;
    Ok((ticket, job))
}

fn asked(ticket: &Ticket, timeout: Duration) -> Asked {
    let budget_ms = u32::try_from(timeout.as_millis()).unwrap_or(u32::MAX);
    Asked { correlation: ticket.correlation(), budget_ms }
}

fn put_now(owner: &Owner, job: Job) -> Result<(), Attempt> {
    if owner.mailbox.has_local_waiters() {
        return Err(Attempt::Full);
    }
    owner.mailbox.put(job).map_err(|(full, _)| match full {
        Full::Now => Attempt::Full,
        other => Attempt::Failed(full_error(other)),
    })
}

async fn put_waiting(owner: &Owner, job: Job) -> Result<(), CallError> {
    owner.mailbox.put_waiting(job).await.map_err(full_error)
}

fn full_error(full: Full) -> CallError {
    match full {
        Full::Sealed => CallError::ShuttingDown,
        Full::Now | Full::TooLarge => CallError::Unavailable("the mailbox has no room".into()),
    }
}

impl From<Refused> for Attempt {
    fn from(refused: Refused) -> Self {
        match refused {
            Refused::Full => Self::Full,
            other => Self::Failed(refusal(other)),
        }
    }
}

fn refusal(refused: Refused) -> CallError {
    match refused {
        Refused::Closed => CallError::Unavailable("the link was lost".into()),
        // A full table of waiters ends a send at once (submit semantics).
        Refused::Full | Refused::Crowded => CallError::DeadlineExceeded,
    }
}

fn encode<P: Packet>(packet: &P) -> Result<Bytes, CallError> {
    packet.encode().map_err(|error| CallError::ProtocolError(error.0))
}

impl Shared {
    pub(crate) fn check_open(&self) -> Result<(), CallError> {
        if self.ending.is_cancelled() { Err(CallError::ShuttingDown) } else { Ok(()) }
    }

    /// Bounds a part of a call in time.
    async fn within<T>(
        &self,
        time: Duration,
        call: impl Future<Output = Result<T, CallError>>,
    ) -> Result<T, CallError> {
        self.ctx.timeout(time, call).await.unwrap_or(Err(CallError::DeadlineExceeded))
    }

    /// Sends a one-way message to a node. Weight, channels and draining play no part.
    pub(super) async fn send_to_node<P: Packet>(
        self: &Arc<Self>,
        rid: &Rid,
        packet: &P,
        options: &CallOptions,
    ) -> Result<(), CallError> {
        let body = encode(packet)?;
        let metadata = options.metadata.to_bytes();
        let message = Message::new(P::NAME, P::CONTENT, &body, &metadata, &options.metadata);
        let send = async {
            let port = self.node_port(rid).await?;
            port.send(self, &message).await
        };
        self.within(self.router.send_wait(), send).await.map_err(|error| self.late(rid, error))
    }

    /// Sends a request to a node.
    pub(super) async fn request_to_node<P: Packet, R: Body>(
        self: &Arc<Self>,
        rid: &Rid,
        packet: &P,
        options: &CallOptions,
    ) -> Result<R, CallError> {
        let body = encode(packet)?;
        let metadata = options.metadata.to_bytes();
        let message = Message::new(P::NAME, P::CONTENT, &body, &metadata, &options.metadata);
        let timeout = options.timeout.unwrap_or(self.request_timeout);
        let begin = async {
            let port = self.node_port(rid).await?;
            port.request(self, &message, timeout).await
        };
        let call = async {
            let wait = self.router.send_wait().min(timeout);
            let begun = self.within(wait, begin).await;
            let ended: Ended = begun.map_err(|error| self.late(rid, error))?.await;
            ended
        };
        let (content, bytes) = self.within(timeout, call).await?;
        Reply { bytes, content }.decode()
    }

    /// The way to a node, once its link is ready. The caller bounds the wait.
    async fn node_port(&self, rid: &Rid) -> Result<Port, CallError> {
        self.check_open()?;
        if *rid == *self.rid {
            return Ok(Port::Local(Arc::clone(self.node_owner())));
        }
        loop {
            let peer = self.peer(rid).ok_or(CallError::NoTarget(NoTarget::NotPublished))?;
            if peer.role == Some(ObjectRole::Client) || peer.state == PeerState::NotRequired {
                return Err(CallError::NoTarget(NoTarget::ObjectClient));
            }
            if let Some(link) = peer.link.filter(|_| peer.state.is_connected()) {
                return Ok(Port::Remote(link, OWNER_NODE));
            }
            self.ctx.sleep(READY_POLL).await;
        }
    }

    /// A node that is known and never became ready is unavailable (B2.4 of the error model).
    fn late(&self, rid: &Rid, error: CallError) -> CallError {
        let connected = self.peer(rid).is_some_and(|peer| peer.state.is_connected());
        match error {
            CallError::DeadlineExceeded if !connected && *rid != *self.rid => {
                CallError::NoTarget(NoTarget::NotReady)
            }
            other => other,
        }
    }
}
