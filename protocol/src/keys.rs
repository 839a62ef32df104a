//! The names of objects in the deployment bucket: one type that builds them and one parser.
//!
//! Everything that expires lives under a top-level prefix of its own (`db-reads/`, `probe/`,
//! `activity/`), because a store's lifecycle rule matches a plain prefix (db-forward §5.3, J4).

use std::fmt;

use thiserror::Error;

use crate::Ulid;
use crate::ids::{
    Account, App, BoxName, Host, Principal, ReadId, Region, Revision, fixed_decimal, ulid_text,
};
use crate::limits::MAX_CHUNKS;
use crate::time::{Day, Hour, MAX_UNIX_SECONDS, Seconds};

/// The prefix whose objects are created once and never replaced or deleted by the protocol.
pub const DB_READS: &str = "db-reads/";

/// The prefix of every box's edges chain.
pub const EDGES: &str = "control/edges/";

/// The prefix of every box's status.
pub const STATUS: &str = "control/status/";

/// The prefix of every host's chain.
pub const HOSTS: &str = "hosts/";

/// The prefix of the index of apps.
pub const APPS: &str = "apps/";

/// The prefix of every account's chain.
pub const ACCOUNTS: &str = "accounts/";

/// The prefix of the audit rows.
pub const ACTIVITY: &str = "activity/";

/// The prefix of the bucket probe's objects.
pub const PROBE: &str = "probe/";

/// The name is not one of this protocol's keys.
#[derive(Clone, Copy, Debug, Eq, Error, PartialEq)]
#[error("not a key of this protocol")]
pub struct KeyError;

/// A queue entry: an empty object whose name points at a request (db-forward §5.4).
#[derive(Clone, Debug, Eq, Hash, PartialEq)]
pub struct QueueEntry {
    /// The region asked.
    pub region: Region,
    /// The request's `issued_at`; the key's hour is this instant's.
    pub issued_at: Seconds,
    /// The read.
    pub id: ReadId,
}

/// One object of the deployment bucket.
#[derive(Clone, Debug, Eq, Hash, PartialEq)]
pub enum Key {
    /// `accounts/<account>/<rev>`: members and token hashes.
    Account(Account, Revision),
    /// `activity/<account>/<YYYYMMDD>/<ulid>`: an audit row.
    Activity(Account, Day, Ulid),
    /// `apps/<account>/<app>/<host>`: an index entry without authority.
    App(Account, App, Host),
    /// `db-reads/<id>/cancel`: the request has ended without a result.
    Cancel(ReadId),
    /// `db-reads/<id>/out/<seq>`: one sealed chunk, from 1 to [`MAX_CHUNKS`].
    Chunk(ReadId, u64),
    /// `control/edges/<box>/<rev>`: what a box can do.
    Edges(BoxName, Revision),
    /// `hosts/<host>/<rev>`: an instance's record.
    Host(Host, Revision),
    /// `db-reads/<id>/picked`: who owns the read.
    Picked(ReadId),
    /// `probe/<principal>/<ulid>`: a bucket probe's object.
    Probe(Principal, Ulid),
    /// `db-reads/queue/<region>/<YYYYMMDDHH>/<unix>-<id>`.
    Queue(QueueEntry),
    /// `db-reads/<id>/request.json`: the envelope.
    Request(ReadId),
    /// `db-reads/<id>/result.json`: how the read ended.
    Result(ReadId),
    /// `control/serial/<region>`: moves when the region has new work.
    Serial(Region),
    /// `control/status/<box>`: a box's pulse.
    Status(BoxName),
}

impl Key {
    /// The object's name.
    pub fn to_path(&self) -> String {
        self.to_string()
    }

    /// Reads a name; every key has exactly one.
    ///
    /// # Errors
    /// [`KeyError`] for a name this protocol does not write.
    pub fn parse(path: &str) -> Result<Self, KeyError> {
        parse(path).ok_or(KeyError)
    }
}

/// Where a region's queue entries of one hour live; ends in `/`.
pub fn queue_prefix(region: &Region, hour: Hour) -> String {
    format!("{DB_READS}queue/{region}/{hour}/")
}

/// Where a listing of a queue starts, so that its cost does not grow with history: entries with an
/// older `issued_at` sort before it.
pub fn queue_start(region: &Region, hour: Hour, oldest: Seconds) -> String {
    format!("{}{}", queue_prefix(region, hour), oldest.unix())
}

/// Where a read's chunks live; ends in `/`.
pub fn out_prefix(id: &ReadId) -> String {
    format!("{DB_READS}{id}/out/")
}

/// The name of a host's chain, without its revision.
pub fn host_chain(host: &Host) -> String {
    format!("{HOSTS}{host}")
}

/// The name of an account's chain, without its revision.
pub fn account_chain(account: &Account) -> String {
    format!("{ACCOUNTS}{account}")
}

/// The name of a box's edges chain, without its revision.
pub fn edges_chain(box_name: &BoxName) -> String {
    format!("{EDGES}{box_name}")
}

/// Where an account's apps are indexed; ends in `/`.
pub fn account_apps_prefix(account: &Account) -> String {
    format!("{APPS}{account}/")
}

/// Where an app's hosts are indexed; ends in `/`.
pub fn app_prefix(account: &Account, app: &App) -> String {
    format!("{APPS}{account}/{app}/")
}

/// Where an account's audit rows of one day live; ends in `/`.
pub fn activity_prefix(account: &Account, day: Day) -> String {
    format!("{ACTIVITY}{account}/{day}/")
}

/// Where one principal's probe objects live; ends in `/`.
pub fn probe_prefix(principal: &Principal) -> String {
    format!("{PROBE}{principal}/")
}

impl fmt::Display for QueueEntry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let unix = self.issued_at.unix();
        write!(f, "{}{unix}-{}", queue_prefix(&self.region, Hour::of(unix)), self.id)
    }
}

impl fmt::Display for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Account(account, revision) => write!(f, "{ACCOUNTS}{account}/{revision}"),
            Self::Activity(account, day, ulid) => write!(f, "{ACTIVITY}{account}/{day}/{ulid}"),
            Self::App(account, app, host) => write!(f, "{APPS}{account}/{app}/{host}"),
            Self::Cancel(id) => write!(f, "{DB_READS}{id}/cancel"),
            Self::Chunk(id, seq) => write!(f, "{DB_READS}{id}/out/{seq:08}"),
            Self::Edges(name, revision) => write!(f, "{EDGES}{name}/{revision}"),
            Self::Host(host, revision) => write!(f, "{HOSTS}{host}/{revision}"),
            Self::Picked(id) => write!(f, "{DB_READS}{id}/picked"),
            Self::Probe(principal, ulid) => write!(f, "{PROBE}{principal}/{ulid}"),
            Self::Queue(entry) => entry.fmt(f),
            Self::Request(id) => write!(f, "{DB_READS}{id}/request.json"),
            Self::Result(id) => write!(f, "{DB_READS}{id}/result.json"),
            Self::Serial(region) => write!(f, "control/serial/{region}"),
            Self::Status(name) => write!(f, "{STATUS}{name}"),
        }
    }
}

fn parse(path: &str) -> Option<Key> {
    let (top, rest) = path.split_once('/')?;
    let parts: Vec<&str> = rest.splitn(5, '/').collect();
    match (top, parts.as_slice()) {
        ("db-reads", ["queue", region, hour, entry]) => parse_entry(region, hour, entry),
        ("db-reads", [id, rest @ ..]) => parse_read(ReadId::parse(id).ok()?, rest),
        ("control", [kind, name, rest @ ..]) => parse_control(kind, name, rest),
        ("hosts", [host, revision]) => Some(Key::Host(host.parse().ok()?, revision.parse().ok()?)),
        ("accounts", [account, revision]) => {
            Some(Key::Account(account.parse().ok()?, revision.parse().ok()?))
        }
        ("apps", [account, app, host]) => {
            Some(Key::App(account.parse().ok()?, app.parse().ok()?, host.parse().ok()?))
        }
        ("activity", [account, day, ulid]) => Some(Key::Activity(
            account.parse().ok()?,
            day.parse().ok()?,
            ulid_text::parse(ulid).ok()?,
        )),
        ("probe", [principal, ulid]) => {
            Some(Key::Probe(principal.parse().ok()?, ulid_text::parse(ulid).ok()?))
        }
        _ => None,
    }
}

fn parse_read(id: ReadId, rest: &[&str]) -> Option<Key> {
    match rest {
        ["request.json"] => Some(Key::Request(id)),
        ["picked"] => Some(Key::Picked(id)),
        ["result.json"] => Some(Key::Result(id)),
        ["cancel"] => Some(Key::Cancel(id)),
        ["out", seq] => {
            let seq = fixed_decimal(seq, 8)?;
            (1..=MAX_CHUNKS).contains(&seq).then_some(Key::Chunk(id, seq))
        }
        _ => None,
    }
}

fn parse_control(kind: &str, name: &str, rest: &[&str]) -> Option<Key> {
    match (kind, rest) {
        ("serial", []) => Some(Key::Serial(name.parse().ok()?)),
        ("status", []) => Some(Key::Status(name.parse().ok()?)),
        ("edges", [revision]) => Some(Key::Edges(name.parse().ok()?, revision.parse().ok()?)),
        _ => None,
    }
}

/// The hour must be the entry's own: an entry filed under another hour would be seen at another
/// time than its request says (db-forward §5.9).
fn parse_entry(region: &str, hour: &str, entry: &str) -> Option<Key> {
    let (unix, id) = entry.split_once('-')?;
    let issued_at = plain_decimal(unix).filter(|&unix| unix <= MAX_UNIX_SECONDS)?;
    if Hour::of(issued_at) != hour.parse().ok()? {
        return None;
    }
    let (region, id) = (region.parse().ok()?, ReadId::parse(id).ok()?);
    Some(Key::Queue(QueueEntry { region, issued_at: Seconds::new(issued_at), id }))
}

/// Reads a decimal without sign and without leading zeros.
fn plain_decimal(text: &str) -> Option<u64> {
    let number = fixed_decimal(text, text.len())?;
    (text == "0" || !text.starts_with('0')).then_some(number)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn arbitrary_key() -> impl Strategy<Value = Key> {
        let label = "[a-z0-9]([a-z0-9-]{0,10}[a-z0-9])?";
        let names = (label, label, "[a-z0-9]{1,9}\\.[a-z0-9]{1,9}");
        let numbers = (0..=MAX_UNIX_SECONDS, 1..=MAX_CHUNKS, 1..=u64::MAX, any::<u128>());
        (0..14_u8, names, numbers, any::<[u8; 16]>()).prop_map(|(kind, names, numbers, id)| {
            key_of(kind, (&names.0, &names.1, &names.2), numbers, ReadId::from_bytes(id))
        })
    }

    fn key_of(
        kind: u8,
        (a, b, host): (&str, &str, &str),
        (unix, seq, revision, ulid): (u64, u64, u64, u128),
        id: ReadId,
    ) -> Key {
        let revision = Revision::new(revision).expect("from 1");
        let ulid = Ulid::from(ulid);
        let account: Account = a.parse().expect("label");
        let name: BoxName = a.parse().expect("label");
        let region: Region = a.parse().expect("label");
        let host: Host = host.parse().expect("host");
        match kind {
            0 => Key::Account(account, revision),
            1 => Key::Activity(account, Day::of(unix), ulid),
            2 => Key::App(account, b.parse().expect("label"), host),
            3 => Key::Cancel(id),
            4 => Key::Chunk(id, seq),
            5 => Key::Edges(name, revision),
            6 => Key::Host(host, revision),
            7 => Key::Picked(id),
            8 => Key::Probe(b.parse().expect("label"), ulid),
            9 => Key::Queue(QueueEntry { region, issued_at: Seconds::new(unix), id }),
            10 => Key::Request(id),
            11 => Key::Result(id),
            12 => Key::Serial(region),
            _ => Key::Status(name),
        }
    }

    #[test]
    fn names_outside_the_protocol_are_refused() {
        let id = ReadId::from_bytes([0; 16]);
        let bad = [
            String::new(),
            "db-reads/".into(),
            format!("db-reads/{id}"),
            format!("db-reads/{id}/out/00000000"),
            format!("db-reads/{id}/out/1"),
            format!("db-reads/{id}/out/00004097"),
            format!("db-reads/{id}/out/00000001/x"),
            format!("db-reads/queue/uk/2026102208/1792659600-{id}"),
            format!("db-reads/queue/uk/2026102209/01792659600-{id}"),
            format!("db-reads/queue/UK/2026102209/1792659600-{id}"),
            format!("/db-reads/{id}/picked"),
            "hosts/a.b/1".into(),
            "hosts/../00000000000000000001".into(),
            "control/serial/uk/".into(),
            "probe/console/01arz3ndektsv4rrffq69g5fav".into(),
        ];
        for path in bad {
            assert_eq!(Key::parse(&path), Err(KeyError), "{path}");
        }
    }

    #[test]
    fn a_queue_listing_starts_inside_its_window() {
        let region: Region = "uk".parse().expect("label");
        let now = 1_792_659_600;
        let entry = |unix| {
            let issued_at = Seconds::new(unix);
            let id = ReadId::from_bytes([0; 16]);
            QueueEntry { region: region.clone(), issued_at, id }.to_string()
        };
        let start = queue_start(&region, Hour::of(now), Seconds::new(now + 10));
        assert!(entry(now + 9) < start);
        assert!(entry(now + 10) > start);
        assert!(entry(now + 10).starts_with(&queue_prefix(&region, Hour::of(now))));
    }

    proptest! {
        #[test]
        fn every_key_has_one_name(key in arbitrary_key()) {
            prop_assert_eq!(Key::parse(&key.to_path()), Ok(key));
        }

        #[test]
        fn any_name_read_is_written_back_the_same(key in arbitrary_key(), at: usize, byte: u8) {
            let mut path = key.to_path().into_bytes();
            let at = at % path.len();
            path[at] = byte;
            if let Ok(path) = String::from_utf8(path)
                && let Ok(key) = Key::parse(&path)
            {
                prop_assert_eq!(key.to_path(), path);
            }
        }
    }
}
