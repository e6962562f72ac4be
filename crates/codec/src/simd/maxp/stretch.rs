//! What the versions with vectors share: the values of a stretch of the block, and the choice
//! of markers from comparisons of 64 at a time.

use alloc::vec::Vec;

use crate::simd::{Backend, positions};

/// Positions, and values, to a vector's worth of bits.
pub(super) const GROUP: usize = 64;

/// Positions whose markers are found in one go: few enough that their values stay close.
const STRETCH: usize = 2048;

/// Groups that are compared before markers are chosen: their masks make up a vector.
pub(super) const BATCH: usize = 8;

const REACH_MAX: usize = 256;

/// Groups of a stretch and beside it.
const PEAKS: usize = (STRETCH + 2 * REACH_MAX) / GROUP;

/// What vectors compare.
pub(super) trait Lane: Ord + Copy {
    const LOWEST: Self;
}

impl Lane for u8 {
    const LOWEST: Self = Self::MIN;
}

impl Lane for i64 {
    const LOWEST: Self = Self::MIN;
}

/// Where a block's values come from.
pub(super) trait Source {
    type Value: Lane;

    /// Reads the values from position `first` on.
    fn read(&self, first: usize, values: &mut [Self::Value]);

    /// The block, where it consists of values.
    fn as_values(&self) -> Option<&[Self::Value]>;
}

impl Source for &[u8] {
    type Value = u8;

    fn read(&self, first: usize, values: &mut [u8]) {
        values.copy_from_slice(&self[first..][..values.len()]);
    }

    fn as_values(&self) -> Option<&[u8]> {
        Some(self)
    }
}

/// Eight-byte values of a block, read by a function of the block from a position on.
pub(super) struct Words<'a, F>(pub(super) &'a [u8], pub(super) F);

impl<F: Fn(&[u8], &mut [i64])> Source for Words<'_, F> {
    type Value = i64;

    fn read(&self, first: usize, values: &mut [i64]) {
        self.1(&self.0[first..], values);
    }

    fn as_values(&self) -> Option<&[i64]> {
        None
    }
}

/// Appends to `markers` those of the positions 0 to `count`. `choose(values, shadow, bitmap)`
/// marks those of the positions from `reach` on that [`Shadow::choose`] chooses.
pub(super) fn find<S: Source>(
    backend: Backend,
    source: S,
    count: usize,
    reach: usize,
    choose: impl Fn(&[S::Value], &mut Shadow, &mut [u64]),
    markers: &mut Vec<u32>,
) {
    let mut buffer = [S::Value::LOWEST; STRETCH + 2 * REACH_MAX];
    let mut bitmap = [0; STRETCH / GROUP];
    let mut shadow = Shadow::new(reach);
    for start in (0..count).step_by(STRETCH) {
        let positions = STRETCH.min(count - start);
        let groups = positions.div_ceil(GROUP);
        // With `reach` before the stretch and after it.
        let length = groups * GROUP + 2 * reach;
        let is_inside = start >= reach && start - reach + length <= count;
        let values = match source.as_values() {
            Some(values) if is_inside => &values[start - reach..][..length],
            _ => {
                let values = &mut buffer[..length];
                let first = start.saturating_sub(reach);
                let absent = reach - (start - first);
                let present = (count - first).min(length - absent);
                values[..absent].fill(S::Value::LOWEST);
                source.read(first, &mut values[absent..][..present]);
                values[absent + present..].fill(S::Value::LOWEST);
                values
            }
        };
        let bitmap = &mut bitmap[..groups];
        choose(values, &mut shadow, bitmap);
        // Beyond the block's end, all may be the largest.
        bitmap[groups - 1] &= u64::MAX >> (groups * GROUP - positions);
        positions::append(backend, bitmap, start as u32, markers);
    }
}

/// How the values of a batch compare to the largest of their segments: a bit a position.
pub(super) struct Comparisons {
    /// It is equal.
    pub(super) equal: [[u8; 8]; BATCH],
    /// The value `reach` before is larger.
    pub(super) larger_before: [[u8; 8]; BATCH],
    /// The value `reach` after is larger.
    pub(super) larger_after: [[u8; 8]; BATCH],
}

impl Comparisons {
    const NONE: Self = Self {
        equal: [[0; 8]; BATCH],
        larger_before: [[0; 8]; BATCH],
        larger_after: [[0; 8]; BATCH],
    };

    /// The maxima, where a group consists of segments of `SEGMENT` positions.
    #[inline(always)]
    pub(super) fn maxima<const SEGMENT: usize>(&self) -> [u64; BATCH] {
        let mut maxima = [0; BATCH];
        for (group, maxima) in maxima.iter_mut().enumerate() {
            let mut below_larger = u64::from_le_bytes(self.larger_before[group]);
            let mut above_larger = u64::from_le_bytes(self.larger_after[group]);
            // From each bit set to the ends of its segment.
            let mut step = 1;
            while step < SEGMENT {
                below_larger |= below_larger >> step & lowest::<SEGMENT>(SEGMENT - step);
                above_larger |= above_larger << step & !lowest::<SEGMENT>(step);
                step *= 2;
            }
            *maxima = u64::from_le_bytes(self.equal[group]) & !below_larger & !above_larger;
        }
        maxima
    }
}

/// The lowest `count` positions of each segment.
#[inline(always)]
const fn lowest<const SEGMENT: usize>(count: usize) -> u64 {
    let each_first = u64::MAX / (u64::MAX >> (GROUP - SEGMENT));
    each_first * ((1 << count) - 1)
}

/// What the last marker rules out.
#[derive(Clone, Copy)]
pub(super) struct Shadow {
    pub(super) reach: usize,
    /// Groups to come that lie within its reach.
    groups: usize,
    /// The positions within its reach of the segment after.
    rest: u64,
}

impl Shadow {
    fn new(reach: usize) -> Self {
        Self {
            reach,
            groups: 0,
            rest: 0,
        }
    }

    /// The markers of the next group, which consists of segments of `SEGMENT` positions:
    /// `reach`, or 64 if that is less.
    #[inline(always)]
    fn choose<const SEGMENT: usize>(&mut self, maxima: u64) -> u64 {
        if SEGMENT == GROUP && self.groups > 0 {
            self.groups -= 1;
            return 0;
        }
        let mut chosen = 0;
        for start in (0..GROUP).step_by(SEGMENT) {
            let maxima = maxima >> start & u64::MAX >> (GROUP - SEGMENT) & !self.rest;
            let marker = maxima & maxima.wrapping_neg();
            chosen |= marker << start;
            // All up to the marker, if there is one.
            self.rest = maxima ^ maxima.saturating_sub(1);
        }
        if SEGMENT == GROUP && chosen != 0 {
            self.groups = self.reach / GROUP - 1;
        }
        chosen
    }
}

/// Marks the markers of a stretch. `largest(values)` is the largest of a group, `compare(near,
/// comparisons, index)` sets the comparisons at `index` to those of a group,
/// `maxima(comparisons)` are the maxima of a batch.
///
/// Markers are chosen a batch behind: each choice waits for the one before, and meanwhile the
/// next batch's values are compared.
#[inline(always)]
pub(super) fn choose<T: Lane, const SEGMENT: usize>(
    values: &[T],
    shadow: &mut Shadow,
    bitmap: &mut [u64],
    largest: impl Fn(&[T; GROUP]) -> T,
    compare: impl Fn(Near<'_, T>, &mut Comparisons, usize),
    maxima: impl Fn(&Comparisons) -> [u64; BATCH],
) {
    // A copy, for the compiler to keep in registers.
    let mut ahead = *shadow;
    let reach = ahead.reach;
    let [here, before, after] = [reach, 0, 2 * reach].map(|start| values[start..].as_chunks().0);
    let peaks = wide_peaks(values, reach, largest);
    let mut groups = here.iter().zip(before).zip(after).zip(peaks);

    let mut comparisons = [Comparisons::NONE; STRETCH / GROUP / BATCH];
    let mut bitmap = bitmap.chunks_mut(BATCH);
    for batch in 0..=STRETCH / GROUP / BATCH {
        if let Some(comparisons) = comparisons.get_mut(batch) {
            let groups = groups.by_ref().take(BATCH).enumerate();
            for (index, (((here, before), after), peak)) in groups {
                let near = Near {
                    here,
                    before,
                    after,
                    peak,
                };
                compare(near, comparisons, index);
            }
        }
        if batch > 0 {
            let Some(bitmap) = bitmap.next() else { break };
            for (chosen, maxima) in bitmap.iter_mut().zip(maxima(&comparisons[batch - 1])) {
                *chosen = ahead.choose::<SEGMENT>(maxima);
            }
        }
    }
    *shadow = ahead;
}

/// The values that decide about a group.
pub(super) struct Near<'a, T> {
    pub(super) here: &'a [T; GROUP],
    /// Those `reach` before.
    pub(super) before: &'a [T; GROUP],
    /// Those `reach` after.
    pub(super) after: &'a [T; GROUP],
    /// The largest of the groups within reach of all positions of this one.
    pub(super) peak: T,
}

/// For each group of a stretch, the largest of those groups whose positions are all within
/// reach of all of its: three or seven, if `reach` is more than a group.
#[inline(always)]
fn wide_peaks<T: Lane>(
    values: &[T],
    reach: usize,
    largest: impl Fn(&[T; GROUP]) -> T,
) -> [T; PEAKS] {
    let mut peaks = [T::LOWEST; PEAKS];
    if reach > GROUP {
        let (groups, _) = values[GROUP..values.len() - GROUP].as_chunks();
        for (peak, group) in peaks.iter_mut().zip(groups) {
            *peak = largest(group);
        }
        peaks = largest_of_three(peaks, 1);
    }
    if reach > 2 * GROUP {
        peaks = largest_of_three(peaks, 2);
    }
    peaks
}

/// The largest of each peak, the one `step` after it and the one twice as far.
#[inline(always)]
fn largest_of_three<T: Lane>(peaks: [T; PEAKS], step: usize) -> [T; PEAKS] {
    let mut largest = [T::LOWEST; PEAKS];
    for (first, largest) in largest[..PEAKS - 2 * step].iter_mut().enumerate() {
        *largest = peaks[first]
            .max(peaks[first + step])
            .max(peaks[first + 2 * step]);
    }
    largest
}

/// An eight-byte value, as a number with a sign: all vectors compare those.
pub(super) fn in_signed_order(bytes: &[u8]) -> i64 {
    let value = u64::from_be_bytes(bytes.try_into().expect("eight bytes"));
    (value ^ 1 << 63) as i64
}
