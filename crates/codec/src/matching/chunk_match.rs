//! Chunk-Match: chunks that repeat in full (EndRE, section 5.2.1 and Figure 4).
//!
//! ```text
//! cut the block at its markers
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

use alloc::vec::Vec;
use core::ops::Range;

use super::{BlockPlace, BlockWriter, Match, Reach};
use crate::{
    LogPosition,
    cache::chunk_table::ChunkTable,
    chunk::{Chunks, hash::ChunkHasher},
    marker::{FindMarkers, MarkerFinder, SamplingPeriod},
    token::REGION_BYTES_MIN,
};

/// The Chunk-Match sender: markers and digests.
#[derive(Debug)]
pub(crate) struct ChunkMatch {
    table: ChunkTable,
    hasher: ChunkHasher,
    markers: MarkerFinder,
    found: Vec<u32>,
}

impl ChunkMatch {
    pub(crate) fn new(
        cache_bytes: usize,
        period: SamplingPeriod,
        markers: MarkerFinder,
        hasher: ChunkHasher,
    ) -> Self {
        let table = ChunkTable::new(cache_bytes, period);
        Self {
            table,
            hasher,
            markers,
            found: Vec::new(),
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
        let mut pending: Option<Match> = None;
        for chunk in Chunks::new(block.len(), &self.found) {
            let at = place.at + chunk.start as u64;
            let digest = self.hasher.hash(&block[chunk.clone()]);
            let known = self.table.get(&digest, chunk.len(), at, place.oldest);
            self.table.insert(&digest, at, chunk.len(), place.oldest);
            let source = known.filter(|&source| {
                place
                    .sources(reach, source, chunk.start)
                    .is_some_and(|sources| source + chunk.len() as u64 <= sources.end)
            });
            let Some(source) = source else {
                push(out, pending.take());
                continue;
            };
            match &mut pending {
                Some(before) if continues(before, place, chunk.clone(), source) => {
                    before.end = chunk.end;
                }
                _ => {
                    push(out, pending.take());
                    pending = Some(Match {
                        start: chunk.start,
                        end: chunk.end,
                        source,
                    });
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
