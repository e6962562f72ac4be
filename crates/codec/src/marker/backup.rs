//! Backup anchors: where a chunk ends that no anchor ends (the *backup breakpoints* of Eshghi and
//! Tang, "A Framework for Analyzing and Improving Content-Based Chunking Algorithms", 2005).
//!
//! In text all of whose lines have one form, such as a log, few bits vary, and no anchor may come
//! for megabytes. Chunks cut at their maximum there are all others behind one line that was
//! inserted.
//!
//! ```text
//! hash of n bytes: one byte b:  b ^ b >> 4
//!                  more:        (hash of the first half) · (n + 1) ^ hash of the second half
//! a position is a candidate if the 8-bit hash of the first 16 bytes of its window is a certain one
//! its rank is a 64-bit hash of its window
//! backup anchor: of a range's candidates the one with the highest rank, the last of equals
//! ```
//!
//! - One window in 256 is a candidate, so that few need ranks, and the hashes of many are computed
//!   at once. In a run, and where few bytes repeat, all are or none is.
//! - Deviation: the paper takes the last position that a second mask passes, of fewer bits. Cuts
//!   that differ meet again by that much later, or never: of an access log with 50 lines inserted
//!   in 20 MB, 38 % was still in known chunks, by ranks 93 %.

use core::ops::Range;

use super::{
    pack::WINDOW_BYTES,
    piece::{Piece, window},
};
use crate::simd::Backend;

/// What decides whether a position is a candidate.
const HASHED_BYTES: usize = 16;

/// The hash of a candidate: not that of zeros.
pub(crate) const CANDIDATE_HASH: u8 = 0xa7;

/// One window in so many is a candidate.
pub(crate) const CANDIDATE_DISTANCE: u64 = 256;

/// Positions that are hashed at once.
const BLOCK: usize = 1024;

/// Of a window; the higher, the rather a chunk ends there.
pub(crate) type Rank = u64;

/// The rank of a window.
pub(crate) fn rank(window: &[u8; WINDOW_BYTES]) -> Rank {
    let words = window.as_chunks().0.iter().copied().map(u64::from_le_bytes);
    words.fold(0, |rank, word| {
        (rank ^ word).wrapping_mul(0x9e37_79b9_7f4a_7c15)
    })
}

impl Piece<'_> {
    /// Calls `found` with the candidates among `positions` of the stream, in order, and their
    /// ranks. The windows at `positions` end in this piece.
    pub(crate) fn candidates(
        &self,
        backend: Backend,
        positions: Range<u64>,
        mut found: impl FnMut(u64, Rank),
    ) {
        if positions.start < self.start {
            let crossing = self.crossing();
            let end = positions.end.min(self.start);
            let positions = positions.start..end;
            search(
                backend,
                crossing.bytes(),
                crossing.start,
                positions,
                &mut found,
            );
        }
        let positions = positions.start.max(self.start)..positions.end;
        search(backend, self.bytes, self.start, positions, &mut found);
    }
}

/// The candidates among `positions` of a stream in which `bytes` lie at `start`.
fn search(
    backend: Backend,
    bytes: &[u8],
    start: u64,
    positions: Range<u64>,
    found: &mut impl FnMut(u64, Rank),
) {
    let mut position = positions.start;
    while position < positions.end {
        let block = &bytes[(position - start) as usize..];
        let count = (positions.end - position).min(BLOCK as u64) as usize;
        let mut hashes = block.first_chunk().copied().unwrap_or_else(|| {
            let mut padded = [0; BLOCK + HASHED_BYTES];
            padded[..block.len()].copy_from_slice(block);
            padded
        });
        backend.run(
            #[inline(always)]
            || hash(&mut hashes),
        );
        for (word, at) in hashes[..BLOCK]
            .as_chunks()
            .0
            .iter()
            .zip((0..count).step_by(8))
        {
            let mut candidates = equal_bytes(u64::from_le_bytes(*word), CANDIDATE_HASH);
            while candidates != 0 {
                let at = at + candidates.trailing_zeros() as usize / 8;
                candidates &= candidates - 1;
                if at < count {
                    let at = position + at as u64;
                    found(at, rank(window(block, position, at)));
                }
            }
        }
        position += count as u64;
    }
}

/// The top bits of those bytes in `word` that equal `byte`.
fn equal_bytes(word: u64, byte: u8) -> u64 {
    const LOW_BITS: u64 = 0x7f7f_7f7f_7f7f_7f7f;
    let differing = word ^ u64::from_le_bytes([byte; 8]);
    !(((differing & LOW_BITS) + LOW_BITS) | differing | LOW_BITS)
}

/// Replaces all but the last bytes by the hash of those that begin there.
#[inline(always)]
fn hash(bytes: &mut [u8; BLOCK + HASHED_BYTES]) {
    for byte in &mut *bytes {
        *byte ^= *byte >> 4;
    }
    double::<1>(bytes);
    double::<2>(bytes);
    double::<4>(bytes);
    double::<8>(bytes);
}

/// From hashes of `BYTES` bytes to those of twice as many.
#[inline(always)]
fn double<const BYTES: usize>(hashes: &mut [u8; BLOCK + HASHED_BYTES]) {
    for at in 0..BLOCK + HASHED_BYTES - BYTES {
        hashes[at] = hashes[at].wrapping_mul(2 * BYTES as u8 + 1) ^ hashes[at + BYTES];
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        marker::{pack::streams, piece::Tail},
        reference::pack::candidate,
    };
    use alloc::vec::Vec;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn candidates_are_those_of_the_reference_however_the_stream_is_split(
            stream in streams::stream(),
            cuts in streams::cuts(),
            skipped in 0_u64..60,
        ) {
            let windows = (stream.len() as u64 + 1).saturating_sub(WINDOW_BYTES as u64);
            let expected: Vec<(u64, Rank)> = (skipped..windows)
                .filter_map(|position| Some((position, candidate(&stream, position)?)))
                .collect();
            for backend in Backend::available() {
                let (mut found, mut tail) = (Vec::new(), Tail::EMPTY);
                let (mut start, mut from) = (0, skipped);
                for bytes in streams::split(&stream, &cuts) {
                    let before = tail.clone();
                    tail.push(bytes);
                    let piece = before.and(start, bytes);
                    start += bytes.len() as u64;
                    let end = (start + 1).saturating_sub(WINDOW_BYTES as u64);
                    if from < end {
                        piece.candidates(backend, from..end, |position, rank| {
                            found.push((position, rank));
                        });
                        from = end;
                    }
                }
                prop_assert_eq!(&found, &expected, "{:?}", backend);
            }
        }
    }

    #[test]
    fn one_window_in_256_is_a_candidate_of_noise_and_of_digits() {
        let noise = streams::random(7, 1 << 20);
        let digits = noise.iter().map(|byte| b'0' + byte % 10).collect();
        for stream in [noise, digits] {
            let count = (0..1 << 20).filter(|&position| candidate(&stream, position).is_some());
            let expected = (1 << 20) / CANDIDATE_DISTANCE as usize;
            assert!(count.count().abs_diff(expected) < expected / 10);
        }
    }

    #[test]
    fn ranks_spread() {
        let noise = streams::random(9, 1 << 16);
        let digits: Vec<u8> = noise.iter().map(|byte| b'0' + byte % 10).collect();
        let ranks = digits.windows(WINDOW_BYTES);
        let ranks = ranks.map(|window| rank(window.first_chunk().expect("a window")));
        let high = ranks.filter(|rank| rank.leading_ones() >= 6).count();
        assert!(high.abs_diff(1 << 10) < 150, "{high}");
    }
}
