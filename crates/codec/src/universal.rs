//! A keyed hash by which two ends that share a secret see that they hold the same bytes, at a
//! fraction of what a digest costs.
//!
//! It is *almost universal*: two different messages of at most `L` bytes have the same hash for at
//! most `L / 16 + 8` of 2^128 keys, whatever they are, as long as whoever chose them did not know
//! the key. (Their difference is a polynomial of that degree, and has no more roots.) For a chunk of
//! 32 KiB that is a chance of 2^-117. It is no digest: who knows the key can make collisions at
//! will. So it compares within one link, and never names what is kept.
//!
//! It is POLYVAL (RFC 8452) of the message's length and of its bytes.
//!
//! No `--cfg refrain_weak_hashes` shortens it: nothing stands behind it that would have to be shown.

use core::fmt;

use crate::simd::{Backend, polyval::KeyedPolyval};

/// A message's hash with a link's key.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct UniversalHash(pub [u8; 16]);

/// The hash with one key.
///
/// ```
/// use refrain_codec::{simd::Backend, universal::UniversalHasher};
///
/// let hasher = |key| UniversalHasher::new(Backend::best(), &key);
/// let hash = hasher([7; 16]).hash(b"refrain");
/// assert_eq!(hash, hasher([7; 16]).hash(b"refrain"));
/// assert_ne!(hash, hasher([8; 16]).hash(b"refrain"));
/// ```
pub struct UniversalHasher(KeyedPolyval);

impl UniversalHasher {
    /// With `key`, which is drawn at random, on the kernels of `backend`, which change nothing
    /// but the speed.
    #[must_use]
    pub fn new(backend: Backend, key: &[u8; 16]) -> Self {
        Self(KeyedPolyval::new(backend, key))
    }

    /// The hash of `message`.
    #[must_use]
    pub fn hash(&self, message: &[u8]) -> UniversalHash {
        // Messages that differ in the zeros at their end differ here.
        let mut first = [0; 16];
        first[..8].copy_from_slice(&(message.len() as u64).to_le_bytes());
        UniversalHash(self.0.hash(first, message))
    }
}

impl fmt::Debug for UniversalHasher {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Its key is a secret.
        f.write_str("UniversalHasher")
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec::Vec;
    use proptest::{collection::vec, prelude::*};

    fn hasher() -> UniversalHasher {
        UniversalHasher::new(Backend::best(), &[0x5a; 16])
    }

    proptest! {
        #[test]
        fn a_change_changes_the_hash(message in vec(any::<u8>(), 1..3000), at: usize, by in 1..=255_u8) {
            let mut other = message.clone();
            other[at % message.len()] ^= by;
            prop_assert_ne!(hasher().hash(&message), hasher().hash(&other));
        }

        #[test]
        fn the_length_counts(message in vec(any::<u8>(), 0..300), zeros in 1..200_usize) {
            let mut longer: Vec<u8> = message.clone();
            longer.resize(message.len() + zeros, 0);
            prop_assert_ne!(hasher().hash(&message), hasher().hash(&longer));
        }
    }

    #[test]
    fn its_key_is_not_printed() {
        assert_eq!(alloc::format!("{:?}", hasher()), "UniversalHasher");
    }
}
