//! TLS with targets, at the end that connects to them: their certificates are verified as a browser would do it.
//!
//! Another end asks for it by the text that opens a flow ([`crate::target::FlowTarget`]). What the flow carries is what
//! is inside TLS. The end that connects knows the target, so it decides whom to trust.

use std::{
    fmt,
    fs::File,
    io::{self, Read},
    path::Path,
    sync::{
        Arc, OnceLock,
        atomic::{AtomicBool, Ordering},
    },
    time::SystemTime,
};

use rustls::{
    AlertDescription, CertificateError, ClientConfig, RootCertStore, SignatureScheme,
    client::{
        ClientConnection, ClientSessionMemoryCache, ResolvesClientCert, Resumption,
        VerifierBuilderError, WebPkiServerVerifier,
    },
    crypto::ring as ring_provider,
    pki_types::{CertificateDer, CertificateRevocationListDer, ServerName, pem::PemObject},
    sign::CertifiedKey,
};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;

use crate::{
    expiry,
    options::{ORIGIN_CA, ORIGIN_CRL},
    refusal::Refusal,
    settings::{BoxedError, ConfigError, Settings},
    target::{FlowTarget, Host, Protocols},
    text_file,
};

/// The longest file of certificates or revocation lists. That of a system has 220 kB.
const FILE_BYTES_MAX: u64 = 64 << 20;

/// Sessions of a peer with targets that can be resumed.
const SESSIONS_MAX: usize = 64;

/// The reason without one that is better.
const NO_AUTHORITIES: &str =
    "this machine has no CA certificates (install ca-certificates there, or set --origin-ca)";

/// The reason where a target asks for a certificate of the client.
const CLIENT_CERTIFICATE: &str = "it asks for a certificate of the client, which is not supported";

/// The certificates that this end accepts of targets.
#[derive(Clone)]
pub(crate) struct OriginTrust {
    /// Made when it is first needed, if no option is about it: the system has some 150 certificates.
    verifier: Arc<OnceLock<Result<Arc<WebPkiServerVerifier>, String>>>,
    /// When the next revocation list is due, the earliest of all.
    list_ends: Option<SystemTime>,
}

/// The sessions of one peer with targets. No other peer resumes them.
#[derive(Clone, Debug)]
pub(crate) struct OriginSessions(Arc<ClientSessionMemoryCache>);

impl OriginTrust {
    /// Those of the system's CAs.
    pub(crate) fn of_system() -> OriginTrust {
        OriginTrust {
            verifier: Arc::default(),
            list_ends: None,
        }
    }

    /// Reads the options about it.
    pub(crate) fn resolve(settings: &Settings) -> Result<OriginTrust, ConfigError> {
        let authorities = settings.many_with(&ORIGIN_CA, |path| {
            let pem = read(Path::new(path))?;
            let found = CertificateDer::pem_slice_iter(&pem).collect::<Result<Vec<_>, _>>();
            match found.map_err(|error| BoxedError::from(error.to_string()))? {
                found if found.is_empty() => Err(BoxedError::from("it has no certificate")),
                found => Ok(found),
            }
        })?;
        let mut roots = RootCertStore::empty();
        for certificate in authorities.concat() {
            let reason = |error| format!("it has a certificate that cannot be used: {error}");
            let added = roots.add(certificate);
            added.map_err(|error| settings.wrong(&ORIGIN_CA, reason(error)))?;
        }
        if roots.is_empty() && settings.is_given(&ORIGIN_CRL) {
            roots = roots_of_system();
        }
        let revoked = settings.many_with(&ORIGIN_CRL, |path| {
            let bytes = read(Path::new(path))?;
            let found = CertificateRevocationListDer::pem_slice_iter(&bytes);
            let found = found.collect::<Result<Vec<_>, _>>();
            let list = match found.map_err(|error| BoxedError::from(error.to_string()))? {
                // As CAs publish them.
                found if found.is_empty() => vec![CertificateRevocationListDer::from(bytes)],
                found => found,
            };
            // An error about this file names it.
            match verifier(roots.clone(), list.clone()) {
                Ok(_) => Ok(list),
                Err(VerifierBuilderError::NoRootAnchors) => Err(BoxedError::from(NO_AUTHORITIES)),
                Err(_) => Err("it is not a certificate revocation list (CRL)".into()),
            }
        })?;
        let revoked = revoked.concat();
        let trust = OriginTrust {
            list_ends: revoked.iter().filter_map(expiry::of_revocation_list).min(),
            ..OriginTrust::of_system()
        };
        if !roots.is_empty() {
            let made = verifier(roots, revoked).map_err(|error| error.to_string());
            let _ = trust.verifier.set(made);
        }
        Ok(trust)
    }

    /// What to say of a revocation list after whose end there should have been another.
    pub(crate) fn warning(&self) -> Option<String> {
        let since = SystemTime::now().duration_since(self.list_ends?).ok()?;
        let since = expiry::in_words(since);
        Some(format!(
            "a list of --origin-crl expired {since} ago: certificates that were revoked since then are accepted"
        ))
    }

    fn verifier(&self) -> Result<Arc<WebPkiServerVerifier>, String> {
        let made = self.verifier.get_or_init(|| {
            verifier(roots_of_system(), Vec::new()).map_err(|error| match error {
                VerifierBuilderError::NoRootAnchors => NO_AUTHORITIES.to_owned(),
                error => error.to_string(),
            })
        });
        made.clone()
    }

    /// Whether a target was refused because it speaks none of the protocols.
    pub(crate) fn speaks_none_of(offered: &Protocols, refusal: &Refusal) -> bool {
        matches!(refusal, Refusal::Tls(reason) if **reason == speaks_none_of(offered))
    }

    /// Begins TLS with a target on its connection, and verifies its certificate.
    pub(crate) async fn connect(
        &self,
        tcp: TcpStream,
        asked: &FlowTarget,
        protocols: &Protocols,
        sessions: &OriginSessions,
    ) -> Result<(TcpStream, ClientConnection), Refusal> {
        let verifier = self
            .verifier()
            .map_err(|reason| Refusal::Tls(reason.into()))?;
        let nobody = Arc::new(Nobody::default());
        let mut config = ClientConfig::builder_with_provider(provider())
            .with_safe_default_protocol_versions()
            .expect("ring has what the versions need")
            .with_webpki_verifier(verifier)
            .with_client_cert_resolver(Arc::clone(&nobody) as _);
        config.alpn_protocols = protocols.names();
        config.resumption = Resumption::store(Arc::clone(&sessions.0) as _);
        let name = match &asked.target.host {
            Host::Domain(name) => ServerName::try_from(name.clone()),
            Host::Ipv4(address) => Ok(ServerName::from(std::net::IpAddr::from(*address))),
            Host::Ipv6(address) => Ok(ServerName::from(std::net::IpAddr::from(*address))),
        };
        let name = name.map_err(|_| Refusal::Tls("no certificate can have its name".into()))?;
        let connecting = TlsConnector::from(Arc::new(config)).connect(name, tcp);
        let connected = connecting.await;
        let is_asked_for_certificate = nobody.is_asked.load(Ordering::Relaxed);
        match connected {
            Ok(stream) if !(is_asked_for_certificate && asked.is_opened) => Ok(stream.into_inner()),
            Err(error) if !is_asked_for_certificate => {
                Err(Refusal::Tls(reason(&error, protocols).into()))
            }
            _ => Err(Refusal::Tls(CLIENT_CERTIFICATE.into())),
        }
    }
}

/// Has no certificate of a client, and notes that a server asks for one.
#[derive(Debug, Default)]
struct Nobody {
    is_asked: AtomicBool,
}

impl ResolvesClientCert for Nobody {
    fn resolve(&self, _: &[&[u8]], _: &[SignatureScheme]) -> Option<Arc<CertifiedKey>> {
        self.is_asked.store(true, Ordering::Relaxed);
        None
    }

    fn has_certs(&self) -> bool {
        false
    }
}

impl fmt::Debug for OriginTrust {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("OriginTrust").finish_non_exhaustive()
    }
}

impl Default for OriginSessions {
    fn default() -> OriginSessions {
        OriginSessions(Arc::new(ClientSessionMemoryCache::new(SESSIONS_MAX)))
    }
}

fn provider() -> Arc<rustls::crypto::CryptoProvider> {
    Arc::new(ring_provider::default_provider())
}

fn verifier(
    roots: RootCertStore,
    revoked: Vec<CertificateRevocationListDer<'static>>,
) -> Result<Arc<WebPkiServerVerifier>, VerifierBuilderError> {
    let builder = WebPkiServerVerifier::builder_with_provider(Arc::new(roots), provider());
    // A list is of one CA: certificates of others are in none.
    let builder = builder.with_crls(revoked).allow_unknown_revocation_status();
    builder.only_check_end_entity_revocation().build()
}

/// The system's certificates, as far as they can be read.
fn roots_of_system() -> RootCertStore {
    let mut roots = RootCertStore::empty();
    roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
    roots
}

fn read(path: &Path) -> Result<Vec<u8>, BoxedError> {
    let cannot = |error: io::Error| {
        BoxedError::from(format!("{}: {error}", text_file::failure(path, &error)))
    };
    let file: File = text_file::open(path).map_err(cannot)?;
    let mut bytes = Vec::new();
    let read = file.take(FILE_BYTES_MAX + 1).read_to_end(&mut bytes);
    match read.map_err(cannot)? as u64 > FILE_BYTES_MAX {
        true => Err(BoxedError::from("it has more than 64 MiB")),
        false => Ok(bytes),
    }
}

/// The reason if the target speaks none of the protocols.
fn speaks_none_of(offered: &Protocols) -> String {
    format!("it does not speak {}", offered.describe())
}

/// Why a handshake failed, about the target.
fn reason(error: &io::Error, offered: &Protocols) -> String {
    let inner = error.get_ref().and_then(|inner| inner.downcast_ref());
    match inner {
        None if error.kind() == io::ErrorKind::UnexpectedEof => {
            "it closed the connection in the handshake".to_owned()
        }
        None => format!("the connection failed: {error}"),
        Some(rustls::Error::InvalidCertificate(error)) => of_certificate(error),
        Some(rustls::Error::InvalidMessage(_)) => "it does not speak TLS at this port".to_owned(),
        Some(rustls::Error::AlertReceived(AlertDescription::NoApplicationProtocol)) => {
            speaks_none_of(offered)
        }
        Some(rustls::Error::AlertReceived(AlertDescription::UnrecognisedName)) => {
            "it does not know this name".to_owned()
        }
        Some(rustls::Error::PeerIncompatible(_))
        | Some(rustls::Error::AlertReceived(
            AlertDescription::ProtocolVersion | AlertDescription::HandshakeFailure,
        )) => "it has no version or cipher of TLS that is secure".to_owned(),
        Some(error) => error.to_string(),
    }
}

/// Why a certificate is not accepted.
fn of_certificate(error: &CertificateError) -> String {
    match error {
        // The latter of one whose name another CA has.
        CertificateError::UnknownIssuer | CertificateError::BadSignature => {
            "its certificate is not from a CA that is trusted there (--origin-ca can name the CA)"
                .to_owned()
        }
        CertificateError::Expired | CertificateError::ExpiredContext { .. } => {
            "its certificate has expired".to_owned()
        }
        CertificateError::NotValidYet | CertificateError::NotValidYetContext { .. } => {
            "its certificate is not valid yet (is the clock right?)".to_owned()
        }
        CertificateError::NotValidForName => "its certificate is for another name".to_owned(),
        CertificateError::NotValidForNameContext { presented, .. } => {
            let names = presented.iter().map(|name| match name.split_once('"') {
                // DnsName("example.org")
                Some((_, rest)) => rest.trim_end_matches(['"', ')']),
                None => name,
            });
            let names: Vec<_> = names.take(5).collect();
            match names.is_empty() {
                true => "its certificate has no name".to_owned(),
                false => format!("its certificate is for {}", names.join(", ")),
            }
        }
        CertificateError::Revoked => "its certificate was revoked (--origin-crl)".to_owned(),
        CertificateError::Other(other) if format!("{other:?}").contains("CaUsedAsEndEntity") => {
            "its certificate is one of a CA, not of a server: give the server one that the CA signed"
                .to_owned()
        }
        error => format!("its certificate is not accepted: {error}"),
    }
}
