//! Chunks of a stream that comes in pieces (PACK, section 3.1): what a receiver names its
//! history by.
//!
//! Pieces of any size enter, ranges of the stream leave, which cover it from end to end and do
//! not depend on where it was split. A chunk begins at an [anchor](crate::marker::pack) and
//! ends at the next one; anchors that would make it shorter than the minimum are passed over,
//! and where none comes up to the maximum it ends there.
//!
//! A chunk is known to be complete at most 48 bytes after its end. Its bytes are not kept:
//! who wants them, to hash or to store them, keeps what [`StreamChunks::feed`] has not yet
//! given a chunk for, which is less than the maximum and those 48 bytes.

use alloc::vec::Vec;
use core::{fmt, mem, ops::Range};

use crate::{
    marker::{AnchorFinder, PackMask, pack::WINDOW_BYTES},
    simd::Backend,
};

/// A stream is searched in parts of this size, which bounds the anchors that are held at once.
const PART_BYTES: usize = 64 << 10;

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
pub struct ChunkBounds {
    /// 48 <= bytes_min <= bytes_max <= LIMIT
    bytes_min: u32,
    bytes_max: u32,
}

impl ChunkBounds {
    /// No chunk may be longer: what is offered, and what a store's records can say.
    pub const LIMIT: usize = 64 << 10;

    /// For an average of about 8 KiB with the mask of 13 bits: 2 and 32 KiB.
    pub const DEFAULT: Self = Self {
        bytes_min: 2 << 10,
        bytes_max: 32 << 10,
    };

    /// Checks bounds.
    ///
    /// # Errors
    /// If not 48 <= `bytes_min` <= `bytes_max` <= [`LIMIT`](Self::LIMIT).
    pub fn new(bytes_min: usize, bytes_max: usize) -> Result<Self, InvalidChunkBounds> {
        let is_valid = (WINDOW_BYTES..=bytes_max).contains(&bytes_min) && bytes_max <= Self::LIMIT;
        match (u32::try_from(bytes_min), u32::try_from(bytes_max)) {
            (Ok(bytes_min), Ok(bytes_max)) if is_valid => Ok(Self {
                bytes_min,
                bytes_max,
            }),
            _ => Err(InvalidChunkBounds {
                bytes_min,
                bytes_max,
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
}

impl Default for ChunkBounds {
    fn default() -> Self {
        Self::DEFAULT
    }
}

/// Bounds of chunks that are out of order, or out of range.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct InvalidChunkBounds {
    /// The minimum that was asked for.
    pub bytes_min: usize,
    /// The maximum that was asked for.
    pub bytes_max: usize,
}

impl fmt::Display for InvalidChunkBounds {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            bytes_min,
            bytes_max,
        } = self;
        let limit = ChunkBounds::LIMIT;
        write!(
            f,
            "chunks have {WINDOW_BYTES} to {limit} bytes, the shortest no more than the longest; \
             not {bytes_min} to {bytes_max}"
        )
    }
}

impl core::error::Error for InvalidChunkBounds {}

/// Finds the chunks of a stream that comes in pieces.
///
/// ```
/// use refrain_codec::chunk::{hash::ChunkHasher, stream::StreamChunks};
///
/// let stream: Vec<u8> = (0..200_000_u32).map(|i| (i.wrapping_mul(i) >> 11) as u8).collect();
/// // The bytes that belong to no complete chunk yet, and the names of those that do.
/// let (mut unnamed, mut names) = (Vec::new(), Vec::new());
/// let mut name = |unnamed: &mut Vec<u8>, chunks: &mut Vec<std::ops::Range<u64>>| {
///     for chunk in chunks.drain(..) {
///         let rest = unnamed.split_off((chunk.end - chunk.start) as usize);
///         names.push(ChunkHasher::default().hash(unnamed));
///         *unnamed = rest;
///     }
/// };
///
/// let mut stream_chunks = StreamChunks::default();
/// let mut chunks = Vec::new();
/// for piece in stream.chunks(1460) {
///     unnamed.extend_from_slice(piece);
///     stream_chunks.feed(piece, &mut chunks);
///     name(&mut unnamed, &mut chunks);
/// }
/// stream_chunks.finish(&mut chunks);
/// name(&mut unnamed, &mut chunks);
/// assert!(unnamed.is_empty());
///
/// // The same stream in one piece has the same chunks.
/// let mut whole = Vec::new();
/// stream_chunks.feed(&stream, &mut whole);
/// stream_chunks.finish(&mut whole);
/// assert_eq!(whole.len(), names.len());
/// ```
#[derive(Clone, Debug)]
pub struct StreamChunks {
    finder: AnchorFinder,
    bounds: ChunkBounds,
    /// Start of the chunk that is not yet complete.
    start: u64,
    /// Of the latest part; empty between calls.
    anchors: Vec<u64>,
}

impl StreamChunks {
    /// At the start of a stream, on the machine's best kernels.
    #[must_use]
    pub fn new(mask: PackMask, bounds: ChunkBounds) -> Self {
        Self {
            finder: AnchorFinder::new(mask),
            bounds,
            start: 0,
            anchors: Vec::new(),
        }
    }

    /// The same on the kernels of `backend`.
    #[must_use]
    pub fn with_backend(mut self, backend: Backend) -> Self {
        self.finder = self.finder.with_backend(backend);
        self
    }

    /// The next `piece` of the stream: appends the chunks that are complete with it, in order.
    pub fn feed(&mut self, piece: &[u8], chunks: &mut Vec<Range<u64>>) {
        for part in piece.chunks(PART_BYTES) {
            let mut anchors = mem::take(&mut self.anchors);
            self.finder.feed(part, &mut anchors);
            for anchor in anchors.drain(..) {
                self.cut_too_long(anchor, chunks);
                if anchor - self.start >= self.bounds.bytes_min() {
                    self.cut(anchor, chunks);
                }
            }
            self.anchors = anchors;
            // No anchor is to come before this offset.
            self.cut_too_long(self.finder.tested_bytes(), chunks);
        }
    }

    /// Ends the stream and appends its last chunks: none if it was empty, else one, or two
    /// where one would be too long. What is fed next begins another stream.
    pub fn finish(&mut self, chunks: &mut Vec<Range<u64>>) {
        let end = self.finder.fed_bytes();
        self.cut_too_long(end, chunks);
        if self.start < end {
            self.cut(end, chunks);
        }
        self.finder.reset();
        self.start = 0;
    }

    /// Cuts where a chunk up to `end`, without an anchor within, would be longer than allowed.
    fn cut_too_long(&mut self, end: u64, chunks: &mut Vec<Range<u64>>) {
        while end.saturating_sub(self.start) > self.bounds.bytes_max() {
            self.cut(self.start + self.bounds.bytes_max(), chunks);
        }
    }

    fn cut(&mut self, end: u64, chunks: &mut Vec<Range<u64>>) {
        chunks.push(self.start..end);
        self.start = end;
    }
}

impl Default for StreamChunks {
    /// With the mask of the paper and the default bounds.
    fn default() -> Self {
        Self::new(PackMask::default(), ChunkBounds::default())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{marker::pack::streams, reference};
    use proptest::prelude::*;

    fn bounds() -> impl Strategy<Value = ChunkBounds> {
        (48_usize..200, 0_usize..400)
            .prop_map(|(min, more)| ChunkBounds::new(min, min + more).expect("in order"))
    }

    proptest! {
        #[test]
        fn chunks_equal_the_reference_however_the_stream_is_split(
            stream in streams::stream(),
            cuts in streams::cuts(),
            count in 6_u8..=15,
            bounds in bounds(),
        ) {
            let mask = PackMask::with_bits(count).expect("6 to 15");
            let expected = reference::pack::chunks(&stream, mask, bounds);
            let mut stream_chunks = StreamChunks::new(mask, bounds);
            // The second time, it must have forgotten the first.
            for pieces in [streams::split(&stream, &cuts), alloc::vec![&stream[..]]] {
                let mut chunks = Vec::new();
                for piece in pieces {
                    stream_chunks.feed(piece, &mut chunks);
                }
                stream_chunks.finish(&mut chunks);
                prop_assert_eq!(&chunks, &expected);
            }
        }
    }

    #[test]
    fn chunks_cover_the_stream_within_bounds() {
        let stream = streams::random(1, 1 << 20);
        let mut chunks = Vec::new();
        let mut stream_chunks = StreamChunks::default();
        stream_chunks.feed(&stream, &mut chunks);
        stream_chunks.finish(&mut chunks);
        let bounds = ChunkBounds::default();
        let (last, others) = chunks.split_last().expect("a chunk at least");
        let mut end = 0;
        for chunk in others {
            assert_eq!(chunk.start, end);
            let bytes = chunk.end - chunk.start;
            assert!((bounds.bytes_min()..=bounds.bytes_max()).contains(&bytes));
            end = chunk.end;
        }
        assert_eq!(*last, end..1 << 20);
        assert!((80..160).contains(&chunks.len()), "8 to 12 KiB each");
    }

    #[test]
    fn a_chunk_is_known_48_bytes_after_its_longest() {
        let mut chunks = Vec::new();
        let mut stream_chunks = StreamChunks::default();
        stream_chunks.feed(&[0; (32 << 10) + 47], &mut chunks);
        assert_eq!(chunks, []);
        stream_chunks.feed(&[0], &mut chunks);
        assert_eq!((chunks.len(), chunks[0].end), (1, 32 << 10));
    }

    #[test]
    fn bounds_out_of_order_or_range_are_refused() {
        let is_valid = |min, max| ChunkBounds::new(min, max).is_ok();
        assert!(is_valid(48, 48) && is_valid(48, ChunkBounds::LIMIT));
        assert!(!is_valid(47, 64) && !is_valid(65, 64) && !is_valid(48, ChunkBounds::LIMIT + 1));
        assert!(!is_valid(usize::MAX, usize::MAX));
    }

    #[test]
    fn an_empty_stream_has_no_chunk() {
        let mut chunks = Vec::new();
        StreamChunks::default().finish(&mut chunks);
        assert_eq!(chunks, []);
    }
}
