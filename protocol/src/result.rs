//! `result.json`: how a read ended, in words the console may read, and a sealed summary that only
//! the client can (db-forward §5.6).

use std::fmt;

use serde::{Deserialize, Serialize};
use thiserror::Error;

use crate::base64_text;
use crate::canon::{self, CanonError};
use crate::ids::BoxName;
use crate::limits::{MAX_CHUNKS, RESULT_BYTES};
use crate::time::Seconds;

/// The end of a read.
#[derive(Clone, Copy, Debug, Deserialize, Eq, PartialEq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum State {
    /// Stopped because the request had ended.
    Cancelled,
    /// All rows are in the chunks.
    Done,
    /// Begun and not finished.
    Failed,
    /// Not begun: the record said no.
    Refused,
}

/// Why a read did not end well: a fixed vocabulary.
#[derive(Clone, Debug, Default, Deserialize, Eq, Hash, PartialEq, Serialize)]
#[serde(from = "String", into = "String")]
pub enum Code {
    /// No reason to give: done, or cancelled.
    #[default]
    None,
    /// The replica changed while it was being read, twice.
    ChangedTwice,
    /// The restored copy is not a sound database.
    CheckFailed,
    /// The time asked for is before the replica's oldest.
    HistoryGone,
    /// The box could not finish.
    Interrupted,
    /// The instance is moving between regions.
    Moving,
    /// The box has no room for the copy.
    NoRoom,
    /// The instance has no replica yet.
    NothingReplicated,
    /// More rows than the output cap.
    OutputCap,
    /// The instance is not the one that was admitted.
    RecordChanged,
    /// SQLite refused or failed the statement.
    SqlError,
    /// The query ran too long.
    Timeout,
    /// The copy is larger than the box restores.
    TooLarge,
    /// A word of a later version.
    Unknown(UnknownCode),
}

/// A word outside this version's vocabulary, kept so that it can be shown and written back.
#[derive(Clone, Debug, Eq, Hash, PartialEq)]
pub struct UnknownCode(String);

const WORDS: [(Code, &str); 13] = [
    (Code::None, ""),
    (Code::ChangedTwice, "changed-twice"),
    (Code::CheckFailed, "check-failed"),
    (Code::HistoryGone, "history-gone"),
    (Code::Interrupted, "interrupted"),
    (Code::Moving, "moving"),
    (Code::NoRoom, "no-room"),
    (Code::NothingReplicated, "nothing-replicated"),
    (Code::OutputCap, "output-cap"),
    (Code::RecordChanged, "record-changed"),
    (Code::SqlError, "sql-error"),
    (Code::Timeout, "timeout"),
    (Code::TooLarge, "too-large"),
];

impl Code {
    /// Every word of this version, the empty one included.
    pub fn all() -> impl Iterator<Item = Self> {
        WORDS.into_iter().map(|(code, _)| code)
    }

    /// The word.
    pub fn as_str(&self) -> &str {
        if let Self::Unknown(UnknownCode(word)) = self {
            return word;
        }
        let known = WORDS.iter().find(|(code, _)| code == self);
        known.map_or("", |(_, word)| word)
    }
}

impl fmt::Display for Code {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl From<String> for Code {
    fn from(word: String) -> Self {
        let known = WORDS.iter().find(|(_, known)| *known == word);
        known.map_or_else(|| Self::Unknown(UnknownCode(word)), |(code, _)| code.clone())
    }
}

impl From<Code> for String {
    fn from(code: Code) -> Self {
        code.as_str().to_owned()
    }
}

/// The body of `result.json`.
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize)]
#[serde(deny_unknown_fields)]
pub struct ReadResult {
    /// How the read ended.
    pub state: State,
    /// Why, unless it is done or cancelled.
    pub code: Code,
    /// The owner.
    #[serde(rename = "box")]
    pub box_name: BoxName,
    /// The highest chunk confirmed; 0 when there is none. All chunks from 1 to it exist.
    pub last_seq: u64,
    /// When the owner began.
    pub started: Seconds,
    /// When it ended.
    pub ended: Seconds,
    /// The sealed [`crate::summary::Summary`]; empty when there is none to give.
    #[serde(with = "base64_text")]
    pub sealed: Vec<u8>,
}

/// Why bytes are not a result.
#[derive(Clone, Copy, Debug, Eq, Error, PartialEq)]
pub enum ResultError {
    /// Not the JSON of a result.
    #[error(transparent)]
    Form(#[from] CanonError),
    /// Fields that no honest owner writes together.
    #[error("the result contradicts itself")]
    Inconsistent,
}

/// The longest word of a later version that is kept.
const CODE_MAX: usize = 64;

impl ReadResult {
    /// The object's bytes.
    pub fn to_bytes(&self) -> Vec<u8> {
        canon::encode(self)
    }

    /// Reads an object's bytes, bounded: every writer of the bucket could have written it.
    ///
    /// # Errors
    /// [`ResultError`].
    pub fn from_bytes(bytes: &[u8]) -> Result<Self, ResultError> {
        let result: Self = canon::decode(bytes, RESULT_BYTES)?;
        result.check()?;
        Ok(result)
    }

    /// Whether the fields go together: a done read has rows' last chunk and a summary and no
    /// reason; a failed or refused one has a reason; no read has more chunks than exist.
    ///
    /// # Errors
    /// [`ResultError::Inconsistent`].
    pub fn check(&self) -> Result<(), ResultError> {
        let without_reason = self.code == Code::None;
        let fits = match self.state {
            State::Done => without_reason && self.last_seq > 0 && !self.sealed.is_empty(),
            State::Failed | State::Refused => !without_reason,
            State::Cancelled => true,
        };
        let word = self.code.as_str();
        let printable = word.len() <= CODE_MAX && word.bytes().all(|byte| byte.is_ascii_graphic());
        let good = fits && printable && self.last_seq <= MAX_CHUNKS;
        if good { Ok(()) } else { Err(ResultError::Inconsistent) }
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use proptest::prelude::*;

    use super::*;

    pub(crate) fn done() -> ReadResult {
        ReadResult {
            state: State::Done,
            code: Code::None,
            box_name: BoxName::parse("carlos-flagship-uk").expect("label"),
            last_seq: 12,
            started: Seconds::new(1_792_659_601),
            ended: Seconds::new(1_792_659_609),
            sealed: vec![1, 2, 3],
        }
    }

    #[test]
    fn a_result_round_trips() {
        assert_eq!(ReadResult::from_bytes(&done().to_bytes()), Ok(done()));
    }

    #[test]
    fn a_later_versions_code_is_kept() {
        let word = "too-cold".to_owned();
        let result = ReadResult { state: State::Failed, code: word.clone().into(), ..done() };
        let read = ReadResult::from_bytes(&result.to_bytes()).expect("kept");
        assert_eq!(read.code, Code::Unknown(UnknownCode(word)));
    }

    #[test]
    fn what_no_honest_owner_writes_is_refused() {
        let bad = [
            ReadResult { last_seq: MAX_CHUNKS + 1, ..done() },
            ReadResult { last_seq: 0, ..done() },
            ReadResult { sealed: Vec::new(), ..done() },
            ReadResult { code: Code::Timeout, ..done() },
            ReadResult { state: State::Failed, ..done() },
            ReadResult { state: State::Refused, code: "\u{1b}[2J".to_owned().into(), ..done() },
        ];
        for result in bad {
            let error = ReadResult::from_bytes(&result.to_bytes());
            assert_eq!(error, Err(ResultError::Inconsistent), "{result:?}");
        }
        let huge = ReadResult { sealed: vec![0; RESULT_BYTES], ..done() };
        assert!(ReadResult::from_bytes(&huge.to_bytes()).is_err());
    }

    #[test]
    fn every_code_has_one_word() {
        for code in Code::all() {
            assert_eq!(Code::from(code.as_str().to_owned()), code);
        }
    }

    proptest! {
        #[test]
        fn foreign_bytes_never_panic(bytes: Vec<u8>) {
            let _ = ReadResult::from_bytes(&bytes);
        }
    }
}
