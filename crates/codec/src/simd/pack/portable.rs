//! The kernel for any processor: vectors of 64-bit words, which compilers make wider ones of.

use alloc::vec::Vec;

use super::sliced::{self, LANES, Vector};

const WORDS: usize = LANES / 8;

#[derive(Clone, Copy)]
struct Words([u64; WORDS]);

impl Words {
    #[inline(always)]
    fn map(self, f: impl Fn(u64) -> u64) -> Self {
        Self(self.0.map(f))
    }

    #[inline(always)]
    fn zip(self, other: Self, f: impl Fn(u64, u64) -> u64) -> Self {
        Self(core::array::from_fn(|i| f(self.0[i], other.0[i])))
    }
}

impl Vector for Words {
    #[inline(always)]
    unsafe fn load(bytes: &[u8; LANES]) -> Self {
        let (words, _) = bytes.as_chunks();
        Self(core::array::from_fn(|i| u64::from_le_bytes(words[i])))
    }

    #[inline(always)]
    fn store(self, bytes: &mut [u8; LANES]) {
        for (bytes, word) in bytes.as_chunks_mut().0.iter_mut().zip(self.0) {
            *bytes = word.to_le_bytes();
        }
    }

    #[inline(always)]
    fn is_zero(self) -> bool {
        self.0.into_iter().fold(0, |any, word| any | word) == 0
    }

    #[inline(always)]
    fn and(self, other: Self) -> Self {
        self.zip(other, |a, b| a & b)
    }

    #[inline(always)]
    fn xor(self, other: Self) -> Self {
        self.zip(other, |a, b| a ^ b)
    }

    #[inline(always)]
    fn select(self, other: Self, mask: Self) -> Self {
        self.xor(other).and(mask).xor(other)
    }

    #[inline(always)]
    fn shift_left<const BITS: i32>(self) -> Self {
        self.map(|word| word << BITS)
    }

    #[inline(always)]
    fn shift_right<const BITS: i32>(self) -> Self {
        self.map(|word| word >> BITS)
    }
}

pub(super) fn find<const BITS: u8>(bytes: &[u8], start: u64, anchors: &mut Vec<u64>) {
    // SAFETY: `Words` is written in what every machine has.
    unsafe { sliced::find::<Words, BITS>(bytes, start, anchors) }
}
