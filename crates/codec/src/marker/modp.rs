//! MODP: windows whose Rabin fingerprint takes certain values (EndRE, section 5.1.1,
//! Figure 2).
//!
//! A window's bytes are the coefficients of a polynomial over GF(2), the first byte's top
//! bit that of the highest power; its fingerprint is the remainder by a fixed polynomial
//! of degree 64. It rolls: the fingerprint of the next window follows from this one's and
//! the bytes that enter and leave.
//!
//! Deviations:
//!
//! - Not `fingerprint % p == 0` but log2 p bits, spread over the fingerprint, all set. The
//!   fingerprint of a run of zeros is 0, and the paper's test takes every position of it.
//!   The bits are spread because a window's last eight bytes enter the fingerprint as they
//!   are: a few neighbouring bits would depend on one of these bytes alone.
//! - Of neighbouring positions that pass, only the first is a marker. In a run of any other
//!   byte all windows have one fingerprint, and all positions would pass or none.
//!
//! The bits of a longer period include those of a shorter one, so that a changed period
//! still meets many of the markers of the blocks before.
//!
//! The work does not depend on p (one table look-up a byte enters, one leaves).

use alloc::{boxed::Box, vec::Vec};

use super::{FindMarkers, SamplingPeriod, WindowBytes, candidates};
use crate::simd::Backend;

/// The modulus, without its x^64: the first irreducible polynomial of degree 64 from the
/// first 64 bits of pi's fraction on.
pub(crate) const POLYNOMIAL: u64 = 0x243f_6a88_85a3_0907;

/// Bits of the fingerprint that the test looks at; the first log2 p of them.
const TESTED_BITS: [u32; 9] = [60, 36, 12, 52, 28, 4, 44, 20, 33];

/// The bits that are set in the fingerprint of a chosen window.
pub(crate) fn mask(period: SamplingPeriod) -> u64 {
    let count = period.bytes().ilog2() as usize;
    TESTED_BITS[..count]
        .iter()
        .fold(0, |mask, bit| mask | 1 << bit)
}

/// Finds MODP markers.
#[derive(Clone, Debug)]
pub struct Modp {
    pub(super) period: SamplingPeriod,
    pub(super) window: WindowBytes,
    pub(super) backend: Backend,
    rabin: Box<Rabin>,
}

impl Modp {
    /// A finder with this period, of windows of this many bytes.
    #[must_use]
    pub fn new(period: SamplingPeriod, window: WindowBytes) -> Self {
        Self {
            period,
            window,
            backend: Backend::best(),
            rabin: Box::new(Rabin::new(window)),
        }
    }
}

impl FindMarkers for Modp {
    fn find(&self, block: &[u8], markers: &mut Vec<u32>) {
        markers.clear();
        let mask = mask(self.period);
        let count = candidates(block, self.window).len();
        if count == 0 {
            return;
        }
        let (first, entering) = block.split_at(self.window.bytes());
        let mut fingerprint = self.rabin.fingerprint(first);
        let mut passed_before = fingerprint & mask == mask;
        if passed_before {
            markers.push(0);
        }
        for (position, (&entering, &leaving)) in (1..).zip(entering.iter().zip(block)) {
            fingerprint = self.rabin.roll(fingerprint, entering, leaving);
            let passed = fingerprint & mask == mask;
            if passed && !passed_before {
                markers.push(position);
            }
            passed_before = passed;
        }
    }
}

/// Tables to roll the fingerprint of windows of one length.
#[derive(Clone, Debug)]
struct Rabin {
    /// byte · x^64 mod P: what the top byte becomes when it is shifted out.
    reduced: [u64; 256],
    /// byte · x^(8w) mod P: what a byte has become when it leaves the window.
    left: [u64; 256],
}

impl Rabin {
    fn new(window: WindowBytes) -> Self {
        let reduced = multiples(POLYNOMIAL);
        let leaving = (8..window.bytes()).fold(POLYNOMIAL, |power, _| append(&reduced, power, 0));
        Self {
            reduced,
            left: multiples(leaving),
        }
    }

    fn fingerprint(&self, bytes: &[u8]) -> u64 {
        bytes.iter().fold(0, |fingerprint, &byte| {
            append(&self.reduced, fingerprint, byte)
        })
    }

    #[inline]
    fn roll(&self, fingerprint: u64, entering: u8, leaving: u8) -> u64 {
        append(&self.reduced, fingerprint, entering) ^ self.left[usize::from(leaving)]
    }
}

/// fingerprint · x^8 + byte, mod P.
#[inline]
fn append(reduced: &[u64; 256], fingerprint: u64, byte: u8) -> u64 {
    (fingerprint << 8 | u64::from(byte)) ^ reduced[(fingerprint >> 56) as usize]
}

/// All polynomials of degree below 8, times `factor`, mod P.
fn multiples(factor: u64) -> [u64; 256] {
    let mut products = [0; 256];
    let mut power = factor;
    for bit in 0..8 {
        for index in 0..1 << bit {
            products[index | 1 << bit] = products[index] ^ power;
        }
        power = times_x(power);
    }
    products
}

/// fingerprint · x mod P.
fn times_x(fingerprint: u64) -> u64 {
    let carry = if fingerprint >> 63 == 1 {
        POLYNOMIAL
    } else {
        0
    };
    fingerprint << 1 ^ carry
}

#[cfg(test)]
mod tests {
    use super::*;

    fn times(mut a: u64, b: u64) -> u64 {
        (0..64).fold(0, |product, bit| {
            let term = if b >> bit & 1 == 1 { a } else { 0 };
            a = times_x(a);
            product ^ term
        })
    }

    fn remainder(mut a: u128, b: u128) -> u128 {
        while a != 0 && a.ilog2() >= b.ilog2() {
            a ^= b << (a.ilog2() - b.ilog2());
        }
        a
    }

    /// Rabin's test: x^(2^64) = x mod P, and x^(2^32) - x has no factor in common with P.
    #[test]
    fn the_polynomial_is_irreducible() {
        const X: u64 = 2;
        let squared = |times_squared| (0..times_squared).fold(X, |power, _| times(power, power));
        assert_eq!(squared(64), X);
        let (mut a, mut b) = (
            1 << 64 | u128::from(POLYNOMIAL),
            u128::from(squared(32) ^ X),
        );
        while b != 0 {
            (a, b) = (b, remainder(a, b));
        }
        assert_eq!(a, 1);
    }

    #[test]
    fn a_longer_period_keeps_the_bits_of_a_shorter_one() {
        let masks = [32, 64, 128, 256, 512].map(|p| mask(SamplingPeriod::new(p).expect("valid")));
        assert_eq!(masks.map(u64::count_ones), [5, 6, 7, 8, 9]);
        assert!(masks.windows(2).all(|pair| pair[0] & pair[1] == pair[0]));
    }
}
