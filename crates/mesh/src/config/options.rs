//! Settings of sockets, mailboxes and trust, with their defaults.

use std::time::Duration;

use carlos_protocol::mesh::Identity;

/// Bytes a peer may have in transit to this node, and this node to a peer, unless set: what the
/// field's sockets hold by default.
pub const HIGH_WATER_MARK: u64 = 4_096_000;

/// Messages an owner's mailbox holds, queued and running, unless set.
pub const MAILBOX_MESSAGES: u64 = 1_024;

/// Bytes an owner's mailbox holds, unless set.
pub const MAILBOX_BYTES: u64 = 64 * 1024 * 1024;

/// How long a send waits for room, unless set.
pub const SEND_TIMEOUT: Duration = Duration::from_secs(1);

/// How long a request may take in all, unless set.
pub const REQUEST_TIMEOUT: Duration = Duration::from_secs(30);

/// Handlers of one channel that run at once, unless set.
pub const CONCURRENCY: usize = 64;

/// The longest send or receive timeout: what a socket option holds, in milliseconds.
pub const TIMEOUT_MAX: Duration = Duration::from_millis(i32::MAX as u64);

/// Settings of a node's router socket and mailboxes (routemesh §11). There is no largest message:
/// a budget is not one.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct RouterOptions {
    /// Bytes queued towards a peer; 0 for no bound.
    pub send_high_water_mark: u64,
    /// Bytes a peer may have on the way to this node; 0 for no bound.
    pub receive_high_water_mark: u64,
    /// Messages an owner's mailbox holds; 0 for the default.
    pub mailbox_message_budget: u64,
    /// Bytes an owner's mailbox holds; 0 for the default.
    pub mailbox_byte_budget: u64,
    /// How long a send waits for room; `None` for the default.
    pub send_timeout: Option<Duration>,
    /// How long a message that has begun may take to arrive; `None` for no bound (decision 22).
    pub receive_timeout: Option<Duration>,
}

impl Default for RouterOptions {
    fn default() -> Self {
        Self {
            send_high_water_mark: HIGH_WATER_MARK,
            receive_high_water_mark: HIGH_WATER_MARK,
            mailbox_message_budget: MAILBOX_MESSAGES,
            mailbox_byte_budget: MAILBOX_BYTES,
            send_timeout: None,
            receive_timeout: None,
        }
    }
}

impl RouterOptions {
    /// The messages a mailbox holds.
    pub(crate) fn messages(&self) -> u64 {
        if self.mailbox_message_budget == 0 {
            MAILBOX_MESSAGES
        } else {
            self.mailbox_message_budget
        }
    }

    /// The bytes a mailbox holds.
    pub(crate) fn bytes(&self) -> u64 {
        if self.mailbox_byte_budget == 0 { MAILBOX_BYTES } else { self.mailbox_byte_budget }
    }

    /// How long a send waits, a fraction of a millisecond counting as one.
    pub(crate) fn send_wait(&self) -> Duration {
        self.send_timeout.unwrap_or(SEND_TIMEOUT).max(Duration::from_millis(1))
    }
}

/// Who may join a mesh (decision 10). Nodes of differing profiles never connect.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub enum Trust {
    /// Whoever may create descriptors under the mesh's prefix of the store.
    #[default]
    Bucket,
    /// Only nodes whose descriptor this key has countersigned.
    Authority {
        /// The authority.
        key: Identity,
        /// Its signature over this node's fixed values, in base64.
        vouch: String,
    },
}

impl Trust {
    /// The profile's text in descriptors.
    pub(crate) fn profile(&self) -> String {
        match self {
            Self::Bucket => "bucket".to_owned(),
            Self::Authority { key, .. } => format!("authority:{key}"),
        }
    }
}

/// What protects the links of a node.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub enum Protection {
    /// TLS 1.3, both ends proving the key their descriptor names.
    #[default]
    Tls,
    /// Nothing: anybody on the path reads and changes everything, and any peer may claim any name.
    Plaintext,
}

/// Whom a manual peer must prove to be.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum PeerIdentity {
    /// The holder of this key.
    Key(Identity),
    /// Anybody who answers at the endpoint.
    Any,
}

/// A peer that the application names itself (routemesh §9).
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct ManualPeer {
    /// `host:port`.
    pub endpoint: String,
    /// The routing ID it must have; `None` takes what the handshake says.
    pub expected_rid: Option<Vec<u8>>,
    /// The key it must hold.
    pub identity: PeerIdentity,
}

impl ManualPeer {
    /// A peer at `endpoint` that must hold `key`.
    pub fn new(endpoint: impl Into<String>, key: Identity) -> Self {
        let identity = PeerIdentity::Key(key);
        Self { endpoint: endpoint.into(), expected_rid: None, identity }
    }

    /// A peer at `endpoint`, whoever answers there.
    pub fn any_identity(endpoint: impl Into<String>) -> Self {
        Self { endpoint: endpoint.into(), expected_rid: None, identity: PeerIdentity::Any }
    }

    /// The same, and it must have this routing ID.
    #[must_use]
    pub fn expect_rid(self, rid: &[u8]) -> Self {
        Self { expected_rid: Some(rid.to_vec()), ..self }
    }
}
