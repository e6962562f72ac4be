//! What both ends compute of an expected chunk: its hint, its signature, and the digest of a
//! confirmed run.
//!
//! - The *hint* is cheap and decides nothing (PACK, section 3): 16 bits of a hash of the
//!   chunk's first bytes, by which a sender finds the offers that may begin at an anchor, and 8
//!   bits of one of the whole chunk, which tell all but one in 256 changed chunks before they
//!   are hashed. The paper takes the last byte or an XOR; XXH3 is as quick as reading.
//! - The *signature* is 8 bytes of a keyed hash of the chunk's digest. Its key comes from both
//!   ends' instances, drawn at random, so that whoever injects content can aim no collision.
//! - A *run digest* is 16 bytes over the full digests of a confirmed run: the short signatures
//!   that agreed do not decide alone (`docs/architecture.md`, 15).

use refrain_codec::{
    chunk::hash::{ChunkDigest, ChunkHasher},
    marker::{PackMask, pack::WINDOW_BYTES},
    simd::Backend,
};

/// Bytes at a chunk's start that its hint is taken of; an anchor's window, so that an anchor
/// that was found is enough to look for offers.
pub const PREFIX_BYTES: usize = WINDOW_BYTES;

/// On which terms a receiver makes offers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct OfferTerms {
    /// The mask of the anchors at which its chunks begin.
    pub mask: PackMask,
    /// The digest of its chunks.
    pub hasher: ChunkHasher,
}

/// What is compared before anything is hashed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Hint {
    /// Of the first bytes.
    pub prefix: u16,
    /// Of all bytes.
    pub sum: u8,
}

/// A chunk's digest, keyed and cut short.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Signature(pub [u8; 8]);

/// What a confirmation names its run's chunks by.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RunDigest(pub [u8; 16]);

/// The key of a link's signatures.
#[derive(Clone, Debug)]
pub struct OfferKey([u8; 32]);

impl OfferTerms {
    pub(crate) fn hasher_code(&self) -> u8 {
        match self.hasher {
            ChunkHasher::Blake3 => 0,
            ChunkHasher::Sha1 => 1,
        }
    }

    pub(crate) fn read(mask_count: u8, hasher_code: u8) -> Option<Self> {
        let hasher = match hasher_code {
            0 => ChunkHasher::Blake3,
            1 => ChunkHasher::Sha1,
            _ => return None,
        };
        let mask = PackMask::with_bits(mask_count).ok()?;
        Some(Self { mask, hasher })
    }
}

impl Hint {
    /// The hint of `chunk`, which is not empty.
    #[must_use]
    pub fn of(chunk: &[u8]) -> Self {
        Self {
            prefix: Self::prefix_of(chunk),
            sum: Self::sum_of(chunk),
        }
    }

    /// The part that depends on the first [`PREFIX_BYTES`], or on all where there are fewer.
    #[must_use]
    pub fn prefix_of(chunk: &[u8]) -> u16 {
        let prefix = &chunk[..chunk.len().min(PREFIX_BYTES)];
        refrain_codec::check(0, prefix) as u16
    }

    /// The part that depends on the whole chunk.
    #[must_use]
    pub fn sum_of(chunk: &[u8]) -> u8 {
        refrain_codec::check_on(Backend::best(), 0, chunk) as u8
    }
}

impl OfferKey {
    /// The key of the link that two instances name.
    #[must_use]
    pub fn agreed(near_instance: u64, far_instance: u64) -> Self {
        let mut instances = [0; 16];
        instances[..8].copy_from_slice(&near_instance.to_le_bytes());
        instances[8..].copy_from_slice(&far_instance.to_le_bytes());
        Self(blake3::derive_key("refrain offers, version 1", &instances))
    }

    /// The signature of the chunk, or the range, with this digest.
    #[must_use]
    pub fn sign(&self, digest: &ChunkDigest) -> Signature {
        let mut signature = [0; 8];
        signature.copy_from_slice(&blake3::keyed_hash(&self.0, &digest.0).as_bytes()[..8]);
        Signature(signature)
    }
}

impl RunDigest {
    /// Over the digests of a run, in order.
    #[must_use]
    pub fn of<'a>(digests: impl Iterator<Item = &'a ChunkDigest>) -> Self {
        let mut hasher = blake3::Hasher::new();
        digests.for_each(|digest| {
            hasher.update(&digest.0);
        });
        let mut digest = [0; 16];
        digest.copy_from_slice(&hasher.finalize().as_bytes()[..16]);
        Self(digest)
    }
}

/// What seeds the check of a confirmed run's plain bytes.
pub(crate) fn confirm_seed(flow: u64, offset: u64) -> u64 {
    flow.rotate_left(32) ^ offset.rotate_left(16)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn signatures_depend_on_both_ends() {
        let digest = ChunkHasher::default().digest(b"refrain");
        let sign = |near, far| OfferKey::agreed(near, far).sign(&digest);
        assert_eq!(sign(1, 2), sign(1, 2));
        assert_ne!(sign(1, 2), sign(2, 1));
        assert_ne!(sign(1, 2), sign(1, 3));
    }

    #[test]
    fn terms_are_read_back() {
        for hasher in [ChunkHasher::Blake3, ChunkHasher::Sha1] {
            let mask = PackMask::with_bits(11).expect("6 to 15");
            let terms = OfferTerms { mask, hasher };
            assert_eq!(OfferTerms::read(11, terms.hasher_code()), Some(terms));
        }
        assert_eq!(OfferTerms::read(5, 0), None);
        assert_eq!(OfferTerms::read(13, 2), None);
    }

    proptest! {
        #[test]
        fn a_hint_sees_what_it_should(chunk in prop::collection::vec(any::<u8>(), 1..9000), at: usize) {
            let hint = Hint::of(&chunk);
            prop_assert_eq!(Hint::prefix_of(&chunk), hint.prefix);
            let mut other = chunk.clone();
            let at = at % chunk.len();
            other[at] ^= 1;
            if at >= PREFIX_BYTES {
                prop_assert_eq!(Hint::prefix_of(&other), hint.prefix);
            }
            prop_assert_eq!(Hint::sum_of(&chunk), hint.sum);
        }
    }
}
