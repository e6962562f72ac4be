//! 64 bytes at a time; masks keep the last read within its range.

use core::arch::x86_64::{
    __m512i, _mm512_cmpneq_epu8_mask, _mm512_loadu_si512, _mm512_maskz_loadu_epi8,
};

const STEP: usize = size_of::<__m512i>();

#[inline]
#[target_feature(enable = "avx512f,avx512bw,bmi1,bmi2")]
pub(super) fn common_prefix(a: &[u8], b: &[u8]) -> usize {
    let (steps_a, rest_a) = a.as_chunks::<STEP>();
    let (steps_b, rest_b) = b.as_chunks::<STEP>();
    for (index, (x, y)) in steps_a.iter().zip(steps_b).enumerate() {
        let differs = _mm512_cmpneq_epu8_mask(load(x), load(y));
        if differs != 0 {
            return index * STEP + differs.trailing_zeros() as usize;
        }
    }
    let equal = match unequal_bytes(rest_a, rest_b) {
        0 => rest_a.len(),
        differs => differs.trailing_zeros() as usize,
    };
    steps_a.len() * STEP + equal
}

#[inline]
#[target_feature(enable = "avx512f,avx512bw,bmi1,bmi2")]
pub(super) fn common_suffix(a: &[u8], b: &[u8]) -> usize {
    let (rest_a, steps_a) = a.as_rchunks::<STEP>();
    let (rest_b, steps_b) = b.as_rchunks::<STEP>();
    for (index, (x, y)) in steps_a.iter().rev().zip(steps_b.iter().rev()).enumerate() {
        let differs = _mm512_cmpneq_epu8_mask(load(x), load(y));
        if differs != 0 {
            return index * STEP + differs.leading_zeros() as usize;
        }
    }
    let equal = match unequal_bytes(rest_a, rest_b) {
        0 => rest_a.len(),
        differs => rest_a.len() - 1 - differs.ilog2() as usize,
    };
    steps_a.len() * STEP + equal
}

#[inline]
#[target_feature(enable = "avx512f,avx512bw,bmi1,bmi2")]
pub(super) fn equal_bytes(a: &[u8], b: &[u8]) -> u64 {
    match (a.first_chunk(), b.first_chunk()) {
        (Some(a), Some(b)) => !_mm512_cmpneq_epu8_mask(load(a), load(b)),
        _ => !unequal_bytes(a, b) & first_bits(a.len()),
    }
}

/// A bit for each of up to 64 bytes of `a` that differs from the one of `b`.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,bmi1,bmi2")]
fn unequal_bytes(a: &[u8], b: &[u8]) -> u64 {
    let inside = first_bits(a.len().min(b.len()));
    // SAFETY: the mask has no more bits than either slice has bytes; others are not read.
    let (a, b) = unsafe {
        (
            _mm512_maskz_loadu_epi8(inside, a.as_ptr().cast()),
            _mm512_maskz_loadu_epi8(inside, b.as_ptr().cast()),
        )
    };
    _mm512_cmpneq_epu8_mask(a, b)
}

/// The lowest `count` bits, all of them from 64 on.
#[inline]
fn first_bits(count: usize) -> u64 {
    match count {
        0..STEP => (1 << count) - 1,
        _ => u64::MAX,
    }
}

#[inline]
#[target_feature(enable = "avx512f")]
fn load(bytes: &[u8; STEP]) -> __m512i {
    // SAFETY: the array has the 64 bytes that are read, at any alignment.
    unsafe { _mm512_loadu_si512(bytes.as_ptr().cast()) }
}
