//! Max-Match: maximal regions around fingerprints (EndRE, section 5.2.2).
//!
//! ```text
//! write the block to the log
//! where the flow's last region would go on, resume
//! for each marker outside of what is matched already:
//!     look its window's fingerprint up and remember the marker in the same step
//!     compare bytes forwards and backwards, as far as the bounds allow
//!     emit the region; after it, try to resume at the same distance
//! ```
//!
//! Beyond the paper:
//! - *Resuming*: after a mismatch, eight equal bytes within the next 32 at the same
//!   distance go on with the same source, with no look-up. Markers need a window of `w`
//!   bytes without a change; resuming finds what lies between two close changes.
//! - A region's markers are looked up no more; a quarter of them is remembered, so that
//!   the table points to the younger of two copies, at little cost.
//! - Markers are looked up in batches, so that the look-ups' cache misses overlap: on data
//!   that repeats nothing, they are most of the work.
//! - Regions cross the boundaries of earlier blocks, and may lie in the part of the same
//!   block before them.

use alloc::vec::Vec;

use super::{BlockPlace, BlockWriter, Match, Reach};
use crate::{
    LogPosition,
    cache::{fingerprint_table::FingerprintTable, log::Log},
    fingerprint::fingerprint,
    marker::{FindMarkers, MarkerFinder, SamplingPeriod},
    token::REGION_BYTES_MIN,
};

/// How far after a mismatch the matcher tries to resume.
const RESUME_BYTES: usize = 32;

/// Shortest region worth its token when it was found by a look-up.
const LOOKED_UP_BYTES_MIN: usize = 12;

/// Of the markers inside a region, one in so many is remembered.
const REMEMBER_ONE_IN: usize = 4;

/// So many markers are looked up at once.
const BATCH: usize = 16;

/// The Max-Match sender: plain bytes, fingerprints, markers.
#[derive(Debug)]
pub(crate) struct MaxMatch {
    log: Log,
    table: FingerprintTable,
    markers: MarkerFinder,
    found: Vec<u32>,
}

impl MaxMatch {
    pub(crate) fn new(cache_bytes: usize, period: SamplingPeriod, markers: MarkerFinder) -> Self {
        Self {
            log: Log::new(cache_bytes),
            table: FingerprintTable::new(cache_bytes, period),
            markers,
            found: Vec::new(),
        }
    }

    pub(crate) fn set_period(&mut self, period: SamplingPeriod) {
        self.markers.set_period(period);
    }

    pub(crate) fn allocated_bytes(&self) -> usize {
        self.log.allocated_bytes() + self.table.allocated_bytes()
    }

    /// Writes the block's regions and literals to `out`.
    pub(crate) fn encode(
        &mut self,
        block: &[u8],
        place: BlockPlace,
        reach: &impl Reach,
        out: &mut BlockWriter<'_>,
    ) {
        self.log.write(place.at, block);
        let mut found = core::mem::take(&mut self.found);
        found.clear();
        self.markers.find(block, &mut found);

        self.resume(block, place, reach, out);
        let mut hints = [None; BATCH];
        for batch in found.chunks(BATCH) {
            self.look_up(block, place, batch, out.covered(), &mut hints);
            for (&marker, hint) in batch.iter().zip(hints) {
                let marker = marker as usize;
                if marker >= out.covered()
                    && let Some(hint) = hint
                    && let Some(match_) =
                        self.grow(block, place, reach, hint, marker, out.covered())
                    && match_.len() >= LOOKED_UP_BYTES_MIN
                {
                    out.push(match_);
                    self.resume(block, place, reach, out);
                }
            }
        }
        self.found = found;
    }

    /// Says for each marker of `batch` where its window may lie in the log, and remembers it.
    ///
    /// Table and log are larger than a processor's caches. Two loops with nothing else in
    /// them let it wait for many entries at once, and then for many places in the log.
    fn look_up(
        &mut self,
        block: &[u8],
        place: BlockPlace,
        batch: &[u32],
        covered: usize,
        hints: &mut [Option<LogPosition>; BATCH],
    ) {
        let window = self.markers.window().bytes();
        for (index, (&marker, hint)) in batch.iter().zip(hints.iter_mut()).enumerate() {
            let marker = marker as usize;
            let inside = marker < covered;
            *hint = None;
            if !inside || index % REMEMBER_ONE_IN == 0 {
                let fingerprint = fingerprint(&block[marker..marker + window]);
                let before = self.table.replace(fingerprint, place.at + marker as u64);
                *hint = before.filter(|_| !inside);
            }
        }
        for (&marker, hint) in batch.iter().zip(hints) {
            let wanted = block[marker as usize..].first_chunk();
            *hint = hint.filter(|&hint| self.log.chunk(hint) == wanted);
        }
    }

    /// Goes on with the flow's last source for as long as something near it matches.
    fn resume(
        &self,
        block: &[u8],
        place: BlockPlace,
        reach: &impl Reach,
        out: &mut BlockWriter<'_>,
    ) {
        while let Some(match_) = out
            .expected()
            .and_then(|expected| self.resume_once(block, place, reach, expected, out.covered()))
        {
            out.push(match_);
        }
    }

    fn resume_once(
        &self,
        block: &[u8],
        place: BlockPlace,
        reach: &impl Reach,
        expected: LogPosition,
        covered: usize,
    ) -> Option<Match> {
        let wanted = (RESUME_BYTES + REGION_BYTES_MIN).min(block.len() - covered);
        let sources = place.sources(reach, expected, covered)?;
        let near =
            usize::try_from(sources.end.since(expected)).map_or(wanted, |len| len.min(wanted));
        let (head, tail) = self.log.pieces(expected, near)?;
        let mut ahead = [0; RESUME_BYTES + REGION_BYTES_MIN];
        ahead[..head.len()].copy_from_slice(head);
        ahead[head.len()..near].copy_from_slice(tail);
        let offset = ahead[..near]
            .windows(REGION_BYTES_MIN)
            .zip(block[covered..].windows(REGION_BYTES_MIN))
            .position(|(old, new)| old == new)?;
        self.grow(
            block,
            place,
            reach,
            expected + offset as u64,
            covered + offset,
            covered,
        )
    }

    /// The maximal match around `block[index]` and the log at `hint`, not reaching back
    /// before `covered`; `None` if it is shorter than a token can name.
    fn grow(
        &self,
        block: &[u8],
        place: BlockPlace,
        reach: &impl Reach,
        hint: LogPosition,
        index: usize,
        covered: usize,
    ) -> Option<Match> {
        let sources = place.sources(reach, hint, index)?;
        let mut forward = sources.end.since(hint).min((block.len() - index) as u64) as usize;
        forward = self.log.common_prefix(hint, &block[index..], forward);
        let mut backward = hint.since(sources.start).min((index - covered) as u64) as usize;
        if hint >= place.at {
            // Growing back moves the region's start, before which its source must end.
            let gap = index - hint.since(place.at) as usize;
            backward = backward.min(gap - forward);
        }
        backward = self
            .log
            .common_suffix(hint, &block[covered..index], backward);
        let match_ = Match {
            start: index - backward,
            end: index + forward,
            source: hint.back(backward as u64),
        };
        (match_.len() >= REGION_BYTES_MIN).then_some(match_)
    }
}
