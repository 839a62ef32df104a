//! What a deployment may cost and how long a read may wait to be picked up.

use std::time::Duration;

use crate::hour::{Load, Report};
use crate::latency::Distance;

/// Dollars a month for a box that nobody reads from: half for looking at the serial every two
/// seconds, two fifths for sweeping every thirty, a fifth for saying every minute that it lives.
pub const IDLE_BOX: f64 = 1.25;

/// From the serial's move to `picked`, for half of the reads, when somebody read in that region
/// within the minute before.
pub const PICKUP: [(Distance, Duration); 2] = [
    (Distance::SameRegion, Duration::from_millis(900)),
    (Distance::Ms80, Duration::from_millis(1_300)),
];

/// What does not hold, in words; empty when all of it holds.
pub fn missed(report: &Report) -> Vec<String> {
    let mut missed = Vec::new();
    let dollars = report.dollars_a_month_a_box();
    if report.load == Load::Idle && dollars > IDLE_BOX {
        missed.push(format!("an idle box costs {dollars:.2} USD a month, not {IDLE_BOX}"));
    }
    for (distance, most) in PICKUP {
        let Some(waits) = report.pickup.get(&distance) else { continue };
        let half = waits.percentile(50);
        if half > most {
            let name = distance.name();
            missed.push(format!("half of the pickups, {name}, take {half:.2?}, not {most:.2?}"));
        }
    }
    if report.woken_elsewhere > 0 {
        let looks = report.woken_elsewhere;
        missed.push(format!("{looks} quick looks of boxes whose region nobody read"));
    }
    if report.unanswered > 0 {
        missed.push(format!("{} of {} reads have no answer", report.unanswered, report.reads));
    }
    missed
}
