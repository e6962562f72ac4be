//! The kernel for AVX-512: bits of like weight gathered into words, and the words shifted.
//!
//! A byte's bits are dealt to four *planes*, a word of 64 positions each, the first position on
//! top; the two bits in a plane come from neighbouring bytes, so that
//!
//! ```text
//! plane[v][m] = bit 2v of byte[m] ^ bit 2v + 1 of byte[m + 1]      (v = 0..4)
//! diagonal[m] = XOR over v of plane[v][m + 2v]
//! ```
//!
//! A *group* is 512 positions, eight words w. Where (a : b) << n stands for the 64 bits that
//! begin n bits from the top of a and go on in b:
//!
//! ```text
//! diagonals[w] = XOR over v of (plane[v][w] : plane[v][w + 1]) << 2v
//! anchors[w]   = AND over all taps t of (diagonals[w] : diagonals[w + 1]) << t
//! ```
//!
//! Both need a word of the next group: a group's anchors are known two groups later.

use alloc::vec::Vec;
use core::arch::x86_64::*;

use super::{append_ones, drop_later, taps};
use crate::{sampling::WINDOW_BYTES, simd::prefetch::prefetch};

const BLOCK_BYTES: usize = 64;
const GROUP_BYTES: usize = 8 * BLOCK_BYTES;

/// Groups between a group and that which completes its anchors.
const GROUPS_LATE: usize = 2;

/// How far ahead memory is asked for: the processor itself does not look beyond a page.
const PREFETCH_BYTES: usize = 4096;

/// Groups in which anchors are looked for before any is appended.
const GROUPS_PER_BATCH: usize = 32;

/// Appends the anchors in `bytes`; see [`find`](super::find).
#[target_feature(enable = "avx512f,avx512bw,avx512vbmi,avx512vbmi2,gfni,bmi1")]
pub(super) fn find<const BITS: u8>(bytes: &[u8], start: u64, anchors: &mut Vec<u64>) {
    let Some(last_window) = bytes.len().checked_sub(WINDOW_BYTES) else {
        return;
    };
    let known = anchors.len();
    let mut search = Search::new(start);
    // A group is read with the byte behind it.
    let groups = (bytes.len() - 1) / GROUP_BYTES;
    search.run::<BITS>(bytes, groups, anchors);
    let rest = &bytes[groups * GROUP_BYTES..];
    let mut padded = [0; (1 + GROUPS_LATE) * GROUP_BYTES + 1];
    padded[..rest.len()].copy_from_slice(rest);
    search.run::<BITS>(&padded, 1 + GROUPS_LATE, anchors);
    // Windows that reach into the padding are none.
    drop_later(anchors, known, start + last_window as u64);
}

/// A group's bits, a word for each 64 positions.
#[derive(Clone, Copy)]
#[repr(align(64))]
struct Group([u64; 8]);

struct Search {
    /// Of the latest group; see [`planes`].
    planes: [__m512i; 4],
    /// Of the group before.
    diagonals: __m512i,
    /// Groups taken in so far.
    groups: usize,
    /// Offset in the stream of the first group.
    start: u64,
    /// Groups with anchors, and how many groups had been taken in before they were known.
    found: [Group; GROUPS_PER_BATCH],
    found_at: [usize; GROUPS_PER_BATCH],
}

impl Search {
    #[target_feature(enable = "avx512f,avx512bw,avx512vbmi,avx512vbmi2,gfni,bmi1")]
    fn new(start: u64) -> Self {
        Self {
            planes: [_mm512_setzero_si512(); 4],
            diagonals: _mm512_setzero_si512(),
            groups: 0,
            start,
            found: [Group([0; 8]); GROUPS_PER_BATCH],
            found_at: [0; GROUPS_PER_BATCH],
        }
    }

    /// Takes in the next groups and appends the anchors that are complete then.
    #[target_feature(enable = "avx512f,avx512bw,avx512vbmi,avx512vbmi2,gfni,bmi1")]
    fn run<const BITS: u8>(&mut self, mut bytes: &[u8], groups: usize, anchors: &mut Vec<u64>) {
        let end = self.groups + groups;
        while self.groups < end {
            let count = GROUPS_PER_BATCH.min(end - self.groups);
            let found = self.take_in::<BITS>(bytes, count);
            for (group, at) in self.found.iter().zip(self.found_at).take(found) {
                // Before the first group there is none, whatever the registers held.
                let Some(number) = at.checked_sub(GROUPS_LATE) else {
                    continue;
                };
                let start = self.start + (number * GROUP_BYTES) as u64;
                for (word, start) in group.0.into_iter().zip((start..).step_by(64)) {
                    append_ones(word.reverse_bits(), start, anchors);
                }
            }
            bytes = &bytes[count * GROUP_BYTES..];
        }
    }

    /// Takes in the next `count` groups, at most a batch, and answers how many it `found` to
    /// have anchors. It stores every group and counts only those, without a branch.
    ///
    /// Kept apart, because a call in its loop would cost it all registers.
    #[target_feature(enable = "avx512f,avx512bw,avx512vbmi,avx512vbmi2,gfni,bmi1")]
    #[inline(never)]
    fn take_in<const BITS: u8>(&mut self, bytes: &[u8], count: usize) -> usize {
        let mut planes_before = self.planes;
        let mut diagonals_before = self.diagonals;
        let mut found = 0;
        for index in 0..count {
            let bytes = &bytes[index * GROUP_BYTES..];
            for line in (0..GROUP_BYTES).step_by(BLOCK_BYTES) {
                prefetch(bytes, PREFETCH_BYTES + line);
            }
            let planes = planes(bytes.first_chunk().expect("the caller counted the groups"));
            let diagonals = diagonals(planes_before, planes[0]);
            let anchors = anchors::<BITS>(diagonals_before, diagonals);
            (planes_before, diagonals_before) = (planes, diagonals);
            store(&mut self.found[found % GROUPS_PER_BATCH], anchors);
            self.found_at[found % GROUPS_PER_BATCH] = self.groups + index;
            found += usize::from(_mm512_test_epi64_mask(anchors, anchors) != 0);
        }
        self.planes = planes_before;
        self.diagonals = diagonals_before;
        self.groups += count;
        found
    }
}

/// The planes of a group, of two words in each vector: words 0 and 4, 1 and 5, 2 and 6, 3 and 7.
/// The lower half has the four planes of the first of them, the upper half of the second.
#[target_feature(enable = "avx512f,avx512bw,avx512vbmi,avx512vbmi2,gfni,bmi1")]
#[inline]
fn planes(group: &[u8; GROUP_BYTES + 1]) -> [__m512i; 4] {
    let (blocks, _) = group.as_chunks();
    let (blocks_ahead, _) = group[1..].as_chunks();
    let odd_bits = _mm512_set1_epi8(0b1010_1010_u8 as i8);
    // odd_bits ? ahead : here
    let pairs = |index: usize| {
        let (ahead, here) = (load(&blocks_ahead[index]), load(&blocks[index]));
        _mm512_ternarylogic_epi64::<0xCA>(odd_bits, ahead, here)
    };
    // An affine transform whose matrix is the data: byte v of each word of its result has a bit
    // for each of eight bytes of data, the first on top, the parity of those bits that byte v
    // of the other operand selects.
    let low = _mm512_set1_epi64(0x0000_0000_C030_0C03);
    let high = _mm512_set1_epi64(0xC030_0C03_0000_0000_u64 as i64);
    let two_words = |index: usize| {
        const HIGH_BYTES: u64 = 0xF0F0_F0F0_F0F0_F0F0;
        let first = _mm512_gf2p8affine_epi64_epi8::<0>(low, pairs(index));
        let second = pairs(index + 4);
        let both = _mm512_mask_gf2p8affine_epi64_epi8::<0>(first, HIGH_BYTES, high, second);
        _mm512_permutexvar_epi8(load(&BYTES_TO_WORDS), both)
    };
    [two_words(0), two_words(1), two_words(2), two_words(3)]
}

/// Gathers byte i of all words into word i, that of the first word on top.
const BYTES_TO_WORDS: [u8; BLOCK_BYTES] = {
    let mut sources = [0; BLOCK_BYTES];
    let mut index = 0;
    while index < BLOCK_BYTES {
        let (word, byte) = (index / 8, index % 8);
        sources[index] = (8 * (7 - byte) + word) as u8;
        index += 1;
    }
    sources
};

/// The diagonals of a group with these planes; the first vector of the next group's planes
/// has the word that follows.
#[target_feature(enable = "avx512f,avx512bw,avx512vbmi,avx512vbmi2,gfni,bmi1")]
#[inline]
fn diagonals(planes: [__m512i; 4], next_group: __m512i) -> __m512i {
    let distances = _mm512_setr_epi64(0, 2, 4, 6, 0, 2, 4, 6);
    let [a, b, c, d] = planes;
    // Words 4 and 8.
    let e = _mm512_alignr_epi64::<4>(next_group, a);
    let aligned_a = _mm512_shldv_epi64(a, b, distances);
    let aligned_b = _mm512_shldv_epi64(b, c, distances);
    let aligned_c = _mm512_shldv_epi64(c, d, distances);
    let aligned_d = _mm512_shldv_epi64(d, e, distances);
    // Each half of a vector is four bits of like 64 diagonals: their XOR, by pairs, then pairs
    // of pairs.
    let halved = |a, b| _mm512_xor_si512(_mm512_unpacklo_epi64(a, b), _mm512_unpackhi_epi64(a, b));
    let ab = halved(aligned_a, aligned_b);
    let cd = halved(aligned_c, aligned_d);
    let evens = _mm512_setr_epi64(0, 1, 8, 9, 4, 5, 12, 13);
    let odds = _mm512_setr_epi64(2, 3, 10, 11, 6, 7, 14, 15);
    _mm512_xor_si512(
        _mm512_permutex2var_epi64(ab, evens, cd),
        _mm512_permutex2var_epi64(ab, odds, cd),
    )
}

/// The anchors of a group with these diagonals, by the mask of `BITS` bits.
#[target_feature(enable = "avx512f,avx512bw,avx512vbmi,avx512vbmi2,gfni,bmi1")]
#[inline]
fn anchors<const BITS: u8>(diagonals: __m512i, next_group: __m512i) -> __m512i {
    let following = _mm512_alignr_epi64::<1>(next_group, diagonals);
    let at = |tap: usize| _mm512_shldv_epi64(diagonals, following, _mm512_set1_epi64(tap as i64));
    let [first, later @ ..] = const { taps(BITS) };
    let mut anchors = at(first);
    for tap in later {
        anchors = _mm512_and_si512(anchors, at(tap));
    }
    anchors
}

#[target_feature(enable = "avx512f")]
#[inline]
fn load(bytes: &[u8; BLOCK_BYTES]) -> __m512i {
    // SAFETY: the array is as long as what is read.
    unsafe { _mm512_loadu_si512(bytes.as_ptr().cast()) }
}

#[target_feature(enable = "avx512f")]
#[inline]
fn store(group: &mut Group, words: __m512i) {
    // SAFETY: a group is as long as what is written.
    unsafe { _mm512_storeu_si512(group.0.as_mut_ptr().cast(), words) }
}
