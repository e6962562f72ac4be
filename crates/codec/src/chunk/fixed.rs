//! Chunks of one length, for content in which nothing is ever inserted.

use alloc::vec::Vec;
use core::ops::Range;

/// Cuts a stream that comes in pieces, as [`StreamChunks`](super::stream::StreamChunks) does.
///
/// ```
/// use refrain_codec::chunk::fixed::FixedChunks;
///
/// let mut chunks = Vec::new();
/// let mut fixed = FixedChunks::new(4096);
/// fixed.feed(&[0; 5000], &mut chunks);
/// assert_eq!(chunks, [0..4096]);
/// fixed.finish(&mut chunks);
/// assert_eq!(chunks, [0..4096, 4096..5000]);
/// ```
#[derive(Clone, Debug)]
pub struct FixedChunks {
    chunk_bytes: u64,
    fed_bytes: u64,
}

impl FixedChunks {
    /// At the start of a stream.
    ///
    /// # Panics
    /// If `chunk_bytes` is 0.
    #[must_use]
    pub fn new(chunk_bytes: u64) -> Self {
        assert!(chunk_bytes > 0, "chunks without bytes");
        Self {
            chunk_bytes,
            fed_bytes: 0,
        }
    }

    /// Bytes of the stream so far.
    #[must_use]
    pub fn fed_bytes(&self) -> u64 {
        self.fed_bytes
    }

    /// The next `piece` of the stream: appends the chunks that are complete with it, in order.
    pub fn feed(&mut self, piece: &[u8], chunks: &mut Vec<Range<u64>>) {
        let complete = self.fed_bytes / self.chunk_bytes;
        self.fed_bytes += piece.len() as u64;
        let numbers = complete..self.fed_bytes / self.chunk_bytes;
        chunks.extend(numbers.map(|n| n * self.chunk_bytes..(n + 1) * self.chunk_bytes));
    }

    /// Ends the stream and appends what is left of it. What is fed next begins another stream.
    pub fn finish(&mut self, chunks: &mut Vec<Range<u64>>) {
        let rest = self.fed_bytes % self.chunk_bytes;
        if rest > 0 {
            chunks.push(self.fed_bytes - rest..self.fed_bytes);
        }
        self.fed_bytes = 0;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::marker::pack::streams;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn chunks_do_not_depend_on_how_a_stream_is_split(
            stream in streams::stream(),
            cuts in streams::cuts(),
            chunk_bytes in 1_u64..5000,
        ) {
            let end = stream.len() as u64;
            let starts = (0..end).step_by(chunk_bytes as usize);
            let expected: Vec<Range<u64>> =
                starts.map(|start| start..end.min(start + chunk_bytes)).collect();
            let mut fixed = FixedChunks::new(chunk_bytes);
            // The second time, it must have forgotten the first.
            for _ in 0..2 {
                let mut chunks = Vec::new();
                for piece in streams::split(&stream, &cuts) {
                    fixed.feed(piece, &mut chunks);
                }
                fixed.finish(&mut chunks);
                prop_assert_eq!(&chunks, &expected);
            }
        }
    }
}
