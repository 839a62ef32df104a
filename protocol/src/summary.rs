//! The sealed summary: what the client needs to know that a waiting console need not
//! (db-forward §5.6).

use serde::{Deserialize, Serialize};
use thiserror::Error;

use crate::canon::{self, CanonError};
use crate::ids::{Digest, ReadId, Txid};
use crate::limits::{MESSAGE_BYTES, SUMMARY_BYTES};
use crate::seal::{self, OpenError, Place, ReplyKey, ReplyPublic};
use crate::time::{Millis, optional};
use crate::{Entropy, result::ReadResult};

/// What the client checks and shows. Fields without a value for this end are zero or empty.
#[derive(Clone, Debug, Default, Deserialize, Eq, PartialEq, Serialize)]
#[serde(deny_unknown_fields)]
pub struct Summary {
    /// The transaction of the copy that was read.
    pub txid: Txid,
    /// When that transaction was written.
    #[serde(with = "optional")]
    pub time: Option<Millis>,
    /// Rows in the row stream.
    pub rows: u64,
    /// Bytes of the row stream, before sealing.
    pub bytes: u64,
    /// SHA-256 of the row stream, 64 hex digits, or empty.
    pub sha256: Sha256Text,
    /// The oldest time the replica reaches back to, for `history-gone`.
    #[serde(with = "optional")]
    pub oldest: Option<Millis>,
    /// The copy's size once restored, for `too-large` and for the record.
    pub restored_bytes: u64,
    /// What the box restores at most, for `too-large`.
    pub cap_bytes: u64,
    /// SQLite's own text, for `sql-error`; at most [`MESSAGE_BYTES`].
    pub sql_error: String,
    /// The copy is older than asked for by more than the replica's usual step: the files around
    /// that time have been compacted into one. Absent when not.
    #[serde(default, skip_serializing_if = "is_false")]
    pub coarser: bool,
}

fn is_false(flag: &bool) -> bool {
    !flag
}

/// A digest that may be absent, written as empty text.
#[derive(Clone, Copy, Debug, Default, Deserialize, Eq, PartialEq, Serialize)]
#[serde(try_from = "String", into = "String")]
pub struct Sha256Text(pub Option<Digest>);

impl From<Sha256Text> for String {
    fn from(text: Sha256Text) -> Self {
        text.0.map_or_else(Self::new, |digest| digest.to_string())
    }
}

impl TryFrom<String> for Sha256Text {
    type Error = crate::ids::IdError;

    fn try_from(text: String) -> Result<Self, Self::Error> {
        if text.is_empty() { Ok(Self(None)) } else { Digest::parse(&text).map(|d| Self(Some(d))) }
    }
}

/// Why a summary could not be read.
#[derive(Clone, Copy, Debug, Eq, Error, PartialEq)]
pub enum SummaryError {
    /// Opened, and not a summary.
    #[error(transparent)]
    Form(#[from] CanonError),
    /// Not sealed for this read.
    #[error(transparent)]
    Seal(#[from] OpenError),
    /// Larger than a summary can be.
    #[error("more sealed bytes than a summary can have")]
    TooLarge,
}

impl Summary {
    /// Seals the summary for the client; a longer SQL error is cut at a character's border.
    pub fn seal(&self, entropy: &mut dyn Entropy, to: &ReplyPublic, id: ReadId) -> Vec<u8> {
        let sql_error = bounded(&self.sql_error).to_owned();
        let plaintext = canon::encode(&Self { sql_error, ..self.clone() });
        seal::seal(entropy, to, &Place::summary(id), &plaintext)
    }

    /// Opens the summary of a result.
    ///
    /// # Errors
    /// [`SummaryError`].
    pub fn open(key: &ReplyKey, id: ReadId, result: &ReadResult) -> Result<Self, SummaryError> {
        if result.sealed.len() > SUMMARY_BYTES + seal::SEAL_OVERHEAD {
            return Err(SummaryError::TooLarge);
        }
        let plaintext = seal::open(key, &Place::summary(id), &result.sealed)?;
        Ok(canon::decode(&plaintext, SUMMARY_BYTES)?)
    }
}

/// The longest head of `message` within [`MESSAGE_BYTES`].
pub fn bounded(message: &str) -> &str {
    &message[..message.floor_char_boundary(MESSAGE_BYTES)]
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::result::tests::done;
    use crate::testing::Counter;

    fn summary() -> Summary {
        Summary {
            txid: Txid(0x2a),
            time: Some(Millis::new(1_792_659_600_250)),
            rows: 3,
            bytes: 64,
            sha256: Sha256Text(Some(Digest::of(b"rows"))),
            ..Summary::default()
        }
    }

    #[test]
    fn a_summary_opens_for_its_read_only() {
        let key = ReplyKey::generate(&mut Counter(1));
        let id = ReadId::from_bytes([7; 16]);
        let sealed = summary().seal(&mut Counter(2), &key.public(), id);
        let result = ReadResult { sealed, ..done() };
        assert_eq!(Summary::open(&key, id, &result), Ok(summary()));
        let other = ReadId::from_bytes([8; 16]);
        let error = SummaryError::Seal(OpenError::Tag);
        assert_eq!(Summary::open(&key, other, &result), Err(error));
    }

    #[test]
    fn the_longest_sql_error_fits_and_is_cut_at_a_character() {
        let key = ReplyKey::generate(&mut Counter(1));
        let id = ReadId::from_bytes([7; 16]);
        for text in ["\u{1}".repeat(2 * MESSAGE_BYTES), "é".repeat(MESSAGE_BYTES)] {
            let long = Summary { sql_error: format!("x{text}"), ..summary() };
            let sealed = long.seal(&mut Counter(2), &key.public(), id);
            let result = ReadResult { sealed, ..done() };
            ReadResult::from_bytes(&result.to_bytes()).expect("within the result's bound");
            let opened = Summary::open(&key, id, &result).expect("within the summary's bound");
            assert!(opened.sql_error.len() <= MESSAGE_BYTES);
            assert!(long.sql_error.starts_with(&opened.sql_error));
        }
    }

    #[test]
    fn absent_values_are_empty_text() {
        let text = String::from_utf8(canon::encode(&Summary::default())).expect("JSON");
        let head = r#"{"txid":"0x0000000000000000","time":"","rows":0,"bytes":0,"sha256":"""#;
        assert!(text.starts_with(head), "{text}");
        assert_eq!(canon::decode(text.as_bytes(), SUMMARY_BYTES), Ok(Summary::default()));
    }
}
