//! MODP: windows whose Rabin fingerprint takes a certain value modulo p (EndRE, section
//! 5.1.1, Figure 2).
//!
//! A window's bits are the coefficients of a polynomial over GF(2), the first byte's lowest
//! bit that of the highest power. Its fingerprint is the remainder of that polynomial, times
//! x^64, by a fixed irreducible polynomial of degree 64. All of the window's bytes enter into
//! each bit of it.
//!
//! Deviations:
//!
//! - Not `fingerprint % p == 0` but `== p - 1`: the lowest log2 p bits set. The fingerprint of
//!   a run of zeros is 0, and the paper's test takes every position of it.
//! - Of neighbouring positions that pass, only the first is a marker. In a run of any other
//!   byte all windows have one fingerprint, and all positions would pass or none.
//! - The window is multiplied by x^64, that is, eight zero bytes are thought to follow it, as
//!   in checksums. Else the fingerprint would end in the window's last bytes as they are, and
//!   the test would be one of the last byte. And the bits of a byte count from the lowest, the
//!   order in which processors keep them. Both make the test cheap, and no marker depends on
//!   what another implementation selects: markers are not sent.
//!
//! Whatever passes at a longer period passes at a shorter one, so that a changed period still
//! meets many of the markers of the blocks before.
//!
//! The work does not depend on p; how it is done: [`simd`](crate::simd), modp.

use alloc::vec::Vec;

use super::{FindMarkers, Sampling, candidates};
use crate::simd::{modp::Kernel, positions};

/// Positions tested before their markers are written: few enough for the stack.
const STRETCH: usize = 4096;

/// Finds MODP markers.
#[derive(Clone, Debug)]
pub(super) struct Modp(pub(super) Kernel);

impl FindMarkers for Modp {
    fn find(&self, sampling: Sampling, block: &[u8], markers: &mut Vec<u32>) {
        let Sampling {
            period,
            window,
            backend,
        } = sampling;
        let count = candidates(block, window).len();
        let mut bitmap = [0; STRETCH / 64];
        let mut passed_before = 0;
        for start in (0..count).step_by(STRETCH) {
            let positions = STRETCH.min(count - start);
            let bitmap = &mut bitmap[..positions.div_ceil(64)];
            self.0
                .test(backend, &block[start..], positions, period, bitmap);
            for word in &mut *bitmap {
                let passes = *word;
                *word &= !(passes << 1 | passed_before);
                passed_before = passes >> 63;
            }
            positions::append(backend, bitmap, start as u32, markers);
        }
    }
}

#[cfg(test)]
mod tests {
    use crate::sampling::POLYNOMIAL;

    /// fingerprint · x mod P.
    fn times_x(fingerprint: u64) -> u64 {
        let carry = if fingerprint >> 63 == 1 {
            POLYNOMIAL
        } else {
            0
        };
        fingerprint << 1 ^ carry
    }

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
}
