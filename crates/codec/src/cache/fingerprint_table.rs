//! The sender's fingerprint table (EndRE, section 5.2.2 and Table 1).
//!
//! A plain array of 4-byte entries, indexed by the fingerprint's low bits, which
//! the index therefore stands for. Up to a cache of 16 MiB an entry is 24 bits of
//! offset and 8 more bits of the fingerprint (the *tag*); above, it is the offset
//! alone. Entries are overwritten in place and never deleted: an entry is a hint,
//! and the caller compares bytes before it believes one.
//!
//! Its size follows the cache's: `cache / p` entries, rounded down to a power of
//! two, so at most 6.25 % of the cache at p = 64 and 12.5 % at p = 32.

use alloc::{vec, vec::Vec};

use crate::{LogPosition, fingerprint::Fingerprint, marker::SamplingPeriod};

/// Caches up to this size leave room for a tag in each entry.
const TAGGED_CACHE_BYTES_MAX: u64 = 1 << 24;

/// Maps fingerprints to the last log position at which they were seen.
#[derive(Debug)]
pub struct FingerprintTable {
    entries: Vec<u32>,
    cache_bytes: u64,
}

impl FingerprintTable {
    /// A table for a cache of `cache_bytes` sampled with `period`.
    ///
    /// # Panics
    /// If `cache_bytes` is above 4 GiB, whose offsets do not fit an entry.
    #[must_use]
    pub fn new(cache_bytes: usize, period: SamplingPeriod) -> Self {
        assert!(cache_bytes as u64 <= 1 << 32, "offsets are 32 bits wide");
        let entries = Self::entries_for(cache_bytes, period);
        Self {
            entries: vec![0; entries],
            cache_bytes: cache_bytes as u64,
        }
    }

    /// Memory that a table for such a cache takes, in bytes.
    #[must_use]
    pub fn bytes_for(cache_bytes: usize, period: SamplingPeriod) -> usize {
        Self::entries_for(cache_bytes, period) * size_of::<u32>()
    }

    /// Memory that the table holds, in bytes.
    #[must_use]
    pub fn allocated_bytes(&self) -> usize {
        self.entries.len() * size_of::<u32>()
    }

    /// Remembers `at` for `fingerprint` and says what was remembered before.
    ///
    /// The answer is a hint: the latest position before `at` with the offset that
    /// the entry holds. The bytes there may be others, or never written.
    #[inline]
    pub fn replace(&mut self, fingerprint: Fingerprint, at: LogPosition) -> Option<LogPosition> {
        let slot = self.slot(fingerprint);
        let offset = (at.0 % self.cache_bytes) as u32;
        let (entry, tag_bits) = if self.is_tagged() {
            (offset | tag(fingerprint), 0xff00_0000)
        } else {
            (offset, 0)
        };
        let before = core::mem::replace(&mut self.entries[slot], entry);
        if (before ^ entry) & tag_bits != 0 {
            return None;
        }
        let before_offset = u64::from(before & !tag_bits);
        let distance = match u64::from(offset).checked_sub(before_offset) {
            Some(0) => self.cache_bytes,
            Some(distance) => distance,
            None => u64::from(offset) + self.cache_bytes - before_offset,
        };
        at.0.checked_sub(distance).map(LogPosition)
    }

    fn entries_for(cache_bytes: usize, period: SamplingPeriod) -> usize {
        let wanted = (cache_bytes / period.bytes()).max(1);
        1 << wanted.ilog2()
    }

    fn is_tagged(&self) -> bool {
        self.cache_bytes <= TAGGED_CACHE_BYTES_MAX
    }

    fn slot(&self, fingerprint: Fingerprint) -> usize {
        // The number of entries is a power of two.
        fingerprint.0 as usize & (self.entries.len() - 1)
    }
}

/// The fingerprint's top 8 bits, which no index covers, in an entry's top 8.
fn tag(fingerprint: Fingerprint) -> u32 {
    (fingerprint.0 >> 56 << 24) as u32
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
    fn remembers_the_latest_position_across_wraps() {
        for cache_bytes in [1u64 << 20, 32 << 20] {
            let mut table = FingerprintTable::new(cache_bytes as usize, SamplingPeriod::default());
            let fingerprint = Fingerprint(0x1234_5678_9abc_def0);
            assert_eq!(table.replace(fingerprint, LogPosition(0)), None);
            assert_eq!(
                table.replace(fingerprint, LogPosition(100)),
                Some(LogPosition(0))
            );
            let later = LogPosition(cache_bytes + 50);
            assert_eq!(table.replace(fingerprint, later), Some(LogPosition(100)));
            let last = LogPosition(3 * cache_bytes + 50);
            let hint = table.replace(fingerprint, last);
            assert_eq!(
                hint,
                Some(LogPosition(2 * cache_bytes + 50)),
                "the latest with that offset"
            );
        }
    }

    #[test]
    fn a_tag_tells_fingerprints_of_one_slot_apart() {
        let mut table = FingerprintTable::new(1 << 20, SamplingPeriod::default());
        table.replace(Fingerprint(5), LogPosition(10));
        assert_eq!(
            table.replace(Fingerprint(5 | 1 << 60), LogPosition(20)),
            None
        );
    }
}
