//! What both ends compute of an expected chunk: its hint, its signature, and the digest of a
//! confirmed run.
//!
//! - The *hint* is cheap and decides nothing (PACK, section 3): 16 bits of a hash of the
//!   chunk's first bytes, by which a sender finds the offers that may begin at an anchor, and 8
//!   bits of one of the whole chunk, which tell all but one in 256 changed chunks before they
//!   are hashed. The paper takes the last byte or an XOR; XXH3 is as quick as reading.
//! - The *chunk's hash* is a universal hash with a key that both ends share, in place of the
//!   paper's SHA-1: a sender reads every confirmed byte for it, and it is several times as fast as
//!   a digest. The key comes from both ends' instances, drawn at random and said to nobody else,
//!   so that whoever injects content can aim no collision.
//! - The *signature* is 8 bytes of a keyed digest of that hash.
//! - A *run digest* is 16 bytes over the full hashes of a confirmed run and its place: the short
//!   signatures that agreed do not decide alone (`docs/architecture.md`, 15).

use std::sync::Arc;

use refrain_codec::{
    marker::{PackMask, pack::WINDOW_BYTES},
    simd::Backend,
    universal::{UniversalHash, UniversalHasher},
};

/// Bytes at a chunk's start that its hint is taken of; an anchor's window, so that an anchor
/// that was found is enough to look for offers.
pub const PREFIX_BYTES: usize = WINDOW_BYTES;

/// On which terms a receiver makes offers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct OfferTerms {
    /// The mask of the anchors at which its chunks begin.
    pub mask: PackMask,
}

/// What is compared before anything is hashed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Hint {
    /// Of the first bytes.
    pub prefix: u16,
    /// Of all bytes.
    pub sum: u8,
}

/// A chunk's hash, signed and cut short.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Signature(pub [u8; 8]);

/// What a confirmation names its run's chunks by.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RunDigest(pub [u8; 16]);

/// The keys of a link's hashes and signatures.
#[derive(Clone, Debug)]
pub struct OfferKey {
    hasher: Arc<UniversalHasher>,
    signer: [u8; 32],
}

impl OfferTerms {
    pub(crate) fn read(mask_count: u8) -> Option<Self> {
        let mask = PackMask::with_bits(mask_count).ok()?;
        Some(Self { mask })
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
    pub(crate) fn prefix_of(chunk: &[u8]) -> u16 {
        let prefix = &chunk[..chunk.len().min(PREFIX_BYTES)];
        refrain_codec::check(0, prefix) as u16
    }

    /// The part that depends on the whole chunk.
    #[must_use]
    pub(crate) fn sum_of(chunk: &[u8]) -> u8 {
        refrain_codec::check_on(Backend::best(), 0, chunk) as u8
    }
}

impl OfferKey {
    /// The keys of the link that two instances name.
    #[must_use]
    pub fn agreed(near_instance: u64, far_instance: u64) -> Self {
        let mut instances = [0; 16];
        instances[..8].copy_from_slice(&near_instance.to_le_bytes());
        instances[8..].copy_from_slice(&far_instance.to_le_bytes());
        let [signer, hashes] = ["refrain offers, version 1", "refrain hashes, version 1"]
            .map(|purpose| blake3::derive_key(purpose, &instances));
        let key = hashes.first_chunk().expect("16 of 32 bytes");
        Self {
            hasher: Arc::new(UniversalHasher::new(Backend::best(), key)),
            signer,
        }
    }

    /// The hash of a chunk or a range.
    #[must_use]
    pub fn hash(&self, chunk: &[u8]) -> UniversalHash {
        self.hasher.hash(chunk)
    }

    /// The signature of the chunk, or the range, with this hash.
    #[must_use]
    pub fn sign(&self, hash: &UniversalHash) -> Signature {
        let mut signature = [0; 8];
        signature.copy_from_slice(&blake3::keyed_hash(&self.signer, &hash.0).as_bytes()[..8]);
        Signature(signature)
    }
}

impl RunDigest {
    /// Over the hashes of a run, in order, that begins at `offset` of its flow.
    #[must_use]
    pub fn of<'a>(offset: u64, hashes: impl Iterator<Item = &'a UniversalHash>) -> Self {
        let mut hasher = blake3::Hasher::new();
        hasher.update(&offset.to_le_bytes());
        hashes.for_each(|hash| {
            hasher.update(&hash.0);
        });
        let mut digest = [0; 16];
        digest.copy_from_slice(&hasher.finalize().as_bytes()[..16]);
        Self(digest)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn signatures_depend_on_both_ends() {
        let sign = |near, far| {
            let key = OfferKey::agreed(near, far);
            key.sign(&key.hash(b"refrain"))
        };
        assert_eq!(sign(1, 2), sign(1, 2));
        assert_ne!(sign(1, 2), sign(2, 1));
        assert_ne!(sign(1, 2), sign(1, 3));
    }

    #[test]
    fn terms_are_read_back() {
        let mask = PackMask::with_bits(11).expect("6 to 15");
        assert_eq!(OfferTerms::read(11), Some(OfferTerms { mask }));
        assert_eq!(OfferTerms::read(5), None);
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
