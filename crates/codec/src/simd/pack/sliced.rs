//! The kernel over vectors of bytes, eight segments at a time.
//!
//! Eight segments that follow each other are searched side by side: of one byte of the table
//! of diagonals, bit j belongs to segment j. Diagonals are folded together by halves, since
//!
//! ```text
//! half[m]     = byte[m]    ^ byte[m + 4] >> 4     (its low 4 bits)
//! quarter[m]  = half[m]    ^ half[m + 2] >> 2     (its low 2 bits)
//! diagonal[m] = quarter[m] ^ quarter[m + 1] >> 1  (its lowest bit)
//! ```
//!
//! and the bits that each fold leaves free are filled with another segment's, shifted the
//! other way. Then a vector's worth of positions of all segments is tested at once:
//!
//! ```text
//! for each position m of a segment: AND over all taps t of diagonals[m + t]
//! ```

use alloc::vec::Vec;

use super::{TAP_MAX, append_ones, drop_later, taps};
use crate::{sampling::WINDOW_BYTES, simd::prefetch::prefetch};

/// Bytes in a vector.
pub(super) const LANES: usize = 32;

const SEGMENTS: usize = 8;

/// Positions in the longest segment: all tables together stay in the first-level cache.
const SEGMENT_MAX: usize = 1024;

/// Diagonals that are needed behind a segment, in whole vectors.
const REACH: usize = (TAP_MAX + 1).next_multiple_of(LANES);

/// Bytes that are read behind the last segment.
const LOOKAHEAD: usize = REACH + 4;

/// Segments of the bytes that are too few for whole ones, after padding.
const SEGMENT_PADDED: usize = 2 * LANES;

/// A vector of 32 bytes.
///
/// Only `load` makes one from nothing: whoever has one runs on a machine that has its
/// instructions.
pub(super) trait Vector: Copy {
    /// # Safety
    /// The machine must have the instructions that the type is written in.
    unsafe fn load(bytes: &[u8; LANES]) -> Self;
    fn store(self, bytes: &mut [u8; LANES]);
    fn is_zero(self) -> bool;
    fn and(self, other: Self) -> Self;
    fn xor(self, other: Self) -> Self;
    /// The bits of `self` where those of `mask` are set, elsewhere those of `other`.
    fn select(self, other: Self, mask: Self) -> Self;
    /// Shifts each byte; what comes in may be zeros or bits of a neighbour.
    fn shift_left<const BITS: i32>(self) -> Self;
    /// Shifts each byte; what comes in may be zeros or bits of a neighbour.
    fn shift_right<const BITS: i32>(self) -> Self;
}

/// Appends the anchors in `bytes`; see [`find`](super::find).
///
/// # Safety
/// As for [`Vector::load`].
#[inline(always)]
pub(super) unsafe fn find<V: Vector, const BITS: u8>(
    mut bytes: &[u8],
    mut start: u64,
    anchors: &mut Vec<u64>,
) {
    let mut tables = Tables::new();
    loop {
        let segment = bytes.len().saturating_sub(LOOKAHEAD) / SEGMENTS / LANES * LANES;
        if segment == 0 {
            break;
        }
        let segment = segment.min(SEGMENT_MAX);
        // SAFETY: the caller's promise.
        unsafe { tables.search::<V, BITS>(bytes, segment) };
        tables.found.drain(segment, start, anchors);
        bytes = &bytes[SEGMENTS * segment..];
        start += (SEGMENTS * segment) as u64;
    }
    if bytes.len() < WINDOW_BYTES {
        return;
    }
    let mut padded = [0; SEGMENTS * SEGMENT_PADDED + LOOKAHEAD];
    padded[..bytes.len()].copy_from_slice(bytes);
    // SAFETY: the caller's promise.
    unsafe { tables.search::<V, BITS>(&padded, SEGMENT_PADDED) };
    let known = anchors.len();
    tables.found.drain(SEGMENT_PADDED, start, anchors);
    // Windows that reach into the padding are none.
    drop_later(anchors, known, start + (bytes.len() - WINDOW_BYTES) as u64);
}

/// A byte for each position of a segment and some behind it.
#[derive(Clone, Copy)]
#[repr(align(64))]
struct Table([u8; SEGMENT_MAX + REACH + LANES]);

/// What is known of eight segments.
struct Tables {
    /// Of segments 0 and 4, 2 and 6, 1 and 5, 3 and 7.
    halves: [Table; 4],
    /// Of the even segments, of the odd ones.
    quarters: [Table; 2],
    diagonals: Table,
    found: Found,
}

impl Tables {
    fn new() -> Self {
        const EMPTY: Table = Table([0; SEGMENT_MAX + REACH + LANES]);
        Self {
            halves: [EMPTY; 4],
            quarters: [EMPTY; 2],
            diagonals: EMPTY,
            found: Found::default(),
        }
    }

    /// Finds the anchors that begin in the first eight segments of `segment` positions.
    ///
    /// # Safety
    /// As for [`Vector::load`].
    #[inline(always)]
    unsafe fn search<V: Vector, const BITS: u8>(&mut self, bytes: &[u8], segment: usize) {
        let Self {
            halves,
            quarters,
            diagonals,
            found,
        } = self;
        let segment_at = |index: usize| &bytes[index * segment..][..segment + LOOKAHEAD];
        let count = segment + REACH;
        // SAFETY: the caller's promise, for all that follows.
        unsafe {
            for (half, first) in halves.iter_mut().zip([0, 2, 1, 3]) {
                let second = segment_at(first + 4);
                fold::<V, 4>(segment_at(first), second, 0x0F, &mut half.0[..count]);
            }
            for (quarter, pair) in quarters.iter_mut().zip(halves.as_chunks::<2>().0) {
                fold::<V, 2>(&pair[0].0, &pair[1].0, 0x33, &mut quarter.0[..count]);
            }
            fold::<V, 1>(
                &quarters[0].0,
                &quarters[1].0,
                0x55,
                &mut diagonals.0[..count],
            );
            for position in (0..segment).step_by(LANES) {
                // A like part of the bytes that come next.
                let ahead = SEGMENTS * (segment + position);
                for line in (0..SEGMENTS * LANES).step_by(64) {
                    prefetch(bytes, ahead + line);
                }
                let near: &[u8; LANES + REACH] = array_at(&diagonals.0, position);
                let [first, later @ ..] = const { taps(BITS) };
                let mut all = V::load(array_at(near, first));
                for tap in later {
                    all = all.and(V::load(array_at(near, tap)));
                }
                if !all.is_zero() {
                    let mut anchors = [0; LANES];
                    all.store(&mut anchors);
                    found.add(&anchors, position);
                }
            }
        }
    }
}

/// Folds the bits of `first` and `second` that are `BITS` apart on the diagonal; `mask` has
/// the bits of the result that belong to `first`.
///
/// # Safety
/// As for [`Vector::load`].
#[inline(always)]
unsafe fn fold<V: Vector, const BITS: i32>(
    first: &[u8],
    second: &[u8],
    mask: u8,
    folded: &mut [u8],
) {
    let ahead = BITS as usize;
    // SAFETY: the caller's promise.
    let load = |bytes: &[u8], position| unsafe { V::load(array_at(bytes, position)) };
    // SAFETY: the caller's promise.
    let mask = unsafe { V::load(&[mask; LANES]) };
    for (index, folded) in folded.as_chunks_mut().0.iter_mut().enumerate() {
        let position = index * LANES;
        let low = load(first, position).xor(load(first, position + ahead).shift_right::<BITS>());
        let high = load(second, position).shift_left::<BITS>();
        let high = high.xor(load(second, position + ahead));
        low.select(high, mask).store(folded);
    }
}

#[inline(always)]
fn array_at<const N: usize>(bytes: &[u8], position: usize) -> &[u8; N] {
    bytes[position..]
        .first_chunk()
        .expect("tables are as long as what is read of them")
}

/// Anchors of eight segments, a bit a position.
#[derive(Default)]
struct Found {
    columns: [[u64; SEGMENT_MAX / 64]; SEGMENTS],
    /// Bit c is set if column c has an anchor, in any segment.
    touched: u64,
}

impl Found {
    /// Adds the anchors at `position` and up of each segment: bit j belongs to segment j.
    #[cold]
    fn add(&mut self, anchors: &[u8; LANES], position: usize) {
        let column = position / 64;
        self.touched |= 1 << column;
        for (index, &rows) in anchors.as_chunks::<8>().0.iter().enumerate() {
            let rows = u64::from_le_bytes(rows);
            if rows == 0 {
                continue;
            }
            let shift = (position + 8 * index) % 64;
            for (segment, byte) in self.columns.iter_mut().zip(transpose(rows).to_le_bytes()) {
                segment[column] |= u64::from(byte) << shift;
            }
        }
    }

    /// Appends all anchors and forgets them.
    fn drain(&mut self, segment_positions: usize, start: u64, anchors: &mut Vec<u64>) {
        if self.touched == 0 {
            return;
        }
        for (index, segment) in self.columns.iter_mut().enumerate() {
            let mut touched = self.touched;
            while touched != 0 {
                let column = touched.trailing_zeros() as usize;
                touched &= touched - 1;
                let offset = index * segment_positions + column * 64;
                append_ones(
                    core::mem::take(&mut segment[column]),
                    start + offset as u64,
                    anchors,
                );
            }
        }
        self.touched = 0;
    }
}

/// Transposes eight rows of eight bits (Warren, *Hacker's Delight*, 7-3).
fn transpose(mut rows: u64) -> u64 {
    for (distance, mask) in [
        (7, 0x00AA_00AA_00AA_00AA),
        (14, 0x0000_CCCC_0000_CCCC),
        (28, 0x0000_0000_F0F0_F0F0),
    ] {
        let differing = (rows ^ rows >> distance) & mask;
        rows ^= differing ^ differing << distance;
    }
    rows
}
