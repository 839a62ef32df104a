//! What strangers cost the bucket, and whom they keep out.
#![allow(clippy::disallowed_methods, clippy::unwrap_used, clippy::panic)]

mod common;

use std::time::Instant;

use carlos_bucket::Kind;
use carlos_protocol::{
    ids::Account,
    tokens::{Token, TokenKind},
};
use common::{EMAIL, Rig, member, rig};

const APPS: &str = "/api/cli/apps";

/// What a console that was quiet looks up at once, and then in each second.
const BURST: u64 = 40;
const A_SECOND: u64 = 20;

/// Far more than the burst and what a slow machine's seconds add to it.
const FLOOD: usize = 1_000;

fn made_up(rig: &Rig, account: &str) -> Token {
    let account = Account::parse(account).unwrap();
    Token::generate(&mut rig.bucket.context().entropy(), TokenKind::Person, &account)
}

fn store_requests(rig: &Rig) -> u64 {
    Kind::ALL.iter().map(|kind| rig.bucket.counters().of(*kind).sent).sum()
}

/// How many of the flood's tokens were looked up, and how many requests of the store that took.
/// Whoever was not looked up was told when to come back.
async fn flood(rig: &Rig, account: impl Fn(usize) -> String) -> (u64, u64) {
    let (before, mut looked_up) = (store_requests(rig), 0);
    for n in 0..FLOOD {
        let answer = rig.get_as(APPS, Some(made_up(rig, &account(n)).reveal())).await;
        match answer.status.as_u16() {
            401 => looked_up += 1,
            429 => assert_eq!(answer.headers["retry-after"], "1"),
            status => panic!("{status}"),
        }
    }
    (looked_up, store_requests(rig) - before)
}

#[tokio::test]
async fn made_up_accounts_cost_a_bounded_number_of_requests_and_keep_no_member_out() {
    let rig = rig().await;
    assert_eq!(rig.get(APPS).await.status, 200);
    let began = Instant::now();
    let (looked_up, requests) = flood(&rig, |n| format!("nobody-{n}")).await;
    let allowed = BURST + A_SECOND * (began.elapsed().as_secs() + 1);
    assert!((BURST..=allowed).contains(&looked_up), "{looked_up} of {allowed}");
    // A listing and a read each, and nothing for those that were turned away.
    assert_eq!(requests, 2 * looked_up);
    assert_eq!(rig.get(APPS).await.status, 200);
    let fresh = made_up(&rig, "acme");
    rig.account("acme", 2, vec![member(EMAIL, &[(&rig.token, None), (&fresh, None)])]).await;
    assert_eq!(rig.get_as(APPS, Some(fresh.reveal())).await.status, 200);
}

#[tokio::test]
async fn made_up_tokens_of_a_real_account_cost_a_bounded_number_and_keep_no_member_out() {
    let rig = rig().await;
    assert_eq!(rig.get(APPS).await.status, 200);
    let began = Instant::now();
    let (looked_up, requests) = flood(&rig, |_| "acme".to_owned()).await;
    let allowed = BURST + A_SECOND * (began.elapsed().as_secs() + 1);
    assert!((BURST..=allowed).contains(&looked_up), "{looked_up} of {allowed}");
    // The head's successor each.
    assert_eq!(requests, looked_up);
    assert_eq!(rig.get(APPS).await.status, 200);
}

#[tokio::test]
async fn a_token_taken_away_is_a_stranger_s() {
    let rig = rig().await;
    assert_eq!(rig.get(APPS).await.status, 200);
    rig.account("acme", 2, vec![member(EMAIL, &[])]).await;
    let mut answers = Vec::new();
    for _ in 0..FLOOD {
        answers.push(rig.get(APPS).await.status.as_u16());
    }
    assert_eq!((answers[0], answers.last()), (401, Some(&429)));
}
