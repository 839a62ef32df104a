//! What stands behind `carlos replica verify`: every byte of every file is read and checked.

use std::collections::BTreeSet;

use carlos_ltx::{Decoder, Header, LtxError, PageSink, Txid, Verified};
use futures::{StreamExt, TryStreamExt, stream};
use serde::Serialize;

use crate::apply::pages::PageSet;
use crate::ls::{Moment, bytes, layout_name, newest};
use crate::plan::{Gap, Plan, PlanError, Resolution, Target, plan};
use crate::survey::{Others, Survey};
use crate::times::RESET_AFTER_MS;
use crate::{Fetch, LEVELS, Listing, ReadError, ReplicaFile, ReplicaReader, SNAPSHOT_LEVEL};
use crate::{PlannedFile, StoreReplica};

/// Files that are read at once. Enough to hide a network's answers; each holds a page or two.
const AT_ONCE: usize = 8;

/// The answer of `carlos replica verify`, in the order of its JSON. Times are milliseconds since
/// the Unix epoch.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct VerifyReport {
    /// Whether every file is whole and the newest state can be restored.
    pub sound: bool,
    /// `s3` or `file`; `None` when there is no transaction file.
    pub layout: Option<&'static str>,
    /// How many transaction files there are.
    pub files: u64,
    /// Their bytes.
    pub bytes: u64,
    /// The levels that have files.
    pub levels: Vec<LevelReport>,
    /// Files that a restore would refuse.
    pub damaged: Vec<Damage>,
    /// The newest state that whole files lead to.
    pub newest: Option<Moment>,
    /// The earliest time that can be asked for.
    pub oldest_ms: Option<i64>,
    /// Why the newest state cannot be restored, as a sentence.
    pub problem: Option<String>,
    /// Files whose listing time a copy has reset; their headers' times count.
    pub times_reset: u64,
    /// Files that retention removed while they were being read.
    pub vanished: u64,
    /// All other objects.
    pub others: Vec<Others>,
}

/// One level.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct LevelReport {
    /// 0 to 9.
    pub level: u8,
    /// How many files it has.
    pub files: u64,
    /// Their bytes.
    pub bytes: u64,
    /// Its first transaction, as `0x1f`.
    pub first: String,
    /// Its last transaction.
    pub last: String,
    /// Transactions that it lacks in between.
    pub gaps: Vec<LevelGap>,
    /// The last transaction that its whole files lead to from the best snapshot, or from their own
    /// beginning. `None` when they lead nowhere.
    pub restores: Option<String>,
}

/// Transactions between `after` and `next` are in no file of a level.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct LevelGap {
    /// The last transaction before the gap.
    pub after: String,
    /// The first transaction behind it.
    pub next: String,
}

/// A file that a restore would refuse.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Damage {
    /// 0 to 9.
    pub level: u8,
    /// `<min>-<max>.ltx`
    pub name: String,
    /// What is wrong with it.
    pub problem: String,
}

/// Reads and checks the whole replica.
///
/// # Errors
/// When the store cannot be listed or read. Damage is no error; the report says what it is.
pub async fn verify(replica: &StoreReplica) -> Result<VerifyReport, ReadError> {
    let survey = replica.survey().await?;
    let plan = plan(&survey.listing, Target::Newest, Resolution::Full);
    let mut checked = Checked::default();
    let planned = plan.as_ref().map_or(&[][..], Plan::files);
    let whole = checked.plan(replica, planned).await?;
    let place = |file: &ReplicaFile| (file.level, file.range);
    let read: BTreeSet<_> = planned.iter().map(place).collect();
    let rest = survey.listing.files().filter(|file| !read.contains(&place(file)));
    let rest = stream::iter(rest).map(|file| check(replica, file, Nothing::default()));
    let mut rest = rest.buffer_unordered(AT_ONCE);
    while let Some((file, outcome, _)) = rest.try_next().await? {
        checked.add(file, outcome);
    }
    drop(rest);
    let problem = plan.err().map(|error| why_none(&error, &survey.others)).or(whole);
    Ok(checked.report(replica.resolution(), survey, problem))
}

/// Why there is no plan; what stands there instead of transaction files says more than that there
/// are none.
fn why_none(error: &PlanError, others: &[Others]) -> String {
    match (error, others.first()) {
        (PlanError::NothingReplicated, Some(Others { count, kind, .. })) => {
            format!("there are no transaction files, but {count} objects: {kind}")
        }
        _ => error.to_string(),
    }
}

/// What reading one file came to.
enum Outcome {
    Whole(Header),
    Damaged(String),
    Vanished,
}

#[derive(Default)]
struct Checked {
    whole: Vec<ReplicaFile>,
    damaged: Vec<Damage>,
    times_reset: u64,
    vanished: u64,
}

impl Checked {
    /// Checks the newest plan's files in their order, and whether together they hold every page.
    /// Gives the reason when they do not.
    async fn plan(
        &mut self,
        reader: &dyn ReplicaReader,
        planned: &[ReplicaFile],
    ) -> Result<Option<String>, ReadError> {
        let mut coverage = Coverage::default();
        for file in planned {
            let (file, outcome, seen) = check(reader, file, coverage).await?;
            coverage = seen;
            self.add(file, outcome);
        }
        let lost = planned.len() - self.whole.len();
        if lost > 0 {
            return Ok(Some(format!("{lost} of the files that lead there cannot be used")));
        }
        Ok(coverage.problem())
    }

    fn add(&mut self, file: &ReplicaFile, outcome: Outcome) {
        match outcome {
            Outcome::Whole(header) => {
                let mut file = file.clone();
                if header.timestamp_ms.saturating_add(RESET_AFTER_MS) < file.created_ms {
                    file.created_ms = header.timestamp_ms;
                    self.times_reset += 1;
                }
                self.whole.push(file);
            }
            Outcome::Damaged(problem) => {
                let (level, name) = (file.level, file.range.name());
                self.damaged.push(Damage { level, name, problem });
            }
            Outcome::Vanished => self.vanished += 1,
        }
    }

    fn report(
        mut self,
        resolution: Resolution,
        survey: Survey,
        problem: Option<String>,
    ) -> VerifyReport {
        self.damaged.sort_by(|a, b| (a.level, &a.name).cmp(&(b.level, &b.name)));
        let whole = Listing::new(self.whole);
        let levels = (0..LEVELS).filter(|level| !survey.listing.level(*level).is_empty());
        VerifyReport {
            sound: self.damaged.is_empty() && problem.is_none(),
            layout: survey.layout.map(layout_name),
            files: survey.listing.files().count() as u64,
            bytes: bytes(&survey.listing),
            levels: levels.map(|level| LevelReport::new(level, &survey.listing, &whole)).collect(),
            damaged: self.damaged,
            newest: newest(&whole),
            oldest_ms: whole.oldest_ms(resolution),
            problem,
            times_reset: self.times_reset,
            vanished: self.vanished,
            others: survey.others,
        }
    }
}

impl LevelReport {
    fn new(level: u8, listing: &Listing, whole: &Listing) -> Self {
        let files = listing.level(level);
        let first = files.iter().map(|file| file.range.min()).min().unwrap_or_default();
        let last = files.iter().map(|file| file.range.max()).max().unwrap_or_default();
        Self {
            level,
            files: files.len() as u64,
            bytes: files.iter().fold(0, |sum, file| sum.saturating_add(file.size)),
            first: first.to_string(),
            last: last.to_string(),
            gaps: gaps(files),
            restores: restores(level, whole).map(|txid| txid.to_string()),
        }
    }
}

fn gaps(files: &[ReplicaFile]) -> Vec<LevelGap> {
    let mut gaps = Vec::new();
    let mut reached: Option<Txid> = None;
    for file in files {
        if let Some(after) = reached.filter(|after| file.range.min() > after.next()) {
            let (after, next) = (after.to_string(), file.range.min().to_string());
            gaps.push(LevelGap { after, next });
        }
        reached = reached.max(Some(file.range.max()));
    }
    gaps
}

/// How far the snapshots and one level lead.
fn restores(level: u8, whole: &Listing) -> Option<Txid> {
    let snapshots = whole.level(SNAPSHOT_LEVEL).iter();
    let own = whole.level(level).iter().filter(|_| level != SNAPSHOT_LEVEL);
    let both = Listing::new(snapshots.chain(own).cloned());
    match plan(&both, Target::Newest, Resolution::Full) {
        Ok(plan) => Some(plan.txid()),
        Err(PlanError::Gap(Gap { have, .. })) => Some(have),
        Err(_) => None,
    }
}

/// Reads one file to its end. The sink comes back, for the next file.
async fn check<'f, S: PageSink<Error = LtxError> + Begins>(
    reader: &dyn ReplicaReader,
    file: &'f ReplicaFile,
    mut sink: S,
) -> Result<(&'f ReplicaFile, Outcome, S), ReadError> {
    sink.expect(file.planned());
    let (mut fetch, mut decoder) = (Fetch::new(reader, file), Decoder::new());
    loop {
        match fetch.next().await {
            Ok(Some(bytes)) => {
                if let Err(cause) = decoder.feed(&bytes, &mut sink) {
                    return Ok((file, Outcome::Damaged(cause.to_string()), sink));
                }
            }
            Ok(None) => break,
            Err(ReadError::Changed { .. }) => return Ok((file, Outcome::Vanished, sink)),
            Err(error) => return Err(error),
        }
    }
    let outcome = match decoder.finish() {
        Ok(verified) => {
            sink.end(&verified);
            judged(file, verified.header, &sink)
        }
        Err(cause) => Outcome::Damaged(cause.to_string()),
    };
    Ok((file, outcome, sink))
}

fn judged(file: &ReplicaFile, header: Header, sink: &impl Begins) -> Outcome {
    if header.range != file.range {
        let problem = format!("the header says transactions {}", header.range);
        return Outcome::Damaged(problem);
    }
    if header.commit == 0 {
        return Outcome::Damaged("it says the database was deleted".to_owned());
    }
    if sink.is_foreign() {
        let problem = "page 1 is not a SQLite database's; it may be encrypted, as by SQLCipher";
        return Outcome::Damaged(problem.to_owned());
    }
    Outcome::Whole(header)
}

/// What both sinks have in common.
trait Begins {
    fn expect(&mut self, file: PlannedFile);
    fn end(&mut self, _verified: &Verified) {}
    /// Whether the page 1 that was seen last is not that of a SQLite database.
    fn is_foreign(&self) -> bool;
}

/// Looks at page 1 and forgets the rest.
#[derive(Default)]
struct Nothing {
    page: Vec<u8>,
    foreign: bool,
}

impl Begins for Nothing {
    fn expect(&mut self, _file: PlannedFile) {
        self.foreign = false;
    }

    fn is_foreign(&self) -> bool {
        self.foreign
    }
}

impl PageSink for Nothing {
    type Error = LtxError;

    fn begin(&mut self, header: &Header) -> Result<(), LtxError> {
        self.page.resize(header.page_size as usize, 0);
        Ok(())
    }

    fn slot(&mut self, _number: u32) -> Result<&mut [u8], LtxError> {
        Ok(&mut self.page)
    }

    fn page(&mut self, number: u32) -> Result<(), LtxError> {
        if number == 1 {
            self.foreign = !self.page.starts_with(b"SQLite format 3\0");
        }
        Ok(())
    }
}

/// Follows which pages a plan's files bring, as a restore does.
#[derive(Default)]
struct Coverage {
    pages: PageSet,
    header: Option<Header>,
    sink: Nothing,
    problem: Option<String>,
    file: Option<PlannedFile>,
    /// The database checksum after the last file, where files have one.
    post_apply: Option<u64>,
}

impl Coverage {
    fn problem(self) -> Option<String> {
        let header = self.header.filter(|_| self.problem.is_none());
        let hole = header.and_then(|header| self.pages.first_hole(&header));
        let missing =
            |page| format!("page {page} is in no file since the database last grew to hold it");
        self.problem.or_else(|| hole.map(missing))
    }

    fn check_against(&mut self, header: &Header, before: &Header) {
        let adjacent = header.range.min() == before.range.max().next();
        let broken = self.post_apply.is_some_and(|post| post != header.pre_apply);
        let fault = if header.page_size != before.page_size {
            "has pages of another size than those before"
        } else if header.tracks_checksums() && adjacent && broken {
            "begins with another database checksum than the file before ended with"
        } else {
            return;
        };
        let file = self.file.map(|file| file.to_string()).unwrap_or_default();
        self.problem.get_or_insert_with(|| format!("{file} {fault}"));
    }
}

impl Begins for Coverage {
    fn expect(&mut self, file: PlannedFile) {
        self.file = Some(file);
        self.sink.expect(file);
    }

    fn end(&mut self, verified: &Verified) {
        self.post_apply = verified.header.tracks_checksums().then_some(verified.post_apply);
    }

    fn is_foreign(&self) -> bool {
        self.sink.is_foreign()
    }
}

impl PageSink for Coverage {
    type Error = LtxError;

    fn begin(&mut self, header: &Header) -> Result<(), LtxError> {
        if let Some(before) = self.header {
            self.check_against(header, &before);
            if header.commit < before.commit {
                self.pages.truncate(header.commit);
            }
        }
        self.header = Some(*header);
        self.sink.begin(header)
    }

    fn slot(&mut self, number: u32) -> Result<&mut [u8], LtxError> {
        self.sink.slot(number)
    }

    fn page(&mut self, number: u32) -> Result<(), LtxError> {
        if self.header.is_some_and(|header| number <= header.commit) {
            self.pages.insert(number);
        }
        self.sink.page(number)
    }
}
