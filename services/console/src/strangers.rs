//! What tokens that nobody has vouched for may cost, all of them together.
//!
//! Who a token belongs to is known only after its account's record was read, so anybody can make
//! the console ask its bucket. A token that checked out lately is let through; any other takes from
//! an allowance of the whole process, and when that is empty the bucket is not asked at all. Not an
//! allowance of each remote: behind the proxy that holds TLS there is only one.

use std::{
    collections::HashMap,
    sync::{Mutex, MutexGuard},
    time::Duration,
};

use carlos_protocol::ids::Digest;

/// Unknown accounts looked up in a second. Each costs a listing and a read, so a flood costs the
/// bucket 40 requests a second, about what 20 open reads do.
const ACCOUNTS_A_SECOND: u32 = 20;

/// Unknown tokens of known accounts checked in a second; each costs one read. An allowance of their
/// own, so that a flood of made-up accounts does not keep out a member's new token.
const TOKENS_A_SECOND: u32 = 20;

/// Lookups at once, after some quiet: what a console that has just started needs for the people
/// who were using the one before it.
const BURST: u32 = 40;

/// Tokens remembered as good, 50 bytes each. Only tokens that checked out get here, so the bound is
/// reached by none but a very large deployment; then the one longest unused is a stranger again.
const MAX_KNOWN: usize = 8_192;

pub(crate) struct Strangers {
    known: Mutex<Known>,
    accounts: Allowance,
    tokens: Allowance,
}

#[derive(Default)]
struct Known {
    last_uses: HashMap<Digest, u64>,
    uses: u64,
}

/// Nothing is looked up now; ask again after `retry_after`.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Exhausted {
    pub(crate) retry_after: Duration,
}

impl Strangers {
    pub(crate) fn new() -> Self {
        Self {
            known: Mutex::default(),
            accounts: Allowance::new(ACCOUNTS_A_SECOND),
            tokens: Allowance::new(TOKENS_A_SECOND),
        }
    }

    /// Whether the bucket may be asked about this token at `now`, a monotonic time.
    pub(crate) fn admit(
        &self,
        token: &Digest,
        account_is_known: bool,
        now: Duration,
    ) -> Result<(), Exhausted> {
        if self.known().last_uses.contains_key(token) {
            return Ok(());
        }
        let allowance = if account_is_known { &self.tokens } else { &self.accounts };
        allowance.take(now)
    }

    /// The token checked out.
    pub(crate) fn remember(&self, token: &Digest) {
        self.known().remember(token);
    }

    /// The token is none, or is none any more.
    pub(crate) fn forget(&self, token: &Digest) {
        self.known().last_uses.remove(token);
    }

    fn known(&self) -> MutexGuard<'_, Known> {
        self.known.lock().expect("no holder of the known tokens panics")
    }
}

impl Known {
    fn remember(&mut self, token: &Digest) {
        self.uses += 1;
        if self.last_uses.len() >= MAX_KNOWN && !self.last_uses.contains_key(token) {
            let oldest = self.last_uses.iter().min_by_key(|(_, last_use)| **last_use);
            if let Some(oldest) = oldest.map(|(token, _)| *token) {
                self.last_uses.remove(&oldest);
            }
        }
        self.last_uses.insert(*token, self.uses);
    }
}

/// A bucket of [`BURST`] tokens that fills evenly, as one number: when it will be full again.
struct Allowance {
    interval: Duration,
    full_at: Mutex<Duration>,
}

impl Allowance {
    fn new(a_second: u32) -> Self {
        Self { interval: Duration::from_secs(1) / a_second, full_at: Mutex::default() }
    }

    fn take(&self, now: Duration) -> Result<(), Exhausted> {
        let mut full_at = self.full_at.lock().expect("no holder of the allowance panics");
        let next = (*full_at).max(now) + self.interval;
        let retry_after = next.saturating_sub(now + self.interval * BURST);
        if !retry_after.is_zero() {
            return Err(Exhausted { retry_after });
        }
        *full_at = next;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn token(n: usize) -> Digest {
        Digest::of(&n.to_be_bytes())
    }

    #[test]
    fn an_allowance_gives_its_burst_and_then_its_rate() {
        let allowance = Allowance::new(ACCOUNTS_A_SECOND);
        let at = Duration::from_secs(1_000);
        let taken = |at| (0..1_000).filter(|_| allowance.take(at).is_ok()).count();
        assert_eq!(taken(at), BURST as usize);
        assert_eq!(allowance.take(at).unwrap_err().retry_after, Duration::from_millis(50));
        assert_eq!(taken(at + Duration::from_secs(1)), ACCOUNTS_A_SECOND as usize);
        assert_eq!(taken(at + Duration::from_secs(3_600)), BURST as usize);
    }

    #[test]
    fn each_kind_has_its_own_allowance_and_a_good_token_needs_none() {
        let (strangers, at) = (Strangers::new(), Duration::from_secs(1_000));
        strangers.remember(&token(0));
        for account_is_known in [false, true] {
            let admitted = |n| strangers.admit(&token(n), account_is_known, at).is_ok();
            assert_eq!((1..1_000).filter(|n| admitted(*n)).count(), BURST as usize);
            assert!(admitted(0));
        }
        strangers.forget(&token(0));
        strangers.admit(&token(0), true, at).unwrap_err();
    }

    #[test]
    fn the_memory_is_bounded_and_keeps_what_is_used() {
        let strangers = Strangers::new();
        for n in 1..MAX_KNOWN + 100 {
            strangers.remember(&token(0));
            strangers.remember(&token(n));
        }
        let known = strangers.known();
        assert_eq!(known.last_uses.len(), MAX_KNOWN);
        assert!(known.last_uses.contains_key(&token(0)));
    }
}
