//! The Ed25519 keys by which the two ends of a link know each other.
//!
//! A private key is a PKCS#8 file in PEM, as `openssl genpkey -algorithm ed25519` writes it too,
//! readable by its owner alone. A public key is its 32 bytes in base64, one short line that fits
//! a flag. There is no authority and no certificate: each end names the keys that it accepts.

use std::fmt;
use std::fs::{self, File};
use std::io::{self, Write};
use std::os::unix::fs::{FileTypeExt, MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::str::FromStr;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use ring::rand::SystemRandom;
use ring::signature::{Ed25519KeyPair, KeyPair};
use rustix::process::geteuid;
use tempfile::{NamedTempFile, PersistError};

use crate::text_file;

mod peers;

pub use peers::{PeerKeys, SharedPeerKeys};

/// A public key's length in bytes.
pub(crate) const PUBLIC_KEY_BYTES: usize = 32;

/// A private key file holds some 200 bytes; more than this is another file.
const PRIVATE_KEY_FILE_BYTES_MAX: u64 = 16 << 10;

/// An end's private key. Its `Debug` shows the public half alone.
#[derive(Clone)]
pub struct PrivateKey {
    /// PKCS#8, version 1 or 2.
    der: Vec<u8>,
    public: PublicKey,
}

impl PartialEq for PrivateKey {
    fn eq(&self, other: &PrivateKey) -> bool {
        self.public == other.public
    }
}

/// An end's public key, by which the other end knows it.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PublicKey(pub [u8; PUBLIC_KEY_BYTES]);

/// Why a key could not be read, written or made.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum KeyError {
    /// Reading the file failed.
    #[error("{}: {source}", text_file::failure(path, source))]
    Io {
        /// The file.
        path: PathBuf,
        /// What failed.
        source: io::Error,
    },
    /// Another user's file, which this one may not read.
    #[error(
        "cannot open \"{}\": permission denied: it belongs to user {owner}, and this process runs as user {user} \
         (if it is meant for this user, run: chown {user} {})",
        path.display(),
        path.display()
    )]
    Denied {
        /// The file.
        path: PathBuf,
        /// The id of its owner.
        owner: u32,
        /// The id of this process's user.
        user: u32,
    },
    /// Writing the file failed.
    #[error("cannot write \"{}\": {source}", path.display())]
    Write {
        /// The file.
        path: PathBuf,
        /// What failed.
        source: io::Error,
    },
    /// A file of that name is there already; a key is never overwritten.
    #[error("cannot write \"{}\": it already exists (keygen never overwrites a file: give another name)", .0.display())]
    Exists(PathBuf),
    /// A directory has that name.
    #[error("cannot write \"{}\": it is a directory (give the name of a file)", .0.display())]
    Directory(PathBuf),
    /// The file is there, and empty: what a program leaves that ran out of disk.
    #[error("\"{}\" is empty (remove it, then run: refrain keygen {})", .0.display(), .0.display())]
    Empty(PathBuf),
    /// There is no private key file of that name.
    #[error("cannot open \"{}\": {}", .0.display(), no_such_file(.0))]
    Missing(PathBuf),
    /// Others than the owner can read the file.
    #[error(
        "cannot use \"{}\": other users can read this secret (mode {mode:o}; run: chmod 600 {})",
        path.display(),
        path.display()
    )]
    Exposed {
        /// The file.
        path: PathBuf,
        /// Its permission bits.
        mode: u32,
    },
    /// A directory, a device, or a pipe that others can open, where a file is needed.
    #[error("\"{}\" is {kind}", path.display())]
    NotFile {
        /// Where it is.
        path: PathBuf,
        /// What it is.
        kind: &'static str,
    },
    /// The file holds a public key.
    #[error(
        "\"{}\" contains a public key, but a private key is needed ({}--peer-key takes public keys)",
        .0.display(),
        private_file(.0)
    )]
    IsPublic(PathBuf),
    /// The file holds a private key of SSH.
    #[error(
        "\"{}\" is an OpenSSH private key, but an Ed25519 private key in PEM is needed (make one with: refrain \
         keygen FILE)",
        .0.display()
    )]
    OpenSsh(PathBuf),
    /// The file holds something else than an Ed25519 private key.
    #[error("\"{}\" is not an Ed25519 private key in PEM (make one with: refrain keygen FILE)", .0.display())]
    NotPrivate(PathBuf),
    /// A private key stands where peers' public keys are needed.
    #[error(
        "\"{}\" contains a private key, but a public key is needed (give {}, or the key that \
         `refrain keygen --show` prints; --key takes private keys)",
        .0.display(),
        public_file(.0)
    )]
    IsPrivate(PathBuf),
    /// A line of a file of peer keys does not begin with a public key.
    #[error("line {line} of \"{}\": {reason}", path.display())]
    PeerLine {
        /// The file.
        path: PathBuf,
        /// The line, from 1.
        line: usize,
        /// What is wrong with the key.
        reason: PublicKeyError,
    },
    /// A value that is neither a public key nor the name of a file, nor a name and one of these.
    #[error(
        "{} (give a public key of 44 characters, or a FILE.pub of `refrain keygen FILE`; NAME= before it is optional)",
        peers::neither_key_nor_file(.0)
    )]
    NeitherKeyNorFile(String),
    /// A name for a file that does not have one key.
    #[error("NAME=FILE names one peer: expected one key in \"{0}\", found {1}")]
    NotOneKey(String, usize),
    /// A name that no peer can have.
    #[error(
        "invalid peer name \"{}\": expected text without control characters that is not a key",
        .0.escape_default()
    )]
    BadName(String),
    /// One key under two names.
    #[error("peers \"{0}\" and \"{1}\" have the same key: each peer needs its own key")]
    SameKey(String, String),
    /// One name for two keys.
    #[error("peer \"{0}\" has two keys: {1} and {2} (each key needs its own name)")]
    SameName(String, PublicKey, PublicKey),
    /// The operating system's random numbers failed.
    #[error("cannot get random numbers from the operating system")]
    Random,
}

/// Why a text is not a public key.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum PublicKeyError {
    /// Characters that base64 does not have, or the wrong padding.
    #[error("not a public key: expected 44 characters of base64")]
    NotBase64,
    /// Base64 of another length than 32 bytes.
    #[error("not a public key: {0} bytes instead of 32")]
    WrongLength(usize),
    /// A name, or other text that is too short.
    #[error("no key: expected NAME KEY, or a KEY of 44 characters")]
    Missing,
    /// A public key of SSH.
    #[error(
        "this is an OpenSSH public key, but one from `refrain keygen` is needed (at the peer, run: refrain keygen FILE)"
    )]
    OpenSsh,
}

impl PrivateKey {
    /// Makes a new key.
    pub fn generate() -> Result<PrivateKey, KeyError> {
        let document = Ed25519KeyPair::generate_pkcs8(&SystemRandom::new());
        let document = document.map_err(|_| KeyError::Random)?;
        let der = document.as_ref().to_vec();
        Ok(PrivateKey::from_der(der).expect("ring reads the keys it makes"))
    }

    /// Reads a key file, and refuses one that others than its owner can read.
    pub fn load(path: &Path) -> Result<PrivateKey, KeyError> {
        let parse = |text: &str| {
            if text.is_empty() {
                return Err(KeyError::Empty(path.into()));
            }
            let der = pem_body(text, "PRIVATE KEY");
            der.and_then(PrivateKey::from_der).ok_or_else(|| {
                if text.contains("OPENSSH PRIVATE KEY-----") {
                    KeyError::OpenSsh(path.into())
                } else if has_public_key(text) && !text.contains("PRIVATE KEY-----") {
                    KeyError::IsPublic(path.into())
                } else {
                    KeyError::NotPrivate(path.into())
                }
            })
        };
        read_secret_file(path, parse).map_err(|error| match error {
            KeyError::Io { source, .. } if source.kind() == io::ErrorKind::NotFound => {
                match has_public_key(&path.to_string_lossy()) {
                    true => KeyError::IsPublic(path.into()),
                    false => KeyError::Missing(path.into()),
                }
            }
            other => other,
        })
    }

    /// Writes the key to a new file that only its owner can read, and its public half to `FILE.pub`,
    /// which all can read; never over another file. Both appear whole, or neither does.
    pub fn write_new(&self, path: &Path) -> Result<(), KeyError> {
        let public_path = public_path(path);
        for file in [path, &public_path] {
            // Before anything is made. A link to nothing is a file, too.
            if file.symlink_metadata().is_ok() {
                return Err(match file {
                    _ if file.is_dir() => KeyError::Directory(file.into()),
                    _ if file == path && is_empty_file(path) => KeyError::Empty(path.into()),
                    _ => KeyError::Exists(file.into()),
                });
            }
        }
        let private = new_file(path, &self.to_pem(), PRIVATE_MODE)?;
        let public = new_file(&public_path, &format!("{}\n", self.public), PUBLIC_MODE)?;
        keep(private, path)?;
        keep(public, &public_path).inspect_err(|_| {
            // It has had its name for a moment, and nobody knows its other half.
            let _ = fs::remove_file(path);
        })
    }

    /// The public half.
    pub fn public(&self) -> PublicKey {
        self.public
    }

    /// The key as PKCS#8, for the TLS library.
    pub(crate) fn pkcs8_der(&self) -> &[u8] {
        &self.der
    }

    fn from_der(der: Vec<u8>) -> Option<PrivateKey> {
        // Version 1 lacks the public half, so that nothing can be checked against it.
        let pair = Ed25519KeyPair::from_pkcs8_maybe_unchecked(&der).ok()?;
        let public = PublicKey::from_bytes(pair.public_key().as_ref()).ok()?;
        Some(PrivateKey { der, public })
    }

    fn to_pem(&self) -> String {
        const LINE_CHARS: usize = 64;
        let body = BASE64.encode(&self.der);
        let mut pem = String::from("-----BEGIN PRIVATE KEY-----\n");
        for line in body.as_bytes().chunks(LINE_CHARS) {
            pem.extend(line.iter().map(|&byte| char::from(byte)));
            pem.push('\n');
        }
        pem + "-----END PRIVATE KEY-----\n"
    }
}

impl fmt::Debug for PrivateKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PrivateKey")
            .field("public", &self.public)
            .finish_non_exhaustive()
    }
}

impl PublicKey {
    /// The DER in front of the 32 bytes of every Ed25519 SubjectPublicKeyInfo (RFC 8410).
    const SPKI_PREFIX: [u8; 12] = [
        0x30, 0x2a, 0x30, 0x05, 0x06, 0x03, 0x2b, 0x65, 0x70, 0x03, 0x21, 0x00,
    ];

    /// The key in 32 raw bytes.
    pub fn from_bytes(bytes: &[u8]) -> Result<PublicKey, PublicKeyError> {
        let key = bytes.try_into();
        key.map(PublicKey)
            .map_err(|_| PublicKeyError::WrongLength(bytes.len()))
    }

    /// A short form for logs and tables: the start of the key's text, enough to recognise a key
    /// and too little to accept one.
    pub fn fingerprint(&self) -> String {
        const CHARS: usize = 12;
        format!("key:{}", &self.to_string()[..CHARS])
    }

    /// The key in a SubjectPublicKeyInfo, as TLS carries it; `None` if it is of another kind.
    pub(crate) fn from_spki(spki: &[u8]) -> Option<PublicKey> {
        let raw = spki.strip_prefix(&PublicKey::SPKI_PREFIX)?;
        PublicKey::from_bytes(raw).ok()
    }
}

impl FromStr for PublicKey {
    type Err = PublicKeyError;

    fn from_str(text: &str) -> Result<PublicKey, PublicKeyError> {
        let bytes = BASE64.decode(text).map_err(|_| PublicKeyError::NotBase64)?;
        PublicKey::from_bytes(&bytes)
    }
}

impl fmt::Display for PublicKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&BASE64.encode(self.0))
    }
}

impl fmt::Debug for PublicKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// Only its owner may read and write a private key.
const PRIVATE_MODE: u32 = 0o600;

/// A public key is for all, whatever the umask.
const PUBLIC_MODE: u32 = 0o644;

/// Where the public half of the key in `path` goes: `FILE.pub`.
fn public_path(path: &Path) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(".pub");
    name.into()
}

/// Why there is no private key at `path`, and what to do. Where the directory is wrong, another key would be a second
/// mistake.
fn no_such_file(path: &Path) -> String {
    let make = format!(
        "make a key, as the gateway's user, with: refrain keygen {}",
        path.display()
    );
    text_file::no_such_file(path, Some(&make))
}

/// What to give instead of the public half at `path`, if the private half is next to it.
fn private_file(path: &Path) -> String {
    let private = path.with_extension("");
    match path.extension() {
        Some(extension) if extension == "pub" && private.is_file() => {
            format!("give \"{}\"; ", private.display())
        }
        _ => String::new(),
    }
}

/// What to give instead of the private half at `path`: the public half, if it is next to it.
fn public_file(path: &Path) -> String {
    let public = public_path(path);
    match PeerKeys::load(&[public.to_string_lossy()]) {
        Ok(_) => format!("\"{}\"", public.display()),
        Err(_) => "FILE.pub of `refrain keygen FILE`".to_owned(),
    }
}

/// A file with this text that has no name yet, and goes when it is dropped without one.
fn new_file(path: &Path, text: &str, mode: u32) -> Result<NamedTempFile, KeyError> {
    // In the same folder, for only there it can get its name in one step.
    let folder = match path.parent() {
        Some(folder) if folder != Path::new("") => folder,
        _ => Path::new("."),
    };
    let write = || {
        // Its mode is 0600 until it is complete.
        let mut file =
            NamedTempFile::new_in(folder).map_err(|error| plain_error(folder, &error))?;
        file.as_file_mut().write_all(text.as_bytes())?;
        file.as_file()
            .set_permissions(fs::Permissions::from_mode(mode))?;
        file.as_file().sync_all()?;
        Ok(file)
    };
    write().map_err(write_error(path))
}

/// A failure to make a temporary file, without that file's name, which says nothing to users.
fn plain_error(folder: &Path, error: &io::Error) -> io::Error {
    let text = error.to_string();
    let reason = match error.kind() {
        // Such as /proc.
        io::ErrorKind::NotFound if folder.is_dir() => "its directory does not accept new files",
        io::ErrorKind::NotFound => "its directory does not exist",
        _ => text.split(" at path ").next().unwrap_or_default(),
    };
    io::Error::new(error.kind(), reason)
}

/// Gives a file its name, unless another one has it.
fn keep(file: NamedTempFile, path: &Path) -> Result<(), KeyError> {
    match file.persist_noclobber(path) {
        Ok(_) => Ok(()),
        Err(PersistError { error, .. }) if error.kind() == io::ErrorKind::AlreadyExists => {
            Err(KeyError::Exists(path.into()))
        }
        Err(PersistError { error, .. }) => Err(write_error(path)(error)),
    }
}

fn is_empty_file(path: &Path) -> bool {
    fs::metadata(path).is_ok_and(|file| file.is_file() && file.len() == 0)
}

fn has_public_key(text: &str) -> bool {
    let mut words = text.split_whitespace();
    text.contains("PUBLIC KEY-----") || words.any(|word| word.parse::<PublicKey>().is_ok())
}

/// Reads a small file that only its owner may be able to read: a private key, a token or users. It is
/// parsed before its mode is checked, so that no error advises to change the mode of another file.
pub(crate) fn read_secret_file<T, E: From<KeyError>>(
    path: &Path,
    parse: impl FnOnce(&str) -> Result<T, E>,
) -> Result<T, E> {
    // Before it is opened: a device may do something then, and a pipe waits for its other end.
    let metadata = fs::metadata(path).map_err(io_error(path))?;
    refuse_special(path, &metadata)?;
    let file = File::open(path).map_err(io_error(path))?;
    let metadata = file.metadata().map_err(io_error(path))?;
    refuse_special(path, &metadata)?;
    let secret = parse(&read_bounded(file, path, PRIVATE_KEY_FILE_BYTES_MAX)?)?;
    match exposed_mode(&metadata) {
        None => Ok(secret),
        Some(mode) => {
            let path = path.into();
            Err(KeyError::Exposed { path, mode }.into())
        }
    }
}

/// Refuses all but files, and pipes of the owner only, such as those of a shell's `<(command)`.
fn refuse_special(path: &Path, metadata: &fs::Metadata) -> Result<(), KeyError> {
    let kind = match metadata.file_type() {
        file if file.is_file() => return Ok(()),
        pipe if pipe.is_fifo() && exposed_mode(metadata).is_none() => return Ok(()),
        folder if folder.is_dir() => "a directory, not a file",
        _ => "not a regular file",
    };
    let path = path.into();
    Err(KeyError::NotFile { path, kind })
}

/// The permission bits, if others than the owner have any.
fn exposed_mode(metadata: &fs::Metadata) -> Option<u32> {
    const GROUP_AND_OTHERS: u32 = 0o077;
    let mode = metadata.permissions().mode() & 0o777;
    (mode & GROUP_AND_OTHERS != 0).then_some(mode)
}

fn read_bounded(file: File, path: &Path, bytes_max: u64) -> Result<String, KeyError> {
    let read = text_file::read(file, bytes_max, "too large for a file of keys");
    read.map_err(io_error(path))
}

fn io_error(path: &Path) -> impl Fn(io::Error) -> KeyError + '_ {
    move |source| {
        let (path, user) = (path.to_owned(), geteuid().as_raw());
        let owner = fs::metadata(&path).map_or(user, |file| file.uid());
        match source.kind() {
            io::ErrorKind::PermissionDenied if owner != user => {
                KeyError::Denied { path, owner, user }
            }
            _ => KeyError::Io { path, source },
        }
    }
}

fn write_error(path: &Path) -> impl Fn(io::Error) -> KeyError + '_ {
    |source| KeyError::Write {
        path: path.into(),
        source,
    }
}

/// The bytes of a PEM text's first section with this label.
fn pem_body(text: &str, label: &str) -> Option<Vec<u8>> {
    let begin = format!("-----BEGIN {label}-----");
    let end = format!("-----END {label}-----");
    let (_, rest) = text.split_once(&begin)?;
    let (body, _) = rest.split_once(&end)?;
    let body: String = body.split_whitespace().collect();
    BASE64.decode(body).ok()
}

#[cfg(test)]
mod tests;
