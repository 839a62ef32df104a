//! Times as text: RFC 3339 in UTC, and the hours and days that key names carry.
//!
//! A hand-written calendar of forty lines instead of a date library, because exactly one text must
//! exist for each instant: a payload is only accepted when it encodes back to itself.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};
use thiserror::Error;

/// The last second that four year digits can name, 9999-12-31T23:59:59Z.
pub const MAX_UNIX_SECONDS: u64 = 253_402_300_799;

/// The last millisecond that four year digits can name.
pub const MAX_UNIX_MILLIS: u64 = MAX_UNIX_SECONDS * 1000 + 999;

const DAY: u64 = 86_400;

/// The text is not a time in the form asked for.
#[derive(Clone, Copy, Debug, Eq, Error, PartialEq)]
#[error("not a time in the form expected here")]
pub struct TimeError;

/// Whole seconds since 1970, written `2026-10-22T09:00:00Z`.
#[derive(
    Clone, Copy, Debug, Default, Deserialize, Eq, Hash, Ord, PartialEq, PartialOrd, Serialize,
)]
#[serde(try_from = "String", into = "String")]
pub struct Seconds(u64);

impl Seconds {
    /// The instant `unix` seconds after 1970, clamped to the year 9999.
    pub fn new(unix: u64) -> Self {
        Self(unix.min(MAX_UNIX_SECONDS))
    }

    /// Seconds since 1970.
    pub fn unix(self) -> u64 {
        self.0
    }
}

impl fmt::Display for Seconds {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write_date_time(f, self.0)?;
        f.write_str("Z")
    }
}

/// Milliseconds since 1970, written with exactly three digits: `2026-10-22T09:00:00.250Z`.
#[derive(
    Clone, Copy, Debug, Default, Deserialize, Eq, Hash, Ord, PartialEq, PartialOrd, Serialize,
)]
#[serde(try_from = "String", into = "String")]
pub struct Millis(u64);

impl Millis {
    /// The instant `unix_ms` milliseconds after 1970, clamped to the year 9999.
    pub fn new(unix_ms: u64) -> Self {
        Self(unix_ms.min(MAX_UNIX_MILLIS))
    }

    /// Milliseconds since 1970.
    pub fn unix_ms(self) -> u64 {
        self.0
    }

    /// The second this instant lies in.
    pub fn seconds(self) -> Seconds {
        Seconds(self.0 / 1000)
    }
}

impl fmt::Display for Millis {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write_date_time(f, self.0 / 1000)?;
        write!(f, ".{:03}Z", self.0 % 1000)
    }
}

/// Which copy a read wants: the newest, or the one as of an instant (db-forward §5.5, `at`).
///
/// Written as an empty string, or as a time with whole seconds when the milliseconds are zero and
/// with exactly three digits otherwise.
#[derive(Clone, Copy, Debug, Default, Deserialize, Eq, Hash, PartialEq, Serialize)]
#[serde(try_from = "String", into = "String")]
pub enum At {
    /// The newest copy.
    #[default]
    Newest,
    /// The copy as of this instant.
    Time(Millis),
}

impl fmt::Display for At {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Newest => Ok(()),
            Self::Time(time) if time.0.is_multiple_of(1000) => time.seconds().fmt(f),
            Self::Time(time) => time.fmt(f),
        }
    }
}

/// A UTC hour as ten digits, `2026102209`: the queue's partition (db-forward §5.4).
#[derive(Clone, Copy, Debug, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub struct Hour(u64);

impl Hour {
    /// The hour that holds `unix` seconds.
    pub fn of(unix: u64) -> Self {
        Self(Seconds::new(unix).0 / 3600)
    }

    /// The hour before; the first hour of 1970 has none and answers itself.
    pub fn previous(self) -> Self {
        Self(self.0.saturating_sub(1))
    }
}

impl fmt::Display for Hour {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (year, month, day) = civil(self.0 / 24);
        write!(f, "{year:04}{month:02}{day:02}{:02}", self.0 % 24)
    }
}

/// A UTC day as eight digits, `20261022`: the activity rows' partition.
#[derive(Clone, Copy, Debug, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub struct Day(u64);

impl Day {
    /// The day that holds `unix` seconds.
    pub fn of(unix: u64) -> Self {
        Self(Seconds::new(unix).0 / DAY)
    }
}

impl fmt::Display for Day {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (year, month, day) = civil(self.0);
        write!(f, "{year:04}{month:02}{day:02}")
    }
}

/// Reads what a person may type: RFC 3339 with `Z` or a numeric offset and up to nine fraction
/// digits, of which those beyond milliseconds are cut off.
///
/// # Errors
/// A time without an offset, out of range, or malformed. A local time is refused because the box
/// that answers lives in another zone (db-forward §5.5).
pub fn parse_rfc3339(text: &str) -> Result<Millis, TimeError> {
    let (date_time, rest) = text.split_at_checked(19).ok_or(TimeError)?;
    let seconds = read_date_time(date_time.as_bytes())?;
    let (millis, zone) = read_fraction(rest)?;
    let offset = read_offset(zone)?;
    let local = i64::try_from(seconds).map_err(|_| TimeError)?;
    let utc = u64::try_from(local - offset).map_err(|_| TimeError)?;
    if utc > MAX_UNIX_SECONDS {
        return Err(TimeError);
    }
    Ok(Millis(utc * 1000 + millis))
}

/// Reads `.123` and the like; gives the milliseconds and what follows.
fn read_fraction(text: &str) -> Result<(u64, &str), TimeError> {
    let Some(digits_on) = text.strip_prefix('.') else { return Ok((0, text)) };
    let end = digits_on.find(|c: char| !c.is_ascii_digit()).unwrap_or(digits_on.len());
    let (digits, rest) = digits_on.split_at(end);
    if digits.is_empty() || digits.len() > 9 {
        return Err(TimeError);
    }
    let millis = format!("{digits:0<3}")[..3].parse().map_err(|_| TimeError)?;
    Ok((millis, rest))
}

/// Reads `Z` or `+hh:mm`; gives seconds east of UTC.
fn read_offset(zone: &str) -> Result<i64, TimeError> {
    let &[sign, h1, h0, b':', m1, m0] = zone.as_bytes() else {
        return if zone == "Z" { Ok(0) } else { Err(TimeError) };
    };
    let (hours, minutes) = (digits(&[h1, h0])?, digits(&[m1, m0])?);
    if hours > 23 || minutes > 59 {
        return Err(TimeError);
    }
    let seconds = i64::try_from(hours * 3600 + minutes * 60).map_err(|_| TimeError)?;
    match sign {
        b'+' => Ok(seconds),
        b'-' => Ok(-seconds),
        _ => Err(TimeError),
    }
}

impl FromStr for Seconds {
    type Err = TimeError;

    fn from_str(text: &str) -> Result<Self, TimeError> {
        let date_time = text.strip_suffix('Z').ok_or(TimeError)?;
        read_date_time(date_time.as_bytes()).map(Self)
    }
}

impl FromStr for Millis {
    type Err = TimeError;

    fn from_str(text: &str) -> Result<Self, TimeError> {
        let (date_time, fraction) = text.split_at_checked(19).ok_or(TimeError)?;
        let &[b'.', a, b, c, b'Z'] = fraction.as_bytes() else { return Err(TimeError) };
        let seconds = read_date_time(date_time.as_bytes())?;
        Ok(Self(seconds * 1000 + digits(&[a, b, c])?))
    }
}

impl FromStr for At {
    type Err = TimeError;

    fn from_str(text: &str) -> Result<Self, TimeError> {
        if text.is_empty() {
            return Ok(Self::Newest);
        }
        if let Ok(Seconds(seconds)) = text.parse() {
            return Ok(Self::Time(Millis(seconds * 1000)));
        }
        let time: Millis = text.parse()?;
        // One text for each instant: `.000` would be a second spelling of a whole second.
        if time.0.is_multiple_of(1000) { Err(TimeError) } else { Ok(Self::Time(time)) }
    }
}

impl FromStr for Hour {
    type Err = TimeError;

    fn from_str(text: &str) -> Result<Self, TimeError> {
        let (date, hour) = text.split_at_checked(8).ok_or(TimeError)?;
        let day: Day = date.parse()?;
        let &[tens, ones] = hour.as_bytes() else { return Err(TimeError) };
        match digits(&[tens, ones])? {
            hour @ 0..=23 => Ok(Self(day.0 * 24 + hour)),
            _ => Err(TimeError),
        }
    }
}

impl FromStr for Day {
    type Err = TimeError;

    fn from_str(text: &str) -> Result<Self, TimeError> {
        let bytes: &[u8; 8] = text.as_bytes().try_into().map_err(|_| TimeError)?;
        days(digits(&bytes[..4])?, digits(&bytes[4..6])?, digits(&bytes[6..])?).map(Self)
    }
}

macro_rules! text_conversions {
    ($($name:ty),*) => {$(
        impl From<$name> for String {
            fn from(time: $name) -> Self {
                time.to_string()
            }
        }

        impl TryFrom<String> for $name {
            type Error = TimeError;

            fn try_from(text: String) -> Result<Self, TimeError> {
                text.parse()
            }
        }
    )*};
}

text_conversions!(Seconds, Millis, At);

fn write_date_time(f: &mut fmt::Formatter<'_>, unix: u64) -> fmt::Result {
    let (year, month, day) = civil(unix / DAY);
    let second = unix % DAY;
    let (hour, minute) = (second / 3600, second / 60 % 60);
    write!(f, "{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{:02}", second % 60)
}

/// Reads exactly `YYYY-MM-DDTHH:MM:SS`. A leap second has no unix number and is refused.
fn read_date_time(text: &[u8]) -> Result<u64, TimeError> {
    let text: &[u8; 19] = text.try_into().map_err(|_| TimeError)?;
    let marks = [(4, b'-'), (7, b'-'), (10, b'T'), (13, b':'), (16, b':')];
    if marks.iter().any(|&(at, mark)| text[at] != mark) {
        return Err(TimeError);
    }
    let day = days(digits(&text[..4])?, digits(&text[5..7])?, digits(&text[8..10])?)?;
    let (hour, minute) = (digits(&text[11..13])?, digits(&text[14..16])?);
    let second = digits(&text[17..])?;
    if hour > 23 || minute > 59 || second > 59 {
        return Err(TimeError);
    }
    Ok(day * DAY + hour * 3600 + minute * 60 + second)
}

/// Reads at most four digits, which is the most that any part of a time has.
fn digits(text: &[u8]) -> Result<u64, TimeError> {
    text.iter().try_fold(0, |number, &digit| match digit {
        b'0'..=b'9' => Ok(number * 10 + u64::from(digit - b'0')),
        _ => Err(TimeError),
    })
}

/// Days from 1970-01-01 to a date, refusing dates that do not exist.
///
/// Years are counted from March, so that the leap day is the last of its year and needs no case.
fn days(year: u64, month: u64, day: u64) -> Result<u64, TimeError> {
    if year < 1970 || !(1..=12).contains(&month) || !(1..=days_in(year, month)).contains(&day) {
        return Err(TimeError);
    }
    let (y, m) = if month > 2 { (year, month - 3) } else { (year - 1, month + 9) };
    Ok(y * 365 + y / 4 - y / 100 + y / 400 + (m * 153 + 2) / 5 + day - 1 - DAYS_TO_1970)
}

/// Days from 0000-03-01 to 1970-01-01.
const DAYS_TO_1970: u64 = 719_468;

fn days_in(year: u64, month: u64) -> u64 {
    let leap = year.is_multiple_of(4) && !year.is_multiple_of(100) || year.is_multiple_of(400);
    match month {
        2 => 28 + u64::from(leap),
        4 | 6 | 9 | 11 => 30,
        _ => 31,
    }
}

/// The date of a day number: the inverse of [`days`].
fn civil(day: u64) -> (u64, u64, u64) {
    let day = day + DAYS_TO_1970;
    let (era, in_era) = (day / 146_097, day % 146_097);
    let year = (in_era - in_era / 1460 + in_era / 36_524 - in_era / 146_096) / 365;
    let in_year = in_era - (year * 365 + year / 4 - year / 100);
    let m = (in_year * 5 + 2) / 153;
    let date = in_year - (m * 153 + 2) / 5 + 1;
    let month = if m < 10 { m + 3 } else { m - 9 };
    (era * 400 + year + u64::from(month <= 2), month, date)
}

/// An optional time as JSON: absent is the empty string.
pub mod optional {
    use serde::de::Error as _;
    use serde::{Deserialize, Deserializer, Serializer};

    use super::Millis;

    /// Writes `""` for `None`.
    ///
    /// # Errors
    /// Those of the serializer.
    pub fn serialize<S: Serializer>(time: &Option<Millis>, to: S) -> Result<S::Ok, S::Error> {
        match time {
            Some(time) => to.collect_str(time),
            None => to.serialize_str(""),
        }
    }

    /// Reads `""` as `None`.
    ///
    /// # Errors
    /// Text that is neither empty nor a time with milliseconds.
    pub fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<Option<Millis>, D::Error> {
        let text = String::deserialize(from)?;
        if text.is_empty() {
            return Ok(None);
        }
        text.parse().map(Some).map_err(D::Error::custom)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn known_instants() {
        let cases = [
            (0, "1970-01-01T00:00:00Z"),
            (951_782_400, "2000-02-29T00:00:00Z"),
            (1_792_659_600, "2026-10-22T09:00:00Z"),
            (4_107_542_400, "2100-03-01T00:00:00Z"),
            (MAX_UNIX_SECONDS, "9999-12-31T23:59:59Z"),
        ];
        for (unix, text) in cases {
            assert_eq!(Seconds::new(unix).to_string(), text);
            assert_eq!(text.parse(), Ok(Seconds::new(unix)));
        }
    }

    #[test]
    fn impossible_and_second_spellings_are_refused() {
        let bad = [
            "2026-02-29T00:00:00Z",
            "2100-02-29T00:00:00Z",
            "2026-13-01T00:00:00Z",
            "2026-00-01T00:00:00Z",
            "2026-10-22T24:00:00Z",
            "2026-10-22T09:00:60Z",
            "2026-10-22 09:00:00Z",
            "2026-10-22T09:00:00z",
            "2026-10-22T09:00:00+00:00",
            "1969-12-31T23:59:59Z",
            "+026-10-22T09:00:00Z",
            "",
        ];
        for text in bad {
            assert_eq!(text.parse::<Seconds>(), Err(TimeError), "{text}");
        }
        assert_eq!("2026-10-22T09:00:00.000Z".parse::<At>(), Err(TimeError));
        assert_eq!("2026-10-22T09:00:00.5Z".parse::<At>(), Err(TimeError));
    }

    #[test]
    fn people_may_use_offsets_and_fractions_but_not_naive_times() {
        let nine = Millis::new(1_792_659_600_000);
        assert_eq!(parse_rfc3339("2026-10-22T11:00:00+02:00"), Ok(nine));
        assert_eq!(parse_rfc3339("2026-10-22T03:30:00-05:30"), Ok(nine));
        let half = Ok(Millis::new(1_792_659_600_500));
        assert_eq!(parse_rfc3339("2026-10-22T09:00:00.5Z"), half);
        assert_eq!(parse_rfc3339("2026-10-22T09:00:00.500999999Z"), half);
        for bad in ["2026-10-22T09:00:00", "2026-10-22T09:00:00.Z", "2026-10-22T09:00:00+24:00"] {
            assert_eq!(parse_rfc3339(bad), Err(TimeError), "{bad}");
        }
        assert_eq!(parse_rfc3339("1970-01-01T00:00:00+01:00"), Err(TimeError));
        assert_eq!(parse_rfc3339("2026-10-22T09:00:0é"), Err(TimeError));
    }

    #[test]
    fn hours_and_days_name_their_partition() {
        let unix = 1_792_659_600;
        assert_eq!(Hour::of(unix).to_string(), "2026102209");
        assert_eq!(Hour::of(unix - 1), Hour::of(unix).previous());
        assert_eq!(Day::of(unix).to_string(), "20261022");
        for bad in ["2026102224", "202610229", "20261022099", "2101000123034050607080912100"] {
            assert_eq!(bad.parse::<Hour>(), Err(TimeError), "{bad}");
        }
        assert_eq!("20260229".parse::<Day>(), Err(TimeError));
    }

    proptest! {
        #[test]
        fn every_instant_has_one_text(ms in 0..=MAX_UNIX_MILLIS) {
            let (millis, seconds) = (Millis::new(ms), Seconds::new(ms / 1000));
            prop_assert_eq!(millis.to_string().parse(), Ok(millis));
            prop_assert_eq!(seconds.to_string().parse(), Ok(seconds));
            prop_assert_eq!(At::Time(millis).to_string().parse(), Ok(At::Time(millis)));
            prop_assert_eq!(parse_rfc3339(&millis.to_string()), Ok(millis));
            prop_assert_eq!(Hour::of(ms / 1000).to_string().parse(), Ok(Hour::of(ms / 1000)));
            prop_assert_eq!(Day::of(ms / 1000).to_string().parse(), Ok(Day::of(ms / 1000)));
        }

        #[test]
        fn any_text_read_is_written_back_the_same(text in "\\PC{0,30}") {
            if let Ok(time) = text.parse::<At>() {
                prop_assert_eq!(time.to_string(), text);
            }
        }
    }
}
