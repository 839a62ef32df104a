//! The one activity row of a forwarded read (db-forward §9.3).

use bytes::Bytes;
use carlos_bucket::Context;
use carlos_protocol::{
    copy,
    ids::Digest,
    keys::Key,
    records::{self, Activity, VERSION},
    time::{At, Day, Seconds},
};

use crate::reads::Order;

/// What was done, as the row names it.
const KIND: &str = "db-read";

/// The row's key and bytes. Of the statement it keeps the length and the beginning of a digest: a
/// member who kept the text can match it, and the log holds none of a query's literals.
pub(crate) fn row(context: &Context, order: &Order) -> (Key, Bytes) {
    let now = context.now_unix();
    let record = &order.record;
    let row = Activity {
        v: VERSION,
        kind: KIND.to_owned(),
        at: Seconds::new(now),
        by: order.by.clone(),
        account: record.account.clone(),
        app: record.app.clone(),
        host: record.host.clone(),
        detail: detail(order),
    };
    let key = Key::Activity(record.account.clone(), Day::of(now), context.ulid());
    (key, records::encode(&row).into())
}

fn detail(order: &Order) -> String {
    let (region, length) = (&order.record.region, order.sql.len());
    let digest = Digest::of(order.sql.as_bytes()).prefix();
    let message = match &order.at {
        At::Newest => copy::audit_query(region, length, &digest),
        at => copy::audit_query_at(region, at, length, &digest),
    };
    message.to_string()
}
