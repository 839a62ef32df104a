//! No console starts on a bucket that breaks its promises.
#![allow(clippy::disallowed_methods, clippy::unwrap_used, clippy::panic)]

use std::{sync::Arc, time::Duration};

use carlos_bucket::{
    Bucket, Context,
    fault::{Fault, FaultStore, Rule},
    layer::Op,
    probe::probe,
    toys::{Liar, Lie},
};
use carlos_console::check_bucket;
use object_store::memory::InMemory;
use tokio_util::sync::CancellationToken;

fn liar(lie: Lie) -> Bucket {
    let context = Context::simulated(1, 0);
    let store = Liar::wrap(Arc::new(InMemory::new()), &context, lie);
    Bucket::new(store, context)
}

fn faulty(rule: Rule) -> Bucket {
    let context = Context::simulated(1, 0);
    let (store, faults) = FaultStore::wrap(Arc::new(InMemory::new()), &context);
    faults.add(rule);
    Bucket::new(store, context)
}

/// The code that the console refuses the bucket with.
async fn code(bucket: &Bucket) -> Option<&'static str> {
    check_bucket(bucket, &CancellationToken::new()).await.err().map(|refused| refused.code)
}

#[tokio::test(start_paused = true)]
async fn each_lie_is_refused_with_the_code_of_agents_and_doctor() {
    for (lie, expected) in [
        (Lie::IgnoresHeader, "bucket-ignores-condition"),
        (Lie::ChecksThenActs(Duration::from_millis(5)), "bucket-many-winners"),
        (Lie::RefusesFreeNames, "bucket-refuses-free-names"),
        (Lie::SometimesReplaces(0.5), "bucket-many-winners"),
    ] {
        assert_eq!(code(&liar(lie)).await, Some(expected), "{lie:?}");
        assert_eq!(probe(&liar(lie), "box-uk").await.code(), expected, "{lie:?}");
    }
    let hidden = |op| faulty(Rule::new(op, Fault::Hidden).always());
    assert_eq!(code(&hidden(Op::Get)).await, Some("bucket-read-after-write"));
    assert_eq!(code(&hidden(Op::List)).await, Some("bucket-list-after-write"));
}

#[tokio::test(start_paused = true)]
async fn the_refusal_names_its_code_and_the_promise() {
    let shutdown = CancellationToken::new();
    let refused = check_bucket(&liar(Lie::RefusesFreeNames), &shutdown).await.unwrap_err();
    let expected = "the deployment bucket cannot be used (bucket-refuses-free-names): \
                    a name that is free was refused as taken";
    assert_eq!(refused.to_string(), expected);
}

#[tokio::test(start_paused = true)]
async fn a_bucket_that_keeps_its_promises_or_does_not_tell_is_served_from() {
    let honest = Bucket::new(Arc::new(InMemory::new()), Context::simulated(1, 0));
    assert_eq!(code(&honest).await, None);
    for fault in [Fault::Refused(403), Fault::Swallowed] {
        let silent = faulty(Rule::new(Op::Create, fault).always());
        assert_eq!(code(&silent).await, None, "{fault:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_shutdown_ends_the_probe_of_a_silent_bucket() {
    let silent = faulty(Rule::new(Op::Create, Fault::Swallowed).always());
    let shutdown = CancellationToken::new();
    shutdown.cancel();
    assert_eq!(check_bucket(&silent, &shutdown).await, Ok(()));
    assert_eq!(silent.counters().of(carlos_bucket::Kind::Create).sent, 0);
}
