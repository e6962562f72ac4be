//! Private keys that open archives: age identity files and OpenSSH private keys.

use std::fmt;

use age::ssh::{EncryptedKey, UnsupportedKey};

use super::{
    keys_section::{Stanza, stanzas},
    ssh_numbers::private_key_has_zeros,
};

/// Bytes of a key file. age's parser begins anew with each line of an ssh key.
const FILE_BYTES_MAX: usize = 64 << 10;

/// What ssh private keys are called in PEM, as far as age reads them.
const SSH_LABELS: [&str; 2] = ["OPENSSH PRIVATE KEY", "RSA PRIVATE KEY"];

/// Why a file holds no identities.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("cannot use key \"{file}\": {problem}")]
pub struct IdentityError {
    /// The name that it was given with.
    pub file: String,
    /// What is wrong with it.
    pub problem: IdentityProblem,
}

/// What is wrong with a file of identities.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum IdentityProblem {
    /// Longer than key files are.
    #[error("too large for a private key: {bytes} bytes (limit {FILE_BYTES_MAX})")]
    TooLong {
        /// Of the file.
        bytes: usize,
    },
    /// An age file, as `age -p` makes it of identities, or no text at all.
    #[error("not a private key in plain text (first decrypt a file that `age -p` encrypted)")]
    NotText,
    /// A line of an age identity file that is none.
    #[error("line {line} is not an age identity (AGE-SECRET-KEY-1...)")]
    Line {
        /// From 1.
        line: usize,
    },
    /// A recipient: an ssh `.pub` file, or what `age-keygen -y` prints.
    #[error(
        "line {line} is a public key, but a private key is needed (for ssh, the file without .pub)"
    )]
    PublicKey {
        /// From 1.
        line: usize,
    },
    /// An identity that needs a program of its own.
    #[error("line {line} is a plugin identity, which is not supported")]
    Plugin {
        /// From 1.
        line: usize,
    },
    /// No line with an identity.
    #[error("no private key found in it")]
    Empty,
    /// PEM of another kind, such as a key for links.
    #[error(
        "not an age or ssh private key, but another PEM file, such as a key of `refrain keygen` (make a key \
         with age-keygen or ssh-keygen)"
    )]
    OtherPem,
    /// It begins as an ssh key, and is damaged.
    #[error("damaged ssh private key")]
    DamagedSsh,
    /// An ssh key that age cannot decrypt with.
    #[error("cannot decrypt with {what} (use an ssh-ed25519 or ssh-rsa key in OpenSSH format)")]
    UnsupportedSsh {
        /// The kind of key or its encryption.
        what: String,
    },
}

/// An ssh key under a passphrase.
pub(super) struct LockedKey {
    pub(super) file: String,
    pub(super) key: EncryptedKey,
    kind: Vec<u8>,
    tag: Vec<u8>,
}

impl LockedKey {
    /// Whether a stanza is for this key: so its passphrase is asked for only where it helps.
    pub(super) fn is_named_by(&self, stanza: &Stanza<'_>) -> bool {
        stanza.kind == self.kind && stanza.first_argument == self.tag
    }
}

/// Private keys of who wants to read.
#[derive(Default)]
pub struct Identities {
    pub(super) open: Vec<Box<dyn age::Identity + Send + Sync>>,
    pub(super) locked: Vec<LockedKey>,
}

impl fmt::Debug for Identities {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "Identities({} open, {} locked)",
            self.open.len(),
            self.locked.len()
        )
    }
}

impl Identities {
    /// None.
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds those in a file: an age identity file with one identity a line, or one ssh private key, whose
    /// passphrase, if it has one, is asked for when it is needed. `file` is what it is called in errors and
    /// questions. Who read the content wipes it.
    ///
    /// # Errors
    ///
    /// The file has no identities, or others than these.
    pub fn add(&mut self, file: &str, content: &[u8]) -> Result<(), IdentityError> {
        self.add_content(file, content)
            .map_err(|problem| IdentityError {
                file: file.to_owned(),
                problem,
            })
    }

    fn add_content(&mut self, file: &str, content: &[u8]) -> Result<(), IdentityProblem> {
        if content.len() > FILE_BYTES_MAX {
            return Err(IdentityProblem::TooLong {
                bytes: content.len(),
            });
        }
        let text = str::from_utf8(content).map_err(|_| IdentityProblem::NotText)?;
        if text.starts_with("age-encryption.org/") || text.starts_with("-----BEGIN AGE") {
            return Err(IdentityProblem::NotText);
        }
        if let Some(label) = text.strip_prefix("-----BEGIN ") {
            return match SSH_LABELS.iter().any(|known| label.starts_with(known)) {
                true => self.add_ssh(file, text),
                false => Err(IdentityProblem::OtherPem),
            };
        }
        let mut found = Vec::new();
        for (index, line) in text.lines().enumerate() {
            let line = line.trim();
            if line.is_empty() || line.starts_with('#') {
                continue;
            }
            if line.starts_with("age1") || line.starts_with("ssh-") {
                return Err(IdentityProblem::PublicKey { line: index + 1 });
            }
            if line.starts_with("AGE-PLUGIN-") {
                return Err(IdentityProblem::Plugin { line: index + 1 });
            }
            let identity = line
                .parse::<age::x25519::Identity>()
                .map_err(|_| IdentityProblem::Line { line: index + 1 })?;
            found.push(Box::new(identity) as _);
        }
        if found.is_empty() {
            return Err(IdentityProblem::Empty);
        }
        self.open.append(&mut found);
        Ok(())
    }

    fn add_ssh(&mut self, file: &str, text: &str) -> Result<(), IdentityProblem> {
        if private_key_has_zeros(text) {
            return Err(IdentityProblem::DamagedSsh);
        }
        let identity = age::ssh::Identity::from_buffer(text.as_bytes(), None)
            .map_err(|_| IdentityProblem::DamagedSsh)?;
        match identity {
            age::ssh::Identity::Unencrypted(_) => self.open.push(Box::new(identity)),
            age::ssh::Identity::Encrypted(ref key) => {
                let key = key.clone();
                let (kind, tag) = stanza_of(identity)?;
                self.locked.push(LockedKey {
                    file: file.to_owned(),
                    key,
                    kind,
                    tag,
                });
            }
            age::ssh::Identity::Unsupported(key) => {
                return Err(IdentityProblem::UnsupportedSsh {
                    what: match key {
                        UnsupportedKey::EncryptedPem => "a PEM key with a passphrase".to_owned(),
                        UnsupportedKey::EncryptedSsh(cipher) => {
                            format!("a key encrypted with {cipher}")
                        }
                        UnsupportedKey::Hardware(kind) | UnsupportedKey::Type(kind) => {
                            format!("a key of type {kind}")
                        }
                    },
                });
            }
        }
        Ok(())
    }
}

/// What stanzas for this key begin with. Learned by writing one: age tells it in no other way.
fn stanza_of(identity: age::ssh::Identity) -> Result<(Vec<u8>, Vec<u8>), IdentityProblem> {
    // Parsed as well: age panics when it encrypts to an RSA key that is too short, and parsing refuses it.
    let recipient = age::ssh::Recipient::try_from(identity)
        .ok()
        .and_then(|recipient| recipient.to_string().parse::<age::ssh::Recipient>().ok())
        .ok_or(IdentityProblem::DamagedSsh)?;
    let written = super::keys::encrypt(&[&recipient], &[]);
    let stanzas = stanzas(&written).expect("age writes headers that are in order");
    Ok((stanzas[0].kind.to_vec(), stanzas[0].first_argument.to_vec()))
}
