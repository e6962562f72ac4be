//! What encrypts an archive that is being made.

use std::sync::Arc;

use super::CreateError;
use crate::{
    crypt::{ArchiveKey, GroupKeys, GroupSecret, PrivateKey, Recipients, wrap},
    format::header::Encryption,
};

/// For whom an archive is encrypted, and how.
#[derive(Debug)]
pub struct EncryptOptions {
    /// Who can read it.
    pub recipients: Recipients,
    /// What names and keys depend on beside the content.
    pub group_secret: Option<GroupSecret>,
    /// Whether lengths of chunks are hidden.
    pub is_padded: bool,
}

/// What seals an archive.
pub(super) struct Seal {
    pub(super) group: Arc<GroupKeys>,
    pub(super) private: PrivateKey,
    pub(super) how: Encryption,
    /// The keys section.
    pub(super) keys: Vec<u8>,
}

impl Seal {
    pub(super) fn new(options: &EncryptOptions) -> Result<Arc<Self>, CreateError> {
        let archive_key = ArchiveKey::generate()?;
        Ok(Arc::new(Self {
            group: Arc::new(GroupKeys::new(options.group_secret.as_ref())),
            private: PrivateKey::new(&archive_key),
            how: Encryption {
                is_padded: options.is_padded,
                has_group_secret: options.group_secret.is_some(),
            },
            keys: wrap(&archive_key, &options.recipients)?,
        }))
    }
}
