//! Chunks: the bytes between two markers (EndRE, section 5.1), what Chunk-Match looks for.
//!
//! The length of a block and its markers enter, ranges leave that cover the block from
//! end to end. The bytes before the first marker and those after the last are chunks too.
//! A chunk is at most 256 bytes long, so that 8 bits hold its length (section 5.2.1); where
//! markers are further apart, a new chunk begins every 256 bytes after the last marker.
//!
//! Those of a stream, longer ones, are in [`stream`], what a user may ask of them in [`chunking`];
//! [`cuts`] finds where they may begin. [`recent`] remembers those that came.

mod bounds;
pub mod chunking;
pub mod cuts;
pub mod fixed;
pub mod hash;
pub mod recent;
pub mod stream;

use core::ops::Range;

/// The longest chunk.
pub const CHUNK_BYTES_MAX: usize = 256;

/// The chunks of a block, in order: none empty, none longer than [`CHUNK_BYTES_MAX`].
///
/// ```
/// use refrain_codec::chunk::Chunks;
///
/// let chunks = Chunks::new(700, &[0, 40, 600]);
/// assert!(chunks.eq([0..40, 40..296, 296..552, 552..600, 600..700]));
/// ```
#[derive(Clone, Debug)]
pub struct Chunks<'a> {
    /// start <= block_bytes
    start: usize,
    block_bytes: usize,
    markers: &'a [u32],
}

impl<'a> Chunks<'a> {
    /// Cuts a block of `block_bytes` at its `markers`, which increase.
    #[must_use]
    pub fn new(block_bytes: usize, markers: &'a [u32]) -> Self {
        debug_assert!(markers.is_sorted());
        debug_assert!(
            markers
                .last()
                .is_none_or(|&last| (last as usize) < block_bytes)
        );
        Self {
            start: 0,
            block_bytes,
            markers,
        }
    }
}

impl Iterator for Chunks<'_> {
    type Item = Range<usize>;

    #[inline]
    fn next(&mut self) -> Option<Range<usize>> {
        if self.start == self.block_bytes {
            return None;
        }
        while let Some((&marker, later)) = self.markers.split_first()
            && marker as usize <= self.start
        {
            self.markers = later;
        }
        let boundary = self
            .markers
            .first()
            .map_or(self.block_bytes, |&marker| marker as usize);
        let end = boundary.min(self.start + CHUNK_BYTES_MAX);
        let chunk = self.start..end;
        self.start = end;
        Some(chunk)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::{collections::BTreeSet, vec::Vec};
    use proptest::{collection::btree_set, prelude::*};

    fn block_and_markers() -> impl Strategy<Value = (usize, BTreeSet<u32>)> {
        (1_usize..3000).prop_flat_map(|length| {
            (
                Just(length),
                btree_set(0..length as u32, 0..=length.min(60)),
            )
        })
    }

    proptest! {
        #[test]
        fn chunks_tile_the_block_and_begin_at_each_marker((length, markers) in block_and_markers()) {
            let list: Vec<u32> = markers.iter().copied().collect();
            let chunks: Vec<Range<usize>> = Chunks::new(length, &list).collect();
            let mut end = 0;
            for chunk in &chunks {
                prop_assert_eq!(chunk.start, end);
                prop_assert!((1..=CHUNK_BYTES_MAX).contains(&chunk.len()));
                let is_cut_short = chunk.len() < CHUNK_BYTES_MAX && chunk.end < length;
                prop_assert!(!is_cut_short || markers.contains(&(chunk.end as u32)));
                end = chunk.end;
            }
            prop_assert_eq!(end, length);
            let starts: BTreeSet<u32> = chunks.iter().map(|chunk| chunk.start as u32).collect();
            prop_assert!(markers.is_subset(&starts));
        }
    }

    #[test]
    fn an_empty_block_has_no_chunk() {
        assert_eq!(Chunks::new(0, &[]).next(), None);
    }
}
