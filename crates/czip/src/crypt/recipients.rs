//! For whom an archive is: public keys as `age-keygen` and `ssh-keygen` print them.

use std::fmt;

use age::ssh::ParseRecipientKeyError as SshError;

use super::{keys_section::STANZAS_MAX, ssh_numbers::public_key_has_zeros};

/// Recipients of an archive. age adds a stanza of its own, which means nothing, to theirs.
pub const RECIPIENTS_MAX: usize = STANZAS_MAX - 1;

/// Why a line names no recipient.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("line {line}: {problem}")]
pub struct RecipientError {
    /// From 1.
    pub line: usize,
    /// What is wrong with it.
    pub problem: RecipientProblem,
}

/// What is wrong with a recipient. Never holds the line, which may be a secret by mistake.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum RecipientProblem {
    /// None of the kinds.
    #[error("not a public key: expected age1..., ssh-ed25519 ... or ssh-rsa ...")]
    NotAKey,
    /// A private key.
    #[error("this is a private key, but archives are encrypted to public keys")]
    PrivateKey,
    /// It begins as a key does, and is damaged.
    #[error("damaged {kind} key")]
    Damaged {
        /// `age` or `ssh`.
        kind: &'static str,
    },
    /// A kind of key that age cannot encrypt to, or only with a program beside it.
    #[error("cannot encrypt to a key of type {kind} (use age, ssh-ed25519 or ssh-rsa)")]
    Unsupported {
        /// As the key says it.
        kind: String,
    },
    /// An RSA key that may be broken.
    #[error("the RSA key is too short (must have at least 2048 bits)")]
    RsaTooShort,
    /// An RSA key beyond what age takes.
    #[error("the RSA key is too long (limit 4096 bits)")]
    RsaTooLong,
    /// More than [`RECIPIENTS_MAX`].
    #[error("too many recipients (limit {RECIPIENTS_MAX})")]
    TooMany,
}

/// For whom an archive is.
#[derive(Default)]
pub struct Recipients(pub(super) Vec<Box<dyn age::Recipient + Send + Sync>>);

impl fmt::Debug for Recipients {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Recipients({})", self.0.len())
    }
}

impl Recipients {
    /// The recipients that each line names. A file of age recipients, an ssh `.pub` file, and lines of
    /// `authorized_keys` without options are such lines; empty ones and those that begin with `#` say
    /// nothing.
    ///
    /// # Errors
    ///
    /// The first line that is no public key of a known kind.
    pub fn parse<L: AsRef<str>>(lines: &[L]) -> Result<Self, RecipientError> {
        let mut recipients = Self::default();
        for (index, line) in lines.iter().enumerate() {
            recipients
                .add(line.as_ref().trim())
                .map_err(|problem| RecipientError {
                    line: index + 1,
                    problem,
                })?;
        }
        Ok(recipients)
    }

    /// Those of `others` as well.
    ///
    /// # Errors
    ///
    /// They are too many.
    pub fn join(&mut self, others: Self) -> Result<(), RecipientProblem> {
        if self.0.len() + others.0.len() > RECIPIENTS_MAX {
            return Err(RecipientProblem::TooMany);
        }
        self.0.extend(others.0);
        Ok(())
    }

    fn add(&mut self, line: &str) -> Result<(), RecipientProblem> {
        if line.is_empty() || line.starts_with('#') {
            return Ok(());
        }
        if self.0.len() == RECIPIENTS_MAX {
            return Err(RecipientProblem::TooMany);
        }
        self.0.push(recipient(line)?);
        Ok(())
    }
}

fn recipient(line: &str) -> Result<Box<dyn age::Recipient + Send + Sync>, RecipientProblem> {
    let upper = line.get(..16).unwrap_or(line).to_ascii_uppercase();
    if upper.starts_with("AGE-SECRET-KEY")
        || upper.starts_with("AGE-PLUGIN")
        || upper.contains("-----BEGIN")
    {
        return Err(RecipientProblem::PrivateKey);
    }
    if let Some(rest) = line.strip_prefix("age1") {
        return match line.parse::<age::x25519::Recipient>() {
            Ok(key) => Ok(Box::new(key)),
            // Of other kinds the part before the last 1 is longer: age1tag1..., age1pq1..., age1yubikey1...
            Err(_) => Err(match rest.rfind('1') {
                Some(end) => RecipientProblem::Unsupported {
                    kind: format!("age1{}", &rest[..end]),
                },
                None => RecipientProblem::Damaged { kind: "age" },
            }),
        };
    }
    if public_key_has_zeros(line) {
        return Err(RecipientProblem::Damaged { kind: "ssh" });
    }
    match line.parse::<age::ssh::Recipient>() {
        Ok(key) => Ok(Box::new(key)),
        Err(SshError::RsaModulusTooSmall) => Err(RecipientProblem::RsaTooShort),
        Err(SshError::RsaModulusTooLarge) => Err(RecipientProblem::RsaTooLong),
        Err(SshError::Unsupported(kind)) if !["ssh-rsa", "ssh-ed25519"].contains(&&*kind) => {
            Err(RecipientProblem::Unsupported { kind })
        }
        Err(_) if line.starts_with("ssh-") => Err(RecipientProblem::Damaged { kind: "ssh" }),
        Err(_) => Err(RecipientProblem::NotAKey),
    }
}
