//! PACK chunking, as in Proc. 8 of the PACK paper (section 6.3), byte by byte.

use alloc::vec::Vec;
use core::ops::Range;

use crate::{
    chunk::stream::ChunkBounds,
    marker::{PackMask, pack::WINDOW_BYTES},
};

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

/// The chunks of a whole stream: each ends at the first anchor that its bounds allow.
#[must_use]
pub fn chunks(stream: &[u8], mask: PackMask, bounds: ChunkBounds) -> Vec<Range<u64>> {
    let anchors = anchors(stream, mask);
    let mut chunks = Vec::new();
    let mut start = 0;
    while start < stream.len() as u64 {
        let longest = (start + bounds.bytes_max()).min(stream.len() as u64);
        let allowed = start + bounds.bytes_min()..longest;
        let end = anchors.iter().find(|anchor| allowed.contains(anchor));
        let end = end.copied().unwrap_or(longest);
        chunks.push(start..end);
        start = end;
    }
    chunks
}
