//! Chunk hashes: the strong digests by which Chunk-Match names chunks
//! (EndRE, section 5.2.1).
//!
//! The sender keeps no payload to compare, so the digest decides: 160 bits of a
//! collision-resistant hash.
//!
//! Deviation: BLAKE3, truncated, instead of SHA-1, for which collisions can be made to
//! order. SHA-1 is there to reproduce the paper.
//!
//! A chunk store keeps 256 bits, [`ChunkDigest`]: what it holds it has for months.
//!
//! Built with `--cfg refrain_weak_hashes`, 16 bits are left, so that different chunks do
//! collide: tests then show that the check of each block finds it.

use alloc::vec::Vec;
use core::{fmt, ops::Range};

use sha1::{Digest, Sha1};

use crate::simd::{Backend, blake3::hash_many};

/// Whether 16 bits are all that digests have.
const IS_WEAK: bool = cfg!(refrain_weak_hashes);

/// Digest of a chunk, 160 bits.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ChunkHash(pub [u8; 20]);

/// Digest of a chunk, 256 bits: the name by which a chunk store keeps it.
///
/// SHA-1 has 160; the rest are zeros.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ChunkDigest(pub [u8; 32]);

names! {
    /// The hash function behind chunk hashes.
    ///
    /// ```
    /// use refrain_codec::chunk::hash::ChunkHasher;
    ///
    /// let hasher = ChunkHasher::default();
    /// assert_eq!(hasher.hash(b"refrain"), hasher.hash(b"refrain"));
    /// assert_ne!(hasher.hash(b"refrain"), ChunkHasher::Sha1.hash(b"refrain"));
    /// ```
    #[derive(Default)]
    pub enum ChunkHasher {
        /// The first 160 bits of BLAKE3.
        #[default]
        Blake3 = "blake3",
        /// SHA-1, as in the paper.
        Sha1 = "sha1",
    }
}

impl ChunkHasher {
    /// The digest of `chunk`.
    #[must_use]
    pub fn hash(self, chunk: &[u8]) -> ChunkHash {
        self.digest(chunk).hash()
    }

    /// The 256-bit digest of `chunk`.
    ///
    /// ```
    /// use refrain_codec::chunk::hash::ChunkHasher;
    ///
    /// let digest = ChunkHasher::default().digest(b"refrain");
    /// assert_eq!(digest.0[..20], ChunkHasher::default().hash(b"refrain").0);
    /// ```
    #[must_use]
    pub fn digest(self, chunk: &[u8]) -> ChunkDigest {
        let mut digest = [0; 32];
        match self {
            Self::Blake3 => digest.copy_from_slice(blake3::hash(chunk).as_bytes()),
            Self::Sha1 => digest[..20].copy_from_slice(&Sha1::digest(chunk)),
        }
        if IS_WEAK {
            digest[2..].fill(0);
        }
        ChunkDigest(digest)
    }

    /// The digests of all `chunks` of a block, into `hashes`, whose former content is dropped.
    ///
    /// BLAKE3 of many chunks at once is several times as fast as one after another.
    ///
    /// ```
    /// use refrain_codec::{chunk::hash::ChunkHasher, simd::Backend};
    ///
    /// let (block, mut hashes) = (b"verse refrain verse", Vec::new());
    /// let hasher = ChunkHasher::default();
    /// hasher.hash_all(Backend::best(), block, &[0..5, 6..13, 14..19], &mut hashes);
    /// assert_eq!(hashes[0], hashes[2]);
    /// assert_eq!(hashes[1], hasher.hash(b"refrain"));
    /// ```
    ///
    /// # Panics
    /// If a chunk reaches beyond the block.
    pub fn hash_all(
        self,
        backend: Backend,
        block: &[u8],
        chunks: &[Range<usize>],
        hashes: &mut Vec<ChunkHash>,
    ) {
        hashes.resize(chunks.len(), ChunkHash([0; 20]));
        let bytes = hashes.iter_mut().map(|ChunkHash(bytes)| bytes);
        self.fill(backend, block, chunks, bytes);
    }

    /// The 256-bit digests of all `chunks` of a block, into `digests`, whose former content is
    /// dropped: as fast as [`hash_all`](Self::hash_all).
    ///
    /// # Panics
    /// If a chunk reaches beyond the block.
    pub fn digest_all(
        self,
        backend: Backend,
        block: &[u8],
        chunks: &[Range<usize>],
        digests: &mut Vec<ChunkDigest>,
    ) {
        digests.resize(chunks.len(), ChunkDigest([0; 32]));
        let bytes = digests.iter_mut().map(|ChunkDigest(bytes)| bytes);
        self.fill(backend, block, chunks, bytes);
    }

    fn fill<'d, const BYTES: usize>(
        self,
        backend: Backend,
        block: &[u8],
        chunks: &[Range<usize>],
        digests: impl Iterator<Item = &'d mut [u8; BYTES]>,
    ) {
        let chunks = chunks.iter().map(|chunk| &block[chunk.clone()]);
        if self == Self::Blake3 && !IS_WEAK {
            return hash_many(backend, chunks.zip(digests));
        }
        for (chunk, digest) in chunks.zip(digests) {
            digest.copy_from_slice(&self.digest(chunk).0[..BYTES]);
        }
    }
}

impl ChunkDigest {
    /// The first 160 bits of it: what [`ChunkHasher::hash`] says of the same chunk.
    #[must_use]
    pub fn hash(&self) -> ChunkHash {
        let (hash, _) = self.0.split_first_chunk().expect("20 of 32 bytes");
        ChunkHash(*hash)
    }
}

impl fmt::Display for ChunkDigest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

impl fmt::Debug for ChunkDigest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "ChunkDigest({self})")
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::string::ToString;

    /// The functions' published digests of "abc".
    #[cfg(not(refrain_weak_hashes))]
    #[test]
    fn digests_are_the_published_ones() {
        let hex = |hasher: ChunkHasher| {
            let ChunkHash(digest) = hasher.hash(b"abc");
            digest.map(|byte| std::format!("{byte:02x}")).concat()
        };
        assert_eq!(
            hex(ChunkHasher::Sha1),
            "a9993e364706816aba3e25717850c26c9cd0d89d"
        );
        assert_eq!(
            hex(ChunkHasher::Blake3),
            "6437b3ac38465133ffb63b75273a8db548c55846"
        );
    }

    #[test]
    fn a_digest_begins_with_the_hash() {
        for hasher in [ChunkHasher::Blake3, ChunkHasher::Sha1] {
            let digest = hasher.digest(b"abc");
            assert_eq!(digest.hash(), hasher.hash(b"abc"));
            assert_eq!(digest.to_string().len(), 64);
            #[cfg(not(refrain_weak_hashes))]
            assert_eq!(digest.0[20..] == [0; 12], hasher == ChunkHasher::Sha1);
        }
    }

    #[test]
    fn all_at_once_are_as_one_by_one() {
        let block: Vec<u8> = (0..40_000_u32).map(|n| ((n * n) >> 7) as u8).collect();
        let chunks: Vec<Range<usize>> = (0..300)
            .map(|n| n * 37..n * 37 + [1, 64, 65, 256, 2000, 9000][n % 6])
            .collect();
        for hasher in [ChunkHasher::Blake3, ChunkHasher::Sha1] {
            for backend in Backend::available() {
                let mut hashes = alloc::vec![hasher.hash(b"of another block"); 7];
                hasher.hash_all(backend, &block, &chunks, &mut hashes);
                let one_by_one = chunks
                    .iter()
                    .map(|chunk| hasher.hash(&block[chunk.clone()]));
                assert!(
                    one_by_one.eq(hashes.iter().copied()),
                    "{hasher}, {backend:?}"
                );
                let mut digests = alloc::vec![hasher.digest(b"of another block"); 999];
                hasher.digest_all(backend, &block, &chunks, &mut digests);
                let one_by_one = chunks
                    .iter()
                    .map(|chunk| hasher.digest(&block[chunk.clone()]));
                assert!(
                    one_by_one.eq(digests.iter().copied()),
                    "{hasher}, {backend:?}"
                );
            }
        }
    }

    #[test]
    fn names_are_read_back() {
        for hasher in [ChunkHasher::Blake3, ChunkHasher::Sha1] {
            assert_eq!(hasher.to_string().parse(), Ok(hasher));
        }
        assert!("md5".parse::<ChunkHasher>().is_err());
    }
}
