//! The names by which the index and the recipes know chunks and openings.
//!
//! A key is 40 bits of a BLAKE3 over realm and digest, so that two realms share none. Two chunks
//! of a realm may, one in 90,000 of 12 million (100 GB): the older is found no more then, and a
//! prediction may be wrong, but nothing else, since the full digest decides whenever a chunk is
//! stored or read.

use refrain_codec::chunk::hash::ChunkDigest;

use crate::{OpeningKey, Realm};

pub(crate) const KEY_BYTES: usize = 5;

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct IndexKey(pub(crate) [u8; KEY_BYTES]);

impl IndexKey {
    pub(crate) fn of_chunk(realm: Realm, digest: &ChunkDigest) -> Self {
        let mut input = [0; 48];
        input[..16].copy_from_slice(&realm.0);
        input[16..].copy_from_slice(&digest.0);
        Self::of(&input)
    }

    /// That of an opening: its input is shorter than a chunk's.
    pub(crate) fn of_opening(realm: Realm, key: OpeningKey) -> Self {
        let mut input = [0; 24];
        input[..16].copy_from_slice(&realm.0);
        input[16..].copy_from_slice(&key.0.to_le_bytes());
        Self::of(&input)
    }

    fn of(input: &[u8]) -> Self {
        Self(first_bytes(blake3::hash(input)))
    }

    /// As a number below 2^40.
    pub(crate) fn number(self) -> u64 {
        let mut number = [0; 8];
        number[..KEY_BYTES].copy_from_slice(&self.0);
        u64::from_le_bytes(number)
    }
}

/// The 32-bit checksum of everything that the store writes: a BLAKE3 over the parts.
pub(crate) fn check(parts: &[&[u8]]) -> u32 {
    let mut hasher = blake3::Hasher::new();
    for part in parts {
        hasher.update(part);
    }
    u32::from_le_bytes(first_bytes(hasher.finalize()))
}

/// The first `N` bytes of a hash.
fn first_bytes<const N: usize>(hash: blake3::Hash) -> [u8; N] {
    let bytes = hash.as_bytes().first_chunk();
    *bytes.expect("it has 32")
}
