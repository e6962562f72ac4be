//! Sizes that both ends of a mirrored cache must share.

use crate::LogPosition;

/// Smallest cache of one direction, in bytes.
pub const CACHE_BYTES_MIN: usize = 1 << 20;

/// Largest cache of one direction, in bytes: what an offset of 32 bits reaches.
pub const CACHE_BYTES_MAX: usize = 1 << 32;

/// The size of a cache, of its guard window and of its span.
///
/// The *window* is what a sender may always have written and not yet know to be applied. It
/// refers back at most *cache − window* bytes from a block's end, so that the receiver
/// may write any block of the window before the block that refers is decoded. The *span* is what it may have written
/// while no block from the first of these on refers to what would be overwritten.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CacheGeometry {
    cache_bytes: usize,
    has_long_span: bool,
}

impl CacheGeometry {
    /// The smallest that there is.
    pub const SMALLEST: Self = Self {
        cache_bytes: CACHE_BYTES_MIN,
        has_long_span: false,
    };

    /// The geometry of a cache of `cache_bytes`; `None` outside of
    /// [`CACHE_BYTES_MIN`]`..=`[`CACHE_BYTES_MAX`].
    #[must_use]
    pub fn new(cache_bytes: usize) -> Option<Self> {
        (CACHE_BYTES_MIN..=CACHE_BYTES_MAX)
            .contains(&cache_bytes)
            .then_some(Self {
                cache_bytes,
                has_long_span: false,
            })
    }

    /// The same cache, whose span is longer than its window.
    #[must_use]
    pub fn with_long_span(self) -> Self {
        Self {
            has_long_span: true,
            ..self
        }
    }

    /// Bytes of plain text that the log keeps.
    #[must_use]
    pub fn cache_bytes(self) -> usize {
        self.cache_bytes
    }

    /// Bytes that may always be written and not yet known to be applied:
    /// min(max(cache / 8, 1 MiB), cache / 4).
    #[must_use]
    pub fn window_bytes(self) -> usize {
        (self.cache_bytes / 8)
            .max(1 << 20)
            .min(self.cache_bytes / 4)
    }

    /// Bytes that may be written and not yet known to be applied, while none of them refers to what would be
    /// overwritten: cache / 2, or the window where the span is not long.
    #[must_use]
    pub fn span_bytes(self) -> usize {
        match self.has_long_span {
            true => self.cache_bytes / 2,
            false => self.window_bytes(),
        }
    }

    /// The oldest position that a block which ends at `block_end` may refer to.
    #[must_use]
    pub fn oldest_for(self, block_end: LogPosition) -> LogPosition {
        block_end.back((self.cache_bytes - self.window_bytes()) as u64)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_window_follows_the_cache() {
        let window = |cache: usize| CacheGeometry::new(cache).expect("valid").window_bytes();
        assert_eq!(window(1 << 20), 256 << 10);
        assert_eq!(window(4 << 20), 1 << 20);
        assert_eq!(window(128 << 20), 16 << 20);
        assert!(CacheGeometry::new(CACHE_BYTES_MIN - 1).is_none());
        assert!(CacheGeometry::new(CACHE_BYTES_MAX + 1).is_none());
    }
}
