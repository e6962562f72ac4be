//! PACK anchors as far apart as files of many gigabytes are cut, further than masks go.
//!
//! A stream enters in pieces of any size, the increasing offsets of its anchors leave. Up to 32 KiB
//! apart they are those of [`AnchorFinder::new`]. Beyond, they are those of its longest mask whose
//! windows have a rank, a 64-bit hash, among the highest: one in two for 64 KiB, one in four for
//! 128 KiB, and so on.
//!
//! - Deviation: PACK ends at 15 bits. More bits of the same rolling value would cost nothing, but
//!   in text few of them vary, and the more are asked for the fewer windows ever have them all.

use alloc::vec::Vec;

use super::{
    AnchorDistance, AnchorFinder, PackMask,
    backup::{Rank, rank},
    pack::WINDOW_BYTES,
    piece::{Piece, window},
};

/// The bits of the longest mask.
const MASK_BITS_MAX: u32 = 15;

impl AnchorFinder {
    /// A finder of anchors at any distance, at the start of a stream, on the machine's best kernels.
    ///
    /// ```
    /// use refrain_codec::marker::{AnchorDistance, AnchorFinder, FindAnchors};
    ///
    /// let stream: Vec<u8> = (0..1_000_000_u32).map(|i| (i.wrapping_mul(i) >> 11) as u8).collect();
    /// let find = |bytes| {
    ///     let distance = AnchorDistance::new(bytes).expect("a power of two");
    ///     let mut anchors = Vec::new();
    ///     AnchorFinder::sparse(distance).feed(&stream, &mut anchors);
    ///     anchors
    /// };
    /// let (near, far) = (find(32 << 10), find(128 << 10));
    /// assert!(far.iter().all(|anchor| near.contains(anchor)));
    /// ```
    #[must_use]
    pub fn sparse(distance: AnchorDistance) -> Self {
        let (mask, rank_min) = parts(distance);
        let mut finder = Self::new(mask);
        finder.rank_min = rank_min;
        finder
    }

    /// Whether a window that the longest mask passes, up to this distance, is an anchor: for whoever looks
    /// for those elsewhere.
    #[must_use]
    pub fn is_kept(&self, window: &[u8; WINDOW_BYTES]) -> bool {
        rank(window) >= self.rank_min
    }

    /// Removes the anchors from index `from` on, whose windows end in `piece`, that rank too low.
    pub(super) fn drop_lower(&self, piece: &Piece<'_>, anchors: &mut Vec<u64>, from: usize) {
        let crossing = piece.crossing();
        let mut kept = from;
        for index in from..anchors.len() {
            let anchor = anchors[index];
            let window = match anchor < piece.start {
                true => window(crossing.bytes(), crossing.start, anchor),
                false => window(piece.bytes, piece.start, anchor),
            };
            if self.is_kept(window) {
                anchors[kept] = anchor;
                kept += 1;
            }
        }
        anchors.truncate(kept);
    }
}

/// The mask for `distance`, and the lowest rank of an anchor.
pub(crate) fn parts(distance: AnchorDistance) -> (PackMask, Rank) {
    let bits = distance.bytes().ilog2();
    let of_mask = bits.min(MASK_BITS_MAX);
    let mask = PackMask::with_bits(of_mask as u8).expect("distances have 6 bits at least");
    (mask, !(Rank::MAX >> (bits - of_mask)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        marker::{FindAnchors, pack::streams},
        reference::{self, pack::sparse_anchors},
        simd::Backend,
    };
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn anchors_equal_the_reference_however_the_stream_is_split(
            stream in streams::stream(),
            // Runs are all anchors by the mask, and all or none by rank.
            run in streams::runs(),
            cuts in streams::cuts(),
            bits in 6_u32..=20,
        ) {
            let stream = [stream, run].concat();
            let distance = AnchorDistance::new(1 << bits).expect("valid");
            let expected = sparse_anchors(&stream, distance);
            for backend in Backend::available() {
                let mut finder = AnchorFinder::sparse(distance).with_backend(backend);
                // The second time, it must have forgotten the first.
                for _ in 0..2 {
                    let mut anchors = Vec::new();
                    for piece in streams::split(&stream, &cuts) {
                        finder.feed(piece, &mut anchors);
                    }
                    prop_assert_eq!(&anchors, &expected, "{:?}", backend);
                    prop_assert_eq!(finder.fed_bytes(), stream.len() as u64);
                    finder.reset();
                }
            }
        }
    }

    #[test]
    fn each_doubling_of_the_distance_halves_the_anchors() {
        let stream = streams::random(3, 64 << 20);
        let mut before: Option<Vec<u64>> = None;
        for bits in 13..=18 {
            let distance = AnchorDistance::new(1 << bits).expect("valid");
            let mut anchors = Vec::new();
            AnchorFinder::sparse(distance).feed(&stream, &mut anchors);
            let expected = stream.len() >> bits;
            assert!(anchors.len().abs_diff(expected) < expected / 4, "{bits}");
            if let (Some(before), true) = (&before, bits > MASK_BITS_MAX) {
                assert!(anchors.iter().all(|anchor| before.contains(anchor)));
            }
            before = Some(anchors);
        }
    }

    #[test]
    fn up_to_32_kib_they_are_those_of_the_mask() {
        let stream = streams::random(5, 1 << 20);
        for bits in 6..=15 {
            let distance = AnchorDistance::new(1 << bits).expect("valid");
            let mut anchors = Vec::new();
            AnchorFinder::sparse(distance).feed(&stream, &mut anchors);
            let mask = PackMask::with_bits(bits).expect("6 to 15");
            assert_eq!(anchors, reference::pack::anchors(&stream, mask));
        }
    }
}
