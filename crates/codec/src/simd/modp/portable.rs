//! The fingerprint rolls: a table look-up for the byte that enters, one for the byte that
//! leaves.

use alloc::boxed::Box;

use super::{GROUP, REFLECTED, times_x};
use crate::sampling::{SamplingPeriod, WindowBytes};

/// Tables to roll the fingerprint of windows of one length.
#[derive(Clone, Debug)]
pub(super) struct Rabin {
    window: WindowBytes,
    tables: Box<Tables>,
}

#[derive(Clone, Debug)]
struct Tables {
    /// byte · x^64 mod P: what a byte becomes when it enters.
    entered: [u64; 256],
    /// byte · x^(64 + 8w) mod P: what it has become when it leaves the window.
    left: [u64; 256],
}

impl Rabin {
    pub(super) fn new(window: WindowBytes) -> Self {
        let entered = multiples(REFLECTED);
        let leaving = (0..window.bytes()).fold(REFLECTED, |power, _| append(&entered, power, 0));
        let left = multiples(leaving);
        Self {
            window,
            tables: Box::new(Tables { entered, left }),
        }
    }

    /// See [`Kernel::test`](super::Kernel::test).
    pub(super) fn test(
        &self,
        period: SamplingPeriod,
        block: &[u8],
        positions: usize,
        bitmap: &mut [u64],
    ) {
        let Tables { entered, left } = &*self.tables;
        // The lowest powers' coefficients are the highest bits.
        let mask = (period.bytes() as u64 - 1).reverse_bits();
        // The first window's last byte is yet to enter; nothing leaves then.
        let (before, entering) = block.split_at(self.window.bytes() - 1);
        let mut fingerprint = before
            .iter()
            .fold(0, |fingerprint, &byte| append(entered, fingerprint, byte));
        let mut leaving = 0;
        let mut bytes = entering[..positions].iter().zip(block);
        for word in bitmap {
            *word = 0;
            for (bit, (&entering, &leaves_next)) in bytes.by_ref().take(GROUP).enumerate() {
                fingerprint = append(entered, fingerprint, entering) ^ left[usize::from(leaving)];
                *word |= u64::from(fingerprint & mask == mask) << bit;
                leaving = leaves_next;
            }
        }
    }
}

/// The fingerprint of a window and one byte more.
#[inline]
fn append(entered: &[u64; 256], fingerprint: u64, byte: u8) -> u64 {
    fingerprint >> 8 ^ entered[usize::from(fingerprint as u8 ^ byte)]
}

/// All bytes times x^(8n) mod P, given x^(8n): the byte's lowest bit is its x^7.
fn multiples(factor: u64) -> [u64; 256] {
    let mut products = [0; 256];
    let mut power = factor;
    for bit in (0..8).rev() {
        for (byte, product) in products.iter_mut().enumerate() {
            if byte >> bit & 1 == 1 {
                *product ^= power;
            }
        }
        power = times_x(power);
    }
    products
}
