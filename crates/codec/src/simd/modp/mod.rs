//! MODP's test, for all positions of a stretch: which windows have a Rabin fingerprint whose
//! lowest bits are all set.
//!
//! ```text
//! for i in 0..positions:
//!     F = block[i..i + w] · x^64 mod P     (as polynomials over GF(2))
//!     bit i of the bitmap = the lowest log2 p bits of F are set
//! ```
//!
//! # How
//! What is tested is the quotient. W·x^64 = Q·P + F, and W·x^64 has no low bits: those of F
//! are those of Q·P. P ends in a 1, so that the lowest k bits of Q follow from those of F and
//! the other way round, and all of F's are set where Q's are a certain pattern.
//!
//! And a quotient is a convolution: Q's bits are those of W·(x^64 / P) before the point, where
//! x^64 / P = c0 + c1/x + c2/x² + ... is a constant. A stream's bits, convolved with the c's
//! (a carry-less multiplication, eight bytes by eight), are the quotients of windows that end
//! at each of its bits; each of its *bytes* ends with the quotient's lowest eight bits at that
//! position.
//!
//! Two things remain:
//!
//! - The window's first byte. At a byte's lower bits the convolution would reach back into the
//!   byte before the window. So the c's are cut off a byte short of the window, and what its
//!   first byte brings in is added by itself: the lower half of that byte's product with the
//!   next eight c's.
//! - The ninth bit, at p = 512. It is the quotient of the window without its last byte. The
//!   convolution cut short has it in the byte before, as that byte's top bit.
//!
//! The c's are delayed by a few zero bytes to a multiple of 16. So the convolution of a window
//! comes out `16 * pairs` bytes after the window's beginning, and no version reads before that.

#[cfg(all(target_arch = "x86_64", target_feature = "sse2"))]
mod avx2;
#[cfg(all(target_arch = "x86_64", target_feature = "sse2"))]
mod avx512;
#[cfg(all(target_arch = "x86_64", target_feature = "sse2"))]
mod convolution;
mod portable;

use super::Backend;
use crate::sampling::{POLYNOMIAL, SamplingPeriod, WindowBytes};

/// Positions that one word of a bitmap tells about.
const GROUP: usize = 64;

/// The modulus without its x^64, and all fingerprints here, the highest power's coefficient
/// first: at the lowest bit. So a window's bytes need not be swapped.
const REFLECTED: u64 = POLYNOMIAL.reverse_bits();

/// What the test needs to know about windows of one length.
#[derive(Clone, Debug)]
pub(crate) struct Kernel {
    window: WindowBytes,
    rolling: portable::Rabin,
    #[cfg(all(target_arch = "x86_64", target_feature = "sse2"))]
    convolution: convolution::Convolution,
}

impl Kernel {
    pub(crate) fn new(window: WindowBytes) -> Self {
        Self {
            window,
            rolling: portable::Rabin::new(window),
            #[cfg(all(target_arch = "x86_64", target_feature = "sse2"))]
            convolution: convolution::Convolution::new(window),
        }
    }

    /// Sets the bits in `bitmap` of those of the first `positions` of `block` that pass, and
    /// clears all others.
    ///
    /// # Panics
    /// If `block` lacks a window at one of the positions, or `bitmap` is not just long enough.
    pub(crate) fn test(
        &self,
        backend: Backend,
        block: &[u8],
        positions: usize,
        period: SamplingPeriod,
        bitmap: &mut [u64],
    ) {
        assert_eq!(bitmap.len(), positions.div_ceil(GROUP));
        let Some(last) = positions.checked_sub(1) else {
            return;
        };
        assert!(last + self.window.bytes() <= block.len());
        match backend.instruction_set() {
            // SAFETY: the backend exists, so that the machine has its instructions.
            #[cfg(all(target_arch = "x86_64", target_feature = "sse2"))]
            super::InstructionSet::Avx512 => unsafe {
                avx512::test(&self.convolution, period, block, bitmap)
            },
            // SAFETY: as above.
            #[cfg(all(target_arch = "x86_64", target_feature = "sse2"))]
            super::InstructionSet::Avx2 => unsafe {
                avx2::test(&self.convolution, period, block, bitmap)
            },
            _ => self.rolling.test(period, block, positions, bitmap),
        }
        // Whole groups were tested.
        bitmap[last / GROUP] &= u64::MAX >> (GROUP - 1 - last % GROUP);
    }
}

/// fingerprint · x mod P.
fn times_x(fingerprint: u64) -> u64 {
    let carry = if fingerprint & 1 == 1 { REFLECTED } else { 0 };
    fingerprint >> 1 ^ carry
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::reference::markers::rabin_fingerprint;
    use alloc::vec::Vec;
    use proptest::{collection::vec, prelude::*};

    const PERIODS: [usize; 5] = [32, 64, 128, 256, 512];

    fn period(bytes: usize) -> SamplingPeriod {
        SamplingPeriod::new(bytes).expect("valid")
    }

    fn passes(fingerprints: &[u64], p: usize) -> Vec<u64> {
        let passes = |fingerprint: &u64| fingerprint % p as u64 == p as u64 - 1;
        let word = |fingerprints: &[u64]| {
            let bits = fingerprints.iter().map(passes).enumerate();
            bits.fold(0, |word, (bit, passes)| word | u64::from(passes) << bit)
        };
        fingerprints.chunks(GROUP).map(word).collect()
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(16))]

        #[test]
        fn every_window_is_divided_as_by_hand(
            block in prop_oneof![vec(any::<u8>(), 0..700), vec(any::<u8>(), 0..150)],
        ) {
            for bytes in 12..=64 {
                let kernel = Kernel::new(WindowBytes::new(bytes).expect("valid"));
                let fingerprints: Vec<u64> = block.windows(bytes).map(rabin_fingerprint).collect();
                for p in PERIODS {
                    let expected = passes(&fingerprints, p);
                    for backend in Backend::available() {
                        let mut bitmap = alloc::vec![u64::MAX; expected.len()];
                        kernel.test(backend, &block, fingerprints.len(), period(p), &mut bitmap);
                        prop_assert_eq!(
                            &bitmap, &expected, "{:?} at p = {}, w = {}", backend, p, bytes
                        );
                    }
                }
            }
        }

        #[test]
        fn a_block_may_be_tested_in_stretches(block in vec(any::<u8>(), 500..900)) {
            let kernel = Kernel::new(WindowBytes::DEFAULT);
            let count = block.len() + 1 - WindowBytes::DEFAULT.bytes();
            for backend in Backend::available() {
                let mut whole = alloc::vec![0; count.div_ceil(GROUP)];
                kernel.test(backend, &block, count, SamplingPeriod::MIN, &mut whole);
                for (index, word) in whole.iter().enumerate() {
                    let start = index * GROUP;
                    let mut one = [0];
                    let positions = GROUP.min(count - start);
                    kernel.test(backend, &block[start..], positions, SamplingPeriod::MIN, &mut one);
                    prop_assert_eq!(one[0], *word);
                }
            }
        }
    }
}
