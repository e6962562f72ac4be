//! From a bitmap to the positions of its set bits, in increasing order.
//!
//! ```text
//! for i in 0..64 * bitmap.len():
//!     if bit i % 64 of bitmap[i / 64] is set:
//!         positions.push(first + i)
//! ```
//!
//! Where a scan's hits are rare and irregular, each `if` on one is a branch mispredicted.
//! So a scan writes a bitmap, and this turns it into positions without asking: each word's
//! are written in one batch that is long enough for nearly all words, and the next word's
//! batch goes over what was too much.

#[cfg(all(target_arch = "x86_64", target_feature = "sse2"))]
mod avx2;
#[cfg(all(target_arch = "x86_64", target_feature = "sse2"))]
mod avx512;
mod portable;

use alloc::vec::Vec;

use super::Backend;

/// Appends the positions of the bits set in `bitmap`, the first of which is at `first`.
pub(crate) fn append(backend: Backend, bitmap: &[u64], first: u32, positions: &mut Vec<u32>) {
    dispatch!(backend, append(bitmap, first, positions))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::{collection::vec, prelude::*};

    fn one_at_a_time(bitmap: &[u64], first: u32) -> Vec<u32> {
        (0..bitmap.len() * 64)
            .filter(|i| bitmap[i / 64] >> (i % 64) & 1 == 1)
            .map(|i| first + i as u32)
            .collect()
    }

    proptest! {
        #[test]
        fn all_backends_find_each_set_bit(
            // Words of all densities.
            words in vec((any::<u64>(), any::<u64>(), any::<u64>(), 0..4), 0..70),
            first in 0_u32..1 << 31,
        ) {
            let word = |(a, b, c, density)| match density {
                0 => a & b & c,
                1 => a,
                2 => a | b | c,
                _ => 0,
            };
            let bitmap: Vec<u64> = words.into_iter().map(word).collect();
            for backend in Backend::available() {
                let mut positions = alloc::vec![3, 5];
                append(backend, &bitmap, first, &mut positions);
                prop_assert_eq!(&positions[..2], &[3, 5]);
                prop_assert_eq!(&positions[2..], &one_at_a_time(&bitmap, first), "{:?}", backend);
            }
        }
    }

    #[test]
    fn full_and_empty_words_are_no_exception() {
        for backend in Backend::available() {
            for bitmap in [&[][..], &[0], &[u64::MAX], &[u64::MAX, 0, u64::MAX]] {
                let mut positions = Vec::new();
                append(backend, bitmap, 64, &mut positions);
                assert_eq!(positions, one_at_a_time(bitmap, 64), "{backend:?}");
            }
        }
    }
}
