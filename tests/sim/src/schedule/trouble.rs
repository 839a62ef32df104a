//! What else happens in a run, to machines, to the console, to the instance and to the service.

use std::sync::Arc;
use std::time::Duration;

use carlos_bucket::Context;
use futures::future::join_all;

use super::weather::{Squall, Weather};
use super::{Course, SPAN};
use crate::boxes::{Machine, STALL};
use crate::console::Desk;
use crate::world::World;

/// The name of these events in the log.
pub(super) const TROUBLE: &str = "trouble";

/// The mishaps of one run, one after another.
pub(super) struct Trouble {
    world: Arc<World>,
    desk: Arc<Desk>,
    machines: Vec<Arc<Machine>>,
    weather: Vec<Weather>,
    events: Vec<(Duration, Mishap)>,
}

#[derive(Clone, Copy, Debug)]
enum Mishap {
    /// A machine's clock goes wrong by a little, to the end.
    ClockDrifts(usize, i64),
    /// A machine's clock jumps an hour and is set right again later.
    ClockJumps(usize, i64, Duration),
    ConsoleIsKilled(Duration),
    ConsoleShutsDown(Duration),
    ConsoleStalls,
    Moves(Duration),
    Recreated,
    /// On one line.
    Squall(Squall, usize, Duration),
    /// What boxes create lands long after they gave its answer up.
    BoxesAreHeldBack(Duration),
    /// The service turns away this many of a hundred requests of everybody under a prefix.
    SlowDownStorm(&'static str, u8, Duration),
}

/// An hour, in both directions: daylight saving done wrong, or a dead battery's better guess.
const HOUR_MS: i64 = 3_600_000;

impl Trouble {
    pub(super) fn draw(course: &Course) -> Self {
        let dice = &course.dice;
        let count = if course.is_calm() { 0 } else { dice.below(4) };
        let mut events: Vec<_> = (0..count)
            .map(|_| {
                (dice.jitter(SPAN), Mishap::draw(dice, &course.machines, course.weather.len()))
            })
            .collect();
        if course.console_stalls() {
            events.push((dice.jitter(SPAN), Mishap::ConsoleStalls));
        }
        events.sort_by_key(|(at, _)| *at);
        Self {
            world: Arc::clone(&course.world),
            desk: Arc::clone(&course.desk),
            machines: course.machines.clone(),
            weather: course.weather.clone(),
            events,
        }
    }

    pub(super) async fn happen(self) {
        let began = self.world.ctx.monotonic();
        for (at, mishap) in &self.events {
            let passed = self.world.ctx.monotonic() - began;
            self.world.ctx.sleep(at.saturating_sub(passed)).await;
            self.world.log.machine(TROUBLE, format!("{mishap:?}"));
            self.strike(*mishap).await;
        }
    }

    async fn strike(&self, mishap: Mishap) {
        let ctx = &self.world.ctx;
        match mishap {
            Mishap::ClockDrifts(machine, ms) => self.set_skew_ms(machine, ms),
            Mishap::ClockJumps(machine, ms, span) => {
                self.set_skew_ms(machine, ms);
                ctx.sleep(span).await;
                self.set_skew_ms(machine, 0);
            }
            Mishap::ConsoleIsKilled(back) => {
                self.desk.kill();
                ctx.sleep(back).await;
                self.desk.boot();
            }
            Mishap::ConsoleShutsDown(back) => {
                self.desk.shut_down().await;
                ctx.sleep(back).await;
                self.desk.boot();
            }
            Mishap::ConsoleStalls => self.stall().await,
            Mishap::Moves(span) => {
                self.world.set_moving(true).await;
                ctx.sleep(span).await;
                self.world.set_moving(false).await;
            }
            Mishap::Recreated => self.world.recreate().await,
            Mishap::Squall(squall, line, span) => {
                self.weather[line].squall(ctx, squall, span).await;
            }
            Mishap::BoxesAreHeldBack(span) => {
                let boxes = self.weather.iter().filter(|it| it.is_a_boxes());
                join_all(boxes.map(|it| it.squall(ctx, Squall::HeldBack, span))).await;
            }
            Mishap::SlowDownStorm(prefix, share, span) => {
                self.world.s3.storm(prefix, f64::from(share) / 100.0);
                ctx.sleep(span).await;
                self.world.s3.calm_down();
            }
        }
    }

    /// The console stands still for an hour.
    async fn stall(&self) {
        let Some(process) = self.desk.freeze() else { return };
        self.world.ctx.sleep(STALL).await;
        process.thaw();
    }

    fn set_skew_ms(&self, machine: usize, ms: i64) {
        match self.machines.get(machine) {
            Some(machine) => machine.set_skew_ms(ms),
            None => self.desk.set_skew_ms(ms),
        }
    }
}

impl Mishap {
    fn draw(dice: &Context, machines: &[Arc<Machine>], lines: usize) -> Self {
        // One more than there are boxes: the console's.
        let clock = || dice.below(machines.len() + 1);
        let span = Duration::from_secs(1) + dice.jitter(Duration::from_secs(25));
        match dice.below(12) {
            0 => {
                let reach = [2_000, 90_000][dice.below(2)];
                Self::ClockDrifts(clock(), dice.below(2 * reach) as i64 - reach as i64)
            }
            1 => Self::ClockJumps(clock(), HOUR_MS, span),
            2 => Self::ClockJumps(clock(), -HOUR_MS, span),
            3 => Self::ConsoleIsKilled(span),
            4 => Self::ConsoleShutsDown(span),
            5 => Self::Moves(span),
            6 => Self::Recreated,
            7 | 8 => {
                let prefix = ["", "db-reads/", "control/"][dice.below(3)];
                Self::SlowDownStorm(prefix, [50, 100][dice.below(2)], span)
            }
            9 => Self::Squall(Squall::Throttled, dice.below(lines), span),
            10 => Self::Squall(Squall::Silent, dice.below(lines), span),
            // Longer than a box asks again.
            _ => Self::BoxesAreHeldBack(span + Duration::from_secs(35)),
        }
    }
}

/// What a line of the log says happened, by the mishap's name; a jump back has one of its own.
pub(super) fn name(text: &str) -> String {
    let text = text.strip_prefix("Squall(").unwrap_or(text);
    let name = text.split([' ', '(', ',']).next().unwrap_or_default();
    match text.contains(&format!("-{HOUR_MS}")) {
        true => format!("{name} back"),
        false => name.to_owned(),
    }
}
