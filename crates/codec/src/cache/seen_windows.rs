//! Repeats of data that the cache has lost, found by samples.
//!
//! Of the windows at markers, one in 512 is remembered, chosen by its fingerprint: one in 16 KiB at p = 32. The list
//! reaches back 16 times as far as the log. A sampled window that is known here and missing in the log is a repeat that
//! a larger cache would have found. This is the estimate of a cache's miss curve by spatial sampling (Waldspurger et al.,
//! SHARDS, FAST 2015), only for misses. A fingerprint is weak: the counts are shown to users, and decide nothing.

use alloc::vec::Vec;

use crate::{fingerprint::Fingerprint, geometry::CacheGeometry};

/// Sizes of cache with a count of their own: 1 MiB, 2 MiB, ... 4 GiB.
const SIZES: usize = 13;

/// The bits of a fingerprint that are 0 in a sample. They are the same for all periods, so that a window that was
/// sampled once is sampled again.
const SAMPLE_MASK: u64 = 511 << 55;

/// The list takes this share of the cache's size, within the bounds below.
const CACHE_SHARE: usize = 128;
const LIST_BYTES_MIN: usize = 4 << 10;
const LIST_BYTES_MAX: usize = 1 << 20;

/// Entries of a bucket, a cache line.
const WAYS: usize = 8;

/// Positions are kept in units of 4 KiB, so 32 bits go around after 16 TiB.
const UNIT_SHIFT: u32 = 12;

/// Repeats in some blocks that the cache had lost, by samples. Those that reach back at most half of the cache are not
/// counted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct MissedRepeats {
    /// Sampled windows that were looked up.
    pub sampled: u32,
    /// Of these, the ones that were seen before and that the cache had lost. Entry `i` counts those that a cache of
    /// 2^i MiB would have kept.
    pub by_cache_size: [u32; SIZES],
}

impl MissedRepeats {
    /// Adds those of other blocks.
    pub fn add(&mut self, other: &Self) {
        self.sampled = self.sampled.saturating_add(other.sampled);
        for (sum, count) in self.by_cache_size.iter_mut().zip(other.by_cache_size) {
            *sum = sum.saturating_add(count);
        }
    }

    /// Those that only a larger cache than this would have kept.
    #[must_use]
    pub fn beyond(&self, cache_bytes: u64) -> Self {
        let mut beyond = *self;
        for (size, count) in beyond.by_cache_size.iter_mut().enumerate() {
            if size_bytes(size) as u64 <= cache_bytes {
                *count = 0;
            }
        }
        beyond
    }

    /// The same for data that is given only half of a cache: a cache of twice the size is enough.
    #[must_use]
    pub fn of_half_caches(&self) -> Self {
        let mut doubled = Self {
            sampled: self.sampled,
            ..Self::default()
        };
        doubled.by_cache_size[1..].copy_from_slice(&self.by_cache_size[..SIZES - 1]);
        doubled
    }

    /// All windows that the cache had lost.
    #[must_use]
    pub fn missed(&self) -> u32 {
        self.by_cache_size.iter().sum()
    }

    /// The size of cache, in bytes, that would have kept nine tenths of them; `None` if there were none.
    #[must_use]
    pub fn sufficient_cache_bytes(&self) -> Option<u64> {
        let missed = u64::from(self.missed());
        let mut kept = 0;
        let size = self.by_cache_size.iter().position(|&count| {
            kept += u64::from(count);
            kept * 10 >= missed * 9
        });
        size.filter(|_| missed > 0)
            .map(|size| size_bytes(size) as u64)
    }
}

/// The list of windows that were seen.
#[derive(Debug)]
pub(crate) struct SeenWindows {
    /// Of entries: 32 bits of the fingerprint, 32 of the position. Their number is a power of two.
    buckets: Vec<[u64; WAYS]>,
    buckets_max: usize,
    /// Entries that were added since there are so many buckets.
    added: usize,
    cache_bytes: u64,
    /// Plain bytes before the present block, also those that never entered the log.
    at: u64,
    missed: MissedRepeats,
}

impl SeenWindows {
    pub(crate) fn new(cache_bytes: usize) -> Self {
        Self {
            buckets: Vec::new(),
            buckets_max: Self::bytes_for(cache_bytes) / size_of::<[u64; WAYS]>(),
            added: 0,
            cache_bytes: cache_bytes as u64,
            at: 0,
            missed: MissedRepeats::default(),
        }
    }

    /// Memory that the list takes at most beside a cache of `cache_bytes`, in bytes.
    pub(crate) fn bytes_for(cache_bytes: usize) -> usize {
        let share = (cache_bytes / CACHE_SHARE).clamp(LIST_BYTES_MIN, LIST_BYTES_MAX);
        1 << share.ilog2()
    }

    pub(crate) fn allocated_bytes(&self) -> usize {
        self.buckets.capacity() * size_of::<[u64; WAYS]>()
    }

    /// Whether the window with `fingerprint` is a sample.
    #[inline(always)]
    pub(crate) fn is_sample(fingerprint: Fingerprint) -> bool {
        fingerprint.0 & SAMPLE_MASK == 0
    }

    /// Remembers a sample at `index` of the present block, and counts it by the answer of its look-up.
    #[cold]
    pub(crate) fn see(&mut self, fingerprint: Fingerprint, index: usize, lookup: Lookup) {
        let now = ((self.at + index as u64) >> UNIT_SHIFT) as u32;
        let before = self.replace(fingerprint.0 as u32, now);
        if lookup == Lookup::None {
            return;
        }
        self.missed.sampled = self.missed.sampled.saturating_add(1);
        let Some(before) = before.filter(|_| lookup == Lookup::Missing) else {
            return;
        };
        let distance = u64::from(now.wrapping_sub(before).saturating_add(1)) << UNIT_SHIFT;
        if let Some(size) = size_for(distance)
            && 2 * size_bytes(size) as u64 > self.cache_bytes
        {
            let count = &mut self.missed.by_cache_size[size];
            *count = count.saturating_add(1);
        }
    }

    /// The present block of `len` bytes is over.
    pub(crate) fn pass(&mut self, len: usize) {
        self.at += len as u64;
    }

    /// The counts since they were last taken.
    pub(crate) fn take_missed(&mut self) -> MissedRepeats {
        core::mem::take(&mut self.missed)
    }

    /// Remembers that the window with `tag` was seen `now`, and says when it was before.
    fn replace(&mut self, tag: u32, now: u32) -> Option<u32> {
        if self.added >= self.buckets.len() * WAYS / 2 && self.buckets.len() < self.buckets_max {
            self.grow();
        }
        let index = tag as usize & (self.buckets.len() - 1);
        let bucket = &mut self.buckets[index];
        let entry = u64::from(tag) << 32 | u64::from(now);
        let known = bucket
            .iter_mut()
            .find(|it| **it != 0 && (**it >> 32) as u32 == tag);
        if let Some(known) = known {
            return Some(core::mem::replace(known, entry) as u32);
        }
        self.added += 1;
        let age = |it: u64| match it {
            0 => u32::MAX,
            _ => now.wrapping_sub(it as u32),
        };
        let oldest = bucket.iter_mut().max_by_key(|it| age(**it));
        *oldest.expect("a bucket has entries") = entry;
        None
    }

    fn grow(&mut self) {
        let count = (self.buckets.len() * 2).max(1);
        let old = core::mem::take(&mut self.buckets);
        self.buckets.reserve_exact(count);
        self.buckets.resize(count, [0; WAYS]);
        self.added = 0;
        for entry in old.into_iter().flatten().filter(|&entry| entry != 0) {
            self.replace((entry >> 32) as u32, entry as u32);
        }
    }
}

/// The answer of the look-up of a sample.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Lookup {
    /// It was not looked up: it lies in a region.
    None,
    /// The log may have it.
    Found,
    /// The log does not have it.
    Missing,
}

fn size_bytes(size: usize) -> usize {
    1 << (20 + size)
}

/// The first size of cache that reaches so far back.
fn size_for(distance: u64) -> Option<usize> {
    (0..SIZES).find(|&size| {
        let geometry = CacheGeometry::new(size_bytes(size)).expect("a valid size");
        (geometry.cache_bytes() - geometry.window_bytes()) as u64 >= distance
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const CACHE_BYTES: usize = 16 << 20;

    /// Between samples, at p = 32.
    const SAMPLE_BYTES: usize = 16 << 10;

    fn sample(number: u32) -> Fingerprint {
        Fingerprint(u64::from(number.wrapping_mul(0x9e37_79b1) | 1))
    }

    fn list() -> SeenWindows {
        SeenWindows::new(CACHE_BYTES)
    }

    #[test]
    fn a_repeat_needs_the_cache_that_reaches_back_to_it() {
        for (distance, size) in [
            (13 << 20, None),
            // An eighth of a cache is for data on its way.
            (15 << 20, Some(32)),
            (27 << 20, Some(32)),
            (29 << 20, Some(64)),
            (400 << 20, Some(512)),
            (3_500 << 20, Some(4096)),
            (3_600 << 20, None),
        ] {
            let mut list = list();
            list.see(sample(1), 0, Lookup::Missing);
            list.pass(distance);
            list.see(sample(1), 0, Lookup::Missing);
            let all = list.take_missed();
            let missed = all.beyond(CACHE_BYTES as u64);
            assert_eq!(missed.sampled, 2);
            let of_half = match size {
                // Data that is given half of the cache needs the next one.
                None if distance < 16 << 20 => Some(32 << 20),
                None | Some(4096) => None,
                Some(size) => Some(size << 21),
            };
            assert_eq!(all.of_half_caches().sufficient_cache_bytes(), of_half);
            let mebibytes = missed.sufficient_cache_bytes().map(|bytes| bytes >> 20);
            assert_eq!(mebibytes, size, "{distance}");
            assert_eq!(
                list.take_missed(),
                MissedRepeats::default(),
                "they were taken"
            );
        }
    }

    #[test]
    fn windows_in_regions_or_in_the_log_are_not_missed_and_are_as_young_as_their_last_copy() {
        let mut list = list();
        list.see(sample(1), 0, Lookup::Missing);
        list.pass(40 << 20);
        list.see(sample(1), 0, Lookup::None);
        list.pass(40 << 20);
        list.see(sample(1), 0, Lookup::Found);
        assert_eq!(list.missed.missed(), 0);
        assert_eq!(list.missed.sampled, 2);
        list.pass(40 << 20);
        list.see(sample(1), 0, Lookup::Missing);
        assert_eq!(list.missed.sufficient_cache_bytes(), Some(64 << 20));
        let halves = list.missed.of_half_caches();
        assert_eq!(halves.sufficient_cache_bytes(), Some(128 << 20));
    }

    #[test]
    fn a_list_reaches_back_as_far_as_it_says_in_bounded_memory() {
        for cache_bytes in [1 << 20, 16 << 20, 128 << 20, 1 << 32] {
            let mut list = SeenWindows::new(cache_bytes);
            assert_eq!(list.allocated_bytes(), 0, "nothing before the first sample");
            let reach = (16 * cache_bytes as u64).min(2 << 30);
            let count = (reach / SAMPLE_BYTES as u64) as u32;
            for number in 0..3 * count {
                list.see(sample(number), 0, Lookup::Missing);
                list.pass(SAMPLE_BYTES);
                assert!(list.allocated_bytes() <= SeenWindows::bytes_for(cache_bytes));
            }
            list.take_missed();
            // Buckets fill unevenly.
            for number in 3 * count - count / 2..3 * count {
                list.see(sample(number), 0, Lookup::Missing);
            }
            let missed = list.take_missed();
            let known = if cache_bytes < 1 << 31 { 0.85 } else { 0.0 };
            let share = f64::from(missed.missed()) / f64::from(missed.sampled);
            assert!(share >= known, "{share} of those at {cache_bytes}");
        }
    }

    proptest! {
        /// Against a map that forgets nothing: no repeat is invented, and none gets a wrong distance.
        #[test]
        fn counts_only_repeats(
            windows in proptest::collection::vec((0_u32..200, 0_usize..8 << 20), 1..300),
        ) {
            let mut list = list();
            let mut last = std::collections::BTreeMap::new();
            let (mut at, mut expected) = (0, [0; SIZES]);
            for (number, len) in windows {
                list.see(sample(number), 0, Lookup::Missing);
                let unit = at >> UNIT_SHIFT;
                if let Some(before) = last.insert(number, unit)
                    && let Some(size) = size_for((unit - before + 1) << UNIT_SHIFT)
                    && 2 * size_bytes(size) > CACHE_BYTES
                {
                    expected[size] += 1;
                }
                list.pass(len);
                at += len as u64;
            }
            // A full bucket forgets.
            let counted = list.take_missed().by_cache_size;
            for (counted, expected) in counted.into_iter().zip(expected) {
                prop_assert!(counted <= expected);
            }
        }
    }
}
