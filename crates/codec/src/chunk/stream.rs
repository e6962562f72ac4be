//! Chunks of a stream that comes in pieces (PACK, section 3.1): what a receiver names its
//! history by.
//!
//! Pieces of any size enter, ranges of the stream leave, which cover it from end to end and do
//! not depend on where it was split. A chunk begins at an [anchor](crate::marker::pack), PACK's or
//! what another [`FindAnchors`] finds, and
//! ends at the next one; anchors that would make it shorter than the minimum are passed over.
//! Where none comes up to the maximum it ends at a backup anchor behind half of it, so
//! that no place is looked at twice, whatever chunk it then belongs to.
//!
//! - Deviation: PACK has no maximum that chunks are cut at by content. Anchors are the same.
//!
//! A chunk is known to be complete at most 48 bytes after its end. Its bytes are not kept:
//! who wants them, to hash or to store them, keeps what [`StreamChunks::feed`] has not yet
//! given a chunk for, which is less than the maximum and those 48 bytes.

use alloc::vec::Vec;
use core::{mem, ops::Range};

pub use super::bounds::{ChunkBounds, InvalidChunkBounds, LongChunkBounds};
use crate::{
    marker::{
        AnchorFinder, FindAnchors, FoundAnchors, PackMask,
        backup::Rank,
        piece::{Piece, Tail},
    },
    simd::Backend,
};

/// A stream is searched in parts of this size, which bounds the anchors that are held at once.
const PART_BYTES: usize = 64 << 10;

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
pub struct StreamChunks<F = AnchorFinder> {
    finder: F,
    backend: Backend,
    tail: Tail,
    bounds: LongChunkBounds,
    /// Start of the chunk that is not yet complete.
    start: u64,
    /// Its backup anchor among the positions up to here, if it has come to need one.
    backup: Option<(Rank, u64)>,
    looked_bytes: u64,
    /// Of the latest part; empty between calls.
    anchors: Vec<u64>,
}

impl StreamChunks {
    /// At the start of a stream, on the machine's best kernels.
    #[must_use]
    pub fn new(mask: PackMask, bounds: ChunkBounds) -> Self {
        Self::by(AnchorFinder::new(mask), bounds.into(), Backend::best())
    }

    /// The same on the kernels of `backend`.
    #[must_use]
    pub fn with_backend(mut self, backend: Backend) -> Self {
        self.finder = self.finder.with_backend(backend);
        self.backend = backend;
        self
    }
}

impl<F: FindAnchors> StreamChunks<F> {
    /// At the start of a stream, which is cut at the anchors of `finder`, that has been fed nothing.
    /// Backup anchors are looked for on the kernels of `backend`.
    ///
    /// # Panics
    /// If it has been fed something.
    #[must_use]
    pub fn by(finder: F, bounds: LongChunkBounds, backend: Backend) -> Self {
        assert_eq!(finder.fed_bytes(), 0, "a stream is cut from its start");
        Self {
            finder,
            backend,
            tail: Tail::EMPTY,
            bounds,
            start: 0,
            backup: None,
            looked_bytes: 0,
            anchors: Vec::new(),
        }
    }

    /// Bytes of the stream so far.
    #[must_use]
    pub fn fed_bytes(&self) -> u64 {
        self.finder.fed_bytes()
    }

    /// The next `piece` of the stream: appends the chunks that are complete with it, in order.
    pub fn feed(&mut self, piece: &[u8], chunks: &mut Vec<Range<u64>>) {
        for part in piece.chunks(PART_BYTES) {
            let before = self.tail.clone();
            self.tail.push(part);
            let part = before.and(self.finder.fed_bytes(), part);
            let mut anchors = mem::take(&mut self.anchors);
            self.finder.feed(part.bytes, &mut anchors);
            for anchor in anchors.drain(..) {
                self.cut_too_long(&part, anchor, chunks);
                if anchor - self.start >= self.bounds.bytes_min() {
                    self.cut(anchor, chunks);
                }
            }
            self.anchors = anchors;
            // No anchor is to come before this offset.
            let tested = self.finder.tested_bytes();
            self.cut_too_long(&part, tested, chunks);
            self.look_for_backup(&part, tested);
        }
    }

    /// Ends the stream and appends its last chunks: none if it was empty, else one, or two
    /// where one would be too long. What is fed next begins another stream.
    pub fn finish(&mut self, chunks: &mut Vec<Range<u64>>) {
        let end = self.finder.fed_bytes();
        while end - self.start > self.bounds.bytes_max() {
            self.cut_longest(chunks);
        }
        if self.start < end {
            self.cut(end, chunks);
        }
        self.finder.reset();
        self.tail = Tail::EMPTY;
        self.start = 0;
        self.looked_bytes = 0;
    }

    /// Cuts where a chunk up to `end`, without an anchor within, would be longer than allowed.
    fn cut_too_long(&mut self, part: &Piece<'_>, end: u64, chunks: &mut Vec<Range<u64>>) {
        while end.saturating_sub(self.start) > self.bounds.bytes_max() {
            self.look_for_backup(part, self.start + self.bounds.bytes_max() + 1);
            self.cut_longest(chunks);
        }
    }

    /// Cuts where no anchor came up to the longest chunk.
    fn cut_longest(&mut self, chunks: &mut Vec<Range<u64>>) {
        let longest = self.start + self.bounds.bytes_max();
        let end = self.backup.map_or(longest, |(_, position)| position);
        self.cut(end, chunks);
    }

    /// Looks for the backup anchor of the chunk that is not yet complete, before `end`. Windows
    /// there end in `part`, or were looked at.
    fn look_for_backup(&mut self, part: &Piece<'_>, end: u64) {
        let start = self.start + self.bounds.backup_bytes_min();
        let positions = start.max(self.looked_bytes)..end;
        if !positions.is_empty() {
            part.candidates(self.backend, positions, |position, rank| {
                if self.backup.is_none_or(|(highest, _)| rank >= highest) {
                    self.backup = Some((rank, position));
                }
            });
            self.looked_bytes = end;
        }
    }

    fn cut(&mut self, end: u64, chunks: &mut Vec<Range<u64>>) {
        chunks.push(self.start..end);
        self.start = end;
        self.backup = None;
    }
}

impl StreamChunks<FoundAnchors> {
    /// The next anchors of the stream, before the bytes that their windows end in.
    pub fn tell(&mut self, anchors: impl IntoIterator<Item = u64>) {
        self.finder.tell(anchors);
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
    use crate::{
        marker::{AnchorDistance, ModpAnchorFinder, pack::streams},
        reference,
    };
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

    /// The chunks of a stream in pieces, after those of another.
    fn cut(chunks: &mut StreamChunks<impl FindAnchors>, pieces: &[&[u8]]) -> Vec<Range<u64>> {
        let mut found = Vec::new();
        chunks.feed(&streams::random(1, 5000), &mut found);
        chunks.finish(&mut found);
        found.clear();
        for piece in pieces {
            chunks.feed(piece, &mut found);
        }
        chunks.finish(&mut found);
        found
    }

    fn by<F: FindAnchors>(finder: F, bounds: LongChunkBounds) -> StreamChunks<F> {
        StreamChunks::by(finder, bounds, Backend::best())
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(64))]

        #[test]
        fn chunks_by_other_anchors_equal_the_reference(
            stream in streams::stream(),
            cuts in streams::cuts(),
            bits in 6_u32..=16,
            (bytes_min, bytes_max) in (48_usize..3000, 0_usize..9000)
                .prop_map(|(min, more)| (min, min + more)),
        ) {
            let distance = AnchorDistance::new(1 << bits).expect("valid");
            let bounds = LongChunkBounds::new(bytes_min, bytes_max).expect("in order");
            let pieces = streams::split(&stream, &cuts);

            let anchors = reference::pack::sparse_anchors(&stream, distance);
            let expected = reference::pack::chunks_at(&stream, &anchors, bounds);
            let mut chunks = by(AnchorFinder::sparse(distance), bounds);
            prop_assert_eq!(cut(&mut chunks, &pieces), expected);

            let anchors = reference::markers::modp_anchors(&stream, distance);
            let expected = reference::pack::chunks_at(&stream, &anchors, bounds);
            let mut chunks = by(ModpAnchorFinder::new(distance), bounds);
            prop_assert_eq!(cut(&mut chunks, &pieces), &expected[..]);

            let mut finder = ModpAnchorFinder::new(distance);
            let mut chunks = by(FoundAnchors::default(), bounds);
            // The second time, it must have forgotten the first.
            for _ in 0..2 {
                let mut found = Vec::new();
                for piece in &pieces {
                    let mut anchors = Vec::new();
                    finder.feed(piece, &mut anchors);
                    chunks.tell(anchors);
                    chunks.feed(piece, &mut found);
                }
                chunks.finish(&mut found);
                prop_assert_eq!(&found, &expected);
                finder.reset();
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

    /// Lines of one form, in which few bits vary, and no anchor comes for a long time.
    fn log() -> Vec<u8> {
        let noise = streams::random(5, 40_000);
        let fields = noise.as_chunks().0.iter().zip(0_u32..);
        let lines = fields.map(|(&[a, b], number)| {
            alloc::format!(
                "10.0.{}.{a} - - [{number:06}] \"GET /items/{b:03}\" 200\n",
                a % 4
            )
        });
        lines.collect::<alloc::string::String>().into_bytes()
    }

    #[test]
    fn text_without_anchors_is_cut_as_before_behind_a_line_that_was_inserted() {
        let cut = |stream: &[u8]| {
            let mut chunks = Vec::new();
            let mut stream_chunks = StreamChunks::default();
            stream_chunks.feed(stream, &mut chunks);
            stream_chunks.finish(&mut chunks);
            chunks
        };
        let log = log();
        let mut anchors = Vec::new();
        AnchorFinder::default().feed(&log, &mut anchors);
        assert_eq!(anchors, []);
        let chunks = cut(&log);
        assert!(chunks.len() as u64 > log.len() as u64 / (32 << 10) + 5);
        let line = b"10.0.0.1 - - [000000] \"GET /items/new\" 200\n";
        let at = 1000;
        let edited = [&log[..at], line, &log[at..]].concat();
        let moved = |end: u64| end + line.len() as u64;
        let ends: alloc::collections::BTreeSet<u64> =
            cut(&edited).iter().map(|chunk| chunk.end).collect();
        let kept = chunks
            .iter()
            .filter(|chunk| ends.contains(&moved(chunk.end)));
        assert!(kept.count() + 3 >= chunks.len());
    }

    #[test]
    fn where_nothing_differs_chunks_are_as_long_as_they_may_be() {
        let mut chunks = Vec::new();
        let mut stream_chunks = StreamChunks::default();
        for stream in [alloc::vec![0; 100_000], b"verse".repeat(20_000)] {
            stream_chunks.feed(&stream, &mut chunks);
            stream_chunks.finish(&mut chunks);
            assert!(chunks.len() == 4 && chunks[0].end > (32 << 10) - 5);
            chunks.clear();
        }
    }

    #[test]
    fn an_empty_stream_has_no_chunk() {
        let mut chunks = Vec::new();
        StreamChunks::default().finish(&mut chunks);
        assert_eq!(chunks, []);
    }
}
