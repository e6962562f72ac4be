//! The certificate of a service of this end, which clients reach by its own name.
//!
//! Its files are read again when they change, as a program that renews certificates leaves them.

use std::{
    fmt,
    fs::{self, File},
    io::{self, Read},
    net::IpAddr,
    os::unix::fs::MetadataExt,
    path::{Path, PathBuf},
    sync::{Arc, Mutex},
    time::{Duration, Instant, SystemTime},
};

use rustls::{
    AlertDescription, ServerConfig,
    client::verify_server_name,
    crypto::ring as ring_provider,
    pki_types::{CertificateDer, PrivateKeyDer, ServerName, pem::PemObject},
    server::{ClientHello, ParsedCertificate, ResolvesServerCert},
    sign::CertifiedKey,
};

use crate::{
    expiry,
    keys::{KeyError, read_secret_file},
    target::Host,
    text_file,
};

/// The longest chain of certificates, with names and all.
const CHAIN_BYTES_MAX: u64 = 1 << 20;

/// How often the files are looked at, while clients connect.
const LOOK_EVERY: Duration = Duration::from_secs(1);

/// How often a certificate that expires soon is warned of, while clients connect.
const WARN_EVERY: Duration = Duration::from_secs(24 * 3600);

/// The files of a certificate.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct CertificateFiles {
    /// It, and those of the CAs between it and the root.
    pub(crate) chain: PathBuf,
    /// Its private key.
    pub(crate) key: PathBuf,
}

/// The certificate of one name.
#[derive(Clone)]
pub(crate) struct OwnCertificate {
    presented: Arc<Presented>,
    pub(crate) config: Arc<ServerConfig>,
}

/// Why files have no certificate of a name.
#[derive(Debug, thiserror::Error)]
pub(crate) enum CertificateError {
    /// Of the chain.
    #[error("{}: {error}", text_file::failure(path, error))]
    File { path: PathBuf, error: io::Error },
    #[error("\"{}\" has no certificate (PEM)", .0.display())]
    NoCertificate(PathBuf),
    #[error("\"{}\" has no private key (PEM, without a pass phrase)", .0.display())]
    NoKey(PathBuf),
    #[error(
        "the key in \"{}\" cannot be used: keys are RSA from 2048 bits on, ECDSA (P-256, P-384) or Ed25519",
        .0.display()
    )]
    KindOfKey(PathBuf),
    #[error(transparent)]
    Key(#[from] KeyError),
    #[error(
        "\"{}\" and \"{}\" do not belong together (the first certificate must be the site's own)",
        .0.chain.display(), .0.key.display()
    )]
    NotTogether(CertificateFiles),
    #[error("the first certificate in \"{}\" is not valid now (has it expired?)", .0.display())]
    NotValid(PathBuf),
    /// It is of others.
    #[error("the first certificate in \"{}\" is not for {name}", path.display())]
    OtherName { path: PathBuf, name: Host },
}

/// Why a handshake with a client failed. The text follows the client's address.
#[derive(Debug, thiserror::Error)]
pub(crate) enum HandshakeError {
    #[error("it closed the connection in the handshake")]
    Closed,
    #[error("it asks for {0}, which is not a site of this listener")]
    OtherName(String),
    #[error("the certificate of --cert has expired, or the client's clock is wrong")]
    Expired,
    #[error("it has no version or cipher of TLS that is secure")]
    Incompatible,
    #[error("it does not speak HTTP/2 or HTTP/1.1")]
    NoHttp,
    #[error("it does not speak TLS")]
    NotTls,
    #[error(
        "it does not accept the certificate (is the CA known there, and does --cert have the whole chain?)"
    )]
    NotAccepted,
    #[error("{0}")]
    Io(io::Error),
    #[error("{0}")]
    Tls(rustls::Error),
}

/// Presents the certificate.
struct Presented {
    files: CertificateFiles,
    name: Host,
    state: Mutex<State>,
}

struct State {
    looked: Instant,
    /// When it was last looked at whether this one expires soon.
    warned: Option<Instant>,
    stamp: Stamp,
    certificate: Arc<CertifiedKey>,
}

/// When and which the files were.
type Stamp = [Option<(u64, [i64; 4])>; 2];

impl OwnCertificate {
    /// Reads it, for clients of these protocols (ALPN).
    pub(crate) fn load(
        files: &CertificateFiles,
        name: &Host,
        protocols: &[&[u8]],
    ) -> Result<OwnCertificate, CertificateError> {
        let presented = Arc::new(Presented {
            files: files.clone(),
            name: name.clone(),
            state: Mutex::new(State {
                looked: Instant::now(),
                // At the start, the configuration's warnings have it.
                warned: Some(Instant::now()),
                stamp: files.stamp(),
                certificate: files.load(name)?,
            }),
        });
        let provider = Arc::new(ring_provider::default_provider());
        let mut config = ServerConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .expect("ring has what the versions need")
            .with_no_client_auth()
            .with_cert_resolver(Arc::clone(&presented) as _);
        config.alpn_protocols = protocols.iter().map(|name| name.to_vec()).collect();
        Ok(OwnCertificate {
            presented,
            config: Arc::new(config),
        })
    }

    /// What to say of it if it is not valid now, or not for long.
    pub(crate) fn warning(&self) -> Option<String> {
        let presented = &self.presented;
        let state = presented.state.lock().expect("held for a moment");
        presented.warning(&state.certificate)
    }
}

impl From<io::Error> for HandshakeError {
    fn from(error: io::Error) -> HandshakeError {
        use AlertDescription::{BadCertificate, CertificateExpired, CertificateUnknown, UnknownCA};
        match error.get_ref().and_then(|inner| inner.downcast_ref()) {
            None if error.kind() == io::ErrorKind::UnexpectedEof => HandshakeError::Closed,
            None => HandshakeError::Io(error),
            Some(rustls::Error::AlertReceived(CertificateExpired)) => HandshakeError::Expired,
            Some(rustls::Error::PeerIncompatible(_)) => HandshakeError::Incompatible,
            Some(rustls::Error::NoApplicationProtocol) => HandshakeError::NoHttp,
            Some(rustls::Error::AlertReceived(BadCertificate | CertificateUnknown | UnknownCA)) => {
                HandshakeError::NotAccepted
            }
            Some(error) => HandshakeError::Tls(error.clone()),
        }
    }
}

impl PartialEq for OwnCertificate {
    fn eq(&self, other: &OwnCertificate) -> bool {
        self.presented.files == other.presented.files
    }
}

impl fmt::Debug for OwnCertificate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.presented.fmt(f)
    }
}

impl CertificateFiles {
    fn stamp(&self) -> Stamp {
        [&self.chain, &self.key].map(|path| {
            let metadata = fs::metadata(path).ok()?;
            // A change of the mode or the owner lets the file be read.
            let (written, written_nsec) = (metadata.mtime(), metadata.mtime_nsec());
            let (changed, changed_nsec) = (metadata.ctime(), metadata.ctime_nsec());
            Some((
                metadata.ino(),
                [written, written_nsec, changed, changed_nsec],
            ))
        })
    }

    fn load(&self, name: &Host) -> Result<Arc<CertifiedKey>, CertificateError> {
        let path = || self.chain.clone();
        let pem = read(&self.chain).map_err(|error| CertificateError::File {
            path: path(),
            error,
        })?;
        let chain = CertificateDer::pem_slice_iter(&pem).collect::<Result<Vec<_>, _>>();
        let chain = chain.unwrap_or_default();
        let first = chain
            .first()
            .ok_or_else(|| CertificateError::NoCertificate(path()))?;
        let is_for_name = ParsedCertificate::try_from(first)
            .and_then(|parsed| verify_server_name(&parsed, &server_name(name)));
        is_for_name.map_err(|_| CertificateError::OtherName {
            path: path(),
            name: name.clone(),
        })?;
        let key = read_secret_file(&self.key, |text| {
            let key = PrivateKeyDer::from_pem_slice(text.as_bytes());
            key.map_err(|_| CertificateError::NoKey(self.key.clone()))
        })?;
        let provider = ring_provider::default_provider();
        let signer = provider.key_provider.load_private_key(key);
        let signer = signer.map_err(|_| CertificateError::KindOfKey(self.key.clone()))?;
        let certified = CertifiedKey::new(chain, signer);
        match certified.keys_match() {
            Ok(()) => Ok(Arc::new(certified)),
            Err(_) => Err(CertificateError::NotTogether(self.clone())),
        }
    }
}

/// Whether a certificate is valid now, as far as it can be read.
fn is_valid(certificate: &CertifiedKey, now: SystemTime) -> bool {
    let first = certificate.cert.first();
    let validity = first.and_then(expiry::of_certificate);
    validity.is_none_or(|validity| validity.contains(&now))
}

fn read(path: &Path) -> io::Result<Vec<u8>> {
    let file: File = text_file::open(path)?;
    let mut bytes = Vec::new();
    file.take(CHAIN_BYTES_MAX + 1).read_to_end(&mut bytes)?;
    match bytes.len() as u64 > CHAIN_BYTES_MAX {
        true => Err(io::Error::other("it has more than 1 MiB")),
        false => Ok(bytes),
    }
}

fn server_name(host: &Host) -> ServerName<'static> {
    match host {
        Host::Ipv4(address) => IpAddr::from(*address).into(),
        Host::Ipv6(address) => IpAddr::from(*address).into(),
        // One that no certificate can have is none that a certificate is for.
        Host::Domain(name) => {
            ServerName::try_from(name.clone()).unwrap_or_else(|_| IpAddr::from([0, 0, 0, 0]).into())
        }
    }
}

impl Presented {
    fn warning(&self, certificate: &CertifiedKey) -> Option<String> {
        let validity = expiry::of_certificate(certificate.cert.first()?)?;
        let warning = expiry::warning(&validity, SystemTime::now())?;
        let path = self.files.chain.display();
        Some(format!(
            "the certificate of {} {warning}: \"{path}\"",
            self.name
        ))
    }

    fn certificate(&self) -> Arc<CertifiedKey> {
        let mut state = self.state.lock().expect("held for a moment");
        if state.looked.elapsed() < LOOK_EVERY {
            return Arc::clone(&state.certificate);
        }
        state.looked = Instant::now();
        let stamp = self.files.stamp();
        if stamp != state.stamp {
            let now = SystemTime::now();
            let loaded = self.files.load(&self.name).and_then(|certificate| {
                let is_worse = !is_valid(&certificate, now) && is_valid(&state.certificate, now);
                let path = self.files.chain.clone();
                match is_worse {
                    true => Err(CertificateError::NotValid(path)),
                    false => Ok(certificate),
                }
            });
            match loaded {
                Ok(certificate) => {
                    tracing::info!(name = %self.name, "the certificate was read again");
                    state.certificate = certificate;
                    state.warned = None;
                }
                // One of them may still be written: another look follows.
                Err(error) => {
                    tracing::warn!("the certificate of {} stays as it was: {error}", self.name);
                }
            }
            state.stamp = stamp;
        }
        let is_due = |warned: Instant| warned.elapsed() >= WARN_EVERY;
        if state.warned.is_none_or(is_due) {
            state.warned = Some(state.looked);
            if let Some(warning) = self.warning(&state.certificate) {
                tracing::warn!("{warning}");
            }
        }
        Arc::clone(&state.certificate)
    }
}

impl ResolvesServerCert for Presented {
    fn resolve(&self, _: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        Some(self.certificate())
    }
}

impl fmt::Debug for Presented {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.files.fmt(f)
    }
}
