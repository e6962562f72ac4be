//! The words in which a chunk store is asked, and answers.

use std::{fmt, sync::Arc};

use refrain_codec::chunk::{
    hash::{ChunkDigest, ChunkHasher},
    stream::ChunkBounds,
};

/// The service whose history may answer a flow. History is kept apart by realm.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Realm(pub [u8; 16]);

impl Realm {
    /// The realm that has this name: the first 16 bytes of the name's BLAKE3.
    #[must_use]
    pub fn named(name: &str) -> Self {
        let hash = blake3::hash(name.as_bytes());
        Self(*hash.as_bytes().first_chunk().expect("it has 32"))
    }

    /// Whether a realm can have this name: a line that is not empty, without control characters.
    #[must_use]
    pub fn is_name(name: &str) -> bool {
        !name.is_empty() && !name.chars().any(char::is_control)
    }
}

impl fmt::Display for Realm {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

impl fmt::Debug for Realm {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Realm({self})")
    }
}

/// What a flow looks like before its first byte: a hash that the caller makes of its target, or
/// of its request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct OpeningKey(pub u64);

impl OpeningKey {
    /// The key that it has in common with those of alike flows, if there may be others: its upper half. What is
    /// remembered by a key is found by this one too.
    pub fn alike(self) -> Option<OpeningKey> {
        let upper = OpeningKey(self.0 & !u64::from(u32::MAX));
        (upper != self).then_some(upper)
    }

    /// Itself, and that.
    pub(crate) fn all(self) -> impl Iterator<Item = OpeningKey> {
        [Some(self), self.alike()].into_iter().flatten()
    }
}

/// A flow in progress, whose recipe is being written.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct RecipeId(pub(crate) u64);

/// A position in a recipe, from where a chain can be read onward.
///
/// It belongs to the store that gave it. It may go stale, when what it points to is evicted:
/// nothing is read from there then.
///
/// Its numbers are for who keeps it meanwhile. Others are a stale place.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Place(pub [u64; 2]);

/// A chunk whose bytes were read and found to have this digest.
#[derive(Clone, PartialEq, Eq)]
pub struct StoredChunk {
    /// The digest, all 256 bits of it.
    pub digest: ChunkDigest,
    /// The bytes.
    pub bytes: Arc<[u8]>,
}

impl fmt::Debug for StoredChunk {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "StoredChunk({}, {} bytes)",
            self.digest,
            self.bytes.len()
        )
    }
}

/// What followed a place in its recipe.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Chain {
    /// The chunks, in the order of the recipe. Those that the store has no more are left out.
    pub chunks: Vec<StoredChunk>,
    /// Where to read on: none at the end of a recipe that has ended. Where nothing was read, the
    /// recipe is still being written and has no more yet, or the next chunk alone is longer than
    /// the limit.
    pub next: Option<Place>,
}

/// What became of a chunk that was appended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Appended {
    /// It was new, and is stored now.
    Stored,
    /// The realm had it already: only its place is new.
    Known,
}

/// How the chunks of a store are cut and named. All of a store are cut alike, since chunks that
/// were cut otherwise never meet again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Chunking {
    /// Bits of the anchors' mask.
    pub mask_bits: u8,
    /// The shortest and the longest chunk.
    pub bounds: ChunkBounds,
    /// The hash behind their digests.
    pub hasher: ChunkHasher,
}

impl Chunking {
    /// Its options that have other values in `other`.
    pub(crate) fn options_unlike(self, other: Self) -> String {
        let size = |bytes: u64| match bytes % 1024 {
            0 => format!("{}KiB", bytes / 1024),
            _ => format!("{bytes}B"),
        };
        let options = |of: Self| {
            [
                format!("--chunk-size {}", size(1_u64 << of.mask_bits)),
                format!("--chunk-min {}", size(of.bounds.bytes_min())),
                format!("--chunk-max {}", size(of.bounds.bytes_max())),
                format!("--chunk-hash {}", of.hasher),
            ]
        };
        let theirs = options(other);
        let own = options(self).into_iter().zip(theirs);
        let unlike = own.filter(|(own, theirs)| own != theirs);
        unlike.map(|(own, _)| own).collect::<Vec<_>>().join(" ")
    }
}

impl Default for Chunking {
    fn default() -> Self {
        Self {
            mask_bits: 13,
            bounds: ChunkBounds::DEFAULT,
            hasher: ChunkHasher::default(),
        }
    }
}
