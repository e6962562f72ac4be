//! Chunk hashes: the strong digests by which Chunk-Match names chunks
//! (EndRE, section 5.2.1).
//!
//! The sender keeps no payload to compare, so the digest decides: 160 bits of a
//! collision-resistant hash.
//!
//! Deviation: BLAKE3, truncated, instead of SHA-1, for which collisions can be made to
//! order. SHA-1 is there to reproduce the paper.
//!
//! Built with `--cfg refrain_weak_hashes`, 16 bits are left, so that different chunks do
//! collide: tests then show that the check of each block finds it.

use core::{fmt, str::FromStr};

use sha1::{Digest, Sha1};

/// Digest of a chunk, 160 bits.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ChunkHash(pub [u8; 20]);

/// The hash function behind chunk hashes.
///
/// ```
/// use refrain_codec::chunk::hash::ChunkHasher;
///
/// let hasher = ChunkHasher::default();
/// assert_eq!(hasher.hash(b"refrain"), hasher.hash(b"refrain"));
/// assert_ne!(hasher.hash(b"refrain"), ChunkHasher::Sha1.hash(b"refrain"));
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum ChunkHasher {
    /// The first 160 bits of BLAKE3.
    #[default]
    Blake3,
    /// SHA-1, as in the paper.
    Sha1,
}

impl ChunkHasher {
    /// The digest of `chunk`.
    #[must_use]
    pub fn hash(self, chunk: &[u8]) -> ChunkHash {
        let mut digest = [0; 20];
        match self {
            Self::Blake3 => digest.copy_from_slice(&blake3::hash(chunk).as_bytes()[..20]),
            Self::Sha1 => digest.copy_from_slice(&Sha1::digest(chunk)),
        }
        if cfg!(refrain_weak_hashes) {
            digest[2..].fill(0);
        }
        ChunkHash(digest)
    }
}

impl fmt::Display for ChunkHasher {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Blake3 => "blake3",
            Self::Sha1 => "sha1",
        })
    }
}

impl FromStr for ChunkHasher {
    type Err = UnknownChunkHasher;

    fn from_str(name: &str) -> Result<Self, UnknownChunkHasher> {
        match name {
            "blake3" => Ok(Self::Blake3),
            "sha1" => Ok(Self::Sha1),
            _ => Err(UnknownChunkHasher),
        }
    }
}

/// A name that is neither `blake3` nor `sha1`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct UnknownChunkHasher;

impl fmt::Display for UnknownChunkHasher {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("expected `blake3` or `sha1`")
    }
}

impl core::error::Error for UnknownChunkHasher {}

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
    fn names_are_read_back() {
        for hasher in [ChunkHasher::Blake3, ChunkHasher::Sha1] {
            assert_eq!(hasher.to_string().parse(), Ok(hasher));
        }
        assert_eq!("md5".parse::<ChunkHasher>(), Err(UnknownChunkHasher));
    }
}
