//! Whether a peer still answers (transport liveness): one probe out at a time, and only its answer
//! on the same link counts. Ordinary traffic proves one direction only.

use std::time::Duration;

use carlos_protocol::Entropy;

/// Between two probes. Fixed for all nodes: the deadline is three of them.
pub(crate) const PROBE_EVERY: Duration = Duration::from_secs(5);

/// Without a matching answer for this long the link is closed.
pub(crate) const PEER_DEADLINE: Duration = Duration::from_secs(15);

/// The liveness of one link.
#[derive(Debug)]
pub(crate) struct Liveness {
    next_probe: Duration,
    deadline: Duration,
    /// The probe that is out; repeated until it is answered.
    open: Option<u64>,
}

/// What is due.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Due {
    /// Nothing yet.
    Nothing,
    /// Send this probe.
    Probe(u64),
    /// The peer did not answer in time.
    Lost,
}

impl Liveness {
    /// A link that was admitted now.
    pub(crate) fn new(now: Duration) -> Self {
        Self { next_probe: now + PROBE_EVERY, deadline: now + PEER_DEADLINE, open: None }
    }

    /// What is due at `now`.
    pub(crate) fn tick(&mut self, now: Duration, dice: &mut dyn Entropy) -> Due {
        if now >= self.deadline {
            return Due::Lost;
        }
        if now < self.next_probe {
            return Due::Nothing;
        }
        self.next_probe = now + PROBE_EVERY;
        Due::Probe(*self.open.get_or_insert_with(|| fresh(dice)))
    }

    /// An answer arrived. Only the first that matches moves the deadline.
    pub(crate) fn ack(&mut self, now: Duration, id: u64) {
        if self.open == Some(id) {
            self.open = None;
            self.deadline = now + PEER_DEADLINE;
        }
    }

    /// When to ask again.
    pub(crate) fn next_wake(&self) -> Duration {
        self.next_probe.min(self.deadline)
    }
}

/// Never zero, and not to be guessed by an old link's late answer.
fn fresh(dice: &mut dyn Entropy) -> u64 {
    let mut bytes = [0; 8];
    dice.fill(&mut bytes);
    u64::from_be_bytes(bytes).max(1)
}

#[cfg(test)]
mod tests {
    use super::super::testing::Dice;
    use super::*;

    const fn at(seconds: u64) -> Duration {
        Duration::from_secs(seconds)
    }

    #[test]
    fn an_unanswered_probe_is_repeated_and_ends_the_link() {
        let (mut liveness, mut dice) = (Liveness::new(at(0)), Dice::new(1));
        assert_eq!(liveness.tick(at(4), &mut dice), Due::Nothing);
        let Due::Probe(first) = liveness.tick(at(5), &mut dice) else { panic!("a probe is due") };
        assert_eq!(liveness.tick(at(10), &mut dice), Due::Probe(first));
        assert_eq!(liveness.tick(at(15), &mut dice), Due::Lost);
    }

    #[test]
    fn only_the_first_matching_answer_counts() {
        let (mut liveness, mut dice) = (Liveness::new(at(0)), Dice::new(1));
        liveness.ack(at(1), 0);
        let Due::Probe(first) = liveness.tick(at(5), &mut dice) else { panic!("a probe is due") };
        liveness.ack(at(6), first ^ 1);
        liveness.ack(at(7), first);
        liveness.ack(at(14), first);
        assert_eq!(liveness.deadline, at(22));
        let Due::Probe(second) = liveness.tick(at(10), &mut dice) else { panic!("a probe is due") };
        assert_ne!(first, second);
        assert_eq!(liveness.tick(at(22), &mut dice), Due::Lost);
    }
}
