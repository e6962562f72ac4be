//! A CA of the site's own, for the names that its near end opens.
//!
//! A directory has it: `root.pem`, which clients trust; `intermediate.pem` and `intermediate.key`, with which the near
//! end certifies names. The root's key is not there, so nobody can make another intermediate, and the constraints of this
//! one hold: it is valid for the permitted domains and all names below them, and for no address.

use std::{
    collections::HashMap,
    fs::{self, File, OpenOptions},
    io::{self, Read, Write},
    os::unix::fs::{DirBuilderExt, OpenOptionsExt},
    path::{Path, PathBuf},
    sync::{Arc, Mutex},
    time::{Duration, Instant},
};

use rcgen::{
    BasicConstraints, CertificateParams, CidrSubnet, DistinguishedName, DnType,
    ExtendedKeyUsagePurpose, GeneralSubtree, IsCa, Issuer, KeyPair, KeyUsagePurpose,
    NameConstraints, PublicKeyData, SerialNumber,
};
use ring::rand::{SecureRandom, SystemRandom};
use rustls::{
    CertificateError, RootCertStore, ServerConfig,
    client::{WebPkiServerVerifier, danger::ServerCertVerifier},
    crypto::{CryptoProvider, ring as ring_provider},
    pki_types::{CertificateDer, PrivatePkcs8KeyDer, ServerName, UnixTime, pem::PemObject},
    sign::{CertifiedKey, SigningKey, SingleCertAndKey},
};
use time::OffsetDateTime;

use crate::{
    client_hello::PROTOCOLS,
    keys::{KeyError, read_secret_file},
    target::Host,
    text_file,
};

const ROOT: &str = "root.pem";
const INTERMEDIATE: &str = "intermediate.pem";
const INTERMEDIATE_KEY: &str = "intermediate.key";

/// The longest certificate of a CA: it names domains.
const CERTIFICATE_BYTES_MAX: u64 = 1 << 20;

/// Certificates that are kept.
const LEAVES_MAX: usize = 1000;

const DAY: Duration = Duration::from_secs(24 * 3600);
/// How long the CA is valid, and the certificate of a name. Clocks of clients may be late by a day.
const AUTHORITY_LIFE: Duration = Duration::from_secs(10 * 365 * 24 * 3600);
const LEAF_LIFE: Duration = Duration::from_secs(7 * 24 * 3600);

/// A CA, as the near end uses it.
pub struct Authority {
    root: CertificateDer<'static>,
    intermediate: CertificateDer<'static>,
    issuer: Issuer<'static, KeyPair>,
    /// The key of all names, which is never written down.
    leaf_key: KeyPair,
    leaf_signer: Arc<dyn SigningKey>,
    provider: Arc<CryptoProvider>,
    leaves: Mutex<HashMap<String, Leaf>>,
}

struct Leaf {
    made: Instant,
    used: Instant,
    config: Arc<ServerConfig>,
}

/// Why there is no CA.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum AuthorityError {
    /// The directory has no CA.
    #[error("no CA in \"{folder}\": it has no root.pem (make one with: refrain ca init {folder} --permit DOMAIN)", folder = .0.display())]
    NoCa(PathBuf),
    /// A file cannot be read.
    #[error("{}: {error}", text_file::failure(path, error))]
    File {
        /// The file.
        path: PathBuf,
        /// The fault.
        error: io::Error,
    },
    /// A file cannot be written.
    #[error("cannot write \"{}\": {error}", path.display())]
    Write {
        /// The file.
        path: PathBuf,
        /// The fault.
        error: io::Error,
    },
    /// A file cannot be removed.
    #[error("cannot remove \"{}\": {error}", path.display())]
    Remove {
        /// The file.
        path: PathBuf,
        /// The fault.
        error: io::Error,
    },
    /// A file has something else.
    #[error("\"{}\" is not a certificate (PEM)", .0.display())]
    NoCertificate(PathBuf),
    /// The key of the intermediate.
    #[error(transparent)]
    Key(#[from] KeyError),
    /// It is not a key, or not one of this CA.
    #[error("\"{}\" is not the key of intermediate.pem", .0.display())]
    WrongKey(PathBuf),
    /// A folder that is not one.
    #[error("no CA in \"{}\", which has no intermediate.key: nothing was deleted", .0.display())]
    None(PathBuf),
    /// A text that is no domain.
    #[error(
        "invalid domain \"{0}\": expected a name, such as example.org, which covers all names below it"
    )]
    Domain(String),
    /// A name that the CA may not certify.
    #[error(
        "the CA does not permit {name} ({reason}): make another one with `refrain ca init --permit`"
    )]
    NotPermitted {
        /// The name.
        name: String,
        /// The verifier's words.
        reason: String,
    },
    /// Two CAs are mixed.
    #[error("root.pem and intermediate.pem are not of the same CA")]
    Mixed,
    /// A directory that is in use.
    #[error("\"{}\" has a CA already (`refrain ca revoke` removes it)", .0.display())]
    Exists(PathBuf),
    /// The library's.
    #[error("cannot make a certificate: {0}")]
    Make(#[from] rcgen::Error),
    /// The library's.
    #[error("cannot use a certificate: {0}")]
    Use(#[from] rustls::Error),
}

/// Makes a CA in a new directory: for these domains and all names below them. The root's key is written to `keep_root`,
/// or is gone.
///
/// # Errors
///
/// If a domain is none, or a file cannot be written.
pub fn init(
    folder: &Path,
    permit: &[String],
    keep_root: Option<&Path>,
) -> Result<(), AuthorityError> {
    let domains = permit.iter().map(|text| match Host::from_name(text) {
        Ok(Host::Domain(name)) if !Host::Domain(name.clone()).is_mistyped_address() => Ok(name),
        _ => Err(AuthorityError::Domain(text.clone())),
    });
    let domains = domains.collect::<Result<Vec<_>, _>>()?;
    let write_error = |path: &Path, error| AuthorityError::Write {
        path: path.to_owned(),
        error,
    };
    if folder.join(ROOT).exists() || folder.join(INTERMEDIATE_KEY).exists() {
        return Err(AuthorityError::Exists(folder.to_owned()));
    }
    let made = fs::DirBuilder::new()
        .mode(0o755)
        .recursive(true)
        .create(folder);
    made.map_err(|error| write_error(folder, error))?;

    let root_key = KeyPair::generate()?;
    let mut root = CertificateParams::default();
    root.distinguished_name = named(&format!("refrain CA {}", short_name(&root_key)));
    root.is_ca = IsCa::Ca(BasicConstraints::Constrained(1));
    root.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
    live(&mut root, AUTHORITY_LIFE)?;
    let root_certificate = root.self_signed(&root_key)?;
    let root_pem = root_certificate.pem();

    let key = KeyPair::generate()?;
    let mut intermediate = intermediate_params(&key);
    let everything = [
        CidrSubnet::V4([0; 4], [0; 4]),
        CidrSubnet::V6([0; 16], [0; 16]),
    ];
    intermediate.name_constraints = Some(NameConstraints {
        permitted_subtrees: domains.into_iter().map(GeneralSubtree::DnsName).collect(),
        excluded_subtrees: everything.map(GeneralSubtree::IpAddress).to_vec(),
    });
    live(&mut intermediate, AUTHORITY_LIFE)?;
    let intermediate = intermediate.signed_by(&key, &Issuer::from_params(&root, &root_key))?;

    let write = |path: &Path, mode: u32, text: &str| {
        let file = OpenOptions::new()
            .write(true)
            .create_new(true)
            .mode(mode)
            .open(path);
        let written = file.and_then(|mut file| {
            file.write_all(text.as_bytes())?;
            file.sync_all()
        });
        written.map_err(|error| write_error(path, error))
    };
    if let Some(path) = keep_root {
        write(path, 0o600, &root_key.serialize_pem())?;
    }
    write(&folder.join(INTERMEDIATE_KEY), 0o600, &key.serialize_pem())?;
    write(&folder.join(INTERMEDIATE), 0o644, &intermediate.pem())?;
    write(&folder.join(ROOT), 0o644, &root_pem)
}

/// Removes the key of a CA, so that it certifies nothing any more.
///
/// # Errors
///
/// If it is not there, or cannot be removed.
pub fn revoke(folder: &Path) -> Result<(), AuthorityError> {
    for name in [INTERMEDIATE_KEY, INTERMEDIATE, ROOT] {
        let path = folder.join(name);
        match fs::remove_file(&path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound && name == INTERMEDIATE_KEY => {
                return Err(AuthorityError::None(folder.to_owned()));
            }
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            removed => removed.map_err(|error| AuthorityError::Remove { path, error })?,
        }
    }
    Ok(())
}

/// The file with the certificate that clients trust.
#[must_use]
pub fn root_file(folder: &Path) -> PathBuf {
    folder.join(ROOT)
}

/// What the intermediate's certificate and its issuer's name are made of, apart from its constraints.
fn intermediate_params(key: &KeyPair) -> CertificateParams {
    let mut params = CertificateParams::default();
    params.distinguished_name = named(&format!("refrain intermediate CA {}", short_name(key)));
    params.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
    params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
    params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
    params.use_authority_key_identifier_extension = true;
    params
}

fn named(name: &str) -> DistinguishedName {
    let mut names = DistinguishedName::new();
    names.push(DnType::CommonName, name);
    names
}

/// A short name of a key, so that two CAs have two names, and a certificate's issuer is known from its key.
fn short_name(key: &KeyPair) -> String {
    let digest = ring::digest::digest(&ring::digest::SHA256, &key.subject_public_key_info());
    digest.as_ref()[..4]
        .iter()
        .map(|byte| format!("{byte:02x}"))
        .collect()
}

fn live(params: &mut CertificateParams, life: Duration) -> Result<(), AuthorityError> {
    let now = OffsetDateTime::now_utc();
    params.not_before = now - DAY;
    params.not_after = now + life;
    // Two certificates of an issuer never have the same: browsers refuse the second one.
    let mut serial = [0; 16];
    let random = SystemRandom::new().fill(&mut serial);
    random.map_err(|_| rcgen::Error::RingUnspecified)?;
    serial[0] &= 0x7f;
    params.serial_number = Some(SerialNumber::from_slice(&serial));
    Ok(())
}

impl Authority {
    /// Reads a CA.
    pub(crate) fn load(folder: &Path) -> Result<Authority, AuthorityError> {
        let certificate = |name: &str| {
            let path = folder.join(name);
            let pem = read(&path);
            let pem = pem.map_err(|error| match error.kind() {
                io::ErrorKind::NotFound if name == ROOT => AuthorityError::NoCa(folder.to_owned()),
                _ => AuthorityError::File {
                    path: path.clone(),
                    error,
                },
            })?;
            CertificateDer::from_pem_slice(&pem).map_err(|_| AuthorityError::NoCertificate(path))
        };
        let (root, intermediate) = (certificate(ROOT)?, certificate(INTERMEDIATE)?);
        let path = folder.join(INTERMEDIATE_KEY);
        let key = read_secret_file(&path, |text| {
            KeyPair::from_pem(text).map_err(|_| AuthorityError::WrongKey(path.clone()))
        })?;
        let provider = Arc::new(ring_provider::default_provider());
        let signer = |key: &KeyPair| {
            let der = PrivatePkcs8KeyDer::from(key.serialize_der());
            provider.key_provider.load_private_key(der.into())
        };
        let belongs = CertifiedKey::new(vec![intermediate.clone()], signer(&key)?).keys_match();
        belongs.map_err(|_| AuthorityError::WrongKey(path))?;
        let leaf_key = KeyPair::generate()?;
        let leaf_signer = signer(&leaf_key)?;
        let params = intermediate_params(&key);
        Ok(Authority {
            root,
            intermediate,
            issuer: Issuer::new(params, key),
            leaf_key,
            leaf_signer,
            provider,
            leaves: Mutex::default(),
        })
    }

    /// Whether clients that trust the root accept this name.
    pub(crate) fn permits(&self, name: &str) -> Result<(), AuthorityError> {
        let mut roots = RootCertStore::empty();
        roots.add(self.root.clone())?;
        let provider = Arc::clone(&self.provider);
        let verifier = WebPkiServerVerifier::builder_with_provider(Arc::new(roots), provider);
        let not_permitted = |reason: String| AuthorityError::NotPermitted {
            name: name.to_owned(),
            reason,
        };
        let verifier = verifier
            .build()
            .map_err(|error| not_permitted(error.to_string()))?;
        let leaf = self.certificate(name)?;
        let server =
            ServerName::try_from(name).map_err(|error| not_permitted(error.to_string()))?;
        let chain = [self.intermediate.clone()];
        let verified = verifier.verify_server_cert(&leaf, &chain, &server, &[], UnixTime::now());
        verified.map(|_| ()).map_err(|error| match error {
            rustls::Error::InvalidCertificate(
                CertificateError::UnknownIssuer | CertificateError::BadSignature,
            ) => AuthorityError::Mixed,
            rustls::Error::InvalidCertificate(_) => {
                not_permitted("it is not in the domains of --permit".to_owned())
            }
            error => not_permitted(error.to_string()),
        })
    }

    /// A certificate of this name.
    fn certificate(&self, name: &str) -> Result<CertificateDer<'static>, AuthorityError> {
        let mut params = CertificateParams::new(vec![name.to_owned()])?;
        params.distinguished_name = DistinguishedName::new();
        params.is_ca = IsCa::ExplicitNoCa;
        params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
        params.use_authority_key_identifier_extension = true;
        live(&mut params, LEAF_LIFE)?;
        let certificate = params.signed_by(&self.leaf_key, &self.issuer)?;
        Ok(certificate.der().clone())
    }

    /// How this end speaks TLS as this name. A certificate is made once, and again after half of its life.
    pub(crate) fn config(&self, name: &str) -> Result<Arc<ServerConfig>, AuthorityError> {
        let now = Instant::now();
        let mut leaves = self.leaves.lock().expect("held for a moment");
        if let Some(leaf) = leaves.get_mut(name)
            && now - leaf.made < LEAF_LIFE / 2
        {
            leaf.used = now;
            return Ok(Arc::clone(&leaf.config));
        }
        let chain = vec![self.certificate(name)?, self.intermediate.clone()];
        let certified = CertifiedKey::new(chain, Arc::clone(&self.leaf_signer));
        let mut config = ServerConfig::builder_with_provider(Arc::clone(&self.provider))
            .with_safe_default_protocol_versions()?
            .with_no_client_auth()
            .with_cert_resolver(Arc::new(SingleCertAndKey::from(certified)));
        config.alpn_protocols = PROTOCOLS.map(<[u8]>::to_vec).to_vec();
        let config = Arc::new(config);
        if leaves.len() >= LEAVES_MAX {
            let oldest = leaves.iter().min_by_key(|(_, leaf)| leaf.used);
            let oldest = oldest.map(|(name, _)| name.clone());
            oldest.and_then(|name| leaves.remove(&name));
        }
        let leaf = Leaf {
            made: now,
            used: now,
            config: Arc::clone(&config),
        };
        leaves.insert(name.to_owned(), leaf);
        Ok(config)
    }
}

fn read(path: &Path) -> io::Result<Vec<u8>> {
    let file: File = text_file::open(path)?;
    let mut bytes = Vec::new();
    file.take(CERTIFICATE_BYTES_MAX).read_to_end(&mut bytes)?;
    Ok(bytes)
}
