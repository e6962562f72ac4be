//! Where somebody else may have cut a stream into chunks, for who knows neither where their first
//! one began nor their bounds: at each anchor, and where none came for long, at windows that are
//! likely to be backup anchors.
//!
//! Pieces of any size enter, increasing offsets leave, which do not depend on where the stream was
//! split.
//!
//! A backup anchor has the highest rank of half the longest chunk, which is twice the average one
//! where bounds are in the [default's](super::stream::ChunkBounds::DEFAULT) proportion. So its
//! rank is nearly always one that a window in a quarter of the average has, and no anchor is in
//! one and a half averages before it.

use alloc::vec::Vec;
use core::mem;

use crate::{
    marker::{
        AnchorFinder, FindAnchors, PackMask,
        backup::{CANDIDATE_DISTANCE, Rank},
        piece::{Piece, Tail},
    },
    simd::Backend,
};

/// Finds where a stream may have been cut into chunks.
///
/// ```
/// use refrain_codec::{
///     chunk::{cuts::CutFinder, stream::StreamChunks},
///     marker::PackMask,
/// };
///
/// let lines = (0..100_000).map(|number| format!("verse {number}\n"));
/// let song = lines.collect::<String>().into_bytes();
/// let mut chunks = Vec::new();
/// let mut stream_chunks = StreamChunks::default();
/// stream_chunks.feed(&song, &mut chunks);
/// stream_chunks.finish(&mut chunks);
///
/// let mut cuts = Vec::new();
/// CutFinder::new(PackMask::default()).feed(&song[1000..], &mut cuts);
/// let found = |begin: u64| begin < 1000 || cuts.contains(&(begin - 1000));
/// assert!(chunks.iter().all(|chunk| found(chunk.start)));
/// assert!(cuts.len() < song.len() / 1000);
/// ```
#[derive(Clone, Debug)]
pub struct CutFinder {
    finder: AnchorFinder,
    tail: Tail,
    /// None is looked for between the latest anchor and here.
    backups_from: u64,
    /// Of the latest piece; empty between calls.
    anchors: Vec<u64>,
}

impl CutFinder {
    /// At the start of a stream, on the machine's best kernels. No anchor may have come for long.
    #[must_use]
    pub fn new(mask: PackMask) -> Self {
        Self {
            finder: AnchorFinder::new(mask),
            tail: Tail::EMPTY,
            backups_from: 0,
            anchors: Vec::new(),
        }
    }

    /// The next `piece` of the stream: appends the places whose windows end in it, each as the
    /// offset in the stream of the window's first byte, in increasing order.
    pub fn feed(&mut self, piece: &[u8], cuts: &mut Vec<u64>) {
        let before = self.tail.clone();
        self.tail.push(piece);
        let piece = before.and(self.finder.fed_bytes(), piece);
        let mut tested = self.finder.tested_bytes();
        let mut anchors = mem::take(&mut self.anchors);
        self.finder.feed(piece.bytes, &mut anchors);
        for anchor in anchors.drain(..) {
            self.add_backups(&piece, tested, anchor, cuts);
            cuts.push(anchor);
            self.backups_from = anchor + 3 * self.average() / 2;
            tested = anchor + 1;
        }
        self.anchors = anchors;
        self.add_backups(&piece, tested, self.finder.tested_bytes(), cuts);
    }

    /// Bytes of the stream so far.
    #[must_use]
    pub fn fed_bytes(&self) -> u64 {
        self.finder.fed_bytes()
    }

    fn average(&self) -> u64 {
        1 << self.finder.mask().count()
    }

    fn add_backups(&self, piece: &Piece<'_>, from: u64, to: u64, cuts: &mut Vec<u64>) {
        // Of all windows, one in a quarter of an average chunk has it.
        let rank_min = match self.average() / 4 / CANDIDATE_DISTANCE {
            0 | 1 => 0,
            distance => Rank::MAX - Rank::MAX / distance,
        };
        let positions = from.max(self.backups_from)..to;
        piece.candidates(Backend::best(), positions, |position, rank| {
            if rank >= rank_min {
                cuts.push(position);
            }
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        chunk::stream::StreamChunks,
        marker::pack::{WINDOW_BYTES, streams},
        reference,
    };
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn cuts_do_not_depend_on_how_a_stream_is_split(
            stream in streams::stream(),
            cuts in streams::cuts(),
            count in 6_u8..=15,
        ) {
            let mask = PackMask::with_bits(count).expect("6 to 15");
            let mut whole = Vec::new();
            CutFinder::new(mask).feed(&stream, &mut whole);
            prop_assert!(whole.is_sorted_by(|a, b| a < b));
            let anchors = reference::pack::anchors(&stream, mask);
            prop_assert!(anchors.iter().all(|anchor| whole.binary_search(anchor).is_ok()));
            let mut finder = CutFinder::new(mask);
            let mut found = Vec::new();
            for piece in streams::split(&stream, &cuts) {
                finder.feed(piece, &mut found);
                let known = finder.fed_bytes().saturating_sub(WINDOW_BYTES as u64 - 1);
                prop_assert!(found.iter().all(|&cut| cut < known));
            }
            prop_assert_eq!(found, whole);
            prop_assert_eq!(finder.fed_bytes(), stream.len() as u64);
        }
    }

    #[test]
    fn chunks_begin_at_cuts_that_are_few() {
        let noise = streams::random(3, 4 << 20);
        let digits: Vec<u8> = noise.iter().map(|byte| b'0' + byte % 10).collect();
        let lines = digits.chunks(17).collect::<Vec<_>>().join(&b"\n"[..]);
        for stream in [noise, lines] {
            let mut chunks = Vec::new();
            let mut stream_chunks = StreamChunks::default();
            stream_chunks.feed(&stream, &mut chunks);
            stream_chunks.finish(&mut chunks);
            let mut cuts = Vec::new();
            CutFinder::new(PackMask::DEFAULT).feed(&stream, &mut cuts);
            let missed = chunks.iter().skip(1);
            let missed = missed.filter(|chunk| cuts.binary_search(&chunk.start).is_err());
            assert!(missed.count() * 100 <= chunks.len());
            assert!(cuts.len() < stream.len() / 1024);
        }
    }
}
