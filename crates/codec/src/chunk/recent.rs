//! Chunks by their hashes, as many as there is room for: the one that was not seen for longest is
//! forgotten first.
//!
//! Hashes enter; a value leaves for each chunk that came before and was not forgotten since. Forgetting
//! costs a repeat that is not found, never a wrong answer.
//!
//! ```text
//! chains: bits of the hash ─▶ entry ─▶ next entry with these bits ─▶ …
//! entries: hash, value, next in its chain; newer and older by when they were last seen
//! ```
//!
//! A longer table is made from the entries alone, so growing needs no memory for the old one.

use alloc::{vec, vec::Vec};

use super::hash::ChunkHash;

/// What follows at the end of a chain or of an order.
const NONE: u32 = u32::MAX;

#[derive(Clone, Copy, Debug)]
struct Entry<V> {
    hash: ChunkHash,
    value: V,
    /// In its chain; of an entry that is not in use, the next such one.
    next: u32,
    /// Seen next after this one.
    newer: u32,
    /// Seen last before this one.
    older: u32,
}

/// The chunks that were seen last, each with a value.
///
/// ```
/// use refrain_codec::chunk::{hash::ChunkHasher, recent::RecentChunks};
///
/// let [a, b, c] = ["a", "b", "c"].map(|chunk| ChunkHasher::Blake3.hash(chunk.as_bytes()));
/// let mut chunks = RecentChunks::new(2);
/// chunks.insert(&a, 1);
/// chunks.insert(&b, 2);
/// assert_eq!(chunks.find(&a), Some(&mut 1));
/// chunks.insert(&c, 3);
/// assert_eq!(chunks.find(&b), None);
/// assert_eq!(chunks.find(&a), Some(&mut 1));
/// assert_eq!(chunks.forgotten(), 1);
/// ```
#[derive(Debug)]
pub struct RecentChunks<V> {
    /// The first entry of each chain. `chains.len()` is 0 or a power of two, at least `len` and less than
    /// twice as much.
    chains: Vec<u32>,
    /// entries.len() <= len_max
    entries: Vec<Entry<V>>,
    /// The first entry that is not in use.
    unused: u32,
    newest: u32,
    oldest: u32,
    /// Entries in use.
    len: usize,
    len_max: usize,
    forgotten: u64,
}

impl<V: Copy> RecentChunks<V> {
    /// Memory for a chunk, at most.
    pub const BYTES_PER_CHUNK: usize = size_of::<Entry<V>>() + 2 * size_of::<u32>();

    /// None yet, and never more than `len_max`, or 2^32 - 1; but one in any case.
    #[must_use]
    pub fn new(len_max: usize) -> Self {
        Self {
            chains: Vec::new(),
            entries: Vec::new(),
            unused: NONE,
            newest: NONE,
            oldest: NONE,
            len: 0,
            len_max: len_max.clamp(1, NONE as usize),
            forgotten: 0,
        }
    }

    /// None yet, and never more than fit `bytes` of memory; but one in any case.
    #[must_use]
    pub fn within(bytes: usize) -> Self {
        Self::new(bytes / Self::BYTES_PER_CHUNK)
    }

    /// Chunks that it does not know any more, as often as it forgot them.
    #[must_use]
    pub fn forgotten(&self) -> u64 {
        self.forgotten
    }

    /// Bytes of memory that it has taken.
    #[must_use]
    pub fn memory_bytes(&self) -> usize {
        self.chains.capacity() * size_of::<u32>() + self.entries.capacity() * size_of::<Entry<V>>()
    }

    /// The value of a chunk, which from now on is the latest.
    pub fn find(&mut self, hash: &ChunkHash) -> Option<&mut V> {
        let mut number = *self.chains.get(self.chain(hash))?;
        loop {
            let entry = self.entries.get(number as usize)?;
            if entry.hash == *hash {
                break;
            }
            number = entry.next;
        }
        if number != self.newest {
            self.unlink(number);
            self.link_newest(number);
        }
        Some(&mut self.entries[number as usize].value)
    }

    /// Takes a chunk that it does not know, as the latest. If there is no more room, it forgets the oldest.
    pub fn insert(&mut self, hash: &ChunkHash, value: V) {
        if self.len == self.len_max {
            self.forget_oldest();
        }
        if self.len == self.chains.len() {
            self.double_chains();
        }
        let chain = self.chain(hash);
        let entry = Entry {
            hash: *hash,
            value,
            next: self.chains[chain],
            newer: NONE,
            older: NONE,
        };
        let number = match self.unused {
            NONE => {
                if self.len == self.entries.capacity() {
                    let more = self.len.max(16).min(self.len_max - self.len);
                    self.entries.reserve_exact(more);
                }
                self.entries.push(entry);
                self.len as u32
            }
            unused => {
                let place = &mut self.entries[unused as usize];
                self.unused = core::mem::replace(place, entry).next;
                unused
            }
        };
        self.chains[chain] = number;
        self.link_newest(number);
        self.len += 1;
    }

    /// Forgets the chunk that was not seen for longest, and gives its value.
    pub fn forget_oldest(&mut self) -> Option<V> {
        let number = self.oldest;
        let Entry {
            hash, value, next, ..
        } = *self.entries.get(number as usize)?;
        let chain = self.chain(&hash);
        let mut link = &mut self.chains[chain];
        while *link != number {
            let before = *link as usize;
            link = &mut self.entries[before].next;
        }
        *link = next;
        self.unlink(number);
        self.entries[number as usize].next = self.unused;
        self.unused = number;
        self.len -= 1;
        self.forgotten += 1;
        Some(value)
    }

    /// By other bytes than the first, which may have chosen this table among several.
    fn chain(&self, ChunkHash(hash): &ChunkHash) -> usize {
        let bits = u64::from_le_bytes(*hash[1..].first_chunk().expect("19 bytes"));
        bits as usize & self.chains.len().wrapping_sub(1)
    }

    fn double_chains(&mut self) {
        let chains = (2 * self.chains.len()).max(1);
        // The old ones go first.
        self.chains = Vec::new();
        self.chains = vec![NONE; chains];
        let mut number = self.oldest;
        while let Some(&Entry { hash, newer, .. }) = self.entries.get(number as usize) {
            let chain = self.chain(&hash);
            let first = core::mem::replace(&mut self.chains[chain], number);
            self.entries[number as usize].next = first;
            number = newer;
        }
    }

    fn unlink(&mut self, number: u32) {
        let Entry { newer, older, .. } = self.entries[number as usize];
        match newer {
            NONE => self.newest = older,
            newer => self.entries[newer as usize].older = older,
        }
        match older {
            NONE => self.oldest = newer,
            older => self.entries[older as usize].newer = newer,
        }
    }

    fn link_newest(&mut self, number: u32) {
        let before = core::mem::replace(&mut self.newest, number);
        match before {
            NONE => self.oldest = number,
            before => self.entries[before as usize].newer = number,
        }
        let entry = &mut self.entries[number as usize];
        entry.newer = NONE;
        entry.older = before;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::{collection::vec, prelude::*};

    /// Hashes of which many are in one chain.
    fn hash(number: u8) -> ChunkHash {
        let mut hash = [0; 20];
        hash[1] = number / 4;
        hash[19] = number;
        ChunkHash(hash)
    }

    /// What a table is to do, by a list from the least recently seen on.
    #[derive(Default)]
    struct Obvious {
        seen: Vec<(ChunkHash, u64)>,
        forgotten: u64,
    }

    impl Obvious {
        fn find(&mut self, hash: &ChunkHash) -> Option<u64> {
            let place = self.seen.iter().position(|(seen, _)| seen == hash)?;
            let seen = self.seen.remove(place);
            self.seen.push(seen);
            Some(seen.1)
        }

        fn forget_oldest(&mut self) -> Option<u64> {
            if self.seen.is_empty() {
                return None;
            }
            self.forgotten += 1;
            Some(self.seen.remove(0).1)
        }
    }

    proptest! {
        #[test]
        fn the_least_recently_seen_is_forgotten_first_and_memory_stays_within_its_bound(
            steps in vec((0_u8..60, 0_u8..12), 0..500),
            len_max in 0_usize..70,
        ) {
            let bytes_max = len_max * RecentChunks::<u64>::BYTES_PER_CHUNK;
            let len_max = len_max.max(1);
            let mut chunks = RecentChunks::within(bytes_max);
            let mut obvious = Obvious::default();
            for (value, (number, kind)) in (0..).zip(steps) {
                let hash = &hash(number);
                match kind {
                    0 => prop_assert_eq!(chunks.forget_oldest(), obvious.forget_oldest()),
                    _ => {
                        let found = chunks.find(hash).copied();
                        prop_assert_eq!(found, obvious.find(hash));
                        if found.is_none() {
                            if obvious.seen.len() == len_max {
                                obvious.forget_oldest();
                            }
                            chunks.insert(hash, value);
                            obvious.seen.push((*hash, value));
                        }
                    }
                }
                prop_assert_eq!(chunks.forgotten(), obvious.forgotten);
                prop_assert_eq!(chunks.len, obvious.seen.len());
                prop_assert!(chunks.memory_bytes() <= bytes_max.max(48), "{}", chunks.memory_bytes());
            }
        }
    }

    #[test]
    fn a_value_can_be_changed() {
        let mut chunks = RecentChunks::new(1);
        chunks.insert(&hash(7), 1);
        *chunks.find(&hash(7)).expect("it is there") = 2;
        assert_eq!(chunks.find(&hash(7)), Some(&mut 2));
    }
}
