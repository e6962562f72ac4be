//! The keys section: the archive key, as the plain content of an age file, for each recipient.

use std::io::{Read, Write};

use age::{DecryptError, secrecy::SecretString};
use zeroize::Zeroizing;

use super::{
    ArchiveKey, Identities, Recipients,
    keys_section::{UnwrapError, WrapError, stanzas},
};

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
    const REASON: &str = "writing to memory does not fail, and age accepts these recipients";
    let encryptor = age::Encryptor::with_recipients(recipients.iter().copied()).expect(REASON);
    let mut file = Vec::new();
    let mut writer = encryptor.wrap_output(&mut file).expect(REASON);
    writer.write_all(content).expect(REASON);
    writer.finish().expect(REASON);
    file
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
