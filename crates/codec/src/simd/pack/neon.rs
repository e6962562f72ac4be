//! The kernel for NEON: a vector is a pair of registers.

use alloc::vec::Vec;
use core::arch::aarch64::*;

use super::sliced::{self, LANES, Vector};

#[derive(Clone, Copy)]
struct Pair(uint8x16_t, uint8x16_t);

impl Vector for Pair {
    #[inline(always)]
    unsafe fn load(bytes: &[u8; LANES]) -> Self {
        let (halves, _) = bytes.as_chunks::<16>();
        // SAFETY: each array is as long as what is read.
        let [low, high] = [0, 1].map(|half| unsafe { vld1q_u8(halves[half].as_ptr()) });
        Self(low, high)
    }

    #[inline(always)]
    fn store(self, bytes: &mut [u8; LANES]) {
        let (halves, _) = bytes.as_chunks_mut::<16>();
        // SAFETY: each array is as long as what is written.
        unsafe {
            vst1q_u8(halves[0].as_mut_ptr(), self.0);
            vst1q_u8(halves[1].as_mut_ptr(), self.1);
        }
    }

    #[inline(always)]
    fn is_zero(self) -> bool {
        // SAFETY: NEON is there.
        unsafe { vmaxvq_u8(vorrq_u8(self.0, self.1)) == 0 }
    }

    #[inline(always)]
    fn and(self, other: Self) -> Self {
        // SAFETY: NEON is there.
        unsafe { Self(vandq_u8(self.0, other.0), vandq_u8(self.1, other.1)) }
    }

    #[inline(always)]
    fn xor(self, other: Self) -> Self {
        // SAFETY: NEON is there.
        unsafe { Self(veorq_u8(self.0, other.0), veorq_u8(self.1, other.1)) }
    }

    #[inline(always)]
    fn select(self, other: Self, mask: Self) -> Self {
        // SAFETY: NEON is there.
        unsafe {
            Self(
                vbslq_u8(mask.0, self.0, other.0),
                vbslq_u8(mask.1, self.1, other.1),
            )
        }
    }

    #[inline(always)]
    fn shift_left<const BITS: i32>(self) -> Self {
        // SAFETY: NEON is there.
        unsafe { Self(vshlq_n_u8::<BITS>(self.0), vshlq_n_u8::<BITS>(self.1)) }
    }

    #[inline(always)]
    fn shift_right<const BITS: i32>(self) -> Self {
        // SAFETY: NEON is there.
        unsafe { Self(vshrq_n_u8::<BITS>(self.0), vshrq_n_u8::<BITS>(self.1)) }
    }
}

pub(super) fn find<const BITS: u8>(bytes: &[u8], start: u64, anchors: &mut Vec<u64>) {
    // SAFETY: this module is compiled only where NEON is part of the target.
    unsafe { sliced::find::<Pair, BITS>(bytes, start, anchors) }
}
