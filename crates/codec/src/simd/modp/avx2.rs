//! 16 positions at a time: a pair of words by one.

use core::arch::x86_64::*;

use super::convolution::{Convolution, GROUP_BYTES, Pattern, group};
use crate::sampling::SamplingPeriod;

/// Sets and clears the bits of whole groups; bytes after the block count as zero.
#[target_feature(enable = "avx2,pclmulqdq,bmi1,bmi2,popcnt")]
pub(super) fn test(c: &Convolution, period: SamplingPeriod, block: &[u8], bitmap: &mut [u64]) {
    match c.pairs {
        1 => test_pairs::<1>(c, period, block, bitmap),
        2 => test_pairs::<2>(c, period, block, bitmap),
        3 => test_pairs::<3>(c, period, block, bitmap),
        _ => test_pairs::<4>(c, period, block, bitmap),
    }
}

#[inline]
#[target_feature(enable = "avx2,pclmulqdq,bmi1,bmi2,popcnt")]
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
    let first_byte = FirstByte::new(c);
    let pattern = Pattern::new(period);
    let mask = _mm_set1_epi8(pattern.mask as i8);
    let value = _mm_set1_epi8(pattern.value as i8);
    let ninth_ignored = if pattern.ninth.is_none() { u64::MAX } else { 0 };
    let ninth_wanted = if pattern.ninth == Some(true) {
        0
    } else {
        u64::MAX
    };

    let mut padded = [0; GROUP_BYTES];
    let mut middle_before = middle_before(group(block, 0, &mut padded), &words);
    for (index, passes) in bitmap.iter_mut().enumerate() {
        let bytes = group(block, index, &mut padded);
        // The byte before these 64 ends with a bit of `middle_before` alone: a product of two
        // words has no 128th bit.
        let mut ninth = u64::from(_mm_movemask_epi8(middle_before) as u16) >> 7 & 1;
        *passes = 0;
        for part in 0..4 {
            // The words of each pair times those of c: lower by lower and upper by upper, which
            // fill a pair, and the two between, which begin in the middle of one.
            let mut outer = _mm_setzero_si128();
            let mut middle = _mm_setzero_si128();
            for (step, &c) in words.iter().enumerate() {
                let now = load(bytes, 16 * (part + PAIRS - step));
                let earlier = load(bytes, 16 * (part + PAIRS - step - 1));
                outer = _mm_xor_si128(outer, _mm_clmulepi64_si128::<0x00>(now, c));
                outer = _mm_xor_si128(outer, _mm_clmulepi64_si128::<0x11>(earlier, c));
                middle = _mm_xor_si128(middle, _mm_clmulepi64_si128::<0x01>(now, c));
                middle = _mm_xor_si128(middle, _mm_clmulepi64_si128::<0x10>(now, c));
            }
            let middle_of_each = _mm_alignr_epi8::<8>(middle, middle_before);
            let cut_short = _mm_xor_si128(outer, middle_of_each);
            let first = first_byte.of(load(bytes, 16 * part));
            let quotient = _mm_and_si128(_mm_xor_si128(cut_short, first), mask);
            let equal = _mm_movemask_epi8(_mm_cmpeq_epi8(quotient, value)) as u16;
            *passes |= u64::from(equal) << (16 * part);
            let top_bits = _mm_movemask_epi8(cut_short) as u16;
            ninth |= u64::from(top_bits) << (16 * part) << 1;
            middle_before = middle;
        }
        *passes &= ninth ^ ninth_wanted | ninth_ignored;
    }
}

/// What `middle` was in the pair before, as far as this group has its bytes.
#[inline]
#[target_feature(enable = "avx2,pclmulqdq")]
fn middle_before<const PAIRS: usize>(
    bytes: &[u8; GROUP_BYTES],
    words: &[__m128i; PAIRS],
) -> __m128i {
    let mut middle = _mm_setzero_si128();
    for (step, &c) in words.iter().enumerate() {
        let now = load(bytes, 16 * (PAIRS - step - 1));
        middle = _mm_xor_si128(middle, _mm_clmulepi64_si128::<0x01>(now, c));
        middle = _mm_xor_si128(middle, _mm_clmulepi64_si128::<0x10>(now, c));
    }
    middle
}

/// What first bytes add, by their lower and their upper four bits.
struct FirstByte {
    lower: __m128i,
    upper: __m128i,
}

impl FirstByte {
    #[inline]
    #[target_feature(enable = "avx2")]
    fn new(c: &Convolution) -> Self {
        let lower: [u8; 16] = core::array::from_fn(|bits| c.of_first_byte(bits as u8));
        let upper: [u8; 16] = core::array::from_fn(|bits| c.of_first_byte((bits as u8) << 4));
        Self {
            lower: load_array(&lower),
            upper: load_array(&upper),
        }
    }

    #[inline]
    #[target_feature(enable = "avx2")]
    fn of(&self, bytes: __m128i) -> __m128i {
        let nibble = _mm_set1_epi8(0xf);
        let lower = _mm_and_si128(bytes, nibble);
        let upper = _mm_and_si128(_mm_srli_epi16::<4>(bytes), nibble);
        _mm_xor_si128(
            _mm_shuffle_epi8(self.lower, lower),
            _mm_shuffle_epi8(self.upper, upper),
        )
    }
}

#[inline]
#[target_feature(enable = "avx2")]
fn load(bytes: &[u8; GROUP_BYTES], at: usize) -> __m128i {
    load_array(bytes[at..].first_chunk().expect("16 bytes"))
}

#[inline]
#[target_feature(enable = "avx2")]
fn load_array(bytes: &[u8; 16]) -> __m128i {
    // SAFETY: an array of 16 bytes, which need not be aligned.
    unsafe { _mm_loadu_si128(bytes.as_ptr().cast()) }
}
