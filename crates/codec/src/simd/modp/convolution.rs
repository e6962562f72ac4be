//! What there is to multiply with, and what to expect: computed from the modulus.

use super::{GROUP, times_x};
use crate::sampling::{POLYNOMIAL, SamplingPeriod, WindowBytes};

/// Bytes that the windows of a group reach into, of the longest windows.
pub(super) const GROUP_BYTES: usize = 2 * GROUP;

/// The c's that windows of one length are convolved with.
#[derive(Clone, Copy, Debug)]
pub(super) struct Convolution {
    /// All but the last eight, delayed to the end of the last pair of words in use.
    pub(super) words: [[u64; 2]; 4],
    /// Pairs of words in use: 16-byte steps from a window's beginning to its result.
    pub(super) pairs: usize,
    /// The last eight, for the window's first byte.
    first_byte: u8,
}

impl Convolution {
    pub(super) fn new(window: WindowBytes) -> Self {
        let bytes = window.bytes() - 1;
        let pairs = bytes.div_ceil(16);
        let mut words = [[0; 2]; 4];
        // x^63, x^64, x^65 ... mod P: the top coefficients are the c's.
        let mut power = 1;
        let mut next_c = || {
            let c = power & 1;
            power = times_x(power);
            c
        };
        for bit in 8 * (16 * pairs - bytes)..128 * pairs {
            words[bit / 128][bit / 64 % 2] |= next_c() << (bit % 64);
        }
        let first_byte = (0..8).fold(0, |byte, bit| byte | (next_c() as u8) << bit);
        Self {
            words,
            pairs,
            first_byte,
        }
    }

    /// What the first byte of a window adds to the eight bits of the quotient.
    pub(super) fn of_first_byte(&self, byte: u8) -> u8 {
        (0..8)
            .filter(|bit| byte >> bit & 1 == 1)
            .fold(0, |sum, bit| sum ^ self.first_byte << bit)
    }
}

/// The lowest bits of a quotient whose fingerprint passes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Pattern {
    /// The quotient's lowest bits that are looked at, of eight: bit 7 is the lowest power's.
    pub(super) mask: u8,
    /// What they must be.
    pub(super) value: u8,
    /// What the ninth bit must be, if it is looked at.
    pub(super) ninth: Option<bool>,
}

impl Pattern {
    pub(super) fn new(period: SamplingPeriod) -> Self {
        let count = period.bytes().ilog2();
        // From the lowest power up: each of F's bits is the sum of the quotient's bit there and
        // of lower ones times P's.
        let mut quotient = 0_u64;
        for bit in 0..count {
            let of_lower = (0..bit).filter(|&lower| quotient >> lower & 1 == 1);
            let sum = of_lower.fold(0, |sum, lower| sum ^ POLYNOMIAL >> (bit - lower) & 1);
            quotient |= (sum ^ 1) << bit;
        }
        Self {
            mask: ((period.bytes() - 1) as u8).reverse_bits(),
            value: (quotient as u8).reverse_bits(),
            ninth: (count > 8).then_some(quotient >> 8 & 1 == 1),
        }
    }
}

/// The bytes of the windows of a group; zeros, where the block ends before.
#[inline(always)]
pub(super) fn group<'a>(
    block: &'a [u8],
    index: usize,
    padded: &'a mut [u8; GROUP_BYTES],
) -> &'a [u8; GROUP_BYTES] {
    let rest = &block[index * GROUP..];
    rest.first_chunk().unwrap_or_else(|| {
        padded.fill(0);
        padded[..rest.len()].copy_from_slice(rest);
        padded
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_passes_at_a_longer_period_passes_at_a_shorter_one() {
        let patterns =
            [32, 64, 128, 256, 512].map(|p| Pattern::new(SamplingPeriod::new(p).expect("valid")));
        assert_eq!(
            patterns.map(|pattern| pattern.mask.count_ones()),
            [5, 6, 7, 8, 8]
        );
        for pair in patterns.windows(2) {
            let [shorter, longer] = pair else {
                unreachable!()
            };
            assert_eq!(longer.mask & shorter.mask, shorter.mask);
            assert_eq!(longer.value & shorter.mask, shorter.value);
            assert_ne!(shorter.value, 0, "as a run of zeros has");
        }
        assert_eq!(
            patterns.map(|pattern| pattern.ninth.is_some()),
            [false, false, false, false, true]
        );
    }
}
