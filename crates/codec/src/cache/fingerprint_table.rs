//! The sender's fingerprint table (EndRE, section 5.2.2 and Table 1).
//!
//! A plain array of 4-byte entries, indexed by the fingerprint's low bits, which
//! the index therefore stands for. An entry is an offset into the log and, in the bits
//! that an offset of this log leaves free, the top bits of the fingerprint (the *tag*):
//! 8 bits at 16 MiB, as in the paper, 5 at 128 MiB, none at 4 GiB. A tag that differs
//! spares a look into the log. Entries are overwritten in place and never deleted: an
//! entry is a hint, and the caller compares bytes before it believes one.
//!
//! Its size follows the cache's: `cache / p` entries, rounded down to a power of
//! two, so at most 6.25 % of the cache at p = 64 and 12.5 % at p = 32.

use crate::{
    fingerprint::Fingerprint, marker::SamplingPeriod, memory::Pages, simd::prefetch::prefetch,
};

/// Maps fingerprints to the last offset in the log at which they were seen.
#[derive(Debug)]
pub(crate) struct FingerprintTable {
    entries: Pages<u32>,
    /// The bits of an entry that hold its tag.
    tag_bits: u32,
}

impl FingerprintTable {
    /// A table for a cache of `cache_bytes` sampled with `period`.
    ///
    /// # Panics
    /// If `cache_bytes` is above 4 GiB, whose offsets do not fit an entry.
    #[must_use]
    pub(crate) fn new(cache_bytes: usize, period: SamplingPeriod) -> Self {
        assert!(cache_bytes as u64 <= 1 << 32, "offsets are 32 bits wide");
        let entries = Self::entries_for(cache_bytes, period);
        Self {
            entries: Pages::zeroed(entries),
            tag_bits: !(((cache_bytes as u64).next_power_of_two() - 1) as u32),
        }
    }

    /// Memory that a table for such a cache takes, in bytes.
    #[must_use]
    pub(crate) fn bytes_for(cache_bytes: usize, period: SamplingPeriod) -> usize {
        Self::entries_for(cache_bytes, period) * size_of::<u32>()
    }

    /// Memory that the table holds, in bytes.
    #[must_use]
    pub(crate) fn allocated_bytes(&self) -> usize {
        self.entries.len() * size_of::<u32>()
    }

    /// Asks the processor for the entry of `fingerprint`, which
    /// [`replace`](Self::replace) will need.
    #[inline]
    pub(crate) fn prefetch(&self, fingerprint: Fingerprint) {
        prefetch(&self.entries, self.slot(fingerprint));
    }

    /// Remembers the log's `offset` for `fingerprint` and says which one was remembered before.
    ///
    /// The answer is a hint: the bytes there may be others, or never written.
    #[inline]
    pub(crate) fn replace(&mut self, fingerprint: Fingerprint, offset: u32) -> Option<u32> {
        let slot = self.slot(fingerprint);
        let entry = offset | ((fingerprint.0 >> 32) as u32 & self.tag_bits);
        let before = core::mem::replace(&mut self.entries[slot], entry);
        ((before ^ entry) & self.tag_bits == 0).then_some(before & !self.tag_bits)
    }

    /// What [`replace`](Self::replace) would say, with nothing remembered.
    pub(crate) fn get(&self, fingerprint: Fingerprint) -> Option<u32> {
        let entry = self.entries[self.slot(fingerprint)];
        let tag = (fingerprint.0 >> 32) as u32;
        ((entry ^ tag) & self.tag_bits == 0).then_some(entry & !self.tag_bits)
    }

    fn entries_for(cache_bytes: usize, period: SamplingPeriod) -> usize {
        let wanted = (cache_bytes / period.bytes()).max(1);
        1 << wanted.ilog2()
    }

    fn slot(&self, fingerprint: Fingerprint) -> usize {
        // The number of entries is a power of two.
        fingerprint.0 as usize & (self.entries.len() - 1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn is_as_small_as_the_paper_says() {
        for (period, share) in [(64, 0.0625), (32, 0.125)] {
            let period = SamplingPeriod::new(period).expect("valid");
            for mebibytes in [1usize, 3, 10, 16, 17, 100, 128, 1000, 4096] {
                let cache_bytes = mebibytes << 20;
                let bytes = FingerprintTable::bytes_for(cache_bytes, period);
                assert!(bytes as f64 <= share * cache_bytes as f64);
                assert!(bytes as f64 > share / 2.0 * cache_bytes as f64);
            }
        }
        let table = FingerprintTable::new(16 << 20, SamplingPeriod::new(64).expect("valid"));
        assert_eq!(table.entries.len(), 1 << 18, "Table 1 of the paper");
    }

    #[test]
    fn says_what_was_remembered_last() {
        for cache_bytes in [1u64 << 20, 5_000_000, 32 << 20, 1 << 32] {
            let mut table = FingerprintTable::new(cache_bytes as usize, SamplingPeriod::default());
            let fingerprint = Fingerprint(0x1234_5678_9abc_def0);
            let last = (cache_bytes - 1) as u32;
            table.replace(fingerprint, 0);
            assert_eq!(table.get(fingerprint), Some(0));
            assert_eq!(table.replace(fingerprint, 100), Some(0));
            assert_eq!(table.replace(fingerprint, last), Some(100));
            assert_eq!(table.replace(fingerprint, last), Some(last));
            assert_eq!(table.replace(fingerprint, 5), Some(last));
        }
    }

    #[test]
    fn a_tag_tells_fingerprints_of_one_slot_apart() {
        for (cache_bytes, tag_bits) in [(1 << 20, 12), (16 << 20, 8), (128 << 20, 5), (1 << 32, 0)]
        {
            let mut table = FingerprintTable::new(cache_bytes, SamplingPeriod::MAX);
            assert_eq!(table.tag_bits.count_ones(), tag_bits);
            table.replace(Fingerprint(5), 10);
            let is_told_apart = table.replace(Fingerprint(5 | 1 << 63), 20).is_none();
            assert_eq!(is_told_apart, tag_bits > 0);
        }
    }
}
