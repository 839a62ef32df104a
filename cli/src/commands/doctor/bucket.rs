//! The bucket itself: its promises, its lifecycle, its versions, its clock.

use carlos_bucket::expire::RULES;
use carlos_bucket::layer::Inner;
use carlos_bucket::probe::{Probed, probe};
use carlos_bucket::{Purpose, SettingsError};
use carlos_protocol::limits::CLOCK_SKEW;
use futures::TryStreamExt as _;
use object_store::path::Path;
use object_store::{Error, ObjectStoreExt as _};

use super::Patient;
use super::finding::Finding;
use crate::admin::lifecycle;
use crate::admin::versioning::{self, Versioning};

/// Two clocks that are both this far from the store's, one ahead and one behind, are just within
/// what a read allows (db-forward §5.7).
const DRIFT_SECONDS: u64 = CLOCK_SKEW.as_secs() / 2;

/// A store acts on its rules when it likes, usually within two days; a week is none of its moods.
const BEHIND_DAYS: u64 = 7;

/// Objects of a prefix that are looked at for their age: one page.
const AGED: usize = 1_000;

const DAY_SECONDS: u64 = 24 * 60 * 60;

/// Whether the bucket keeps its promises; what its versions have to do with it, if it does not.
pub(super) async fn promises(patient: &Patient) -> Vec<Finding> {
    let probed = probe(&patient.bucket, patient.holder.name.as_str()).await;
    let code = probed.code();
    match probed {
        Probed::Keeps(report) => {
            let kept = Finding::new(code, "", "the bucket keeps its promises.");
            let whole = "reads ignore If-None-Match: polling costs whole objects.";
            let reads = Finding::new("bucket-no-conditional-reads", "", whole);
            let mut found = vec![kept];
            found.extend((!report.conditional_reads).then_some(reads));
            found.extend(undemanded(patient).await);
            found
        }
        Probed::Lies(broken) => {
            let lie = Finding::new(code, "", format!("{broken}. nothing may run on this bucket."));
            std::iter::once(lie).chain(because_of_versions(patient).await).collect()
        }
        Probed::CouldNotTell(reason) => vec![Finding::new(code, "", format!("{reason}."))],
    }
}

/// Amazon can refuse whoever forgets the condition, which then binds every tool.
async fn undemanded(patient: &Patient) -> Option<Finding> {
    if !patient.amazon {
        return None;
    }
    let ctx = patient.bucket.context();
    let key = Path::from(format!("probe/{}/{}", patient.holder.name, ctx.ulid()));
    let put = patient.bucket.store().put(&key, "without a condition".into());
    match ctx.timeout(Purpose::Claim.allowed(), put).await {
        Ok(Ok(_)) => {
            let said = "a put without If-None-Match is accepted, so another tool could replace \
                        what must never be replaced.";
            Some(Finding::new("condition-not-demanded", "", said))
        }
        _ => None,
    }
}

async fn because_of_versions(patient: &Patient) -> Option<Finding> {
    let kept = versioning::read(patient.settings.as_ref()?).await.ok()?;
    (kept != Versioning::Off).then(|| {
        let said = "the bucket keeps versions, and this server may ignore If-None-Match because \
                    of it.";
        Finding::new("versioning-breaks-creates", "", said)
    })
}

/// Whether exactly what expires is removed.
pub(super) async fn lifecycle(patient: &Patient) -> Vec<Finding> {
    let mut found = match &patient.settings {
        None => vec![Finding::new(
            "lifecycle-by-process",
            "",
            "a store without rules of its own: carlos dev and demo remove what expires.",
        )],
        Some(_) => rules(patient).await,
    };
    for rule in RULES {
        found.extend(behind(patient, rule.prefix, rule.after.as_secs()).await);
    }
    found
}

async fn rules(patient: &Patient) -> Vec<Finding> {
    let Some(settings) = &patient.settings else { return Vec::new() };
    let unclear = |said: String| vec![Finding::new("lifecycle-could-not-tell", "", said)];
    let versioned = versioning::read(settings).await.is_ok_and(|kept| kept != Versioning::Off);
    let rules = match settings.read("lifecycle").await {
        Ok(None) => Vec::new(),
        Ok(Some(text)) => match lifecycle::parse(&text) {
            Ok(rules) => rules,
            Err(error) => return unclear(format!("the rules cannot be read: {error}.")),
        },
        Err(SettingsError::Unsupported(_)) => Vec::new(),
        Err(error) => return unclear(format!("{error}.")),
    };
    let problems = lifecycle::problems(&rules, versioned, &settings.address().prefix);
    match problems.is_empty() {
        true => vec![Finding::new("lifecycle-ok", "", "exactly what expires is removed.")],
        false => problems
            .iter()
            .map(|one| Finding::new(one.code(), one.subject(), format!("{one}.")))
            .collect(),
    }
}

/// Whether objects are there that should be long gone, whatever the rules say.
async fn behind(patient: &Patient, prefix: &str, after_seconds: u64) -> Option<Finding> {
    let ctx = patient.bucket.context();
    let listing = oldest(patient.bucket.store(), prefix);
    let oldest = ctx.timeout(Purpose::Sweep.allowed(), listing).await.ok()?.ok()??;
    let overdue = ctx.now_unix().saturating_sub(oldest + after_seconds) / DAY_SECONDS;
    (overdue >= BEHIND_DAYS).then(|| {
        let said = format!("an object is there {overdue} days after it should have gone.");
        Finding::new("lifecycle-behind", format!("{prefix}/"), said)
    })
}

async fn oldest(store: &Inner, prefix: &str) -> Result<Option<u64>, Error> {
    let folder = Path::from(prefix);
    let mut listed = store.list(Some(&folder));
    let mut oldest: Option<u64> = None;
    for _ in 0..AGED {
        let Some(meta) = listed.try_next().await? else { break };
        let written = u64::try_from(meta.last_modified.timestamp()).unwrap_or(0);
        oldest = Some(oldest.map_or(written, |oldest| oldest.min(written)));
    }
    Ok(oldest)
}

/// Whether the bucket keeps versions.
pub(super) async fn versions(patient: &Patient) -> Vec<Finding> {
    let Some(settings) = &patient.settings else { return Vec::new() };
    let finding = match versioning::read(settings).await {
        Ok(Versioning::Off) => {
            Finding::new("versioning-off", "", "the bucket keeps no old versions.")
        }
        Ok(Versioning::On) => Finding::new(
            "versioning-on",
            "",
            "the bucket keeps old versions: what expires goes a day later, and some servers \
             ignore If-None-Match on such a bucket.",
        ),
        Ok(Versioning::Suspended) => Finding::new(
            "versioning-on",
            "",
            "the bucket kept old versions once: those of then stay until a rule removes them.",
        ),
        Err(error) => Finding::new("versioning-could-not-tell", "", format!("{error}.")),
    };
    vec![finding]
}

/// How this machine's clock stands to the store's, by an answer of now.
pub(super) async fn clock(patient: &Patient) -> Vec<Finding> {
    if patient.settings.is_none() {
        return Vec::new();
    }
    // Any answer has a date, a refusal too.
    let asked = patient.bucket.get("control/serial/clock", Purpose::Claim).await;
    vec![judge(patient.clock.ahead(), asked.err().map(|error| error.to_string()))]
}

/// What the difference of two clocks means; `why` there is none.
fn judge(ahead: Option<i64>, why: Option<String>) -> Finding {
    let Some(ahead) = ahead else {
        let why = why.unwrap_or_else(|| "its answers have no date".into());
        return Finding::new("clock-could-not-tell", "", format!("the store has no clock: {why}."));
    };
    let side = if ahead < 0 { "behind" } else { "ahead of" };
    let seconds = ahead.unsigned_abs();
    let said = format!("this machine's clock is {seconds} s {side} the store's");
    match seconds {
        over if over > CLOCK_SKEW.as_secs() => Finding::new(
            "clock-skewed",
            "",
            format!("{said}: reads are refused beyond {} s.", CLOCK_SKEW.as_secs()),
        ),
        over if over > DRIFT_SECONDS => Finding::new(
            "clock-drifts",
            "",
            format!("{said}: with another one {DRIFT_SECONDS} s the other way, reads fail."),
        ),
        _ => Finding::new("clock-ok", "", format!("{said}.")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_clock_is_judged_by_what_a_read_allows() {
        let code = |ahead| judge(Some(ahead), None).code;
        assert_eq!([code(0), code(30), code(-30)], ["clock-ok"; 3]);
        assert_eq!([code(31), code(-60)], ["clock-drifts"; 2]);
        assert_eq!([code(61), code(-3_600)], ["clock-skewed"; 2]);
        let unknown = judge(None, Some("no answer in time".into()));
        assert_eq!(unknown.code, "clock-could-not-tell");
        assert!(unknown.sentence.contains("no answer in time"));
    }
}
