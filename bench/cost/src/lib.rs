//! What a deployment's requests cost, and how long people wait for it: the real console and real
//! agents on virtual time, over a store that takes as long as S3 does and counts what it is asked.
//!
//! An hour of a thousand boxes takes a minute or so of real time, and no clock decides anything.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a measuring tool: what fails, fails loudly")]

mod deployment;
mod hour;
mod latency;
mod link;
mod person;
mod prices;
mod share;
mod table;
mod targets;

pub use deployment::{REGIONS, Sent, Size};
pub use hour::{ByDistance, Load, Report, play, size};
pub use latency::Distance;
pub use prices::{HOURS, Requests, TIER_1, TIER_2};
pub use share::Waits;
pub use table::{json, markdown};
pub use targets::{IDLE_BOX, PICKUP, missed};
