//! Every body the protocol writes: any value reads back as itself, from its bytes alone.
#![allow(clippy::disallowed_methods, clippy::disallowed_macros)]

use std::fmt::Debug;
use std::str::FromStr;

use carlos_protocol::api::ReadBody;
use carlos_protocol::canon::{self, CanonError};
use carlos_protocol::envelope::{KeyFile, RootKeys, verify};
use carlos_protocol::ids::{
    Account, App, BoxName, Capability, Digest, Host, Incarnation, Nonce, ReadId, Region, Txid,
};
use carlos_protocol::params::{Param, ParamName, ParamValue, Params, Real};
use carlos_protocol::picked::Picked;
use carlos_protocol::records::{
    self, AccountRecord, Activity, ChainEntry, Edges, HostRecord, Member, Move, Status, TokenRecord,
};
use carlos_protocol::request::{NewRequest, ReadRequest};
use carlos_protocol::result::{Code, ReadResult, State};
use carlos_protocol::seal::{ReplyKey, ReplyPublic};
use carlos_protocol::summary::{Sha256Text, Summary};
use carlos_protocol::time::{At, MAX_UNIX_MILLIS, Millis, Seconds};
use carlos_protocol::tokens::{Token, TokenKind};
use carlos_protocol::{Entropy, Ulid};
use proptest::prelude::*;

/// Draws the bytes of one number again and again.
struct Repeat(u64);

impl Entropy for Repeat {
    fn fill(&mut self, out: &mut [u8]) {
        let bytes = self.0.to_be_bytes();
        out.iter_mut().zip(bytes.iter().cycle()).for_each(|(to, from)| *to = *from);
    }
}

fn label<T: FromStr<Err: Debug> + Debug>() -> impl Strategy<Value = T> {
    "[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?".prop_map(|text| text.parse().expect("a label"))
}

fn host() -> impl Strategy<Value = Host> {
    "[a-z0-9]{1,20}(\\.[a-z0-9]{1,20}){1,4}".prop_map(|text| text.parse().expect("a host"))
}

fn millis() -> impl Strategy<Value = Millis> {
    (0..=MAX_UNIX_MILLIS).prop_map(Millis::new)
}

fn seconds() -> impl Strategy<Value = Seconds> {
    millis().prop_map(Millis::seconds)
}

fn at() -> impl Strategy<Value = At> {
    prop_oneof![Just(At::Newest), millis().prop_map(At::Time)]
}

fn reply_key() -> impl Strategy<Value = ReplyPublic> {
    // Below the group's order whatever the number, because its repetition is.
    (1..=u64::MAX / 2).prop_map(|seed| ReplyKey::generate(&mut Repeat(seed)).public())
}

fn read_id() -> impl Strategy<Value = ReadId> {
    any::<[u8; 16]>().prop_map(ReadId::from_bytes)
}

fn nonce() -> impl Strategy<Value = Nonce> {
    any::<u64>().prop_map(|seed| Nonce::mint(&mut Repeat(seed)))
}

fn digest() -> impl Strategy<Value = Digest> {
    any::<[u8; 32]>().prop_map(Digest::from_bytes)
}

fn capabilities() -> impl Strategy<Value = Vec<Capability>> {
    prop::collection::vec(label(), 0..5)
}

fn param_value() -> impl Strategy<Value = ParamValue> {
    prop_oneof![
        Just(ParamValue::Null),
        any::<i64>().prop_map(ParamValue::Int),
        any::<f64>().prop_filter_map("finite", Real::new).prop_map(ParamValue::Real),
        any::<String>().prop_map(ParamValue::Text),
        any::<Vec<u8>>().prop_map(ParamValue::Blob),
    ]
}

fn params() -> impl Strategy<Value = Params> {
    let positional = prop::collection::vec(param_value().prop_map(Param::positional), 0..6);
    let named = prop::collection::btree_map("[:@$][A-Za-z0-9_]{1,63}", param_value(), 0..6);
    let named = named.prop_map(|named| {
        let named = named.into_iter();
        named
            .map(|(name, value)| Param::named(ParamName::parse(&name).expect("a name"), value))
            .collect()
    });
    prop_oneof![positional, named].prop_map(|params| Params::new(params).expect("within bounds"))
}

prop_compose! {
    fn request()(
        (id, account, app, host) in (read_id(), label::<Account>(), label::<App>(), host()),
        (region, op, sql, at) in (label(), "[a-z]{1,9}", any::<String>(), at()),
        params in params(),
        (reply_key, by) in (reply_key(), any::<String>()),
        (issued_at, ulid) in (seconds(), any::<u128>()),
    ) -> ReadRequest {
        let incarnation = Incarnation::of(&account, &app, &host, Ulid::from(ulid));
        NewRequest {
            id, account, app, host, incarnation, region, op, sql, params, at, reply_key, by,
            issued_at,
        }
        .into()
    }
}

prop_compose! {
    fn result()(
        (code, box_name, last_seq) in (1..13_usize, label::<BoxName>(), 0..4096_u64),
        (started, ended, sealed) in (seconds(), seconds(), any::<Vec<u8>>()),
    ) -> ReadResult {
        let code = Code::all().nth(code).expect("a known code");
        ReadResult { state: State::Failed, code, box_name, last_seq, started, ended, sealed }
    }
}

prop_compose! {
    fn summary()(
        txid in any::<u64>(),
        (time, oldest) in (prop::option::of(millis()), prop::option::of(millis())),
        (rows, bytes, restored_bytes, cap_bytes) in any::<(u64, u64, u64, u64)>(),
        (sha256, sql_error) in (prop::option::of(digest()), any::<String>()),
        coarser: bool,
    ) -> Summary {
        let (txid, sha256) = (Txid(txid), Sha256Text(sha256));
        Summary {
            txid, time, rows, bytes, sha256, oldest, restored_bytes, cap_bytes, sql_error, coarser,
        }
    }
}

prop_compose! {
    fn host_record()(
        (host, account, app, class) in (host(), label(), label(), label()),
        (region, to, since) in (label::<Region>(), label(), prop::option::of(seconds())),
        (ulid, pooled, fleet, deleted) in any::<(u128, bool, bool, bool)>(),
    ) -> HostRecord {
        let moving = since.map(|since| Move { to, since });
        let created_at = Ulid::from(ulid);
        HostRecord {
            v: 1, host, account, app, class, region, created_at, moving, pooled, fleet, deleted,
        }
    }
}

fn member() -> impl Strategy<Value = (String, Digest, Option<Seconds>)> {
    (any::<String>(), digest(), prop::option::of(seconds()))
}

prop_compose! {
    fn account()(
        account in label::<Account>(),
        members in prop::collection::vec(member(), 0..4),
        also in prop::collection::vec(label(), 0..3),
    ) -> AccountRecord {
        let token = |sha256, expires| TokenRecord { kind: TokenKind::Person, sha256, expires };
        let member = |(email, sha256, expires)| {
            Member { email, tokens: vec![token(sha256, expires)], also: also.clone() }
        };
        AccountRecord { v: 1, account, members: members.into_iter().map(member).collect() }
    }
}

/// The value's bytes read back as the value, cut or extended bytes do not read at all.
fn round_trip<T: serde::Serialize + serde::de::DeserializeOwned>(value: &T) -> T {
    let bytes = canon::encode(value);
    for cut in [0, bytes.len() / 2, bytes.len() - 1] {
        assert!(canon::decode::<T>(&bytes[..cut], usize::MAX).is_err());
    }
    let longer = [&bytes[..], b" "].concat();
    assert_eq!(canon::decode::<T>(&longer, usize::MAX).err(), Some(CanonError::NotCanonical));
    canon::decode(&bytes, bytes.len()).expect("its own bytes")
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn requests(request in request(), seed: u64) {
        let key = KeyFile::generate_root(&mut Repeat(seed));
        let roots: RootKeys = [key.public()].into_iter().collect();
        let envelope = key.sign(&request).expect("a root key").to_bytes();
        prop_assert_eq!(verify::<ReadRequest>(&roots, &envelope), Ok(request));
    }

    #[test]
    fn results_and_summaries(result in result(), summary in summary()) {
        prop_assert_eq!(ReadResult::from_bytes(&result.to_bytes()), Ok(result.clone()));
        prop_assert_eq!(round_trip(&result), result);
        prop_assert_eq!(round_trip(&summary), summary);
    }

    #[test]
    fn sealed_summaries(summary in summary(), id in read_id(), seed in 1..=u64::MAX / 2) {
        let key = ReplyKey::generate(&mut Repeat(seed));
        let sealed = summary.seal(&mut Repeat(seed), &key.public(), id);
        let result = ReadResult { sealed, ..done() };
        prop_assert_eq!(Summary::open(&key, id, &result), Ok(summary));
    }

    #[test]
    fn markers(box_name in label(), boot in label(), nonce in nonce(), deadline in seconds()) {
        let picked = Picked { box_name, boot, nonce, deadline };
        prop_assert_eq!(Picked::from_bytes(&picked.to_bytes()), Ok(picked.clone()));
        prop_assert_eq!(round_trip(&picked), picked);
    }

    #[test]
    fn host_and_account_records(host in host_record(), account in account()) {
        prop_assert_eq!(records::decode(&records::encode(&host)), Ok(host.clone()));
        prop_assert_eq!(round_trip(&host), host);
        prop_assert_eq!(round_trip(&account), account);
    }

    #[test]
    fn what_boxes_publish(
        (box_name, region) in (label::<BoxName>(), label::<Region>()),
        (capabilities, draining) in (capabilities(), any::<bool>()),
        (time_unix, edges_rev) in any::<(u64, u64)>(),
    ) {
        let status = Status {
            v: 1, box_name: box_name.clone(), time_unix, edges_rev, region: region.clone(),
            capabilities: capabilities.clone(), draining,
        };
        let edges = Edges { v: 1, box_name, region, capabilities, draining };
        prop_assert_eq!(Status::from_bytes(&records::encode(&status)), Ok(status));
        prop_assert_eq!(Edges::from_bytes(&records::encode(&edges)), Ok(edges));
    }

    #[test]
    fn chain_entries(by in label(), nonce in nonce(), record in host_record()) {
        let content = records::encode(&record);
        let entry = ChainEntry::wrap(by, nonce, &content).expect("a record");
        let read = ChainEntry::from_bytes(&entry.to_bytes()).expect("its own bytes");
        prop_assert_eq!(records::decode(read.content()), Ok(record));
        prop_assert_eq!((read.by, read.nonce), (entry.by, entry.nonce));
    }

    #[test]
    fn activity_rows(record in host_record(), kind: String, by: String, detail: String) {
        let HostRecord { account, app, host, .. } = record;
        let at = Seconds::new(1);
        let row = Activity { v: 1, kind, at, by, account, app, host, detail };
        prop_assert_eq!(round_trip(&row), row);
    }

    #[test]
    fn bodies_of_reads(
        op: String, sql: String, params in params(), at in at(), reply_key in reply_key(),
    ) {
        let body = ReadBody { op, sql, params: params.clone(), at, reply_key };
        prop_assert_eq!(round_trip(&params), params);
        prop_assert_eq!(ReadBody::from_bytes(&body.to_bytes()), Ok(body));
    }

    #[test]
    fn tokens(account in label::<Account>(), seed: u64) {
        for kind in [TokenKind::Person, TokenKind::Service] {
            let token = Token::generate(&mut Repeat(seed), kind, &account);
            let read = Token::parse(token.reveal()).expect("its own text");
            prop_assert_eq!((read.kind(), read.account()), (kind, &account));
            prop_assert_eq!(read.hash(), token.hash());
        }
    }

    #[test]
    fn any_string(text: String) {
        prop_assert_eq!(round_trip(&text), text);
    }
}

fn done() -> ReadResult {
    ReadResult {
        state: State::Done,
        code: Code::None,
        box_name: "uk-1".parse().expect("a label"),
        last_seq: 1,
        started: Seconds::new(0),
        ended: Seconds::new(0),
        sealed: Vec::new(),
    }
}
