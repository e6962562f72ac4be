//! What a keys section says without a key: for which kinds of keys it is, or why it is none.

use super::age_header::{self, STANZAS_MAX, ScanError, Stanza};
use crate::format::limits::KEYS_BYTES_MAX;

/// Why an archive key cannot be wrapped.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum WrapError {
    /// Nobody could open it.
    #[error("an encrypted archive needs a recipient")]
    NoRecipients,
}

/// Why a keys section gives no archive key.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum UnwrapError {
    /// Longer than [`KEYS_BYTES_MAX`].
    #[error("{bytes} bytes of keys, the most are {KEYS_BYTES_MAX}")]
    TooLong {
        /// Of the section.
        bytes: usize,
    },
    /// Not a binary age file of version 1.
    #[error("the keys are no age file of version 1")]
    NotAge,
    /// More recipients than any archive has.
    #[error("the keys have more than {STANZAS_MAX} stanzas")]
    TooManyStanzas,
    /// Encrypted to a passphrase.
    #[error("the keys are encrypted to a passphrase, which archives never are")]
    Passphrase,
    /// None of the identities is a recipient's.
    #[error("none of the identities is a recipient of the archive")]
    NotARecipient,
    /// An ssh key's passphrase was not given.
    #[error("{file} is needed, and its passphrase was not given")]
    NoPassphrase {
        /// The key's file.
        file: String,
    },
    /// An ssh key does not open.
    #[error("{file} does not open with this passphrase")]
    WrongPassphrase {
        /// The key's file.
        file: String,
    },
    /// An age file that was changed or cut.
    #[error("the keys are damaged")]
    Damaged,
    /// What is in it is no archive key.
    #[error("what the keys hold is no archive key, which has 32 bytes")]
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
    age_header::scan(keys).map_err(|error| match error {
        ScanError::NotAge => UnwrapError::NotAge,
        ScanError::NoEnd => UnwrapError::Damaged,
        ScanError::Stanzas => UnwrapError::TooManyStanzas,
    })
}
