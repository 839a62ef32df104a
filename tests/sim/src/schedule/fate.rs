//! What becomes of processes and people.

use std::sync::Arc;
use std::time::Duration;

use carlos_bucket::Context;

use super::{SPAN, WARM_UP};
use crate::boxes::{Machine, STALL, Stop};
use crate::person::Manner;
use crate::worker::Habits;

/// What becomes of an agent.
#[derive(Clone, Copy, Debug)]
pub(super) enum Fate {
    Steady,
    /// It dies where a read passes a point.
    DiesAt(Stop, Back),
    /// It is killed at some time.
    Killed(Duration, Back),
    /// It is told to stop at some time.
    Drained(Duration, Back),
    /// It stands still for an hour where a read passes a point.
    StallsAt(Stop),
}

/// After how long it comes back, if it does before the end.
pub(super) type Back = Option<Duration>;

/// Points at which an agent can stop, see `CrashPoint`.
const POINTS: usize = 12;

/// The points behind which a write stands: before `picked`, with it, before a chunk, and before
/// the result.
const WRITES: [u8; 6] = [1, 2, 3, 8, 9, 10];

impl Fate {
    pub(super) fn draw(dice: &Context) -> Self {
        let back = dice.chance(0.8).then(|| dice.jitter(Duration::from_secs(40)));
        match dice.below(6) {
            0 => {
                let (point, nth) = (1 + dice.below(POINTS) as u8, 1 + dice.below(2));
                Self::DiesAt(Stop::dies(point, nth), back)
            }
            1 => Self::Killed(dice.jitter(SPAN), back),
            2 => Self::Drained(dice.jitter(SPAN), back),
            _ => Self::Steady,
        }
    }

    /// A writer that stands still for an hour with its next write at its fingertips.
    pub(super) fn stall(dice: &Context) -> Self {
        Self::StallsAt(Stop::stalls(WRITES[dice.below(WRITES.len())], 1))
    }
}

pub(super) async fn live(machine: Arc<Machine>, fate: Fate) {
    let ctx = machine.ctx().clone();
    machine.boot(match fate {
        Fate::DiesAt(stop, _) | Fate::StallsAt(stop) => Some(stop),
        _ => None,
    });
    let back = match fate {
        Fate::Steady => return,
        Fate::DiesAt(_, back) => {
            if stops(&machine).await {
                machine.kill().await;
            }
            back
        }
        Fate::Killed(after, back) => {
            ctx.sleep(after).await;
            machine.kill().await;
            back
        }
        Fate::Drained(after, back) => {
            ctx.sleep(after).await;
            machine.drain().await;
            back
        }
        Fate::StallsAt(_) => {
            if stops(&machine).await {
                ctx.sleep(STALL).await;
            }
            return;
        }
    };
    let Some(back) = back else { return };
    ctx.sleep(back).await;
    if !machine.is_up() {
        machine.boot(None);
    }
}

/// Whether the agent comes to its stop while there are reads; afterwards it is spared.
async fn stops(machine: &Machine) -> bool {
    let stopped = machine.ctx().timeout(WARM_UP + 2 * SPAN, machine.stops()).await.is_ok();
    machine.spare();
    stopped
}

pub(super) fn manner(dice: &Context) -> Manner {
    let patience = match dice.below(8) {
        0 => Some(Duration::from_secs(2)),
        1 => Some(Duration::from_secs(30)),
        _ => None,
    };
    let dawdles = match dice.below(12) {
        0 => dice.jitter(Duration::from_secs(12)),
        1 => Duration::from_secs(35),
        _ => Duration::ZERO,
    };
    Manner { leaves_after: patience.map(|most| dice.jitter(most)), dawdles }
}

pub(super) fn habits(dice: &Context) -> Habits {
    let seconds = |choices: [u64; 3]| Duration::from_millis(choices[dice.below(3)]);
    let sometimes = |p: f64| if dice.chance(0.2) { p } else { 0.0 };
    Habits {
        pause: seconds([40, 1_500, 8_000]),
        pace: seconds([20, 900, 2_500]),
        fails: sometimes(0.2),
        dies: sometimes(0.2),
        hangs: sometimes(0.1),
        lingers: seconds([50, 1_000, 4_500]),
        gate: None,
    }
}
