//! All bounds of the format: a reader refuses what is beyond, before it allocates.

/// Bytes of a header.
pub const HEADER_BYTES: usize = 256;

/// Plain bytes of a part of the table.
pub const PART_BYTES_MAX: usize = 64 << 10;

/// Plain bytes of a root, and of a private root.
pub const ROOT_BYTES_MAX: usize = 1 << 30;

/// Plain bytes of a chunk.
pub const CHUNK_BYTES_MAX: usize = 8 << 20;

/// Plain bytes of a frame.
pub const FRAME_BYTES_MAX: usize = 16 << 20;

/// What a frame as stored may have beyond the plain bytes of the largest frame: the worst of all
/// methods on what does not compress, the method itself, and what sealing and padding add.
pub const STORED_FRAME_EXTRA_BYTES: usize = FRAME_BYTES_MAX / 8 + (64 << 10);

/// The window of a frame's decompressor, and what a prefix before it takes.
pub const WINDOW_LOG_MAX: u32 = 25;

/// Bytes of the keys of an encrypted archive.
pub const KEYS_BYTES_MAX: usize = 256 << 10;

/// Bytes of a record of the catalog.
pub const RECORD_BYTES_MAX: usize = 64 << 10;

/// Bytes of a path in the catalog, and of a link's target.
pub const PATH_BYTES_MAX: usize = 4096;

/// What a sealed part of the table has beyond its stored bytes at most.
pub const SEAL_BYTES_MAX: usize = 64;
