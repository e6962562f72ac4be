//! Classifies 32 bytes at a time, with look-ups among 16 bytes each.

use alloc::vec::Vec;
use core::arch::x86_64::{
    __m256i, _mm256_and_si256, _mm256_blendv_epi8, _mm256_cmpeq_epi8, _mm256_loadu_si256,
    _mm256_movemask_epi8, _mm256_permute2x128_si256, _mm256_set1_epi8, _mm256_set1_epi64x,
    _mm256_shuffle_epi8, _mm256_srli_epi16,
};

use super::{ByteSet, walk};

#[target_feature(enable = "avx2,bmi1,bmi2,popcnt,pclmulqdq")]
pub(super) fn find(set: &ByteSet, candidates: &[u8], stride: usize, markers: &mut Vec<u32>) {
    let rows = load(&set.bits);
    let rows = [
        _mm256_permute2x128_si256::<0x00>(rows, rows),
        _mm256_permute2x128_si256::<0x11>(rows, rows),
    ];
    walk::find(candidates, stride, markers, |bytes| {
        let (halves, _) = bytes.as_chunks();
        let [low, high] = [classify(&halves[0], rows), classify(&halves[1], rows)];
        u64::from(low) | u64::from(high) << 32
    });
}

/// Which of `bytes` are in the set that has these rows below and from value 128 on.
#[inline]
#[target_feature(enable = "avx2")]
fn classify(bytes: &[u8; 32], [rows_below, rows_from]: [__m256i; 2]) -> u32 {
    let bytes = load(bytes);
    let index = _mm256_and_si256(_mm256_srli_epi16::<3>(bytes), _mm256_set1_epi8(15));
    let row = _mm256_blendv_epi8(
        _mm256_shuffle_epi8(rows_below, index),
        _mm256_shuffle_epi8(rows_from, index),
        bytes,
    );
    let bit_of = _mm256_set1_epi64x(i64::from_le_bytes([1, 2, 4, 8, 16, 32, 64, 128]));
    let bit = _mm256_shuffle_epi8(bit_of, _mm256_and_si256(bytes, _mm256_set1_epi8(7)));
    _mm256_movemask_epi8(_mm256_cmpeq_epi8(_mm256_and_si256(row, bit), bit)) as u32
}

#[target_feature(enable = "avx2")]
fn load(bytes: &[u8; 32]) -> __m256i {
    // SAFETY: 32 bytes are there to be read; no alignment is needed.
    unsafe { _mm256_loadu_si256(bytes.as_ptr().cast()) }
}
