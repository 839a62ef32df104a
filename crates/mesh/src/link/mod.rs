//! One link to one peer: what goes out, what comes in, and the task that moves the bytes.

mod inbound;
mod lane;
mod out;
mod requests;
mod task;

use std::sync::Arc;
use std::sync::atomic::AtomicU64;

use bytes::Bytes;
use carlos_protocol::mesh::{Content, Descriptor, Outcome, ReplyHead, Rid};

pub(crate) use inbound::Inbound;
pub(crate) use lane::{Lane, Refused};
pub(crate) use requests::{Ended, ReplyContent, Requests, Ticket, failure};
pub(crate) use task::{Driven, LinkEvent};

/// A link that carries messages, shared by its task, callers and handlers.
#[derive(Debug)]
pub(crate) struct Link {
    pub(crate) peer: Arc<Rid>,
    pub(crate) lane: Lane,
    pub(crate) requests: Arc<Requests>,
    /// Selections that ended here (decision 19).
    pub(crate) selected: AtomicU64,
}

impl Link {
    /// A link to a peer that granted `window` bytes; `queue_limit` bounds what waits here.
    pub(crate) fn new(peer: &Descriptor, window: u64, queue_limit: u64) -> Self {
        Self {
            peer: Arc::new(peer.rid.clone()),
            lane: Lane::new(peer.members.len(), window, queue_limit),
            requests: Arc::default(),
            selected: AtomicU64::new(0),
        }
    }

    /// Ends a request of the peer without a reply.
    pub(crate) fn refuse(&self, correlation: u64, outcome: Outcome, text: &str) {
        let head = ReplyHead { correlation, outcome, content: Content::Raw, total: None };
        self.lane.reply(&head, &Bytes::copy_from_slice(text.as_bytes()));
    }
}
