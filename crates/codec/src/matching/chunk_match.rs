//! Chunk-Match: chunks that repeat in full (EndRE, section 5.2.1 and Figure 4).
//!
//! ```text
//! cut the block at its markers
//! digest its chunks
//! for each chunk:
//!     look its digest up; if the chunk is still in the other end's log, refer to it
//!     remember the chunk at its new position
//! ```
//!
//! The sender keeps digests of 160 bits and positions, no payload: at p = 64 less than
//! 38 % of the receiver's cache. The digest decides, so it is a strong one.
//!
//! Deviation: chunks that follow each other both here and in the log are named by one
//! token, not one each.
//!
//! Chunks are hashed in large batches, which is several times as fast as one by one, and their
//! slots of the table are fetched ahead, so that cache misses overlap. Look-ups and insertions
//! keep the order of the chunks: a chunk may repeat one of the same block.

use alloc::vec::Vec;
use core::ops::Range;

use super::{BlockPlace, BlockWriter, Match, Reach};
use crate::{
    LogPosition,
    cache::chunk_table::ChunkTable,
    chunk::{
        Chunks,
        hash::{ChunkHash, ChunkHasher},
    },
    marker::SamplingPeriod,
    simd::Backend,
    token::REGION_BYTES_MIN,
};

/// So many chunks are hashed at once: all of 64 KiB at p = 64.
const BATCH: usize = 2048;

/// How many chunks ahead of its look-up a slot is fetched.
const FETCH_AHEAD: usize = 16;

/// The Chunk-Match sender: digests.
#[derive(Debug)]
pub(crate) struct ChunkMatch {
    table: ChunkTable,
    hasher: ChunkHasher,
    backend: Backend,
    /// Of the present batch, at most [`BATCH`]; kept for their memory.
    chunks: Vec<Range<usize>>,
    hashes: Vec<ChunkHash>,
}

impl ChunkMatch {
    pub(crate) fn new(
        cache_bytes: usize,
        period: SamplingPeriod,
        hasher: ChunkHasher,
        backend: Backend,
    ) -> Self {
        Self {
            table: ChunkTable::new(cache_bytes, period),
            hasher,
            backend,
            chunks: Vec::new(),
            hashes: Vec::new(),
        }
    }

    pub(crate) fn allocated_bytes(&self) -> usize {
        self.table.allocated_bytes()
    }

    /// Writes the block's regions, of chunks between the markers `found`, and its literals to `out`.
    pub(crate) fn encode(
        &mut self,
        block: &[u8],
        place: BlockPlace,
        reach: &impl Reach,
        found: &[u32],
        out: &mut BlockWriter<'_>,
    ) {
        let mut pending: Option<Match> = None;
        let mut chunks = Chunks::new(block.len(), found);
        while self.next_batch(block, &mut chunks) {
            for index in 0..self.chunks.len() {
                let chunk = self.chunks[index].clone();
                let Some(source) = self.look_up(index, place, reach) else {
                    continue;
                };
                match &mut pending {
                    Some(before) if continues(before, place, chunk.clone(), source) => {
                        before.end = chunk.end;
                    }
                    _ => {
                        let started = Match {
                            start: chunk.start,
                            end: chunk.end,
                            source,
                        };
                        push(out, pending.replace(started));
                    }
                }
            }
        }
        push(out, pending);
    }

    /// Whether the block has a chunk that is in the log.
    pub(crate) fn repeats(
        &mut self,
        block: &[u8],
        place: BlockPlace,
        reach: &impl Reach,
        found: &[u32],
    ) -> bool {
        let mut chunks = Chunks::new(block.len(), found);
        let mut repeats = false;
        while !repeats && self.next_batch(block, &mut chunks) {
            let mut hashed = self.chunks.iter().zip(&self.hashes);
            repeats = hashed.any(|(chunk, hash)| {
                // What comes before the block; in itself it is not there yet.
                let source = self.source(chunk, hash, place, reach, 0);
                chunk.len() >= REGION_BYTES_MIN && source.is_some()
            });
        }
        repeats
    }

    /// Cuts and hashes the block's next chunks; whether there are some.
    fn next_batch(&mut self, block: &[u8], chunks: &mut Chunks<'_>) -> bool {
        self.chunks.clear();
        self.chunks.extend(chunks.take(BATCH));
        if self.chunks.is_empty() {
            return false;
        }
        self.hasher
            .hash_all(self.backend, block, &self.chunks, &mut self.hashes);
        true
    }

    /// Where the bytes of a chunk lie in the log, before the byte `index` of the block.
    #[inline]
    fn source(
        &self,
        chunk: &Range<usize>,
        hash: &ChunkHash,
        place: BlockPlace,
        reach: &impl Reach,
        index: usize,
    ) -> Option<LogPosition> {
        let at = place.at + chunk.start as u64;
        let source = self.table.get(hash, chunk.len(), at, place.oldest)?;
        let sources = place.sources(reach, source, index)?;
        (source + chunk.len() as u64 <= sources.end).then_some(source)
    }

    /// Where the bytes of the batch's chunk `index` lie in the log; remembers the chunk itself.
    #[inline]
    fn look_up(
        &mut self,
        index: usize,
        place: BlockPlace,
        reach: &impl Reach,
    ) -> Option<LogPosition> {
        if let Some(later) = self.hashes.get(index + FETCH_AHEAD) {
            self.table.prefetch(later);
        }
        let (chunk, hash) = (&self.chunks[index], &self.hashes[index]);
        let source = self.source(chunk, hash, place, reach, chunk.start);
        let at = place.at + chunk.start as u64;
        self.table.insert(hash, at, chunk.len(), place.oldest);
        source
    }
}

/// Whether `chunk` at `source` makes one region with the match before it, whose source
/// must still end before the region starts.
fn continues(before: &Match, place: BlockPlace, chunk: Range<usize>, source: LogPosition) -> bool {
    before.end == chunk.start
        && before.source + before.len() as u64 == source
        && source + chunk.len() as u64 <= place.at + before.start as u64
}

fn push(out: &mut BlockWriter<'_>, match_: Option<Match>) {
    if let Some(match_) = match_.filter(|match_| match_.len() >= REGION_BYTES_MIN) {
        out.push(match_);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        EncodedBlock, Encoder, EncoderConfig, SourceCursor,
        geometry::CacheGeometry,
        matching::{Everything, MatchingAlgorithm},
    };

    /// Several batches of chunks that begin with a verse, and end with it once more.
    fn verse_and_refrain() -> Vec<u8> {
        let mut state = 1_u64;
        let noise = core::iter::repeat_with(|| {
            state = state.wrapping_mul(6_364_136_223_846_793_005) + 1;
            (state >> 56) as u8
        });
        let mut bytes: Vec<u8> = noise.take(200_000).collect();
        bytes.extend_from_within(..20_000);
        bytes
    }

    fn encoded(backend: Backend, blocks: &[&[u8]]) -> Vec<EncodedBlock> {
        let geometry = CacheGeometry::new(1 << 20).expect("a valid size");
        let mut encoder = Encoder::new(EncoderConfig {
            matching: MatchingAlgorithm::ChunkMatch,
            backend,
            ..EncoderConfig::with_defaults(geometry)
        });
        let mut cursor = SourceCursor::default();
        let encode = |(number, block): (usize, &&[u8])| {
            let mut out = EncodedBlock::default();
            encoder.encode(number as u64, block, &Everything, &mut cursor, &mut out);
            out
        };
        blocks.iter().enumerate().map(encode).collect()
    }

    #[test]
    fn a_later_batch_repeats_an_earlier_one_of_the_same_block() {
        let block = verse_and_refrain();
        let [first, again] = &encoded(Backend::best(), &[&block, &block])[..] else {
            panic!("two blocks");
        };
        assert!((15_000..=20_000).contains(&first.region_bytes) || cfg!(refrain_weak_hashes));
        assert!(again.region_bytes > block.len() / 4 * 3 || cfg!(refrain_weak_hashes));
    }

    #[test]
    fn every_backend_writes_the_same_tokens() {
        let bytes = verse_and_refrain();
        let blocks = [
            &bytes[..],
            &bytes[..1],
            &bytes[100..70_000],
            &[],
            &bytes[7..],
        ];
        let expected = encoded(Backend::PORTABLE, &blocks);
        for backend in Backend::available() {
            for (block, expected) in encoded(backend, &blocks).iter().zip(&expected) {
                assert_eq!(block.tokens, expected.tokens, "{backend:?}");
                assert_eq!(block.literals, expected.literals, "{backend:?}");
            }
        }
    }
}
