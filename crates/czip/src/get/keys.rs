//! What opens an archive that is encrypted. Asked for only if the one that is fetched is.

use std::{error::Error, fmt, sync::Arc};

use zeroize::Zeroizing;

use super::GetError;
use crate::{
    archive::{Archive, Source},
    crypt::{GroupSecret, Identities},
};

/// What opens an encrypted archive, and names its chunks.
#[derive(Debug)]
pub struct Keys {
    /// Of one of its recipients.
    pub identities: Identities,
    /// Without it chunks of plain files cannot be told to be the archive's, if it has one.
    pub group_secret: Option<GroupSecret>,
    /// Asked for the passphrase of the key in this file.
    pub passphrase: fn(&str) -> Option<Zeroizing<String>>,
}

/// Why there are no keys.
type Problem = Box<dyn Error + Send + Sync>;

/// Where keys come from: files are read, and people asked, only for an archive that is encrypted.
#[derive(Clone)]
pub struct KeySource(Arc<dyn Fn() -> Result<Keys, Problem> + Send + Sync>);

impl fmt::Debug for KeySource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("KeySource(..)")
    }
}

impl KeySource {
    /// Keys as `read` gives them.
    #[must_use]
    pub fn new(read: impl Fn() -> Result<Keys, Problem> + Send + Sync + 'static) -> Self {
        Self(Arc::new(read))
    }

    /// Unlocks an archive of which header, root and keys section are here.
    pub(super) fn unlock<S: Source>(&self, archive: &mut Archive<S>) -> Result<(), GetError> {
        let keys = (self.0)().map_err(GetError::Keys)?;
        let passphrase = keys.passphrase;
        let secret = keys.group_secret.as_ref();
        Ok(archive.unlock(&keys.identities, secret, &mut |file| passphrase(file))?)
    }
}
