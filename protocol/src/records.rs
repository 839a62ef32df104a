//! The records of the deployment bucket: hosts, accounts, boxes, and the entry that wraps each
//! revision of a chain. Every reader is bounded and strict: a box can write some of these.

use std::fmt;

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

use crate::Ulid;
use crate::canon::{self, CanonError};
use crate::ids::{
    Account, App, BoxName, Capability, Class, Digest, Host, Incarnation, Nonce, Principal, Region,
    ulid_text,
};
use crate::limits::{CAPABILITIES, CHAIN_ENTRY_BYTES, RECORD_BYTES};
use crate::redacted::Redacted;
use crate::time::Seconds;
use crate::tokens::{Token, TokenKind};

/// The version of every record here.
pub const VERSION: u32 = 1;

/// What a box publishes when it can serve forwarded reads (db-forward §7.1).
pub const DB_READ_CAPABILITY: &str = "db-read-1";

/// What it publishes beside that when it binds the values of [`crate::params`].
pub const DB_READ_PARAMS_CAPABILITY: &str = "db-read-params-1";

/// A record's bytes.
pub fn encode<T: Serialize>(record: &T) -> Vec<u8> {
    canon::encode(record)
}

/// Reads a record of at most [`RECORD_BYTES`].
///
/// # Errors
/// [`CanonError`].
pub fn decode<T: Serialize + DeserializeOwned>(bytes: &[u8]) -> Result<T, CanonError> {
    canon::decode(bytes, RECORD_BYTES)
}

/// An instance: who owns a host, where its data lives, and which life of the name this is.
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize)]
#[serde(deny_unknown_fields)]
pub struct HostRecord {
    /// [`VERSION`].
    pub v: u32,
    /// The instance's name.
    pub host: Host,
    /// The owner.
    pub account: Account,
    /// The owner's app.
    pub app: App,
    /// How the instance runs.
    pub class: Class,
    /// Where its data lives.
    pub region: Region,
    /// When this life of the name began; unique to it.
    #[serde(with = "ulid_text")]
    pub created_at: Ulid,
    /// Set while it moves to another region.
    #[serde(rename = "move")]
    pub moving: Option<Move>,
    /// It runs in a pool.
    pub pooled: bool,
    /// It runs on the owner's own fleet.
    pub fleet: bool,
    /// A tombstone: the instance is gone and its name is free.
    pub deleted: bool,
}

impl HostRecord {
    /// Which life of the name this is.
    pub fn incarnation(&self) -> Incarnation {
        Incarnation::of(&self.account, &self.app, &self.host, self.created_at)
    }
}

/// A move in progress.
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize)]
#[serde(deny_unknown_fields)]
pub struct Move {
    /// The region it moves to.
    pub to: Region,
    /// When the move began.
    pub since: Seconds,
}

/// Why an instance's data is not read this way, wherever it lives.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub enum ClassRefusal {
    /// Its class keeps no replica in a region's bucket.
    Class,
    /// It runs on the owner's own fleet.
    Fleet,
    /// It runs in a pool.
    Pooled,
}

/// The classes whose instances keep a replica.
const READABLE_CLASSES: [&str; 2] = ["sleeping", "standard"];

/// The class rail, shared by the console's gate and the box's checks (db-forward §8.2).
pub fn class_refusal(record: &HostRecord) -> Option<ClassRefusal> {
    if record.pooled {
        Some(ClassRefusal::Pooled)
    } else if record.fleet {
        Some(ClassRefusal::Fleet)
    } else if !READABLE_CLASSES.contains(&record.class.as_str()) {
        Some(ClassRefusal::Class)
    } else {
        None
    }
}

/// An account: its members and what their tokens hash to. The one authority on membership.
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize)]
#[serde(deny_unknown_fields)]
pub struct AccountRecord {
    /// [`VERSION`].
    pub v: u32,
    /// The account.
    pub account: Account,
    /// Its members.
    pub members: Vec<Member>,
}

impl AccountRecord {
    /// Finds the member whose valid token this is. The comparison takes the same time wherever the
    /// hashes differ.
    pub fn holder(&self, token: &Token, now_unix: u64) -> Option<(&Member, &TokenRecord)> {
        let hash = token.hash();
        let tokens = self
            .members
            .iter()
            .flat_map(|member| member.tokens.iter().map(move |token| (member, token)));
        tokens.into_iter().find(|(_, record)| {
            record.matches(&hash) && record.kind == token.kind() && record.is_valid(now_unix)
        })
    }

    /// Whether this e-mail address is a member.
    pub fn has_member(&self, email: &str) -> bool {
        self.members.iter().any(|member| member.email == email)
    }
}

/// A member of an account.
#[derive(Clone, Deserialize, Eq, PartialEq, Serialize)]
#[serde(deny_unknown_fields)]
pub struct Member {
    /// Who it is; also what the activity rows name.
    pub email: String,
    /// The member's tokens that name this account as their home.
    pub tokens: Vec<TokenRecord>,
    /// Accounts to look at when listing apps. A hint: their own records decide.
    pub also: Vec<Account>,
}

impl fmt::Debug for Member {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut member = f.debug_struct("Member");
        member.field("email", &Redacted(&self.email)).field("tokens", &self.tokens);
        member.field("also", &self.also).finish()
    }
}

/// What is kept of a token.
#[derive(Clone, Deserialize, Eq, PartialEq, Serialize)]
#[serde(deny_unknown_fields)]
pub struct TokenRecord {
    /// Person or service.
    pub kind: TokenKind,
    /// The hash of the token's text.
    pub sha256: Digest,
    /// When it ends; never, when absent.
    pub expires: Option<Seconds>,
}

impl fmt::Debug for TokenRecord {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TokenRecord")
            .field("kind", &self.kind)
            .field("sha256", &format_args!("{}...", self.sha256.prefix()))
            .field("expires", &self.expires)
            .finish()
    }
}

impl TokenRecord {
    /// Whether it has not expired.
    pub fn is_valid(&self, now_unix: u64) -> bool {
        self.expires.is_none_or(|expires| now_unix < expires.unix())
    }

    fn matches(&self, hash: &Digest) -> bool {
        use subtle::ConstantTimeEq as _;
        self.sha256.as_bytes().ct_eq(hash.as_bytes()).into()
    }
}

/// What a box can do: the content of its edges chain. Written when it changes.
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize)]
#[serde(deny_unknown_fields)]
pub struct Edges {
    /// [`VERSION`].
    pub v: u32,
    /// The box.
    #[serde(rename = "box")]
    pub box_name: BoxName,
    /// Its region.
    pub region: Region,
    /// What it can serve, sorted; at most [`CAPABILITIES`].
    pub capabilities: Vec<Capability>,
    /// It takes no new work.
    pub draining: bool,
}

/// A box's pulse: that it lives, and what its edges chain says at that moment.
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize)]
#[serde(deny_unknown_fields)]
pub struct Status {
    /// [`VERSION`].
    pub v: u32,
    /// The box.
    #[serde(rename = "box")]
    pub box_name: BoxName,
    /// When it was written, unix seconds.
    pub time_unix: u64,
    /// The revision of the edges chain it speaks of; 0 before the first.
    pub edges_rev: u64,
    /// Its region.
    pub region: Region,
    /// As in [`Edges`].
    pub capabilities: Vec<Capability>,
    /// As in [`Edges`].
    pub draining: bool,
}

impl Edges {
    /// Whether the box says it can serve `capability` and takes new work.
    pub fn serves(&self, capability: &str) -> bool {
        serves(&self.capabilities, self.draining, capability)
    }

    /// Reads an edges file.
    ///
    /// # Errors
    /// [`CanonError`].
    pub fn from_bytes(bytes: &[u8]) -> Result<Self, CanonError> {
        let edges: Self = decode(bytes)?;
        few(&edges.capabilities)?;
        Ok(edges)
    }
}

impl Status {
    /// Whether the box says it can serve `capability` and takes new work.
    pub fn serves(&self, capability: &str) -> bool {
        serves(&self.capabilities, self.draining, capability)
    }

    /// Reads a status.
    ///
    /// # Errors
    /// [`CanonError`].
    pub fn from_bytes(bytes: &[u8]) -> Result<Self, CanonError> {
        let status: Self = decode(bytes)?;
        few(&status.capabilities)?;
        Ok(status)
    }
}

fn serves(capabilities: &[Capability], draining: bool, wanted: &str) -> bool {
    !draining && capabilities.iter().any(|capability| capability.as_str() == wanted)
}

fn few(capabilities: &[Capability]) -> Result<(), CanonError> {
    let (size, max) = (capabilities.len(), CAPABILITIES);
    if size <= max { Ok(()) } else { Err(CanonError::TooLarge { size, max }) }
}

/// An index entry under `apps/`. Its name is all it says; it has no authority.
#[derive(Clone, Copy, Debug, Default, Deserialize, Eq, PartialEq, Serialize)]
#[serde(deny_unknown_fields)]
pub struct AppIndex {}

/// One revision of a chain: the content, and who wrote it. The nonce makes equal contents of two
/// writers differ, so that the loser of a race never takes the winner's object for its own.
#[derive(Debug, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct ChainEntry {
    /// Who wrote it.
    pub by: Principal,
    /// This writing.
    pub nonce: Nonce,
    /// The record, as canonical JSON.
    content: Box<RawValue>,
}

impl ChainEntry {
    /// Wraps a record's bytes.
    ///
    /// # Errors
    /// [`CanonError`] when the content is not JSON, is larger than [`RECORD_BYTES`], or has
    /// whitespace around it.
    pub fn wrap(by: Principal, nonce: Nonce, content: &[u8]) -> Result<Self, CanonError> {
        let content = canon::decode(content, RECORD_BYTES)?;
        Ok(Self { by, nonce, content })
    }

    /// The record's bytes.
    pub fn content(&self) -> &[u8] {
        self.content.get().as_bytes()
    }

    /// The object's bytes.
    pub fn to_bytes(&self) -> Vec<u8> {
        canon::encode(self)
    }

    /// Reads an object's bytes.
    ///
    /// # Errors
    /// [`CanonError`].
    pub fn from_bytes(bytes: &[u8]) -> Result<Self, CanonError> {
        canon::decode(bytes, CHAIN_ENTRY_BYTES)
    }
}

/// What the activity log keeps of an action. Never the statement (db-forward §9.3).
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize)]
#[serde(deny_unknown_fields)]
pub struct Activity {
    /// [`VERSION`].
    pub v: u32,
    /// What was done, for example `db-read`.
    pub kind: String,
    /// When.
    pub at: Seconds,
    /// By whom, as an e-mail address.
    pub by: String,
    /// Whose.
    pub account: Account,
    /// Whose app.
    pub app: App,
    /// On which instance.
    pub host: Host,
    /// The sentence of the table in [`crate::copy`].
    pub detail: String,
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::Counter;

    fn record() -> HostRecord {
        HostRecord {
            v: VERSION,
            host: Host::parse("shop.example.com").expect("host"),
            account: Account::parse("acme").expect("label"),
            app: App::parse("shop").expect("label"),
            class: Class::parse("sleeping").expect("label"),
            region: Region::parse("uk").expect("label"),
            created_at: Ulid::from_parts(1_792_659_600_000, 1),
            moving: None,
            pooled: false,
            fleet: false,
            deleted: false,
        }
    }

    #[test]
    fn records_round_trip() {
        let moving = Move { to: Region::parse("ie").expect("label"), since: Seconds::new(5) };
        for record in [record(), HostRecord { moving: Some(moving), ..record() }] {
            assert_eq!(decode(&encode(&record)), Ok(record));
        }
        assert_eq!(encode(&AppIndex {}), b"{}");
    }

    #[test]
    fn a_ulid_has_one_spelling() {
        let text = String::from_utf8(encode(&record())).expect("JSON");
        let ulid = record().created_at.to_string();
        let lower = text.replace(&ulid, &ulid.to_lowercase());
        let error = decode::<HostRecord>(lower.as_bytes());
        assert!(matches!(error, Err(CanonError::Malformed { .. })));
    }

    #[test]
    fn the_class_rail_names_the_first_reason() {
        let class = |class: &str| Class::parse(class).expect("label");
        let standard = HostRecord { class: class("standard"), ..record() };
        let always_on = HostRecord { class: class("always-on"), ..record() };
        let pooled = HostRecord { pooled: true, ..always_on.clone() };
        let fleet = HostRecord { fleet: true, ..record() };
        assert_eq!(class_refusal(&record()), None);
        assert_eq!(class_refusal(&standard), None);
        assert_eq!(class_refusal(&always_on), Some(ClassRefusal::Class));
        assert_eq!(class_refusal(&pooled), Some(ClassRefusal::Pooled));
        assert_eq!(class_refusal(&fleet), Some(ClassRefusal::Fleet));
    }

    #[test]
    fn a_token_is_found_by_hash_kind_and_time() {
        let account = Account::parse("acme").expect("label");
        let token = Token::generate(&mut Counter(1), TokenKind::Person, &account);
        let other = Token::generate(&mut Counter(2), TokenKind::Person, &account);
        let kept = |kind, expires: Option<u64>| AccountRecord {
            v: VERSION,
            account: account.clone(),
            members: vec![Member {
                email: "a@example.com".into(),
                tokens: vec![TokenRecord {
                    kind,
                    sha256: token.hash(),
                    expires: expires.map(Seconds::new),
                }],
                also: Vec::new(),
            }],
        };
        let record = kept(TokenKind::Person, Some(100));
        assert!(record.holder(&token, 99).is_some());
        assert!(record.holder(&token, 100).is_none());
        assert!(record.holder(&other, 99).is_none());
        assert!(kept(TokenKind::Service, None).holder(&token, 0).is_none());
        assert!(kept(TokenKind::Person, None).holder(&token, u64::MAX).is_some());
    }

    #[test]
    fn a_chain_entry_keeps_its_content_to_the_byte() {
        let by = Principal::parse("console").expect("label");
        let content = encode(&record());
        let nonce = Nonce::mint(&mut Counter(1));
        let entry = ChainEntry::wrap(by.clone(), nonce, &content).expect("a record");
        let read = ChainEntry::from_bytes(&entry.to_bytes()).expect("own bytes");
        assert_eq!(read.content(), content);
        assert!(ChainEntry::wrap(by.clone(), nonce, b" {}").is_err());
        assert!(ChainEntry::wrap(by, nonce, b"no").is_err());
    }

    #[test]
    fn a_box_serves_what_it_says_unless_it_drains() {
        let edges = |draining, count: usize| Edges {
            v: VERSION,
            box_name: BoxName::parse("uk-1").expect("label"),
            region: Region::parse("uk").expect("label"),
            capabilities: vec![Capability::parse(DB_READ_CAPABILITY).expect("label"); count],
            draining,
        };
        assert!(edges(false, 1).serves(DB_READ_CAPABILITY));
        assert!(!edges(true, 1).serves(DB_READ_CAPABILITY));
        assert!(!edges(false, 0).serves(DB_READ_CAPABILITY));
        assert!(Edges::from_bytes(&encode(&edges(false, CAPABILITIES))).is_ok());
        assert!(Edges::from_bytes(&encode(&edges(false, CAPABILITIES + 1))).is_err());
    }

    #[test]
    fn debug_holds_no_address_and_no_token_hash() {
        let sha256 = Digest::of(b"token");
        let token = TokenRecord { kind: TokenKind::Person, sha256, expires: None };
        let member = Member { email: "ann@example.com".into(), tokens: vec![token], also: vec![] };
        let account = Account::parse("acme").expect("label");
        let record = AccountRecord { v: VERSION, account, members: vec![member] };
        let member = &record.members[0];
        for text in [
            format!("{record:?} {record:#?}"),
            format!("{member:?}"),
            format!("{:?}", member.tokens[0]),
        ] {
            assert!(text.contains(&sha256.prefix()), "{text}");
            assert!(!text.contains("ann"), "{text}");
            assert!(!text.contains(&sha256.to_string()), "{text}");
            assert!(!text.contains(&format!("{:?}", sha256.as_bytes())), "{text}");
        }
    }
}
