//! Canonical JSON: the one byte string of a value.
//!
//! Compact, fields in declaration order, unknown fields refused by each type. What is read must
//! encode back to the very same bytes, so that a signature or a byte comparison speaks about the
//! value and not about one of its spellings (db-forward §5.5).

use serde::Serialize;
use serde::de::DeserializeOwned;
use thiserror::Error;

/// Why bytes are not the canonical form of a value.
#[derive(Clone, Copy, Debug, Eq, Error, PartialEq)]
pub enum CanonError {
    /// Not JSON of this type. The text itself is not repeated: it is foreign.
    #[error("not the JSON expected here (byte {column} of line {line})")]
    Malformed {
        /// Line of the first fault, from 1.
        line: usize,
        /// Column of the first fault, in bytes.
        column: usize,
    },
    /// A second spelling of a value.
    #[error("the JSON is not in its canonical form")]
    NotCanonical,
    /// More bytes than the caller allows.
    #[error("{size} bytes, where at most {max} are allowed")]
    TooLarge {
        /// The bytes offered.
        size: usize,
        /// The bytes allowed.
        max: usize,
    },
}

/// Encodes a value of this crate's types.
pub fn encode<T: Serialize>(value: &T) -> Vec<u8> {
    serde_json::to_vec(value).expect("protocol types have string keys and infallible encoders")
}

/// Decodes canonical JSON of at most `max` bytes.
///
/// # Errors
/// [`CanonError`], without looking further than the first fault.
pub fn decode<T: Serialize + DeserializeOwned>(bytes: &[u8], max: usize) -> Result<T, CanonError> {
    let value = decode_loose(bytes, max)?;
    if encode(&value) == bytes { Ok(value) } else { Err(CanonError::NotCanonical) }
}

/// Decodes JSON that need not be canonical: what people and HTTP clients send.
///
/// # Errors
/// [`CanonError::Malformed`] or [`CanonError::TooLarge`].
pub fn decode_loose<T: DeserializeOwned>(bytes: &[u8], max: usize) -> Result<T, CanonError> {
    if bytes.len() > max {
        return Err(CanonError::TooLarge { size: bytes.len(), max });
    }
    serde_json::from_slice(bytes)
        .map_err(|error| CanonError::Malformed { line: error.line(), column: error.column() })
}

#[cfg(test)]
mod tests {
    use serde::Deserialize;

    use super::*;

    #[derive(Debug, Deserialize, PartialEq, Serialize)]
    #[serde(deny_unknown_fields)]
    struct Pair {
        a: u32,
        b: String,
    }

    #[test]
    fn a_second_spelling_is_refused() {
        let good = br#"{"a":1,"b":"x"}"#;
        assert_eq!(decode(good, 64), Ok(Pair { a: 1, b: "x".into() }));
        let spellings: [&[u8]; 4] = [
            br#"{"b":"x","a":1}"#,
            br#"{"a": 1,"b":"x"}"#,
            br#"{"a":1,"b":"\u0078"}"#,
            b"{\"a\":1,\"b\":\"x\"}\n",
        ];
        for bytes in spellings {
            assert_eq!(decode::<Pair>(bytes, 64), Err(CanonError::NotCanonical));
        }
    }

    #[test]
    fn foreign_fields_duplicates_and_size_are_refused() {
        for bytes in [r#"{"a":1,"b":"x","c":0}"#, r#"{"a":1,"a":1,"b":"x"}"#, r#"{"a":1}"#, ""] {
            let error = decode::<Pair>(bytes.as_bytes(), 64).expect_err(bytes);
            assert!(matches!(error, CanonError::Malformed { .. }), "{bytes}");
        }
        let error = decode::<Pair>(br#"{"a":1,"b":"x"}"#, 14);
        assert_eq!(error, Err(CanonError::TooLarge { size: 15, max: 14 }));
    }

    #[test]
    fn deep_nesting_is_an_error_and_not_an_overflow() {
        let deep = "[".repeat(100_000);
        assert!(decode_loose::<serde_json::Value>(deep.as_bytes(), 1 << 20).is_err());
    }
}
