//! A segment at a time: its largest value, and where the segments beside have a larger one.

use alloc::vec::Vec;
use core::{marker::PhantomData, ops::Range};

use super::{VALUE_BYTES, Value};

/// See [`find`](super::find).
pub(super) fn find(
    value: Value,
    block: &[u8],
    positions: usize,
    reach: usize,
    markers: &mut Vec<u32>,
) {
    match value {
        Value::Byte => find_by::<u8>(block, positions, reach, markers),
        Value::EightBytes => find_by::<u64>(block, positions, reach, markers),
    }
}

fn find_by<T: FromBytes>(block: &[u8], positions: usize, reach: usize, markers: &mut Vec<u32>) {
    let values = Values::<T>::new(block, positions);
    // First position out of reach of the last marker, and of the values before this
    // segment that are larger than all of its own.
    let mut shadow_end = 0;
    let mut before: Option<Segment<T>> = None;
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

/// Up to p/2 neighbouring positions.
struct Segment<T> {
    range: Range<usize>,
    /// The largest value in `range`.
    peak: T,
}

/// A value as it lies in a block.
trait FromBytes: Ord + Copy {
    const BYTES: usize;

    fn from_bytes(bytes: &[u8]) -> Self;
}

impl FromBytes for u8 {
    const BYTES: usize = 1;

    fn from_bytes(bytes: &[u8]) -> Self {
        bytes[0]
    }
}

impl FromBytes for u64 {
    const BYTES: usize = VALUE_BYTES;

    fn from_bytes(bytes: &[u8]) -> Self {
        Self::from_be_bytes(bytes.try_into().expect("a window of eight bytes"))
    }
}

/// The values of a block's positions.
struct Values<'a, T> {
    /// The positions' bytes, and those after the last that its value takes in.
    bytes: &'a [u8],
    count: usize,
    value: PhantomData<T>,
}

impl<'a, T: FromBytes> Values<'a, T> {
    fn new(block: &'a [u8], count: usize) -> Self {
        Self {
            bytes: block,
            count,
            value: PhantomData,
        }
    }

    fn segment(&self, start: usize, length: usize) -> Option<Segment<T>> {
        let range = start..self.count.min(start + length);
        let peak = self.of(range.clone()).max()?;
        Some(Segment { range, peak })
    }

    fn first_equal(&self, value: T, range: Range<usize>) -> Option<usize> {
        let start = range.start;
        let index = self.of(range).position(|other| other == value)?;
        Some(start + index)
    }

    /// First position of `range` with a value above `value`; there is one.
    fn first_above(&self, value: T, range: Range<usize>) -> usize {
        let start = range.start;
        let index = self.of(range).position(|other| other > value);
        start + index.expect("the segment's peak is larger")
    }

    /// Last position of `range` with a value above `value`; there is one.
    fn last_above(&self, value: T, range: Range<usize>) -> usize {
        let start = range.start;
        let index = self.of(range).rposition(|other| other > value);
        start + index.expect("the segment's peak is larger")
    }

    /// The values at `range`, none if it ends before it starts.
    fn of(&self, range: Range<usize>) -> impl ExactSizeIterator<Item = T> + DoubleEndedIterator {
        let bytes = if range.is_empty() {
            &[]
        } else {
            &self.bytes[range.start..range.end + T::BYTES - 1]
        };
        bytes.windows(T::BYTES).map(T::from_bytes)
    }
}
