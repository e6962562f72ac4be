//! MAXP: local maxima over regions of p bytes (EndRE, section 5.1.2, after Anand et al.,
//! "Redundancy in Network Traffic: Findings and Implications", SIGMETRICS 2009).
//!
//! The paper leaves open which region and what happens to equal bytes. Here:
//!
//! - The *value* of a position is its byte; equal bytes are told apart by the bytes that
//!   follow, eight in all. (As a number: the eight bytes, most significant first.)
//! - A position is a *maximum* if no position within p/2 before or after it has a larger
//!   value. Only positions at which a window begins take part.
//! - A maximum is a marker, unless a marker lies within the p/2 positions before it. That
//!   one is then a maximum as well, and of the same value.
//!
//! So a position's content and neighbourhood decide, not where it lies; in random data one
//! position in p + 1 is a marker; two markers are more than p/2 apart; and where content
//! repeats with a short period, as in a run of zeros, every (p/2 + 1)-th maximum or so is
//! one, neither all of them nor none.
//!
//! # How
//! The positions are cut into segments of p/2. All maxima within a segment share the
//! segment's largest value, so at most one of them is a marker: the first that is out of
//! reach of larger values in the segments beside it, and of the last marker.

use alloc::vec::Vec;
use core::ops::Range;

use super::{FindMarkers, SamplingPeriod, WindowBytes, candidates};
use crate::simd::Backend;

/// Bytes that make up a position's value; no more than the shortest window has.
pub(crate) const VALUE_BYTES: usize = 8;

/// Finds MAXP markers.
#[derive(Clone, Copy, Debug)]
pub struct Maxp {
    pub(super) period: SamplingPeriod,
    pub(super) window: WindowBytes,
    pub(super) backend: Backend,
}

impl Maxp {
    /// A finder with this period and window.
    #[must_use]
    pub fn new(period: SamplingPeriod, window: WindowBytes) -> Self {
        Self {
            period,
            window,
            backend: Backend::best(),
        }
    }
}

impl FindMarkers for Maxp {
    fn find(&self, block: &[u8], markers: &mut Vec<u32>) {
        markers.clear();
        let reach = self.period.bytes() / 2;
        let values = Values::new(block, candidates(block, self.window).len());
        // First position out of reach of the last marker, and of the values before this
        // segment that are larger than all of its own.
        let mut shadow_end = 0;
        let mut before: Option<Segment> = None;
        let mut next = values.segment(0, reach);
        while let Some(segment) = next {
            next = values.segment(segment.range.end, reach);
            let Range { mut start, mut end } = segment.range.clone();
            start = start.max(shadow_end);
            if let Some(before) = before.filter(|before| before.peak > segment.peak) {
                start = start.max(values.last_above(segment.peak, before.range) + reach + 1);
            }
            if let Some(next) = next.as_ref().filter(|next| next.peak > segment.peak) {
                let larger = values.first_above(segment.peak, next.range.clone());
                end = end.min(larger - reach);
            }
            if let Some(marker) = values.first_equal(segment.peak, start..end) {
                markers.push(marker as u32);
                shadow_end = marker + reach + 1;
            }
            before = Some(segment);
        }
    }
}

/// Up to p/2 neighbouring positions.
struct Segment {
    range: Range<usize>,
    /// The largest value in `range`.
    peak: u64,
}

/// The values of a block's positions.
struct Values<'a> {
    /// The positions' bytes, and those after the last that its value takes in.
    bytes: &'a [u8],
    count: usize,
}

impl<'a> Values<'a> {
    fn new(block: &'a [u8], count: usize) -> Self {
        Self {
            bytes: block,
            count,
        }
    }

    fn segment(&self, start: usize, length: usize) -> Option<Segment> {
        let range = start..self.count.min(start + length);
        let peak = self.of(range.clone()).max()?;
        Some(Segment { range, peak })
    }

    fn first_equal(&self, value: u64, range: Range<usize>) -> Option<usize> {
        let start = range.start;
        let index = self.of(range).position(|other| other == value)?;
        Some(start + index)
    }

    /// First position of `range` with a value above `value`; there is one.
    fn first_above(&self, value: u64, range: Range<usize>) -> usize {
        let start = range.start;
        let index = self.of(range).position(|other| other > value);
        start + index.expect("the segment's peak is larger")
    }

    /// Last position of `range` with a value above `value`; there is one.
    fn last_above(&self, value: u64, range: Range<usize>) -> usize {
        let start = range.start;
        let index = self.of(range).rposition(|other| other > value);
        start + index.expect("the segment's peak is larger")
    }

    /// The values at `range`, none if it ends before it starts.
    fn of(&self, range: Range<usize>) -> impl ExactSizeIterator<Item = u64> + DoubleEndedIterator {
        let bytes = if range.is_empty() {
            &[]
        } else {
            &self.bytes[range.start..range.end + VALUE_BYTES - 1]
        };
        bytes
            .windows(VALUE_BYTES)
            .map(|value| u64::from_be_bytes(value.try_into().expect("a window of eight bytes")))
    }
}
