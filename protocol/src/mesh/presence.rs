//! A node's announcement of one minute, with its view of its links (decisions 2 and 19).

use serde::{Deserialize, Serialize};
use thiserror::Error;

use super::names::{Generation, MeshName, Rid, revision_number};
use crate::canon::{self, CanonError};
use crate::ids::Revision;
use crate::time::Seconds;

/// The largest announcement, in bytes: only a page that is open reads it.
const PRESENCE_BYTES: usize = 64 * 1024;

/// The most links an announcement lists: 64 KiB hold them with the longest automatic routing IDs.
pub const PEERS_LISTED: usize = 400;

/// One link as its node sees it.
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize)]
#[serde(deny_unknown_fields)]
pub struct PeerSight {
    /// The peer.
    pub rid: Rid,
    /// `ready`, `connecting`, `draining`, `not-connected` or `not-required`.
    pub state: String,
}

/// The body of an announcement. Readers of the mesh need its key only.
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize)]
#[serde(deny_unknown_fields)]
pub struct Presence {
    /// Always 1.
    pub v: u32,
    /// The mesh.
    pub mesh: MeshName,
    /// The node.
    pub rid: Rid,
    /// Its lifecycle.
    pub generation: Generation,
    /// The newest revision of its descriptor that stands in the store.
    #[serde(with = "revision_number")]
    pub revision: Revision,
    /// When it was written, by the store's clock as the node knows it.
    pub at: Seconds,
    /// Its links, sorted by peer; at most [`PEERS_LISTED`].
    pub peers: Vec<PeerSight>,
}

/// Why bytes are no announcement.
#[derive(Clone, Copy, Debug, Eq, Error, PartialEq)]
pub enum PresenceError {
    /// Not the canonical JSON of one.
    #[error(transparent)]
    Form(#[from] CanonError),
    /// More links than an announcement holds, or links out of order.
    #[error("the list of links is too long or not sorted")]
    Peers,
}

impl Presence {
    /// The canonical bytes.
    pub fn to_bytes(&self) -> Vec<u8> {
        canon::encode(self)
    }

    /// Reads an announcement.
    ///
    /// # Errors
    /// [`PresenceError`].
    pub fn from_bytes(bytes: &[u8]) -> Result<Self, PresenceError> {
        let presence: Self = canon::decode(bytes, PRESENCE_BYTES)?;
        let sorted = presence.peers.is_sorted_by(|a, b| a.rid < b.rid);
        let fits = sorted && presence.peers.len() <= PEERS_LISTED;
        if fits { Ok(presence) } else { Err(PresenceError::Peers) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn presence(peers: usize) -> Presence {
        let peer = |n: usize| PeerSight {
            rid: Rid::parse(&format!("{n:0101}")).expect("an id"),
            state: "not-connected".to_owned(),
        };
        Presence {
            v: 1,
            mesh: MeshName::parse("m").expect("a name"),
            rid: Rid::parse("node-a").expect("an id"),
            generation: Generation::new(1).expect("not zero"),
            revision: Revision::FIRST,
            at: Seconds::new(1_792_659_600),
            peers: (0..peers).map(peer).collect(),
        }
    }

    #[test]
    fn the_longest_announcement_fits() {
        let longest = presence(PEERS_LISTED);
        assert_eq!(Presence::from_bytes(&longest.to_bytes()), Ok(longest));
        let more = presence(PEERS_LISTED + 1).to_bytes();
        assert!(Presence::from_bytes(&more).is_err());
    }

    #[test]
    fn links_are_sorted() {
        let mut bad = presence(3);
        bad.peers.swap(0, 2);
        assert_eq!(Presence::from_bytes(&bad.to_bytes()), Err(PresenceError::Peers));
    }
}
