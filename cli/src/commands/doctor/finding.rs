//! What the doctor can say: a code that stays, how bad it is, and a sentence.

use serde::Serialize;

use Level::{Fault, Ok, Unclear, Warning};

/// How bad a finding is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum Level {
    /// It is as it should be.
    Ok,
    /// It works, and somebody should know.
    Warning,
    /// It could not be found out.
    Unclear,
    /// It does not work, or works against somebody.
    Fault,
}

/// Every code with its level. Each has a section of its name in `docs/doctor.md`.
pub(super) const CODES: [(&str, Level); 46] = [
    ("bucket-ok", Ok),
    ("bucket-many-winners", Fault),
    ("bucket-ignores-condition", Fault),
    ("bucket-refuses-free-names", Fault),
    ("bucket-read-after-write", Fault),
    ("bucket-list-after-write", Fault),
    ("bucket-no-conditional-reads", Warning),
    ("bucket-could-not-tell", Unclear),
    ("condition-not-demanded", Warning),
    ("lifecycle-ok", Ok),
    ("lifecycle-by-process", Ok),
    ("lifecycle-none", Fault),
    ("lifecycle-missing", Fault),
    ("lifecycle-wrong-age", Fault),
    ("lifecycle-deletes-records", Fault),
    ("lifecycle-moves-objects", Fault),
    ("lifecycle-keeps-versions", Fault),
    ("lifecycle-keeps-markers", Warning),
    ("lifecycle-unexpected", Warning),
    ("lifecycle-behind", Warning),
    ("lifecycle-could-not-tell", Unclear),
    ("versioning-off", Ok),
    ("versioning-on", Warning),
    ("versioning-breaks-creates", Fault),
    ("versioning-could-not-tell", Unclear),
    ("clock-ok", Ok),
    ("clock-drifts", Warning),
    ("clock-skewed", Fault),
    ("clock-could-not-tell", Unclear),
    ("reach-ok", Ok),
    ("reach-too-far", Fault),
    ("reach-too-short", Fault),
    ("reach-names", Warning),
    ("reach-could-not-tell", Unclear),
    ("serials-ok", Ok),
    ("serial-stale", Fault),
    ("serial-stuck", Fault),
    ("serial-could-not-tell", Unclear),
    ("reads-not-picked", Warning),
    ("boxes-ok", Ok),
    ("box-not-seen", Warning),
    ("box-stale", Fault),
    ("box-not-serving", Warning),
    ("box-unreadable", Fault),
    ("region-not-served", Fault),
    ("boxes-could-not-tell", Unclear),
];

/// One thing that was looked at.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(super) struct Finding {
    /// How bad it is.
    pub(super) level: Level,
    /// The stable code.
    pub(super) code: &'static str,
    /// The prefix, rule, region, box or bucket it is about; empty for the deployment bucket.
    pub(super) subject: String,
    /// What was found, for a person.
    pub(super) sentence: String,
}

impl Finding {
    /// What `code` means of `subject`, in the words of `sentence`.
    pub(super) fn new(code: &'static str, subject: impl ToString, sentence: impl ToString) -> Self {
        let row = CODES.iter().find(|(known, _)| *known == code);
        let (_, level) = row.expect("every code is in the table");
        let (subject, sentence) = (subject.to_string(), sentence.to_string());
        Self { level: *level, code, subject, sentence }
    }

    /// One line for a person.
    pub(super) fn line(&self) -> String {
        let level = match self.level {
            Ok => "ok",
            Warning => "warning",
            Unclear => "unclear",
            Fault => "FAULT",
        };
        let subject = match self.subject.as_str() {
            "" => String::new(),
            subject => format!("{subject}: "),
        };
        format!("{level:<8} {:<28} {subject}{}", self.code, self.sentence)
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn every_code_has_its_section_and_every_section_its_code() {
        let doc = include_str!("../../../../docs/doctor.md");
        let sections: Vec<&str> = doc.lines().filter_map(|line| line.strip_prefix("## ")).collect();
        let codes: Vec<&str> = CODES.iter().map(|(code, _)| *code).collect();
        assert_eq!(sections, codes);
        assert_eq!(codes.iter().collect::<BTreeSet<_>>().len(), CODES.len());
    }

    #[test]
    fn every_section_says_what_to_do_and_how_bad_it_is() {
        let doc = include_str!("../../../../docs/doctor.md");
        for (code, level) in CODES {
            let section = doc.split("\n## ").find(|part| part.lines().next() == Some(code));
            let section = section.expect("a section");
            let said = match level {
                Ok => continue,
                Warning => "Warning.",
                Unclear => "Unclear.",
                Fault => "Fault.",
            };
            assert!(section.contains(said) && section.contains("**What to do.**"), "{code}");
        }
    }

    #[test]
    fn a_line_holds_all_of_it() {
        let finding = Finding::new("box-stale", "box-uk", "no pulse for 400 s.");
        assert_eq!(
            finding.line(),
            "FAULT    box-stale                    box-uk: no pulse for 400 s."
        );
    }
}
