//! How content is cut into chunks (CZIP, section 3.3): by PACK's anchors, for now.

use std::ops::Range;

use refrain_codec::{
    chunk::stream::{ChunkBounds, StreamChunks},
    marker::PackMask,
};

/// A way to cut.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ChunkingMethod {
    /// At every so many bytes.
    Fixed,
    /// By Rabin fingerprints.
    Modp,
    /// By PACK's anchors.
    Pack,
}

/// How content is cut.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Chunking {
    average_bits: u8,
}

impl Default for Chunking {
    fn default() -> Self {
        Self { average_bits: 15 }
    }
}

impl Chunking {
    /// The method.
    #[must_use]
    pub fn method(self) -> ChunkingMethod {
        ChunkingMethod::Pack
    }

    /// The average chunk.
    #[must_use]
    pub fn average_bytes(self) -> u32 {
        1 << self.average_bits
    }

    /// The shortest.
    #[must_use]
    pub fn min_bytes(self) -> u32 {
        self.average_bytes() / 4
    }

    /// The longest.
    #[must_use]
    pub fn max_bytes(self) -> u32 {
        (self.average_bytes() * 4).min(ChunkBounds::LIMIT as u32)
    }

    /// The same with an average of at most so many bytes.
    #[must_use]
    pub fn at_most(self, average_bytes: u32) -> Self {
        Self {
            average_bits: self.average_bits.min(average_bytes.ilog2() as u8),
        }
    }
}

/// Cuts a stream.
pub struct Chunker {
    chunks: StreamChunks,
    found: Vec<Range<u64>>,
    bytes_min: u64,
    /// Where what is being cut began, and how much of the stream came.
    start: u64,
    fed: u64,
}

impl Chunker {
    /// At the beginning of a stream.
    #[must_use]
    pub fn new(chunking: Chunking) -> Self {
        let mask = PackMask::with_bits(chunking.average_bits).unwrap_or_default();
        let (min, max) = (chunking.min_bytes(), chunking.max_bytes());
        let bounds = ChunkBounds::new(min as usize, max as usize).unwrap_or_default();
        Self {
            chunks: StreamChunks::new(mask, bounds),
            found: Vec::new(),
            bytes_min: min.into(),
            start: 0,
            fed: 0,
        }
    }

    /// The next bytes: appends where chunks end.
    pub fn feed(&mut self, piece: &[u8], ends: &mut Vec<u64>) {
        self.chunks.feed(piece, &mut self.found);
        self.fed += piece.len() as u64;
        ends.extend(self.found.drain(..).map(|chunk| chunk.end + self.start));
    }

    /// Something ends here: so does a chunk, if enough came.
    pub fn boundary(&mut self, ends: &mut Vec<u64>) {
        if self.fed - self.start >= self.bytes_min {
            self.finish(ends);
        }
    }

    /// The stream ends.
    pub fn finish(&mut self, ends: &mut Vec<u64>) {
        self.chunks.finish(&mut self.found);
        ends.extend(self.found.drain(..).map(|chunk| chunk.end + self.start));
        self.start = self.fed;
    }
}
