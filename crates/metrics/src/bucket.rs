//! The requests of a process to its buckets, by the kind a store bills and by the answer.

use carlos_bucket::Counters;

use crate::page::{Kind, Page};

const REQUESTS: &str = "carlos_bucket_requests_total";

/// Writes the requests of each bucket. The first of a pair is the bucket's name in the label:
/// `deployment` or `data`.
pub fn write_bucket(page: &mut Page, buckets: &[(&str, &Counters)]) {
    page.family(REQUESTS, Kind::Counter, "Requests to a store, by kind and answer.");
    for (bucket, counters) in buckets {
        for (kind, answer, count) in counters.answers() {
            let labels = [("bucket", *bucket), ("kind", kind.name()), ("answer", answer.name())];
            page.sample(REQUESTS, &labels, count);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use carlos_bucket::fault::{Fault, FaultStore, Rule};
    use carlos_bucket::layer::Op;
    use carlos_bucket::{Bucket, Context, Purpose, Serial};

    use super::*;

    fn value(bucket: &Bucket, kind: &str, answer: &str) -> u64 {
        let mut page = Page::default();
        write_bucket(&mut page, &[("deployment", bucket.counters())]);
        let labels = format!("{{bucket=\"deployment\",kind=\"{kind}\",answer=\"{answer}\"}}");
        let sample = |line: &str| line.strip_prefix(&format!("{REQUESTS}{labels} "))?.parse().ok();
        page.text().lines().find_map(sample).expect("every pair has a sample")
    }

    /// What a store bills and how it answered, each apart from the others.
    #[tokio::test(start_paused = true)]
    async fn each_kind_and_answer_is_counted_apart() {
        let ctx = Context::simulated(1, 0);
        let store = carlos_bucket::open_store("memory://").expect("a memory store");
        let (store, faults) = FaultStore::wrap(store, &ctx);
        let bucket = Bucket::new(Arc::clone(&store), ctx);
        let create = || bucket.create("probe/a/1", "x".into(), Purpose::Claim);
        assert!(create().await.is_ours() && create().await.is_ours());
        let _absent = bucket.get("probe/a/2", Purpose::Claim).await;
        let mut serial = Serial::new(bucket.clone(), "control/serial/uk");
        serial.bump().await.expect("a healthy store");
        for _ in 0..3 {
            serial.poll().await.expect("a healthy store");
        }
        faults.add(Rule::new(Op::List, Fault::Refused(503)));
        faults.add(Rule::new(Op::List, Fault::Refused(500)));
        faults.add(Rule::new(Op::List, Fault::Refused(403)));
        let _refused = bucket.list("probe/a", None, Purpose::Claim).await;
        let _listed = bucket.list("probe/a", None, Purpose::Claim).await;
        faults.add(Rule::new(Op::Get, Fault::Swallowed));
        let _found = bucket.get("probe/a/1", Purpose::Claim).await;
        let wanted = [
            ("create", "ok", 1),
            ("create", "exists", 1),
            // The read-back of the second create, the serial's first look, the last read.
            ("get", "ok", 3),
            ("get", "absent", 1),
            ("get", "not_modified", 2),
            ("get", "timed_out", 1),
            ("replace", "ok", 1),
            ("list", "throttled", 1),
            ("list", "failed", 1),
            ("list", "refused", 1),
            ("list", "ok", 1),
        ];
        for (kind, answer, count) in wanted {
            assert_eq!(value(&bucket, kind, answer), count, "{kind} {answer}");
        }
        let all: u64 = bucket.counters().answers().map(|(.., count)| count).sum();
        assert_eq!(all, wanted.iter().map(|(.., count)| count).sum::<u64>());
    }
}
