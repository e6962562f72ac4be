//! 64 positions at a time: a multiplication of four pairs of words by one each.

use core::arch::x86_64::*;

use super::convolution::{Convolution, GROUP_BYTES, Pattern, group};
use crate::sampling::SamplingPeriod;

/// Sets and clears the bits of whole groups; bytes after the block count as zero.
#[target_feature(
    enable = "avx512f,avx512bw,avx512dq,avx512vl,gfni,vpclmulqdq,pclmulqdq,bmi1,bmi2,popcnt"
)]
pub(super) fn test(c: &Convolution, period: SamplingPeriod, block: &[u8], bitmap: &mut [u64]) {
    match c.pairs {
        1 => test_pairs::<1>(c, period, block, bitmap),
        2 => test_pairs::<2>(c, period, block, bitmap),
        3 => test_pairs::<3>(c, period, block, bitmap),
        _ => test_pairs::<4>(c, period, block, bitmap),
    }
}

#[inline]
#[target_feature(
    enable = "avx512f,avx512bw,avx512dq,avx512vl,gfni,vpclmulqdq,pclmulqdq,bmi1,bmi2,popcnt"
)]
fn test_pairs<const PAIRS: usize>(
    c: &Convolution,
    period: SamplingPeriod,
    block: &[u8],
    bitmap: &mut [u64],
) {
    let mut words = [_mm_setzero_si128(); PAIRS];
    for (words, pair) in words.iter_mut().zip(c.words) {
        *words = _mm_set_epi64x(pair[1] as i64, pair[0] as i64);
    }
    let first_byte = _mm512_set1_epi64(first_byte_matrix(c));
    let pattern = Pattern::new(period);
    let mask = _mm512_set1_epi8(pattern.mask as i8);
    let value = _mm512_set1_epi8(pattern.value as i8);
    let ninth_ignored = if pattern.ninth.is_none() { u64::MAX } else { 0 };
    let ninth_wanted = if pattern.ninth == Some(true) {
        0
    } else {
        u64::MAX
    };

    let mut padded = [0; GROUP_BYTES];
    let mut middle_before = middle_before::<PAIRS>(group(block, 0, &mut padded), &words);
    for (index, passes) in bitmap.iter_mut().enumerate() {
        let bytes = group(block, index, &mut padded);
        // The words of each pair times those of c: lower by lower and upper by upper, which
        // fill a pair, and the two between, which begin in the middle of one.
        let mut outer = _mm512_setzero_si512();
        let mut middle = _mm512_setzero_si512();
        for (step, &c) in words.iter().enumerate() {
            let now = load(bytes, 16 * (PAIRS - step));
            let earlier = load(bytes, 16 * (PAIRS - step - 1));
            let c = _mm512_broadcast_i32x4(c);
            let low = _mm512_clmulepi64_epi128::<0x00>(now, c);
            let high = _mm512_clmulepi64_epi128::<0x11>(earlier, c);
            outer = sum(outer, low, high);
            let low = _mm512_clmulepi64_epi128::<0x01>(now, c);
            let high = _mm512_clmulepi64_epi128::<0x10>(now, c);
            middle = sum(middle, low, high);
        }
        let middle_of_each = _mm512_alignr_epi64::<7>(middle, middle_before);
        let cut_short = _mm512_xor_si512(outer, middle_of_each);
        let first = _mm512_gf2p8affine_epi64_epi8::<0>(load(bytes, 0), first_byte);
        let quotient = _mm512_and_si512(_mm512_xor_si512(cut_short, first), mask);
        // The byte before these 64 ends with a bit of `middle_before` alone: a product of two
        // words has no 128th bit.
        let ninth_before = _mm512_movepi8_mask(middle_before) >> 55 & 1;
        let ninth = _mm512_movepi8_mask(cut_short) << 1 | ninth_before;
        *passes = _mm512_cmpeq_epi8_mask(quotient, value) & (ninth ^ ninth_wanted | ninth_ignored);
        middle_before = middle;
    }
}

/// What `middle` was in the group before, as far as its windows are those of this group: in
/// its last pair.
#[inline]
#[target_feature(enable = "avx512f,pclmulqdq")]
fn middle_before<const PAIRS: usize>(
    bytes: &[u8; GROUP_BYTES],
    words: &[__m128i; PAIRS],
) -> __m512i {
    let mut middle = _mm_setzero_si128();
    for (step, &c) in words.iter().enumerate() {
        let now = load_pair(bytes, 16 * (PAIRS - step - 1));
        middle = _mm_xor_si128(middle, _mm_clmulepi64_si128::<0x01>(now, c));
        middle = _mm_xor_si128(middle, _mm_clmulepi64_si128::<0x10>(now, c));
    }
    _mm512_broadcast_i32x4(middle)
}

/// The first byte's part as a matrix: its rows, from that of the lowest bit at the top.
fn first_byte_matrix(c: &Convolution) -> i64 {
    let columns: [u8; 8] = core::array::from_fn(|bit| c.of_first_byte(1 << bit));
    let row = |bit: usize| {
        (0..8).fold(0, |row, column| {
            row | (columns[column] >> bit & 1) << column
        })
    };
    i64::from_be_bytes(core::array::from_fn(row))
}

#[inline]
#[target_feature(enable = "avx512f")]
fn sum(a: __m512i, b: __m512i, c: __m512i) -> __m512i {
    _mm512_ternarylogic_epi64::<0b1001_0110>(a, b, c)
}

#[inline]
#[target_feature(enable = "avx512f")]
fn load(bytes: &[u8; GROUP_BYTES], at: usize) -> __m512i {
    let bytes: &[u8; 64] = bytes[at..].first_chunk().expect("64 bytes");
    // SAFETY: an array of 64 bytes, which need not be aligned.
    unsafe { _mm512_loadu_si512(bytes.as_ptr().cast()) }
}

#[inline]
#[target_feature(enable = "avx512f")]
fn load_pair(bytes: &[u8; GROUP_BYTES], at: usize) -> __m128i {
    let bytes: &[u8; 16] = bytes[at..].first_chunk().expect("16 bytes");
    // SAFETY: an array of 16 bytes, which need not be aligned.
    unsafe { _mm_loadu_si128(bytes.as_ptr().cast()) }
}
