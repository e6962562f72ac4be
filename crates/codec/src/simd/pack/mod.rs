//! PACK anchors of a range of bytes (PACK, section 6.3).
//!
//! PACK's rolling value is linear over GF(2). After byte i, its bit k is the parity of one bit
//! from each of eight bytes, a diagonal of them; an anchor has all bits of a mask set. With a
//! *tap* t = 47 - k for each bit k of the mask, and f the first byte of a window:
//!
//! ```text
//! diagonal[m] = XOR over u = 0..8 of bit u of byte[m + u]
//! anchor[f]   = AND over all taps t of diagonal[f + t]
//! ```
//!
//! So no version rolls: each computes one bit a position, the diagonals, and the AND of copies
//! of that bit stream, shifted by the taps.
//!
//! - `avx512` has 64 diagonals in a word and shifts words;
//! - `sliced` has the diagonals of eight distant segments in the bits of a byte, so that a
//!   shift by a tap is a load from elsewhere. It is written over any vector of bytes:
//!   `portable`, `avx2` and `neon` are such vectors.

#[cfg(all(target_arch = "x86_64", target_feature = "sse2"))]
mod avx2;
#[cfg(all(target_arch = "x86_64", target_feature = "sse2"))]
mod avx512;
#[cfg(all(target_arch = "aarch64", target_feature = "neon"))]
mod neon;
mod portable;
mod sliced;
#[cfg(test)]
mod tests;

use alloc::vec::Vec;

use super::Backend;
use crate::sampling::{PackMask, WINDOW_BYTES};

/// PACK's rolling value, one byte on.
#[inline]
pub(crate) fn roll(value: u64, byte: u8) -> u64 {
    value << 1 ^ u64::from(byte)
}

/// PACK's rolling value after the 64 bytes at most of `bytes`.
pub(crate) fn rolling_value(bytes: &[u8]) -> u64 {
    // Not byte by byte, each waiting for the one before.
    let shifted = bytes
        .iter()
        .rev()
        .zip(0..64)
        .map(|(&byte, age)| u64::from(byte) << age);
    shifted.fold(0, |value, byte| value ^ byte)
}

/// Appends the anchors among the windows of `bytes`, as offsets of their first bytes in a
/// stream in which `bytes` lie at `start`.
pub(crate) fn find(
    backend: Backend,
    mask: PackMask,
    bytes: &[u8],
    start: u64,
    anchors: &mut Vec<u64>,
) {
    let find = match mask.count() {
        6 => find_by::<6>,
        7 => find_by::<7>,
        8 => find_by::<8>,
        9 => find_by::<9>,
        10 => find_by::<10>,
        11 => find_by::<11>,
        12 => find_by::<12>,
        13 => find_by::<13>,
        14 => find_by::<14>,
        _ => find_by::<15>,
    };
    find(backend, bytes, start, anchors);
}

/// Finds anchors by the mask of `BITS` bits, whose taps are constants then.
fn find_by<const BITS: u8>(backend: Backend, bytes: &[u8], start: u64, anchors: &mut Vec<u64>) {
    match backend.instruction_set() {
        #[cfg(all(target_arch = "x86_64", target_feature = "sse2"))]
        // SAFETY: the backend exists, so the machine has AVX-512 as its features name it.
        super::InstructionSet::Avx512 => unsafe { avx512::find::<BITS>(bytes, start, anchors) },
        #[cfg(all(target_arch = "x86_64", target_feature = "sse2"))]
        // SAFETY: the backend exists, so the machine has AVX2 as its features name it.
        super::InstructionSet::Avx2 => unsafe { avx2::find::<BITS>(bytes, start, anchors) },
        #[cfg(all(target_arch = "aarch64", target_feature = "neon"))]
        super::InstructionSet::Neon => neon::find::<BITS>(bytes, start, anchors),
        _ => portable::find::<BITS>(bytes, start, anchors),
    }
}

/// No tap is further away.
const TAP_MAX: usize = 40;

/// The taps of the mask of `bits` bits, in increasing order; the last is repeated where they
/// are fewer than 15, which changes no AND.
const fn taps(bits: u8) -> [usize; 15] {
    let mut mask = PackMask::mask_of(bits);
    let mut taps = [0; 15];
    let mut index = 0;
    while index < taps.len() {
        if mask == 0 {
            taps[index] = taps[index - 1];
        } else {
            let bit = mask.ilog2();
            taps[index] = WINDOW_BYTES - 1 - bit as usize;
            mask ^= 1 << bit;
        }
        assert!(taps[index] <= TAP_MAX);
        index += 1;
    }
    taps
}

/// Removes the anchors from index `from` on that are later than `last`.
fn drop_later(anchors: &mut Vec<u64>, from: usize, last: u64) {
    let kept = anchors[from..].partition_point(|&anchor| anchor <= last);
    anchors.truncate(from + kept);
}

/// Appends the positions of the bits of `word`, its lowest bit at `start`.
#[inline]
fn append_ones(mut word: u64, start: u64, anchors: &mut Vec<u64>) {
    while word != 0 {
        anchors.push(start + u64::from(word.trailing_zeros()));
        word &= word - 1;
    }
}
