//! What a node shows of itself: states, counts, and nothing internal (routemesh §5, §9).

/// A peer's state as monitoring shows it. `NotRequired` is a normal omission and no failure.
#[derive(Clone, Copy, Debug, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub enum PeerState {
    /// A connection is being made.
    Connecting,
    /// Messages flow.
    Ready,
    /// Messages flow, and the peer takes no new selections.
    Draining,
    /// A connection is needed and there is none.
    NotConnected,
    /// The pair needs none.
    NotRequired,
}

impl PeerState {
    /// The state in announcements and metrics.
    pub fn name(self) -> &'static str {
        match self {
            Self::Connecting => "connecting",
            Self::Ready => "ready",
            Self::Draining => "draining",
            Self::NotConnected => "not-connected",
            Self::NotRequired => "not-required",
        }
    }
}
