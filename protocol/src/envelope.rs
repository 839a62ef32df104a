//! The root envelope: a signed payload that no writer of the bucket can make for itself.
//!
//! `{"payload":"<base64>","key":"<key id>","sig":"<base64>"}`, an Ed25519 signature over a domain
//! and the payload bytes. The payload is canonical JSON whose purpose is fixed by its type, so one
//! signed thing can never be read as another (db-forward §5.5).

use std::collections::BTreeMap;
use std::fmt;
use std::str::FromStr;

use data_encoding::HEXLOWER;
use ed25519_dalek::{Signature, Signer as _, SigningKey, VerifyingKey};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};
use thiserror::Error;
use zeroize::Zeroizing;

use crate::canon::{self, CanonError};
use crate::ids::IdError;
use crate::limits::{ENVELOPE_BYTES, PAYLOAD_BYTES, RECORD_BYTES};
use crate::{Entropy, base64_text, draw};

const SIGN_DOMAIN: &[u8] = b"carlos-root-envelope-v1\0";
const ROOT_ID_DOMAIN: &[u8] = b"carlos-root-key-v1\0";
const SCOPED_ID_DOMAIN: &[u8] = b"carlos-scoped-key-v1\0";

/// A payload that a root key signs. Its first two JSON fields are `purpose` and `v`.
pub trait Payload: Serialize + DeserializeOwned {
    /// The fixed purpose of this type.
    const PURPOSE: &'static str;

    /// The one version this code knows.
    const VERSION: u32;
}

/// Which key signed: `rk_` or `sk_` and 16 hex digits.
#[derive(Clone, Debug, Deserialize, Eq, Hash, Ord, PartialEq, PartialOrd, Serialize)]
#[serde(try_from = "String", into = "String")]
pub struct KeyId(String);

impl KeyId {
    /// The id of a root key.
    pub fn of_root(public: &[u8; 32]) -> Self {
        let hash = Sha256::new_with_prefix(ROOT_ID_DOMAIN).chain_update(public);
        Self(format!("rk_{}", HEXLOWER.encode(&hash.finalize()[..8])))
    }

    /// The id of a key that a root key certified for one purpose.
    pub fn of_scoped(purpose: &str, public: &[u8; 32]) -> Self {
        let hash = Sha256::new_with_prefix(SCOPED_ID_DOMAIN)
            .chain_update(purpose)
            .chain_update(b"\0")
            .chain_update(public);
        Self(format!("sk_{}", HEXLOWER.encode(&hash.finalize()[..8])))
    }

    /// Reads an id.
    ///
    /// # Errors
    /// [`IdError`] for any other text.
    pub fn parse(text: &str) -> Result<Self, IdError> {
        let hex = text.strip_prefix("rk_").or_else(|| text.strip_prefix("sk_"));
        let good =
            hex.is_some_and(|hex| hex.len() == 16 && HEXLOWER.decode(hex.as_bytes()).is_ok());
        if good { Ok(Self(text.to_owned())) } else { Err(IdError { kind: "key id" }) }
    }

    /// Whether this names a scoped key.
    pub fn is_scoped(&self) -> bool {
        self.0.starts_with("sk_")
    }

    /// The id's one text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for KeyId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl From<KeyId> for String {
    fn from(id: KeyId) -> Self {
        id.0
    }
}

impl TryFrom<String> for KeyId {
    type Error = IdError;

    fn try_from(text: String) -> Result<Self, IdError> {
        Self::parse(&text)
    }
}

/// A public key as its holder's peers configure it: base64 of 32 bytes.
#[derive(Clone, Copy, Debug, Deserialize, Eq, PartialEq, Serialize)]
#[serde(try_from = "String", into = "String")]
pub struct PublicKey(VerifyingKey);

impl PublicKey {
    /// Reads base64 of a key that is not of small order (such a key verifies anything).
    ///
    /// # Errors
    /// [`IdError`] for any other text.
    pub fn parse(text: &str) -> Result<Self, IdError> {
        let key = base64_text::decode_array(text)
            .and_then(|bytes| VerifyingKey::from_bytes(&bytes).ok())
            .filter(|key| !key.is_weak());
        key.map(Self).ok_or(IdError { kind: "public key" })
    }

    /// The 32 bytes.
    pub fn as_bytes(&self) -> &[u8; 32] {
        self.0.as_bytes()
    }
}

impl fmt::Display for PublicKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&base64_text::encode(self.0.as_bytes()))
    }
}

impl FromStr for PublicKey {
    type Err = IdError;

    fn from_str(text: &str) -> Result<Self, IdError> {
        Self::parse(text)
    }
}

impl From<PublicKey> for String {
    fn from(key: PublicKey) -> Self {
        key.to_string()
    }
}

impl TryFrom<String> for PublicKey {
    type Error = IdError;

    fn try_from(text: String) -> Result<Self, IdError> {
        Self::parse(&text)
    }
}

/// The root keys a box accepts. Several, so that the root can be rotated.
#[derive(Clone, Debug, Default)]
pub struct RootKeys(BTreeMap<KeyId, PublicKey>);

impl RootKeys {
    /// Accepts one key more.
    pub fn insert(&mut self, key: PublicKey) -> KeyId {
        let id = KeyId::of_root(key.as_bytes());
        self.0.insert(id.clone(), key);
        id
    }

    /// Reads public keys separated by commas: the form of configuration.
    ///
    /// # Errors
    /// [`IdError`] when one of them is not a key, or there is none.
    pub fn parse(text: &str) -> Result<Self, IdError> {
        text.split(',').map(|key| PublicKey::parse(key.trim())).collect()
    }

    /// Whether no key is accepted.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The accepted keys' ids.
    pub fn ids(&self) -> impl Iterator<Item = &KeyId> {
        self.0.keys()
    }
}

impl FromIterator<PublicKey> for RootKeys {
    fn from_iter<I: IntoIterator<Item = PublicKey>>(keys: I) -> Self {
        let mut roots = Self::default();
        keys.into_iter().for_each(|key| drop(roots.insert(key)));
        roots
    }
}

/// The envelope as it lies in the bucket.
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize)]
#[serde(deny_unknown_fields)]
pub struct Envelope {
    #[serde(with = "base64_text")]
    payload: Vec<u8>,
    key: KeyId,
    #[serde(with = "base64_text")]
    sig: Vec<u8>,
}

impl Envelope {
    /// The bytes of the object.
    pub fn to_bytes(&self) -> Vec<u8> {
        canon::encode(self)
    }

    /// Reads the bytes of an object; verifies nothing.
    ///
    /// # Errors
    /// [`VerifyError::Malformed`] or [`VerifyError::NotCanonical`].
    pub fn from_bytes(bytes: &[u8]) -> Result<Self, VerifyError> {
        Ok(canon::decode(bytes, ENVELOPE_BYTES)?)
    }
}

/// Why a payload was not signed.
#[derive(Clone, Copy, Debug, Eq, Error, PartialEq)]
pub enum SignError {
    /// The payload is larger than any reader accepts.
    #[error("the payload is larger than {PAYLOAD_BYTES} bytes")]
    PayloadTooLarge,
    /// Only a root key signs envelopes.
    #[error("a scoped key cannot sign an envelope")]
    ScopedKey,
}

/// Why an envelope was not accepted.
#[derive(Clone, Copy, Debug, Eq, Error, PartialEq)]
pub enum VerifyError {
    /// The signature is not this key's over these bytes.
    #[error("the signature does not fit")]
    BadSignature,
    /// Not an envelope, or not the payload's fields.
    #[error("not an envelope of this protocol")]
    Malformed,
    /// A second spelling of an envelope or a payload.
    #[error("the envelope is not in its canonical form")]
    NotCanonical,
    /// Signed by a key that is certified for one purpose only.
    #[error("signed by a scoped key")]
    ScopedKey,
    /// Signed by a key this reader does not accept.
    #[error("signed by an unknown key")]
    UnknownKey,
    /// A payload of this purpose, in a version this code does not know.
    #[error("a version this program does not know")]
    UnknownVersion,
    /// A root-signed payload of another kind.
    #[error("signed for another purpose")]
    WrongPurpose,
}

impl From<CanonError> for VerifyError {
    fn from(error: CanonError) -> Self {
        match error {
            CanonError::NotCanonical => Self::NotCanonical,
            CanonError::Malformed { .. } | CanonError::TooLarge { .. } => Self::Malformed,
        }
    }
}

/// What decides whether the whole payload is worth reading.
#[derive(Deserialize)]
struct Head {
    purpose: String,
    v: u32,
}

/// Verifies an envelope's bytes and reads its payload.
///
/// # Errors
/// [`VerifyError`]; nothing of the payload is looked at before its signature fits.
pub fn verify<P: Payload>(roots: &RootKeys, bytes: &[u8]) -> Result<P, VerifyError> {
    let envelope = Envelope::from_bytes(bytes)?;
    if envelope.key.is_scoped() {
        return Err(VerifyError::ScopedKey);
    }
    let PublicKey(key) = roots.0.get(&envelope.key).ok_or(VerifyError::UnknownKey)?;
    let sig = Signature::from_slice(&envelope.sig).map_err(|_| VerifyError::BadSignature)?;
    // Strict: the lax check accepts several signatures for one message.
    key.verify_strict(&signed_bytes(&envelope.payload), &sig)
        .map_err(|_| VerifyError::BadSignature)?;
    read_payload(&envelope.payload)
}

fn read_payload<P: Payload>(payload: &[u8]) -> Result<P, VerifyError> {
    let head: Head = canon::decode_loose(payload, PAYLOAD_BYTES)?;
    if head.purpose != P::PURPOSE {
        return Err(VerifyError::WrongPurpose);
    }
    if head.v != P::VERSION {
        return Err(VerifyError::UnknownVersion);
    }
    Ok(canon::decode(payload, PAYLOAD_BYTES)?)
}

fn signed_bytes(payload: &[u8]) -> Vec<u8> {
    [SIGN_DOMAIN, payload].concat()
}

/// Whether a key may sign envelopes.
#[derive(Clone, Copy, Debug, Deserialize, Eq, PartialEq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum KeyKind {
    /// Signs envelopes.
    Root,
    /// Certified by a root key for one purpose; cannot sign envelopes.
    Scoped,
}

/// A private key as its file holds it.
#[derive(Clone)]
pub struct KeyFile {
    id: KeyId,
    purpose: Option<String>,
    secret: Zeroizing<[u8; 32]>,
    cert: Option<Envelope>,
}

impl KeyFile {
    /// Draws a root key.
    pub fn generate_root(entropy: &mut dyn Entropy) -> Self {
        let secret = Zeroizing::new(draw(entropy));
        let id = KeyId::of_root(&public_of(&secret));
        Self { id, purpose: None, secret, cert: None }
    }

    /// Draws a key for one purpose and certifies it with this root key.
    ///
    /// # Errors
    /// [`SignError::ScopedKey`] when this key is itself a scoped one.
    pub fn generate_scoped(
        &self,
        entropy: &mut dyn Entropy,
        purpose: &str,
    ) -> Result<Self, SignError> {
        let secret = Zeroizing::new(draw(entropy));
        let public = public_of(&secret);
        let id = KeyId::of_scoped(purpose, &public);
        let cert = self.sign(&ScopedCert::new(&id, purpose, &public))?;
        Ok(Self { id, purpose: Some(purpose.to_owned()), secret, cert: Some(cert) })
    }

    /// The key's id.
    pub fn id(&self) -> &KeyId {
        &self.id
    }

    /// Root or scoped.
    pub fn kind(&self) -> KeyKind {
        if self.id.is_scoped() { KeyKind::Scoped } else { KeyKind::Root }
    }

    /// The public half, as peers configure it.
    pub fn public(&self) -> PublicKey {
        PublicKey(SigningKey::from_bytes(&self.secret).verifying_key())
    }

    /// Signs a payload.
    ///
    /// # Errors
    /// [`SignError`]: only a root key signs, and only what a reader would accept.
    pub fn sign<P: Payload>(&self, payload: &P) -> Result<Envelope, SignError> {
        if self.kind() == KeyKind::Scoped {
            return Err(SignError::ScopedKey);
        }
        let payload = canon::encode(payload);
        if payload.len() > PAYLOAD_BYTES {
            return Err(SignError::PayloadTooLarge);
        }
        let sig = SigningKey::from_bytes(&self.secret).sign(&signed_bytes(&payload));
        Ok(Envelope { payload, key: self.id.clone(), sig: sig.to_bytes().to_vec() })
    }

    /// The file's text. A secret: the caller writes it with mode 0600.
    pub fn to_json(&self) -> Zeroizing<Vec<u8>> {
        Zeroizing::new(canon::encode(&KeyFileText {
            kind: self.kind(),
            id: self.id.clone(),
            purpose: self.purpose.clone(),
            secret: Zeroizing::new(base64_text::encode(self.secret.as_ref())),
            cert: self.cert.clone(),
        }))
    }

    /// Reads a file's text, which may end in a newline.
    ///
    /// # Errors
    /// [`KeyFileError`], also when the id is not the key's own.
    pub fn from_json(bytes: &[u8]) -> Result<Self, KeyFileError> {
        let text: KeyFileText =
            canon::decode_loose(bytes, RECORD_BYTES).map_err(|_| KeyFileError)?;
        let secret = base64_text::decode_array(&text.secret).ok_or(KeyFileError)?;
        let secret = Zeroizing::new(secret);
        let public = public_of(&secret);
        let id = match (text.kind, &text.purpose) {
            (KeyKind::Root, None) => KeyId::of_root(&public),
            (KeyKind::Scoped, Some(purpose)) => KeyId::of_scoped(purpose, &public),
            _ => return Err(KeyFileError),
        };
        if id != text.id {
            return Err(KeyFileError);
        }
        Ok(Self { id, purpose: text.purpose, secret, cert: text.cert })
    }
}

impl fmt::Debug for KeyFile {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("KeyFile").field("id", &self.id.as_str()).finish_non_exhaustive()
    }
}

/// The file is not a key of this protocol. Nothing of its contents is repeated: a secret.
#[derive(Clone, Copy, Debug, Eq, Error, PartialEq)]
#[error("not a key file")]
pub struct KeyFileError;

#[derive(Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
struct KeyFileText {
    kind: KeyKind,
    id: KeyId,
    #[serde(skip_serializing_if = "Option::is_none")]
    purpose: Option<String>,
    secret: Zeroizing<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    cert: Option<Envelope>,
}

fn public_of(secret: &[u8; 32]) -> [u8; 32] {
    SigningKey::from_bytes(secret).verifying_key().to_bytes()
}

/// What a root key says about a scoped one.
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize)]
#[serde(deny_unknown_fields)]
pub struct ScopedCert {
    purpose: String,
    v: u32,
    /// The scoped key's id.
    pub key: KeyId,
    /// The only thing the key may sign.
    pub scope: String,
    /// The scoped key's public half, in base64.
    #[serde(with = "base64_text")]
    pub public: Vec<u8>,
}

impl ScopedCert {
    fn new(key: &KeyId, scope: &str, public: &[u8; 32]) -> Self {
        Self {
            purpose: Self::PURPOSE.to_owned(),
            v: Self::VERSION,
            key: key.clone(),
            scope: scope.to_owned(),
            public: public.to_vec(),
        }
    }
}

impl Payload for ScopedCert {
    const PURPOSE: &'static str = "carlos-scoped-key-v1";
    const VERSION: u32 = 1;
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::testing::Counter;

    #[derive(Debug, Deserialize, PartialEq, Serialize)]
    #[serde(deny_unknown_fields)]
    struct Note {
        purpose: String,
        v: u32,
        text: String,
    }

    impl Payload for Note {
        const PURPOSE: &'static str = "carlos-test-note-v1";
        const VERSION: u32 = 1;
    }

    fn note(text: &str) -> Note {
        Note { purpose: Note::PURPOSE.into(), v: 1, text: text.into() }
    }

    fn root() -> (KeyFile, RootKeys) {
        let key = KeyFile::generate_root(&mut Counter(1));
        let roots = [key.public()].into_iter().collect();
        (key, roots)
    }

    /// Signs bytes that no honest writer would.
    fn sign_raw(key: &KeyFile, payload: &[u8]) -> Vec<u8> {
        let sig = SigningKey::from_bytes(&key.secret).sign(&signed_bytes(payload));
        let sig = sig.to_bytes().to_vec();
        Envelope { payload: payload.to_vec(), key: key.id.clone(), sig }.to_bytes()
    }

    #[test]
    fn a_root_signed_payload_is_read() {
        let (key, roots) = root();
        let bytes = key.sign(&note("hello")).expect("root").to_bytes();
        assert_eq!(verify(&roots, &bytes), Ok(note("hello")));
    }

    #[test]
    fn a_second_root_is_accepted_while_rotating() {
        let (old, mut roots) = root();
        let new = KeyFile::generate_root(&mut Counter(2));
        let bytes = new.sign(&note("x")).expect("root").to_bytes();
        assert_eq!(verify::<Note>(&roots, &bytes), Err(VerifyError::UnknownKey));
        roots.insert(new.public());
        assert!(verify::<Note>(&roots, &bytes).is_ok());
        let text = format!("{}, {}", old.public(), new.public());
        assert_eq!(RootKeys::parse(&text).expect("two").ids().count(), 2);
        assert!(RootKeys::parse("").is_err());
    }

    #[test]
    fn a_scoped_key_neither_signs_nor_verifies() {
        let (key, roots) = root();
        let scoped = key.generate_scoped(&mut Counter(3), "release").expect("root");
        assert_eq!(scoped.sign(&note("x")), Err(SignError::ScopedKey));
        assert_eq!(verify::<Note>(&roots, &sign_raw(&scoped, b"{}")), Err(VerifyError::ScopedKey));
        // Under a root's id its signature does not fit.
        let mut posing = scoped.clone();
        posing.id = key.id.clone();
        let bytes = posing.sign(&note("x")).expect("poses as root").to_bytes();
        assert_eq!(verify::<Note>(&roots, &bytes), Err(VerifyError::BadSignature));
        let cert: ScopedCert =
            verify(&roots, &scoped.cert.expect("certified").to_bytes()).expect("root-signed");
        assert_eq!((cert.key, cert.scope.as_str()), (scoped.id, "release"));
    }

    #[test]
    fn purpose_version_and_form_are_checked_after_the_signature() {
        let (key, roots) = root();
        let cases: [(&[u8], VerifyError); 5] = [
            (br#"{"purpose":"carlos-other-v1","v":1}"#, VerifyError::WrongPurpose),
            (br#"{"purpose":"carlos-test-note-v1","v":2,"new":0}"#, VerifyError::UnknownVersion),
            (br#"{"purpose":"carlos-test-note-v1","v":1}"#, VerifyError::Malformed),
            (br#"{"v":1,"purpose":"carlos-test-note-v1","text":""}"#, VerifyError::NotCanonical),
            (b"", VerifyError::Malformed),
        ];
        for (payload, error) in cases {
            assert_eq!(verify::<Note>(&roots, &sign_raw(&key, payload)), Err(error));
        }
    }

    #[test]
    fn the_envelope_itself_has_one_form() {
        let (key, roots) = root();
        let bytes = key.sign(&note("x")).expect("root").to_bytes();
        let spaced = [bytes.as_slice(), b"\n"].concat();
        assert_eq!(verify::<Note>(&roots, &spaced), Err(VerifyError::NotCanonical));
        let short = String::from_utf8(bytes).expect("JSON").replace("\"sig\":\"", "\"sig\":\"AAAA");
        assert_eq!(verify::<Note>(&roots, short.as_bytes()), Err(VerifyError::BadSignature));
    }

    #[test]
    fn key_files_round_trip_and_hide_their_secret() {
        let (key, _) = root();
        let scoped = key.generate_scoped(&mut Counter(3), "release").expect("root");
        for key in [key, scoped] {
            let text = key.to_json();
            let read = KeyFile::from_json(&text).expect("own file");
            assert_eq!((read.id(), read.kind()), (key.id(), key.kind()));
            assert_eq!(read.to_json(), text);
            let secret = base64_text::encode(key.secret.as_ref());
            assert!(!format!("{key:?}").contains(&secret));
        }
    }

    #[test]
    fn a_key_file_under_a_foreign_id_is_refused() {
        let (key, _) = root();
        let other = KeyFile::generate_root(&mut Counter(9));
        let text = String::from_utf8(key.to_json().to_vec()).expect("JSON");
        let forged = text.replace(key.id().as_str(), other.id().as_str());
        assert_eq!(KeyFile::from_json(forged.as_bytes()).err(), Some(KeyFileError));
        assert!(KeyFile::from_json(b"{}").is_err());
    }

    #[test]
    fn keys_of_small_order_are_refused() {
        let mut identity = [0; 32];
        identity[0] = 1;
        assert!(PublicKey::parse(&base64_text::encode(&identity)).is_err());
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(128))]

        #[test]
        fn one_changed_byte_is_never_accepted(text: String, at: usize, flip in 1..=255_u8) {
            let (key, roots) = root();
            let mut bytes = key.sign(&note(&text)).expect("root").to_bytes();
            prop_assert_eq!(verify(&roots, &bytes), Ok(note(&text)));
            let at = at % bytes.len();
            bytes[at] ^= flip;
            prop_assert!(verify::<Note>(&roots, &bytes).is_err());
        }
    }
}
