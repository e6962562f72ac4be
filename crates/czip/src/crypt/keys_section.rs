//! What a keys section says without a key: for which kinds of keys it is, or why it is none.
//!
//! age's parser begins anew with each line, so that the time for a header grows with the square of its
//! lines. A scan that allocates nothing but a list of bounded length comes first.

use crate::format::limits::KEYS_BYTES_MAX;

/// Stanzas of a header.
pub(super) const STANZAS_MAX: usize = 256;

/// One stanza's first line.
pub(super) struct Stanza<'a> {
    pub(super) kind: &'a [u8],
    /// For ssh keys what age calls the key: four bytes of its SHA-256, in base64.
    pub(super) first_argument: &'a [u8],
}

/// Why an archive key cannot be wrapped.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum WrapError {
    /// Nobody could open it.
    #[error("an encrypted archive needs a recipient")]
    NoRecipients,
}

/// Why a keys section gives no archive key.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum UnwrapError {
    /// Longer than [`KEYS_BYTES_MAX`].
    #[error("the keys are too large: {bytes} bytes (limit {KEYS_BYTES_MAX})")]
    TooLong {
        /// Of the section.
        bytes: usize,
    },
    /// Not a binary age file of version 1.
    #[error("the keys are not an age file of version 1")]
    NotAge,
    /// More recipients than any archive has.
    #[error("the keys have too many stanzas (limit {STANZAS_MAX})")]
    TooManyStanzas,
    /// Encrypted to a passphrase.
    #[error("the keys are encrypted with a passphrase, which archives do not allow")]
    Passphrase,
    /// None of the identities is a recipient's.
    #[error("none of the given private keys opens this archive")]
    NotARecipient,
    /// An ssh key's passphrase was not given.
    #[error(
        "the passphrase of \"{file}\" is needed, but was not given (run this where standard input and standard \
         error are a terminal, or use a key without a passphrase)"
    )]
    NoPassphrase {
        /// The key's file.
        file: String,
    },
    /// An ssh key does not open.
    #[error("wrong passphrase for \"{file}\"")]
    WrongPassphrase {
        /// The key's file.
        file: String,
    },
    /// An age file that was changed or cut.
    #[error("the keys are damaged")]
    Damaged,
    /// What is in it is no archive key.
    #[error("the keys do not contain an archive key of 32 bytes")]
    NotAKey,
}

/// The kinds of keys that a keys section is for, one for each recipient, as age calls them. What age adds
/// that means nothing is left out.
///
/// # Errors
///
/// It is no keys section.
pub fn recipient_kinds(keys: &[u8]) -> Result<Vec<String>, UnwrapError> {
    let kinds = stanzas(keys)?.into_iter().map(|stanza| stanza.kind);
    let meant = kinds.filter(|kind| !kind.ends_with(b"-grease"));
    Ok(meant.map(|kind| kind.escape_ascii().to_string()).collect())
}

pub(super) fn stanzas(keys: &[u8]) -> Result<Vec<Stanza<'_>>, UnwrapError> {
    if keys.len() > KEYS_BYTES_MAX {
        return Err(UnwrapError::TooLong { bytes: keys.len() });
    }
    let mut lines = keys.split(|&byte| byte == b'\n');
    if lines.next() != Some(b"age-encryption.org/v1") {
        return Err(UnwrapError::NotAge);
    }
    let mut stanzas = Vec::new();
    for line in lines {
        if line.starts_with(b"---") {
            return Ok(stanzas);
        }
        if let Some(arguments) = line.strip_prefix(b"-> ") {
            if stanzas.len() == STANZAS_MAX {
                return Err(UnwrapError::TooManyStanzas);
            }
            let mut arguments = arguments.split(|&byte| byte == b' ');
            stanzas.push(Stanza {
                kind: arguments.next().unwrap_or_default(),
                first_argument: arguments.next().unwrap_or_default(),
            });
        }
    }
    Err(UnwrapError::Damaged)
}
