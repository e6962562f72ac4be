//! 32 bytes at a time, and words for what is left.

use core::arch::x86_64::{__m256i, _mm256_cmpeq_epi8, _mm256_loadu_si256, _mm256_movemask_epi8};

use super::portable;

const STEP: usize = size_of::<__m256i>();

#[inline]
#[target_feature(enable = "avx2,bmi1,bmi2")]
pub(super) fn common_prefix(a: &[u8], b: &[u8]) -> usize {
    let (steps_a, rest_a) = a.as_chunks::<STEP>();
    let (steps_b, rest_b) = b.as_chunks::<STEP>();
    for (index, (x, y)) in steps_a.iter().zip(steps_b).enumerate() {
        let differs = !equal_in_step(x, y);
        if differs != 0 {
            return index * STEP + differs.trailing_zeros() as usize;
        }
    }
    steps_a.len() * STEP + portable::common_prefix(rest_a, rest_b)
}

#[inline]
#[target_feature(enable = "avx2,bmi1,bmi2")]
pub(super) fn common_suffix(a: &[u8], b: &[u8]) -> usize {
    let (rest_a, steps_a) = a.as_rchunks::<STEP>();
    let (rest_b, steps_b) = b.as_rchunks::<STEP>();
    for (index, (x, y)) in steps_a.iter().rev().zip(steps_b.iter().rev()).enumerate() {
        let differs = !equal_in_step(x, y);
        if differs != 0 {
            return index * STEP + differs.leading_zeros() as usize;
        }
    }
    steps_a.len() * STEP + portable::common_suffix(rest_a, rest_b)
}

#[inline]
#[target_feature(enable = "avx2,bmi1,bmi2")]
pub(super) fn equal_bytes(a: &[u8], b: &[u8]) -> u64 {
    let (steps_a, rest_a) = a.as_chunks::<STEP>();
    let (steps_b, rest_b) = b.as_chunks::<STEP>();
    let steps = steps_a.iter().zip(steps_b).enumerate();
    let bits = steps.fold(0, |bits, (index, (x, y))| {
        bits | u64::from(equal_in_step(x, y)) << (STEP * index)
    });
    match rest_a.is_empty() {
        true => bits,
        false => bits | portable::equal_bytes(rest_a, rest_b) << (STEP * steps_a.len()),
    }
}

/// A bit for each byte of `a` that equals the one of `b`.
#[inline]
#[target_feature(enable = "avx2,bmi1,bmi2")]
fn equal_in_step(a: &[u8; STEP], b: &[u8; STEP]) -> u32 {
    // SAFETY: both arrays have the 32 bytes that are read, at any alignment.
    let (a, b) = unsafe {
        (
            _mm256_loadu_si256(a.as_ptr().cast()),
            _mm256_loadu_si256(b.as_ptr().cast()),
        )
    };
    _mm256_movemask_epi8(_mm256_cmpeq_epi8(a, b)) as u32
}
