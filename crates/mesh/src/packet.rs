//! What a message carries: named packets, their bodies, and how bodies become bytes.

use bytes::Bytes;
use carlos_protocol::mesh::Content;
use serde::Serialize;
use serde::de::DeserializeOwned;
use thiserror::Error;

/// A body cannot be written, or its bytes cannot be read.
#[derive(Clone, Debug, Eq, Error, PartialEq)]
#[error("{0}")]
pub struct BodyError(pub String);

/// What can be the body of a message or a reply.
pub trait Body: Sized + Send + 'static {
    /// What the bytes are; a receiver refuses another content.
    const CONTENT: Content<'static>;

    /// The bytes.
    ///
    /// # Errors
    /// [`BodyError`] for a value that has none.
    fn encode(&self) -> Result<Bytes, BodyError>;

    /// Reads the bytes.
    ///
    /// # Errors
    /// [`BodyError`] for bytes that are no such value.
    fn decode(bytes: Bytes) -> Result<Self, BodyError>;
}

/// A body with the name that picks its handler. Usually derived:
///
/// ```
/// use routemesh::Packet;
/// use serde::{Deserialize, Serialize};
///
/// #[derive(Serialize, Deserialize, Packet)]
/// #[packet(name = "join-match")]
/// struct JoinMatch {
///     player: u64,
/// }
/// assert_eq!(JoinMatch::NAME, "join-match");
/// ```
pub trait Packet: Body {
    /// The name on the wire, 1 to 255 bytes; never the name of a Rust type, which may change.
    const NAME: &'static str;
}

impl Body for Bytes {
    const CONTENT: Content<'static> = Content::Raw;

    fn encode(&self) -> Result<Bytes, BodyError> {
        Ok(self.clone())
    }

    fn decode(bytes: Bytes) -> Result<Self, BodyError> {
        Ok(bytes)
    }
}

/// An empty body: what a handler without an answer replies.
impl Body for () {
    const CONTENT: Content<'static> = Content::Raw;

    fn encode(&self) -> Result<Bytes, BodyError> {
        Ok(Bytes::new())
    }

    fn decode(bytes: Bytes) -> Result<Self, BodyError> {
        if bytes.is_empty() { Ok(()) } else { Err(BodyError("no body was expected".into())) }
    }
}

/// Any serde value as JSON, for replies that are no packets.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct Json<T>(pub T);

impl<T: Serialize + DeserializeOwned + Send + 'static> Body for Json<T> {
    const CONTENT: Content<'static> = Content::Json;

    fn encode(&self) -> Result<Bytes, BodyError> {
        encode_json(&self.0)
    }

    fn decode(bytes: Bytes) -> Result<Self, BodyError> {
        decode_json(&bytes).map(Self)
    }
}

/// For the derive macro: a value as compact JSON.
///
/// # Errors
/// [`BodyError`] for a value that JSON cannot hold.
pub fn encode_json<T: Serialize>(value: &T) -> Result<Bytes, BodyError> {
    serde_json::to_vec(value).map(Bytes::from).map_err(|error| BodyError(error.to_string()))
}

/// For the derive macro: a value from JSON.
///
/// # Errors
/// [`BodyError`], which names the place and not the text: it is foreign.
pub fn decode_json<T: DeserializeOwned>(bytes: &[u8]) -> Result<T, BodyError> {
    serde_json::from_slice(bytes).map_err(|error| {
        BodyError(format!(
            "not the JSON expected (byte {} of line {})",
            error.column(),
            error.line()
        ))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bodies_round_trip() {
        let raw = Bytes::from_static(b"\0\xff");
        assert_eq!(Bytes::decode(raw.encode().expect("bytes")), Ok(raw));
        let json = Json(vec![1, 2]);
        assert_eq!(Json::decode(json.encode().expect("json")), Ok(json));
        assert_eq!(<()>::decode(().encode().expect("nothing")), Ok(()));
        assert!(<()>::decode(Bytes::from_static(b"x")).is_err());
    }

    #[test]
    fn an_error_does_not_repeat_foreign_text() {
        let error = decode_json::<u32>(b"\"secret\"").expect_err("not a number");
        assert!(!error.to_string().contains("secret"));
    }
}
