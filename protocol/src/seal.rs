//! Sealing: output that only the client which asked can read (db-forward §5.6).
//!
//! `sealed = "CDR1" | sender public key 65 | nonce 12 | AES-256-GCM ciphertext and tag`. The key is
//! HKDF-SHA256 over the P-256 ECDH x coordinate with both public keys as salt; a fresh sender key
//! for each seal. The associated data binds the place, so that a chunk moved to another read,
//! reordered or relabelled as last does not open.

use std::fmt;

use aes_gcm::aead::inout::InOutBuf;
use aes_gcm::{AeadInOut, Aes256Gcm, KeyInit, Nonce, Tag};
use hkdf::Hkdf;
use p256::elliptic_curve::sec1::ToSec1Point;
use p256::{PublicKey, SecretKey};
use serde::{Deserialize, Serialize};
use sha2::Sha256;
use thiserror::Error;
use zeroize::Zeroizing;

use crate::ids::ReadId;
use crate::{Entropy, base64_text, draw};

const MAGIC: &[u8; 4] = b"CDR1";
const INFO: &[u8] = b"carlos-db-read-v1";
const AAD_DOMAIN: &[u8] = b"carlos-db-read-v1\0";
const POINT: usize = 65;
const NONCE: usize = 12;
const TAG: usize = 16;
const HEAD: usize = MAGIC.len() + POINT + NONCE;

/// What sealing adds to a plaintext, in bytes.
pub const SEAL_OVERHEAD: usize = HEAD + TAG;

/// Draws of a P-256 scalar before the source counts as broken: one draw falls outside the group
/// with a chance of 2^-32.
const SCALAR_DRAWS: usize = 16;

/// What a sealed piece is part of.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
#[repr(u8)]
pub enum Stream {
    /// The row stream.
    Rows = 1,
    /// The summary inside `result.json`.
    Summary = 2,
}

/// Where a sealed piece belongs; all of it is authenticated.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Place {
    /// The read.
    pub id: ReadId,
    /// The chunk's number from 1; 0 for the summary.
    pub seq: u64,
    /// Rows or summary.
    pub stream: Stream,
    /// Whether nothing follows in this stream.
    pub last: bool,
}

impl Place {
    /// The place of a chunk of rows.
    pub fn rows(id: ReadId, seq: u64, last: bool) -> Self {
        Self { id, seq, stream: Stream::Rows, last }
    }

    /// The place of a read's one summary.
    pub fn summary(id: ReadId) -> Self {
        Self { id, seq: 0, stream: Stream::Summary, last: true }
    }

    fn associated_data(&self) -> Vec<u8> {
        let mut data = Vec::with_capacity(AAD_DOMAIN.len() + ReadId::LEN + 10);
        data.extend_from_slice(AAD_DOMAIN);
        data.extend_from_slice(self.id.as_text().as_bytes());
        data.extend_from_slice(&self.seq.to_be_bytes());
        data.extend([self.stream as u8, u8::from(self.last)]);
        data
    }
}

/// Why sealed bytes did not open. Says nothing about the contents.
#[derive(Clone, Copy, Debug, Eq, Error, PartialEq)]
pub enum OpenError {
    /// Not sealed for this key and this place, or changed since.
    #[error("the sealed bytes do not open here")]
    Tag,
    /// Too short, or another layout.
    #[error("not sealed bytes")]
    Malformed,
}

/// The text is not a P-256 point in uncompressed form.
#[derive(Clone, Copy, Debug, Eq, Error, PartialEq)]
#[error("not a P-256 public key")]
pub struct ReplyKeyError;

/// The private half of a read's key pair: lives in the client's memory for one read.
pub struct ReplyKey(SecretKey);

impl ReplyKey {
    /// Draws a fresh key.
    pub fn generate(entropy: &mut dyn Entropy) -> Self {
        Self(scalar(entropy))
    }

    /// The public half, which travels in the request.
    pub fn public(&self) -> ReplyPublic {
        ReplyPublic(self.0.public_key())
    }
}

impl fmt::Debug for ReplyKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("ReplyKey(secret)")
    }
}

/// The public half of a read's key pair: base64 of the 65-byte uncompressed point.
#[derive(Clone, Copy, Debug, Deserialize, Eq, PartialEq, Serialize)]
#[serde(try_from = "String", into = "String")]
pub struct ReplyPublic(PublicKey);

impl ReplyPublic {
    /// Reads base64 of an uncompressed point that lies on the curve.
    ///
    /// # Errors
    /// [`ReplyKeyError`] for anything else, the compressed form included: one text for each key.
    pub fn parse(text: &str) -> Result<Self, ReplyKeyError> {
        let point: [u8; POINT] = base64_text::decode_array(text).ok_or(ReplyKeyError)?;
        read_point(&point).map(Self).ok_or(ReplyKeyError)
    }

    /// The 65-byte uncompressed point.
    pub fn to_point(&self) -> [u8; POINT] {
        let point = self.0.to_sec1_point(false);
        point.as_bytes().try_into().expect("an uncompressed P-256 point has 65 bytes")
    }
}

impl fmt::Display for ReplyPublic {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&base64_text::encode(&self.to_point()))
    }
}

impl From<ReplyPublic> for String {
    fn from(key: ReplyPublic) -> Self {
        key.to_string()
    }
}

impl TryFrom<String> for ReplyPublic {
    type Error = ReplyKeyError;

    fn try_from(text: String) -> Result<Self, ReplyKeyError> {
        Self::parse(&text)
    }
}

/// Seals `plaintext` for `recipient` at `place`. Draws 32 bytes for the sender key, then 12 for
/// the nonce.
pub fn seal(
    entropy: &mut dyn Entropy,
    recipient: &ReplyPublic,
    place: &Place,
    plaintext: &[u8],
) -> Vec<u8> {
    let sender = ReplyKey(scalar(entropy));
    let nonce: [u8; NONCE] = draw(entropy);
    let sender_point = sender.public().to_point();
    let cipher = cipher(&sender.0, &recipient.0, &sender_point, &recipient.to_point());

    let mut sealed = Vec::with_capacity(plaintext.len() + SEAL_OVERHEAD);
    sealed.extend_from_slice(MAGIC);
    sealed.extend_from_slice(&sender_point);
    sealed.extend_from_slice(&nonce);
    sealed.extend_from_slice(plaintext);
    let body = InOutBuf::from(&mut sealed[HEAD..]);
    let tag = cipher
        .encrypt_inout_detached(&Nonce::from(nonce), &place.associated_data(), body)
        .expect("a chunk is far below the 64 GiB that GCM can seal");
    sealed.extend_from_slice(&tag);
    sealed
}

/// Opens what [`seal`] made for this key and place.
///
/// # Errors
/// [`OpenError`]: `Tag` when key, place or bytes differ in anything.
pub fn open(key: &ReplyKey, place: &Place, sealed: &[u8]) -> Result<Vec<u8>, OpenError> {
    let parts = Parts::of(sealed).ok_or(OpenError::Malformed)?;
    let sender = read_point(parts.sender).ok_or(OpenError::Malformed)?;
    let cipher = cipher(&key.0, &sender, parts.sender, &key.public().to_point());
    let mut plaintext = parts.body.to_vec();
    let body = InOutBuf::from(plaintext.as_mut_slice());
    let (nonce, tag) = (Nonce::from(*parts.nonce), Tag::from(*parts.tag));
    cipher
        .decrypt_inout_detached(&nonce, &place.associated_data(), body, &tag)
        .map_err(|_| OpenError::Tag)?;
    Ok(plaintext)
}

struct Parts<'a> {
    sender: &'a [u8; POINT],
    nonce: &'a [u8; NONCE],
    body: &'a [u8],
    tag: &'a [u8; TAG],
}

impl<'a> Parts<'a> {
    fn of(sealed: &'a [u8]) -> Option<Self> {
        let rest = sealed.strip_prefix(MAGIC)?;
        let (sender, rest) = rest.split_first_chunk()?;
        let (nonce, rest) = rest.split_first_chunk()?;
        let (body, tag) = rest.split_last_chunk()?;
        Some(Self { sender, nonce, body, tag })
    }
}

/// The compressed and the hybrid forms are refused: one text for each key.
fn read_point(point: &[u8; POINT]) -> Option<PublicKey> {
    if point[0] != 4 {
        return None;
    }
    PublicKey::from_sec1_bytes(point).ok()
}

fn cipher(
    own: &SecretKey,
    peer: &PublicKey,
    sender: &[u8; POINT],
    recipient: &[u8; POINT],
) -> Aes256Gcm {
    let shared = own.diffie_hellman(peer);
    let mut salt = [0; 2 * POINT];
    salt[..POINT].copy_from_slice(sender);
    salt[POINT..].copy_from_slice(recipient);
    let mut key = Zeroizing::new([0; 32]);
    Hkdf::<Sha256>::new(Some(&salt), shared.raw_secret_bytes())
        .expand(INFO, key.as_mut())
        .expect("32 bytes are below HKDF's bound");
    Aes256Gcm::new_from_slice(key.as_ref()).expect("the key has 32 bytes")
}

fn scalar(entropy: &mut dyn Entropy) -> SecretKey {
    (0..SCALAR_DRAWS)
        .find_map(|_| {
            let bytes: Zeroizing<[u8; 32]> = Zeroizing::new(draw(entropy));
            SecretKey::from_slice(bytes.as_ref()).ok()
        })
        .expect("sixteen uniform draws do not all fall into a gap of 2^-32")
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::testing::Counter;

    fn place() -> Place {
        Place::rows(ReadId::from_bytes([7; 16]), 3, false)
    }

    #[test]
    fn what_is_sealed_opens_at_its_place_only() {
        let key = ReplyKey::generate(&mut Counter(1));
        let sealed = seal(&mut Counter(2), &key.public(), &place(), b"rows");
        assert_eq!(sealed.len(), 4 + SEAL_OVERHEAD);
        assert_eq!(open(&key, &place(), &sealed), Ok(b"rows".to_vec()));
        let elsewhere = [
            Place { id: ReadId::from_bytes([8; 16]), ..place() },
            Place { seq: 4, ..place() },
            Place { stream: Stream::Summary, ..place() },
            Place { last: true, ..place() },
        ];
        for place in elsewhere {
            assert_eq!(open(&key, &place, &sealed), Err(OpenError::Tag), "{place:?}");
        }
        let stranger = ReplyKey::generate(&mut Counter(3));
        assert_eq!(open(&stranger, &place(), &sealed), Err(OpenError::Tag));
    }

    #[test]
    fn an_empty_answer_still_seals_one_chunk() {
        let key = ReplyKey::generate(&mut Counter(1));
        let last = Place::rows(ReadId::from_bytes([7; 16]), 1, true);
        let sealed = seal(&mut Counter(2), &key.public(), &last, b"");
        assert_eq!(sealed.len(), SEAL_OVERHEAD);
        assert_eq!(open(&key, &last, &sealed), Ok(Vec::new()));
    }

    #[test]
    fn each_seal_has_a_sender_key_of_its_own() {
        let key = ReplyKey::generate(&mut Counter(1)).public();
        let mut entropy = Counter(2);
        let first = seal(&mut entropy, &key, &place(), b"rows");
        let second = seal(&mut entropy, &key, &place(), b"rows");
        assert_ne!(first[4..69], second[4..69]);
    }

    #[test]
    fn public_keys_off_the_curve_or_in_another_form_are_refused() {
        let good = ReplyKey::generate(&mut Counter(1)).public();
        assert_eq!(ReplyPublic::parse(&good.to_string()), Ok(good));
        let mut point = good.to_point();
        point[64] ^= 1;
        assert!(ReplyPublic::parse(&base64_text::encode(&point)).is_err());
        let compressed = good.0.to_sec1_point(true);
        assert!(ReplyPublic::parse(&base64_text::encode(compressed.as_bytes())).is_err());
        let mut hybrid = good.to_point();
        hybrid[0] = 6 + (hybrid[64] & 1);
        assert!(ReplyPublic::parse(&base64_text::encode(&hybrid)).is_err());
        assert!(ReplyPublic::parse(&base64_text::encode(&[0; 65])).is_err());
    }

    #[test]
    fn the_private_key_is_not_shown() {
        let key = ReplyKey::generate(&mut Counter(1));
        assert_eq!(format!("{key:?}"), "ReplyKey(secret)");
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(64))]

        #[test]
        fn one_changed_byte_never_opens(at: usize, flip in 1..=255_u8, body: Vec<u8>) {
            let key = ReplyKey::generate(&mut Counter(1));
            let mut sealed = seal(&mut Counter(2), &key.public(), &place(), &body);
            prop_assert_eq!(open(&key, &place(), &sealed), Ok(body));
            let at = at % sealed.len();
            sealed[at] ^= flip;
            prop_assert!(open(&key, &place(), &sealed).is_err());
        }
    }
}
