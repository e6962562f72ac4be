//! One message after another, by the `blake3` crate.

use super::DIGEST_BYTES;

pub(super) fn hash_many<'m, 'd, const BYTES: usize>(
    messages: impl IntoIterator<Item = (&'m [u8], &'d mut [u8; BYTES])>,
) {
    for (message, digest) in messages {
        hash(message, digest);
    }
}

pub(super) fn hash<const BYTES: usize>(message: &[u8], digest: &mut [u8; BYTES]) {
    const { assert!(BYTES <= DIGEST_BYTES) };
    digest.copy_from_slice(&::blake3::hash(message).as_bytes()[..BYTES]);
}
