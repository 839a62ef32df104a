//! Bytes as padded standard base64 inside JSON: the one text form of binary fields.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde::de::Error as _;
use serde::{Deserialize, Deserializer, Serializer};

/// Encodes with padding.
pub(crate) fn encode(bytes: &[u8]) -> String {
    STANDARD.encode(bytes)
}

/// Decodes; `None` when the text is not exactly what [`encode`] would write.
pub(crate) fn decode(text: &str) -> Option<Vec<u8>> {
    STANDARD.decode(text).ok()
}

/// Decodes a value of a known length.
pub(crate) fn decode_array<const N: usize>(text: &str) -> Option<[u8; N]> {
    decode(text)?.try_into().ok()
}

pub(crate) fn serialize<S: Serializer>(bytes: &[u8], to: S) -> Result<S::Ok, S::Error> {
    to.serialize_str(&encode(bytes))
}

pub(crate) fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<Vec<u8>, D::Error> {
    let text = String::deserialize(from)?;
    decode(&text).ok_or_else(|| D::Error::custom("not padded standard base64"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_padded_canonical_form_is_read() {
        assert_eq!(decode("AA=="), Some(vec![0]));
        for bad in ["AA", "AB==", "A===", "AA==\n", "_w=="] {
            assert_eq!(decode(bad), None, "{bad:?}");
        }
    }
}
