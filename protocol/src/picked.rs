//! `picked`: the one object that decides who owns a read (db-forward §5.3, J3), and the boxes'
//! deadline in it. Also `cancel`, which says only that the request has ended.

use serde::{Deserialize, Serialize};

use crate::canon::{self, CanonError};
use crate::ids::{BootId, BoxName, Nonce};
use crate::limits::{MARKER_BYTES, OWNER_TIME};
use crate::time::Seconds;

/// The body of `picked`.
///
/// The nonce is this attempt's alone: a box whose create was answered unclearly reads the object
/// back and owns the read only when it finds its own nonce.
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize)]
#[serde(deny_unknown_fields)]
pub struct Picked {
    /// The owner.
    #[serde(rename = "box")]
    pub box_name: BoxName,
    /// The owner's boot.
    pub boot: BootId,
    /// This attempt.
    pub nonce: Nonce,
    /// When the owner will have stopped at the latest.
    pub deadline: Seconds,
}

impl Picked {
    /// The object's bytes.
    pub fn to_bytes(&self) -> Vec<u8> {
        canon::encode(self)
    }

    /// Reads an object's bytes.
    ///
    /// # Errors
    /// [`CanonError`]: every writer of the bucket could have written it.
    pub fn from_bytes(bytes: &[u8]) -> Result<Self, CanonError> {
        canon::decode(bytes, MARKER_BYTES)
    }

    /// The deadline as a waiting console may believe it: a box cannot hold a request longer than
    /// the owner's time from `seen_unix`, nor name a deadline before it.
    pub fn clamped_deadline(&self, seen_unix: u64) -> Seconds {
        let latest = seen_unix.saturating_add(OWNER_TIME.as_secs());
        Seconds::new(self.deadline.unix().clamp(seen_unix, latest))
    }
}

/// The body of `cancel`: empty. Its being there is all it says.
pub const CANCEL_BODY: &[u8] = b"";

/// The body of a queue entry: empty. Its name is all it says.
pub const QUEUE_BODY: &[u8] = b"";

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::Counter;

    fn picked(deadline: u64) -> Picked {
        Picked {
            box_name: BoxName::parse("uk-1").expect("label"),
            boot: BootId::parse("b0").expect("label"),
            nonce: Nonce::mint(&mut Counter(1)),
            deadline: Seconds::new(deadline),
        }
    }

    #[test]
    fn the_bytes_round_trip_and_are_bounded() {
        let bytes = picked(1_792_659_600).to_bytes();
        assert_eq!(Picked::from_bytes(&bytes), Ok(picked(1_792_659_600)));
        assert!(Picked::from_bytes(&[b' '; MARKER_BYTES + 1]).is_err());
        assert!(Picked::from_bytes(&bytes[1..]).is_err());
    }

    #[test]
    fn a_deadline_is_believed_within_bounds_only() {
        let now = 1_792_659_600;
        assert_eq!(picked(now + 60).clamped_deadline(now).unix(), now + 60);
        assert_eq!(picked(now + 9999).clamped_deadline(now).unix(), now + 1200);
        assert_eq!(picked(0).clamped_deadline(now).unix(), now);
    }
}
