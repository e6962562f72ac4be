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
//!   block before them. Runs and short periods are so repeated in pieces that double.

use super::{BlockPlace, BlockWriter, Match, Reach};
use crate::{
    LogPosition, Prefault,
    cache::{
        fingerprint_table::FingerprintTable,
        log::Log,
        seen_windows::{Lookup, MissedRepeats, SeenWindows},
    },
    fingerprint::{Fingerprint, fingerprint},
    marker::{SamplingPeriod, WindowBytes},
    simd::{
        Backend,
        compare::{EQUAL_BYTES_MAX, equal_bytes},
    },
    token::REGION_BYTES_MIN,
};

/// How far after a mismatch the matcher tries to resume.
const RESUME_BYTES: usize = 32;

/// Shortest region worth its token when it was found by a look-up.
const LOOKED_UP_BYTES_MIN: usize = 12;

/// Of the markers inside a region, one in so many is remembered.
const REMEMBER_ONE_IN: usize = 4;

/// So many markers are looked up at once.
const BATCH: usize = 64;

/// The Max-Match sender: plain bytes, fingerprints.
#[derive(Debug)]
pub(crate) struct MaxMatch {
    log: Log,
    table: FingerprintTable,
    seen: SeenWindows,
    /// Bytes of the window that follows each marker.
    window: usize,
    backend: Backend,
}

/// A marker whose window may lie in the log.
#[derive(Clone, Copy, Debug)]
struct Hint {
    marker: u32,
    /// Where in the log.
    offset: u32,
}

impl MaxMatch {
    pub(crate) fn new(
        cache_bytes: usize,
        period: SamplingPeriod,
        window: WindowBytes,
        backend: Backend,
    ) -> Self {
        Self {
            log: Log::new(cache_bytes, backend),
            table: FingerprintTable::new(cache_bytes, period),
            seen: SeenWindows::new(cache_bytes),
            window: window.bytes(),
            backend,
        }
    }

    pub(crate) fn allocated_bytes(&self) -> usize {
        self.log.allocated_bytes() + self.table.allocated_bytes() + self.seen.allocated_bytes()
    }

    /// Repeats that a larger cache would have found since the last call.
    pub(crate) fn take_missed(&mut self) -> MissedRepeats {
        self.seen.take_missed()
    }

    pub(crate) fn wants_prefault(&self) -> bool {
        self.log.wants_prefault()
    }

    pub(crate) fn prefault(&mut self) -> Option<Prefault> {
        self.log.prefault()
    }

    /// Writes the block's regions, around the markers `found`, and its literals to `out`.
    pub(crate) fn encode(
        &mut self,
        block: &[u8],
        place: BlockPlace,
        reach: &impl Reach,
        found: &[u32],
        out: &mut BlockWriter<'_>,
    ) {
        self.log.write(place.at, block);
        self.backend.run(
            #[inline(always)]
            || self.match_markers(block, place, reach, found, out),
        );
        self.seen.pass(block.len());
    }

    /// Whether the block has a region before it in the log. If it has none, it will not enter the log.
    pub(crate) fn repeats(
        &mut self,
        block: &[u8],
        place: BlockPlace,
        reach: &impl Reach,
        found: &[u32],
    ) -> bool {
        let mut markers = found.iter().map(|&marker| marker as usize);
        if markers.any(|marker| self.repeats_at(block, place, reach, marker)) {
            return true;
        }
        for marker in found.iter().map(|&marker| marker as usize) {
            let fingerprint = fingerprint(&block[marker..][..self.window]);
            if SeenWindows::is_sample(fingerprint) {
                self.seen.see(fingerprint, marker, Lookup::Missing);
            }
        }
        self.seen.pass(block.len());
        false
    }

    fn repeats_at(
        &self,
        block: &[u8],
        place: BlockPlace,
        reach: &impl Reach,
        marker: usize,
    ) -> bool {
        let window = &block[marker..][..self.window];
        let Some(offset) = self.table.get(fingerprint(window)) else {
            return false;
        };
        if self.log.chunk(offset) != window.first_chunk() {
            return false;
        }
        let source = self.log.latest(offset, place.at);
        source.is_some_and(|source| {
            // What comes before the block; in itself it is not there yet.
            let sources = place.sources(reach, source, 0);
            sources.is_some_and(|sources| sources.end.since(source) >= window.len() as u64)
                && self.log.common_prefix(source, window, window.len()) == window.len()
        })
    }

    /// Emits the regions around the markers `found`.
    #[inline(always)]
    fn match_markers(
        &mut self,
        block: &[u8],
        place: BlockPlace,
        reach: &impl Reach,
        found: &[u32],
        out: &mut BlockWriter<'_>,
    ) {
        self.resume(block, place, reach, out);
        // The hints of a batch wait while the next one is looked up: until then, the bytes that
        // they point to have come.
        let (mut hints, mut next) = (Hints::default(), Hints::default());
        for batch in found.chunks(BATCH).chain([&[][..]]) {
            self.look_up(block, place, batch, out.covered(), &mut next);
            for &hint in hints.as_slice() {
                self.follow(block, place, reach, hint, out);
            }
            core::mem::swap(&mut hints, &mut next);
        }
    }

    /// Finds the markers of `batch` outside of what is covered whose windows may lie in the
    /// log, and remembers all of those, and some of the others.
    ///
    /// Table and log are larger than a processor's caches. Loops with nothing else in them,
    /// which ask for what comes after them, let it wait for many places at once.
    #[inline(always)]
    fn look_up(
        &mut self,
        block: &[u8],
        place: BlockPlace,
        batch: &[u32],
        covered: usize,
        hints: &mut Hints,
    ) {
        let window = self.window;
        let fingerprint_at = |marker: u32| fingerprint(&block[marker as usize..][..window]);
        let block_offset = self.log.offset(place.at);
        let until_wrap = self.log.capacity() - block_offset;
        let offset_of = |marker: u32| match (marker as usize).checked_sub(until_wrap) {
            Some(wrapped) => wrapped as u32,
            None => block_offset as u32 + marker,
        };
        let inside = batch.partition_point(|&marker| (marker as usize) < covered);
        let (inside, outside) = batch.split_at(inside);
        for &marker in inside.iter().step_by(REMEMBER_ONE_IN) {
            let fingerprint = fingerprint_at(marker);
            self.table.replace(fingerprint, offset_of(marker));
            if SeenWindows::is_sample(fingerprint) {
                self.seen.see(fingerprint, marker as usize, Lookup::None);
            }
        }
        let mut fingerprints = [Fingerprint(0); BATCH];
        // A bit for each.
        let mut samples = 0_u64;
        for (index, (&marker, fingerprint)) in outside.iter().zip(&mut fingerprints).enumerate() {
            *fingerprint = fingerprint_at(marker);
            self.table.prefetch(*fingerprint);
            samples |= u64::from(SeenWindows::is_sample(*fingerprint)) << index;
        }
        hints.clear();
        for (&marker, &fingerprint) in outside.iter().zip(&fingerprints) {
            let before = self.table.replace(fingerprint, offset_of(marker));
            let offset = before.unwrap_or_default();
            // Without a branch: nobody can foresee which of them are hints.
            hints.push_if(before.is_some(), Hint { marker, offset });
        }
        for hint in hints.as_slice() {
            self.log.prefetch(hint.offset);
        }
        if samples != 0 {
            self.see(block, outside, &fingerprints, samples, hints);
        }
    }

    /// Remembers the `samples` among the markers that were just looked up.
    #[cold]
    fn see(
        &mut self,
        block: &[u8],
        markers: &[u32],
        fingerprints: &[Fingerprint; BATCH],
        mut samples: u64,
        hints: &Hints,
    ) {
        const { assert!(BATCH <= u64::BITS as usize) };
        while samples != 0 {
            let index = samples.trailing_zeros() as usize;
            samples &= samples - 1;
            let marker = markers[index];
            let lookup = self.lookup_of(block, marker, hints);
            self.seen.see(fingerprints[index], marker as usize, lookup);
        }
    }

    /// Whether the log may have the window at `marker`, of those that were just looked up.
    fn lookup_of(&self, block: &[u8], marker: u32, hints: &Hints) -> Lookup {
        let mut hints = hints.as_slice().iter();
        let hint = hints.find(|hint| hint.marker == marker);
        let window = block[marker as usize..].first_chunk();
        match hint.is_some_and(|hint| self.log.chunk(hint.offset) == window) {
            true => Lookup::Found,
            false => Lookup::Missing,
        }
    }

    /// Emits the region around `hint`, if there is one outside of what is covered.
    #[inline(always)]
    fn follow(
        &self,
        block: &[u8],
        place: BlockPlace,
        reach: &impl Reach,
        hint: Hint,
        out: &mut BlockWriter<'_>,
    ) {
        let marker = hint.marker as usize;
        if marker >= out.covered()
            && self.log.chunk(hint.offset) == block[marker..].first_chunk()
            && let Some(source) = self.log.latest(hint.offset, place.at + marker as u64)
            && let Some(match_) = self.grow(block, place, reach, source, marker, out.covered())
            && match_.len() >= LOOKED_UP_BYTES_MIN
        {
            out.push(match_);
            self.redouble(block, place, reach, match_, out);
            self.resume(block, place, reach, out);
        }
    }

    /// Goes on where a match repeats what lies right before it, as in a run or a short period:
    /// then it makes twice as much to repeat, and so on.
    #[inline(always)]
    fn redouble(
        &self,
        block: &[u8],
        place: BlockPlace,
        reach: &impl Reach,
        mut last: Match,
        out: &mut BlockWriter<'_>,
    ) {
        while last.source >= place.at
            && last.source + last.len() as u64 == place.at + last.start as u64
            && let Some(next) = self.grow(block, place, reach, last.source, last.end, last.end)
        {
            out.push(next);
            last = next;
        }
    }

    /// Goes on with the flow's last source for as long as something near it matches.
    #[inline(always)]
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

    /// The next match with its source at the distance of `expected` from `block[covered]`. One
    /// comparison finds where it begins, and most often where it ends.
    #[inline(always)]
    fn resume_once(
        &self,
        block: &[u8],
        place: BlockPlace,
        reach: &impl Reach,
        expected: LogPosition,
        covered: usize,
    ) -> Option<Match> {
        let ahead = &block[covered..];
        let sources = place.sources(reach, expected, covered)?;
        let room = sources.end.since(expected).min(ahead.len() as u64) as usize;
        let near = room.min(EQUAL_BYTES_MAX);
        let (head, tail) = self.log.pieces(expected, near)?;
        let mut equal = equal_bytes(self.backend, head, ahead);
        if !tail.is_empty() {
            equal |= equal_bytes(self.backend, tail, &ahead[head.len()..]) << head.len();
        }
        let offset = first_run(equal).filter(|&offset| offset <= RESUME_BYTES)?;
        let mut end = offset + (!(equal >> offset)).trailing_zeros() as usize;
        if end == near {
            let rest = expected + near as u64;
            end += self.log.common_prefix(rest, &ahead[near..], room - near);
        }
        Some(Match {
            start: covered + offset,
            end: covered + end,
            source: expected + offset as u64,
        })
    }

    /// The maximal match around `block[index]` and the log at `hint`, not reaching back
    /// before `covered`; `None` if it is shorter than a token can name.
    #[inline(always)]
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

/// Where the first [`REGION_BYTES_MIN`] set bits in a row begin.
fn first_run(bits: u64) -> Option<usize> {
    const { assert!(REGION_BYTES_MIN == 8) };
    let twos = bits & bits >> 1;
    let fours = twos & twos >> 2;
    let eights = fours & fours >> 4;
    (eights != 0).then(|| eights.trailing_zeros() as usize)
}

/// The hints of a batch.
#[derive(Debug)]
struct Hints {
    hints: [Hint; BATCH],
    count: usize,
}

impl Hints {
    fn clear(&mut self) {
        self.count = 0;
    }

    fn as_slice(&self) -> &[Hint] {
        &self.hints[..self.count]
    }

    #[inline]
    fn push_if(&mut self, is_one: bool, hint: Hint) {
        self.hints[self.count] = hint;
        self.count += usize::from(is_one);
    }
}

impl Default for Hints {
    fn default() -> Self {
        let none = Hint {
            marker: 0,
            offset: 0,
        };
        Self {
            hints: [none; BATCH],
            count: 0,
        }
    }
}
