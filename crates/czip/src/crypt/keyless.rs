//! What stands for keys without the feature `encrypt`: there are none, so that nothing asks for age.

use zeroize::Zeroizing;

use super::{ArchiveKey, UnwrapError, WrapError};

/// For whom an archive would be encrypted.
#[derive(Debug)]
pub enum Recipients {}

/// Private keys of who would read it.
#[derive(Debug)]
pub enum Identities {}

/// Never called, as nobody has recipients.
pub fn wrap(_: &ArchiveKey, recipients: &Recipients) -> Result<Vec<u8>, WrapError> {
    match *recipients {}
}

/// Never called, as nobody has identities.
pub fn unwrap(
    _: &[u8],
    identities: &Identities,
    _: &mut dyn FnMut(&str) -> Option<Zeroizing<String>>,
) -> Result<ArchiveKey, UnwrapError> {
    match *identities {}
}
