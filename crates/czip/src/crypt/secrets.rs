//! The two secrets of encrypted archives. Both are wiped when they go, and do not show in `Debug`.

use zeroize::Zeroizing;

/// What opens one archive: 32 random bytes, another for each.
pub struct ArchiveKey(Zeroizing<[u8; 32]>);

/// The operating system gave no random bytes.
#[derive(Debug, thiserror::Error)]
#[error("the system provides no random bytes: {0}")]
pub struct NoRandomness(getrandom::Error);

impl ArchiveKey {
    /// A key that nobody has.
    ///
    /// # Errors
    ///
    /// The system gives no random bytes.
    pub fn generate() -> Result<Self, NoRandomness> {
        let mut key = Zeroizing::new([0; 32]);
        getrandom::fill(key.as_mut()).map_err(NoRandomness)?;
        Ok(Self(key))
    }

    /// The key with these bytes. Two archives must not have the same.
    pub fn from_bytes(bytes: [u8; 32]) -> Self {
        Self(Zeroizing::new(bytes))
    }

    /// The key's bytes.
    pub fn as_bytes(&self) -> &[u8; 32] {
        &self.0
    }
}

/// What those share whose archives may share chunks, and who want nobody else to test guesses.
///
/// In a file: 64 hexadecimal digits, as `openssl rand -hex 32` prints them; white space around them is
/// ignored. No other form, so that nobody takes a passphrase, which can be guessed.
pub struct GroupSecret(Zeroizing<[u8; 32]>);

/// Why a file holds no group secret.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum GroupSecretError {
    /// Not 64 digits.
    #[error(
        "a group secret must have 64 hexadecimal digits (`openssl rand -hex 32`), not {digits} bytes"
    )]
    Length {
        /// Bytes between the white space at both ends.
        digits: usize,
    },
    /// A byte that is no digit.
    #[error("byte {at} of the group secret is not a hexadecimal digit")]
    Digit {
        /// Where it is, from 0, behind the white space.
        at: usize,
    },
}

impl GroupSecret {
    /// The secret in a file's content.
    ///
    /// # Errors
    ///
    /// The content is not 64 hexadecimal digits and white space around them.
    pub fn parse(content: &[u8]) -> Result<Self, GroupSecretError> {
        let digits = content.trim_ascii();
        if digits.len() != 64 {
            return Err(GroupSecretError::Length {
                digits: digits.len(),
            });
        }
        let mut secret = Zeroizing::new([0; 32]);
        for (at, &digit) in digits.iter().enumerate() {
            let value = (digit as char)
                .to_digit(16)
                .ok_or(GroupSecretError::Digit { at })?;
            secret[at / 2] = secret[at / 2] << 4 | value as u8;
        }
        Ok(Self(secret))
    }

    pub(super) fn as_bytes(&self) -> &[u8; 32] {
        &self.0
    }
}
