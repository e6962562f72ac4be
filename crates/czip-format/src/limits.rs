//! All bounds of the format: a reader refuses what is beyond, before it allocates.

/// Bytes of a header.
pub const HEADER_BYTES: usize = 256;

/// Plain bytes of a part of the table.
pub const PART_BYTES_MAX: usize = 64 << 10;

/// Plain bytes of a root, and of a private root.
pub const ROOT_BYTES_MAX: usize = 1 << 30;

/// Plain bytes that a root may have however short it is stored.
pub const SMALL_ROOT_BYTES: usize = 1 << 20;

/// And how many times as many as are stored. Digests, which do not compress, are a third of a row and
/// more: only who repeats equal parts over and over comes near.
const ROOT_RATIO_MAX: usize = 8;

/// Bytes that a catalog may have however short the archive is.
const SMALL_CATALOG_BYTES: u64 = 64 << 20;

/// And how many times as many as the archive.
const CATALOG_RATIO_MAX: u64 = 256;

/// What lies between two restart points, of the plain content and of each stream.
pub(crate) const STRETCH_BYTES_MAX: u64 = 16 << 20;

/// Plain bytes of a chunk.
pub const CHUNK_BYTES_MAX: usize = 8 << 20;

/// Plain bytes of a frame.
pub const FRAME_BYTES_MAX: usize = 16 << 20;

/// What a frame as stored may have beyond the plain bytes of the largest frame: the worst of all
/// methods on what does not compress, the method itself, and what sealing and padding add.
pub const STORED_FRAME_EXTRA_BYTES: usize = FRAME_BYTES_MAX / 8 + (64 << 10);

/// The window of a frame's decompressor, and what a prefix before it takes.
pub(crate) const WINDOW_LOG_MAX: u32 = 25;

/// Bytes of the keys of an encrypted archive.
pub const KEYS_BYTES_MAX: usize = 256 << 10;

/// Bytes of a record of the catalog.
pub(crate) const RECORD_BYTES_MAX: usize = 64 << 10;

/// Bytes of a path in the catalog, and of a link's target.
pub(crate) const PATH_BYTES_MAX: usize = 4096;

/// What a sealed part of the table has beyond its stored bytes at most.
pub const SEAL_BYTES_MAX: usize = 16;

/// The most plain bytes of a root, or a private root, of so many stored ones.
pub(crate) fn root_bytes_max(stored_bytes: usize) -> usize {
    let unfolded = stored_bytes.saturating_mul(ROOT_RATIO_MAX);
    unfolded.clamp(SMALL_ROOT_BYTES, ROOT_BYTES_MAX)
}

/// The most bytes of the catalog of an archive of so many bytes.
pub fn catalog_bytes_max(archive_bytes: u64) -> u64 {
    archive_bytes
        .saturating_mul(CATALOG_RATIO_MAX)
        .max(SMALL_CATALOG_BYTES)
}
