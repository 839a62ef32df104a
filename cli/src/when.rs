//! Times and durations as people type them: `--at`, `--timeout`.

use std::time::Duration;

use carlos_protocol::copy;
use carlos_protocol::time::{Millis, parse_rfc3339};

use crate::failure::Failure;

/// Why a time or duration was not understood. The text is a whole sentence for the person.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum WhenError {
    #[error("{}", copy::bad_time(.0))]
    NotATime(String),
    #[error("--at {0} is in the future by this computer's clock.")]
    Future(String),
    #[error("{0} is not a duration. write a number and a unit, such as 45s, 15m, 2h or 1h30m.")]
    NotADuration(String),
    #[error("{0} is too long. the longest duration is {MAX_DAYS}d.")]
    TooLong(String),
}

impl From<WhenError> for Failure {
    fn from(error: WhenError) -> Self {
        match &error {
            WhenError::NotATime(text) => copy::bad_time(text).into(),
            _ => Self::usage(error.to_string()),
        }
    }
}

/// Reads `--at`: an RFC 3339 time with an offset, or `-15m` before `now`.
///
/// A fraction finer than a millisecond is cut off, which can only make the copy older, never newer
/// than what was asked for.
///
/// # Errors
/// A time without an offset is refused: guessing a zone would silently read another copy.
pub fn parse_at(text: &str, now: Millis) -> Result<Millis, WhenError> {
    if let Some(ago) = text.strip_prefix('-') {
        let ago = parse_duration(ago).map_err(|_| WhenError::NotATime(text.into()))?;
        let ago_ms = u64::try_from(ago.as_millis()).unwrap_or(u64::MAX);
        return Ok(Millis::new(now.unix_ms().saturating_sub(ago_ms)));
    }
    let at = parse_rfc3339(text).map_err(|_| WhenError::NotATime(text.into()))?;
    if at.unix_ms() > now.unix_ms().saturating_add(CLOCK_SLACK_MS) {
        return Err(WhenError::Future(text.into()));
    }
    Ok(at)
}

/// Reads `45s`, `15m`, `2h`, `3d` or a run of those with falling units (`1h30m`).
pub fn parse_duration(text: &str) -> Result<Duration, WhenError> {
    let refused = || WhenError::NotADuration(text.into());
    let mut rest = text;
    let mut total = 0_u64;
    let mut units = UNITS.iter();
    while !rest.is_empty() {
        let digits = rest.find(|c: char| !c.is_ascii_digit()).ok_or_else(refused)?;
        let count: u64 = rest[..digits].parse().map_err(|_| refused())?;
        let unit = rest[digits..].chars().next().ok_or_else(refused)?;
        let (_, seconds) = units.find(|(name, _)| *name == unit).ok_or_else(refused)?;
        let part = count.checked_mul(*seconds).ok_or_else(refused)?;
        total = total.checked_add(part).ok_or_else(refused)?;
        rest = &rest[digits + unit.len_utf8()..];
    }
    if total == 0 {
        return Err(refused());
    }
    if total > MAX_DAYS * DAY {
        return Err(WhenError::TooLong(text.into()));
    }
    Ok(Duration::from_secs(total))
}

/// Longest first, so that `30m1h`, which is more likely a slip than a wish, is refused.
const UNITS: [(char, u64); 4] = [('d', DAY), ('h', 3_600), ('m', 60), ('s', 1)];

/// Ten years: longer than any replica's history, short enough for no sum of it to overflow.
const MAX_DAYS: u64 = 3_660;

const DAY: u64 = 86_400;

/// A clock that is a minute slow must not refuse a time its owner reads off another clock.
const CLOCK_SLACK_MS: u64 = 60_000;

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: u64 = 1_792_000_000_000;

    fn at(text: &str) -> Result<u64, WhenError> {
        parse_at(text, Millis::new(NOW)).map(Millis::unix_ms)
    }

    #[test]
    fn durations() {
        let seconds = |text| parse_duration(text).map(|d| d.as_secs());
        assert_eq!(seconds("45s"), Ok(45));
        assert_eq!(seconds("1h30m"), Ok(5_400));
        assert_eq!(seconds("2d"), Ok(172_800));
        for bad in ["", "0s", "15", "m", "30m1h", "1h1h", "-5m", "1.5h", "99999999999999999999s"] {
            assert_eq!(seconds(bad), Err(WhenError::NotADuration(bad.into())), "{bad}");
        }
        assert_eq!(seconds("3660d"), Ok(3_660 * 86_400));
        let refused = seconds("99999h").expect_err("too long").to_string();
        assert_eq!(refused, "99999h is too long. the longest duration is 3660d.");
    }

    #[test]
    fn relative_and_absolute_times() {
        assert_eq!(at("-15m"), Ok(NOW - 900_000));
        assert_eq!(at("1970-01-01T00:00:01.2345Z"), Ok(1_234));
        assert_eq!(at("1970-01-01T02:00:00+01:00"), Ok(3_600_000));
    }

    #[test]
    fn a_time_without_an_offset_is_refused_with_the_way_out() {
        for naive in ["2026-10-07T14:00:00", "2026-10-07 14:00", "2026-10-07"] {
            let refused = at(naive).unwrap_err();
            assert_eq!(refused, WhenError::NotATime(naive.into()));
            assert!(refused.to_string().contains("with an offset, like"), "{refused}");
        }
    }

    #[test]
    fn nonsense_and_the_future_are_refused() {
        for bad in ["yesterday", "-", "-x", "14:00", "2026-13-01T00:00:00Z", "now"] {
            assert_eq!(at(bad), Err(WhenError::NotATime(bad.into())), "{bad}");
        }
        let zoned = "2026-10-07T14:00:00+01:00[Europe/London]";
        assert_eq!(at(zoned), Err(WhenError::NotATime(zoned.into())));
        let later = "2040-01-01T00:00:00Z";
        assert_eq!(at(later), Err(WhenError::Future(later.into())));
    }
}
