//! What a store tells about itself.

use serde::Serialize;

/// Sizes and counters of a store. Counters begin at zero when it is opened.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct StoreStat {
    /// Chunks that can be read.
    pub chunks: u64,
    /// Bytes of chunks on disk, those that are dead but not yet evicted included.
    pub chunk_bytes: u64,
    /// Keys under which openings are remembered.
    pub openings: u64,
    /// Entries of recipes: a chunk counts as often as it came.
    pub recipe_entries: u64,
    /// Files on disk, by what they hold.
    pub disk: DiskBytes,
    /// The bound on disk.
    pub disk_bytes_max: u64,
    /// Bytes of index records a byte of chunks.
    pub metadata_share: f64,
    /// Segments of the log.
    pub segments: u32,
    /// Files of others that serve as history.
    pub files: u64,
    /// The realms.
    pub realms: Vec<RealmStat>,
    /// When the oldest segment was begun, in seconds since 1970.
    pub oldest_s: Option<u64>,
    /// When the youngest was begun.
    pub youngest_s: Option<u64>,
    /// Chunks that were appended, known ones included.
    pub received_chunks: u64,
    /// Their bytes.
    pub received_bytes: u64,
    /// Bytes of those that were new.
    pub stored_bytes: u64,
    /// Segments that were evicted.
    pub evicted_segments: u64,
    /// What they took on disk.
    pub evicted_bytes: u64,
    /// Chunks that went with them.
    pub evicted_chunks: u64,
    /// Chunks that were appended anew instead of being evicted.
    pub rewritten_chunks: u64,
    /// Their bytes.
    pub rewritten_bytes: u64,
    /// Chunks, blocks of records and pieces of recipes that were found damaged.
    pub damaged: u64,
    /// Files of others that changed after they were added.
    pub changed_files: u64,
    /// Bytes of memory that the index and all about segments and recipes take.
    pub memory_bytes: u64,
}

/// A realm that a store has history of.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct RealmStat {
    /// In hexadecimal.
    pub realm: String,
    /// What it is called, if that was told.
    pub name: Option<String>,
    /// Its chunks, at most: those that are dead but not yet evicted count, up to all that can be read. Of
    /// the only realm it is exact.
    pub chunks: u64,
}

/// Bytes of the files of a store.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct DiskBytes {
    /// Of chunks.
    pub chunks: u64,
    /// Of index records.
    pub index: u64,
    /// Of recipes.
    pub recipes: u64,
    /// Of the rest: what is known of others' files, the format, the lock.
    pub other: u64,
}

impl DiskBytes {
    /// All of them.
    #[must_use]
    pub fn total(&self) -> u64 {
        self.chunks + self.index + self.recipes + self.other
    }
}
