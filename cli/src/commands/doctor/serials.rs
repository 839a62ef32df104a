//! Whether reads are announced and taken: serials against the queue they announce.

use carlos_bucket::{News, Purpose, ReadError, Serial};
use carlos_protocol::Ulid;
use carlos_protocol::ids::Region;
use carlos_protocol::keys::{Key, QueueEntry, queue_prefix};
use carlos_protocol::limits::{CLOCK_SKEW, CONSOLE_PICKUP_WAIT};
use carlos_protocol::time::Hour;

use super::Patient;
use super::finding::Finding;

/// Reads whose `picked` is looked for.
const LOOKED_AT: usize = 8;

/// What one region's serial and queue say.
pub(super) async fn of_region(patient: &Patient, region: &Region, bump: bool) -> Vec<Finding> {
    let looked = match bump {
        true => moves(patient, region).await,
        false => Ok(None),
    };
    let found = match looked {
        Ok(None) => stale(patient, region).await,
        other => other,
    };
    let picked = not_picked(patient, region).await;
    match (found, picked) {
        (Ok(found), Ok(picked)) => found.into_iter().chain(picked).collect(),
        (Err(error), _) | (_, Err(error)) => {
            vec![Finding::new("serial-could-not-tell", region, format!("{error}."))]
        }
    }
}

/// Moves the serial as a console does, and looks as a box does. It costs each box of the region one
/// listing.
async fn moves(patient: &Patient, region: &Region) -> Result<Option<Finding>, ReadError> {
    let key = Key::Serial(region.clone()).to_path();
    let mut reader = Serial::new(patient.bucket.clone(), key.clone());
    reader.poll().await?;
    if let Err(cause) = Serial::new(patient.bucket.clone(), key).bump().await {
        let said = format!("it could not be moved: {cause}.");
        return Ok(Some(Finding::new("serial-stuck", region, said)));
    }
    Ok(match reader.poll().await? {
        News::Moved => None,
        News::Same => {
            let said = "it was moved, and a read right after shows the old one.";
            Some(Finding::new("serial-stuck", region, said))
        }
    })
}

/// A serial that is older than the newest read of its region: the console could not move it, and
/// boxes find reads by their sweep only.
async fn stale(patient: &Patient, region: &Region) -> Result<Option<Finding>, ReadError> {
    let Some(newest) = queue(patient, region).await?.pop() else { return Ok(None) };
    let key = Key::Serial(region.clone()).to_path();
    let body = patient.bucket.get(&key, Purpose::Claim).await?;
    let text = body.as_ref().map(|body| String::from_utf8_lossy(body).into_owned());
    let moved = match text.as_deref().map(|text| text.trim().parse::<Ulid>()) {
        None => None,
        Some(Ok(ulid)) => Some(ulid.timestamp_ms() / 1_000),
        Some(Err(_)) => {
            let said = "its body is not one that a console writes.";
            return Ok(Some(Finding::new("serial-stale", region, said)));
        }
    };
    // The two times may be of two consoles, whose clocks differ.
    let behind = newest.issued_at.unix().saturating_sub(moved.unwrap_or(0));
    let said = match moved {
        _ if behind <= CLOCK_SKEW.as_secs() => return Ok(None),
        None => "reads were asked for, and it was never moved.".to_owned(),
        Some(_) => format!("it last moved {behind} s before the newest read was asked for."),
    };
    Ok(Some(Finding::new("serial-stale", region, said)))
}

/// Reads that no box took in time.
async fn not_picked(patient: &Patient, region: &Region) -> Result<Option<Finding>, ReadError> {
    let now = patient.bucket.context().now_unix();
    let over = |entry: &QueueEntry| {
        now.saturating_sub(entry.issued_at.unix()) > CONSOLE_PICKUP_WAIT.as_secs()
    };
    let entries = queue(patient, region).await?;
    let (mut looked_at, mut missed) = (0, 0);
    for entry in entries.into_iter().rev().filter(over).take(LOOKED_AT) {
        let picked = Key::Picked(entry.id).to_path();
        looked_at += 1;
        missed += usize::from(patient.bucket.get(&picked, Purpose::Claim).await?.is_none());
    }
    Ok((missed > 0).then(|| {
        let said = format!("no box took {missed} of the last {looked_at} reads of the hour.");
        Finding::new("reads-not-picked", region, said)
    }))
}

/// The queue entries of this hour and the one before, oldest first.
async fn queue(patient: &Patient, region: &Region) -> Result<Vec<QueueEntry>, ReadError> {
    let hour = Hour::of(patient.bucket.context().now_unix());
    let mut entries = Vec::new();
    for hour in [hour.previous(), hour] {
        let prefix = queue_prefix(region, hour);
        for listed in patient.bucket.list(&prefix, None, Purpose::Sweep).await? {
            if let Ok(Key::Queue(entry)) = Key::parse(&listed.key) {
                entries.push(entry);
            }
        }
    }
    Ok(entries)
}
