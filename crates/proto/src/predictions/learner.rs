//! A flow's bytes as chunks, for the history.
//!
//! The bytes that a flow received enter, in order, and confirmed chunks, whose cut is known;
//! chunks leave, which cover the flow from end to end. A confirmed chunk begins where the bytes
//! before it end, and cutting begins anew behind it.

use core::ops::Range;

use refrain_codec::chunk::{hash::ChunkHasher, stream::StreamChunks};

use super::history::{FoundChunk, HistoryConfig};

/// Cuts a flow into chunks.
#[derive(Debug)]
pub(crate) struct Learner {
    cutter: StreamChunks,
    hasher: ChunkHasher,
    /// Bytes that belong to no chunk yet.
    uncut: Vec<u8>,
    /// Of the cutter's stream, behind the last chunk.
    cut_bytes: u64,
    ranges: Vec<Range<u64>>,
}

impl Learner {
    pub(crate) fn new(config: &HistoryConfig) -> Self {
        Self {
            cutter: StreamChunks::new(config.mask, config.bounds),
            hasher: config.hasher,
            uncut: Vec::new(),
            cut_bytes: 0,
            ranges: Vec::new(),
        }
    }

    /// The flow's next bytes, as they came; appends the chunks that are complete with them.
    pub(crate) fn feed(&mut self, bytes: &[u8], chunks: &mut Vec<FoundChunk>) {
        self.cutter.feed(bytes, &mut self.ranges);
        self.cut(bytes, chunks);
    }

    /// What came so far ends here, as a chunk of a flow's end does.
    pub(crate) fn finish(&mut self, chunks: &mut Vec<FoundChunk>) {
        self.cutter.finish(&mut self.ranges);
        self.cut(&[], chunks);
        self.cut_bytes = 0;
    }

    /// Takes the chunks out of what is uncut, and of `bytes` behind it.
    fn cut(&mut self, mut bytes: &[u8], chunks: &mut Vec<FoundChunk>) {
        let mut start = 0;
        for range in self.ranges.drain(..) {
            debug_assert_eq!(range.start, self.cut_bytes, "chunks are adjacent");
            self.cut_bytes = range.end;
            let len = (range.end - range.start) as usize;
            let left = self.uncut.len() - start;
            let chunk;
            if left == 0 {
                // Most lie whole in what has just come, and are copied once.
                (chunk, bytes) = bytes.split_at(len);
            } else {
                let missing;
                (missing, bytes) = bytes.split_at(len.saturating_sub(left));
                self.uncut.extend_from_slice(missing);
                chunk = &self.uncut[start..start + len];
                start += len;
            }
            chunks.push(FoundChunk {
                digest: self.hasher.digest(chunk),
                bytes: chunk.into(),
            });
        }
        self.uncut.drain(..start);
        self.uncut.extend_from_slice(bytes);
    }
}

#[cfg(test)]
mod tests;
