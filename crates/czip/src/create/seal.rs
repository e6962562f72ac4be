//! What encrypts an archive that is being made.

use std::{fmt, sync::Arc};

use crate::{
    crypt::{
        ArchiveKey, GroupKeys, GroupSecret, NoRandomness, PrivateKey, Recipients, WrapError, wrap,
    },
    format::header::Encryption,
};

/// For whom an archive is encrypted, and how.
pub struct EncryptOptions {
    /// Who can read it.
    pub recipients: Recipients,
    /// What names and keys depend on beside the content.
    pub group_secret: Option<GroupSecret>,
    /// Whether lengths of chunks are hidden.
    pub is_padded: bool,
}

impl fmt::Debug for EncryptOptions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("EncryptOptions")
            .field("is_padded", &self.is_padded)
            .finish_non_exhaustive()
    }
}

/// What seals an archive.
pub(super) struct Seal {
    pub(super) group: GroupKeys,
    pub(super) private: PrivateKey,
    pub(super) how: Encryption,
    /// The keys section.
    pub(super) keys: Vec<u8>,
}

impl Seal {
    pub(super) fn new(options: &EncryptOptions) -> Result<Arc<Self>, SealError> {
        let archive_key = ArchiveKey::generate()?;
        Ok(Arc::new(Self {
            group: GroupKeys::new(options.group_secret.as_ref()),
            private: PrivateKey::new(&archive_key),
            how: Encryption {
                is_padded: options.is_padded,
                has_group_secret: options.group_secret.is_some(),
            },
            keys: wrap(&archive_key, &options.recipients)?,
        }))
    }
}

/// Why an archive cannot be encrypted.
#[derive(Debug, thiserror::Error)]
pub enum SealError {
    /// There is no key for it.
    #[error(transparent)]
    Random(#[from] NoRandomness),
    /// Nobody could read it.
    #[error(transparent)]
    Wrap(#[from] WrapError),
}
