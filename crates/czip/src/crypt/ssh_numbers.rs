//! Finds numbers in SSH keys that age cannot take.
//!
//! A key stores a number as a string of bytes, and zero as the empty string (`mpint`; RFC 4251, section 5).
//! age 0.12.1 panics on a string of zero bytes only: its parser searches the first byte that is not 0.
//! The content of a key under a passphrase is not seen here, since only age decrypts it.

use base64::{
    Engine as _,
    alphabet::STANDARD,
    engine::{DecodePaddingMode, GeneralPurpose, GeneralPurposeConfig},
};
use zeroize::Zeroizing;

/// Whether a public key, a line as in `authorized_keys`, has a number of zero bytes only.
pub(super) fn public_key_has_zeros(line: &str) -> bool {
    line.strip_prefix("ssh-rsa ")
        .and_then(|key| key.split_ascii_whitespace().next())
        .is_some_and(|key| numbers_have_zeros(&decode(key)))
}

/// Whether a private key in OpenSSH's format has a number of zero bytes only.
pub(super) fn private_key_has_zeros(text: &str) -> bool {
    text.strip_prefix("-----BEGIN OPENSSH PRIVATE KEY-----")
        .is_some_and(|key| halves_have_zeros(&decode(key)).unwrap_or(false))
}

/// The bytes up to the first character that base64 does not have, over all lines: age parses a key before it looks
/// behind it.
fn decode(text: &str) -> Zeroizing<Vec<u8>> {
    const BASE64: GeneralPurpose = GeneralPurpose::new(
        &STANDARD,
        GeneralPurposeConfig::new()
            .with_decode_allow_trailing_bits(true)
            .with_decode_padding_mode(DecodePaddingMode::Indifferent),
    );
    // With room for all: a buffer that grows leaves copies that nobody wipes.
    let mut base64 = Zeroizing::new(Vec::with_capacity(text.len()));
    base64.extend(
        text.bytes()
            .filter(|byte| !byte.is_ascii_whitespace())
            .take_while(|byte| byte.is_ascii_alphanumeric() || b"+/".contains(byte)),
    );
    // One character of four holds no byte.
    if base64.len() % 4 == 1 {
        base64.pop();
    }
    Zeroizing::new(BASE64.decode(&base64).expect("only characters of base64"))
}

/// `None` for a key that ends early.
fn halves_have_zeros(key: &[u8]) -> Option<bool> {
    // OpenSSH's PROTOCOL.key: cipher, key derivation, its options, the number of keys, and both halves.
    let rest = key.strip_prefix(b"openssh-key-v1\0")?;
    let (_, rest) = string(rest)?;
    let (_, rest) = string(rest)?;
    let (_, rest) = string(rest)?;
    let (_, rest) = rest.split_at_checked(4)?;
    let (public, rest) = string(rest)?;
    if numbers_have_zeros(public) {
        return Some(true);
    }
    let (private, _) = string(rest)?;
    // The same four random bytes, twice, come first.
    let (_, private) = private.split_at_checked(8)?;
    Some(numbers_have_zeros(private))
}

/// Whether an RSA key has a number of zero bytes only. A public key has two numbers, a private one six.
fn numbers_have_zeros(key: &[u8]) -> bool {
    let Some((b"ssh-rsa", mut rest)) = string(key) else {
        return false;
    };
    for _ in 0..6 {
        let Some((number, behind)) = string(rest) else {
            return false;
        };
        if !number.is_empty() && number.iter().all(|&byte| byte == 0) {
            return true;
        }
        rest = behind;
    }
    false
}

/// The first string of `bytes`, and the bytes behind it.
fn string(bytes: &[u8]) -> Option<(&[u8], &[u8])> {
    let (length, rest) = bytes.split_first_chunk()?;
    rest.split_at_checked(usize::try_from(u32::from_be_bytes(*length)).ok()?)
}
