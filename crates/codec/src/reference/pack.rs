//! PACK chunking, as in Proc. 8 of the PACK paper (section 6.3), byte by byte.

use alloc::vec::Vec;

use crate::marker::{PackMask, pack::WINDOW_BYTES};

/// The anchors of a whole stream: the offset of the first byte of each window that is one.
#[must_use]
pub fn anchors(stream: &[u8], mask: PackMask) -> Vec<u64> {
    let mask = mask.bits();
    let mut anchors = Vec::new();
    let mut longval = 0_u64;
    for (index, &byte) in stream.iter().enumerate() {
        longval = longval << 1 ^ u64::from(byte);
        let processed = index + 1;
        if processed >= WINDOW_BYTES && longval & mask == mask {
            anchors.push((processed - WINDOW_BYTES) as u64);
        }
    }
    anchors
}
