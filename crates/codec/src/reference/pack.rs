//! PACK chunking, as in Proc. 8 of the PACK paper (section 6.3), byte by byte, and what ends a
//! chunk that no anchor ends.

use alloc::vec::Vec;
use core::ops::{Range, RangeInclusive};

#[cfg(test)]
use crate::sampling::AnchorDistance;
use crate::{
    chunk::stream::{ChunkBounds, LongChunkBounds},
    marker::{
        PackMask,
        backup::{CANDIDATE_HASH, Rank, rank},
        pack::WINDOW_BYTES,
    },
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

/// The anchors of a whole stream, as [`AnchorFinder::sparse`](crate::marker::AnchorFinder::sparse)
/// defines them.
#[must_use]
#[cfg(test)]
pub(crate) fn sparse_anchors(stream: &[u8], distance: AnchorDistance) -> Vec<u64> {
    let bits = distance.bytes().ilog2();
    let mask = PackMask::with_bits(bits.min(15) as u8).expect("6 to 15");
    let mut anchors = anchors(stream, mask);
    anchors.retain(|&anchor| {
        let window = stream[anchor as usize..].first_chunk();
        rank(window.expect("an anchor is a window")).leading_ones() >= bits.saturating_sub(15)
    });
    anchors
}

/// The chunks of a whole stream, cut at PACK's anchors.
#[must_use]
pub fn chunks(stream: &[u8], mask: PackMask, bounds: ChunkBounds) -> Vec<Range<u64>> {
    chunks_at(stream, &anchors(stream, mask), bounds.into())
}

/// The chunks of a whole stream that has these anchors: each ends at the first anchor that its bounds allow, or at a backup
/// anchor, or at the stream's end.
#[must_use]
pub(crate) fn chunks_at(
    stream: &[u8],
    anchors: &[u64],
    bounds: LongChunkBounds,
) -> Vec<Range<u64>> {
    let stream_bytes = stream.len() as u64;
    let mut chunks = Vec::new();
    let mut start = 0;
    while start < stream_bytes {
        let longest = start + bounds.bytes_max();
        let allowed = start + bounds.bytes_min()..=longest;
        let anchor = anchors.iter().find(|anchor| allowed.contains(anchor));
        let end = match anchor {
            Some(&anchor) => anchor,
            None if stream_bytes <= longest => stream_bytes,
            None => {
                let from = bounds.bytes_min().max(bounds.bytes_max() / 2 + 1);
                backup_anchor(stream, start + from..=longest).unwrap_or(longest)
            }
        };
        chunks.push(start..end);
        start = end;
    }
    chunks
}

/// The candidate with the highest rank, the last one of equals.
fn backup_anchor(stream: &[u8], positions: RangeInclusive<u64>) -> Option<u64> {
    let candidates =
        positions.filter_map(|position| Some((candidate(stream, position)?, position)));
    candidates.max().map(|(_, position)| position)
}

/// The rank of the window at `position` of a whole stream, if that may be a backup anchor.
pub(crate) fn candidate(stream: &[u8], position: u64) -> Option<Rank> {
    let window = stream.get(position as usize..)?.first_chunk()?;
    (hash(&window[..16]) == CANDIDATE_HASH).then(|| rank(window))
}

fn hash(bytes: &[u8]) -> u8 {
    match *bytes {
        [byte] => byte ^ byte >> 4,
        _ => {
            let (first, second) = bytes.split_at(bytes.len() / 2);
            hash(first).wrapping_mul(bytes.len() as u8 + 1) ^ hash(second)
        }
    }
}
