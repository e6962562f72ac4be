//! Classifies 64 bytes at a time, with look-ups among 64 bytes (VBMI).

use alloc::vec::Vec;
use core::arch::x86_64::{
    __m256i, __m512i, _mm256_loadu_si256, _mm512_broadcast_i64x4, _mm512_loadu_si512,
    _mm512_permutexvar_epi8, _mm512_set1_epi64, _mm512_srli_epi16, _mm512_test_epi8_mask,
};

use super::{ByteSet, walk};

#[target_feature(
    enable = "avx2,bmi1,bmi2,popcnt,pclmulqdq,avx512f,avx512bw,avx512cd,avx512dq,avx512vl,\
              avx512vbmi,avx512vbmi2,avx512bitalg,avx512vpopcntdq,gfni,vpclmulqdq"
)]
pub(super) fn find(set: &ByteSet, candidates: &[u8], stride: usize, markers: &mut Vec<u32>) {
    // An index counts modulo 64. The rows stand there twice, because a 16-bit shift leaves
    // a bit of the next byte above the five that choose a row.
    let rows = _mm512_broadcast_i64x4(load32(&set.bits));
    let bit_of = _mm512_set1_epi64(i64::from_le_bytes([1, 2, 4, 8, 16, 32, 64, 128]));
    walk::find(candidates, stride, markers, |bytes| {
        let bytes = load64(bytes);
        let row = _mm512_permutexvar_epi8(_mm512_srli_epi16::<3>(bytes), rows);
        let bit = _mm512_permutexvar_epi8(bytes, bit_of);
        _mm512_test_epi8_mask(row, bit)
    });
}

#[target_feature(enable = "avx2")]
fn load32(bytes: &[u8; 32]) -> __m256i {
    // SAFETY: 32 bytes are there to be read; no alignment is needed.
    unsafe { _mm256_loadu_si256(bytes.as_ptr().cast()) }
}

#[target_feature(enable = "avx512f")]
fn load64(bytes: &[u8; 64]) -> __m512i {
    // SAFETY: 64 bytes are there to be read; no alignment is needed.
    unsafe { _mm512_loadu_si512(bytes.as_ptr().cast()) }
}
