//! How short and how long the chunks of a stream may be.

use thiserror::Error;

use crate::marker::pack::WINDOW_BYTES;

/// The shortest and the longest chunk of a stream, but for its end.
///
/// ```
/// use refrain_codec::chunk::stream::ChunkBounds;
///
/// let bounds = ChunkBounds::default();
/// assert_eq!((bounds.bytes_min(), bounds.bytes_max()), (2 << 10, 32 << 10));
/// assert!(ChunkBounds::new(16, 1024).is_err(), "shorter than the window of an anchor");
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct ChunkBounds(LongChunkBounds);

impl ChunkBounds {
    /// No chunk may be longer: what is offered, and what a store's records can say.
    pub const LIMIT: usize = 64 << 10;

    /// For an average of about 8 KiB with the mask of 13 bits: 2 and 32 KiB.
    pub const DEFAULT: Self = Self(LongChunkBounds {
        bytes_min: 2 << 10,
        bytes_max: 32 << 10,
    });

    /// Checks bounds.
    ///
    /// # Errors
    /// If not 48 <= `bytes_min` <= `bytes_max` <= [`LIMIT`](Self::LIMIT).
    pub fn new(bytes_min: usize, bytes_max: usize) -> Result<Self, InvalidChunkBounds> {
        LongChunkBounds::within(bytes_min, bytes_max, Self::LIMIT).map(Self)
    }

    /// The shortest chunk, but for the last of a stream.
    #[must_use]
    pub fn bytes_min(self) -> u64 {
        self.0.bytes_min()
    }

    /// The longest chunk.
    #[must_use]
    pub fn bytes_max(self) -> u64 {
        self.0.bytes_max()
    }
}

impl Default for ChunkBounds {
    fn default() -> Self {
        Self::DEFAULT
    }
}

/// Bounds of chunks that no store and no wire need to know: of those of a file, say.
///
/// ```
/// use refrain_codec::chunk::stream::{ChunkBounds, LongChunkBounds};
///
/// assert!(LongChunkBounds::new(256 << 10, 4 << 20).is_ok());
/// let bounds = LongChunkBounds::from(ChunkBounds::default());
/// assert_eq!((bounds.bytes_min(), bounds.bytes_max()), (2 << 10, 32 << 10));
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct LongChunkBounds {
    /// 48 <= bytes_min <= bytes_max <= LIMIT
    bytes_min: u32,
    bytes_max: u32,
}

impl LongChunkBounds {
    /// No chunk may be longer: who cuts holds one in memory.
    pub const LIMIT: usize = 8 << 20;

    /// Checks bounds.
    ///
    /// # Errors
    /// If not 48 <= `bytes_min` <= `bytes_max` <= [`LIMIT`](Self::LIMIT).
    pub fn new(bytes_min: usize, bytes_max: usize) -> Result<Self, InvalidChunkBounds> {
        Self::within(bytes_min, bytes_max, Self::LIMIT)
    }

    fn within(
        bytes_min: usize,
        bytes_max: usize,
        limit: usize,
    ) -> Result<Self, InvalidChunkBounds> {
        let is_valid = (WINDOW_BYTES..=bytes_max).contains(&bytes_min) && bytes_max <= limit;
        match (u32::try_from(bytes_min), u32::try_from(bytes_max)) {
            (Ok(bytes_min), Ok(bytes_max)) if is_valid => Ok(Self {
                bytes_min,
                bytes_max,
            }),
            _ => Err(InvalidChunkBounds {
                bytes_min,
                bytes_max,
                limit,
            }),
        }
    }

    /// The shortest chunk, but for the last of a stream.
    #[must_use]
    pub fn bytes_min(self) -> u64 {
        self.bytes_min.into()
    }

    /// The longest chunk.
    #[must_use]
    pub fn bytes_max(self) -> u64 {
        self.bytes_max.into()
    }

    /// The shortest chunk that a backup anchor ends. The one behind it looks for its own where
    /// this one's maximum was, or later.
    pub(crate) fn backup_bytes_min(self) -> u64 {
        self.bytes_min().max(self.bytes_max() / 2 + 1)
    }
}

impl From<ChunkBounds> for LongChunkBounds {
    fn from(bounds: ChunkBounds) -> Self {
        bounds.0
    }
}

/// Bounds of chunks that are out of order, or out of range.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[error(
    "chunks must have {WINDOW_BYTES} to {limit} bytes, the shortest no more than the longest; \
     not {bytes_min} to {bytes_max}"
)]
pub struct InvalidChunkBounds {
    /// The minimum that was asked for.
    pub bytes_min: usize,
    /// The maximum that was asked for.
    pub bytes_max: usize,
    /// What it may be at most.
    pub limit: usize,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bounds_out_of_order_or_range_are_refused() {
        let is_valid = |min, max| ChunkBounds::new(min, max).is_ok();
        assert!(is_valid(48, 48) && is_valid(48, ChunkBounds::LIMIT));
        assert!(!is_valid(47, 64) && !is_valid(65, 64) && !is_valid(48, ChunkBounds::LIMIT + 1));
        assert!(!is_valid(usize::MAX, usize::MAX));
        let is_valid = |min, max| LongChunkBounds::new(min, max).is_ok();
        assert!(is_valid(48, 48) && is_valid(48, LongChunkBounds::LIMIT));
        assert!(!is_valid(47, 64) && !is_valid(65, 64));
        assert!(!is_valid(48, LongChunkBounds::LIMIT + 1) && !is_valid(usize::MAX, usize::MAX));
    }
}
