//! What goes wrong between one process and its store.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use carlos_bucket::Context;
use carlos_bucket::fault::{Fault, Rule, S3Conduct};
use carlos_bucket::layer::Op;

use crate::console::CONSOLE;
use crate::wire::Line;

/// How likely a request goes wrong, one of these for each line of a run.
const BADNESS: [f64; 5] = [0.0, 0.0, 0.03, 0.08, 0.25];

/// How the service itself behaves, one of these for a run.
const CONDUCTS: [S3Conduct; 3] = [
    S3Conduct { slow: 0.0, slowest: Duration::ZERO, conflicts: 0.0, repeats: 0.0 },
    S3Conduct { slow: 0.005, slowest: Duration::from_secs(8), conflicts: 0.5, repeats: 0.05 },
    S3Conduct { slow: 0.03, slowest: Duration::from_secs(25), conflicts: 0.9, repeats: 0.25 },
];

/// How the service behaves in one run.
pub(super) fn conduct(dice: &Context) -> S3Conduct {
    CONDUCTS[dice.below(CONDUCTS.len())]
}

/// What can go wrong on one line.
#[derive(Clone)]
pub(super) struct Weather {
    line: Line,
    squalls: [Arc<AtomicBool>; 3],
}

/// What one line can suffer for a while.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Squall {
    /// Every request is turned away.
    Throttled,
    /// No request is answered, and none is done.
    Silent,
    /// Creates are kept on the way and land long after their answer was given up.
    HeldBack,
}

impl Weather {
    pub(super) fn over(line: &Line, dice: &Context) -> Self {
        let weather = Self { line: line.clone(), squalls: Default::default() };
        let ops = [Op::Create, Op::Get, Op::List, Op::Replace];
        for op in ops {
            line.faults.add(weather.switched(op, Fault::Refused(503), Squall::Throttled));
            line.faults.add(weather.switched(op, Fault::Swallowed, Squall::Silent));
        }
        let held = Fault::LandsLate(Duration::from_millis(20_000 + dice.below(25_000) as u64));
        line.faults.add(weather.switched(Op::Create, held, Squall::HeldBack));
        let badness = BADNESS[dice.below(BADNESS.len())];
        for op in ops.into_iter().filter(|_| badness > 0.0) {
            let faults = faults(op, dice);
            let odds = badness / faults.len() as f64;
            for fault in faults {
                line.faults.add(Rule::new(op, fault).odds(odds));
            }
        }
        weather
    }

    /// Whether this is a box's way to the deployment bucket, or to its data.
    pub(super) fn is_a_boxes(&self) -> bool {
        self.line.who != CONSOLE
    }

    pub(super) async fn squall(&self, ctx: &Context, squall: Squall, span: Duration) {
        let switch = &self.squalls[squall as usize];
        switch.store(true, Ordering::SeqCst);
        ctx.sleep(span).await;
        switch.store(false, Ordering::SeqCst);
    }

    pub(super) fn clear(&self) {
        self.line.faults.clear();
    }

    fn switched(&self, op: Op, fault: Fault, squall: Squall) -> Rule {
        let switch = Arc::clone(&self.squalls[squall as usize]);
        Rule::new(op, fault).filter(move |_| switch.load(Ordering::SeqCst)).always()
    }
}

/// A store shows what was done, so nothing is hidden here: what appears late is what lands late.
fn faults(op: Op, dice: &Context) -> Vec<Fault> {
    let soon = Duration::from_millis(500 + dice.below(6_000) as u64);
    let late = Duration::from_millis(500 + dice.below(40_000) as u64);
    let slow = Duration::from_millis(300 + dice.below(3_000) as u64);
    let common = [
        Fault::Refused(500),
        Fault::NotSent,
        Fault::Reset,
        Fault::Swallowed,
        Fault::SlowAnswer(slow),
    ];
    let own = match op {
        Op::Create => vec![
            Fault::Conflict,
            Fault::DoneBut(409),
            Fault::DoneBut(412),
            Fault::DoneBut(500),
            Fault::DoneBut(503),
            Fault::AnswerLost,
            Fault::DoneInSilence,
            Fault::LandsLate(late),
            Fault::ResetLandsLate(soon),
            Fault::Delayed(slow),
        ],
        Op::Replace => vec![Fault::DoneBut(500), Fault::AnswerLost, Fault::LandsLate(late)],
        _ => vec![],
    };
    common.into_iter().chain(own).collect()
}
