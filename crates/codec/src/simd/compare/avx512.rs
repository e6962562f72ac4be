//! 64 bytes at a time; masks keep the last read within its range.

use core::arch::x86_64::{_mm512_cmpneq_epu8_mask, _mm512_maskz_loadu_epi8};

const STEP: usize = 64;

#[inline]
#[target_feature(enable = "avx512f,avx512bw,bmi1,bmi2")]
pub(super) fn common_prefix(a: &[u8], b: &[u8]) -> usize {
    let mut equal = 0;
    while equal < a.len() {
        let differs = unequal_bytes(&a[equal..], &b[equal..]);
        if differs != 0 {
            return equal + differs.trailing_zeros() as usize;
        }
        equal += STEP;
    }
    a.len()
}

#[inline]
#[target_feature(enable = "avx512f,avx512bw,bmi1,bmi2")]
pub(super) fn common_suffix(a: &[u8], b: &[u8]) -> usize {
    let mut end = a.len();
    while end > 0 {
        let start = end.saturating_sub(STEP);
        let differs = unequal_bytes(&a[start..end], &b[start..end]);
        if differs != 0 {
            let last = start + differs.ilog2() as usize;
            return a.len() - last - 1;
        }
        end = start;
    }
    a.len()
}

#[inline]
#[target_feature(enable = "avx512f,avx512bw,bmi1,bmi2")]
pub(super) fn equal_bytes(a: &[u8], b: &[u8]) -> u64 {
    if a.is_empty() {
        return 0;
    }
    !unequal_bytes(a, b) & u64::MAX >> (STEP - a.len())
}

/// A bit for each of the first 64 bytes of `a` that differs from the one of `b`, of which there
/// are as many; none of them is empty.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,bmi1,bmi2")]
fn unequal_bytes(a: &[u8], b: &[u8]) -> u64 {
    let len = a.len().min(b.len()).min(STEP);
    debug_assert!(len > 0);
    let inside = u64::MAX >> (STEP - len);
    // SAFETY: the mask has `len` bits, and both slices have that many bytes; others are not
    // read.
    let (a, b) = unsafe {
        (
            _mm512_maskz_loadu_epi8(inside, a.as_ptr().cast()),
            _mm512_maskz_loadu_epi8(inside, b.as_ptr().cast()),
        )
    };
    _mm512_cmpneq_epu8_mask(a, b)
}
