//! Chunk-Match: chunks that repeat in full (EndRE, section 5.2.1 and Figure 4).
//!
//! ```text
//! cut the block at its markers
//! digest all of its chunks
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
//! A block's chunks are hashed together, which is several times as fast as one by one, and
//! their slots of the table are fetched ahead, so that cache misses overlap. Look-ups and
//! insertions keep the order of the chunks: a chunk may repeat one of the same block.

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
    marker::{FindMarkers, MarkerFinder, SamplingPeriod},
    simd::Backend,
    token::REGION_BYTES_MIN,
};

/// How many chunks ahead of its look-up a slot is fetched.
const FETCH_AHEAD: usize = 16;

/// The Chunk-Match sender: markers and digests.
#[derive(Debug)]
pub(crate) struct ChunkMatch {
    table: ChunkTable,
    hasher: ChunkHasher,
    markers: MarkerFinder,
    backend: Backend,
    /// Of the present block; kept for their memory.
    found: Vec<u32>,
    chunks: Vec<Range<usize>>,
    hashes: Vec<ChunkHash>,
}

impl ChunkMatch {
    pub(crate) fn new(
        cache_bytes: usize,
        period: SamplingPeriod,
        markers: MarkerFinder,
        hasher: ChunkHasher,
        backend: Backend,
    ) -> Self {
        Self {
            table: ChunkTable::new(cache_bytes, period),
            hasher,
            markers,
            backend,
            found: Vec::new(),
            chunks: Vec::new(),
            hashes: Vec::new(),
        }
    }

    pub(crate) fn set_period(&mut self, period: SamplingPeriod) {
        self.markers.set_period(period);
    }

    pub(crate) fn allocated_bytes(&self) -> usize {
        self.table.allocated_bytes()
    }

    /// Writes the block's regions and literals to `out`.
    pub(crate) fn encode(
        &mut self,
        block: &[u8],
        place: BlockPlace,
        reach: &impl Reach,
        out: &mut BlockWriter<'_>,
    ) {
        self.found.clear();
        self.markers.find(block, &mut self.found);
        self.chunks.clear();
        self.chunks.extend(Chunks::new(block.len(), &self.found));
        self.hasher
            .hash_all(self.backend, block, &self.chunks, &mut self.hashes);

        let mut pending: Option<Match> = None;
        for (index, chunk) in self.chunks.iter().enumerate() {
            if let Some(later) = self.hashes.get(index + FETCH_AHEAD) {
                self.table.prefetch(later);
            }
            let at = place.at + chunk.start as u64;
            let hash = &self.hashes[index];
            let known = self.table.get(hash, chunk.len(), at, place.oldest);
            self.table.insert(hash, at, chunk.len(), place.oldest);
            let source = known.filter(|&source| {
                place
                    .sources(reach, source, chunk.start)
                    .is_some_and(|sources| source + chunk.len() as u64 <= sources.end)
            });
            let Some(source) = source else { continue };
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
        push(out, pending);
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
