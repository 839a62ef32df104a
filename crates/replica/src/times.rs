//! Times of files that a copy of the replica has reset.
//!
//! A store's listing says when an object was written there. After a move to another bucket or
//! region that is the time of the move, for every file at once, and no earlier moment could be
//! asked for although its files are all there. Each file's header knows better. So for a time
//! target, a file whose listing time is later than its header's by more than
//! [`RESET_AFTER_MS`] counts from its header's time.
//!
//! Few headers are read. A file that the listing already shows to be older than the target needs
//! no look, and of the others only the oldest of each level is looked at: a copy reaches old files
//! first, so where that one is not reset, none is. Where it is, times rise with transactions
//! within a level, and halving finds the last file from before the target. What one level says
//! about transactions tells the next where to look.
//!
//! Where the writer sets the files' times itself, as in a directory, both times are the same and
//! nothing changes; a directory that was copied without its times is understood too.

use std::collections::BTreeMap;

use carlos_ltx::{HEADER_LEN, Header, Txid};
use futures::future::try_join_all;

use crate::plan::Target;
use crate::{LEVELS, Listing, ReadError, ReplicaFile, ReplicaReader, SNAPSHOT_LEVEL};

/// A file counts as reset when it was listed so much later than its header says, in
/// milliseconds. Uploads follow a sync within seconds; retries of a store in trouble and clocks
/// that differ stay well within this, and a copy soon does not.
pub const RESET_AFTER_MS: i64 = 10 * 60 * 1000;

/// Listings before a file that vanishes while its header is looked at ends the search. Retention
/// removes files now and then; it does not do so at every look.
const TRIES: u32 = 3;

/// Lists the replica for a plan to `target`. For a time target, files that a copy has reset have
/// their header's time as far as the plan depends on it.
///
/// # Errors
/// As every listing, and those of the headers that are looked at.
pub async fn listing_for(reader: &dyn ReplicaReader, target: Target) -> Result<Listing, ReadError> {
    let Target::Before(time_ms) = target.truncated(reader.resolution()) else {
        return reader.listing().await;
    };
    let mut tries = 0;
    loop {
        tries += 1;
        match settled(reader, reader.listing().await?, time_ms).await {
            Err(ReadError::Changed { .. }) if tries < TRIES => {}
            settled => return settled,
        }
    }
}

async fn settled(
    reader: &dyn ReplicaReader,
    mut listing: Listing,
    time_ms: i64,
) -> Result<Listing, ReadError> {
    let levels = (0..LEVELS).map(|level| Search::new(reader, level, &listing, time_ms));
    let mut levels: Vec<_> = levels.filter(|search| !search.files.is_empty()).collect();
    try_join_all(levels.iter_mut().map(Search::look_at_first)).await?;
    // Most files below the snapshots: a snapshot's time can be long after its last transaction.
    let rank = |search: &&mut Search<'_>| (search.level < SNAPSHOT_LEVEL, search.files.len());
    let reset = levels.iter_mut().filter(|search| search.is_reset());
    if let Some(largest) = reset.max_by_key(rank) {
        largest.halve(1, largest.files.len()).await?;
        let edge = largest.edge();
        let level = largest.level;
        let others = levels.iter_mut().filter(|other| other.level != level && other.is_reset());
        try_join_all(others.map(|other| other.halve_near(edge))).await?;
    }
    let times: Vec<_> = levels.iter().flat_map(Search::times).collect();
    for (file, time_ms) in times {
        listing.set_time(file.0, file.1, time_ms);
    }
    Ok(listing)
}

/// One level's files that the listing shows to be no older than the target, by transaction.
struct Search<'a> {
    reader: &'a dyn ReplicaReader,
    level: u8,
    time_ms: i64,
    /// With their place in the level.
    files: Vec<(usize, &'a ReplicaFile)>,
    /// What was found out, by place in `files`.
    known: BTreeMap<usize, i64>,
    /// How many of `files` are from before the target after all.
    before: usize,
}

/// Where a level passes the target.
#[derive(Clone, Copy)]
struct Edge {
    /// The last transaction from before it.
    before: Txid,
    /// The first that is not; `None` when all are.
    after: Option<Txid>,
}

impl<'a> Search<'a> {
    fn new(reader: &'a dyn ReplicaReader, level: u8, listing: &'a Listing, time_ms: i64) -> Self {
        let files = listing.level(level).iter().enumerate();
        let files = files.filter(|(_, file)| file.created_ms >= time_ms).collect();
        Self { reader, level, time_ms, files, known: BTreeMap::new(), before: 0 }
    }

    async fn look_at_first(&mut self) -> Result<(), ReadError> {
        self.before = usize::from(self.is_before(0).await?);
        Ok(())
    }

    const fn is_reset(&self) -> bool {
        self.before > 0
    }

    /// Finds how many files are from before the target; at least `low`, at most `high`.
    async fn halve(&mut self, mut low: usize, mut high: usize) -> Result<(), ReadError> {
        while low < high {
            let middle = low + (high - low) / 2;
            if self.is_before(middle).await? { low = middle + 1 } else { high = middle }
        }
        self.before = low;
        Ok(())
    }

    /// As [`Search::halve`], beginning where another level passes the target. A compacted file
    /// has the time of its last transaction, so that is nearly always the place.
    async fn halve_near(&mut self, edge: Edge) -> Result<(), ReadError> {
        let guess = self.files.partition_point(|(_, file)| file.range.max() <= edge.before);
        let last = guess.saturating_sub(1);
        if !self.is_before(last).await? {
            return self.halve(1, last).await;
        }
        let next = self.files.get(last + 1).map(|(_, file)| file.range.max());
        let beyond = next.is_none_or(|next| edge.after.is_some_and(|after| next >= after));
        let high = if beyond { last + 1 } else { self.files.len() };
        self.halve(last + 1, high).await
    }

    fn edge(&self) -> Edge {
        let max = |place: usize| self.files.get(place).map(|(_, file)| file.range.max());
        let after = max(self.before).filter(|_| self.level < SNAPSHOT_LEVEL);
        Edge { before: max(self.before - 1).expect("the first file is from before"), after }
    }

    async fn is_before(&mut self, place: usize) -> Result<bool, ReadError> {
        if let Some(known) = self.known.get(&place) {
            return Ok(*known < self.time_ms);
        }
        let time_ms = true_time(self.reader, self.files[place].1).await?;
        self.known.insert(place, time_ms);
        Ok(time_ms < self.time_ms)
    }

    /// What is known now: the time of a file, or of a later one that is still before the target.
    fn times(&self) -> Vec<((u8, usize), i64)> {
        let after = self.known.range(self.before..).map(|(place, time)| (*place, *time));
        let before = (0..self.before).map(|place| {
            let at_most = self.known.range(place..self.before).next();
            (place, *at_most.expect("the last one before the target was looked at").1)
        });
        before.chain(after).map(|(place, time)| ((self.level, self.files[place].0), time)).collect()
    }
}

/// What a damaged header says is not looked at here; a restore names the damage.
async fn true_time(reader: &dyn ReplicaReader, file: &ReplicaFile) -> Result<i64, ReadError> {
    if file.size < HEADER_LEN as u64 {
        return Ok(file.created_ms);
    }
    let header = Header::decode(&reader.header(file).await?).ok();
    let header = header.filter(|header| header.range == file.range);
    let written = header.map_or(file.created_ms, |header| header.timestamp_ms);
    let is_reset = written.saturating_add(RESET_AFTER_MS) < file.created_ms;
    Ok(if is_reset { written } else { file.created_ms })
}
