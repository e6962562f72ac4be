//! The kernel for AVX2: a vector is a register.

use alloc::vec::Vec;
use core::arch::x86_64::*;

use super::sliced::{self, LANES, Vector};

/// Exists only where AVX2 does: `load` alone makes one from nothing.
#[derive(Clone, Copy)]
struct Register(__m256i);

impl Vector for Register {
    #[inline(always)]
    unsafe fn load(bytes: &[u8; LANES]) -> Self {
        // SAFETY: AVX2 is there, says the caller; the array is as long as what is read.
        Self(unsafe { _mm256_loadu_si256(bytes.as_ptr().cast()) })
    }

    #[inline(always)]
    fn store(self, bytes: &mut [u8; LANES]) {
        // SAFETY: AVX2 is there; the array is as long as what is written.
        unsafe { _mm256_storeu_si256(bytes.as_mut_ptr().cast(), self.0) }
    }

    #[inline(always)]
    fn is_zero(self) -> bool {
        // SAFETY: AVX2 is there.
        unsafe { _mm256_testz_si256(self.0, self.0) == 1 }
    }

    #[inline(always)]
    fn and(self, other: Self) -> Self {
        // SAFETY: AVX2 is there.
        Self(unsafe { _mm256_and_si256(self.0, other.0) })
    }

    #[inline(always)]
    fn xor(self, other: Self) -> Self {
        // SAFETY: AVX2 is there.
        Self(unsafe { _mm256_xor_si256(self.0, other.0) })
    }

    #[inline(always)]
    fn select(self, other: Self, mask: Self) -> Self {
        self.xor(other).and(mask).xor(other)
    }

    #[inline(always)]
    fn shift_left<const BITS: i32>(self) -> Self {
        // SAFETY: AVX2 is there.
        Self(unsafe { _mm256_slli_epi64::<BITS>(self.0) })
    }

    #[inline(always)]
    fn shift_right<const BITS: i32>(self) -> Self {
        // SAFETY: AVX2 is there.
        Self(unsafe { _mm256_srli_epi64::<BITS>(self.0) })
    }
}

#[target_feature(enable = "avx2,bmi1,bmi2,popcnt,pclmulqdq")]
pub(super) fn find<const BITS: u8>(bytes: &[u8], start: u64, anchors: &mut Vec<u64>) {
    // SAFETY: this function's features.
    unsafe { sliced::find::<Register, BITS>(bytes, start, anchors) }
}
