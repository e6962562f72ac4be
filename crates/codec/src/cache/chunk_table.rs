//! The sender's table of chunk hashes for Chunk-Match (EndRE, section 5.2.1).
//!
//! Maps a chunk's digest to where the chunk lies in the receiver's log, and how long it is.
//! The sender keeps no payload, so what the table says is believed: it compares all 160
//! bits of the digest, and never takes a position that has left the cache for a later one.
//!
//! # Layout
//! A plain array of `cache / p` slots, rounded down to a power of two, 24 bytes each: at
//! p = 64 no more than 37.5 % of the receiver's cache. The index stands for the digest's
//! low bits, and slots are overwritten in place with no bookkeeping. With 2^i slots, the
//! 192 bits of a slot are
//!
//! | bits | hold |
//! |---|---|
//! | 160 - i | the rest of the digest |
//! | 8 | the chunk's length, less 1 |
//! | 24 + i | low bits of the log position plus 1; 0 is an empty slot |
//!
//! The paper's entry has 20 bytes of digest and a 4-byte ⟨offset, length⟩; the index's bits,
//! which need not be stored, make room for a position that says more than an offset.
//!
//! # Stale slots
//! Low bits stand for one position in every 2^(24 + i). They are read as the last such
//! position before the log's head, which is right as long as the head has not moved 2^(24 +
//! i) bytes beyond the oldest position in the table. Long before that, [`insert`] sweeps the
//! table: every slot whose chunk has left the cache is emptied. A cache is less than a 2^14-th
//! of those positions, so that a sweep is rare: one while the cache is filled thousands of
//! times over.
//!
//! [`insert`]: ChunkTable::insert

use crate::{
    LogPosition,
    chunk::{CHUNK_BYTES_MAX, hash::ChunkHash},
    marker::SamplingPeriod,
    memory::Pages,
    simd::prefetch::prefetch,
};

/// Maps chunk hashes to the last log position at which the chunk was inserted.
#[derive(Debug)]
pub(crate) struct ChunkTable {
    /// A power of two of them. All zeros: empty.
    slots: Pages<[u64; 3]>,
    position_bits: u32,
    /// No slot holds an earlier position.
    positions_from: LogPosition,
}

impl ChunkTable {
    /// An empty table for a receiver's cache of `cache_bytes`, sampled with `period`.
    ///
    /// # Panics
    /// If `cache_bytes` is above 4 GiB.
    #[must_use]
    pub(crate) fn new(cache_bytes: usize, period: SamplingPeriod) -> Self {
        assert!(
            cache_bytes as u64 <= 1 << 32,
            "a cache of {cache_bytes} bytes"
        );
        let slots = Self::slots_for(cache_bytes, period);
        Self::with_position_bits(slots, 24 + slots.ilog2())
    }

    /// Memory that a table for such a cache takes, in bytes.
    #[must_use]
    pub(crate) fn bytes_for(cache_bytes: usize, period: SamplingPeriod) -> usize {
        Self::slots_for(cache_bytes, period) * size_of::<[u64; 3]>()
    }

    /// Memory that the table holds, in bytes.
    #[must_use]
    pub(crate) fn allocated_bytes(&self) -> usize {
        self.slots.len() * size_of::<[u64; 3]>()
    }

    /// Asks the processor for the slot of `hash`, which [`get`](Self::get) and
    /// [`insert`](Self::insert) will need.
    #[inline]
    pub(crate) fn prefetch(&self, hash: &ChunkHash) {
        // A slot may begin in one cache line and end in the next.
        let [first, last] = [0, 2].map(|word| self.index(hash) * 3 + word);
        prefetch(self.slots.as_flattened(), first);
        prefetch(self.slots.as_flattened(), last);
    }

    /// Where the chunk with this digest and length lies in the log, if the table knows and
    /// it lies wholly in `oldest..head`.
    #[inline]
    #[must_use]
    pub(crate) fn get(
        &self,
        hash: &ChunkHash,
        chunk_bytes: usize,
        head: LogPosition,
        oldest: LogPosition,
    ) -> Option<LogPosition> {
        let expected = tag(hash, chunk_bytes)?;
        let slot = self.slots[self.index(hash)];
        if ((slot[0] ^ expected[0]) & !self.index_mask()) | (slot[1] ^ expected[1]) != 0
            || (slot[2] ^ expected[2]) >> CODE_LOW_BITS != 0
        {
            return None;
        }
        let position = self.position(slot, head)?;
        let is_in_cache = position >= oldest && position + chunk_bytes as u64 <= head;
        is_in_cache.then_some(position)
    }

    /// Remembers a chunk at its position in the log, whose oldest byte is at `oldest`.
    ///
    /// # Panics
    /// If the chunk is empty or longer than [`CHUNK_BYTES_MAX`].
    #[inline]
    pub(crate) fn insert(
        &mut self,
        hash: &ChunkHash,
        position: LogPosition,
        chunk_bytes: usize,
        oldest: LogPosition,
    ) {
        let Some(mut slot) = tag(hash, chunk_bytes) else {
            panic!("a chunk of {chunk_bytes} bytes");
        };
        let head = position + chunk_bytes as u64;
        if head.since(self.positions_from) > self.positions_apart() / 2 {
            self.sweep(head, oldest);
        }
        debug_assert!(position >= self.positions_from);
        // One position in very many has the code of an empty slot: that chunk is forgotten.
        let code = (position.0 + 1) & (self.positions_apart() - 1);
        let index = self.index(hash);
        slot[0] = slot[0] & !self.index_mask() | code >> CODE_LOW_BITS;
        slot[2] |= code & CODE_LOW_MASK;
        self.slots[index] = slot;
    }

    fn slots_for(cache_bytes: usize, period: SamplingPeriod) -> usize {
        let wanted = (cache_bytes / period.bytes()).max(1);
        1 << wanted.ilog2()
    }

    /// `position_bits` may be fewer than a slot has room for.
    fn with_position_bits(slots: usize, position_bits: u32) -> Self {
        debug_assert!(slots.is_power_of_two());
        debug_assert!(position_bits <= CODE_LOW_BITS + slots.ilog2());
        Self {
            slots: Pages::zeroed(slots),
            position_bits,
            positions_from: LogPosition(0),
        }
    }

    /// Distance of positions with the same code.
    fn positions_apart(&self) -> u64 {
        1 << self.position_bits
    }

    fn index_mask(&self) -> u64 {
        self.slots.len() as u64 - 1
    }

    #[inline]
    fn index(&self, hash: &ChunkHash) -> usize {
        let [low, ..] = words(hash);
        (low & self.index_mask()) as usize
    }

    /// Where a slot's chunk begins, if the slot is not empty and its code is still unique.
    #[inline]
    fn position(&self, slot: [u64; 3], head: LogPosition) -> Option<LogPosition> {
        let code = (slot[0] & self.index_mask()) << CODE_LOW_BITS | slot[2] & CODE_LOW_MASK;
        if code == 0 || head.since(self.positions_from) >= self.positions_apart() {
            return None;
        }
        // The last position plus 1 that is at most `head` and has this code.
        let behind = head.0.wrapping_sub(code) & (self.positions_apart() - 1);
        let position = LogPosition(head.0.checked_sub(behind)?.checked_sub(1)?);
        (position >= self.positions_from).then_some(position)
    }

    /// Empties each slot whose chunk begins before `oldest`.
    fn sweep(&mut self, head: LogPosition, oldest: LogPosition) {
        for index in 0..self.slots.len() {
            let position = self.position(self.slots[index], head);
            if position.is_none_or(|position| position < oldest) {
                self.slots[index] = [0; 3];
            }
        }
        self.positions_from = oldest;
    }
}

/// Of a position's code, so many bits stand in a slot's third word, the others in the first
/// word in place of the index.
const CODE_LOW_BITS: u32 = 24;
const CODE_LOW_MASK: u64 = (1 << CODE_LOW_BITS) - 1;

/// A digest as the 64, 64 and 32 bits of a slot's words.
#[inline]
fn words(ChunkHash(digest): &ChunkHash) -> [u64; 3] {
    let (long, rest) = digest.as_chunks::<8>();
    let (short, _) = rest.as_chunks::<4>();
    let [first, second] = [long[0], long[1]].map(u64::from_le_bytes);
    [first, second, u64::from(u32::from_le_bytes(short[0]))]
}

/// A slot with all of the digest and the chunk's length, and no position; none for a length
/// that no chunk has.
#[inline]
fn tag(hash: &ChunkHash, chunk_bytes: usize) -> Option<[u64; 3]> {
    if !(1..=CHUNK_BYTES_MAX).contains(&chunk_bytes) {
        return None;
    }
    let [first, second, third] = words(hash);
    Some([
        first,
        second,
        third << 32 | (chunk_bytes as u64 - 1) << CODE_LOW_BITS,
    ])
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec::Vec;
    use proptest::{collection::vec, prelude::*};
    use std::collections::HashMap;

    fn period(bytes: usize) -> SamplingPeriod {
        SamplingPeriod::new(bytes).expect("valid")
    }

    /// A digest that looks random, the same for the same `seed`.
    fn hash(seed: u64) -> ChunkHash {
        let mut state = (seed + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        ChunkHash(core::array::from_fn(|_| {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            (state >> 32) as u8
        }))
    }

    #[test]
    fn is_as_small_as_the_paper_says() {
        for mebibytes in [1, 3, 10, 16, 17, 100, 128, 1000, 4096] {
            let cache_bytes = mebibytes << 20;
            let share =
                |p| ChunkTable::bytes_for(cache_bytes, period(p)) as f64 / cache_bytes as f64;
            assert!((0.38 / 2.0 - 0.01..=0.38).contains(&share(64)));
            assert!(share(32) <= 0.76 && share(512) <= 0.05);
        }
        let table = ChunkTable::new(16 << 20, period(64));
        assert_eq!(table.slots.len(), 1 << 18);
        assert_eq!(
            table.allocated_bytes(),
            ChunkTable::bytes_for(16 << 20, period(64))
        );
    }

    #[test]
    fn positions_are_wide_for_every_cache() {
        for (mebibytes, p, bits) in [(1, 64, 38), (1, 512, 35), (128, 32, 46)] {
            let table = ChunkTable::new(mebibytes << 20, period(p));
            assert_eq!(table.position_bits, bits);
            assert!(table.positions_apart() >> 14 > (mebibytes as u64) << 20);
        }
    }

    #[test]
    fn every_bit_of_the_digest_and_the_length_count() {
        let mut table = ChunkTable::new(1 << 20, period(64));
        let (head, oldest) = (LogPosition(1000), LogPosition(0));
        table.insert(&hash(1), LogPosition(500), 256, oldest);
        assert_eq!(
            table.get(&hash(1), 256, head, oldest),
            Some(LogPosition(500))
        );
        assert_eq!(table.get(&hash(1), 255, head, oldest), None);
        assert_eq!(table.get(&hash(1), 512, head, oldest), None);
        for bit in 0..160 {
            let mut other = hash(1);
            other.0[bit / 8] ^= 1 << (bit % 8);
            assert_eq!(table.get(&other, 256, head, oldest), None, "bit {bit}");
        }
    }

    #[test]
    fn only_what_lies_wholly_in_the_cache_is_found() {
        let mut table = ChunkTable::new(1 << 20, period(64));
        let far = 5 << 40;
        table.insert(&hash(1), LogPosition(far), 100, LogPosition(far - 1000));
        let found = |head, oldest| {
            table.get(
                &hash(1),
                100,
                LogPosition(far + head),
                LogPosition(far + oldest - 1),
            )
        };
        assert_eq!(found(100, 1), Some(LogPosition(far)));
        assert_eq!(found(99, 1), None, "not yet all in the log");
        assert_eq!(found(100, 2), None, "its first byte has left");
    }

    /// A slot that nothing touches while the log moves on by all positions of one code.
    #[test]
    fn a_stale_slot_is_never_read_as_a_later_position() {
        let mut table = ChunkTable::with_position_bits(64, 12);
        let cache_bytes = 500;
        table.insert(&hash(0), LogPosition(10), 10, LogPosition(0));
        let others: Vec<ChunkHash> = (1..40)
            .map(hash)
            .filter(|other| table.index(other) != table.index(&hash(0)))
            .collect();
        let mut head = LogPosition(20);
        for other in others.iter().cycle().take(3000) {
            let oldest = head.back(cache_bytes);
            let expected = (oldest.0 <= 10).then_some(LogPosition(10));
            assert_eq!(
                table.get(&hash(0), 10, head, oldest),
                expected,
                "at {head:?}"
            );
            table.insert(other, head, 10, oldest);
            head = head + 10;
        }
    }

    #[test]
    fn a_head_that_leaps_leaves_nothing_stale() {
        let mut table = ChunkTable::with_position_bits(64, 12);
        table.insert(&hash(0), LogPosition(10), 10, LogPosition(0));
        for turns in 1..5 {
            let head = LogPosition(20 + turns * 4096);
            assert_eq!(table.get(&hash(0), 10, head, head.back(500)), None);
        }
        let head = LogPosition(20 + 5 * 4096);
        table.insert(&hash(1), head, 10, head.back(500));
        assert_eq!(table.get(&hash(0), 10, head + 10, head.back(500)), None);
        assert_eq!(
            table.get(&hash(1), 10, head + 10, head.back(500)),
            Some(head)
        );
    }

    proptest! {
        /// 12 bits of position and a cache of 700 bytes: the codes come round many times.
        #[test]
        fn agrees_with_a_model(chunks in vec((0_u64..200, 1_usize..=256, 0_u64..100), 0..600)) {
            let mut table = ChunkTable::with_position_bits(64, 12);
            let mut model: HashMap<usize, (u64, usize, LogPosition)> = HashMap::new();
            let mut head = LogPosition(0);
            for (seed, length, gap) in chunks {
                // A hole, or a bypassed block's worth.
                head = head + gap;
                let oldest = head.back(700);
                for seed in 0..200 {
                    let index = table.index(&hash(seed));
                    let expected = model.get(&index).filter(|&&(known, known_length, position)| {
                        known == seed
                            && known_length == length
                            && position >= oldest
                            && (position.0 + 1) % 4096 != 0
                    });
                    let found = table.get(&hash(seed), length, head, oldest);
                    prop_assert_eq!(found, expected.map(|&(_, _, position)| position));
                }
                model.insert(table.index(&hash(seed)), (seed, length, head));
                table.insert(&hash(seed), head, length, oldest);
                head = head + length as u64;
            }
        }
    }
}
