//! PACK anchors: the markers of a stream (PACK, section 6.3, Proc. 8 and Figure 13).
//!
//! A stream enters in pieces of any size, the increasing offsets of its anchors leave. A
//! rolling value takes in each byte by a shift and an XOR; where all bits of a mask are set in
//! it, the last 48 bytes are an anchor. With the paper's mask of 13 bits, one window in 8192
//! of random data is.
//!
//! Anchors are windows by content alone: how a stream is split into pieces does not matter,
//! and a change of a byte moves no anchor but those whose windows hold it.
//!
//! - An anchor's offset is that of its window's *first* byte, as in the authors' published
//!   implementation. Whoever cuts there begins each chunk with the very bytes that chose the
//!   place: they travel with the chunk, and what lies before it has no say. The price is that
//!   a cut is known 48 bytes late.
//! - The authors' implementation never tests the last window of what it is given; this one
//!   does, or else where a stream is split would matter.
//! - A run of one byte is all anchors or none: with an odd number of bits set in the byte all
//!   bits of the value are set, with an even number none.
//! - The mask of the paper is the one with 13 bits; those of 6 to 15 bits are from the
//!   authors' implementation. All look at bits 7 to 47, on which the last 48 bytes have their
//!   full effect and none before them any.

use alloc::vec::Vec;

use super::{FindAnchors, backup::Rank, piece::Tail};
pub use crate::sampling::WINDOW_BYTES;
use crate::{
    sampling::PackMask,
    simd::{Backend, pack},
};

/// Shorter pieces are left to the rolling value: the kernels have not paid off by then.
const KERNEL_BYTES_MIN: usize = 8 * WINDOW_BYTES;

/// Finds the anchors of a stream that comes in pieces.
///
/// ```
/// use refrain_codec::marker::{AnchorFinder, FindAnchors, PackMask};
///
/// let stream: Vec<u8> = (0..100_000_u32).map(|i| (i.wrapping_mul(i) >> 11) as u8).collect();
/// let mut whole = Vec::new();
/// AnchorFinder::new(PackMask::default()).feed(&stream, &mut whole);
///
/// let mut finder = AnchorFinder::new(PackMask::default());
/// let mut anchors = Vec::new();
/// for piece in stream.chunks(1460) {
///     finder.feed(piece, &mut anchors);
/// }
/// assert!(!anchors.is_empty());
/// assert_eq!(anchors, whole);
/// assert_eq!(finder.fed_bytes(), 100_000);
/// ```
#[derive(Clone, Debug)]
pub struct AnchorFinder {
    mask: PackMask,
    backend: Backend,
    /// All of the stream that the windows to come depend on; only the low 48 bits count.
    rolling: u64,
    fed_bytes: u64,
    /// Where the mask is not all that chooses the anchors: the lowest rank of one.
    pub(super) rank_min: Rank,
    /// Empty where ranks do not count.
    tail: Tail,
}

impl AnchorFinder {
    /// A finder at the start of a stream, on the machine's best kernels.
    #[must_use]
    pub fn new(mask: PackMask) -> Self {
        Self {
            mask,
            backend: Backend::best(),
            rolling: 0,
            fed_bytes: 0,
            rank_min: 0,
            tail: Tail::EMPTY,
        }
    }

    /// The same finder on the kernels of `backend`.
    #[must_use]
    pub fn with_backend(mut self, backend: Backend) -> Self {
        self.backend = backend;
        self
    }

    /// The mask that chooses the anchors.
    #[must_use]
    pub fn mask(&self) -> PackMask {
        self.mask
    }

    fn roll(&mut self, bytes: &[u8], anchors: &mut Vec<u64>) {
        let mask = self.mask.bits();
        for &byte in bytes {
            self.rolling = pack::roll(self.rolling, byte);
            self.fed_bytes += 1;
            if self.rolling & mask == mask
                && let Some(first) = self.fed_bytes.checked_sub(WINDOW_BYTES as u64)
            {
                anchors.push(first);
            }
        }
    }
}

impl FindAnchors for AnchorFinder {
    fn feed(&mut self, piece: &[u8], anchors: &mut Vec<u64>) {
        let (known, start) = (anchors.len(), self.fed_bytes);
        if piece.len() < KERNEL_BYTES_MIN {
            self.roll(piece, anchors);
        } else {
            // The windows that begin before this piece, those within it, those that will leave it.
            self.roll(&piece[..WINDOW_BYTES - 1], anchors);
            pack::find(self.backend, self.mask, piece, start, anchors);
            self.rolling = pack::rolling_value(&piece[piece.len() - WINDOW_BYTES..]);
            self.fed_bytes = start + piece.len() as u64;
        }
        if self.rank_min > 0 {
            self.drop_lower(&self.tail.and(start, piece), anchors, known);
            self.tail.push(piece);
        }
    }

    fn fed_bytes(&self) -> u64 {
        self.fed_bytes
    }

    fn reset(&mut self) {
        self.rolling = 0;
        self.fed_bytes = 0;
        self.tail = Tail::EMPTY;
    }
}

impl Default for AnchorFinder {
    /// With the paper's mask.
    fn default() -> Self {
        Self::new(PackMask::default())
    }
}

/// Streams to test with, and ways to split them.
#[cfg(test)]
pub(crate) mod streams {
    use alloc::vec::Vec;
    use proptest::{collection::vec, prelude::*, sample::select};

    /// The bytes of the generator of the shared vectors.
    pub(crate) fn random(seed: u64, length: usize) -> Vec<u8> {
        let mut state = seed;
        let step = |_| {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            (state >> 56) as u8
        };
        (0..length).map(step).collect()
    }

    /// Random, runs (of bytes of odd weight, which are all anchors, and of even), periodic, of
    /// few values, and mixtures.
    pub(crate) fn stream() -> impl Strategy<Value = Vec<u8>> {
        let bytes = (1_u64.., 0_usize..12_000).prop_map(|(seed, length)| random(seed, length));
        let periodic = (vec(any::<u8>(), 1..80), 0_usize..3000)
            .prop_map(|(motif, length)| motif.into_iter().cycle().take(length).collect());
        let few_values = vec(select(&[0_u8, 1, 254, 255][..]), 0..1500);
        let piece = prop_oneof![bytes, runs(), periodic, few_values];
        vec(piece, 0..4).prop_map(|pieces| pieces.concat())
    }

    pub(crate) fn runs() -> impl Strategy<Value = Vec<u8>> {
        (select(&[0_u8, 1, 3, 127, 255][..]), 0_usize..700)
            .prop_map(|(byte, length)| alloc::vec![byte; length])
    }

    /// Lengths of pieces, which repeat.
    pub(crate) fn cuts() -> impl Strategy<Value = Vec<usize>> {
        let length = prop_oneof![0_usize..4, 40_usize..60, 375_usize..400, 0_usize..2000];
        vec(length, 1..8).prop_filter("progress", |cuts| cuts.iter().any(|&cut| cut > 0))
    }

    pub(crate) fn split<'a>(mut stream: &'a [u8], cuts: &[usize]) -> Vec<&'a [u8]> {
        let mut pieces = Vec::new();
        for &cut in cuts.iter().cycle() {
            let (piece, rest) = stream.split_at(cut.min(stream.len()));
            pieces.push(piece);
            stream = rest;
            if stream.is_empty() {
                break;
            }
        }
        pieces
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::marker::InvalidPackMask;
    use crate::reference;
    use proptest::prelude::*;

    fn masks() -> impl Iterator<Item = PackMask> {
        (6..=15).map(|count| PackMask::with_bits(count).expect("6 to 15"))
    }

    proptest! {
        #[test]
        fn anchors_do_not_depend_on_how_a_stream_is_split(
            stream in streams::stream(),
            cuts in streams::cuts(),
            count in 6_u8..=15,
        ) {
            let mask = PackMask::with_bits(count).expect("6 to 15");
            let expected = reference::pack::anchors(&stream, mask);
            for backend in Backend::available() {
                let mut finder = AnchorFinder::new(mask).with_backend(backend);
                // The second time, it must have forgotten the first.
                for _ in 0..2 {
                    let mut anchors = Vec::new();
                    for piece in streams::split(&stream, &cuts) {
                        finder.feed(piece, &mut anchors);
                        let known = finder.tested_bytes();
                        prop_assert!(anchors.iter().all(|&anchor| anchor < known));
                    }
                    prop_assert_eq!(&anchors, &expected, "{:?}", backend);
                    prop_assert_eq!(finder.fed_bytes(), stream.len() as u64);
                    finder.reset();
                }
            }
        }
    }

    /// Found by the authors' implementation, which does not test the last window.
    #[test]
    fn anchors_are_the_authors() {
        let stream = streams::random(1, 65536);
        let mut anchors = Vec::new();
        AnchorFinder::default().feed(&stream, &mut anchors);
        assert_eq!(anchors, [6890, 10662, 11027, 17147, 38044, 47924, 56726]);
    }

    #[test]
    fn a_run_is_all_anchors_or_none() {
        for mask in masks() {
            let mut anchors = Vec::new();
            AnchorFinder::new(mask).feed(&[0b0111; 20_000], &mut anchors);
            assert!(anchors.into_iter().eq(0..=20_000 - 48));
            let mut anchors = Vec::new();
            AnchorFinder::new(mask).feed(&[0b0101; 20_000], &mut anchors);
            assert_eq!(anchors, []);
        }
    }

    #[test]
    fn masks_look_at_whole_diagonals_of_the_window() {
        for (mask, count) in masks().zip(6..) {
            assert_eq!(mask.bits().count_ones(), count);
            assert_eq!(u32::from(mask.count()), count);
            assert!(mask.bits().trailing_zeros() >= 7 && mask.bits().ilog2() < 48);
        }
        assert_eq!(PackMask::with_bits(5), Err(InvalidPackMask { count: 5 }));
        assert_eq!(PackMask::with_bits(16), Err(InvalidPackMask { count: 16 }));
    }
}
