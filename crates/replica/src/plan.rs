//! From a listing and a target to the files that lead there. Pure: no store, no clock.
//!
//! The algorithm is Litestream's own, so that both reach the same transaction from the same
//! listing. Two of its silences are answered here. A gap that a time target would run into is
//! refused rather than passed over, because rows from before the gap are not the rows of that
//! time. And when retention has left only a coarser file where the gap is, which a healthy
//! replica does for a while, the plan stands and says so ([`Plan::coarser`]).

use std::cmp::Reverse;
use std::fmt;

use carlos_ltx::{HEADER_LEN, Header, Txid, TxidRange};

use crate::{LEVELS, PlannedFile, SNAPSHOT_LEVEL};

/// The most files a plan may hold. A replica whose compaction stopped for hours at one file a
/// second still restores; a listing made up to exhaust memory or requests does not.
pub const MAX_PLAN_FILES: usize = 20_000;

/// A file as a listing shows it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ReplicaFile {
    /// 0 to 9.
    pub level: u8,
    /// The transactions its name states.
    pub range: TxidRange,
    /// Length in bytes.
    pub size: u64,
    /// When the listing says it was made, in milliseconds since the Unix epoch.
    pub created_ms: i64,
    /// The store's tag of this very content, when it has one.
    pub tag: Option<String>,
}

/// How exact a listing's times are (db-forward §3 fact 2).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Resolution {
    /// Times are compared as they are.
    Full,
    /// Listings have whole seconds, so a target is truncated to its second: a file made within
    /// that second is not in the plan, whatever the fraction asked for.
    Second,
}

/// Which state is wanted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Target {
    /// Files made strictly before this time, in milliseconds since the Unix epoch.
    Before(i64),
    /// Everything there is.
    Newest,
    /// Exactly up to a transaction.
    Txid(Txid),
}

/// All files of a replica, by level, each level in the order of its names.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Listing {
    levels: [Vec<ReplicaFile>; LEVELS as usize],
}

/// The files that lead to a state, in the order they are applied. Never empty.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Plan {
    files: Vec<ReplicaFile>,
    coarser: Option<Gap>,
}

/// Transactions between `have` and `next` are in no file that may be used.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Gap {
    /// The last transaction reached.
    pub have: Txid,
    /// The first transaction after the gap.
    pub next: Txid,
}

/// Why a listing does not lead to the target.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum PlanError {
    #[error("{file} has {size} bytes, less than a header")]
    FileTooShort { file: PlannedFile, size: u64 },
    #[error("transactions are missing: {0}")]
    Gap(Gap),
    #[error("the history does not begin: no file starts at 0x1, the first starts at {first}")]
    HistoryDoesNotBegin { first: Txid },
    /// `oldest_ms` is the earliest target that can be answered.
    #[error("history before {oldest_ms} ms since 1970 is gone")]
    HistoryGone { oldest_ms: i64 },
    #[error("nothing is replicated here")]
    NothingReplicated,
    #[error("the plan has {files} files, more than {MAX_PLAN_FILES}")]
    TooManyFiles { files: usize },
    #[error("no file ends at transaction {0}")]
    TxidGone(Txid),
}

/// Why a planned file's header does not fit the plan.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum HeaderRefusal {
    #[error("the name says transactions {name}, the header {header}")]
    Name { name: TxidRange, header: TxidRange },
    #[error("the header counts {pages} pages, more than {bytes} bytes of planned files can hold")]
    PageCount { pages: u32, bytes: u64 },
    #[error("the header says the database was deleted")]
    ZeroCommit,
}

/// Finds the files that lead from nothing to `target`.
///
/// # Errors
/// Says what is missing; see [`PlanError`].
pub fn plan(listing: &Listing, target: Target, resolution: Resolution) -> Result<Plan, PlanError> {
    let target = target.truncated(resolution);
    let mut planner = Planner::new(listing, target);
    planner.run();
    let Planner { files, cursors, reached, .. } = planner;
    if files.is_empty() {
        return Err(listing.why_nothing(target, resolution));
    }
    if let Some(file) = files.iter().find(|file| file.size < HEADER_LEN as u64) {
        return Err(PlanError::FileTooShort { file: file.planned(), size: file.size });
    }
    if files.len() > MAX_PLAN_FILES {
        return Err(PlanError::TooManyFiles { files: files.len() });
    }
    let coarser = match target {
        Target::Newest => no_gap(cursors.iter().filter_map(Cursor::unread), reached)?,
        Target::Before(_) => listing.gap_before(target, reached)?,
        Target::Txid(wanted) if wanted != reached => return Err(PlanError::TxidGone(wanted)),
        Target::Txid(_) => None,
    };
    Ok(Plan { files, coarser })
}

/// Keeps a read's promise when planned files vanish under it.
///
/// Retention deletes files whose content a compacted file now holds, so one new plan usually
/// ends the trouble (db-forward §8.2). It must not reach less than the first plan promised.
#[derive(Debug, Clone)]
pub struct Rereading {
    promised: Txid,
    target: Target,
    resolution: Resolution,
    used: bool,
}

/// Why there is no second plan.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ReplanError {
    #[error("the replica changed while it was being read, twice")]
    ChangedTwice,
    #[error(transparent)]
    Plan(#[from] PlanError),
}

impl Rereading {
    /// Remembers what `first` promised.
    #[must_use]
    pub fn new(first: &Plan, target: Target, resolution: Resolution) -> Self {
        Self { promised: first.txid(), target, resolution, used: false }
    }

    /// Plans once more, from a listing made after a planned file was gone or replaced.
    ///
    /// # Errors
    /// [`ReplanError::ChangedTwice`] the second time, and when the promised transaction is out
    /// of reach; otherwise why the new listing has no plan.
    pub fn replan(&mut self, listing: &Listing) -> Result<Plan, ReplanError> {
        if std::mem::replace(&mut self.used, true) {
            return Err(ReplanError::ChangedTwice);
        }
        let again = plan(listing, self.target, self.resolution)?;
        if again.txid() >= self.promised {
            return Ok(again);
        }
        // A compacted file can be younger than a time target although its last transaction is
        // the promised one.
        let promised = Target::Txid(self.promised);
        plan(listing, promised, self.resolution).map_err(|_| ReplanError::ChangedTwice)
    }
}

impl fmt::Display for Gap {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "files lead up to {}, the next begins at {}", self.have, self.next)
    }
}

impl ReplicaFile {
    /// The file as a plan names it.
    #[must_use]
    pub const fn planned(&self) -> PlannedFile {
        PlannedFile { level: self.level, range: self.range, size: self.size }
    }

    /// Which of several usable files is taken: the greatest.
    fn rank(&self) -> impl Ord + use<> {
        (self.range.max(), Reverse(self.range.min()), self.level, Reverse(self.created_ms))
    }

    /// Whether the file leads on from `reached`.
    fn continues(&self, reached: Txid) -> bool {
        self.range.min() <= reached.next() && self.range.max() > reached
    }
}

impl Target {
    pub(crate) const fn truncated(self, resolution: Resolution) -> Self {
        match (self, resolution) {
            (Self::Before(ms), Resolution::Second) => Self::Before(ms - ms.rem_euclid(1000)),
            _ => self,
        }
    }

    fn admits(self, file: &ReplicaFile) -> bool {
        match self {
            Self::Before(time_ms) => file.created_ms < time_ms,
            Self::Newest => true,
            Self::Txid(txid) => file.range.max() <= txid,
        }
    }

    fn is_reached(self, reached: Txid) -> bool {
        matches!(self, Self::Txid(txid) if reached >= txid)
    }
}

impl Resolution {
    /// The earliest target that admits a file made at `created_ms`.
    const fn after(self, created_ms: i64) -> i64 {
        match self {
            Self::Full => created_ms.saturating_add(1),
            Self::Second => created_ms.saturating_add(1000 - created_ms.rem_euclid(1000)),
        }
    }
}

impl Listing {
    /// Sorts files into their levels. Files of other levels are left out.
    #[must_use]
    pub fn new(files: impl IntoIterator<Item = ReplicaFile>) -> Self {
        let mut listing = Self::default();
        for file in files {
            if let Some(level) = listing.levels.get_mut(usize::from(file.level)) {
                level.push(file);
            }
        }
        for level in &mut listing.levels {
            level.sort_by_key(|file| file.range);
        }
        listing
    }

    /// The files of a level in the order of their names; none for a level that does not exist.
    #[must_use]
    pub fn level(&self, level: u8) -> &[ReplicaFile] {
        self.levels.get(usize::from(level)).map_or(&[], Vec::as_slice)
    }

    /// All files, level by level from 0.
    pub fn files(&self) -> impl Iterator<Item = &ReplicaFile> {
        self.levels.iter().flatten()
    }

    /// Whether there is no file at all.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.levels.iter().all(Vec::is_empty)
    }

    /// The earliest time target that some plan answers, over all levels, in milliseconds since
    /// the Unix epoch. `None` when nothing can be restored.
    #[must_use]
    pub fn oldest_ms(&self, resolution: Resolution) -> Option<i64> {
        let beginnings = self.files().filter(|file| file.range.is_snapshot());
        beginnings.map(|file| resolution.after(file.created_ms)).min()
    }

    /// Corrects the time of one file, by its place in its level.
    pub(crate) fn set_time(&mut self, level: u8, place: usize, created_ms: i64) {
        self.levels[usize::from(level)][place].created_ms = created_ms;
    }

    fn why_nothing(&self, target: Target, resolution: Resolution) -> PlanError {
        match (target, self.oldest_ms(resolution), self.first_txid()) {
            (_, _, None) => PlanError::NothingReplicated,
            (_, None, Some(first)) => PlanError::HistoryDoesNotBegin { first },
            (Target::Txid(txid), ..) => PlanError::TxidGone(txid),
            (_, Some(oldest_ms), _) => PlanError::HistoryGone { oldest_ms },
        }
    }

    fn first_txid(&self) -> Option<Txid> {
        self.files().map(|file| file.range.min()).min()
    }

    /// A time target that ends at `reached` although files from before that time lie beyond.
    /// A later file that leads on means their predecessors were compacted, not lost.
    fn gap_before(&self, target: Target, reached: Txid) -> Result<Option<Gap>, PlanError> {
        let in_time = self.files().filter(|file| target.admits(file));
        let beyond = in_time.filter(|file| file.range.min() > reached.next());
        let Some(next) = beyond.map(|file| file.range.min()).min() else {
            return Ok(None);
        };
        let gap = Gap { have: reached, next };
        if self.files().any(|file| file.continues(reached)) {
            return Ok(Some(gap));
        }
        Err(PlanError::Gap(gap))
    }
}

impl Plan {
    /// The files in the order they are applied.
    #[must_use]
    pub fn files(&self) -> &[ReplicaFile] {
        &self.files
    }

    /// The last file; its header knows the restored size and the time of the copy.
    #[must_use]
    pub fn last(&self) -> &ReplicaFile {
        self.files.last().expect("a plan is never empty")
    }

    /// The transaction that is reached.
    #[must_use]
    pub fn txid(&self) -> Txid {
        self.last().range.max()
    }

    /// When the last file was made, as the listing says, in milliseconds since the Unix epoch.
    #[must_use]
    pub fn time_ms(&self) -> i64 {
        self.last().created_ms
    }

    /// Bytes of all planned files.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        self.files.iter().fold(0, |sum, file| sum.saturating_add(file.size))
    }

    /// The files as the restore engine takes them.
    #[must_use]
    pub fn planned(&self) -> Vec<PlannedFile> {
        self.files.iter().map(ReplicaFile::planned).collect()
    }

    /// Set when a time target ends earlier than single files from before that time would allow,
    /// because their predecessors exist only in a compacted file from after it.
    #[must_use]
    pub const fn coarser(&self) -> Option<Gap> {
        self.coarser
    }

    /// Bytes of the restored database, from the last file's header.
    ///
    /// # Errors
    /// When the header is not the planned file's, says there is no database, or counts more pages
    /// than the planned files could hold: then it is the count that is wrong, and not the database
    /// that is large.
    pub fn restored_bytes(&self, header: &Header) -> Result<u64, HeaderRefusal> {
        let name = self.last().range;
        if header.range != name {
            return Err(HeaderRefusal::Name { name, header: header.range });
        }
        if header.commit == 0 {
            return Err(HeaderRefusal::ZeroCommit);
        }
        match self.bytes() {
            bytes if header.fits(bytes) => Ok(header.database_bytes()),
            bytes => Err(HeaderRefusal::PageCount { pages: header.commit, bytes }),
        }
    }
}

/// One pass over every level: each file is looked at once, when it comes into reach.
struct Planner<'a> {
    target: Target,
    snapshots: &'a [ReplicaFile],
    cursors: Vec<Cursor<'a>>,
    reached: Txid,
    files: Vec<ReplicaFile>,
}

/// A level's files in order, and the best of those already in reach.
struct Cursor<'a> {
    files: &'a [ReplicaFile],
    next: usize,
    best: Option<&'a ReplicaFile>,
}

impl<'a> Planner<'a> {
    fn new(listing: &'a Listing, target: Target) -> Self {
        let below = (0..SNAPSHOT_LEVEL).map(|level| Cursor::new(listing.level(level)));
        Self {
            target,
            snapshots: listing.level(SNAPSHOT_LEVEL),
            cursors: below.collect(),
            reached: Txid::NONE,
            files: Vec::new(),
        }
    }

    fn run(&mut self) {
        let usable = |file: &&ReplicaFile| file.range.is_snapshot() && self.target.admits(file);
        if let Some(snapshot) = self.snapshots.iter().rev().find(usable) {
            self.take(snapshot);
        }
        while !self.target.is_reached(self.reached) {
            let (target, reached) = (self.target, self.reached);
            self.cursors.iter_mut().for_each(|cursor| cursor.advance(reached, target));
            let offers = self.cursors.iter().filter_map(|cursor| cursor.best);
            let Some(best) = offers.max_by_key(|file| file.rank()) else {
                return;
            };
            self.take(best);
        }
    }

    fn take(&mut self, file: &ReplicaFile) {
        self.reached = file.range.max();
        self.files.push(file.clone());
    }
}

impl<'a> Cursor<'a> {
    const fn new(files: &'a [ReplicaFile]) -> Self {
        Self { files, next: 0, best: None }
    }

    fn advance(&mut self, reached: Txid, target: Target) {
        self.best = self.best.filter(|file| file.range.max() > reached);
        while let Some(file) = self.unread()
            && file.range.min() <= reached.next()
        {
            self.next += 1;
            let usable = file.range.max() > reached && target.admits(file);
            if usable && self.best.is_none_or(|best| file.rank() > best.rank()) {
                self.best = Some(file);
            }
        }
    }

    /// The next file, which begins beyond what was reached.
    fn unread(&self) -> Option<&'a ReplicaFile> {
        self.files.get(self.next)
    }
}

fn no_gap<'a>(
    beyond: impl Iterator<Item = &'a ReplicaFile>,
    have: Txid,
) -> Result<Option<Gap>, PlanError> {
    match beyond.map(|file| file.range.min()).min() {
        Some(next) => Err(PlanError::Gap(Gap { have, next })),
        None => Ok(None),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn file(level: u8, min: u64, max: u64, created_ms: i64) -> ReplicaFile {
        let range = TxidRange::new(Txid(min), Txid(max)).unwrap();
        ReplicaFile { level, range, size: 200, created_ms, tag: None }
    }

    fn newest(files: &[ReplicaFile]) -> Result<Plan, PlanError> {
        plan(&Listing::new(files.iter().cloned()), Target::Newest, Resolution::Full)
    }

    fn before(files: &[ReplicaFile], ms: i64) -> Result<Plan, PlanError> {
        plan(&Listing::new(files.iter().cloned()), Target::Before(ms), Resolution::Full)
    }

    /// The rule as it is stated, looking at every file every time.
    fn by_the_letter(files: &[ReplicaFile], target: Target) -> (Vec<ReplicaFile>, Txid) {
        let usable: Vec<_> = files.iter().filter(|file| target.admits(file)).collect();
        let snapshots = usable.iter().filter(|f| f.level == 9 && f.range.min() == Txid(1));
        let first = snapshots.max_by_key(|file| file.range);
        let mut chosen: Vec<_> = first.into_iter().map(|file| (*file).clone()).collect();
        let mut reached = chosen.last().map_or(Txid::NONE, |file| file.range.max());
        while !target.is_reached(reached) {
            let next = usable.iter().filter(|f| f.level < 9 && f.continues(reached));
            let Some(best) = next.max_by_key(|file| file.rank()) else {
                break;
            };
            reached = best.range.max();
            chosen.push((*best).clone());
        }
        (chosen, reached)
    }

    #[test]
    fn files_inside_what_is_reached_are_passed_over() {
        let files = [file(9, 1, 4, 0), file(1, 1, 8, 9), file(1, 3, 5, 5), file(0, 5, 5, 5)];
        let plan = newest(&files).unwrap();
        let maxima: Vec<_> = plan.files().iter().map(|file| file.range.max().0).collect();
        assert_eq!(maxima, [4, 8]);
    }

    #[test]
    fn of_equal_files_the_most_compacted_and_then_the_earliest_is_taken() {
        let files = [file(0, 1, 3, 1), file(2, 1, 3, 5), file(1, 1, 3, 1)];
        assert_eq!(newest(&files).unwrap().last().level, 2);
        let files = [file(1, 2, 3, 1), file(0, 1, 3, 5)];
        assert_eq!(newest(&files).unwrap().last().level, 0, "the longer range");
    }

    #[test]
    fn what_is_missing_is_said() {
        assert_eq!(newest(&[]), Err(PlanError::NothingReplicated));
        let no_begin = PlanError::HistoryDoesNotBegin { first: Txid(5) };
        assert_eq!(newest(&[file(0, 5, 5, 0), file(1, 7, 9, 0)]), Err(no_begin));
        let gap = Gap { have: Txid(4), next: Txid(6) };
        let files = [file(9, 1, 4, 0), file(0, 6, 6, 8), file(0, 7, 7, 9)];
        assert_eq!(newest(&files), Err(PlanError::Gap(gap)));
        let gone = PlanError::HistoryGone { oldest_ms: 1 };
        assert_eq!(before(&files, 0), Err(gone));
    }

    #[test]
    fn a_time_target_refuses_a_gap_only_when_it_would_have_crossed_it() {
        let files = [file(9, 1, 4, 0), file(0, 6, 6, 8), file(0, 7, 7, 9)];
        assert_eq!(before(&files, 8).unwrap().txid(), Txid(4));
        let gap = Gap { have: Txid(4), next: Txid(6) };
        assert_eq!(before(&files, 9), Err(PlanError::Gap(gap)));
    }

    /// Level 0 has lost 5 to retention, and the compacted file that holds it is from after the
    /// target: the healthy state a few minutes after any sync.
    #[test]
    fn a_coarser_history_is_used_and_said() {
        let files = [file(9, 1, 4, 0), file(0, 6, 6, 8), file(1, 5, 9, 20)];
        let plan = before(&files, 9).unwrap();
        assert_eq!(plan.txid(), Txid(4));
        assert_eq!(plan.coarser(), Some(Gap { have: Txid(4), next: Txid(6) }));
        assert_eq!(before(&files, 21).unwrap().coarser(), None);
    }

    #[test]
    fn short_files_and_long_plans_are_refused() {
        let mut short = file(9, 1, 1, 0);
        short.size = 99;
        assert!(matches!(newest(&[short]), Err(PlanError::FileTooShort { size: 99, .. })));
        let chain = |n| (1..=n).map(|txid| file(0, txid, txid, 0)).collect::<Vec<_>>();
        assert_eq!(newest(&chain(10_000)).unwrap().files().len(), 10_000);
        let files = MAX_PLAN_FILES + 1;
        assert_eq!(newest(&chain(files as u64)), Err(PlanError::TooManyFiles { files }));
    }

    #[test]
    fn a_new_plan_keeps_the_first_plans_promise_once() {
        let first = [file(9, 1, 1, 0), file(0, 2, 2, 5), file(0, 3, 3, 6)];
        let compacted = Listing::new([file(9, 1, 1, 0), file(1, 2, 3, 6)]);
        let start = newest(&first).unwrap();
        let mut rereading = Rereading::new(&start, Target::Newest, Resolution::Full);
        assert_eq!(rereading.replan(&compacted).unwrap().txid(), Txid(3));
        assert_eq!(rereading.replan(&compacted), Err(ReplanError::ChangedTwice));
        let less = Listing::new([file(9, 1, 1, 0), file(0, 2, 2, 5)]);
        let mut rereading = Rereading::new(&start, Target::Newest, Resolution::Full);
        assert_eq!(rereading.replan(&less), Err(ReplanError::ChangedTwice));
    }

    /// On a store whose times are upload times, the compacted file is younger than the target.
    #[test]
    fn a_new_plan_for_a_time_may_reach_its_transaction_through_a_younger_file() {
        let first = [file(9, 1, 1, 0), file(0, 2, 2, 5), file(0, 3, 3, 6)];
        let start = before(&first, 7).unwrap();
        let mut rereading = Rereading::new(&start, Target::Before(7), Resolution::Full);
        let compacted = Listing::new([file(9, 1, 1, 0), file(1, 2, 3, 30)]);
        assert_eq!(rereading.replan(&compacted).unwrap().txid(), Txid(3));
        let beyond = Listing::new([file(9, 1, 1, 0), file(1, 2, 4, 30)]);
        let mut rereading = Rereading::new(&start, Target::Before(7), Resolution::Full);
        assert_eq!(rereading.replan(&beyond), Err(ReplanError::ChangedTwice));
    }

    fn listings() -> impl Strategy<Value = Vec<ReplicaFile>> {
        let one = (0u8..10, 1u64..25, 0u64..8, 0i64..40).prop_map(|(level, min, len, created)| {
            let min = if level == SNAPSHOT_LEVEL { 1 } else { min };
            file(level, min, min + len, created)
        });
        proptest::collection::vec(one, 0..40).prop_map(|mut files| {
            files.sort_by_key(|file| (file.level, file.range));
            files.dedup_by_key(|file| (file.level, file.range));
            files
        })
    }

    fn targets() -> impl Strategy<Value = Target> {
        prop_oneof![
            Just(Target::Newest),
            (0i64..45).prop_map(Target::Before),
            (1u64..30).prop_map(|txid| Target::Txid(Txid(txid))),
        ]
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(2000))]

        #[test]
        fn one_pass_chooses_what_the_rule_says(files in listings(), target in targets()) {
            let (chosen, reached) = by_the_letter(&files, target);
            let gap = |file: &ReplicaFile| file.level < 9 && file.range.min() > reached.next();
            match plan(&Listing::new(files.clone()), target, Resolution::Full) {
                Ok(plan) => {
                    prop_assert_eq!(plan.files(), &chosen[..]);
                    prop_assert!(target != Target::Newest || !files.iter().any(gap));
                }
                Err(PlanError::Gap(gap)) => prop_assert_eq!(gap.have, reached),
                Err(PlanError::TxidGone(txid)) => prop_assert_ne!(txid, reached),
                Err(_) => prop_assert!(chosen.is_empty()),
            }
        }

        #[test]
        fn plans_chain_without_gaps(files in listings(), target in targets()) {
            if let Ok(plan) = plan(&Listing::new(files), target, Resolution::Full) {
                let mut reached = Txid::NONE;
                for file in plan.files() {
                    prop_assert!(file.continues(reached) && target.admits(file));
                    reached = file.range.max();
                }
            }
        }

        #[test]
        fn the_oldest_moment_is_the_first_that_has_a_plan(files in listings()) {
            let listing = Listing::new(files);
            for resolution in [Resolution::Full, Resolution::Second] {
                let first = |ms| {
                    let refused = plan(&listing, Target::Before(ms), resolution);
                    matches!(refused, Err(PlanError::HistoryGone { .. }))
                };
                if let Some(oldest) = listing.oldest_ms(resolution) {
                    prop_assert!(first(oldest - 1));
                    prop_assert!(!first(oldest));
                }
            }
        }
    }
}
