//! TLS 1.3 between the two ends of a link, each known by its pinned raw public key (RFC 7250).
//!
//! There are no certificates, no earlier versions, no session tickets and no early data: a
//! handshake proves both keys, every time. The far end accepts any of its peers' keys, as they
//! are at that moment; the near end exactly one.
//!
//! In TLS 1.3 the client has finished before the server has judged the client's key. A near end
//! that was refused learns it from its first read, whose error `ClientTls::explain` puts into
//! words.

use std::fmt;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use refrain_proto::limits::FRAME_BYTES_MAX;
use refrain_proto::planted::Bug;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::client::{AlwaysResolvesClientRawPublicKeys, Resumption};
use rustls::crypto::{
    CryptoProvider, WebPkiSupportedAlgorithms, ring as ring_provider,
    verify_tls13_signature_with_raw_key,
};
use rustls::pki_types::{
    CertificateDer, PrivatePkcs8KeyDer, ServerName, SubjectPublicKeyInfoDer, UnixTime,
};
use rustls::server::danger::{ClientCertVerified, ClientCertVerifier};
use rustls::server::{AlwaysResolvesServerRawPublicKeys, NoServerSessionStorage};
use rustls::sign::CertifiedKey;
use rustls::version::TLS13;
use rustls::{
    AlertDescription, CertificateError, ClientConfig, DigitallySignedStruct, DistinguishedName,
    OtherError, PeerIncompatible, ServerConfig, SignatureScheme,
};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::time::timeout;
use tokio_rustls::{TlsAcceptor, TlsConnector, TlsStream};

use crate::keys::{PeerKeys, PrivateKey, PublicKey, SharedPeerKeys};
use crate::wire::{ByteStream, Counted, LaneStream};

/// The far end: accepts lanes from any of its peers.
#[derive(Clone)]
pub struct ServerTls {
    acceptor: TlsAcceptor,
    own: PublicKey,
}

/// The near end: opens lanes to its one peer.
#[derive(Clone)]
pub struct ClientTls {
    connector: TlsConnector,
    own: PublicKey,
}

/// Why a lane's TLS failed. Anyone may have connected to a far end: its texts name an address, and no peer.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum TlsError {
    /// The peer proved a key that this end does not accept.
    #[error(
        "{peer} presented key {presented}, which is not in --peer-key here (if `refrain keygen --show FILE` there prints \
         this key, --peer-key here must have it; otherwise {otherwise})"
    )]
    WrongKey {
        /// The peer's address.
        peer: String,
        /// The key that it presented.
        presented: PublicKey,
        /// How a machine comes to be there that has another key than expected.
        otherwise: &'static str,
    },
    /// The peer has this end's key.
    #[error(
        "{peer} presented this end's own key (is --key the key of the other end? each end needs its own)"
    )]
    OwnKey {
        /// The peer's address.
        peer: String,
    },
    /// The peer does not accept this end's key.
    #[error("{peer} refused this end's key: --peer-key there must have {own}")]
    KeyRefused {
        /// The peer's address.
        peer: String,
        /// This end's public key.
        own: PublicKey,
    },
    /// The peer's bytes are not TLS.
    #[error("{peer} does not speak TLS ({hint})")]
    NotTls {
        /// The peer's address.
        peer: String,
        /// What it may be, and what it should be.
        hint: &'static str,
    },
    /// The peer speaks TLS, but not TLS 1.3 with raw public keys and refrain's protocol name.
    #[error("{peer} speaks TLS, but is not a refrain gateway ({reason})")]
    Incompatible {
        /// The peer's address.
        peer: String,
        /// What the TLS library found.
        reason: rustls::Error,
    },
    /// Bytes of the handshake were damaged on the way; in which direction, neither end can tell.
    #[error("bytes were damaged between this end and {peer}, in the TLS handshake")]
    Damaged {
        /// The peer's address.
        peer: String,
    },
    /// The peer did not finish its handshake in time.
    #[error("{peer} did not finish the TLS handshake within {after:?}")]
    TimedOut {
        /// The peer's address.
        peer: String,
        /// The time that it had.
        after: Duration,
    },
    /// The peer closed the connection.
    #[error("{peer} closed the connection")]
    Closed {
        /// The peer's address.
        peer: String,
    },
    /// The connection failed.
    #[error("the connection to {peer} failed: {source}")]
    Io {
        /// The peer's address.
        peer: String,
        /// How it failed.
        source: io::Error,
    },
}

impl TlsError {
    /// Whether the connection ended without a word about its peer.
    pub(crate) fn is_absence(&self) -> bool {
        matches!(
            self,
            TlsError::TimedOut { .. } | TlsError::Closed { .. } | TlsError::Io { .. }
        )
    }
}

impl ServerTls {
    /// An end with this key that accepts the peers' keys as they are at each handshake.
    pub fn new(key: &PrivateKey, peers: Arc<SharedPeerKeys>) -> ServerTls {
        let provider = Arc::new(ring_provider::default_provider());
        let verifier = PinnedKeys::new(peers, &provider);
        let resolver = AlwaysResolvesServerRawPublicKeys::new(certified(key));
        let mut config = ServerConfig::builder_with_provider(provider)
            .with_protocol_versions(&[&TLS13])
            .expect("ring has the cipher suites of TLS 1.3")
            .with_client_cert_verifier(verifier)
            .with_cert_resolver(Arc::new(resolver));
        config.alpn_protocols = vec![ALPN.to_vec()];
        config.session_storage = Arc::new(NoServerSessionStorage {});
        config.send_tls13_tickets = 0;
        if Bug::Tickets.is_planted() {
            config.session_storage = rustls::server::ServerSessionMemoryCache::new(16);
            config.send_tls13_tickets = 2;
        }
        config.max_early_data_size = 0;
        ServerTls {
            acceptor: TlsAcceptor::from(Arc::new(config)),
            own: key.public(),
        }
    }

    /// Takes a peer's handshake on a connection from `peer`, and says whose key it proved.
    ///
    /// A peer that is refused is told so, which may take up to a second more than `within`.
    pub async fn accept<S: ByteStream>(
        &self,
        stream: S,
        peer: SocketAddr,
        within: Duration,
    ) -> Result<(LaneStream<S>, PublicKey), TlsError> {
        let handshake = self.acceptor.accept(Counted::new(stream)).into_fallible();
        match timeout(within, handshake).await {
            Err(_) => Err(TlsError::TimedOut {
                peer: peer.to_string(),
                after: within,
            }),
            Ok(Ok(stream)) => check_established(stream.into(), &peer),
            Ok(Err((error, stream))) => {
                let _ = timeout(LINGER, linger(stream)).await;
                Err(classify(error, &peer, self.own, &NOT_A_NEAR_END))
            }
        }
    }
}

impl ClientTls {
    /// An end with this key that opens lanes to the holder of `peer` alone.
    pub fn new(key: &PrivateKey, peer: PublicKey) -> ClientTls {
        let provider = Arc::new(ring_provider::default_provider());
        let peers: PeerKeys = [peer].into_iter().collect();
        let verifier = PinnedKeys::new(Arc::new(SharedPeerKeys::new(peers)), &provider);
        let resolver = AlwaysResolvesClientRawPublicKeys::new(certified(key));
        let mut config = ClientConfig::builder_with_provider(provider)
            .with_protocol_versions(&[&TLS13])
            .expect("ring has the cipher suites of TLS 1.3")
            .dangerous()
            .with_custom_certificate_verifier(verifier)
            .with_client_cert_resolver(Arc::new(resolver));
        config.alpn_protocols = vec![ALPN.to_vec()];
        config.resumption = Resumption::disabled();
        config.enable_early_data = false;
        config.enable_sni = false;
        ClientTls {
            connector: TlsConnector::from(Arc::new(config)),
            own: key.public(),
        }
    }

    /// Makes a handshake on a connection to `peer`. The peer has not judged this end's key yet
    /// when it returns: give the first read's error to `ClientTls::explain`.
    pub async fn connect<S: ByteStream>(
        &self,
        stream: S,
        peer: &str,
        within: Duration,
    ) -> Result<(LaneStream<S>, PublicKey), TlsError> {
        // The name is neither sent nor checked; the key is the identity.
        let name = ServerName::try_from("refrain").expect("a host name");
        let handshake = self.connector.connect(name, Counted::new(stream));
        match timeout(within, handshake).await {
            Err(_) => Err(TlsError::TimedOut {
                peer: peer.to_owned(),
                after: within,
            }),
            Ok(Ok(stream)) => check_established(stream.into(), &peer),
            Ok(Err(error)) => Err(classify(error, &peer, self.own, &NOT_A_FAR_END)),
        }
    }

    /// What an error on a connected stream means; above all that the peer refused this end's key.
    pub(crate) fn explain(&self, error: io::Error, peer: &str) -> TlsError {
        classify(error, &peer, self.own, &NOT_A_FAR_END)
    }
}

/// Which way bytes went that were damaged.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Damage {
    /// This end received them.
    Received,
    /// The peer received them, and said so.
    Sent,
}

impl Damage {
    /// Whether an error of an established connection means that bytes were damaged on the way: TLS
    /// authenticates each record, so neither end can have written them so.
    pub fn of(error: &io::Error) -> Option<Damage> {
        match error.get_ref()?.downcast_ref()? {
            rustls::Error::DecryptError
            | rustls::Error::InvalidMessage(_)
            | rustls::Error::PeerSentOversizedRecord => Some(Damage::Received),
            rustls::Error::AlertReceived(
                AlertDescription::BadRecordMac
                | AlertDescription::DecodeError
                | AlertDescription::RecordOverflow
                | AlertDescription::UnexpectedMessage,
            ) => Some(Damage::Sent),
            _ => None,
        }
    }
}

/// Accepts exactly the keys of a set, on either side of a handshake.
#[derive(Debug)]
struct PinnedKeys {
    allowed: Arc<SharedPeerKeys>,
    algorithms: WebPkiSupportedAlgorithms,
}

/// Carries a refused key from the verifier, through the TLS library, to [`classify`].
#[derive(Debug, thiserror::Error)]
#[error("key {0} is not accepted")]
struct KeyNotAccepted(PublicKey);

impl PinnedKeys {
    fn new(allowed: Arc<SharedPeerKeys>, provider: &CryptoProvider) -> Arc<PinnedKeys> {
        Arc::new(PinnedKeys {
            allowed,
            algorithms: provider.signature_verification_algorithms,
        })
    }

    fn check(&self, spki: &CertificateDer<'_>) -> Result<(), rustls::Error> {
        let key = PublicKey::from_spki(spki).ok_or(CertificateError::BadEncoding)?;
        if self.allowed.load().contains(&key) {
            return Ok(());
        }
        let reason = OtherError(Arc::new(KeyNotAccepted(key)));
        Err(CertificateError::Other(reason).into())
    }
}

/// What both traits of verifiers ask alike: signatures of TLS 1.3 by raw Ed25519 keys, and no others.
macro_rules! signatures_by_raw_keys {
    () => {
        fn verify_tls12_signature(
            &self,
            _message: &[u8],
            _cert: &CertificateDer<'_>,
            _signature: &DigitallySignedStruct,
        ) -> Result<HandshakeSignatureValid, rustls::Error> {
            Err(PeerIncompatible::Tls12NotOfferedOrEnabled.into())
        }

        fn verify_tls13_signature(
            &self,
            message: &[u8],
            spki: &CertificateDer<'_>,
            signature: &DigitallySignedStruct,
        ) -> Result<HandshakeSignatureValid, rustls::Error> {
            let spki = SubjectPublicKeyInfoDer::from(spki.as_ref());
            verify_tls13_signature_with_raw_key(message, &spki, signature, &self.algorithms)
        }

        fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
            vec![SignatureScheme::ED25519]
        }

        fn requires_raw_public_keys(&self) -> bool {
            true
        }
    };
}

impl ServerCertVerifier for PinnedKeys {
    fn verify_server_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        _intermediates: &[CertificateDer<'_>],
        _server_name: &ServerName<'_>,
        _ocsp_response: &[u8],
        _now: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        self.check(end_entity)?;
        Ok(ServerCertVerified::assertion())
    }

    signatures_by_raw_keys!();
}

impl ClientCertVerifier for PinnedKeys {
    fn root_hint_subjects(&self) -> &[DistinguishedName] {
        &[]
    }

    fn verify_client_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        _intermediates: &[CertificateDer<'_>],
        _now: UnixTime,
    ) -> Result<ClientCertVerified, rustls::Error> {
        self.check(end_entity)?;
        Ok(ClientCertVerified::assertion())
    }

    signatures_by_raw_keys!();
}

/// So much of a write is encrypted at once: more than a block and its header, which are then one write to the socket. The
/// library's own limit is a block without it.
const WRITE_BYTES_MAX: usize = FRAME_BYTES_MAX;

/// The protocol's name in the handshake (RFC 7301).
const ALPN: &[u8] = b"refrain";

/// How long a refused peer has to take its alert.
const LINGER: Duration = Duration::from_secs(1);

fn certified(key: &PrivateKey) -> Arc<CertifiedKey> {
    let der = PrivatePkcs8KeyDer::from(key.pkcs8_der());
    let signer = ring_provider::sign::any_eddsa_type(&der).expect("a loaded key is Ed25519");
    let spki = signer.public_key().expect("a signer knows its public key");
    let raw = CertificateDer::from(spki.to_vec());
    Arc::new(CertifiedKey::new(vec![raw], signer))
}

/// After the handshake: the peer's key, and that both speak refrain. The TLS library lets a peer
/// pass that names no protocol at all.
fn check_established<S>(
    mut stream: LaneStream<S>,
    peer: &impl fmt::Display,
) -> Result<(LaneStream<S>, PublicKey), TlsError> {
    let incompatible = |reason| {
        let peer = peer.to_string();
        TlsError::Incompatible { peer, reason }
    };
    let bytes = Some(WRITE_BYTES_MAX);
    match &mut stream {
        TlsStream::Client(stream) => stream.get_mut().1.set_buffer_limit(bytes),
        TlsStream::Server(stream) => stream.get_mut().1.set_buffer_limit(bytes),
    }
    let (_, connection) = stream.get_ref();
    if connection.alpn_protocol() != Some(ALPN) {
        return Err(incompatible(rustls::Error::NoApplicationProtocol));
    }
    let raw = connection.peer_certificates().and_then(|keys| keys.first());
    match raw.and_then(|spki| PublicKey::from_spki(spki)) {
        Some(key) => Ok((stream, key)),
        None => Err(incompatible(rustls::Error::NoCertificatesPresented)),
    }
}

/// Takes what the peer still sends, so that closing does not reset the connection and lose the
/// alert on its way.
async fn linger(mut stream: impl ByteStream) -> io::Result<()> {
    stream.shutdown().await?;
    let mut discarded = [0; 4096];
    while stream.read(&mut discarded).await? > 0 {}
    Ok(())
}

/// What may be there in place of an end.
struct Other {
    without_tls: &'static str,
    with_unknown_key: &'static str,
}

/// For the near end that connected to it.
const NOT_A_FAR_END: Other = Other {
    without_tls: "is it an HTTP server? --peer must name the --listen port of a far end",
    with_unknown_key: "another machine has this address",
};

/// For the far end that it connected to.
const NOT_A_NEAR_END: Other = Other {
    without_tls: "is it an HTTP client? only near ends may connect to this port",
    with_unknown_key: "an unknown machine tried to connect",
};

fn classify(error: io::Error, peer: &impl fmt::Display, own: PublicKey, other: &Other) -> TlsError {
    let peer = peer.to_string();
    let inner = error.get_ref().and_then(|inner| inner.downcast_ref());
    let Some(reason) = inner else {
        // Without or with the alert that TLS wants first: to a user, both are the same.
        if error.kind() == io::ErrorKind::UnexpectedEof {
            return TlsError::Closed { peer };
        }
        return TlsError::Io {
            peer,
            source: error,
        };
    };
    match reason {
        rustls::Error::InvalidCertificate(CertificateError::Other(OtherError(refused))) => {
            match refused.downcast_ref() {
                Some(&KeyNotAccepted(key)) if key == own => TlsError::OwnKey { peer },
                Some(&KeyNotAccepted(presented)) => TlsError::WrongKey {
                    peer,
                    presented,
                    otherwise: other.with_unknown_key,
                },
                None => incompatible(reason, peer),
            }
        }
        // What a gateway sends for a key that it does not accept.
        rustls::Error::AlertReceived(AlertDescription::CertificateUnknown) => {
            TlsError::KeyRefused { peer, own }
        }
        rustls::Error::InvalidMessage(_) => TlsError::NotTls {
            peer,
            hint: other.without_tls,
        },
        // Another program fails earlier, by its certificate or protocol.
        rustls::Error::DecryptError
        | rustls::Error::AlertReceived(AlertDescription::BadRecordMac) => {
            TlsError::Damaged { peer }
        }
        _ => incompatible(reason, peer),
    }
}

fn incompatible(reason: &rustls::Error, peer: String) -> TlsError {
    let reason = reason.clone();
    TlsError::Incompatible { peer, reason }
}

#[cfg(test)]
mod tests;
