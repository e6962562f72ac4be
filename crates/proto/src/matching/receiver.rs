//! The receiving end of one direction of a link.
//!
//! It applies each block as it comes, waits for nothing, and counts what it applied. A
//! block that contradicts the mirrored cache condemns the link: it must never happen,
//! and must never be silent (`docs/architecture.md`, 8).

use std::collections::BTreeMap;

use refrain_codec::{
    Block, DecodeError, Decoder, LogPosition, Prefault, SourceCursor, check_on,
    geometry::CacheGeometry, simd::Backend,
};

use super::check_seed;
use super::second_stage::{Decompressor, StreamKind};
use crate::{
    counters::{Count, LayerCounters},
    fault::{CacheViolation, Fault, Violation},
    frame::{BlockFrame, LaneId, Stream},
    limits::{EXTENTS_MAX, TOKEN_BYTES_MAX},
    planted::Bug,
};

/// Most runs of written positions that are told apart; beyond, the lowest gap counts as written. A sender that keeps to
/// [`EXTENTS_MAX`] sends nothing for it: at most every other of its extents is a gap, and a run ends below them.
const RUNS_MAX: usize = EXTENTS_MAX / 2 + 1;

/// The receiving end of one direction.
pub(crate) struct Receiver {
    geometry: CacheGeometry,
    /// `None`: nothing is kept, and all blocks are bypassed.
    decoder: Option<Decoder>,
    backend: Backend,
    /// Written positions near the end of the log, as disjoint runs `start → end`.
    written: BTreeMap<u64, u64>,
    lanes: BTreeMap<LaneId, ReceiveLane>,
}

struct ReceiveLane {
    tokens: Decompressor,
    literals: Decompressor,
    blocks_applied: u64,
    logged_end: LogPosition,
}

impl Receiver {
    pub(crate) fn new(backend: Backend) -> Self {
        Self {
            geometry: CacheGeometry::SMALLEST,
            decoder: None,
            backend,
            written: BTreeMap::new(),
            lanes: BTreeMap::new(),
        }
    }

    /// Keeps a cache from here on.
    pub(crate) fn keep_cache(&mut self, geometry: CacheGeometry) {
        self.geometry = geometry;
        self.decoder = Some(Decoder::with_backend(geometry, self.backend));
    }

    pub(crate) fn open_lane(&mut self, lane: LaneId) {
        self.lanes.insert(lane, ReceiveLane::new());
    }

    /// Reads no more from `lane`; says how many of its blocks were applied.
    pub(crate) fn close_lane(&mut self, lane: LaneId) -> u64 {
        self.lanes
            .remove(&lane)
            .map_or(0, |lane| lane.blocks_applied)
    }

    /// How many blocks of `lane` were applied since it began.
    pub(crate) fn blocks_applied(&self, lane: LaneId) -> u64 {
        self.lanes.get(&lane).map_or(0, |lane| lane.blocks_applied)
    }

    /// A confirmation came on `lane`, and counts as a block does.
    pub(crate) fn count_confirmation(&mut self, lane: LaneId) {
        if let Some(lane) = self.lanes.get_mut(&lane) {
            lane.blocks_applied += 1;
        }
    }

    /// Applies a block, which lies at `offset` in its flow, and appends its plain bytes to
    /// `plain`.
    pub(crate) fn receive(
        &mut self,
        lane: LaneId,
        block: &BlockFrame<'_>,
        offset: u64,
        cursor: &mut SourceCursor,
        plain: &mut Vec<u8>,
        counters: &mut LayerCounters,
    ) -> Result<(), Fault> {
        let lane = self
            .lanes
            .get_mut(&lane)
            .ok_or(Violation::BlockOnClosedLane)?;
        let at = block
            .position_step
            .map(|step| LogPosition(lane.logged_end.0.wrapping_add(step as u64)));
        let seed = check_seed(lane.blocks_applied, block.flow, offset);
        let tokens = lane.tokens.unpack(block.tokens, TOKEN_BYTES_MAX)?;
        let literals = lane.literals.unpack(block.literals, block.len)?;
        let stream_bytes = tokens.len() + literals.len();
        match at {
            Some(at) => {
                let no_log = Violation::BlockForMissingLog;
                let decoder = self.decoder.as_mut().ok_or(no_log)?;
                admit(&mut self.written, at, block.len, self.geometry)?;
                let BlockFrame { len, check, .. } = *block;
                let decoded = decoder.decode(
                    Block {
                        number: seed,
                        at,
                        len,
                        tokens,
                        literals,
                        check,
                    },
                    cursor,
                    plain,
                );
                match decoded {
                    Err(_) if Bug::UncheckedReferences.is_planted() => {
                        plain.resize(plain.len() + block.len, 0);
                    }
                    decoded => decoded?,
                }
                lane.logged_end = at + block.len as u64;
            }
            None => {
                if !tokens.is_empty() || literals.len() != block.len {
                    return Err(Violation::BypassedBlockWithReferences.into());
                }
                if check_on(self.backend, seed, literals) != block.check {
                    return Err(DecodeError::CheckMismatch.into());
                }
                plain.extend_from_slice(literals);
            }
        }
        counters.add(&LayerCounters {
            app_bytes: block.len as u64,
            confirmed_bytes: 0,
            region_bytes: (block.len - literals.len()) as u64,
            stream_bytes: stream_bytes as u64,
            packed_bytes: (block.tokens.bytes.len() + block.literals.bytes.len()) as u64,
            block_bytes: block.wire_bytes() as u64,
            blocks: 1,
            bypassed_blocks: at.is_none().into(),
        });
        lane.blocks_applied += 1;
        Ok(())
    }

    pub(crate) fn wants_prefault(&self) -> bool {
        self.decoder.as_ref().is_some_and(Decoder::wants_prefault)
    }

    pub(crate) fn prefault(&mut self) -> Option<Prefault> {
        self.decoder.as_mut()?.prefault()
    }

    /// Memory of the cache and the second stage, in bytes.
    pub(crate) fn allocated_bytes(&self) -> usize {
        let second_stage: usize = self
            .lanes
            .values()
            .map(|lane| lane.tokens.allocated_bytes() + lane.literals.allocated_bytes())
            .sum();
        let decoder = self.decoder.as_ref().map_or(0, Decoder::allocated_bytes);
        decoder + second_stage
    }

    pub(crate) fn cache_filled_bytes(&self) -> u64 {
        self.written.last_key_value().map_or(0, |(_, &end)| end)
    }
}

impl ReceiveLane {
    fn new() -> Self {
        Self {
            tokens: Decompressor::new(StreamKind::Tokens),
            literals: Decompressor::new(StreamKind::Literals),
            blocks_applied: 0,
            logged_end: LogPosition(0),
        }
    }
}

impl Decompressor {
    fn unpack<'a>(
        &'a mut self,
        stream: Stream<'a>,
        bytes_max: usize,
    ) -> Result<&'a [u8], Violation> {
        if stream.compressed {
            return self.decompress(stream.bytes, bytes_max);
        }
        if stream.bytes.len() > bytes_max {
            return Err(Violation::StreamLongerThanBlock);
        }
        Ok(stream.bytes)
    }
}

/// Takes the positions of a block in among those that were `written`, as far back as one may still come.
///
/// A sender never has more than a span unacknowledged, so a block lies at most a
/// span before the furthest one, and never where another was written.
fn admit(
    written: &mut BTreeMap<u64, u64>,
    at: LogPosition,
    len: usize,
    geometry: CacheGeometry,
) -> Result<(), Fault> {
    let overlap = CacheViolation::Overlap { at: at.0 };
    let start = at.0;
    let end = start.checked_add(len as u64).ok_or(overlap)?;
    let furthest = written.last_key_value().map_or(0, |(_, &end)| end);
    let oldest = furthest.saturating_sub(geometry.span_bytes() as u64);
    let before = written
        .range(..=start)
        .next_back()
        .map(|(&start, &end)| start..end);
    let after = written.range(start..).next().map(|(&start, _)| start);
    if start < oldest
        || before.as_ref().is_some_and(|before| before.end > start)
        || after.is_some_and(|after| after < end)
    {
        return Err(overlap.into());
    }
    let mut run = start..end;
    if let Some(before) = before.filter(|before| before.end == start) {
        run.start = before.start;
    }
    if let Some(after) = after.filter(|&after| after == end) {
        run.end = written.remove(&after).unwrap_or(end);
    }
    written.insert(run.start, run.end);
    let oldest = run
        .end
        .max(furthest)
        .saturating_sub(geometry.span_bytes() as u64);
    while let Some(first) = written.first_entry().filter(|first| *first.get() <= oldest) {
        first.remove();
    }
    if written.len() > RUNS_MAX
        && let Some((start, _)) = written.pop_first()
        && let Some((_, end)) = written.pop_first()
    {
        written.insert(start, end);
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn geometry() -> CacheGeometry {
        CacheGeometry::new(1 << 20).expect("valid").with_long_span()
    }

    proptest! {
        /// Whatever order blocks come in, each position is written once, and none that lies a span back.
        #[test]
        fn admits_what_a_plain_array_admits(
            blocks in proptest::collection::vec((0..1_200_000_u64, 1..65_536_usize), 1..100),
        ) {
            let mut written = BTreeMap::new();
            let mut plain = vec![false; 1 << 21];
            let mut furthest: usize = 0;
            for (start, len) in blocks {
                let end = start as usize + len;
                let oldest = furthest.saturating_sub(geometry().span_bytes());
                let is_free = !plain[start as usize..end].contains(&true);
                let admitted = admit(&mut written, LogPosition(start), len, geometry());
                prop_assert_eq!(admitted.is_ok(), is_free && start as usize >= oldest);
                if admitted.is_ok() {
                    plain[start as usize..end].fill(true);
                    furthest = furthest.max(end);
                }
            }
        }
    }

    #[test]
    fn gaps_beyond_those_of_a_sender_count_as_written() {
        let mut written = BTreeMap::new();
        let mut admit = |start| admit(&mut written, LogPosition(start), 1, geometry()).is_ok();
        // The lowest block is on its way, and so is every other one after it.
        for index in 0..RUNS_MAX as u64 {
            assert!(admit(2 * index + 1));
        }
        assert!(admit(0) && admit(2), "they come late");
        // More gaps than a sender may have: the lowest ones are holes.
        for index in RUNS_MAX as u64..RUNS_MAX as u64 + 9 {
            assert!(admit(2 * index + 1));
        }
        assert!(!admit(4), "a hole");
        assert!(admit(2 * RUNS_MAX as u64 + 16));
        assert!(written.len() <= RUNS_MAX);
    }
}
