//! The request budget of one token (db-forward §5.7).

use std::{collections::HashMap, sync::Mutex, time::Duration};

use carlos_protocol::{ids::Digest, limits::REQUEST_BUDGET_WINDOW as WINDOW};

/// Tokens remembered at once. Only tokens that checked out get here, and an entry is dead after a
/// minute, so the bound is reached by none but a very large deployment; then the oldest goes.
const MAX_TOKENS: usize = 8_192;

pub(crate) struct Budget {
    limit: u32,
    windows: Mutex<HashMap<Digest, Window>>,
}

struct Window {
    started: Duration,
    spent: u32,
}

/// The budget is spent; ask again after `retry_after`.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Spent {
    pub(crate) retry_after: Duration,
}

impl Budget {
    pub(crate) fn new(limit: u32) -> Self {
        Self { limit, windows: Mutex::default() }
    }

    /// Charges one request of the token with this digest at `now`, a monotonic time.
    pub(crate) fn charge(&self, token: &Digest, now: Duration) -> Result<(), Spent> {
        let mut windows = self.windows.lock().expect("no holder of the budget panics");
        if windows.len() >= MAX_TOKENS && !windows.contains_key(token) {
            make_room(&mut windows, now);
        }
        let window = windows.entry(*token).or_insert(Window { started: now, spent: 0 });
        if now.saturating_sub(window.started) >= WINDOW {
            *window = Window { started: now, spent: 0 };
        }
        if window.spent >= self.limit {
            return Err(Spent { retry_after: (window.started + WINDOW).saturating_sub(now) });
        }
        window.spent += 1;
        Ok(())
    }
}

fn make_room(windows: &mut HashMap<Digest, Window>, now: Duration) {
    windows.retain(|_, window| now.saturating_sub(window.started) < WINDOW);
    if windows.len() < MAX_TOKENS {
        return;
    }
    let oldest = windows.iter().min_by_key(|(_, window)| window.started).map(|(token, _)| *token);
    if let Some(oldest) = oldest {
        windows.remove(&oldest);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn token(n: usize) -> Digest {
        let mut digest = [0; 32];
        digest[..8].copy_from_slice(&n.to_be_bytes());
        Digest::from_bytes(digest)
    }

    #[test]
    fn the_six_hundred_and_first_request_of_a_minute_waits() {
        let budget = Budget::new(carlos_protocol::limits::REQUEST_BUDGET);
        let at = Duration::from_secs(1_000);
        for _ in 0..600 {
            budget.charge(&token(1), at).unwrap();
        }
        let spent = budget.charge(&token(1), at + Duration::from_secs(59)).unwrap_err();
        assert_eq!(spent, Spent { retry_after: Duration::from_secs(1) });
        budget.charge(&token(2), at).unwrap();
        budget.charge(&token(1), at + WINDOW).unwrap();
    }

    #[test]
    fn the_table_stays_bounded() {
        let budget = Budget::new(1);
        for n in 0..MAX_TOKENS + 100 {
            budget.charge(&token(n), Duration::from_millis(n as u64)).unwrap();
        }
        assert_eq!(budget.windows.lock().unwrap().len(), MAX_TOKENS);
    }
}
