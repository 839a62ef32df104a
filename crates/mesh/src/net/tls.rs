//! TLS 1.3 with raw public keys on both sides (RFC 7250, decision 10): each end proves that it
//! holds the key it shows. Whether that key is the right one is the core's question.

use std::fmt;
use std::io;
use std::sync::Arc;

use carlos_protocol::mesh::Identity;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::client::{AlwaysResolvesClientRawPublicKeys, Resumption};
use rustls::crypto::{CryptoProvider, ring, verify_tls13_signature_with_raw_key};
use rustls::pki_types::{
    CertificateDer, PrivateKeyDer, PrivatePkcs8KeyDer, ServerName, SubjectPublicKeyInfoDer,
    UnixTime,
};
use rustls::server::danger::{ClientCertVerified, ClientCertVerifier};
use rustls::server::{AlwaysResolvesServerRawPublicKeys, NoServerSessionStorage};
use rustls::sign::CertifiedKey;
use rustls::version::TLS13;
use rustls::{
    CertificateError, ClientConfig, DigitallySignedStruct, DistinguishedName, Error, ServerConfig,
    SignatureScheme,
};
use thiserror::Error as ThisError;
use tokio_rustls::{TlsAcceptor, TlsConnector};
use zeroize::Zeroizing;

use super::Stream;

/// RFC 8410: an ed25519 public key with its algorithm, before the key's 32 bytes.
const SPKI_PREFIX: [u8; 12] =
    [0x30, 0x2a, 0x30, 0x05, 0x06, 0x03, 0x2b, 0x65, 0x70, 0x03, 0x21, 0x00];

/// RFC 8410: an ed25519 private key in PKCS #8, before the seed's 32 bytes.
const PKCS8_PREFIX: [u8; 16] = [
    0x30, 0x2e, 0x02, 0x01, 0x00, 0x30, 0x05, 0x06, 0x03, 0x2b, 0x65, 0x70, 0x04, 0x22, 0x04, 0x20,
];

/// What both ends say they speak.
const ALPN: &[u8] = b"routemesh/1";

/// A server name is required and means nothing here: it is not sent.
const NAME: &str = "routemesh.invalid";

/// TLS could not be set up with this key.
#[derive(Debug, ThisError)]
#[error("TLS: {0}")]
pub(crate) struct TlsError(#[from] Error);

/// A node's key and what TLS needs of it.
#[derive(Clone)]
pub(crate) struct Keys {
    identity: Identity,
    client: Arc<ClientConfig>,
    server: Arc<ServerConfig>,
}

impl fmt::Debug for Keys {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Keys").field("identity", &self.identity).finish_non_exhaustive()
    }
}

impl Keys {
    /// The key of a secret seed.
    ///
    /// # Errors
    /// [`TlsError`] when the provider takes no such key.
    pub(crate) fn new(seed: &[u8; 32]) -> Result<Self, TlsError> {
        let provider = Arc::new(provider());
        let identity = identity_of(seed);
        let key = certified(&provider, seed, identity)?;
        Ok(Self {
            identity,
            client: Arc::new(client_config(&provider, &key)?),
            server: Arc::new(server_config(&provider, &key)?),
        })
    }

    /// The public half.
    pub(crate) fn identity(&self) -> Identity {
        self.identity
    }

    /// Secures a stream that this end dialled; with the key that the other end proved.
    pub(crate) async fn dial(
        &self,
        stream: Box<dyn Stream>,
    ) -> io::Result<(Box<dyn Stream>, Identity)> {
        let name = ServerName::try_from(NAME).map_err(io::Error::other)?;
        let stream = TlsConnector::from(Arc::clone(&self.client)).connect(name, stream).await?;
        let proven = proven(stream.get_ref().1.peer_certificates())?;
        Ok((Box::new(stream), proven))
    }

    /// Secures a stream that the other end dialled.
    pub(crate) async fn accept(
        &self,
        stream: Box<dyn Stream>,
    ) -> io::Result<(Box<dyn Stream>, Identity)> {
        let stream = TlsAcceptor::from(Arc::clone(&self.server)).accept(stream).await?;
        let proven = proven(stream.get_ref().1.peer_certificates())?;
        Ok((Box::new(stream), proven))
    }
}

/// The public key of a secret seed.
pub(crate) fn identity_of(seed: &[u8; 32]) -> Identity {
    Identity::new(ed25519_dalek::SigningKey::from_bytes(seed).verifying_key().to_bytes())
}

/// AES-128 first: half the cost of AES-256, and as good for links that live for hours.
fn provider() -> CryptoProvider {
    let suites = [
        ring::cipher_suite::TLS13_AES_128_GCM_SHA256,
        ring::cipher_suite::TLS13_CHACHA20_POLY1305_SHA256,
        ring::cipher_suite::TLS13_AES_256_GCM_SHA384,
    ];
    CryptoProvider { cipher_suites: suites.to_vec(), ..ring::default_provider() }
}

fn certified(
    provider: &CryptoProvider,
    seed: &[u8; 32],
    identity: Identity,
) -> Result<Arc<CertifiedKey>, Error> {
    let pkcs8 = Zeroizing::new([&PKCS8_PREFIX[..], seed].concat());
    let der = PrivateKeyDer::Pkcs8(PrivatePkcs8KeyDer::from(pkcs8.to_vec()));
    let key = provider.key_provider.load_private_key(der)?;
    let spki = [&SPKI_PREFIX[..], identity.as_bytes()].concat();
    Ok(Arc::new(CertifiedKey::new(vec![CertificateDer::from(spki)], key)))
}

fn client_config(
    provider: &Arc<CryptoProvider>,
    key: &Arc<CertifiedKey>,
) -> Result<ClientConfig, Error> {
    let mut config = ClientConfig::builder_with_provider(Arc::clone(provider))
        .with_protocol_versions(&[&TLS13])?
        .dangerous()
        .with_custom_certificate_verifier(Arc::new(RawKeys(Arc::clone(provider))))
        .with_client_cert_resolver(Arc::new(AlwaysResolvesClientRawPublicKeys::new(Arc::clone(
            key,
        ))));
    config.alpn_protocols = vec![ALPN.to_vec()];
    config.enable_sni = false;
    // A resumed session would prove no key again.
    config.resumption = Resumption::disabled();
    Ok(config)
}

fn server_config(
    provider: &Arc<CryptoProvider>,
    key: &Arc<CertifiedKey>,
) -> Result<ServerConfig, Error> {
    let mut config = ServerConfig::builder_with_provider(Arc::clone(provider))
        .with_protocol_versions(&[&TLS13])?
        .with_client_cert_verifier(Arc::new(RawKeys(Arc::clone(provider))))
        .with_cert_resolver(Arc::new(AlwaysResolvesServerRawPublicKeys::new(Arc::clone(key))));
    config.alpn_protocols = vec![ALPN.to_vec()];
    config.session_storage = Arc::new(NoServerSessionStorage {});
    config.send_tls13_tickets = 0;
    Ok(config)
}

fn proven(shown: Option<&[CertificateDer<'_>]>) -> io::Result<Identity> {
    let key = shown.and_then(|shown| shown.first()).and_then(raw_key);
    key.ok_or_else(|| io::Error::new(io::ErrorKind::InvalidData, "the peer proved no key"))
}

/// The ed25519 key in what a peer shows.
fn raw_key(shown: &CertificateDer<'_>) -> Option<Identity> {
    let key = shown.strip_prefix(&SPKI_PREFIX)?;
    Some(Identity::new(key.try_into().ok()?))
}

/// Takes any raw ed25519 key, if its holder signed this very handshake.
#[derive(Debug)]
struct RawKeys(Arc<CryptoProvider>);

impl RawKeys {
    fn shown(&self, shown: &CertificateDer<'_>) -> Result<(), Error> {
        match raw_key(shown) {
            Some(_) => Ok(()),
            None => Err(Error::InvalidCertificate(CertificateError::BadEncoding)),
        }
    }

    fn signed(
        &self,
        message: &[u8],
        shown: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        let spki = SubjectPublicKeyInfoDer::from(shown.as_ref());
        let schemes = &self.0.signature_verification_algorithms;
        verify_tls13_signature_with_raw_key(message, &spki, signature, schemes)
    }
}

/// TLS 1.2 is not spoken.
fn never() -> Error {
    Error::General("TLS 1.2 is not spoken".into())
}

impl ServerCertVerifier for RawKeys {
    fn verify_server_cert(
        &self,
        shown: &CertificateDer<'_>,
        _intermediates: &[CertificateDer<'_>],
        _name: &ServerName<'_>,
        _ocsp: &[u8],
        _now: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        self.shown(shown).map(|()| ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        _message: &[u8],
        _shown: &CertificateDer<'_>,
        _signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        Err(never())
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        shown: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        self.signed(message, shown, signature)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        vec![SignatureScheme::ED25519]
    }

    fn requires_raw_public_keys(&self) -> bool {
        true
    }
}

impl ClientCertVerifier for RawKeys {
    fn root_hint_subjects(&self) -> &[DistinguishedName] {
        &[]
    }

    fn verify_client_cert(
        &self,
        shown: &CertificateDer<'_>,
        _intermediates: &[CertificateDer<'_>],
        _now: UnixTime,
    ) -> Result<ClientCertVerified, Error> {
        self.shown(shown).map(|()| ClientCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        _message: &[u8],
        _shown: &CertificateDer<'_>,
        _signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        Err(never())
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        shown: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        self.signed(message, shown, signature)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        vec![SignatureScheme::ED25519]
    }

    fn requires_raw_public_keys(&self) -> bool {
        true
    }
}

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncReadExt, AsyncWriteExt};

    use super::*;

    fn pipe() -> (Box<dyn Stream>, Box<dyn Stream>) {
        let (one, other) = tokio::io::duplex(4096);
        (Box::new(one), Box::new(other))
    }

    #[tokio::test]
    async fn both_ends_prove_their_keys() {
        let (a, b) = (Keys::new(&[1; 32]).expect("a key"), Keys::new(&[2; 32]).expect("a key"));
        let (near, far) = pipe();
        let (dialled, accepted) = futures::join!(a.dial(near), b.accept(far));
        let (mut dialled, seen_by_a) = dialled.expect("a handshake");
        let (mut accepted, seen_by_b) = accepted.expect("a handshake");
        assert_eq!((seen_by_a, seen_by_b), (b.identity(), a.identity()));
        dialled.write_all(b"hello").await.expect("open");
        dialled.flush().await.expect("open");
        let mut said = [0; 5];
        accepted.read_exact(&mut said).await.expect("open");
        assert_eq!(&said, b"hello");
    }

    /// A peer that shows the victim's public key and signs with its own.
    #[tokio::test]
    async fn a_shown_key_without_its_secret_is_refused() {
        let (victim, seed) = (identity_of(&[1; 32]), [9; 32]);
        let provider = Arc::new(provider());
        let key = certified(&provider, &seed, victim).expect("a key of its own");
        let thief = Keys {
            identity: victim,
            client: Arc::new(client_config(&provider, &key).expect("a client")),
            server: Arc::new(server_config(&provider, &key).expect("a server")),
        };
        let honest = Keys::new(&[2; 32]).expect("a key");
        let (near, far) = pipe();
        let (_, accepted) = futures::join!(thief.dial(near), honest.accept(far));
        assert!(accepted.is_err(), "as a dialler");
        let (near, far) = pipe();
        let (dialled, _) = futures::join!(honest.dial(near), thief.accept(far));
        assert!(dialled.is_err(), "as an acceptor");
    }

    #[test]
    fn the_secret_is_not_shown() {
        let shown = format!("{:?}", Keys::new(&[7; 32]).expect("a key"));
        assert!(!shown.contains("0707"), "{shown}");
    }
}
