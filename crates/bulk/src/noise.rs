//! Bytes to measure with.

use std::io::{self, Read};

/// Bytes without a pattern, faster than they are cut.
pub(crate) struct Noise(pub(crate) u64);

impl Read for Noise {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let (words, rest) = buffer.as_chunks_mut::<8>();
        for word in words {
            // Of a counter, the upper half of a product with an odd number is noise enough for anchors.
            self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
            let product = u128::from(self.0) * 0xd6e8_feb8_6659_fd93;
            *word = ((product >> 64) as u64 ^ product as u64).to_le_bytes();
        }
        rest.fill(0);
        Ok(buffer.len())
    }
}
