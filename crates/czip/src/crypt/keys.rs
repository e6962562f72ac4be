//! The keys section: the archive key, as the plain content of an age file, for each recipient.

use std::io::{Read, Write};

use age::{DecryptError, secrecy::SecretString};
use zeroize::Zeroizing;

use super::{
    ArchiveKey, Identities, Recipients,
    age_header::{self, STANZAS_MAX, ScanError, Stanza},
};
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

/// Wraps an archive key for `recipients`: gives the keys section.
///
/// # Errors
///
/// There are no recipients.
///
/// # Panics
///
/// The system gives no random bytes, to age.
pub fn wrap(key: &ArchiveKey, recipients: &Recipients) -> Result<Vec<u8>, WrapError> {
    if recipients.0.is_empty() {
        return Err(WrapError::NoRecipients);
    }
    let recipients: Vec<_> = recipients
        .0
        .iter()
        .map(|recipient| &**recipient as _)
        .collect();
    Ok(encrypt(&recipients, key.as_bytes()))
}

/// An age file of `content`. There is a recipient, and all are of kinds that go together.
pub(super) fn encrypt(recipients: &[&dyn age::Recipient], content: &[u8]) -> Vec<u8> {
    const REASON: &str = "memory takes what age writes, and age takes these recipients";
    let encryptor = age::Encryptor::with_recipients(recipients.iter().copied()).expect(REASON);
    let mut file = Vec::new();
    let mut writer = encryptor.wrap_output(&mut file).expect(REASON);
    writer.write_all(content).expect(REASON);
    writer.finish().expect(REASON);
    file
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

fn stanzas(keys: &[u8]) -> Result<Vec<Stanza<'_>>, UnwrapError> {
    if keys.len() > KEYS_BYTES_MAX {
        return Err(UnwrapError::TooLong { bytes: keys.len() });
    }
    age_header::scan(keys).map_err(|error| match error {
        ScanError::NotAge => UnwrapError::NotAge,
        ScanError::NoEnd => UnwrapError::Damaged,
        ScanError::Stanzas => UnwrapError::TooManyStanzas,
    })
}

/// The archive key in a keys section.
///
/// `passphrase` is asked with the file's name of an ssh key, once a key and only if the archive is
/// encrypted to it and no identity without a passphrase opens it; `None` gives up on that key.
///
/// # Errors
///
/// No identity opens it, or it is no keys section.
pub fn unwrap(
    keys: &[u8],
    identities: &Identities,
    passphrase: &mut dyn FnMut(&str) -> Option<Zeroizing<String>>,
) -> Result<ArchiveKey, UnwrapError> {
    let stanzas = stanzas(keys)?;
    if stanzas.iter().any(|stanza| stanza.kind == b"scrypt") {
        return Err(UnwrapError::Passphrase);
    }

    let mut result = decrypt(
        keys,
        identities.open.iter().map(|identity| &**identity as _),
    );
    for locked in &identities.locked {
        if result.is_ok() {
            break;
        }
        if !stanzas.iter().any(|stanza| locked.is_named_by(stanza)) {
            continue;
        }
        let file = || locked.file.clone();
        result = match passphrase(&locked.file) {
            None => Err(UnwrapError::NoPassphrase { file: file() }),
            Some(mut passphrase) => locked
                .key
                .decrypt(SecretString::from(std::mem::take(&mut *passphrase)))
                .map_err(|_| UnwrapError::WrongPassphrase { file: file() })
                .and_then(|key| {
                    let identity = age::ssh::Identity::from(key);
                    decrypt(keys, std::iter::once(&identity as _))
                }),
        };
    }
    result
}

fn decrypt<'a>(
    keys: &[u8],
    identities: impl Iterator<Item = &'a dyn age::Identity>,
) -> Result<ArchiveKey, UnwrapError> {
    let mut content = age::Decryptor::new_buffered(keys)
        .and_then(|file| file.decrypt(identities))
        .map_err(|error| match error {
            DecryptError::NoMatchingKeys => UnwrapError::NotARecipient,
            _ => UnwrapError::Damaged,
        })?;
    // A byte more than a key has, so that a longer content shows; the file's end is authenticated.
    let mut key = Zeroizing::new([0; 33]);
    let mut bytes = 0;
    while bytes < key.len() {
        match content.read(&mut key[bytes..]) {
            Ok(0) => break,
            Ok(read) => bytes += read,
            Err(_) => return Err(UnwrapError::Damaged),
        }
    }
    match key.split_last_chunk::<1>() {
        Some((key, _)) if bytes == key.len() => Ok(ArchiveKey::from_bytes(
            key.try_into().expect("33 bytes less 1 are 32"),
        )),
        _ => Err(UnwrapError::NotAKey),
    }
}
